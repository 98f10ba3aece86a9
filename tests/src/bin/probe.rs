//! The child of the tests: does one thing, exactly, and nothing a shell might do beside it.
#![forbid(unsafe_code)]

use std::{
    collections::HashMap,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use procd_tests::{pattern, wire::Wire};
use tokio::signal::unix::{SignalKind, signal};

type Outcome = Result<u8, Box<dyn std::error::Error>>;
type Words<'a> = &'a [String];

const USAGE: &str = "probe exit N | write N | write-err N | lines N | echo | echo-lines | fds | sleep SECONDS | ignore-term SECONDS \
    | detach SECONDS | leave SECONDS | tree DEPTH WIDTH SECONDS | forks | listen | environment | mixed N | tick MS \
    | activated COUNT PROGRAM | deeds FOLDER OTHER | burn | fill BYTES | children N | client SOCKET FILE | client-detached SOCKET FILE | hand-over SOCKET FILE | trace";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(writeln!(io::stderr(), "probe: {error}"));
            ExitCode::from(99)
        }
    }
}

fn run(words: Words<'_>) -> Outcome {
    let [name, words @ ..] = words else { return Err(USAGE.into()) };
    let deeds: HashMap<&str, fn(Words<'_>) -> Outcome> = HashMap::from([
        ("exit", exit as fn(Words<'_>) -> Outcome),
        ("write", write),
        ("write-err", write_err),
        ("lines", lines),
        ("echo", echo),
        ("echo-lines", echo_lines),
        ("fds", fds),
        ("sleep", sleep),
        ("ignore-term", ignore_term),
        ("detach", detach),
        ("detach-middle", detach_middle),
        ("leave", leave),
        ("tree", tree),
        ("forks", forks),
        ("listen", listen),
        ("environment", environment),
        ("mixed", mixed),
        ("tick", tick),
        ("deeds", deeds),
        ("burn", burn),
        ("fill", fill),
        ("children", children),
        ("trace", trace),
        ("trace-other", trace_other),
        ("client", client),
        ("client-detached", client_detached),
        ("hand-over", hand_over),
        ("activated", activated),
    ]);
    let deed = deeds.get(name.as_str()).ok_or(USAGE)?;
    deed(words)
}

fn word<T: std::str::FromStr>(words: Words<'_>, at: usize) -> Result<T, String> {
    words.get(at).and_then(|word| word.parse().ok()).ok_or_else(|| USAGE.to_owned())
}

/// Ends with the code.
fn exit(words: Words<'_>) -> Outcome {
    Ok(word(words, 0)?)
}

/// Writes N bytes of the pattern.
fn write(words: Words<'_>) -> Outcome {
    spill(&mut io::stdout().lock(), word(words, 0)?)
}

/// The same to stderr.
fn write_err(words: Words<'_>) -> Outcome {
    spill(&mut io::stderr().lock(), word(words, 0)?)
}

fn spill(to: &mut impl io::Write, total: u64) -> Outcome {
    const PIECE: u64 = 1 << 20;
    let mut at = 0;
    while at < total {
        let count = PIECE.min(total - at);
        to.write_all(&pattern::bytes(at, count))?;
        at += count;
    }
    to.flush()?;
    Ok(0)
}

/// Writes N numbered lines, one write each.
fn lines(words: Words<'_>) -> Outcome {
    for line in 0..word::<u64>(words, 0)? {
        writeln!(io::stdout(), "line {line}")?;
    }
    Ok(0)
}

/// Writes N bytes to each stream by turns, in short writes.
fn mixed(words: Words<'_>) -> Outcome {
    const PIECE: u64 = 100;
    let total = word::<u64>(words, 0)?;
    for at in (0..total).step_by(100) {
        let piece = pattern::bytes(at, PIECE.min(total - at));
        io::stdout().write_all(&piece)?;
        io::stdout().flush()?;
        io::stderr().write_all(&piece)?;
    }
    Ok(0)
}

/// Copies stdin to stdout until its end.
fn echo(_: Words<'_>) -> Outcome {
    io::copy(&mut io::stdin().lock(), &mut io::stdout().lock())?;
    io::stdout().flush()?;
    Ok(0)
}

/// Answers each line of stdin with one line; says so at its end.
fn echo_lines(_: Words<'_>) -> Outcome {
    for line in io::stdin().lock().lines() {
        writeln!(io::stdout(), "got {}", line?)?;
    }
    writeln!(io::stdout(), "end")?;
    Ok(0)
}

/// Lists its open descriptors by number.
fn fds(_: Words<'_>) -> Outcome {
    let names: Vec<_> =
        fs::read_dir("/proc/self/fd")?.flatten().map(|entry| entry.path()).collect();
    // The descriptor of the listing itself is gone by now.
    let mut open: Vec<_> = names.iter().filter(|path| fs::read_link(path).is_ok()).collect();
    open.sort();
    for path in open {
        writeln!(io::stdout(), "{}", path.file_name().unwrap_or_default().to_string_lossy())?;
    }
    Ok(0)
}

/// Becomes the program as a service manager would start it: its stdin as the first of so many sockets that are handed over.
#[expect(clippy::disallowed_methods, reason = "only becomes another program")]
fn activated(words: Words<'_>) -> Outcome {
    const FIRST: i32 = 3;
    let (count, program) = (word::<String>(words, 0)?, word::<String>(words, 1)?);
    // Whatever came with this number is in the way.
    nix::unistd::close(FIRST).ok();
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
    if socket.as_raw_fd() != FIRST {
        return Err("the number is taken".into());
    }
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty())?;
    let mut command = Command::new(program);
    command.env("LISTEN_FDS", count).env("LISTEN_PID", std::process::id().to_string());
    Err(command.exec().into())
}

/// Lives that long.
fn sleep(words: Words<'_>) -> Outcome {
    std::thread::park_timeout(Duration::from_secs(word(words, 0)?));
    Ok(0)
}

/// Lives that long, whatever SIGTERM, SIGINT and SIGHUP say; says when it is ready for them.
fn ignore_term(words: Words<'_>) -> Outcome {
    let seconds = word(words, 0)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = kinds.map(signal);
        writeln!(io::stdout(), "ready")?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        drop(signals);
        Ok(0)
    })
}

/// Leaves a process in a session of its own, without streams and in another folder, whose parent is gone: a double fork.
fn detach(words: Words<'_>) -> Outcome {
    again(&["detach-middle", &word::<String>(words, 0)?])?.wait()?;
    writeln!(io::stdout(), "detached")?;
    Ok(0)
}

fn detach_middle(words: Words<'_>) -> Outcome {
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    again(&["sleep", &word::<String>(words, 0)?])?;
    Ok(0)
}

/// Leaves a child that holds its streams, and ends.
fn leave(words: Words<'_>) -> Outcome {
    itself(&["sleep", &word::<String>(words, 0)?])?.spawn()?;
    writeln!(io::stdout(), "left")?;
    Ok(0)
}

/// A tree of processes of this depth and width, all of which live that long.
fn tree(words: Words<'_>) -> Outcome {
    let (depth, width, seconds) =
        (word::<u64>(words, 0)?, word::<u64>(words, 1)?, word::<u64>(words, 2)?);
    if depth > 0 {
        for _ in 0..width {
            itself(&["tree", &(depth - 1).to_string(), &width.to_string(), &seconds.to_string()])?
                .spawn()?;
        }
    }
    writeln!(io::stdout(), "member")?;
    std::thread::park_timeout(Duration::from_secs(seconds));
    Ok(0)
}

/// Starts a new sleeping child every few milliseconds, and ignores SIGTERM.
fn forks(_: Words<'_>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ignored = signal(SignalKind::terminate())?;
        writeln!(io::stdout(), "ready")?;
        for _ in 0..200 {
            again(&["ignore-term", "600"])?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_secs(600)).await;
        drop(ignored);
        Ok(0)
    })
}

/// Serves on a free port of 127.0.0.1: its first line of output is the port, then one line a request.
fn listen(_: Words<'_>) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    for stream in listener.incoming() {
        answer(stream?)?;
    }
    Ok(0)
}

fn answer(mut stream: TcpStream) -> Outcome {
    let mut request = String::new();
    BufReader::new(&mut stream).take(4096).read_line(&mut request)?;
    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n")?;
    writeln!(io::stdout(), "request {}", request.trim_end())?;
    Ok(0)
}

/// Writes its environment, a variable a line, sorted.
fn environment(_: Words<'_>) -> Outcome {
    let mut variables: Vec<_> = std::env::vars_os().collect();
    variables.sort();
    for (name, value) in variables {
        writeln!(io::stdout(), "{}={}", name.to_string_lossy(), value.to_string_lossy())?;
    }
    Ok(0)
}

/// Writes a numbered line every so many milliseconds.
fn tick(words: Words<'_>) -> Outcome {
    let pause = Duration::from_millis(word(words, 0)?);
    for count in 0_u64.. {
        writeln!(io::stdout(), "tick {count}")?;
        std::thread::park_timeout(pause);
    }
    Ok(0)
}

/// Tries everything that changes something below a folder, which holds `file`, `a`, `gone`, `m` and the folder `empty`, and
/// moves and links from it into the other one: a line each, with `ok` or the number of the error.
fn deeds(words: Words<'_>) -> Outcome {
    use std::os::unix::fs::OpenOptionsExt as _;
    const TRUNCATE: i32 = 0o1000;
    let at = |name: &str| word::<std::path::PathBuf>(words, 0).map(|folder| folder.join(name));
    let other = |name: &str| word::<std::path::PathBuf>(words, 1).map(|folder| folder.join(name));
    let open = |how: &mut fs::OpenOptions, path| how.open(path).map(drop);
    let results = [
        ("write", open(fs::OpenOptions::new().write(true), at("file")?)),
        ("append", open(fs::OpenOptions::new().append(true), at("file")?)),
        ("truncate", open(fs::OpenOptions::new().read(true).custom_flags(TRUNCATE), at("file")?)),
        ("create", open(fs::OpenOptions::new().write(true).create_new(true), at("new")?)),
        ("mkdir", fs::create_dir(at("folder")?)),
        ("symlink", std::os::unix::fs::symlink("file", at("symlink")?)),
        ("fifo", make_fifo(&at("fifo")?)),
        ("socket", std::os::unix::net::UnixListener::bind(at("socket")?).map(drop)),
        ("rename", fs::rename(at("a")?, at("b")?)),
        ("link", fs::hard_link(at("file")?, at("hard")?)),
        ("remove", fs::remove_file(at("gone")?)),
        ("rmdir", fs::remove_dir(at("empty")?)),
        ("move", fs::rename(at("m")?, other("m")?)),
        ("link-out", fs::hard_link(at("file")?, other("out")?)),
    ];
    for (name, result) in results {
        match result {
            Ok(()) => writeln!(io::stdout(), "{name} ok")?,
            Err(error) => writeln!(io::stdout(), "{name} {}", error.raw_os_error().unwrap_or(-1))?,
        }
    }
    Ok(0)
}

fn make_fifo(path: &std::path::Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0)?)
}

/// Uses one core until it is ended.
fn burn(_: Words<'_>) -> Outcome {
    let mut count = 0_u64;
    while count != u64::MAX {
        count = std::hint::black_box(count).wrapping_add(1);
    }
    Ok(0)
}

/// Takes so many bytes of memory, says so, and holds them.
fn fill(words: Words<'_>) -> Outcome {
    const PAGE: usize = 4096;
    let bytes: usize = word(words, 0)?;
    let mut held = Vec::new();
    for _ in 0..bytes.div_ceil(PAGE) {
        held.push(std::hint::black_box(vec![1_u8; PAGE]));
    }
    writeln!(io::stdout(), "filled {}", held.len())?;
    std::thread::park_timeout(Duration::from_secs(600));
    Ok(0)
}

/// Starts so many children that sleep, and says how many there were; what a refused fork does is only counted.
fn children(words: Words<'_>) -> Outcome {
    let wanted: u64 = word(words, 0)?;
    let started = (0..wanted).filter(|_| again(&["sleep", "600"]).is_ok()).count();
    writeln!(io::stdout(), "started {started}")?;
    std::thread::park_timeout(Duration::from_secs(600));
    Ok(0)
}

/// Two children, of which one traces the other and never waits for it; lives on. Where the system
/// refuses that, there are two children.
fn trace(_: Words<'_>) -> Outcome {
    let traced = again(&["ignore-term", "1000"])?.id();
    let mut tracer = itself(&["trace-other", &traced.to_string()])?;
    tracer.spawn()?;
    std::thread::park_timeout(Duration::from_secs(1000));
    Ok(0)
}

fn trace_other(words: Words<'_>) -> Outcome {
    let traced = nix::unistd::Pid::from_raw(word(words, 0)?);
    let options = nix::sys::ptrace::Options::PTRACE_O_TRACEEXIT;
    match nix::sys::ptrace::seize(traced, options) {
        Ok(()) => writeln!(io::stdout(), "up")?,
        Err(error) => writeln!(io::stdout(), "up, though not as a tracer: {error}")?,
    }
    std::thread::park_timeout(Duration::from_secs(1000));
    Ok(0)
}

/// Connects as a client and writes to the file what it was answered: to a hello, to an operator's attach and to the opening of a
/// session; a code each, or `ok`, or `closed`.
fn client(words: Words<'_>) -> Outcome {
    let wire = Wire::bare(word::<String>(words, 0)?.as_ref())?;
    tell_answers(wire, &word::<String>(words, 1)?)
}

fn tell_answers(mut wire: Wire, file: &str) -> Outcome {
    let word = |answer: Result<serde_json::Value, serde_json::Value>| match answer {
        Ok(_) => "ok".to_owned(),
        Err(error) => error["code"].as_str().unwrap_or("closed").to_owned(),
    };
    let mut told = vec![word(wire.greeting())];
    if told == ["ok"] {
        told.push(word(wire.call("operator/attach", serde_json::json!({"reason": "probe"}))));
        told.push(word(wire.call("session/open", serde_json::json!({}))));
    }
    // Whole or not at all: somebody waits for it.
    let new = format!("{file}.new");
    fs::write(&new, told.join(" "))?;
    fs::rename(new, file)?;
    writeln!(io::stdout(), "{}", told.join(" "))?;
    Ok(0)
}

/// The same from a process in a session of its own, without streams and in another folder, whose parent is gone.
fn client_detached(words: Words<'_>) -> Outcome {
    let [step, ..] = words else { return Err(USAGE.into()) };
    if step == "--middle" {
        rustix::process::setsid()?;
        std::env::set_current_dir("/")?;
        again(&[
            "client-detached",
            "--last",
            &word::<String>(words, 1)?,
            &word::<String>(words, 2)?,
        ])?;
        return Ok(0);
    }
    if step == "--last" {
        // Its parent ends at once: then it belongs to whoever adopts.
        let parent = || rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        let first = parent();
        while parent() == first
            && first.is_some_and(|pid| {
                fs::read_to_string(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.contains("--middle"))
            })
        {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        return client(words.get(1..).unwrap_or_default());
    }
    again(&["client-detached", "--middle", step, &word::<String>(words, 1)?])?.wait()?;
    writeln!(io::stdout(), "detached")?;
    Ok(0)
}

/// Connects, hands the connection to a child as its stdin, and ends; the child does what `client` does.
fn hand_over(words: Words<'_>) -> Outcome {
    use std::os::fd::OwnedFd;
    if words.first().is_some_and(|word| word == "--taken") {
        let stream = std::os::unix::net::UnixStream::from(rustix::io::dup(rustix::stdio::stdin())?);
        return tell_answers(Wire::over(stream), &word::<String>(words, 1)?);
    }
    let stream = std::os::unix::net::UnixStream::connect(word::<String>(words, 0)?)?;
    let mut child = itself(&["hand-over", "--taken", &word::<String>(words, 1)?])?;
    child.stdin(OwnedFd::from(stream)).stdout(Stdio::null()).spawn()?;
    Ok(0)
}

/// The probe once more, without streams.
fn again(words: &[&str]) -> io::Result<std::process::Child> {
    itself(words)?.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

#[expect(clippy::disallowed_methods, reason = "a child whose children are the case")]
fn itself(words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words);
    Ok(command)
}
