//! The state folder read with ordinary tools: what the commit log and the manifests' files say of every end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::load::Told;

/// What is on disk.
#[derive(Debug, Default)]
pub struct Audit {
    /// The latest record of each process, by handle.
    records: BTreeMap<String, Value>,
    /// Events and notifications by (session, id): number, kind and payload.
    entries: BTreeMap<(String, String), (u64, String, Value)>,
    /// Handles that a removal names.
    removed: BTreeSet<String>,
    /// What contradicts itself.
    findings: Vec<String>,
}

/// Reads the parts in their order, then the manifests' files.
#[must_use]
pub fn read(state: &Path) -> Audit {
    let mut audit = Audit::default();
    for part in files(&state.join("commit")) {
        let text = fs::read(part).unwrap_or_default();
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(batch) = serde_json::from_slice::<Value>(line) else { continue };
            for record in batch["records"].as_array().into_iter().flatten() {
                audit.take(record);
            }
        }
    }
    for session in files(&state.join("sessions")) {
        for file in files(&session.join("manifests")) {
            audit.take_file(&fs::read(file).unwrap_or_default());
        }
    }
    audit
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Audit {
    fn take(&mut self, record: &Value) {
        let (session, id) = (word(&record["session"]), word(&record["id"]));
        let payload = record["payload"].clone();
        match record["kind"].as_str().unwrap_or_default() {
            "process" => drop(self.records.insert(id, payload)),
            "event" | "notification" => {
                let seq = record["seq"].as_u64().unwrap_or_default();
                self.entry(session, id, (seq, word(&record["kind"]), payload));
            }
            "removal" => drop(self.removed.insert(word(&payload["process_id"]))),
            _ => {}
        }
    }

    fn take_file(&mut self, bytes: &[u8]) {
        let Ok(file) = serde_json::from_slice::<Value>(bytes) else { return };
        let session = word(&file["record"]["session_id"]);
        for event in file["events"].as_array().into_iter().flatten() {
            let seq = event["seq"].as_u64().unwrap_or_default();
            let id = word(&event["event"]["event_id"]);
            self.entry(session.clone(), id, (seq, "event".to_owned(), event["event"].clone()));
        }
        self.records.insert(word(&file["record"]["process_id"]), file["record"].clone());
    }

    fn entry(&mut self, session: String, id: String, entry: (u64, String, Value)) {
        let shown = format!("{entry:?}");
        // A notification that outlives its record is written again when that goes.
        let is_same = |known: &(u64, String, Value)| {
            *known == entry || (entry.1 == "notification" && known.2 == entry.2)
        };
        if let Some(known) = self.entries.insert((session, id), entry.clone())
            && !is_same(&known)
        {
            self.findings.push(format!("one id, two entries: {known:?} and {shown}"));
        }
    }

    /// Every end stands once, under its stored ids; nothing of `before` has changed or gone without a removal.
    /// - `damaged`: the process whose file was damaged: its events may have gone with it.
    /// # Panics
    /// With all findings.
    pub fn check(&self, before: &Self, damaged: Option<&str>) {
        let mut findings = self.findings.clone();
        for (process, record) in &self.records {
            if !self.removed.contains(process) && damaged != Some(process) {
                self.check_end(process, record, &mut findings);
            }
        }
        for (key, entry) in &before.entries {
            let process = word(&entry.2["process_id"]);
            match self.entries.get(key) {
                Some(now) if now == entry => {}
                Some(now) if entry.1 == "notification" && now.2 == entry.2 => {}
                Some(now) => findings.push(format!("{entry:?} has become {now:?}")),
                // A notification of a sealed record is rebuilt from the record.
                None if entry.1 == "notification" && self.records.contains_key(&process) => {}
                None if before.removed.contains(&process) || self.removed.contains(&process) => {}
                None if !self.records.contains_key(&process) => {}
                None if damaged == Some(process.as_str()) => {}
                None => findings.push(format!("gone: {entry:?}")),
            }
        }
        let mut numbers = BTreeSet::new();
        for ((session, _), (seq, _, entry)) in &self.entries {
            if !numbers.insert((session, seq)) {
                findings.push(format!("number {seq} of session {session} twice: {entry}"));
            }
        }
        assert!(findings.is_empty(), "{findings:#?}");
    }

    fn check_end(&self, process: &str, record: &Value, findings: &mut Vec<String>) {
        let state = record["state"].as_str().unwrap_or_default();
        if ["starting", "running"].contains(&state) {
            findings.push(format!("{process} was left {state}"));
            return;
        }
        let ends: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, (_, kind, entry))| {
                kind == "event"
                    && entry["process_id"] == process
                    && ["completed", "lost"].contains(&entry["kind"].as_str().unwrap_or_default())
            })
            .map(|((_, id), (_, _, entry))| (id, word(&entry["kind"]), word(&entry["state"])))
            .collect();
        let name = if state == "lost_on_restore" { "lost" } else { "completed" };
        let id = word(&record["ids"][name]);
        match ends.as_slice() {
            [(found, kind, of)] if **found == id && kind == name && of == state => {}
            other => findings.push(format!("{process} is {state}, its {name} is {id}: {other:?}")),
        }
    }
}

/// Whether any manifest has its file: they come a moment after their ends, together.
pub(super) fn has_manifest(state: &Path) -> bool {
    let folders = files(&state.join("sessions"));
    folders.iter().any(|session| !files(&session.join("manifests")).is_empty())
}

/// Empties the file of one sealed process that was told: its handle.
pub(super) fn damage_one_manifest(state: &Path, told: &Told) -> Option<String> {
    let manifests = |session: &Value| {
        files(&state.join("sessions").join(word(&session["session_id"])).join("manifests"))
    };
    let file = told.sessions.iter().flat_map(manifests).next_back()?;
    let handle = file.file_stem()?.to_str()?.to_owned();
    fs::write(&file, "{\"record\":").ok()?;
    Some(handle)
}
