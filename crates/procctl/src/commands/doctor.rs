//! `procctl doctor`: looks for what is wrong, or will be, and says what to do about each.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use procd_client::places;
use procd_protocol::Open;
use procd_protocol::v1::{StatusResult, Tier};
use serde::Serialize;

use crate::exit::{Code, CtlError};
use crate::link::{Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{bytes, lines_of, printable};

/// A file system with less room than this will stop starts before long.
const ROOM_BYTES_MIN: u64 = 256 * 1024 * 1024;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Ok,
    Hint,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    what: &'static str,
    grade: Grade,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn finding(what: &'static str, grade: Grade, found: String, next: Option<&str>) -> Finding {
    Finding { what, grade, found, next: next.map(str::to_owned) }
}

fn ok(what: &'static str, found: impl Into<String>) -> Finding {
    finding(what, Grade::Ok, found.into(), None)
}

/// Looks at everything. Exit code 1 when something is bad.
/// # Errors
/// [`CtlError`] when nothing can be shown.
pub(crate) async fn doctor(links: &Links, format: Format) -> Result<u8, CtlError> {
    let mut findings = vec![socket(), state_folder()];
    findings.extend(daemon(links).await);
    match format {
        Format::Table => print::data(text(&findings, print::columns()).as_bytes())?,
        Format::Json | Format::Jsonl => print::documents(format, &findings)?,
    }
    let is_bad = findings.iter().any(|finding| finding.grade == Grade::Bad);
    Ok(if is_bad { Code::Failure } else { Code::Ok }.number())
}

fn socket() -> Finding {
    match places::socket() {
        Err(error) => finding("socket", Grade::Bad, error.to_string(), Some("set PROCD_SOCKET")),
        Ok(path) => {
            let shown = path.display().to_string();
            match path.parent().and_then(open_to_others) {
                Some(problem) => finding(
                    "socket",
                    Grade::Bad,
                    format!("the folder of `{shown}` {problem}"),
                    Some("take the rights of others away with `chmod 700`"),
                ),
                None => ok("socket", shown),
            }
        }
    }
}

fn state_folder() -> Finding {
    let path = match places::state_folder() {
        Ok(path) => path,
        Err(error) => {
            let next = Some("set PROCD_STATE_DIR");
            return finding("state folder", Grade::Bad, error.to_string(), next);
        }
    };
    let shown = path.display().to_string();
    if let Some(problem) = open_to_others(&path) {
        let found = format!("`{shown}` {problem}");
        let next = Some("take the rights of others away with `chmod 700`");
        return finding("state folder", Grade::Bad, found, next);
    }
    match rustix::fs::statvfs(&path) {
        Err(_not_there_yet) => ok("state folder", format!("{shown}, not made yet")),
        Ok(file_system) => {
            let free = file_system.f_bavail.saturating_mul(file_system.f_frsize);
            let found = format!("{shown}, {} free on its file system", bytes(free));
            if free < ROOM_BYTES_MIN {
                let next = "make room there, or `procctl prune --all`: without room no start is \
                            taken";
                finding("state folder", Grade::Bad, found, Some(next))
            } else {
                ok("state folder", found)
            }
        }
    }
}

/// What is wrong with the rights of a folder; none when it is not there.
fn open_to_others(folder: &Path) -> Option<&'static str> {
    let found = std::fs::metadata(folder).ok()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Some("belongs to another user");
    }
    (found.mode() & 0o077 != 0).then_some("is open to others")
}

async fn daemon(links: &Links) -> Vec<Finding> {
    let client = match links.connect(StartDaemon::Never).await {
        Ok(client) => client,
        Err(error) => return vec![no_daemon(&error)],
    };
    let mut findings = vec![version(&client.hello().server.version)];
    match links.operator(StartDaemon::Never).await {
        Err(error) => {
            let next = Some("use the account that the daemon runs under");
            findings.push(finding("operator", Grade::Bad, error.to_string(), next));
        }
        Ok(link) => match link.status().await {
            Ok(status) => findings.extend(of_status(&status)),
            Err(error) => {
                findings.push(finding("status", Grade::Bad, error.to_string(), None));
            }
        },
    }
    findings
}

fn no_daemon(error: &CtlError) -> Finding {
    if let CtlError::NoDaemon { what, .. } = error {
        let next = Some("none is needed before the first start: `procctl start` makes one");
        return finding("daemon", Grade::Hint, what.clone(), next);
    }
    finding("daemon", Grade::Bad, error.to_string(), None)
}

fn version(daemon: &str) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    if daemon == own {
        return ok("version", format!("{own}, daemon and procctl"));
    }
    let found = format!("the daemon is {daemon}, procctl is {own}");
    let next = Some("`procctl shutdown` at a good moment: the next start brings the new one");
    finding("version", Grade::Hint, found, next)
}

fn of_status(status: &StatusResult) -> Vec<Finding> {
    let mut findings = vec![containment(status), restore(status)];
    for what in &status.degraded {
        let next = Some("see the daemon's log; room on the disk is the usual cause");
        findings.push(finding("degraded", Grade::Bad, what.clone(), next));
    }
    findings.push(match &status.lingering_hint {
        Some(hint) => finding("lingering", Grade::Hint, hint.clone(), None),
        None => ok("lingering", "nothing ends with a login"),
    });
    let counted = [
        ("escaped", status.escaped, "processes left their tree and were killed", LOOK_AT_LOG),
        (
            "notifications",
            status.dropped_notifications,
            "notifications were dropped, too many waited for their loop",
            "see which agent does not read them: `procctl sessions`",
        ),
        (
            "collisions",
            status.collisions,
            "notifications met another payload under their id",
            "a client reuses ids: see the daemon's log for which",
        ),
    ];
    for (what, count, words, next) in counted {
        findings.push(match count.unwrap_or(0) {
            0 => ok(what, "none"),
            count => finding(what, Grade::Hint, format!("{count} {words}"), Some(next)),
        });
    }
    let lowered = status.settings.iter().filter(|setting| setting.lowered_by.is_some()).count();
    findings.push(match lowered {
        0 => ok("settings", "none was lowered to fit another"),
        count => {
            let found = match count {
                1 => "1 was lowered to fit another".to_owned(),
                _ => format!("{count} were lowered to fit others"),
            };
            finding("settings", Grade::Hint, found, Some("`procctl config` names them"))
        }
    });
    findings
}

const LOOK_AT_LOG: &str = "see the daemon's log for which";

fn containment(status: &StatusResult) -> Finding {
    let tier = status.containment.as_ref().map(|containment| &containment.tier);
    match tier {
        Some(Open::Known(Tier::Cgroup)) => {
            ok("containment", "tier 1: a control group for each process")
        }
        Some(Open::Known(Tier::Shim)) => finding(
            "containment",
            Grade::Hint,
            "tier 2: a shim for each process, since no control group is delegated".to_owned(),
            Some("run the daemon as a systemd user unit with Delegate=yes for tier 1"),
        ),
        Some(Open::Known(Tier::Pidns)) => {
            ok("containment", "tier 3: a PID namespace for each process")
        }
        Some(Open::Unknown(_)) | None => finding(
            "containment",
            Grade::Bad,
            "none as the configuration requires: every start is refused".to_owned(),
            Some("see `containment`, `cgroup_root` and `require_atomic` in `procctl config`"),
        ),
    }
}

fn restore(status: &StatusResult) -> Finding {
    let report = &status.restore;
    if !report.done {
        let found = format!("under way, {} records read", report.records);
        return finding("restore", Grade::Hint, found, Some("wait for it"));
    }
    if report.damage.is_empty() {
        let lost = match report.lost {
            0 => String::new(),
            lost => format!(", {lost} processes were lost with the daemon before"),
        };
        return ok("restore", format!("{} records, nothing damaged{lost}", report.records));
    }
    let things: Vec<String> =
        report.damage.iter().map(|damage| format!("{} ({})", damage.what, damage.reason)).collect();
    let found = format!("{} damaged: {}", things.len(), things.join("; "));
    let next = "what was damaged is in `quarantine` of the state folder, with the reason; remove \
                it when nobody needs it";
    finding("restore", Grade::Bad, found, Some(next))
}

/// A line for each, and below it what to do.
fn text(findings: &[Finding], columns: Option<usize>) -> String {
    let name_chars = findings.iter().map(|one| one.what.len()).max().unwrap_or(0);
    let indent = "ok    ".len() + name_chars + 2;
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(20));
    let mut text = String::new();
    for one in findings {
        let mark = match one.grade {
            Grade::Ok => "ok",
            Grade::Hint => "hint",
            Grade::Bad => "BAD",
        };
        let mut head = format!("{mark:<6}{:<name_chars$}  ", one.what);
        let next = one.next.as_ref().map(|next| format!("-> {next}"));
        for part in [Some(&one.found), next.as_ref()].into_iter().flatten() {
            for line in lines_of(&printable(part), room) {
                text.push_str(&format!("{head:<indent$}{line}\n"));
                head.clear();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(more: &str) -> StatusResult {
        let text = format!(
            r#"{{"versions":{{"server":"0.1.0","protocol":[1],"state_format":1}},"uptime_ms":65000,
            "restore":{{"done":true,"records":3,"sessions":1,"lost":2,"damaged":0,"duration_ms":4}}
            {more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_sound_daemon_has_nothing_to_do() {
        let findings = of_status(&status(r#","containment":{"tier":"cgroup"}"#));
        assert!(findings.iter().all(|one| one.grade == Grade::Ok), "{findings:?}");
        let expected = "\
ok    containment    tier 1: a control group for each process
ok    restore        3 records, nothing damaged, 2 processes were lost with the
                     daemon before
";
        assert!(text(&findings, Some(80)).starts_with(expected), "{}", text(&findings, Some(80)));
    }

    #[test]
    fn whatever_is_wrong_has_a_next_step() {
        let findings = of_status(&status(
            r#","containment":{"tier":"none"},"degraded":["the commit log cannot be written"],
            "escaped":1,"dropped_notifications":2,"collisions":3,
            "lingering_hint":"lingering is off; `loginctl enable-linger` keeps them",
            "settings":[{"key":"a","origin":"default","lowered_by":"b"}]"#,
        ));
        for one in findings.iter().filter(|one| one.grade != Grade::Ok && one.what != "lingering") {
            assert!(one.next.is_some(), "{one:?}");
        }
        assert_eq!(findings.iter().filter(|one| one.grade == Grade::Bad).count(), 2);
        for columns in [80, 160] {
            for line in text(&findings, Some(columns)).lines() {
                assert!(line.chars().count() <= columns, "{line}");
            }
        }
    }
}
