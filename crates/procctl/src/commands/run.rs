//! `procctl run`: a command in the foreground, under the daemon.
//!
//! Three things go on at once: the output is followed, stdin is passed on, and signals are. The
//! first ends it: at the end of the output the command's end is known too.

mod follow;
mod signals;

use procd_client::Process;
use procd_protocol::v1::{Leader, Page, ProcessState, Reason, Stdin, StopMode};
use procd_protocol::{ErrorCode, Open};

use self::follow::follow;
use self::signals::{Signals, stop};
use super::exit_code;
use super::input::{Pipe, cannot_read_stdin, read_stdin};
use super::launch::{self, tell_left_out};
use crate::arguments::Run;
use crate::exit::CtlError;
use crate::link::{Links, StartDaemon, Target};
use crate::print;

/// Runs it and returns the command's code.
/// # Errors
/// [`CtlError`] when it could not be started, or its end could not be learned.
pub(crate) async fn run(links: &Links, run: &Run) -> Result<u8, CtlError> {
    // Before the start, so that no interrupt between the two is lost.
    let signals = Signals::install()?;
    let takes_input = run.interactive || run.launch.tty;
    let stdin = if takes_input { Stdin::Pipe } else { Stdin::Null };
    let request = launch::request(&run.launch, stdin)?;
    let process = links.start(request.params).await?;
    if run.verbose {
        tell_left_out(&request.left_out);
        print::message(&format!("running as {}", process.id()));
    }
    if run.launch.tty {
        let link = links.owner(StartDaemon::Never).await?;
        let link = link.ok_or_else(|| CtlError::Answer("the own session is gone".to_owned()))?;
        let passing = tokio::spawn(signals.pass_on(process.clone()));
        let target = Target { process, link, is_operator: false };
        let code = super::attach::converse(target, super::attach::DETACH_KEYS).await;
        passing.abort();
        return code;
    }
    let last = supervise(&process, signals, run).await?;
    tell_end(&last);
    Ok(exit_code(last.state.as_str(), last.exit_code, last.leader.as_ref()))
}

async fn supervise(process: &Process, signals: Signals, run: &Run) -> Result<Page, CtlError> {
    let passing = tokio::spawn(signals.pass_on(process.clone()));
    let pumping = run.interactive.then(|| tokio::spawn(pump(process.clone())));
    let expects_tags = !run.launch.merge_streams;
    let mut followed = follow(process, expects_tags).await;
    if let Err(CtlError::StdoutClosed) = followed {
        // The reader has seen enough. A command alone would be ended by SIGPIPE now.
        stop(process, StopMode::Terminate).await?;
        followed = process.wait().await.map_err(CtlError::from);
    }
    passing.abort();
    if let Some(pumping) = pumping {
        pumping.abort();
    }
    followed
}

/// Passes stdin on, as fast as the command reads it, and its end. A command that does not read
/// any more, or has ended, ends that quietly, as a broken pipe would.
async fn pump(process: Process) {
    let pipe = Pipe(process);
    let mut reads = read_stdin();
    let result = async {
        while let Some(read) = reads.recv().await {
            pipe.send(read.map_err(cannot_read_stdin)?).await?;
        }
        pipe.send_end().await
    };
    match result.await {
        Ok(()) => {}
        Err(CtlError::Refused {
            code: Open::Known(ErrorCode::StdinClosed | ErrorCode::SupervisorShuttingDown),
            ..
        }) => {}
        // The follower meets the same lost connection and tells it.
        Err(CtlError::NoDaemon { .. }) => {}
        Err(error) => print::message(&error.to_string()),
    }
}

/// Says how it ended where the exit code alone would mislead.
fn tell_end(last: &Page) {
    let shutdown = last.reason == Some(Open::Known(Reason::RunnerShutdown));
    let what = match &last.state {
        Open::Known(ProcessState::TimedOut) => "the deadline passed, so the command was stopped",
        Open::Known(ProcessState::Failed) => {
            "the end of the command could not be observed; `procctl inspect` shows the cause"
        }
        Open::Known(ProcessState::LostOnRestore) => {
            "the daemon was started anew meanwhile, which ended the command; run it again"
        }
        Open::Known(ProcessState::Terminated | ProcessState::Killed) if shutdown => {
            "the daemon was shut down, which ended the command; run it again"
        }
        Open::Known(ProcessState::Terminated | ProcessState::Killed) => {
            match (&last.leader, last.reason.is_some()) {
                (Some(Leader::Code { .. } | Leader::Signal { .. }), _) | (None, true) => return,
                (None, false) => "the command was stopped before it ran",
            }
        }
        Open::Known(
            ProcessState::Starting
            | ProcessState::Running
            | ProcessState::Exited
            | ProcessState::Interrupted,
        )
        | Open::Unknown(_) => return,
    };
    print::message(what);
}
