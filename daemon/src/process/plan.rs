//! A start request turned once into a frozen plan. Spawns, reserves and takes nothing but plain
//! descriptors and memory.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use procd_core::Tier;
use procd_core::lease::Claim;
use procd_core::quota::Ceilings;
use procd_store::record::{COMMAND_BYTES_MAX, CommandRecord, TtySize};
use procd_sys::cgroup::controllers::{Controllers, GroupLimits};
use procd_sys::image::{Image, NulInside, c_string, candidates};
use procd_sys::isolation::Isolation;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::environment::DEFAULT_PATH;
use super::fence::Fencing;
use super::{RunnerOptions, guard, limits};
use crate::supervisor::refusal::{PlanRefusal, Refusal};
use crate::supervisor::runner::{
    Guard, PlanFacts, Program, SpawnCause, SpawnFailure, StartRequest, StdinMode, place,
};

/// The folder of temporary files of commands, in the state folder.
pub(super) const SCRATCH: &str = "tmp";

/// The named point before the folder is opened.
const FOLDER: &str = "start-plan-folder";
/// Bytes of words and variables of a plan that is made on the control thread, at most.
const QUICK_BYTES: usize = 64 * 1024;

/// A frozen start. Its folder is held by descriptor, so nothing can be swapped under it.
#[derive(Debug)]
pub struct Plan {
    pub(super) image: Image,
    /// A folder that cannot be entered fails at the spawn, with its cause.
    pub(super) folder: Result<OwnedFd, SpawnFailure>,
    pub(super) stdin: StdinMode,
    pub(super) merge_streams: bool,
    /// A terminal of this size in place of pipes.
    pub(super) tty: Option<TtySize>,
    /// A PID namespace of its own.
    pub(super) isolation: Option<Isolation>,
    /// Whether its processes may connect to this daemon.
    pub(super) may_connect: bool,
    /// Limits that its control group holds.
    pub(super) group: GroupLimits,
    /// Limits that are held by looking.
    pub(super) watched: limits::Watched,
    /// Seconds of CPU that its leader may use.
    pub(super) cpu_seconds_max: Option<u64>,
    /// What the kernel will hold it to.
    pub(super) fencing: Option<Fencing>,
}

impl Plan {
    /// What is left of a plan that was started.
    pub(super) fn used() -> Self {
        let failure = SpawnFailure { cause: SpawnCause::Other, errno: 0 };
        let image = Image {
            candidates: Vec::new(),
            argv: Vec::new(),
            envp: Vec::new(),
            options: procd_sys::image::ChildOptions::default(),
        };
        Self {
            image,
            folder: Err(failure),
            stdin: StdinMode::Null,
            merge_streams: false,
            tty: None,
            isolation: None,
            may_connect: false,
            group: GroupLimits::default(),
            watched: limits::Watched::default(),
            cpu_seconds_max: None,
            fencing: None,
        }
    }
}

/// What the machine gives every plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground {
    pub(super) tier: procd_core::Tier,
    pub(super) controllers: Controllers,
}

/// Makes the plan. Opens the folder, which can wait: not for the control thread.
/// # Errors
/// [`Refusal`] for what cannot be had.
pub(super) fn make(
    options: &RunnerOptions,
    ground: Ground,
    request: &StartRequest,
) -> Result<(Plan, PlanFacts), Refusal> {
    let folder_path = folder_path(options, request)?;
    crate::failpoint::hit(FOLDER);
    let folder = open_folder(&folder_path);
    make_in(options, ground, request, folder)
}

/// Makes the plan if nothing of it can wait: for the control thread, since two changes of threads
/// take longer than the work. `None` = [`make`] it elsewhere.
pub(super) fn make_quickly(
    options: &RunnerOptions,
    ground: Ground,
    request: &StartRequest,
) -> Option<Result<(Plan, PlanFacts), Refusal>> {
    let looks_elsewhere = request.claim.is_some()
        || request.fence.is_some()
        || request.isolate
        || request.guard == Guard::On
        || crate::failpoint::is_armed(FOLDER);
    if looks_elsewhere || asked_bytes(request) > QUICK_BYTES || !knows_shell(options, request) {
        return None;
    }
    let folder = open_cached(&folder_path(options, request).ok()?, OFlags::DIRECTORY)?;
    Some(make_in(options, ground, request, Ok(folder)))
}

/// Whether the shell can be told without a look that may wait.
fn knows_shell(options: &RunnerOptions, request: &StartRequest) -> bool {
    match &request.program {
        Program::Argv(_) => true,
        Program::Line(_) => {
            request.shell.program.is_some()
                || options.shell.is_some()
                || open_cached(Path::new(super::BASH), OFlags::empty()).is_some()
        }
    }
}

/// What the kernel finds without asking any disk or network.
fn open_cached(path: &Path, flags: OFlags) -> Option<OwnedFd> {
    use rustix::fs::{CWD, Mode, ResolveFlags, openat2};
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).ok()
}

fn asked_bytes(request: &StartRequest) -> usize {
    let program = match &request.program {
        Program::Argv(argv) => argv.iter().map(|word| word.len()).sum(),
        Program::Line(line) => line.len(),
    };
    let value = |value: &Option<OsString>| value.as_ref().map_or(0, |value| value.len());
    request.env.iter().fold(program, |sum, (name, set)| sum + name.len() + value(set))
}

fn make_in(
    options: &RunnerOptions,
    ground: Ground,
    request: &StartRequest,
    folder: Result<OwnedFd, SpawnFailure>,
) -> Result<(Plan, PlanFacts), Refusal> {
    let claim = claim(request, folder.as_ref().ok())?;
    look_at_words(options, request)?;
    let mut environment = options.environment.build(&request.env, request.tty.is_some())?;
    let fencing = fencing(options, request, claim.as_ref())?;
    if let Some(fencing) = &fencing
        && !request.env.iter().any(|(name, _)| name == "TMPDIR")
    {
        environment.insert("TMPDIR".into(), fencing.temporary().into());
    }
    let ceilings = ceilings(options, request)?;
    let isolation = isolation(options, request, folder.as_ref().ok())?;
    let tier = if isolation.is_some() { Tier::Pidns } else { ground.tier };
    let (held, limits) = limits::hold(&request.limits, ground.controllers)?;
    let mut image = image(options, request, &environment)?;
    image.options.limits = held.child;
    image.options.fenced = fencing.is_some();
    let enforced = fencing.as_ref().map(|fencing| fencing.enforced.clone());
    let plan = Plan {
        image,
        folder,
        stdin: request.stdin,
        merge_streams: request.merge_streams,
        tty: request.tty,
        isolation,
        may_connect: request.allow_client,
        group: held.group,
        watched: held.watched,
        cpu_seconds_max: held.child.cpu_seconds,
        fencing,
    };
    let facts = PlanFacts {
        command: describe(&request.program, request.cwd.as_deref()),
        tier,
        ceilings,
        limits,
        claim,
        enforced,
        variables: environment.keys().map(|name| escape(name.as_bytes())).collect(),
    };
    Ok((plan, facts))
}

/// The guard of the session, where it is on.
fn look_at_words(options: &RunnerOptions, request: &StartRequest) -> Result<(), Refusal> {
    if request.guard == Guard::Off {
        return Ok(());
    }
    let Some((hit, word)) = guard::check(&request.program, &options.state_folder) else {
        return Ok(());
    };
    Err(Refusal::Plan(PlanRefusal::Guarded {
        field: field_of(&request.program),
        cause: hit.cause(),
        word: u64::try_from(word).unwrap_or(u64::MAX),
    }))
}

const fn field_of(program: &Program) -> &'static str {
    match program {
        Program::Argv(_) => "argv",
        Program::Line(_) => "command",
    }
}

/// What the kernel is to hold the command to, where that was asked for.
fn fencing(
    options: &RunnerOptions,
    request: &StartRequest,
    claim: Option<&Claim>,
) -> Result<Option<Fencing>, Refusal> {
    let Some((asked, claim)) = request.fence.as_ref().zip(claim) else { return Ok(None) };
    if !options.child.no_new_privileges {
        let message = "`workspace.enforce` needs the setting `no_new_privileges`";
        return Err(Refusal::Plan(PlanRefusal::Settings { message }));
    }
    Fencing::new(claim, asked, &options.state_folder.join(SCRATCH)).map(Some)
}

/// The claim on a workspace. In a session that declares workspaces the folder lies in one of
/// them: where the open descriptor is, not what its name says, so that it cannot be swapped.
fn claim(request: &StartRequest, folder: Option<&OwnedFd>) -> Result<Option<Claim>, Refusal> {
    let workspace = match folder {
        Some(folder) if !request.workspaces.is_empty() => {
            let path = place::of_descriptor(folder).map_err(|error| {
                tracing::error!(%error, "it cannot be told where a folder is");
                Refusal::Setup { cause: "other", process_id: None }
            })?;
            let workspace = place::workspace_of(&path, &request.workspaces);
            Some(workspace.ok_or_else(|| Refusal::Invalid {
                field: "cwd",
                message: "`cwd` does not lie in a workspace of the session".to_owned(),
            })?)
        }
        Some(_) | None => None,
    };
    match &request.claim {
        Some(asked) => place::claim(asked).map(Some),
        None => Ok(workspace.map(place::unclaimed)),
    }
}

fn folder_path(options: &RunnerOptions, request: &StartRequest) -> Result<PathBuf, Refusal> {
    let home = || options.environment.inherited("HOME").map_or_else(|| "/".into(), PathBuf::from);
    let path = request.cwd.clone().unwrap_or_else(home);
    if path.is_relative() || path.as_os_str().as_bytes().contains(&0) {
        let message = "`cwd` is not an absolute path".to_owned();
        return Err(Refusal::Invalid { field: "cwd", message });
    }
    Ok(path)
}

fn open_folder(path: &Path) -> Result<OwnedFd, SpawnFailure> {
    use rustix::fs::Mode;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| SpawnFailure { cause: folder_cause(errno), errno: errno.raw_os_error() })
}

/// Why a folder cannot be entered.
pub(super) fn folder_cause(errno: Errno) -> SpawnCause {
    match errno {
        Errno::NOENT => SpawnCause::CwdMissing,
        Errno::ACCESS | Errno::PERM => SpawnCause::CwdDenied,
        Errno::NOTDIR => SpawnCause::CwdNotDirectory,
        Errno::MFILE | Errno::NFILE => SpawnCause::OutOfDescriptors,
        Errno::NOMEM => SpawnCause::OutOfMemory,
        _ => SpawnCause::Other,
    }
}

/// The namespace that was asked for.
fn isolation(
    options: &RunnerOptions,
    request: &StartRequest,
    folder: Option<&OwnedFd>,
) -> Result<Option<Isolation>, Refusal> {
    if !request.isolate {
        return Ok(None);
    }
    // A folder there is a window to all processes.
    let is_proc = |folder: &OwnedFd| {
        rustix::fs::fstatfs(folder).is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
    };
    if folder.is_some_and(is_proc) {
        let message = "`cwd` lies in /proc, which an isolated process cannot see".to_owned();
        return Err(Refusal::Invalid { field: "cwd", message });
    }
    options.isolation.map(Some).ok_or_else(|| Refusal::Containment {
        message: "`isolate`: this system gives no PID namespace".to_owned(),
    })
}

/// A request may lower a ceiling, never raise it.
fn ceilings(options: &RunnerOptions, request: &StartRequest) -> Result<Ceilings, Refusal> {
    let within = |field: &'static str, asked: Option<u64>, max: u64| match asked {
        Some(asked) if asked > max => Err(Refusal::Invalid {
            field,
            message: format!("`{field}` is above the ceiling of a process, {max}"),
        }),
        Some(asked) => Ok(asked),
        None => Ok(max),
    };
    let limits = &options.limits;
    Ok(Ceilings {
        memory_bytes: within("memory_bytes", request.memory_bytes, limits.memory_process_bytes)?,
        spool_bytes: within("spool_bytes", request.spool_bytes, limits.spool_process_bytes)?,
    })
}

fn image(
    options: &RunnerOptions,
    request: &StartRequest,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<Image, Refusal> {
    let field = field_of(&request.program);
    let (program, argv) = match &request.program {
        Program::Argv(argv) => (argv.first().cloned().unwrap_or_default(), argv.clone()),
        Program::Line(line) => {
            let shell = request.shell.program.clone();
            let shell = shell.unwrap_or_else(|| options.shell().into_os_string());
            let name = if request.shell.login { login_name(&shell) } else { shell.clone() };
            (shell, vec![name, "-c".into(), line.clone()])
        }
    };
    let nul = |_: NulInside| Refusal::Invalid {
        field,
        message: format!("`{field}` has a NUL byte, which no argument can hold"),
    };
    let path = environment.get(OsStr::new("PATH")).map_or(OsStr::new(DEFAULT_PATH), |path| path);
    let candidates = candidates(&program, path).map_err(nul)?;
    let argv: Vec<CString> =
        argv.iter().map(|word| c_string(word)).collect::<Result<_, _>>().map_err(nul)?;
    let envp: Vec<CString> = environment
        .iter()
        .map(|(name, value)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            c_string(&pair)
        })
        .collect::<Result<_, _>>()
        .map_err(nul)?;
    let mut child = options.child;
    child.terminal = request.tty.is_some();
    child.umask = request.umask.unwrap_or(child.umask) & 0o777;
    Ok(Image { candidates, argv, envp, options: child })
}

/// The name by which every shell knows that it is a login shell.
fn login_name(shell: &OsStr) -> OsString {
    let mut name = OsString::from("-");
    name.push(Path::new(shell).file_name().unwrap_or(shell));
    name
}

/// What the record says of the command: as asked, what is not UTF-8 escaped, cut to size.
fn describe(program: &Program, cwd: Option<&Path>) -> CommandRecord {
    let mut cutter = Cutter { room: COMMAND_BYTES_MAX, truncated: false };
    let cwd = cwd.map(|path| cutter.take(path.as_os_str()));
    let (argv, line) = match program {
        Program::Argv(argv) => {
            (Some(argv.iter().map_while(|word| cutter.take_word(word)).collect()), None)
        }
        Program::Line(line) => (None, Some(cutter.take(line))),
    };
    CommandRecord { argv, line, cwd, truncated: cutter.truncated }
}

struct Cutter {
    room: usize,
    truncated: bool,
}

impl Cutter {
    fn take(&mut self, text: &OsStr) -> String {
        let mut text = escape(text.as_bytes());
        if text.len() > self.room {
            self.truncated = true;
            text.truncate(text.floor_char_boundary(self.room));
        }
        self.room -= text.len();
        text
    }

    /// A word costs one byte beside its own, so that a million empty ones are cut too.
    fn take_word(&mut self, word: &OsStr) -> Option<String> {
        if self.room == 0 {
            self.truncated = true;
            return None;
        }
        self.room -= 1;
        Some(self.take(word))
    }
}

/// Bytes that are not UTF-8 as `\xNN`.
fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            if write!(text, "\\x{byte:02X}").is_err() {
                return text;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_described_as_asked_escaped_and_cut() {
        let argv = vec!["a".into(), OsStr::from_bytes(b"b\xff\xc3\xa4").to_owned()];
        let record = describe(&Program::Argv(argv), Some(Path::new("/x")));
        assert_eq!(record.argv.unwrap(), ["a", "b\\xFFä"]);
        assert_eq!((record.cwd.as_deref(), record.truncated), (Some("/x"), false));
        let record = describe(&Program::Line("ä".repeat(COMMAND_BYTES_MAX).into()), None);
        assert!(record.truncated);
        assert_eq!(record.line.unwrap().len(), COMMAND_BYTES_MAX);
        let many = vec![OsString::new(); 2 * COMMAND_BYTES_MAX];
        let record = describe(&Program::Argv(many), None);
        assert!(record.truncated && record.argv.unwrap().len() <= COMMAND_BYTES_MAX);
    }

    #[test]
    fn a_folder_that_cannot_be_entered_has_its_cause() {
        let cause = |path: &str| open_folder(Path::new(path)).unwrap_err().cause;
        assert_eq!(cause("/no/such/folder"), SpawnCause::CwdMissing);
        assert_eq!(cause("/dev/null"), SpawnCause::CwdNotDirectory);
        assert!(open_folder(Path::new("/")).is_ok());
    }

    /// What the kernel does not know by heart is left to a thread that may wait, and so is what
    /// fails, which has a cause to be told.
    #[test]
    fn only_a_folder_that_is_there_is_opened_at_once() {
        assert!(open_cached(Path::new("/no/such/folder"), OFlags::DIRECTORY).is_none());
        assert!(open_cached(Path::new("/dev/null"), OFlags::DIRECTORY).is_none());
    }
}
