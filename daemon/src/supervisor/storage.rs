//! The disk work the supervisor asks for and never waits for: seals, files of manifests and
//! sessions, removals. Each job answers with one [`Done`].

mod gather;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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
use gather::Gathered;

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
    /// The files of manifests stand, or not.
    Manifests(Vec<(Handle, Option<Stored>)>),
    /// The files of ended processes of an earlier daemon were measured.
    Measured { processes: Vec<(Handle, u64)>, other_bytes: u64 },
    /// The files of a removed session are gone, or will be swept.
    SessionRemoved { id: SessionId },
    /// Nothing to be told.
    Swept,
}

/// What the state folder takes, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    /// The files of the process.
    pub(super) process_bytes: u64,
    /// Log, ballast and quarantine.
    pub(super) other_bytes: u64,
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
    gathered: Arc<Gathered>,
}

impl Storage {
    pub(super) fn new(folder: Arc<StateFolder>, done: mpsc::Sender<Done>) -> Self {
        let jobs = Arc::new(Semaphore::new(JOBS_AT_ONCE));
        Self { folder, done, jobs, gathered: Arc::default() }
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
    /// With files it waits a little, out of the way of whoever goes on with what it gave back.
    pub(super) fn seal(&self, handle: Handle, output: Output) {
        let (done, jobs) = (self.done.clone(), self.jobs.clone());
        let gathered = Arc::clone(&self.gathered);
        drop(tokio::spawn(async move {
            if output.has_files() {
                gathered.wait().await;
            }
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

    /// Writes the file of a sealed record, together with those that come soon.
    pub(super) fn write_manifest(&self, file: ManifestFile) {
        if !self.gathered.add(file) {
            return;
        }
        let (folder, done, jobs) = (self.folder.clone(), self.done.clone(), self.jobs.clone());
        let gathered = Arc::clone(&self.gathered);
        drop(tokio::spawn(async move {
            gathered.wait().await;
            let job = jobs.acquire_owned().await;
            let write = move || {
                let written = gathered.write(&folder);
                drop(job);
                written
            };
            match tokio::task::spawn_blocking(write).await {
                Ok(written) => drop(done.send(Done::Manifests(written)).await),
                Err(error) => tracing::error!(error = %error, "a storage job ended by itself"),
            }
        }));
    }

    /// From now on manifests wait for no others.
    pub(super) fn hasten(&self) {
        self.gathered.hasten();
    }

    /// Measures the files of ended processes.
    pub(super) fn measure(&self, processes: Vec<(SessionId, Handle)>) {
        self.job(move |folder| {
            let bytes = |(session, handle)| (handle, process_bytes(folder, session, handle));
            let processes = processes.into_iter().map(bytes).collect();
            Done::Measured { processes, other_bytes: other_bytes(folder) }
        });
    }

    /// Removes what is in quarantine for longer than `age`.
    pub(super) fn sweep_quarantine(&self, age: Duration) {
        self.job(move |folder| {
            sweep_older(&folder.quarantine_path(), age);
            Done::Swept
        });
    }

    /// Removes the folder of a session whose removal is in the log.
    pub(super) fn remove_session(&self, id: SessionId) {
        self.job(move |folder| {
            told("session removal", remove_folder(&folder.session_path(id)));
            Done::SessionRemoved { id }
        });
    }

    /// Removes the files of a process whose removal is in the log. What cannot be removed now is
    /// swept at the next restore.
    pub(super) fn remove_process(&self, session: SessionId, handle: Handle) {
        self.job(move |folder| {
            crate::failpoint::hit("removal-before-files");
            told("removal", procd_store::manifest::remove(folder, session, &handle));
            crate::failpoint::hit("removal-between-files");
            told("removal", remove_folder(&folder.spool_path(session, &handle)));
            crate::failpoint::hit("removal-after-files");
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

/// Removes a folder with all in it; none there is fine.
fn remove_folder(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::io("remove", path, source)),
    }
}

fn process_bytes(folder: &StateFolder, session: SessionId, handle: Handle) -> u64 {
    disk_bytes(&folder.manifest_path(session, &handle))
        + disk_bytes(&folder.spool_path(session, &handle))
}

fn other_bytes(folder: &StateFolder) -> u64 {
    let ballast = disk_bytes(&folder.path().join("ballast"));
    disk_bytes(&folder.commit_path()) + disk_bytes(&folder.quarantine_path()) + ballast
}

/// What a file, or all in a folder, takes of the disk; what is not there takes nothing.
fn disk_bytes(path: &Path) -> u64 {
    /// Bytes of a block as the kernel counts them.
    const BLOCK_BYTES: u64 = 512;
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return 0 };
    let own = metadata.blocks() * BLOCK_BYTES;
    if !metadata.is_dir() {
        return own;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return own };
    entries.flatten().fold(own, |sum, entry| sum + disk_bytes(&entry.path()))
}

fn sweep_older(path: &Path, age: Duration) {
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed >= age));
        if !is_old {
            continue;
        }
        let path = entry.path();
        let removed = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        if let Err(error) = removed {
            tracing::warn!(%error, "a file in quarantine cannot be removed");
        }
    }
}
