//! The limits of the protocol itself. What an operator may configure is in the daemon's settings;
//! `hello` tells a client both. The table of PROTOCOL.md is checked against this one.

/// One limit: its name, value, unit and reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The name, as in the reply of `hello`.
    pub name: &'static str,
    /// The value.
    pub value: u64,
    /// The unit.
    pub unit: &'static str,
    /// Why it is there.
    pub reason: &'static str,
}

/// Declares one constant a limit and the table of all.
macro_rules! limits {
    ($($name:ident / $key:literal = $value:expr, $unit:literal, $reason:literal;)+) => {
        $(
            #[doc = concat!($reason, ". Unit: ", $unit, ".")]
            pub const $name: u64 = $value;
        )+

        /// Every limit of the protocol.
        pub const TABLE: &[Limit] = &[
            $(Limit { name: $key, value: $name, unit: $unit, reason: $reason },)+
        ];
    };
}

/// Bytes of the length before each frame.
pub const FRAME_HEADER_BYTES: usize = 4;

limits! {
    FRAME_BYTES_MAX / "frame_bytes_max" = 8 * 1024 * 1024, "bytes", "one frame's payload; bounds what a peer can make the other hold";
    INTEGER_MAX / "integer_max" = (1 << 53) - 1, "number", "every integer; beyond it JSON readers lose digits";
    DURATION_MS_MAX / "duration_ms_max" = 366 * 24 * 3600 * 1000, "ms", "every duration; keeps sums of times far from overflow";
    REQUESTS_IN_FLIGHT_MAX / "requests_in_flight_max" = 256, "requests a connection", "requests without a reply; bounds the daemon's work for one client";
    REQUEST_BYTES_CONNECTION_MAX / "request_bytes_connection_max" = 16 * 1024 * 1024, "bytes a connection", "requests being worked on; beyond it the socket is not read";
    REQUEST_BYTES_DAEMON_MAX / "request_bytes_daemon_max" = 256 * 1024 * 1024, "bytes", "the same over all connections";
    REPLY_BYTES_CONNECTION_MAX / "reply_bytes_connection_max" = 8 * 1024 * 1024, "bytes a connection", "replies that wait to be sent; a full queue stalls, then closes";
    REPLY_BYTES_DAEMON_MAX / "reply_bytes_daemon_max" = 256 * 1024 * 1024, "bytes", "the same over all connections; the fullest stalled client is closed first";
    REPLIES_QUEUED_MAX / "replies_queued_max" = 256, "replies a connection", "replies that wait to be sent, by count";
    SEND_STALL_MS / "send_stall_ms" = 10_000, "ms", "how long a send queue may stay full before its connection is closed";
    HELLO_TIMEOUT_MS / "hello_timeout_ms" = 10_000, "ms", "how long a new connection may take to say hello";
    HALF_FRAME_TIMEOUT_MS / "half_frame_timeout_ms" = 30_000, "ms", "how old a half frame may become";
    PROTOCOL_ERRORS_PER_MINUTE_MAX / "protocol_errors_per_minute_max" = 100, "errors a minute", "bad frames and envelopes before a connection is closed";
    OPERATOR_WAITERS_MAX / "operator_waiters_max" = 64, "waits a connection", "blocking calls of an operator's connection";
    VERSIONS_MAX / "versions_max" = 16, "items", "versions named in hello";
    FEATURES_MAX / "features_max" = 64, "items", "features named in hello";
    NAME_CHARS_MAX / "name_chars_max" = 128, "characters", "name and version of a client, a feature, a label";
    REQUEST_KEY_CHARS_MAX / "request_key_chars_max" = 128, "characters", "the key that makes a start idempotent";
    REASON_CHARS_MAX / "reason_chars_max" = 256, "characters", "why an operator looks; it is logged";
    TRACE_CHARS_MAX / "trace_chars_max" = 256, "characters", "a traceparent; it is echoed and logged";
    WORKSPACES_MAX / "workspaces_max" = 16, "items", "workspaces of a session";
    IDLE_CLOSE_MS_MIN / "idle_close_ms_min" = 1000, "ms", "below it a reconnect would lose the session";
    ENV_VALUE_BYTES_MAX / "env_value_bytes_max" = 128 * 1024, "bytes", "one environment value; the kernel takes no longer one";
    UMASK_MAX / "umask_max" = 0o777, "bits", "a umask has nine bits";
    TTY_SIZE_MAX / "tty_size_max" = 65_535, "characters", "rows and columns of a terminal; the kernel holds 16 bits";
    SIGNAL_MAX / "signal_max" = 64, "number", "the last signal there is";
    MEMORY_BYTES_MIN / "memory_bytes_min" = 4 * 1024, "bytes", "memory window of a process; below a page it holds nothing useful";
    SPOOL_BYTES_MIN / "spool_bytes_min" = 64 * 1024, "bytes", "spool of a process; one segment is no smaller";
    PATHS_MAX / "paths_max" = 256, "items", "paths of a workspace claim";
    EVENT_KINDS_MAX / "event_kinds_max" = 64, "items", "kinds of one events/subscribe";
    EVENTS_UNACKNOWLEDGED_MAX / "events_unacknowledged_max" = 64, "records a subscription", "events sent and not acknowledged; the rest waits in the journal";
    NOTIFICATIONS_UNANSWERED_MAX / "notifications_unanswered_max" = 64, "notifications a subscription", "offered and not answered; the rest waits";
    PROCESS_IDS_MAX / "process_ids_max" = 64, "items", "processes of one process/output";
    LIMIT_BYTES_DEFAULT / "limit_bytes_default" = 32 * 1024, "bytes", "one page of output when nothing else is asked for";
    LIMIT_BYTES_MAX / "limit_bytes_max" = 1024 * 1024, "bytes", "one page of output";
    OUTPUT_REPLY_BYTES_MAX / "output_reply_bytes_max" = 2 * 1024 * 1024, "bytes", "raw bytes and text of one reply over all its processes, so that it fits a frame";
    TAIL_LINES_MAX / "tail_lines_max" = 100_000, "lines", "lines looked for from the end";
    TAGS_PER_PAGE_MAX / "tags_per_page_max" = 1000, "items", "chunks named in one page";
    MATCH_BYTES_MAX / "match_bytes_max" = 4096, "bytes", "a pattern; it is compiled";
    INPUT_CALL_BYTES_MAX / "input_call_bytes_max" = 1024 * 1024, "bytes", "data of one process/input; the queue of a process holds no more";
    KEYS_MAX / "keys_max" = 256, "items", "keys of one process/input";
    SEARCH_LIMIT_DEFAULT / "search_limit_default" = 100, "items", "matches of one process/search when nothing else is asked for";
    SEARCH_LIMIT_MAX / "search_limit_max" = 1000, "items", "matches of one process/search";
    EXPORT_CHUNK_BYTES_MAX / "export_chunk_bytes_max" = 256 * 1024, "bytes", "one chunk of an export";
    EXPORT_CHUNKS_MAX / "export_chunks_max" = 4, "items", "chunks of an export on their way; then it waits for export/continue";
    LIST_LIMIT_DEFAULT / "list_limit_default" = 100, "items", "records of one process/list when nothing else is asked for";
    LIST_LIMIT_MAX / "list_limit_max" = 1000, "items", "records of one process/list";
    AFTER_CHARS_MAX / "after_chars_max" = 256, "characters", "the place where a list goes on";
}
