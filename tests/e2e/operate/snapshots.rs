//! What a person sees: `ps`, `top`, `status` and `doctor` as they are at 80 and 160 columns, and
//! every command's answer as text and as JSON, with its exit code.

use procd_tests::{
    Daemon, Finished, Setup, Tier,
    run::{self, LONG, ctl, procctl},
    wait,
};
use serde_json::json;

use super::{
    fits,
    golden::{masked_columns, masked_entries, masked_words, same_as_kept, shape},
    wide,
};

/// Tries to look while every age has one digit.
const TRIES_MAX: usize = 20;

/// Two that run, three that ended, of two sessions, some with more to say than there is room for.
fn scene(daemon: &Daemon) {
    let mut owner = daemon.owner_with(json!({"label": "an agent"}));
    let long = "a label of quite some length, which a narrow table has no room for";
    owner.start(&["sh", "-c", "exit 3"], json!({"label": "tests"}));
    owner.start(&["echo", "built"], json!({"label": "build"}));
    let runs = |label: &str| json!({"label": label, "background": true});
    let words = ["sleep", "600", "601", "602", "603", "604", "605", "606", "607", "608", "609"];
    owner.start(&words, runs(long));
    let stopped = owner.start(&["sleep", "600"], json!({"background": true}));
    owner.wire.ok("process/stop", json!({"process_id": stopped["process_id"], "mode": "kill"}));
    let mut other = daemon.owner_with(json!({"label": "another agent"}));
    other.start(&["sleep", "600"], runs("web"));
}

/// Whether every age has one digit and is in seconds, so that a column is as wide as the next time.
fn is_even(text: &str) -> bool {
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("HANDLE ")).collect();
    let Some(header) = rows.first().map(|header| header.replace('↓', " ")) else { return false };
    let from = header[..header.find("AGE ").unwrap()].chars().count();
    let rows = rows[1..].iter().filter(|line| !line.starts_with("q quit"));
    rows.map(|line| line.chars().skip(from).take_while(|one| *one != ' ').collect::<String>())
        .all(|age| age.len() == 2 && age.ends_with('s'))
}

/// What `words` show at that width, seen while the ages are even.
fn even(words: &[&str], columns: u16) -> String {
    let look = |_| {
        let daemon = Setup::new(Tier::Shim).start();
        scene(&daemon);
        let deadline = wait::Deadline::after(std::time::Duration::from_secs(8));
        let mut text = String::new();
        while deadline.left().is_some() && !is_even(&text) {
            text = wide(&daemon, columns, words).success();
        }
        is_even(&text).then_some(text)
    };
    (0..TRIES_MAX).find_map(look).expect("a look at what is younger than ten seconds")
}

#[test]
fn ps_at_80_and_160_columns() {
    for columns in [80, 160] {
        let text = even(&["ps", "-a"], columns);
        fits(&text, columns.into());
        let masked = masked_columns(&text, &["HANDLE", "SESSION", "AGE"]);
        same_as_kept(&format!("screens/ps-{columns}.txt"), &masked);
    }
}

#[test]
fn top_at_80_and_160_columns() {
    for columns in [80, 160] {
        let text = even(&["top", "-n", "1", "--every", "0.1", "--sort", "age"], columns);
        fits(&text, columns.into());
        let masked = masked_columns(&text, &["HANDLE", "CPU", "MEMORY", "AGE"]);
        // Above the table: digits and graphs are the machine's.
        let mask = |one: char| match one {
            '0'..='9' => '#',
            '▁'..='█' => ' ',
            other => other,
        };
        let lines = masked.lines().enumerate().map(|(number, line)| match number {
            0 => format!("{} up # {}", &line[..11], line.split_once("s  ").unwrap().1),
            1..=3 => line.chars().map(mask).collect::<String>().trim_end().to_owned(),
            _ => line.to_owned(),
        });
        let masked: String = lines.map(|line| format!("{line}\n")).collect();
        same_as_kept(&format!("screens/top-{columns}.txt"), &masked);
    }
}

#[test]
fn status_and_doctor_at_80_and_160_columns() {
    let daemon = Setup::new(Tier::Shim).limit("running_daemon_max = 4").start();
    scene(&daemon);
    for columns in [80, 160] {
        let status = wide(&daemon, columns, &["status"]).success();
        fits(&status, columns.into());
        let masked =
            masked_entries(&status, &["socket", "up for", "containment", "pid", "restore"]);
        same_as_kept(&format!("screens/status-{columns}.txt"), &masked);
        let doctor = wide(&daemon, columns, &["doctor"]).text();
        fits(&doctor, columns.into());
        let masked = masked_entries(&doctor, &["socket", "state folder", "lingering"]);
        same_as_kept(&format!("screens/doctor-{columns}.txt"), &masked);
    }
}

/// The commands of an operator's day.
struct Day {
    daemon: Daemon,
    known: Vec<(String, &'static str)>,
}

impl Day {
    fn ask(&self, words: &[&str]) -> Finished {
        let mut command = procctl(&self.daemon, words);
        command.env("COLUMNS", "160");
        run::finish(command, b"typed\n", LONG)
    }

    /// Holds what a command answers against what is kept under its name, as text and as JSON.
    fn holds(&self, name: &str, words: &[&str]) {
        self.holds_both(name, words, words);
    }

    /// The same for one that changes something, so that its two forms act on two things.
    fn holds_both(&self, name: &str, as_text: &[&str], as_json: &[&str]) {
        let text = self.ask(as_text);
        let shape = self.shape(&text, as_json);
        same_as_kept(&format!("answers/{name}.txt"), &format!("{}\n{shape}", self.shown(&text)));
    }

    /// The same for one whose text is the machine's, or looked at elsewhere.
    fn holds_document(&self, name: &str, words: &[&str]) {
        let shape = self.shape(&self.ask(words), words);
        same_as_kept(&format!("answers/{name}.txt"), &shape);
    }

    fn shape(&self, text: &Finished, words: &[&str]) -> String {
        let document = self.ask(&[&["--format", "json"], words].concat());
        assert_eq!(text.code, document.code, "{words:?}: {text:?} {document:?}");
        if document.stdout.is_empty() {
            return "no document\n".to_owned();
        }
        shape(&serde_json::from_slice(&document.stdout).expect("JSON"))
    }

    /// The same for one that has no document.
    fn holds_text(&self, name: &str, words: &[&str]) {
        same_as_kept(&format!("answers/{name}.txt"), &self.shown(&self.ask(words)));
    }

    fn shown(&self, finished: &Finished) -> String {
        let said = String::from_utf8_lossy(&finished.stderr).into_owned();
        let parts =
            [finished.text(), said].map(|text| masked_words(&self.daemon, &self.known, &text));
        format!("exit code {}\n{}", finished.code.unwrap(), parts.concat())
    }

    fn start(&mut self, name: &'static str, words: &[&str]) {
        let words = [&["start", "--label", name, "--"], words].concat();
        let handle = ctl(&self.daemon, &words).success().trim().to_owned();
        self.known.push((handle, name));
    }

    fn until_sealed(&self, name: &str) {
        wait::until_true("it is sealed", wait::STEP, || {
            super::json_of(&self.daemon, &["inspect", name])["record"]["spool_state"] == "sealed"
        });
    }
}

#[test]
fn every_command_answers_as_kept() {
    let daemon = Setup::new(Tier::Shim).limit("running_daemon_max = 8").start();
    let mut day = Day { daemon, known: Vec::new() };
    day.start("FIRST", &["sh", "-c", "echo one; echo two; exit 3"]);
    day.until_sealed("FIRST");
    let record = super::json_of(&day.daemon, &["inspect", "FIRST"]);
    let session = record["record"]["session_id"].as_str().unwrap().to_owned();
    day.known.push((session, "SESSION"));
    day.holds_document("inspect", &["inspect", "FIRST"]);
    day.holds("logs", &["logs", "FIRST"]);
    day.holds("events", &["events"]);
    day.holds("wait", &["wait", "FIRST"]);
    day.holds_text("attach", &["attach", "--no-stdin", "FIRST"]);
    day.holds_both("export", &["export", "-o", "first", "FIRST"], &["export", "-o", "f", "FIRST"]);
    day.holds("pin", &["pin", "FIRST"]);
    day.holds("unpin", &["unpin", "FIRST"]);
    day.start("READER", &["cat"]);
    day.holds("input", &["input", "READER", "words"]);
    ctl(&day.daemon, &["wait", "--match", "wordswords", "READER"]).success();
    day.holds("wait-in-vain", &["wait", "--timeout", "0.1", "READER"]);
    day.holds("kill", &["kill", "-s", "CONT", "READER"]);
    day.start("OTHER", &["sleep", "600"]);
    day.holds("ps", &["ps"]);
    day.holds("stats", &["stats", "--during", "0.1"]);
    day.holds_text("top", &["top", "-n", "1", "--every", "0.1", "--sort", "age"]);
    day.holds_both("stop", &["stop", "-t", "0", "READER"], &["stop", "--mode", "kill", "OTHER"]);
    day.until_sealed("READER");
    day.until_sealed("OTHER");
    day.holds("sessions", &["sessions"]);
    day.holds_document("status", &["status"]);
    day.holds_document("config", &["config"]);
    day.holds_document("doctor", &["doctor"]);
    day.holds("reload", &["reload"]);
    day.holds("raw", &["raw", "process/inspect", "{\"process_id\": \"AAAAAAAAAAAAAAAAAAAAAA\"}"]);
    day.holds_both("rm", &["rm", "READER"], &["rm", "OTHER"]);
    day.holds("prune", &["prune"]);
    day.holds("ps-of-nothing", &["ps"]);
    day.holds_text("run", &["run", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    day.holds("start", &["start", "--label", "begun", "--", "sleep", "600"]);
    day.holds_text("shutdown", &["shutdown"]);
    day.daemon.end_however();
    day.holds("status-of-nothing", &["status"]);
}
