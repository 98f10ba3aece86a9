//! Manifests of processes that ended close together, written together: each file has a sync of its
//! own, but the first one's commit of the file system's journal serves them all, and each folder is
//! synced once. Alone, each of them would hold up the commit log of the next start twice. The log
//! keeps a record until its file stands, so the wait costs nothing but that.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use procd_core::Handle;
use procd_store::folder::StateFolder;
use procd_store::manifest::ManifestFile;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;

use super::{Stored, other_bytes, process_bytes, told};

/// How long a manifest waits for others.
const GATHER: Duration = Duration::from_millis(100);
/// Files that are written together, a count: each is held open. At most a part of the limit of
/// open files, since that may be all there is (`process/descriptors.rs`).
const TOGETHER_MAX: u64 = 64;
const TOGETHER_PART: u64 = 16;

/// What waits to be written.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    state: Mutex<State>,
    hastened: Notify,
}

#[derive(Debug, Default)]
struct State {
    files: VecDeque<ManifestFile>,
    is_hasty: bool,
}

impl Gathered {
    /// Adds one; true = nobody is about to write yet: the caller sees to it.
    pub(super) fn add(&self, file: ManifestFile) -> bool {
        let mut state = self.lock();
        state.files.push_back(file);
        state.files.len() == 1
    }

    /// Waits until it is time to write.
    pub(super) async fn wait(&self) {
        let hastened = self.hastened.notified();
        tokio::pin!(hastened);
        hastened.as_mut().enable();
        if self.lock().is_hasty {
            return;
        }
        tokio::select! {
            () = hastened => {}
            () = tokio::time::sleep(GATHER) => {}
        }
    }

    /// From now on nobody waits.
    pub(super) fn hasten(&self) {
        self.lock().is_hasty = true;
        self.hastened.notify_waiters();
    }

    /// Writes all there is.
    pub(super) fn write(&self, folder: &StateFolder) -> Vec<(Handle, Option<Stored>)> {
        let mut files = std::mem::take(&mut self.lock().files);
        let mut stored = Vec::with_capacity(files.len());
        for some in files.make_contiguous().chunks(together()) {
            let results = procd_store::manifest::write_all(folder, some);
            crate::failpoint::hit("manifest-after-write");
            let stand = results.into_iter().map(|result| told("manifest", result));
            stored.extend(some.iter().map(|file| &file.record).zip(stand).map(
                |(record, stands)| {
                    let bytes = || process_bytes(folder, record.session_id, record.process_id);
                    (record.process_id, stands.then(bytes))
                },
            ));
        }
        let other_bytes = other_bytes(folder);
        let stored_of = |process_bytes| Stored { process_bytes, other_bytes };
        stored.into_iter().map(|(handle, bytes)| (handle, bytes.map(stored_of))).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many files are open at once.
fn together() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = (limit / TOGETHER_PART).clamp(1, TOGETHER_MAX);
    usize::try_from(most).unwrap_or(1)
}
