//! Looking at and reaping own children.

use procd_core::LeaderEnd;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use crate::raw;

/// What `waitid` says of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It has not ended.
    Alive,
    /// It has ended.
    Ended(LeaderEnd),
    /// It is no child of ours.
    NoChild,
}

/// Looks without reaping, without waiting.
pub(crate) fn look(pid: Pid) -> Look {
    call(WaitId::Pid(pid), WaitIdOptions::NOWAIT)
}

/// Reaps it if it has ended, without waiting.
pub(crate) fn reap(pid: Pid) -> Look {
    call(WaitId::Pid(pid), WaitIdOptions::empty())
}

/// A child that has ended and is not reaped, if there is one. Reaps nothing.
pub(crate) fn find_ended() -> Option<Pid> {
    raw::find_ended_child()
}

/// Whether this process has any child, ended or not. Reaps nothing.
pub(crate) fn has_children() -> bool {
    call(WaitId::All, WaitIdOptions::NOWAIT) != Look::NoChild
}

/// Reaps any one child that has ended.
pub(crate) fn reap_any() -> Look {
    call(WaitId::All, WaitIdOptions::empty())
}

fn call(id: WaitId<'_>, extra: WaitIdOptions) -> Look {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | extra;
    match rustix::io::retry_on_intr(|| waitid(id.clone(), options)) {
        Ok(None) => Look::Alive,
        Ok(Some(status)) => end(&status).map_or(Look::Alive, Look::Ended),
        Err(_) => Look::NoChild,
    }
}

fn end(status: &WaitIdStatus) -> Option<LeaderEnd> {
    if let Some(code) = status.exit_status() {
        return Some(LeaderEnd::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX)));
    }
    let signal = status.terminating_signal()?;
    Some(LeaderEnd::Signal { signal, core_dumped: status.dumped() })
}
