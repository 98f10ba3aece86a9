//! `procctl status`: the state of the daemon.

use procd_client::places;
use procd_protocol::v1::{StatusResult, Totals};

use crate::arguments::Role;
use crate::exit::CtlError;
use crate::link::{Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{pairs, span};

/// Shows it, as the operator sees it unless the owner's view is asked for.
/// # Errors
/// [`CtlError::NoDaemon`] when none runs.
pub(crate) async fn status(links: &Links, format: Format) -> Result<u8, CtlError> {
    let start = StartDaemon::Never;
    let status = match links.role() {
        Role::Owner => match links.owner(start).await? {
            Some(link) => link.status().await?,
            // Without a session there is what the daemon tells everybody.
            None => links.connect(start).await?.status().await?,
        },
        Role::Either | Role::Operator => links.operator(start).await?.status().await?,
    };
    let socket = places::socket().map(|path| path.display().to_string()).unwrap_or_default();
    skew(&status.versions.server).iter().for_each(|warning| print::message(warning));
    match format {
        Format::Table => print::data(text(&status, &socket, print::columns()).as_bytes())?,
        Format::Json | Format::Jsonl => print::document(format, &status)?,
    }
    Ok(0)
}

/// What is said when the daemon is not of procctl's own version: after an upgrade the old one serves on.
fn skew(daemon: &str) -> Option<String> {
    let own = env!("CARGO_PKG_VERSION");
    (daemon != own).then(|| {
        format!(
            "the daemon is {daemon}, procctl is {own}; `procctl shutdown` at a good moment: the next start brings the new one"
        )
    })
}

fn text(status: &StatusResult, socket: &str, columns: Option<usize>) -> String {
    let mut shown = vec![
        ("version", status.versions.server.clone()),
        ("socket", socket.to_owned()),
        ("up for", span(status.uptime_ms)),
    ];
    if let Some(containment) = &status.containment {
        let guarantees = containment.guarantees.join("; ");
        let tier = containment.tier.as_str();
        let separator = if guarantees.is_empty() { "" } else { ": " };
        shown.push(("containment", format!("{tier}{separator}{guarantees}")));
    }
    shown.push(("processes", totals(status.totals.as_ref())));
    if let Some(sessions) = status.sessions {
        shown.push(("sessions", sessions.to_string()));
    }
    shown.extend(status.connections.map(|count| ("clients", count.to_string())));
    shown.extend(status.pid.map(|pid| ("pid", pid.to_string())));
    if let Some(session) = &status.session {
        shown.push(("session", format!("{} ({})", session.session_id, session.state.as_str())));
    }
    shown.push(("restore", restore(status)));
    let dropped = status.dropped_notifications.filter(|count| *count > 0);
    shown.extend(dropped.map(|count| ("dropped", format!("{count} notifications"))));
    let collisions = status.collisions.filter(|count| *count > 0);
    shown.extend(collisions.map(|count| ("collisions", format!("{count} notifications"))));
    let escaped = status.escaped.filter(|count| *count > 0);
    shown.extend(escaped.map(|count| ("escaped", count.to_string())));
    shown.extend(status.degraded.iter().map(|what| ("degraded", what.clone())));
    shown.extend(status.lingering_hint.iter().map(|hint| ("hint", hint.clone())));
    pairs(&shown, columns)
}

fn totals(totals: Option<&Totals>) -> String {
    let counts: Vec<String> = totals
        .into_iter()
        .flatten()
        .filter(|(_, count)| **count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

fn restore(status: &StatusResult) -> String {
    let report = &status.restore;
    let state = if report.done { "done in" } else { "under way for" };
    let mut text = format!("{state} {}, {} records", span(report.duration_ms), report.records);
    if report.lost > 0 {
        text.push_str(&format!(", {} lost", report.lost));
    }
    if report.damaged > 0 {
        text.push_str(&format!(", {} damaged", report.damaged));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C134: an old daemon that serves on after an upgrade.
    #[test]
    fn a_daemon_of_another_version_is_told_beside_the_status() {
        assert_eq!(skew(env!("CARGO_PKG_VERSION")), None);
        let told = skew("0.0.9").unwrap();
        assert!(told.contains("0.0.9") && told.contains(env!("CARGO_PKG_VERSION")), "{told}");
        assert!(told.contains("procctl shutdown"), "{told}");
    }

    #[test]
    fn a_status_reads_line_by_line() {
        let status: StatusResult = serde_json::from_str(
            r#"{"versions":{"server":"0.1.0","protocol":[1],"state_format":1},"uptime_ms":65000,
            "containment":{"tier":"cgroup","guarantees":["a","b"]},
            "totals":{"running":2,"exited":1,"failed":0},"sessions":1,
            "restore":{"done":true,"records":3,"sessions":1,"lost":2,"damaged":0,"duration_ms":4},
            "degraded":["the log cannot be written"]}"#,
        )
        .unwrap();
        let expected = "\
version:     0.1.0
socket:      /run/x.sock
up for:      1m 5s
containment: cgroup: a; b
processes:   1 exited, 2 running
sessions:    1
restore:     done in 4ms, 3 records, 2 lost
degraded:    the log cannot be written
";
        assert_eq!(text(&status, "/run/x.sock", None), expected);
    }

    #[test]
    fn nothing_on_record_reads_as_none() {
        assert_eq!(totals(None), "none");
        assert_eq!(totals(Some(&Totals::from([("running".to_owned(), 0)]))), "none");
    }
}
