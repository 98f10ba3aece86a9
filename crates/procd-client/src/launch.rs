//! Starting a private daemon. The daemon makes its own POSIX session, keeps its own log and says
//! by one line on an inherited pipe whether it is ready.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use procd_protocol::places::{DAEMON_VARIABLE, SOCKET_VARIABLE};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::error::ClientError;
use crate::places::variable;

/// How long a private daemon may take to say that it is ready: it waits 5 s for the guardian of
/// the one before, and reads what that one left.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of its one line that are read.
const LINE_BYTES_MAX: u64 = 4096;
/// What it says when it is ready; anything else is an error.
const READY: &str = "ready";
/// What an error begins with.
const ERROR: &str = "error: ";

/// Starts a private daemon that serves `socket` and waits until it is ready.
pub(crate) async fn private_daemon(
    program: Option<&Path>,
    socket: &Path,
) -> Result<(), ClientError> {
    let program = program.map_or_else(find, |named| Ok(named.to_owned()))?;
    let line = launched(&program, socket)
        .await
        .map_err(|error| refused(format!("`{}`: {error}", program.display())))?;
    match line.trim_end() {
        READY => Ok(()),
        "" => Err(refused("it ended before it was ready; see its log in the state folder")),
        line => Err(refused(line.strip_prefix(ERROR).unwrap_or(line))),
    }
}

fn refused(message: impl Into<String>) -> ClientError {
    ClientError::Launch { message: message.into() }
}

/// The daemon's executable: `$PROCD_DAEMON`, else beside our own, else on PATH.
fn find() -> Result<PathBuf, ClientError> {
    const NAME: &str = "procd";
    if let Some(named) = variable(DAEMON_VARIABLE).filter(|named| !named.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    let own = std::env::current_exe().ok();
    let beside = own.iter().filter_map(|own| own.parent()).map(Path::to_owned);
    let path = variable("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let found = beside.chain(on_path).map(|folder| folder.join(NAME)).find(|path| path.is_file());
    found.ok_or_else(|| {
        refused(format!(
            "there is no `{NAME}` beside this program or on PATH: set {DAEMON_VARIABLE}"
        ))
    })
}

/// The one line that the new daemon says.
async fn launched(program: &Path, socket: &Path) -> io::Result<String> {
    let (ours, theirs) = io::pipe()?;
    spawn(program.as_os_str(), socket, theirs.into())?;
    let line = pipe::Receiver::from_owned_fd(ours.into())?;
    let mut text = Vec::new();
    let mut line = line.take(LINE_BYTES_MAX);
    let reading = async {
        // Up to the end of the line: the pipe's end may stay open with a child of the daemon.
        while !text.contains(&b'\n') && line.read_buf(&mut text).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::time::timeout(READY_TIMEOUT, reading).await.map_err(io::Error::from)??;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Spawns the daemon with one descriptor of ours: everything else of this process is
/// close-on-exec, and its stdio is /dev/null.
fn spawn(program: &OsStr, socket: &Path, ready: OwnedFd) -> io::Result<()> {
    // A duplicate without close-on-exec. A process that another thread starts just now may
    // inherit it too, which does no harm: one line is read, not up to the end.
    let inherited = rustix::io::dup(&ready)?;
    drop(ready);
    #[expect(clippy::disallowed_methods, reason = "the start of a private daemon, nothing else")]
    let mut command = std::process::Command::new(program);
    let mut child = command
        .arg("--private")
        .arg("--ready-fd")
        .arg(inherited.as_raw_fd().to_string())
        .env(SOCKET_VARIABLE, socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    drop(inherited);
    // Reaps it, should it end before this process does.
    let reap = move || child.wait().is_ok();
    std::thread::Builder::new().name("procd-reaper".to_owned()).spawn(reap)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Folder, within};
    use std::os::unix::fs::PermissionsExt;

    fn program(folder: &Folder, name: &str, script: &str) -> PathBuf {
        let path = folder.0.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    // One test: a program that is written while another thread forks cannot be executed.
    #[tokio::test]
    async fn a_daemon_says_one_line_on_the_pipe_it_was_given_and_knows_its_socket() {
        let folder = Folder::new();
        let socket = Path::new("/x/procd.sock");
        let says = |text: &str| format!("echo \"{text}\" >/proc/self/fd/$3; exec sleep 0");
        let ready = program(&folder, "ready", &says("ready"));
        assert_eq!(within(launched(&ready, socket)).await.unwrap(), "ready\n");
        let refuses = program(&folder, "refuses", &says("error: $1 $2 $PROCD_SOCKET"));
        let line = within(launched(&refuses, socket)).await.unwrap();
        assert_eq!(line, "error: --private --ready-fd /x/procd.sock\n");
        let dies = program(&folder, "dies", "exit 3");
        assert_eq!(within(launched(&dies, socket)).await.unwrap(), "");
        let missing = within(launched(&folder.0.join("missing"), socket)).await;
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);

        let socket = folder.0.join("s");
        let connect = crate::Connect::new().socket(&socket).private_daemon(true);
        let refused = within(connect.clone().daemon(&refuses).connect()).await.unwrap_err();
        let says = format!("a private daemon: --private --ready-fd {}", socket.display());
        assert!(refused.to_string().ends_with(&says), "{refused}");
        let dies = within(connect.daemon(&dies).connect()).await.unwrap_err();
        assert!(dies.to_string().contains("before it was ready"), "{dies}");
        let none = within(crate::Connect::new().socket(&socket).connect()).await.unwrap_err();
        assert!(matches!(none, ClientError::NoDaemon { .. }), "{none}");
    }
}
