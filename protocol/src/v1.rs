//! Version 1: every method, its parameters and its result. Parameters hold every field of the
//! contract; [`Params::later`] names those that a later version of the daemon brings.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::field::{self, FieldError, FieldFault};
use crate::words::{Word, words};

pub mod common;
pub mod daemon;
pub mod events;
pub mod input;
pub mod lease;
pub mod output;
pub mod process;
pub mod session;
pub mod start;
pub mod stored;

pub use common::*;
pub use daemon::*;
pub use events::*;
pub use input::*;
pub use lease::*;
pub use output::*;
pub use process::*;
pub use session::*;
pub use start::*;
pub use stored::*;

/// The number of this version.
pub const VERSION: u32 = 1;

words! {
    /// Every method of the contract.
    Method, "a method" {
        /// Opens a connection.
        Hello = "hello",
        /// Makes a session.
        SessionOpen = "session/open",
        /// Comes back to a session.
        SessionAttach = "session/attach",
        /// Ends a session.
        SessionClose = "session/close",
        /// Stops many.
        SessionStopAll = "session/stop_all",
        /// Lists sessions.
        SessionList = "session/list",
        /// Starts a command.
        ProcessStart = "process/start",
        /// Reads and waits.
        ProcessOutput = "process/output",
        /// Searches lines.
        ProcessSearch = "process/search",
        /// Writes to stdin.
        ProcessInput = "process/input",
        /// Sends a named signal.
        ProcessSignal = "process/signal",
        /// Ends a tree.
        ProcessStop = "process/stop",
        /// Shows one record.
        ProcessInspect = "process/inspect",
        /// Lists records.
        ProcessList = "process/list",
        /// Removes a record.
        ProcessRemove = "process/remove",
        /// Keeps a record.
        ProcessPin = "process/pin",
        /// Streams retained bytes.
        ProcessExport = "process/export",
        /// Follows the journal.
        EventsSubscribe = "events/subscribe",
        /// Acknowledges events.
        EventsAck = "events/ack",
        /// Ends a subscription.
        EventsUnsubscribe = "events/unsubscribe",
        /// Acknowledges a notification.
        NotificationsAck = "notifications/ack",
        /// Claims a workspace.
        LeaseAcquire = "lease/acquire",
        /// Gives a claim back.
        LeaseRelease = "lease/release",
        /// Becomes the operator.
        OperatorAttach = "operator/attach",
        /// Shows the daemon.
        DaemonStatus = "daemon/status",
        /// Shows metrics.
        DaemonMetrics = "daemon/metrics",
        /// Reads the configuration again.
        DaemonReload = "daemon/reload",
        /// Ends the daemon.
        DaemonShutdown = "daemon/shutdown",
    }
}

/// The parameters of one method.
pub trait Params: Serialize + DeserializeOwned {
    /// The method.
    const METHOD: Method;
    /// What it answers.
    type Result: Serialize + DeserializeOwned;

    /// Checks what needs no state of the daemon: ranges, forms, what goes with what.
    /// # Errors
    /// [`FieldError`] naming the first field that is wrong.
    fn validate(&self) -> Result<(), FieldError>;

    /// The first field given that is not in force yet. A given field is never ignored.
    fn later(&self) -> Option<&'static str> {
        None
    }
}

/// Reads, checks and admits parameters.
/// # Errors
/// [`FieldError`] naming the first field that is unknown, missing, of the wrong type, out of
/// range or not supported yet.
pub fn parse_params<T: Params>(raw: Option<&RawValue>) -> Result<T, FieldError> {
    let params: T = field::parse(raw)?;
    params.validate()?;
    match params.later() {
        Some(field) => Err(FieldError::unsupported(field)),
        None => Ok(params),
    }
}

/// Declares [`Call`]: a request of a method in force with its parameters read.
macro_rules! calls {
    ($($variant:ident($params:ty),)+) => {
        /// A request in force, its parameters read and checked.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Call {
            $(#[doc = concat!("See [`", stringify!($params), "`].")] $variant(Box<$params>),)+
        }

        impl Call {
            /// Reads the parameters of `method`.
            /// # Errors
            /// [`FieldError`]; its field is `method` for one that is unknown or not in force.
            pub fn parse(method: &str, params: Option<&RawValue>) -> Result<Self, FieldError> {
                let Some(method) = Method::from_word(method) else {
                    return Err(FieldError::of("method", FieldFault::Unknown, "is unknown"));
                };
                $(if method == <$params as Params>::METHOD {
                    return parse_params::<$params>(params).map(|p| Self::$variant(Box::new(p)));
                })+
                let why = format_args!("`{method}` is not supported yet");
                Err(FieldError::of("method", FieldFault::Unsupported, why))
            }

            /// The method.
            #[must_use]
            pub const fn method(&self) -> Method {
                match self { $(Self::$variant(_) => <$params as Params>::METHOD,)+ }
            }
        }

        /// The methods in force.
        pub const IN_FORCE: &[Method] = &[$(<$params as Params>::METHOD,)+];
    };
}

calls! {
    Hello(HelloParams),
    SessionOpen(SessionOpenParams),
    SessionAttach(SessionAttachParams),
    SessionClose(SessionCloseParams),
    SessionStopAll(StopAllParams),
    SessionList(SessionListParams),
    ProcessStart(StartParams),
    ProcessOutput(OutputParams),
    ProcessSearch(SearchParams),
    ProcessExport(ExportParams),
    ProcessInput(InputParams),
    ProcessSignal(SignalParams),
    ProcessStop(StopParams),
    ProcessInspect(InspectParams),
    ProcessList(ListParams),
    ProcessRemove(RemoveParams),
    ProcessPin(PinParams),
    EventsSubscribe(SubscribeParams),
    EventsAck(EventsAckParams),
    EventsUnsubscribe(UnsubscribeParams),
    NotificationsAck(NotificationsAckParams),
    LeaseAcquire(LeaseAcquireParams),
    LeaseRelease(LeaseReleaseParams),
    OperatorAttach(OperatorAttachParams),
    DaemonStatus(StatusParams),
    DaemonMetrics(MetricsParams),
    DaemonReload(ReloadParams),
    DaemonShutdown(ShutdownParams),
}

/// The first name whose field is there.
macro_rules! first_given {
    ($self:ident: $($field:ident),+ $(,)?) => {
        [$(($self.$field.is_some(), stringify!($field)),)+]
            .into_iter()
            .find_map(|(is_given, name)| is_given.then_some(name))
    };
}
pub(crate) use first_given;

#[cfg(test)]
mod tests;
