//! The measures, in the order in which they run.

mod drain;
mod endurance;
mod growth;
mod load;
mod memory;
mod read;
mod scale;
mod start;
mod stop;
mod wake;

use crate::report::Report;
use crate::trouble::Trouble;

/// One measure.
pub(crate) struct Measure {
    pub id: &'static str,
    pub what: &'static str,
    /// Whether it runs when nothing is named.
    is_default: bool,
    pub run: fn(&mut Report) -> Result<(), Trouble>,
}

const fn measure(
    id: &'static str,
    what: &'static str,
    run: fn(&mut Report) -> Result<(), Trouble>,
) -> Measure {
    Measure { id, what, is_default: true, run }
}

const ALL: &[Measure] = &[
    measure("p1", "start: request to handle", start::start),
    measure("p2", "turnaround of `true`: request to terminal reply", start::turnaround),
    measure("p3", "turnarounds a second, 16 clients", start::throughput),
    measure("p4", "bulk drain, blocks of 64 KiB, 4 GiB past the ceiling", drain::bulk),
    measure("p5", "lines of 80 bytes, 256 MiB", drain::lines),
    measure("p6a", "bulk drain of 16 GiB against 1 GiB", drain::growth),
    Measure { id: "p6b", what: "200 M one-byte writes", is_default: false, run: drain::bytes },
    measure("p7", "wake: child's write to the waiting client's read", wake::wake),
    measure("p8", "stop of a tree of 1, 10, 200", stop::trees),
    measure("p9", "SIGKILL of the daemon with 500 commands", stop::orphans),
    measure("p10", "memory of idle processes and clients", scale::memory),
    measure("p11", "wake-ups of an idle daemon in 20 s", scale::quiet),
    measure("p12", "restore of 10,000 ended processes", scale::restore),
    measure("p13", "64 MiB of spool over the socket", read::spool),
    measure("p14", "safe text", read::rendering),
    measure("p15", "calls under load", load::control),
    Measure { id: "p16", what: "a million lives", is_default: false, run: endurance::soak },
    Measure { id: "p17", what: "10,000 at once", is_default: false, run: endurance::crowd },
    Measure {
        id: "growth",
        what: "calls beside what is idle or retained",
        is_default: false,
        run: growth::growth,
    },
];

/// The measures of these names; without any those of a default run.
/// # Errors
/// A name that is none.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Measure>, Trouble> {
    if names.is_empty() {
        return Ok(ALL.iter().filter(|measure| measure.is_default).collect());
    }
    let find = |name: &String| {
        let found = ALL.iter().find(|measure| measure.id.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|measure| measure.id).collect();
            Trouble::odd(format!("`{name}` is no measure; there are {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

/// A colourful build log of about so many bytes.
pub(crate) fn build_log(bytes: usize) -> Vec<u8> {
    let mut log = Vec::with_capacity(bytes + 128);
    let mut number = 0;
    while log.len() < bytes {
        number += 1;
        let line = format!(
            "\u{1b}[1m\u{1b}[32m   Compiling\u{1b}[0m crate-{number} v1.{}.0\r\n\
             \u{1b}[33mwarning\u{1b}[0m: unused variable `straße`\n  --> src/lib.rs:{number}:5\n",
            number % 17
        );
        log.extend_from_slice(line.as_bytes());
    }
    log.truncate(bytes);
    log
}

/// Bytes without any order, the same each time.
pub(crate) fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}
