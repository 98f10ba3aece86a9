//! The rules a record obeys, alone and against the stored one. A record that breaks one is
//! `manifest_corrupt` on load, and a refused save. Source: spec, lifecycle, *Manifest*.

use std::fmt::Display;

use jiff::Timestamp;
use procd_core::state::{Access, EndedBy, ProcessState, Reason};
use procd_core::{Handle, LoopId, OriginId, SessionId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::event::DIAGNOSTIC_BYTES_MAX;
use crate::record::{LeaderRecord, PublicationMarks, RECORD_VERSION, Record, StableIds, TtySize};

/// A broken rule, with values of ids and numbers only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule `{rule}` is broken by `{field}`: stored {stored}, refused {refused}")]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// The field of the record.
    pub field: &'static str,
    /// The stored value; `-` where there is none, or where it must not be shown.
    pub stored: String,
    /// The refused value, likewise.
    pub refused: String,
}

type Checked = Result<(), Violation>;

fn alone(holds: bool, rule: &'static str, field: &'static str, refused: impl Display) -> Checked {
    if holds {
        return Ok(());
    }
    Err(Violation { rule, field, stored: "-".to_owned(), refused: refused.to_string() })
}

fn shown<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Whether a record is valid by itself.
/// # Errors
/// The first [`Violation`].
pub fn check_alone(record: &Record) -> Checked {
    let r = record;
    alone(r.version == RECORD_VERSION, "version known", "version", r.version)?;
    check_access(r.access.asked, r.access.effective)?;
    check_times(r)?;
    check_end(r)?;
    alone(
        r.retained_from <= r.total_bytes,
        "retained_from <= total_bytes",
        "retained_from",
        r.retained_from,
    )?;
    check_ids(&r.ids)
}

/// Effective access never exceeds what was asked; unclaimed goes with unclaimed only.
fn check_access(asked: Access, effective: Access) -> Checked {
    const fn rank(access: Access) -> Option<u8> {
        match access {
            Access::Unclaimed => None,
            Access::ReadOnly => Some(0),
            Access::ScopedWrite => Some(1),
            Access::BroadWrite => Some(2),
        }
    }
    let holds = match (rank(asked), rank(effective)) {
        (None, None) => true,
        (Some(asked), Some(effective)) => effective <= asked,
        (Some(_), None) | (None, Some(_)) => false,
    };
    alone(holds, "effective access within asked", "access", effective)
}

fn check_times(r: &Record) -> Checked {
    let needs_start = match r.state {
        ProcessState::Running
        | ProcessState::Exited
        | ProcessState::TimedOut
        | ProcessState::Interrupted => true,
        ProcessState::Starting
        | ProcessState::Failed
        | ProcessState::Terminated
        | ProcessState::Killed
        | ProcessState::LostOnRestore => false,
    };
    alone(!needs_start || r.started_at.is_some(), "started when it ran", "started_at", r.state)?;
    let started_fits = r.started_at.is_none_or(|at| at >= r.created_at);
    alone(started_fits, "started not before created", "started_at", shown(r.started_at))?;
    let is_finished = r.finished_at.is_some();
    alone(is_finished == r.state.is_terminal(), "finished when terminal", "finished_at", r.state)?;
    let before = r.started_at.unwrap_or(r.created_at);
    let finished_fits = r.finished_at.is_none_or(|at| at >= before);
    alone(finished_fits, "finished not before started", "finished_at", shown(r.finished_at))
}

fn check_end(r: &Record) -> Checked {
    let has_code = r.exit_code.is_some();
    let wants_code = r.state == ProcessState::Exited;
    alone(has_code == wants_code, "a code when exited", "exit_code", shown(r.exit_code))?;
    let in_range = r.exit_code.is_none_or(|code| (0..=255).contains(&code));
    alone(in_range, "a code is 0..255", "exit_code", shown(r.exit_code))?;
    alone(r.state.fits(r.reason), "reason fits the state", "reason", shown(r.reason))?;
    let short = r.diagnostic.as_ref().map_or(0, String::len);
    alone(short <= DIAGNOSTIC_BYTES_MAX, "diagnostic of 512 bytes", "diagnostic", short)
}

fn named_ids(ids: &StableIds) -> [(&'static str, Uuid); 5] {
    [
        ("ids.started", ids.started),
        ("ids.backgrounded", ids.backgrounded),
        ("ids.completed", ids.completed),
        ("ids.lost", ids.lost),
        ("ids.notification", ids.notification),
    ]
}

fn check_ids(ids: &StableIds) -> Checked {
    let all = named_ids(ids);
    for (at, (field, id)) in all.iter().enumerate() {
        alone(!id.is_nil(), "ids are set", field, id)?;
        let is_new = all.iter().take(at).all(|(_, other)| other != id);
        alone(is_new, "ids are different", field, id)?;
    }
    Ok(())
}

/// Whether a record may be the first of its process.
/// # Errors
/// The first [`Violation`].
pub fn check_first(record: &Record) -> Checked {
    let is_first = record.state == ProcessState::Starting;
    alone(is_first, "a first save is starting", "state", record.state)
}

/// What later saves of a record are held against: all of it that may not change freely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    process_id: Handle,
    session_id: SessionId,
    loop_id: LoopId,
    origin: OriginId,
    /// The command is of any length; its hash is not.
    command: [u8; 32],
    asked: Access,
    effective: Access,
    enforced: Option<String>,
    tty: Option<TtySize>,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    state: ProcessState,
    end: Terminal,
    total_bytes: u64,
    retained_from: u64,
    published: PublicationMarks,
    ids: StableIds,
}

/// The parts of a terminal result.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Terminal {
    reason: Option<Reason>,
    exit_code: Option<i32>,
    leader: Option<LeaderRecord>,
    escalated: bool,
    ended_by: Option<EndedBy>,
    leftovers: u32,
    finished_at: Option<Timestamp>,
    duration_ms: Option<u64>,
    diagnostic: Option<String>,
}

impl Terminal {
    fn of(r: &Record) -> Self {
        Self {
            reason: r.reason,
            exit_code: r.exit_code,
            leader: r.leader.clone(),
            escalated: r.escalated,
            ended_by: r.ended_by,
            leftovers: r.leftovers,
            finished_at: r.finished_at,
            duration_ms: r.duration_ms,
            diagnostic: r.diagnostic.clone(),
        }
    }
}

/// Compares what must stay; the values are shown where they are ids or numbers.
fn same<T: PartialEq + Display>(
    rule: &'static str,
    field: &'static str,
    stored: &T,
    refused: &T,
) -> Checked {
    if stored == refused {
        return Ok(());
    }
    let (stored, refused) = (stored.to_string(), refused.to_string());
    Err(Violation { rule, field, stored, refused })
}

/// The same for values that must not be shown.
fn unchanged(field: &'static str, is_same: bool) -> Checked {
    alone(is_same, "fixed at the first save", field, "-")
}

fn not_back(field: &'static str, stored: u64, refused: u64) -> Checked {
    if refused >= stored {
        return Ok(());
    }
    same("never goes back", field, &stored, &refused)
}

impl Stored {
    /// What is kept of a saved record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let r = record;
        Self {
            process_id: r.process_id,
            session_id: r.session_id,
            loop_id: r.loop_id,
            origin: r.origin,
            command: command_hash(r),
            asked: r.access.asked,
            effective: r.access.effective,
            enforced: r.access.enforced.clone(),
            tty: r.tty,
            created_at: r.created_at,
            started_at: r.started_at,
            state: r.state,
            end: Terminal::of(r),
            total_bytes: r.total_bytes,
            retained_from: r.retained_from,
            published: r.published,
            ids: r.ids.clone(),
        }
    }

    /// The session it belongs to.
    pub(crate) const fn session(&self) -> SessionId {
        self.session_id
    }

    /// The id of its notification.
    pub(crate) const fn notification_id(&self) -> Uuid {
        self.ids.notification
    }

    /// Whether `record` may follow this one.
    /// # Errors
    /// The first [`Violation`].
    pub fn check(&self, record: &Record) -> Checked {
        self.check_fixed(record)?;
        self.check_edge(record)?;
        self.check_terminal(record)?;
        self.check_counters(record)
    }

    fn check_fixed(&self, r: &Record) -> Checked {
        const FIXED: &str = "fixed at the first save";
        same(FIXED, "process_id", &self.process_id, &r.process_id)?;
        same(FIXED, "session_id", &self.session_id, &r.session_id)?;
        same(FIXED, "loop_id", &self.loop_id, &r.loop_id)?;
        same(FIXED, "origin", &self.origin, &r.origin)?;
        unchanged("command", self.command == command_hash(r))?;
        let access = &r.access;
        same(FIXED, "access.asked", &self.asked, &access.asked)?;
        same(FIXED, "access.effective", &self.effective, &access.effective)?;
        unchanged("access.enforced", self.enforced == access.enforced)?;
        unchanged("tty", self.tty == r.tty)?;
        same(FIXED, "created_at", &self.created_at, &r.created_at)?;
        for ((field, stored), (_, id)) in named_ids(&self.ids).iter().zip(named_ids(&r.ids)) {
            same("a set id never changes", field, stored, &id)?;
        }
        if self.started_at.is_some() && self.started_at != r.started_at {
            let (stored, refused) = (shown(self.started_at), shown(r.started_at));
            same("fixed once set", "started_at", &stored, &refused)?;
        }
        Ok(())
    }

    fn check_edge(&self, r: &Record) -> Checked {
        if self.state == r.state || self.state.may_become(r.state) {
            return Ok(());
        }
        same("only edges of the table", "state", &self.state, &r.state)
    }

    fn check_terminal(&self, r: &Record) -> Checked {
        const RULE: &str = "a terminal result never changes";
        if !self.state.is_terminal() {
            return Ok(());
        }
        let (old, new) = (&self.end, &Terminal::of(r));
        same(RULE, "reason", &shown(old.reason), &shown(new.reason))?;
        same(RULE, "exit_code", &shown(old.exit_code), &shown(new.exit_code))?;
        alone(old.leader == new.leader, RULE, "leader", "-")?;
        same(RULE, "escalated", &old.escalated, &new.escalated)?;
        same(RULE, "ended_by", &shown(old.ended_by), &shown(new.ended_by))?;
        same(RULE, "leftovers", &old.leftovers, &new.leftovers)?;
        same(RULE, "started_at", &shown(self.started_at), &shown(r.started_at))?;
        same(RULE, "finished_at", &shown(old.finished_at), &shown(new.finished_at))?;
        same(RULE, "duration_ms", &shown(old.duration_ms), &shown(new.duration_ms))?;
        alone(old.diagnostic == new.diagnostic, RULE, "diagnostic", "-")
    }

    fn check_counters(&self, r: &Record) -> Checked {
        not_back("total_bytes", self.total_bytes, r.total_bytes)?;
        not_back("retained_from", self.retained_from, r.retained_from)?;
        let (old, new) = (self.published, r.published);
        not_back("published.completed", old.completed.into(), new.completed.into())?;
        not_back("published.acknowledged", old.acknowledged.into(), new.acknowledged.into())
    }
}

fn command_hash(record: &Record) -> [u8; 32] {
    let command = &record.command;
    let mut hash = Sha256::new();
    let mut add = |text: Option<&str>| {
        // The length keeps ("ab", "c") and ("a", "bc") apart, the first byte absent from empty.
        hash.update([u8::from(text.is_some())]);
        let text = text.unwrap_or_default();
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    };
    add(command.line.as_deref());
    add(command.cwd.as_deref());
    for word in command.argv.iter().flatten() {
        add(Some(word));
    }
    add(command.argv.is_some().then_some(""));
    hash.update([u8::from(command.truncated)]);
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
