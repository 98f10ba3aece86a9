//! What one process's task learns of it: reports of the guardian and, in tier 2, of its shim, as
//! one stream.

use std::os::fd::OwnedFd;

use procd_core::LeaderEnd;
use procd_core::life::Request;
use procd_sys::channel::{self, Received};
use procd_sys::message::{self, Report, Stage, Tag};
use procd_sys::{Signalled, isolation};
use tokio::io::unix::AsyncFd;

use super::guardian::News;
use crate::lane::LaneReceiver;

/// The tag of a signal whose answer nobody waits for.
pub(super) const TAG_NONE: Tag = 255;
/// The tag of the signal to leftovers.
pub(super) const TAG_LEFTOVERS: Tag = 254;
/// The tag of signals that a caller named.
pub(super) const TAG_NAMED: Tag = 253;

/// A leader that cannot be told; nothing is signalled by this number in a tree with a shim.
const NOBODY: i32 = -1;

/// The tag of a request.
pub(super) const fn tag_of(request: Request) -> Tag {
    match request {
        Request::Interrupt => 0,
        Request::Terminate => 1,
        Request::Shutdown => 2,
        Request::Deadline => 3,
        Request::Kill => 4,
    }
}

/// The request of a tag.
pub(super) fn request_of(tag: Tag) -> Option<Request> {
    Request::ALL.iter().copied().find(|&request| tag_of(request) == tag)
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The leader exists, before its exec.
    Started { pid: i32 },
    /// The shim exists.
    ShimStarted { pid: i32 },
    /// The exec succeeded.
    Executed,
    /// Nothing was started; `gone`: nothing is left, else the shim still is.
    Failed { stage: Stage, errno: i32, gone: bool },
    /// It died before its exec.
    DiedEarly,
    /// The leader ended.
    Ended { end: LeaderEnd, leftovers: u32 },
    /// A signal went out.
    Reached { tag: Tag, alive: bool, met: Signalled },
    /// The leader was reaped.
    Reaped,
    /// Tier 2: nothing is left, the leader reaped.
    Empty,
    /// The shim ended.
    ShimGone { clean: bool },
    /// The guardian died.
    GuardianLost,
    /// There is no guardian.
    GuardianMissing,
}

/// The stream.
#[derive(Debug)]
pub(super) struct Watch {
    news: LaneReceiver<News>,
    shim: Option<AsyncFd<OwnedFd>>,
    /// What it said at once with what was told last, last first.
    heard: Vec<Seen>,
    is_tier_2: bool,
    /// The guardian has told which process the shim is. What the shim itself says waits for that:
    /// else a kept leader's end could be told while nobody knows below which process its tree is.
    shim_is_known: bool,
    /// The shim ended: told only after all it had said.
    shim_ended: Option<bool>,
}

impl Watch {
    pub(super) fn new(news: LaneReceiver<News>, shim: Option<AsyncFd<OwnedFd>>) -> Self {
        let is_tier_2 = shim.is_some();
        Self { news, shim, heard: Vec::new(), is_tier_2, shim_is_known: false, shim_ended: None }
    }

    /// Asks the shim. `false` = it is gone.
    pub(super) fn ask_shim(&self, request: message::Request) -> bool {
        self.shim
            .as_ref()
            .is_some_and(|shim| channel::send(shim.get_ref(), &request.encode(), &[]).is_ok())
    }

    /// The next thing that happened. Cancel safe.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.heard.pop() {
                return seen;
            }
            if let Some(clean) = self.shim_ended {
                self.heard = self.last_words();
                if !self.heard.is_empty() {
                    continue;
                }
                self.shim_ended = None;
                return Seen::ShimGone { clean };
            }
            let is_heard = self.shim.is_some() && self.shim_is_known;
            tokio::select! {
                biased;
                said = said(self.shim.as_ref()), if is_heard => {
                    self.heard = said;
                    // Its end is told by the guardian.
                    if self.heard.is_empty() {
                        self.shim = None;
                    }
                }
                news = self.news.recv() => match news {
                    Some(News::Report(report)) => {
                        if let Some(seen) = self.of_guardian(report) {
                            return seen;
                        }
                    }
                    Some(News::Lost) | None => return Seen::GuardianLost,
                    Some(News::Missing) => return Seen::GuardianMissing,
                },
            }
        }
    }

    /// Waits until the shim's socket has closed: the shim is gone. For when there is no guardian
    /// to tell of it.
    pub(super) async fn shim_closed(&mut self) {
        while !said(self.shim.as_ref()).await.is_empty() {}
        self.shim = None;
    }

    /// What a shim that ended had said before, as far as one datagram: all of it has arrived.
    fn last_words(&mut self) -> Vec<Seen> {
        loop {
            let Some(shim) = &self.shim else { return Vec::new() };
            match channel::receive(shim.get_ref()) {
                Ok(Some(received)) => {
                    let seen = of_shim(&received);
                    if !seen.is_empty() {
                        return seen;
                    }
                }
                Ok(None) | Err(_) => self.shim = None,
            }
        }
    }

    fn of_guardian(&mut self, report: Report) -> Option<Seen> {
        if let Report::ShimEnded { clean, .. } = report {
            self.shim_ended = Some(clean);
            return None;
        }
        match common(report, true) {
            Some(Seen::Started { pid }) if self.is_tier_2 => {
                self.shim_is_known = true;
                Some(Seen::ShimStarted { pid })
            }
            seen => seen,
        }
    }
}

/// The next words of a shim, last first; none = its socket has closed.
async fn said(shim: Option<&AsyncFd<OwnedFd>>) -> Vec<Seen> {
    let Some(shim) = shim else { return Vec::new() };
    loop {
        let Ok(mut guard) = shim.readable().await else { return Vec::new() };
        match channel::receive(shim.get_ref()) {
            Ok(Some(received)) => {
                let seen = of_shim(&received);
                if !seen.is_empty() {
                    return seen;
                }
            }
            Ok(None) => return Vec::new(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => guard.clear_ready(),
            Err(_) => return Vec::new(),
        }
    }
}

/// What a datagram says, last first. An init sees its leader by another number than everybody else:
/// its pidfd tells who it is.
fn of_shim(received: &Received) -> Vec<Seen> {
    let mut rest = received.bytes.as_slice();
    let mut all = Vec::new();
    while !rest.is_empty() {
        let Ok((report, behind)) = Report::decode_first(rest) else {
            tracing::error!("bug: a malformed report of a shim");
            break;
        };
        rest = behind;
        match (common(report, false), received.descriptors.first()) {
            (Some(Seen::Started { .. }), Some(pidfd)) => {
                all.push(Seen::Started { pid: isolation::pid_of(pidfd).unwrap_or(NOBODY) });
            }
            (seen, _) => all.extend(seen),
        }
    }
    all.reverse();
    all
}

fn common(report: Report, gone: bool) -> Option<Seen> {
    Some(match report {
        Report::Started { pid, .. } => Seen::Started { pid },
        Report::Executed { .. } => Seen::Executed,
        Report::Failed { stage, errno, .. } => Seen::Failed { stage, errno, gone },
        Report::DiedEarly { .. } => Seen::DiedEarly,
        Report::Ended { end, leftovers, .. } => Seen::Ended { end, leftovers },
        Report::Reached { tag, alive, errno, refused, delivered, .. } => {
            Seen::Reached { tag, alive, met: Signalled { delivered, refused, errno } }
        }
        Report::Reaped { .. } => Seen::Reaped,
        Report::Empty => Seen::Empty,
        Report::Ready | Report::ShimEnded { .. } | Report::Escaped { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: on a busy machine a kept tree was shown without anybody in it. Cause: its shim was
    /// heard before the guardian had told of it.
    #[tokio::test]
    async fn a_shim_is_heard_only_when_it_is_known_who_it_is() {
        let (own, shim) = channel::pair().unwrap();
        let (guardian, news) = crate::lane::lane(4);
        let mut watch = Watch::new(news, Some(crate::watched::watched_both(own).unwrap()));
        for report in [Report::Started { key: 0, pid: 12 }, Report::Executed { key: 0 }] {
            channel::send(&shim, &report.encode(), &[]).unwrap();
        }
        // Nothing comes, however often it is looked at.
        for _ in 0..10 {
            let seen = tokio::select! {
                biased;
                seen = watch.next() => Some(seen),
                () = tokio::task::yield_now() => None,
            };
            assert_eq!(seen, None);
        }
        guardian.send(News::Report(Report::Started { key: 7, pid: 11 })).unwrap();
        assert_eq!(watch.next().await, Seen::ShimStarted { pid: 11 });
        assert_eq!(watch.next().await, Seen::Started { pid: 12 });
        assert_eq!(watch.next().await, Seen::Executed);
    }
}
