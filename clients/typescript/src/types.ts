// What is sent and what the daemon says, in camel case. Cursors and sizes are bytes, times RFC 3339 in UTC. Words are
// open: a later version has others. Fields of a later version are there, too, only without a type.

type Open<T extends string> = T | (string & {});

/** The state of a process; all but the first two are never left. */
export type State = Open<
  | "starting"
  | "running"
  | "exited"
  | "failed"
  | "timed_out"
  | "interrupted"
  | "terminated"
  | "killed"
  | "lost_on_restore"
>;

/** Why a process is in its terminal state. */
export type Reason = Open<
  | "exited"
  | "failed"
  | "timed-out"
  | "interrupted"
  | "terminated"
  | "killed"
  | "runner-shutdown"
  | "lost-on-restore"
>;

/** Why a call came back. */
export type WokeBy = Open<
  | "poll"
  | "output"
  | "match"
  | "quiet"
  | "bytes"
  | "exit"
  | "leader_exited"
  | "gap"
  | "timeout"
  | "shutdown"
>;

/** What the daemon says of itself. */
export interface Hello {
  readonly version: number;
  readonly server: { readonly name: string; readonly version: string };
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
  readonly containment: { readonly tier: string; readonly guarantees: readonly string[] };
  readonly instanceId: string;
  readonly bootId: string;
  readonly warnings: readonly string[];
}

/** What is left for an owner: running slots, and bytes that can be reserved. */
export interface Free {
  readonly loop: number;
  readonly session: number;
  readonly daemon: number;
  readonly memoryBytes: number;
  readonly spoolBytes: number;
}

/** A session as it was opened or attached. */
export interface SessionInfo {
  readonly sessionId: string;
  readonly loopId: string;
  readonly label?: string;
  readonly state?: Open<"open" | "closing" | "closed">;
  readonly totals?: Readonly<Record<string, number>>;
  readonly free: Free;
}

/** How the command itself ended: a code, or a signal. */
export interface Leader {
  readonly code?: number;
  readonly signal?: number;
  readonly signalName?: string;
  readonly coreDumped?: boolean;
}

/** A piece of safe text and its place. */
export interface Excerpt {
  readonly text: string;
  readonly startCursor: number;
  readonly endCursor: number;
}

/** A chunk as it was read from its pipe. */
export interface Chunk {
  readonly start: number;
  readonly end: number;
  readonly source: Open<"stdout" | "stderr" | "mixed">;
  readonly at?: string;
}

/** A page of output, and what is known of its process. */
export interface Page {
  readonly processId: string;
  readonly state: State;
  readonly startCursor: number;
  readonly fromCursor: number;
  readonly nextCursor: number;
  readonly totalBytes: number;
  readonly retainedFrom: number;
  readonly gap: boolean;
  readonly gapBytes?: number;
  readonly more: boolean;
  readonly eof: boolean;
  /** Text or base64, as asked. */
  readonly output?: string;
  readonly artifact: {
    readonly id: string;
    readonly encoding: string;
    readonly startCursor: number;
    readonly endCursor: number;
  };
  readonly filteredBytes?: number;
  readonly mixed?: boolean;
  readonly heldBytes?: number;
  readonly pendingLine?: string;
  readonly normalized?: boolean;
  readonly binary?: boolean;
  readonly chunks?: readonly Chunk[];
  readonly match?: Excerpt;
  readonly exitCode?: number;
  readonly leader?: Leader;
  readonly reason?: Reason;
  readonly startedAt?: string;
  readonly finishedAt?: string;
  readonly durationMs?: number;
  /** Only `false`: the end is not on disk yet. */
  readonly durable?: boolean;
  readonly wokeBy?: WokeBy;
}

/** The reply to a start: a page from cursor 0 on. */
export interface Started extends Page {
  readonly origin: string;
  readonly wokeBy: WokeBy;
  readonly truncated?: boolean;
  readonly head?: Excerpt;
  readonly tail?: Excerpt;
  readonly omittedBytes?: number;
}

/** The reply to input: what became of it, and a page. */
export interface InputReply extends Page {
  readonly acceptedBytes: number;
  readonly pendingBytes: number;
  readonly discardedBytes?: number;
  readonly flushed?: boolean;
}

/** A signal that the kernel refused. */
export interface SignalError {
  readonly signal: string;
  readonly errno: string;
  readonly count: number;
}

/** What became of a process that was to be stopped. */
export interface Stopped {
  readonly processId: string;
  readonly state: State;
  readonly reason?: Reason;
  readonly exitCode?: number;
  readonly leader?: Leader;
  readonly escalated?: boolean;
  readonly signalErrors?: readonly SignalError[];
  readonly durable?: boolean;
  readonly error?: { readonly code: string; readonly message: string };
}

/** The record of a process. */
export interface ProcessRecord {
  readonly version: number;
  readonly processId: string;
  readonly sessionId: string;
  readonly loopId: string;
  readonly origin: string;
  readonly label?: string;
  readonly command: {
    readonly argv?: readonly string[];
    readonly line?: string;
    readonly cwd?: string;
    readonly commandTruncated?: boolean;
  };
  readonly access: { readonly asked: string; readonly effective: string };
  readonly tty?: { readonly rows: number; readonly cols: number };
  readonly tier: Open<"cgroup" | "shim">;
  readonly limits?: Readonly<Record<string, unknown>>;
  readonly state: State;
  readonly reason?: Reason;
  readonly exitCode?: number;
  readonly leader?: Leader;
  readonly escalated?: boolean;
  readonly endedBy?: string;
  readonly leftovers: number;
  readonly signalErrors?: readonly SignalError[];
  readonly inputDroppedBytes: number;
  readonly oomKilled?: boolean;
  readonly limitExceeded?: string;
  readonly createdAt: string;
  readonly startedAt?: string;
  readonly finishedAt?: string;
  readonly deadlineAt?: string;
  readonly durationMs?: number;
  readonly totalBytes: number;
  readonly retainedFrom: number;
  readonly spoolState: Open<"open" | "degraded" | "sealed" | "corrupt">;
  readonly spoolLostBytes: number;
  readonly sha256?: string;
  readonly pinned?: boolean;
  readonly diagnostic?: string;
  readonly requestKey?: string;
  readonly durable?: boolean;
}

/** A record, and what its tree uses now. */
export interface Inspection {
  readonly record: ProcessRecord;
  readonly liveDescendants: number;
  readonly usage: { readonly cpuMs: number; readonly memoryBytes: number };
  readonly pids?: readonly number[];
}

/** A page of records, newest first. */
export interface Listing {
  readonly records: readonly ProcessRecord[];
  readonly next?: string;
  readonly totals: Readonly<Record<string, number>>;
  readonly free?: Free;
}

/** Lines that match a pattern. */
export interface Found {
  readonly matches: readonly Excerpt[];
  readonly nextCursor: number;
  readonly more: boolean;
  readonly gap: boolean;
  readonly gapBytes?: number;
}

/** What an export sent. */
export interface Exported {
  readonly fromCursor: number;
  readonly endCursor: number;
  readonly bytes: number;
  readonly gapBytes: number;
  readonly sha256: string;
}

/** Something that happened to a process. */
export interface ProcessEvent {
  readonly eventId: string;
  readonly kind: string;
  readonly sessionId: string;
  readonly loopId: string;
  readonly processId: string;
  readonly origin: string;
  readonly state: State;
  readonly createdAt: string;
  readonly startedAt?: string;
  readonly finishedAt?: string;
  readonly diagnostic?: string;
  readonly exitCode?: number;
  readonly reason?: Reason;
  readonly signal?: number;
  readonly access?: string;
  readonly phase?: Open<"started" | "ended">;
}

/** An event and its number. `gap`: events before it are not kept any more. */
export interface EventRecord {
  readonly seq: number;
  readonly event: ProcessEvent;
  readonly gap?: boolean;
}

/** The completion of a process, told once. */
export interface Notification {
  readonly commandId: string;
  readonly sessionId: string;
  readonly loopId: string;
  readonly processId: string;
  readonly state: State;
  readonly reason: Reason;
}

/** What the close of a session stopped. */
export interface Closed {
  readonly stopped: number;
  readonly failures: readonly Stopped[];
}

/** Parameters of `process/start` beside the program itself. */
export interface StartOptions {
  argv?: string[];
  command?: string;
  cwd?: string;
  env?: Record<string, string | null>;
  umask?: number;
  stdin?: "pipe" | "null";
  tty?: boolean;
  rows?: number;
  cols?: number;
  mergeStreams?: boolean;
  background?: boolean;
  yieldTimeMs?: number;
  timeoutMs?: number;
  queueTimeoutMs?: number;
  onLeaderExit?: "kill_tree" | "keep_tree";
  memoryBytes?: number;
  spoolBytes?: number;
  limits?: Record<string, number>;
  limitsRequired?: boolean;
  limitsFallback?: "watchdog";
  workspace?: {
    root: string;
    access: "read_only" | "scoped_write" | "broad_write";
    paths?: string[];
    pathsRead?: string[];
    enforce?: boolean;
  };
  isolate?: boolean;
  origin?: string;
  label?: string;
  requestKey?: string;
  allowClient?: boolean;
  limitBytes?: number;
  fold?: boolean;
  requireSuccess?: boolean;
}

/** What a read waits for. */
export type Wait =
  | "poll"
  | "any"
  | "all"
  | "exit"
  | {
      until: { match?: string; quietMs?: number; bytes?: number; exit?: boolean };
      combine?: "any" | "all";
    };

/** Parameters of `process/output`. */
export interface OutputOptions {
  cursor?: number;
  tailLines?: number;
  limitBytes?: number;
  encoding?: "safe_text" | "base64";
  stream?: "combined" | "stdout" | "stderr";
  fold?: boolean;
  tags?: boolean;
  onGap?: "mark" | "error";
  wait?: Wait;
  timeoutMs?: number;
  requireSuccess?: boolean;
  reason?: string;
}

/** Parameters of `process/input`. */
export interface InputOptions {
  data?: string;
  dataBase64?: string;
  keys?: string[];
  eof?: boolean;
  rows?: number;
  cols?: number;
  flushMs?: number;
  yieldTimeMs?: number;
  cursor?: number;
  limitBytes?: number;
  encoding?: "safe_text" | "base64";
  fold?: boolean;
}

/** Parameters of `session/open` beside ids and key. */
export interface OpenOptions {
  label?: string;
  workspaces?: string[];
  guard?: boolean;
  idleCloseMs?: number;
  quotas?: {
    runningLoopMax?: number;
    runningSessionMax?: number;
    memorySessionBytes?: number;
    spoolSessionBytes?: number;
    retainedSessionMax?: number;
    waitersSessionMax?: number;
  };
}

/** Parameters of `process/list`. */
export interface ListOptions {
  scope?: "loop" | "session";
  sessionId?: string;
  state?: State;
  label?: string;
  limit?: number;
  after?: string;
}

/** What every call takes. */
export interface CallOptions {
  /** Aborting a wait ends it and touches no process; aborting a start stops what it starts. */
  signal?: AbortSignal | undefined;
}

const TERMINAL: ReadonlySet<string> = new Set([
  "exited",
  "failed",
  "timed_out",
  "interrupted",
  "terminated",
  "killed",
  "lost_on_restore",
]);

/** Whether a process is in a state that is never left. */
export function hasEnded(page: { readonly state: State; readonly reason?: Reason }): boolean {
  return TERMINAL.has(page.state) || page.reason !== undefined;
}

/** All that came with the reply to a start, a marker where the middle of a long output is left out. */
export function text(reply: Started): string {
  if (!reply.head || !reply.tail) {
    return reply.output ?? "";
  }
  return `${reply.head.text}\n[... ${reply.omittedBytes} bytes ...]\n${reply.tail.text}`;
}
