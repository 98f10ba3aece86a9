//! What `run` and `start` share: the request that starts a command as the caller's shell would.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use procd_protocol::v1::{Env, OnLeaderExit, StartParams, Stdin};
use procd_protocol::{Base64Bytes, OriginId};

use crate::arguments::Launch;
use crate::environment::{self, Passed};
use crate::exit::CtlError;
use crate::print;

/// The request, and the names of variables it leaves out.
pub(crate) struct Request {
    pub(crate) params: StartParams,
    pub(crate) left_out: Vec<String>,
}

/// Builds the request: current folder and the caller's variables unless the options say otherwise.
/// # Errors
/// [`CtlError::Usage`] for options that make no sense, [`CtlError::Io`] without a current folder.
pub(crate) fn request(launch: &Launch, stdin: Stdin) -> Result<Request, CtlError> {
    let Passed { variables, left_out } = variables(launch)?;
    let mut params = StartParams {
        env: Some(Env(variables.into_iter().collect())),
        stdin: Some(stdin),
        background: Some(true),
        merge_streams: launch.merge_streams.then_some(true),
        timeout_ms: launch.timeout.map(milliseconds),
        memory_bytes: launch.memory_bytes,
        spool_bytes: launch.spool_bytes,
        queue_timeout_ms: launch.queue.map(milliseconds),
        request_key: launch.request_key.clone(),
        on_leader_exit: launch.keep_tree.then_some(OnLeaderExit::KeepTree),
        label: launch.label.clone(),
        origin: launch.origin.map(origin).transpose()?,
        limit_bytes: Some(1),
        ..StartParams::default()
    };
    if launch.tty {
        params.tty = Some(true);
        let size = print::terminal_size();
        params.rows = size.map(|(rows, _)| u64::from(rows));
        params.cols = size.map(|(_, columns)| u64::from(columns));
    }
    set_program(&mut params, launch);
    set_folder(&mut params, launch)?;
    Ok(Request { params, left_out })
}

/// Tells which of the caller's variables the command does not get.
pub(crate) fn tell_left_out(left_out: &[String]) {
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        print::message(&format!("variables left out: {names}; `--env NAME` passes one on"));
    }
}

/// Whole milliseconds, rounded up, so that a time given is never none.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn variables(launch: &Launch) -> Result<Passed, CtlError> {
    let mut passed = if launch.clean_env {
        Passed::default()
    } else {
        environment::inherited(std::env::vars_os())
    };
    environment::apply(&mut passed, &launch.env, &launch.unset, |name| std::env::var_os(name))?;
    Ok(passed)
}

fn set_program(params: &mut StartParams, launch: &Launch) {
    if let Some(line) = &launch.line {
        params.command = Some(line.clone());
        return;
    }
    let words: Option<Vec<String>> =
        launch.argv.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    match words {
        Some(words) => params.argv = Some(words),
        // What is not UTF-8 goes in the form made for it; a daemon that lacks it says so.
        None => params.argv_base64 = Some(launch.argv.iter().map(raw).collect()),
    }
}

fn set_folder(params: &mut StartParams, launch: &Launch) -> Result<(), CtlError> {
    let current = || {
        std::env::current_dir().map_err(|source| CtlError::Io {
            what: "cannot tell the current folder, give one with --cwd".to_owned(),
            source,
        })
    };
    let folder = match &launch.cwd {
        Some(folder) if folder.is_absolute() => folder.clone(),
        Some(folder) => current()?.join(folder),
        None => current()?,
    };
    match folder.to_str() {
        Some(text) => params.cwd = Some(text.to_owned()),
        None => params.cwd_base64 = Some(raw_path(&folder)),
    }
    Ok(())
}

fn origin(uuid: uuid::Uuid) -> Result<OriginId, CtlError> {
    let nil = || CtlError::usage("the nil UUID is no origin", "give another or none");
    OriginId::new(uuid).ok_or_else(nil)
}

fn raw(word: &OsString) -> Base64Bytes {
    Base64Bytes(std::os::unix::ffi::OsStrExt::as_bytes(word.as_os_str()).to_vec())
}

fn raw_path(path: &Path) -> Base64Bytes {
    raw(&path.as_os_str().to_owned())
}

/// The bytes of a base64 page.
/// # Errors
/// [`CtlError::Answer`] for a daemon that does not speak base64.
pub(crate) fn decode(output: Option<&str>) -> Result<Vec<u8>, CtlError> {
    STANDARD
        .decode(output.unwrap_or_default())
        .map_err(|_bad| CtlError::Answer("the daemon sent output that is no base64".to_owned()))
}
