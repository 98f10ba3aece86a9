//! The commands, one file each. Each turns its arguments into calls and their results into text.

pub(crate) mod attach;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod input;
pub(crate) mod inspect;
pub(crate) mod keep;
pub(crate) mod kill;
pub(crate) mod launch;
pub(crate) mod logs;
pub(crate) mod pages;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod shutdown;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod wait;

use procd_protocol::v1::Leader;

use crate::exit::{Ended, command_code};

/// The exit code that stands for this end of a process.
pub(crate) fn exit_code(state: &str, exit_code: Option<i32>, leader: Option<&Leader>) -> u8 {
    let mut ended = Ended { state, exit_code: exit_code.map(i64::from), ..Ended::default() };
    match leader {
        Some(Leader::Code { code }) => ended.leader_code = Some(i64::from(*code)),
        Some(Leader::Signal { signal, .. }) => ended.leader_signal = Some(i64::from(*signal)),
        None => {}
    }
    command_code(ended)
}

/// The end as a table shows it: the signal's name, the code, or nothing.
pub(crate) fn exit_text(exit_code: Option<i32>, leader: Option<&Leader>) -> String {
    match (leader, exit_code) {
        (Some(Leader::Signal { signal_name, .. }), _) => signal_name.clone(),
        (_, Some(code)) => code.to_string(),
        (Some(Leader::Code { code }), None) => code.to_string(),
        (None, None) => String::new(),
    }
}
