//! Lines as text and as JSON.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::trouble::{Tried, Trouble};

/// One line of the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    /// The measure, and which of its cases.
    pub id: String,
    /// The floor, in the unit of `id`'s text; absent where there is none.
    pub floor: Option<f64>,
    pub median: f64,
    pub p99: Option<f64>,
    /// Median over floor; without a floor the median itself.
    pub ratio: f64,
    /// The target in words.
    pub target: String,
    pub met: bool,
    /// The unit of floor, median and p99.
    pub unit: String,
    /// What belongs to the figure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How a ratio is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Told, not judged.
    Told,
}

impl Target {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(bound) => ratio <= bound,
            Self::AtLeast(bound) => ratio >= bound,
            Self::Told => true,
        }
    }

    fn words(self, has_floor: bool, unit: &str) -> String {
        let unit = if has_floor { "x".to_owned() } else { format!(" {unit}") };
        match self {
            Self::AtMost(bound) => format!("<= {bound}{unit}"),
            Self::AtLeast(bound) => format!(">= {bound}{unit}"),
            Self::Told => "reported".to_owned(),
        }
    }
}

impl Line {
    /// A figure beside its floor.
    pub(crate) fn beside(id: &str, unit: &str, floor: f64, median: f64, target: Target) -> Self {
        let ratio = if floor > 0.0 { median / floor } else { f64::INFINITY };
        Self {
            id: id.to_owned(),
            floor: Some(floor),
            median,
            p99: None,
            ratio,
            target: target.words(true, unit),
            met: target.is_met(ratio),
            unit: unit.to_owned(),
            note: String::new(),
        }
    }

    /// A figure that stands alone.
    pub(crate) fn alone(id: &str, unit: &str, median: f64, target: Target) -> Self {
        Self {
            id: id.to_owned(),
            floor: None,
            median,
            p99: None,
            ratio: median,
            target: target.words(false, unit),
            met: target.is_met(median),
            unit: unit.to_owned(),
            note: String::new(),
        }
    }

    pub(crate) const fn p99(mut self, p99: f64) -> Self {
        self.p99 = Some(p99);
        self
    }

    /// What it is over the same without load; the target stays on the figure itself.
    pub(crate) fn over(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self.ratio = if floor > 0.0 { self.median / floor } else { f64::INFINITY };
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// An earlier report.
#[derive(Debug)]
pub(crate) struct Earlier(HashMap<String, f64>);

#[derive(Deserialize)]
struct Measures {
    measures: Vec<Line>,
}

impl Earlier {
    /// # Errors
    /// The file cannot be read, or is no report.
    pub(crate) fn read(path: &Path) -> Result<Self, Trouble> {
        let text = fs::read(path).tried(&format!("read `{}`", path.display()))?;
        let measures: Measures = serde_json::from_slice(&text)
            .map_err(|error| Trouble::odd(format!("`{}`: {error}", path.display())))?;
        Ok(Self(measures.measures.into_iter().map(|line| (line.id, line.ratio)).collect()))
    }
}

/// Every line so far. Text is printed as it comes, JSON at the end.
#[derive(Debug)]
pub(crate) struct Report {
    is_json: bool,
    earlier: Option<Earlier>,
    lines: Vec<Line>,
    count: Option<u64>,
}

impl Report {
    pub(crate) fn new(is_json: bool, earlier: Option<Earlier>) -> Self {
        let report = Self { is_json, earlier, lines: Vec::new(), count: None };
        let columns = ["measure", "floor", "median", "p99", "unit", "ratio", "target"];
        let [a, b, c, d, e, f, g] = columns;
        report.text(&format!("{a:<24}{b:>11}{c:>11}{d:>11} {e:<6}{f:>9}  {g:<12} met"));
        report
    }

    /// How many of what is counted, in place of the measure's own number.
    pub(crate) const fn counting(mut self, count: Option<u64>) -> Self {
        self.count = count;
        self
    }

    pub(crate) const fn count(&self) -> Option<u64> {
        self.count
    }

    /// What comes now.
    pub(crate) fn begin(&self, id: &str, what: &str) {
        self.text(&format!("# {id}: {what}"));
    }

    /// What was set, or seen on the way.
    pub(crate) fn remark(&self, text: &str) {
        self.text(&format!("#   {text}"));
    }

    pub(crate) fn add(&mut self, line: Line) {
        let floor = line.floor.map_or_else(|| "-".to_owned(), figure);
        let p99 = line.p99.map_or_else(|| "-".to_owned(), figure);
        let met = if line.met { "yes" } else { "NO" };
        let before = self.earlier.as_ref().and_then(|earlier| earlier.0.get(&line.id));
        let before = before.map(|before| format!("  (before: {})", figure(*before)));
        let note = if line.note.is_empty() { String::new() } else { format!("  {}", line.note) };
        self.text(&format!(
            "{:<24}{floor:>11}{:>11}{p99:>11} {:<6}{:>9}  {:<12} {met}{}{note}",
            line.id,
            figure(line.median),
            line.unit,
            figure(line.ratio),
            line.target,
            before.unwrap_or_default(),
        ));
        self.lines.push(line);
    }

    /// A measure that could not run.
    pub(crate) fn broken(&mut self, id: &str, why: &str) {
        let mut line = Line::alone(id, "-", 0.0, Target::Told).note(why);
        line.met = false;
        self.add(line);
    }

    /// # Errors
    /// The lines cannot be written as JSON.
    pub(crate) fn finish(self) -> Result<(), Trouble> {
        let met = self.lines.iter().filter(|line| line.met).count();
        if self.is_json {
            let object = serde_json::json!({ "measures": self.lines });
            say(&object.to_string());
        } else {
            let missed = self.lines.iter().filter(|line| !line.met).map(|line| line.id.as_str());
            let missed: Vec<_> = missed.collect();
            let missed = if missed.is_empty() { "none".to_owned() } else { missed.join(", ") };
            say(&format!("met: {met} of {}; missed: {missed}", self.lines.len()));
        }
        Ok(())
    }

    fn text(&self, text: &str) {
        if !self.is_json {
            say(text);
        }
    }
}

/// A figure with as many digits as it is worth.
fn figure(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// One line on stdout. Nobody to read it is no failure.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
