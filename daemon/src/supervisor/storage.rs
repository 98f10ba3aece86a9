//! The disk work the supervisor asks for and never waits for: seals, files of manifests and
//! sessions, removals. Each job answers with one [`Done`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use procd_core::{Handle, SessionId};
use procd_store::StoreError;
use procd_store::folder::StateFolder;
use procd_store::manifest::ManifestFile;
use procd_store::session::SessionRecord;
use procd_store::spool::Sealed;
use tokio::sync::{Semaphore, mpsc};

use super::refusal::Refusal;
use crate::drain::Output;

/// Jobs that work on the disk at one time, a count: more would only wait for each other.
const JOBS_AT_ONCE: usize = 4;
/// How long a seal or a file that failed waits for the next try.
const RETRY: Duration = Duration::from_secs(2);
/// Answers that wait for the supervisor, a count; a full queue makes the jobs wait.
pub(super) const DONE_MAX: usize = 256;

/// A job that came to its end.
#[derive(Debug)]
pub(super) enum Done {
    /// The file of a session stands, or not.
    Session { id: SessionId, refusal: Option<Refusal> },
    /// The output of a process is sealed, or damaged for good.
    Sealed { handle: Handle, result: SealResult },
    /// The files of a removed process are gone, or will be swept.
    Removed { handle: Handle },
    /// The file of a manifest stands, or not.
    Manifest { handle: Handle, is_stored: bool },
}

/// What a seal came to.
#[derive(Debug)]
pub(super) enum SealResult {
    /// Synced, read-only, hashed.
    Sealed(Sealed),
    /// It was sealed before.
    Already,
    /// The bytes on disk are not what was written.
    Corrupt,
}

/// The state folder and the way back.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    folder: Arc<StateFolder>,
    done: mpsc::Sender<Done>,
    jobs: Arc<Semaphore>,
}

impl Storage {
    pub(super) fn new(folder: Arc<StateFolder>, done: mpsc::Sender<Done>) -> Self {
        Self { folder, done, jobs: Arc::new(Semaphore::new(JOBS_AT_ONCE)) }
    }

    pub(super) fn spool_path(&self, session: SessionId, handle: &Handle) -> PathBuf {
        self.folder.spool_path(session, handle)
    }

    /// Writes the file of a session.
    pub(super) fn write_session(&self, record: SessionRecord) {
        let id = record.session_id;
        self.job(move |folder| Done::Session {
            id,
            refusal: match procd_store::session::write(folder, &record) {
                Ok(()) => None,
                Err(StoreError::Unsafe { .. }) => Some(Refusal::Invalid {
                    field: "workspaces",
                    message: "the state folder lies inside a declared workspace, or is not private"
                        .to_owned(),
                }),
                Err(error) => {
                    told("session", Err(error));
                    Some(Refusal::Setup { cause: "storage", process_id: None })
                }
            },
        });
    }

    /// Seals the output of an ended process, trying until it succeeds or is known to be damaged.
    pub(super) fn seal(&self, handle: Handle, output: Output) {
        let (done, jobs) = (self.done.clone(), self.jobs.clone());
        drop(tokio::spawn(async move {
            let result = loop {
                let job = jobs.acquire().await;
                let sealed = output.seal().await;
                drop(job);
                match sealed {
                    Ok(Some(sealed)) => break SealResult::Sealed(sealed),
                    // Sealed by an earlier daemon: its record is what was saved then.
                    Ok(None) => break SealResult::Already,
                    Err(StoreError::SpoolCorrupt { .. }) => break SealResult::Corrupt,
                    Err(error) => {
                        told("spool", Err(error));
                        tokio::time::sleep(RETRY).await;
                    }
                }
            };
            drop(done.send(Done::Sealed { handle, result }).await);
        }));
    }

    /// Writes the file of a sealed record.
    pub(super) fn write_manifest(&self, file: ManifestFile) {
        let handle = file.record.process_id;
        self.job(move |folder| Done::Manifest {
            handle,
            is_stored: told("manifest", procd_store::manifest::write(folder, &file)),
        });
    }

    /// Removes the files of a process whose removal is in the log. What cannot be removed now is
    /// swept at the next restore.
    pub(super) fn remove_process(&self, session: SessionId, handle: Handle) {
        self.job(move |folder| {
            told("removal", procd_store::manifest::remove(folder, session, &handle));
            Done::Removed { handle }
        });
    }

    fn job(&self, work: impl FnOnce(&StateFolder) -> Done + Send + 'static) {
        let (folder, done, jobs) = (self.folder.clone(), self.done.clone(), self.jobs.clone());
        drop(tokio::spawn(async move {
            let job = jobs.acquire_owned().await;
            let result = tokio::task::spawn_blocking(move || {
                let result = work(&folder);
                drop(job);
                result
            })
            .await;
            match result {
                Ok(result) => drop(done.send(result).await),
                Err(error) => tracing::error!(error = %error, "a storage job ended by itself"),
            }
        }));
    }
}

/// Logs a failure, once, here; the caller only wants to know whether it stands.
fn told(what: &str, result: Result<(), StoreError>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(what, error = %error, cause, "the state folder refused a write");
            false
        }
    }
}
