//! Reads the state folder back: the replayed log held against the files, damage isolated to the
//! thing it hit, leftovers of a crash swept. Running it twice changes nothing.
//! Source: spec, lifecycle, *Restore*.

mod folders;
mod merge;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use procd_core::{Handle, SessionId};

use crate::damage::Damage;
use crate::event::Notification;
use crate::folder::StateFolder;
use crate::log::{Acknowledgement, Removal, Replay};
use crate::manifest::NumberedEvent;
use crate::record::Record;
use crate::session::SessionRecord;

/// A process as log and file together say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredProcess {
    /// The newer record of both.
    pub record: Record,
    /// Its events by number.
    pub events: Vec<NumberedEvent>,
    /// The number of its last save in the log; 0 when only the file has it.
    pub seq: u64,
    /// The number of its notification.
    pub notification_seq: Option<u64>,
    /// Whether the file is there and says the same: else the seal, or the rewriting of the file,
    /// is to be done again.
    pub is_on_disk: bool,
}

/// A notification that nobody acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredNotification {
    /// Its number.
    pub seq: u64,
    /// What it says.
    pub notification: Notification,
}

/// All that was saved and still counts.
#[derive(Debug, Default)]
pub struct Restored {
    /// The sessions.
    pub sessions: Vec<SessionRecord>,
    /// The processes, those of each session together, in the order of their creation.
    pub processes: Vec<RestoredProcess>,
    /// Unacknowledged notifications by session and number, those that outlived their record
    /// included.
    pub notifications: Vec<RestoredNotification>,
    /// Notifications that met another payload: shown, never offered again.
    pub collisions: Vec<Acknowledgement>,
    /// Removals whose files could not be removed yet: they belong in the next snapshot.
    pub standing_removals: Vec<(u64, Removal)>,
    /// Removals whose process had a request key: the key may have to be known for longer.
    pub kept_keys: Vec<(u64, Removal)>,
    /// Everything damaged, with what was done about it.
    pub damage: Vec<Damage>,
    /// Handles whose record is damaged and gone, its file in quarantine: an operator gets
    /// `manifest_corrupt` for them.
    pub corrupt: HashSet<Handle>,
    /// The highest number known of each session.
    pub last_seqs: HashMap<SessionId, u64>,
}

/// Reads the files and holds them against the log. Moves what is damaged to quarantine, removes
/// what a removal left, temporary files and orphans.
#[must_use]
pub fn load(folder: &StateFolder, replay: Replay) -> Restored {
    load_counting(folder, replay, &|| {})
}

/// As [`load`]; calls `read` for each record that was read.
#[must_use]
pub fn load_counting(folder: &StateFolder, replay: Replay, read: &dyn Fn()) -> Restored {
    let mut logged = merge::Logged::of(replay);
    let mut restored = Restored { damage: folder.damage().to_vec(), ..Restored::default() };
    restored.damage.append(&mut logged.damage);
    folders::walk(folder, &mut logged, &mut restored, read);
    merge::finish(logged, &mut restored);
    let known: HashSet<Handle> =
        restored.processes.iter().map(|one| one.record.process_id).collect();
    restored.corrupt = corrupt(folder).filter(|handle| !known.contains(handle)).collect();
    restored
}

/// The handles of the manifests in quarantine, alone or with their session, those that earlier
/// daemons set aside included.
fn corrupt(folder: &StateFolder) -> impl Iterator<Item = Handle> {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let alone = entries(&folder.quarantine_path()).filter_map(|entry| {
        let name = entry.file_name();
        let (_, file) = name.to_str()?.split_once("-manifests-")?;
        handle_of(file)
    });
    let of_sessions = entries(&folder.quarantine_path())
        .flat_map(move |entry| entries(&entry.path().join("manifests")))
        .filter_map(|entry| handle_of(entry.file_name().to_str()?));
    alone.chain(of_sessions)
}

fn handle_of(file: &str) -> Option<Handle> {
    file.split_once(".json")?.0.parse().ok()
}

#[cfg(test)]
mod tests;
