//! What only a private daemon does: its own POSIX session, its log file, its one line.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// Bytes of the log before it is put aside; one older file is kept.
const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Characters of the one line that says what failed.
const SENTENCE_CHARS_MAX: usize = 1000;

/// The one line on an inherited pipe. Said once; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Announcement(Arc<Mutex<Option<File>>>);

impl Announcement {
    /// Takes the pipe with this number. It is opened anew through procfs: a number may be
    /// anything, and only what can be opened for writing is written to.
    pub(crate) fn new(number: Option<u32>) -> Self {
        let open = |number| File::options().write(true).open(format!("/proc/self/fd/{number}"));
        Self(Arc::new(Mutex::new(number.and_then(|number| open(number).ok()))))
    }

    pub(crate) fn ready(&self) {
        self.say("ready");
    }

    pub(crate) fn failed(&self, sentence: &str) {
        let sentence: String = sentence.chars().take(SENTENCE_CHARS_MAX).collect();
        self.say(&format!("error: {}", sentence.replace(['\n', '\r'], " ")));
    }

    fn say(&self, line: &str) {
        let pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = pipe.map(|mut pipe| writeln!(pipe, "{line}")) {
            tracing::debug!(%error, "nobody reads the line of this daemon");
        }
    }
}

/// Leaves the POSIX session of the client that started this daemon.
/// # Errors
/// The process leads a group already.
pub(crate) fn leave_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// The log file of a private daemon, put aside when it is full. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LogFile(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LogFile {
    /// Opens `log/procd.log` of the state folder, and makes it the daemon's stdio.
    /// # Errors
    /// The file or its folder cannot be made.
    pub(crate) fn open(state_folder: &Path) -> io::Result<Self> {
        let folder = state_folder.join("log");
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&folder)?;
        let path = folder.join("procd.log");
        let file = open(&path)?;
        let bytes = file.metadata()?.len();
        take_stdio(&file)?;
        Ok(Self(Arc::new(Mutex::new(Open { path, file, bytes }))))
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

fn take_stdio(file: &File) -> io::Result<()> {
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(file)?;
    rustix::stdio::dup2_stderr(file)?;
    Ok(())
}

impl Open {
    fn put_aside(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = open(&self.path)?;
        self.bytes = 0;
        take_stdio(&self.file)
    }
}

/// The right to write one line.
pub(crate) struct LogLine<'l>(MutexGuard<'l, Open>);

impl Write for LogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let open = &mut *self.0;
        if open.bytes >= LOG_BYTES_MAX {
            open.put_aside()?;
        }
        let written = open.file.write(bytes)?;
        open.bytes += u64::try_from(written).unwrap_or(0);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.file.flush()
    }
}

impl<'l> MakeWriter<'l> for LogFile {
    type Writer = LogLine<'l>;

    fn make_writer(&'l self) -> LogLine<'l> {
        LogLine(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
