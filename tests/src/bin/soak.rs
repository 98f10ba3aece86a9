//! Everything at once for an hour: `cargo xtask soak` runs it, in a PID and mount namespace of its own.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a test that reports")]

use std::process::ExitCode;

use procd_tests::{binaries, soak};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_good = match words.as_slice() {
        ["inside", seconds, seed] => soak::run(seconds.parse().unwrap(), seed.parse().unwrap(), 0),
        [seconds, seed] => inside(seconds, seed),
        _ => {
            println!("soak SECONDS SEED");
            false
        }
    };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program again where nothing but its own can be hit.
fn inside(seconds: &str, seed: &str) -> bool {
    let mut command = binaries::command("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap()).args(["inside", seconds, seed]);
    command.status().unwrap().success()
}
