//! `procctl top`: what running processes use, live on the full screen, with graphs of the last
//! moments; one can be stopped from there.
//!
//! The picture is pure text made of what was seen (`picture`); this file looks, draws and listens.

mod picture;

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use procd_protocol::ProcessId;
use procd_protocol::v1::{StatusResult, StopMode};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::picture::{Picture, Pressed, Question};
use super::usage::{Look, Use};
use crate::arguments::{Role, SortBy, Top};
use crate::exit::CtlError;
use crate::link::{Link, Links, StartDaemon};
use crate::print;
use crate::screen::{self, Ends, Raw};

/// Moments that graphs show.
const HISTORY: usize = 120;
/// The other screen, and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// Between two looks, at least.
const EVERY_MIN: Duration = Duration::from_millis(50);
/// Answers to stops that wait to be shown.
const ANSWERS_AHEAD_MAX: usize = 16;
/// A picture that nothing gives a size.
const SIZE: (u16, u16) = (24, 80);

/// Shows it until `q` is pressed, or so many pictures were shown.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn top(links: &Links, top: &Top) -> Result<u8, CtlError> {
    let wants_own = top.own || links.role() == Role::Owner;
    let link = if wants_own {
        links.owner(StartDaemon::IfUsed).await?
    } else {
        Some(links.operator(StartDaemon::IfUsed).await?)
    };
    let Some(link) = link else {
        return Err(CtlError::usage("this user never started anything", "leave out --own"));
    };
    let mut view = View::new(link, top.sort);
    match top.pictures {
        None if screen::is_interactive() => return view.live(top).await,
        pictures => view.print(top, pictures.unwrap_or(1)).await?,
    }
    Ok(0)
}

/// What is shown, and what was seen.
struct View {
    link: Link,
    before: Option<Look>,
    status: Option<StatusResult>,
    picture: Picture,
    graphs: Graphs,
}

/// The last moments: of all, and of each process.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(crate) cpu: Vec<f64>,
    pub(crate) memory: Vec<f64>,
    pub(crate) output: Vec<f64>,
    pub(crate) of_process: HashMap<ProcessId, Vec<f64>>,
}

impl Graphs {
    fn take(&mut self, uses: &[Use]) {
        let sum = |of: &dyn Fn(&Use) -> f64| uses.iter().map(of).sum();
        push(&mut self.cpu, sum(&|used| used.cpu));
        push(&mut self.memory, sum(&|used| super::usage::as_f64(used.seen.memory_bytes)));
        push(&mut self.output, sum(&|used| used.output));
        let live: Vec<ProcessId> = uses.iter().map(|used| used.seen.record.process_id).collect();
        self.of_process.retain(|process_id, _| live.contains(process_id));
        for used in uses {
            push(self.of_process.entry(used.seen.record.process_id).or_default(), used.cpu);
        }
    }
}

fn push(values: &mut Vec<f64>, value: f64) {
    if values.len() == HISTORY {
        values.remove(0);
    }
    values.push(value);
}

/// One look at everything.
async fn seen(link: Link) -> Result<(Look, StatusResult), CtlError> {
    let look = Look::take(&link).await?;
    let status = link.status().await?;
    Ok((look, status))
}

impl View {
    fn new(link: Link, sort: SortBy) -> Self {
        let (picture, graphs) = (Picture::new(sort), Graphs::default());
        Self { link, before: None, status: None, picture, graphs }
    }

    fn take(&mut self, (look, status): (Look, StatusResult)) {
        let uses = look.since(self.before.as_ref());
        // Rates are differences: the first look has none.
        if self.before.is_some() {
            self.graphs.take(&uses);
        }
        self.picture.take(uses, look.left_out, Timestamp::now());
        self.before = Some(look);
        self.status = Some(status);
    }

    /// One picture after the other, as text.
    async fn print(&mut self, top: &Top, count: u32) -> Result<(), CtlError> {
        self.take(seen(self.link.clone()).await?);
        for _ in 0..count {
            tokio::time::sleep(top.every).await;
            self.take(seen(self.link.clone()).await?);
            let columns = print::columns().unwrap_or(usize::from(SIZE.1));
            let lines = self.lines(columns, usize::MAX);
            print::data(format!("{}\n", lines.join("\n")).as_bytes())?;
        }
        Ok(())
    }

    fn lines(&self, columns: usize, rows: usize) -> Vec<String> {
        let status = self.status.as_ref();
        status
            .map_or_else(Vec::new, |status| self.picture.lines(status, &self.graphs, columns, rows))
    }

    /// The full screen, until it is left: the exit code. A daemon that takes its time holds up
    /// neither keys nor signals.
    async fn live(&mut self, top: &Top) -> Result<u8, CtlError> {
        let (mut resized, mut ends) = (screen::resized()?, Ends::install()?);
        let _raw = Raw::take(LEAVE)?;
        print::data(ENTER.as_bytes())?;
        let mut typed = screen::typed();
        let mut ticks = interval(top.every.max(EVERY_MIN));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (told, mut answers) = mpsc::channel(ANSWERS_AHEAD_MAX);
        let mut looking = Box::pin(seen(self.link.clone()));
        let mut is_looking = true;
        loop {
            self.draw()?;
            tokio::select! {
                look = &mut looking, if is_looking => {
                    self.take(look?);
                    is_looking = false;
                }
                _ = ticks.tick(), if !is_looking => {
                    looking.set(seen(self.link.clone()));
                    is_looking = true;
                }
                _ = resized.recv() => {}
                code = ends.next() => return Ok(code),
                Some(answer) = answers.recv() => self.picture.say(answer),
                keys = typed.recv() => match keys {
                    Some(keys) if !self.press(&keys, &told) => {}
                    Some(_) | None => return Ok(0),
                },
            }
        }
    }

    /// Does what keys ask for; whether that is to leave.
    fn press(&mut self, bytes: &[u8], told: &mpsc::Sender<String>) -> bool {
        for key in picture::keys(bytes) {
            match self.picture.press(key) {
                Pressed::Quit => return true,
                Pressed::Nothing => {}
                Pressed::Stop(question) => self.stop(question, told.clone()),
            }
        }
        false
    }

    /// Stops one beside the view; what became of it is said there.
    fn stop(&mut self, question: Question, told: mpsc::Sender<String>) {
        let Question { process_id, name, mode } = question;
        let process = self.link.process(process_id);
        let word = if mode == StopMode::Kill { "killing" } else { "stopping" };
        self.picture.say(format!("{word} {name} ..."));
        tokio::spawn(async move {
            let begun = Instant::now();
            let said = match process.stop_with(mode, None).await {
                Ok(result) => format!(
                    "{name} is {}, after {:.1} s",
                    result.state.as_str(),
                    begun.elapsed().as_secs_f64()
                ),
                Err(error) => CtlError::from(error).to_string(),
            };
            // The view may be over.
            told.send(said).await.ok();
        });
    }

    fn draw(&self) -> Result<(), CtlError> {
        let (rows, columns) = print::terminal_size().unwrap_or(SIZE);
        let (rows, columns) = (usize::from(rows), usize::from(columns));
        let lines = self.lines(columns, rows);
        let mut text = String::from("\u{1b}[H");
        for (number, line) in lines.iter().enumerate() {
            let end = if number + 1 < lines.len() { "\r\n" } else { "" };
            text.push_str(&format!("{line}\u{1b}[K{end}"));
        }
        text.push_str("\u{1b}[J");
        print::data(text.as_bytes())
    }
}
