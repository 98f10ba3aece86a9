//! The commands that the measures run, and the relay that is a floor.

use std::os::fd::BorrowedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io;

use crate::clock::monotonic_ns;
use crate::trouble::{Tried, Trouble};

/// The first argument that makes this program an actor.
pub(crate) const WORD: &str = "play";

/// Plays a part: `blocks SIZE BYTES`, `lines BYTES`, `bytes COUNT`, `ticks FIFO`, `relay`.
/// # Errors
/// A part that is none, or a stream that breaks.
pub(crate) fn play(words: &[String]) -> Result<(), Trouble> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let number = |word: &str| {
        word.parse::<usize>().map_err(|error| Trouble::odd(format!("`{word}`: {error}")))
    };
    match words.as_slice() {
        ["blocks", size, bytes] => write_over(&vec![b'x'; number(size)?], number(bytes)?),
        ["bytes", count] => write_over(b"b", number(count)?),
        ["lines", bytes] => {
            let mut line = [b'l'; 80];
            line[79] = b'\n';
            write_over(&line, number(bytes)?)
        }
        ["build", bytes] => {
            let log = crate::measure::build_log(64 * 1024);
            write_over(&log, number(bytes)?)
        }
        ["ticks", fifo] => tick(fifo),
        ["relay"] => relay(),
        _ => Err(Trouble::odd(format!("no such part: {words:?}"))),
    }
}

/// Writes `block` again and again until `bytes` are written, one system call each.
fn write_over(block: &[u8], bytes: usize) -> Result<(), Trouble> {
    let out = rustix::stdio::stdout();
    let mut left = bytes;
    while left > 0 {
        let mut part = block.get(..left.min(block.len())).unwrap_or_default();
        left -= part.len();
        while !part.is_empty() {
            let count = io::write(out, part).tried("write")?;
            part = part.get(count..).unwrap_or_default();
        }
    }
    Ok(())
}

/// For each byte read from a FIFO one line with the time just before it is written.
fn tick(fifo: &str) -> Result<(), Trouble> {
    use std::io::Read;
    let mut orders = std::fs::File::open(fifo).tried("open the orders")?;
    let mut order = [0; 1];
    while orders.read(&mut order).tried("read the orders")? > 0 {
        let line = format!("{}\n", monotonic_ns());
        io::write(rustix::stdio::stdout(), line.as_bytes()).tried("write")?;
    }
    Ok(())
}

/// The quickest relay there is: one thread, epoll, stdin to stdout.
fn relay() -> Result<(), Trouble> {
    let (from, to): (BorrowedFd<'_>, BorrowedFd<'_>) =
        (rustix::stdio::stdin(), rustix::stdio::stdout());
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC).tried("make an epoll")?;
    epoll::add(&ready, from, EventData::new_u64(0), EventFlags::IN).tried("watch stdin")?;
    let mut events = Vec::with_capacity(4);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        events.clear();
        epoll::wait(&ready, rustix::buffer::spare_capacity(&mut events), None).tried("wait")?;
        let count = io::read(from, &mut buffer[..]).tried("read")?;
        if count == 0 {
            return Ok(());
        }
        io::write(to, buffer.get(..count).unwrap_or_default()).tried("write")?;
    }
}
