//! The guardian: parent of every command (tier 2: of its shim), subreaper, single-threaded. The
//! same binary in another mode; descriptor 0 is its link to the daemon, whose end ends everything.

mod commands;
mod launch;
mod orphans;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::channel::{self, Received};
use crate::message::{Report, Request, Stage};
use crate::{raw, wait};
pub use commands::Refused;
use commands::{Commands, Reports};
pub use launch::{Launched, kill_adopted, launch, reap_adopted};
use orphans::Orphans;

/// The argument that asks for this mode.
pub(crate) const MODE: &std::ffi::CStr = c"--guardian";
/// Reports that wait for the daemon to read; above it no request is taken.
const REPORTS_MAX: usize = 1024;
/// Tier 1: how often adopted processes outside every leaf are looked for after something happened.
/// The kernel tells nobody of an adoption.
const ESCAPE_TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// So many looks, a count; then the guardian sleeps until something happens again. Whoever left
/// its leaf meanwhile is found at the next start, signal or end, its own leader's at the latest.
const ESCAPE_LOOKS: u32 = 8;
/// How long the news of a clone wait for those of its exec, which nearly always come at once: each
/// wakes the daemon.
const EXEC_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Between two looks for orphans of which there is no sign.
const ROUND_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Between two rounds against orphans that do not die.
const ORPHAN_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Runs as guardian if this process was started as one. To be called first in `main`, before any
/// thread. Returns the exit code then.
#[must_use]
pub fn run_if_asked(arguments: &[std::ffi::OsString]) -> Option<u8> {
    match arguments {
        [_, mode] if mode.as_encoded_bytes() == MODE.to_bytes() => {}
        _ => return None,
    }
    Some(match Guardian::start() {
        Ok(mut guardian) => {
            guardian.serve();
            guardian.end_everything();
            0
        }
        Err(_no_link) => 2,
    })
}

struct Guardian {
    control: OwnedFd,
    signals: OwnedFd,
    reports: Reports,
    commands: Commands,
    orphans: Orphans,
    /// Looks for escaped processes that are left until something happens.
    looks: u32,
    /// Something ended, and orphans have not been looked for since.
    is_round_due: bool,
    /// Until then they are looked for only with a sign of some.
    next_round: Timespec,
    /// The first wait since the last clone: its news have not been sent.
    is_fresh: bool,
    payload: Option<OwnedFd>,
    /// The locks: held, never used.
    held: Vec<OwnedFd>,
}

impl Guardian {
    fn start() -> std::io::Result<Self> {
        raw::close_range(3, u32::MAX)?;
        raw::remember_heap();
        // Only the daemon's end ends the guardian, not a key typed into a terminal or a signal
        // to a whole unit.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            raw::ignore(signal);
        }
        raw::default_child_signal();
        raw::block_only(libc::SIGCHLD)?;
        let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::net::sockopt::socket_type(&control)?;
        let_go_of_streams()?;
        rustix::thread::set_name(c"procd-guardian")?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        // Own POSIX session; fails only for who leads a group already, and then it is its own.
        let _already = rustix::process::setsid();
        rustix::process::chdir("/")?;
        let oom_score_adj = orphans::protect_from_oom();
        raw::note_ignored_signals()?;
        Ok(Self {
            control,
            signals: raw::child_signals()?,
            reports: Reports(VecDeque::new()),
            commands: Commands::new(oom_score_adj),
            orphans: Orphans::default(),
            looks: 0,
            is_round_due: false,
            next_round: Timespec { tv_sec: 0, tv_nsec: 0 },
            is_fresh: false,
            payload: None,
            held: Vec::new(),
        })
    }

    /// Serves until the daemon is gone.
    fn serve(&mut self) {
        loop {
            let ready = self.wait();
            self.looks = if ready.is_tick { self.looks.saturating_sub(1) } else { ESCAPE_LOOKS };
            if ready.children {
                raw::drain_signals(&self.signals);
            }
            self.commands.read_exec_pipes(&mut self.reports);
            if ready.children {
                let may_be_orphan = self.commands.look(self.payload.as_ref(), &mut self.reports);
                // Whoever waits for an end is told before the orphans are looked at.
                if !self.send_reports() {
                    return;
                }
                self.look_at_orphans(may_be_orphan || ready.is_tick);
            }
            let before = self.reports.0.len();
            if ready.requests && !self.take_requests() {
                return;
            }
            let is_cloned = |(report, _): &(Report, _)| matches!(report, Report::Started { .. });
            let has_exec_pipe = self.commands.exec_pipes().next().is_some();
            self.is_fresh = before == 0
                && !self.reports.0.is_empty()
                && has_exec_pipe
                && self.reports.0.iter().all(is_cloned);
            if !self.is_fresh && !self.send_reports() {
                return;
            }
        }
    }

    fn wait(&self) -> Ready {
        let mut control = PollFlags::empty();
        if self.reports.0.len() < REPORTS_MAX {
            control |= PollFlags::IN;
        }
        if !self.reports.0.is_empty() && !self.is_fresh {
            control |= PollFlags::OUT;
        }
        let mut fds =
            vec![PollFd::new(&self.control, control), PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(self.commands.exec_pipes().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let tick = if self.is_fresh {
            Some(&EXEC_TICK)
        } else if self.orphans.are_alive() {
            Some(&ORPHAN_TICK)
        } else if self.is_round_due {
            Some(&ROUND_TICK)
        } else if self.payload.is_some() && !self.commands.is_empty() && self.looks > 0 {
            Some(&ESCAPE_TICK)
        } else {
            None
        };
        let woken = poll(&mut fds, tick).unwrap_or(0);
        let of = |index: usize| fds.get(index).map_or(PollFlags::empty(), PollFd::revents);
        Ready {
            requests: of(0).intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            // After a tick, or an interruption, it is time to look too.
            children: woken == 0 || of(1).contains(PollFlags::IN),
            is_tick: woken == 0,
        }
    }

    /// Reading who one's children are takes as long as they are many, so without a sign of orphans
    /// it is done some time after the ends that came together.
    fn look_at_orphans(&mut self, may_be_some: bool) {
        let is_urgent = may_be_some || self.orphans.are_alive() || self.commands.has_lost_shims();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        self.is_round_due = !is_urgent && now < self.next_round;
        if self.is_round_due {
            return;
        }
        self.next_round = now + ROUND_TICK;
        let payload = self.payload.is_some();
        self.orphans.round(&self.commands, payload, &mut self.reports);
        if !self.orphans.are_alive() {
            self.commands.report_lost_shims(&mut self.reports);
        }
    }

    /// Takes what has been asked; `false` = the daemon is gone.
    fn take_requests(&mut self) -> bool {
        while self.reports.0.len() < REPORTS_MAX {
            match channel::receive(&self.control) {
                Ok(Some(received)) => self.carry_out(received),
                Ok(None) => return false,
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn carry_out(&mut self, mut received: Received) {
        let Ok(request) = Request::decode(&received.bytes) else { return };
        match request {
            Request::Setup { payload } => self.set_up(payload, received.descriptors),
            Request::Start { key, hold } => {
                let result = if received.truncated {
                    Err(Refused { stage: Stage::Body, errno: libc::EMFILE })
                } else {
                    let descriptors = std::mem::take(&mut received.descriptors);
                    self.commands.start(key, hold, descriptors, &mut self.reports)
                };
                if let Err(Refused { stage, errno }) = result {
                    self.reports.add(Report::Failed { key, stage, errno }, None);
                }
            }
            Request::Signal { key, signal, tag, target: _ } => {
                self.commands.signal(key, signal, tag, &mut self.reports);
            }
            Request::Reap { key } => self.commands.reap(key, &mut self.reports),
            // A shim's, not ours.
            Request::Kill { .. } => {}
        }
    }

    /// Descriptors: body, the payload folder if there is one, then the locks.
    fn set_up(&mut self, payload: bool, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let path = descriptors.next().and_then(|body| channel::read_body(body).ok());
        if payload {
            self.payload = descriptors.next();
            self.orphans.payload_path = path.and_then(|path| String::from_utf8(path).ok());
        }
        self.held.extend(descriptors);
        self.reports.add(Report::Ready, None);
    }

    /// Sends what the socket takes; `false` = the daemon is gone.
    fn send_reports(&mut self) -> bool {
        while let Some(datagram) = self.reports.datagram() {
            let descriptors: Vec<BorrowedFd<'_>> =
                datagram.descriptor.iter().map(AsFd::as_fd).collect();
            match channel::send(&self.control, &datagram.bytes, &descriptors) {
                Ok(()) => drop(self.reports.0.drain(..datagram.count)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                Err(_gone) => return false,
            }
        }
        true
    }

    /// The daemon is gone: nothing may outlive it. Tier 1: one write kills the whole payload;
    /// tier 2: each shim has seen its socket close. The locks are held until nothing is left.
    fn end_everything(&mut self) {
        let mut pause_ns = 200_000;
        loop {
            if let Some(payload) = &self.payload {
                let _gone_already = crate::cgroup::kill(payload);
            }
            while matches!(wait::reap_any(), wait::Look::Ended(_)) {}
            self.commands.forget_reaped();
            Orphans::kill_strangers(&self.commands);
            let populated = self.payload.as_ref().is_some_and(crate::cgroup::may_be_populated);
            if !populated && !wait::has_children() {
                break;
            }
            let tick = Timespec { tv_sec: 0, tv_nsec: pause_ns };
            let mut fds = [PollFd::new(&self.signals, PollFlags::IN)];
            let _woken = poll(&mut fds, Some(&tick));
            raw::drain_signals(&self.signals);
            pause_ns = (pause_ns * 2).min(20_000_000);
        }
        if let Some(payload) = &self.payload {
            crate::cgroup::remove_whole(
                payload,
                self.orphans.payload_path.as_deref().unwrap_or(""),
            );
        }
    }
}

struct Ready {
    requests: bool,
    children: bool,
    /// Nothing happened.
    is_tick: bool,
}

/// Descriptors 0-2 become /dev/null: who reads the daemon's output must not wait for the guardian
/// too, and children's streams are placed by number.
fn let_go_of_streams() -> std::io::Result<()> {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
