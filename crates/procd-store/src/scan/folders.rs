//! The walk over `sessions/`: which files are there, which are sound, what goes where.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use procd_core::{Handle, SessionId};

use super::Restored;
use super::merge::Logged;
use crate::damage::Damage;
use crate::error::StoreError;
use crate::file::{self, Found};
use crate::folder::StateFolder;
use crate::log::Removal;
use crate::manifest::{self, ManifestFile};
use crate::session;

/// How a manifest's file is named: the handle and this.
const MANIFEST_END: &str = ".json";

/// Fewer files are not worth a thread of their own, a count.
const MANIFESTS_PER_THREAD_MIN: usize = 64;

/// The folder, the log and what is found, together.
struct Walk<'a> {
    folder: &'a StateFolder,
    logged: &'a mut Logged,
    restored: &'a mut Restored,
    /// Called for each record that was read.
    read: &'a dyn Fn(),
}

/// Walks all sessions' folders.
pub(super) fn walk(
    folder: &StateFolder,
    logged: &mut Logged,
    restored: &mut Restored,
    read: &dyn Fn(),
) {
    let mut walk = Walk { folder, logged, restored, read };
    walk.sweep(folder.path());
    walk.sweep(&folder.quarantine_path());
    for path in walk.list(&folder.sessions_path()) {
        let id = path.file_name().and_then(OsStr::to_str).and_then(|name| name.parse().ok());
        match id {
            Some(id) => walk.session(id, &path),
            None => walk.set_aside(&path, "it is no session's folder"),
        }
    }
    walk.missing_sessions();
}

impl Walk<'_> {
    fn damage(&mut self, path: &Path, reason: &str, trouble: Option<StoreError>) {
        self.restored.damage.push(Damage::new(self.folder.path(), path, reason, trouble));
    }

    fn set_aside(&mut self, path: &Path, reason: &str) {
        let moved = self.folder.quarantine(path, reason);
        self.damage(path, reason, moved.err());
    }

    /// What is in a folder, in the order of names, its temporary files swept.
    fn list(&mut self, path: &Path) -> Vec<PathBuf> {
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(source) => {
                let error = StoreError::io("list", path, source);
                self.damage(path, "it cannot be read", Some(error));
                return Vec::new();
            }
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| !is_swept(path));
        paths.sort_unstable();
        paths
    }

    fn sweep(&mut self, path: &Path) {
        let _swept = self.list(path);
    }

    fn session(&mut self, id: SessionId, path: &Path) {
        if let Some(&seq) = self.logged.removed_sessions.get(&id) {
            let removal = Removal::Session { session_id: id };
            return self.remove_files(path, seq, removal);
        }
        match session::read(self.folder, id) {
            Ok(record) => {
                // The log is newer than the file.
                self.logged.sessions.entry(id).or_insert(record);
            }
            Err(error @ (StoreError::Newer { .. } | StoreError::Unsafe { .. })) => {
                self.damage(path, "left where it is, its session is not served", Some(error));
                return self.logged.forget_session(id);
            }
            Err(error @ StoreError::Io { .. }) if !self.logged.sessions.contains_key(&id) => {
                // Not known to be damaged: it stays, and comes back when it can be read.
                self.damage(path, "left where it is, its session is not served", Some(error));
                return self.logged.forget_session(id);
            }
            Err(error) => {
                if !self.rebuild_session(id, path, &error) {
                    return;
                }
            }
        }
        self.places(path);
        self.manifests(id, path);
        self.spools(id, path);
    }

    /// Writes the record anew from the log; without one there the whole folder is set aside.
    fn rebuild_session(&mut self, id: SessionId, path: &Path, error: &StoreError) -> bool {
        let file = path.join("session.json");
        let Some(record) = self.logged.sessions.get(&id).cloned() else {
            self.set_aside(path, &format!("its record is lost: {error}"));
            self.logged.forget_session(id);
            return false;
        };
        if file::look(&file).is_ok_and(|found| found != Found::Nothing) {
            self.set_aside(&file, &format!("{error}; rebuilt from the log"));
        } else {
            self.damage(&file, "it is missing; rebuilt from the log", None);
        }
        if let Err(error) = session::write(self.folder, &record) {
            self.damage(&file, "it cannot be written", Some(error));
        }
        true
    }

    /// The folders of a session; what stands in their place is set aside.
    fn places(&mut self, path: &Path) {
        for place in ["manifests", "spools"].map(|name| path.join(name)) {
            if file::look(&place).is_ok_and(|found| matches!(found, Found::File | Found::Other)) {
                self.set_aside(&place, "it is no folder");
            }
            if let Err(error) = file::make_folder(&place) {
                self.damage(&place, "it cannot be made", Some(error));
            }
        }
    }

    fn manifests(&mut self, session: SessionId, path: &Path) {
        let mut named = Vec::new();
        for path in self.list(&path.join("manifests")) {
            let name = path.file_name().and_then(OsStr::to_str);
            let handle = name.and_then(|name| name.strip_suffix(MANIFEST_END)?.parse().ok());
            match handle {
                Some(handle) => named.push((handle, path)),
                None => self.set_aside(&path, "it is no manifest's file"),
            }
        }
        named.retain(|(handle, path)| !self.sweep_removed(*handle, path));
        let handles: Vec<Handle> = named.iter().map(|(handle, _)| *handle).collect();
        let read = read_all(self.folder, session, &handles);
        for ((handle, path), read) in named.into_iter().zip(read) {
            self.manifest(handle, &path, read);
        }
    }

    /// Whether it was removed: then its file goes.
    fn sweep_removed(&mut self, handle: Handle, path: &Path) -> bool {
        let Some((seq, removal)) = self.logged.removed.get(&handle).cloned() else {
            return false;
        };
        self.remove_files(path, seq, removal);
        true
    }

    fn manifest(&mut self, handle: Handle, path: &Path, read: Result<ManifestFile, StoreError>) {
        (self.read)();
        match read {
            Ok(file) => {
                let process = self.logged.merge(file);
                self.restored.processes.push(process);
            }
            Err(error @ StoreError::Newer { .. }) => {
                self.damage(path, "left where it is", Some(error));
                self.logged.processes.remove(&handle);
            }
            Err(error @ StoreError::Io { .. }) => {
                // Not known to be damaged: it stays, and is as good as absent.
                self.damage(path, "left where it is", Some(error));
            }
            Err(error) => {
                let is_in_log = self.logged.processes.contains_key(&handle);
                let what = match (is_in_log, self.logged.has_end_of(handle)) {
                    (true, true) => "rebuilt from the log",
                    (true, false) => "rebuilt from the log, but for its events",
                    (false, _) => "its record is lost",
                };
                self.set_aside(path, &format!("{error}; {what}"));
            }
        }
    }

    /// Spools without a record: those of removed processes go, others are set aside.
    fn spools(&mut self, session: SessionId, path: &Path) {
        let known: std::collections::HashSet<Handle> =
            self.restored.processes.iter().map(|process| process.record.process_id).collect();
        for path in self.list(&path.join("spools")) {
            let name = path.file_name().and_then(OsStr::to_str);
            let Some(handle) = name.and_then(|name| name.parse::<Handle>().ok()) else {
                self.set_aside(&path, "it is no spool");
                continue;
            };
            if known.contains(&handle) || self.logged.processes.contains_key(&handle) {
                continue;
            }
            let manifest = self.folder.manifest_path(session, &handle);
            if !self.sweep_removed(handle, &path)
                && file::look(&manifest).is_ok_and(|found| found == Found::Nothing)
            {
                self.set_aside(&path, "it is the spool of no record");
            }
        }
    }

    fn remove_files(&mut self, path: &Path, seq: u64, removal: Removal) {
        if let Err(error) = file::remove(path) {
            self.damage(path, "removed, but it cannot go", Some(error));
            if self.restored.standing_removals.iter().all(|(_, other)| *other != removal) {
                self.restored.standing_removals.push((seq, removal));
            }
        }
    }

    /// Sessions that only the log has: their record is written again.
    fn missing_sessions(&mut self) {
        let missing: Vec<_> = self
            .logged
            .sessions
            .values()
            .filter(|record| {
                let path = self.folder.session_path(record.session_id);
                file::look(&path).is_ok_and(|found| found == Found::Nothing)
            })
            .cloned()
            .collect();
        for record in missing {
            let path = self.folder.session_path(record.session_id);
            let written = session::write(self.folder, &record);
            self.damage(&path, "it is missing; rebuilt from the log", written.err());
        }
    }
}

/// Reads the files of many processes, in the order asked: decoding takes longer than reading, so
/// all processors share it.
fn read_all(
    folder: &StateFolder,
    session: SessionId,
    handles: &[Handle],
) -> Vec<Result<ManifestFile, StoreError>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = handles.len().div_ceil(threads).max(MANIFESTS_PER_THREAD_MIN);
    let read = |handle: &Handle| manifest::read(folder, session, handle);
    if handles.len() <= each {
        return handles.iter().map(read).collect();
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> = handles
            .chunks(each)
            .map(|part| (part, scope.spawn(move || part.iter().map(read).collect::<Vec<_>>())))
            .collect();
        let joined = parts.into_iter().map(|(part, thread)| {
            // Decoding does not panic; if it did, the files are read once more, here.
            thread.join().unwrap_or_else(|_| part.iter().map(read).collect())
        });
        joined.flatten().collect()
    })
}

fn is_swept(path: &Path) -> bool {
    let is_temporary = path.file_name().is_some_and(file::is_temporary);
    is_temporary && file::remove(path).is_ok()
}
