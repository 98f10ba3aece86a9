//! `procctl top`: what running processes use, live on the full screen, with graphs of the last
//! moments; one can be stopped from there.
//!
//! The picture is pure text made of what was seen (`picture`); this file looks, draws and listens.

mod picture;

use std::collections::HashMap;

use procd_protocol::ProcessId;
use procd_protocol::v1::{StatusResult, StopMode};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::picture::{Picture, Pressed, Question};
use super::usage::{Look, Use};
use crate::arguments::{Role, SortBy, Top};
use crate::exit::CtlError;
use crate::link::{Link, Links, StartDaemon};
use crate::print;
use crate::screen::{self, Raw};

/// Moments that graphs show.
const HISTORY: usize = 120;
/// The other screen, and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
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
        Some(count) => view.print(top, count).await?,
        None if screen::is_interactive() => view.live(top).await?,
        None => view.print(top, 1).await?,
    }
    Ok(0)
}

/// What is shown, and what was seen.
struct View {
    link: Link,
    before: Option<Look>,
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

impl View {
    fn new(link: Link, sort: SortBy) -> Self {
        Self { link, before: None, picture: Picture::new(sort), graphs: Graphs::default() }
    }

    /// Looks again.
    async fn look(&mut self) -> Result<StatusResult, CtlError> {
        let look = Look::take(&self.link).await?;
        let uses = look.since(self.before.as_ref());
        // Rates are differences: the first look has none.
        if self.before.is_some() {
            self.graphs.take(&uses);
        }
        self.picture.take(uses, look.left_out);
        self.before = Some(look);
        self.link.status().await
    }

    /// One picture after the other, as text.
    async fn print(&mut self, top: &Top, count: u32) -> Result<(), CtlError> {
        let mut status = self.look().await?;
        for _ in 0..count {
            tokio::time::sleep(top.every).await;
            status = self.look().await?;
            let columns = print::columns().unwrap_or(usize::from(SIZE.1));
            let lines = self.picture.lines(&status, &self.graphs, columns, usize::MAX);
            print::data(format!("{}\n", lines.join("\n")).as_bytes())?;
        }
        drop(status);
        Ok(())
    }

    async fn live(&mut self, top: &Top) -> Result<(), CtlError> {
        let mut resized = signal(SignalKind::window_change()).map_err(|source| CtlError::Io {
            what: "cannot take over signals".to_owned(),
            source,
        })?;
        let _raw = Raw::take(LEAVE)?;
        print::data(ENTER.as_bytes())?;
        let mut typed = screen::typed();
        let mut ticks = interval(top.every.max(std::time::Duration::from_millis(50)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (told, mut answers) = mpsc::channel(16);
        let mut status = self.look().await?;
        loop {
            self.draw(&status)?;
            tokio::select! {
                _ = ticks.tick() => status = self.look().await?,
                _ = resized.recv() => {}
                Some(answer) = answers.recv() => self.picture.say(answer),
                keys = typed.recv() => {
                    let Some(keys) = keys else { return Ok(()) };
                    for key in picture::keys(&keys) {
                        match self.picture.press(key) {
                            Pressed::Quit => return Ok(()),
                            Pressed::Nothing => {}
                            Pressed::Stop(question) => self.stop(question, told.clone()),
                        }
                    }
                }
            }
        }
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

    fn draw(&mut self, status: &StatusResult) -> Result<(), CtlError> {
        let (rows, columns) = print::terminal_size().unwrap_or(SIZE);
        let (rows, columns) = (usize::from(rows), usize::from(columns));
        let lines = self.picture.lines(status, &self.graphs, columns, rows);
        let mut text = String::from("\u{1b}[H");
        for (number, line) in lines.iter().enumerate() {
            let end = if number + 1 < lines.len() { "\r\n" } else { "" };
            text.push_str(&format!("{line}\u{1b}[K{end}"));
        }
        text.push_str("\u{1b}[J");
        print::data(text.as_bytes())
    }
}
