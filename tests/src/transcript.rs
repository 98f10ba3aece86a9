//! Transcripts of the protocol: what is sent and what has to come, as `protocol/PROTOCOL.md` has it.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    ops::BitXorAssign as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use crate::{daemon::Daemon, wire::Wire};

/// Where they are, below the folder of the protocol.
const FOLDER: &str = "transcripts";

/// One transcript.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// Its file.
    pub path: PathBuf,
    /// Its lines.
    pub lines: Vec<Value>,
}

impl Transcript {
    /// Every transcript in the folder of this name; the empty one has those of this version.
    /// # Panics
    /// When one cannot be read.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn all(golden: &str) -> Vec<Self> {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol").join(FOLDER).join(golden);
        let entries = fs::read_dir(folder).expect("transcripts");
        let paths = entries.map(|entry| entry.expect("a file").path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).expect("a transcript");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
        Self { lines: lines.collect(), path }
    }

    /// What its first line says of the daemon: settings and limits.
    #[must_use]
    pub fn setup(&self, name: &str) -> &str {
        self.lines.first().and_then(|line| line[name].as_str()).unwrap_or_default()
    }
}

/// A transcript being played to a daemon.
#[derive(Debug)]
pub struct Play<'a> {
    daemon: &'a mut Daemon,
    wires: BTreeMap<String, Wire>,
    waiting: BTreeMap<String, VecDeque<Value>>,
    names: BTreeMap<String, Value>,
}

impl<'a> Play<'a> {
    /// Ready to play to this daemon.
    pub fn new(daemon: &'a mut Daemon) -> Self {
        let names = BTreeMap::from([("$cwd".to_owned(), json!(daemon.cwd()))]);
        Self { daemon, wires: BTreeMap::new(), waiting: BTreeMap::new(), names }
    }

    /// Plays all lines; gives them back with what was sent and what came.
    /// # Panics
    /// At the first line that does not hold.
    #[must_use]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn run(mut self, transcript: &Transcript) -> Vec<Value> {
        let mut played = Vec::new();
        for (index, line) in transcript.lines.iter().enumerate() {
            let step = self.step(line);
            played.push(step.unwrap_or_else(|why| {
                panic!("{}:{}: {why}\n{line}", transcript.path.display(), index + 1)
            }));
        }
        played
    }

    fn step(&mut self, line: &Value) -> Result<Value, String> {
        let mut played = line.clone();
        let on = line["on"].as_str().unwrap_or("a").to_owned();
        if let Some(frame) = line.get("send") {
            let frame = self.filled(frame)?;
            self.wire(&on)?.object(&frame);
            played["sent"] = frame;
        } else if let Some(text) = line["send_text"].as_str() {
            self.wire(&on)?.frame(text.as_bytes());
        } else if let Some(length) = line["send_length"].as_u64() {
            let length = u32::try_from(length).map_err(|error| error.to_string())?;
            self.wire(&on)?.raw(&length.to_be_bytes());
        } else if let Some(pattern) = line.get("expect") {
            played["came"] = self.expect(&on, pattern)?;
        } else if line["closed"] == true {
            self.wire(&on)?.is_closed();
            self.wires.remove(&on);
        } else if let Some(text) = line["config"].as_str() {
            let path = self.daemon.path().join("config.toml");
            fs::write(path, text).map_err(|error| error.to_string())?;
        } else if line["daemon"] == "killed" {
            self.daemon.kill();
            self.wires.clear();
            self.daemon.restart();
        } else if line["daemon"] == "damaged" {
            self.wires.clear();
            self.damage(line)?;
        } else if line["daemon"] == "ended" {
            self.wires.clear();
            self.daemon.ended();
        } else if line.get("about").is_none() {
            return Err("is no step".to_owned());
        }
        Ok(played)
    }

    /// Ends the daemon, flips a bit in the middle of a file of one process, and starts it again. With
    /// a record goes the log that has it too.
    fn damage(&mut self, line: &Value) -> Result<(), String> {
        let filled = self.filled(line)?;
        let (session, process) = (&filled["session_id"], &filled["process_id"]);
        let (Some(session), Some(process)) = (session.as_str(), process.as_str()) else {
            return Err("names no process".to_owned());
        };
        let session = self.daemon.state().join("sessions").join(session);
        let file = match line["what"].as_str() {
            Some("output") => session.join("spools").join(process).join("0.seg"),
            Some("record") => session.join("manifests").join(format!("{process}.json")),
            Some(_) | None => return Err("names no file".to_owned()),
        };
        self.daemon.terminate();
        self.daemon.ended();
        if line["what"] == "record" {
            // The log would mend it.
            fs::remove_dir_all(self.daemon.state().join("commit"))
                .map_err(|error| error.to_string())?;
        }
        let mut bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let middle = bytes.len() / 2;
        bytes.get_mut(middle).ok_or("an empty file")?.bitxor_assign(0x10);
        fs::write(file, bytes).map_err(|error| error.to_string())?;
        self.daemon.restart();
        Ok(())
    }

    fn wire(&mut self, on: &str) -> Result<&mut Wire, String> {
        if !self.wires.contains_key(on) {
            let wire = Wire::bare(&self.daemon.socket()).map_err(|error| error.to_string())?;
            self.wires.insert(on.to_owned(), wire);
        }
        self.wires.get_mut(on).ok_or_else(|| "no connection".to_owned())
    }

    /// The first frame that matches, among those that came already and those that come. A reply
    /// to the same request that does not match is an error at once.
    fn expect(&mut self, on: &str, pattern: &Value) -> Result<Value, String> {
        let waiting = self.waiting.entry(on.to_owned()).or_default();
        for at in 0..waiting.len() {
            let mut names = self.names.clone();
            if matches(pattern, &waiting[at], &mut names).is_ok() {
                self.names = names;
                return waiting.remove(at).ok_or_else(String::new);
            }
        }
        loop {
            let came = self.wire(on)?.next_object().ok_or("the daemon has closed it")?;
            let mut names = self.names.clone();
            match matches(pattern, &came, &mut names) {
                Ok(()) => {
                    self.names = names;
                    return Ok(came);
                }
                Err(why) if came.get("id").is_some() && came["id"] == pattern["id"] => {
                    return Err(format!("{why}: {came}"));
                }
                Err(_) => self.waiting.entry(on.to_owned()).or_default().push_back(came),
            }
        }
    }

    /// The frame with what its names stand for.
    fn filled(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(name) if name.starts_with('$') && !name.starts_with("$/") => {
                self.names.get(name).cloned().ok_or_else(|| format!("{name} is not known yet"))?
            }
            Value::Array(items) => {
                items.iter().map(|item| self.filled(item)).collect::<Result<_, _>>()?
            }
            Value::Object(fields) => {
                let filled =
                    fields.iter().map(|(key, value)| Ok((key.clone(), self.filled(value)?)));
                Value::Object(filled.collect::<Result<Map<_, _>, String>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        })
    }
}

/// Whether what came is what was expected: fields beyond the expected ones are fine. A name seen
/// for the first time stands for what it meets; `$_` stands for anything.
fn matches(
    pattern: &Value,
    came: &Value,
    names: &mut BTreeMap<String, Value>,
) -> Result<(), String> {
    match (pattern, came) {
        (Value::String(name), _) if name == "$_" && !came.is_null() => Ok(()),
        (Value::String(name), _) if name.starts_with('$') && !came.is_null() => {
            let known = names.entry(name.clone()).or_insert_with(|| came.clone());
            if known == came { Ok(()) } else { Err(format!("{name} is {known}, not {came}")) }
        }
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().try_for_each(|(key, pattern)| {
                matches(pattern, &came[key], names).map_err(|why| format!("{key}: {why}"))
            })
        }
        (Value::Array(patterns), Value::Array(items)) if patterns.len() == items.len() => {
            patterns.iter().zip(items).try_for_each(|(pattern, item)| matches(pattern, item, names))
        }
        _ if pattern == came => Ok(()),
        _ => Err(format!("{came} is not {pattern}")),
    }
}
