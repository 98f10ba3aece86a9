//! What a command is started with: the frozen body of a start request.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use crate::message::{Malformed, Reader, Writer};

/// Everything of a start but its descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Paths to try in turn, as execvp would.
    pub candidates: Vec<CString>,
    /// Arguments, the program's name first.
    pub argv: Vec<CString>,
    /// `NAME=value` each.
    pub envp: Vec<CString>,
    /// What the child sets before its exec.
    pub options: ChildOptions,
}

/// What a child sets before its exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildOptions {
    /// File mode mask, 0..=0o777.
    pub umask: u32,
    /// Soft limit of open files; absent = as the guardian has it.
    pub open_files_soft: Option<u64>,
    /// Whether set-uid programs gain nothing.
    pub no_new_privileges: bool,
    /// Niceness; absent = as the daemon.
    pub nice: Option<i32>,
    /// OOM score adjustment; absent = as the daemon's.
    pub oom_score_adj: Option<i32>,
    /// Whether stdout is a terminal that becomes the controlling one.
    pub terminal: bool,
    /// Whether a fence comes along, which is closed around the child: see [`crate::landlock`].
    pub fenced: bool,
    /// Limits of the process itself.
    pub limits: ChildLimits,
}

/// Limits that a process gets and hands on to its children, each its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChildLimits {
    /// Open files, a count.
    pub open_files: Option<u64>,
    /// Bytes of a core.
    pub core_bytes: Option<u64>,
    /// Seconds of CPU: SIGXCPU, a second later SIGKILL.
    pub cpu_seconds: Option<u64>,
    /// Bytes of address space.
    pub address_space_bytes: Option<u64>,
    /// Whether its control group limits its memory. Such a child shares none with its parent, not
    /// even up to its exec.
    pub group_memory: bool,
}

impl Default for ChildOptions {
    fn default() -> Self {
        Self {
            umask: 0o022,
            open_files_soft: None,
            no_new_privileges: true,
            nice: None,
            oom_score_adj: None,
            terminal: false,
            fenced: false,
            limits: ChildLimits::default(),
        }
    }
}

/// A byte string with a NUL inside, which no exec can pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a NUL byte inside")]
pub struct NulInside;

/// The C string of `text`.
/// # Errors
/// [`NulInside`].
pub fn c_string(text: &OsStr) -> Result<CString, NulInside> {
    CString::new(text.as_bytes()).map_or(Err(NulInside), Ok)
}

/// The paths that execvp would try for `program` with this PATH: itself when it has a slash, else
/// one in each folder of the PATH, an empty folder being the current one. An empty program has
/// none.
/// # Errors
/// [`NulInside`].
pub fn candidates(program: &OsStr, path: &OsStr) -> Result<Vec<CString>, NulInside> {
    let name = program.as_bytes();
    if name.is_empty() {
        return Ok(Vec::new());
    }
    if name.contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    path.as_bytes()
        .split(|&byte| byte == b':')
        .map(|folder| {
            let folder = if folder.is_empty() { b"." } else { folder };
            let joined = [folder, b"/", name].concat();
            c_string(OsStr::from_bytes(&joined))
        })
        .collect()
}

impl Image {
    /// Bytes of all its texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lists = [&self.candidates, &self.argv, &self.envp];
        lists.into_iter().flatten().map(|text| text.count_bytes()).sum()
    }

    /// The bytes of a body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(1);
        for list in [&self.candidates, &self.argv, &self.envp] {
            writer = writer.u64(list.len() as u64);
            for item in list {
                writer = writer.bytes(item.to_bytes());
            }
        }
        let options = &self.options;
        writer = writer.u32(options.umask).u8(options.no_new_privileges.into());
        writer = writer.u8(options.terminal.into()).u8(options.fenced.into());
        let ChildLimits { open_files, core_bytes, cpu_seconds, address_space_bytes, group_memory } =
            options.limits;
        writer = writer.u8(group_memory.into());
        let numbers =
            [options.open_files_soft, open_files, core_bytes, cpu_seconds, address_space_bytes];
        for number in numbers {
            writer = match number {
                Some(number) => writer.u8(1).u64(number),
                None => writer.u8(0),
            };
        }
        for number in [options.nice, options.oom_score_adj] {
            writer = match number {
                Some(number) => writer.u8(1).i32(number),
                None => writer.u8(0),
            };
        }
        writer.0
    }

    /// Reads a body.
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        if from.u8()? != 1 {
            return Err(Malformed);
        }
        let candidates = strings(&mut from)?;
        let argv = strings(&mut from)?;
        let envp = strings(&mut from)?;
        let umask = from.u32()?;
        let no_new_privileges = from.bool()?;
        let terminal = from.bool()?;
        let fenced = from.bool()?;
        let group_memory = from.bool()?;
        let mut numbers = [None; 5];
        for number in &mut numbers {
            *number = if from.bool()? { Some(from.u64()?) } else { None };
        }
        let [open_files_soft, open_files, core_bytes, cpu_seconds, address_space_bytes] = numbers;
        let nice = if from.bool()? { Some(from.i32()?) } else { None };
        let oom_score_adj = if from.bool()? { Some(from.i32()?) } else { None };
        from.end(())?;
        let options = ChildOptions {
            umask,
            open_files_soft,
            no_new_privileges,
            nice,
            oom_score_adj,
            terminal,
            fenced,
            limits: ChildLimits {
                open_files,
                core_bytes,
                cpu_seconds,
                address_space_bytes,
                group_memory,
            },
        };
        Ok(Self { candidates, argv, envp, options })
    }
}

fn strings(from: &mut Reader<'_>) -> Result<Vec<CString>, Malformed> {
    let count = from.u64()?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(CString::new(from.bytes()?).map_or(Err(Malformed), Ok)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_round_trips_and_a_cut_one_is_refused() {
        let image = Image {
            candidates: vec![c"/bin/sh".to_owned()],
            argv: vec![c"sh".to_owned(), c"".to_owned(), c"\xff".to_owned()],
            envp: vec![c"A=b".to_owned()],
            options: ChildOptions {
                open_files_soft: Some(1024),
                nice: Some(-5),
                terminal: true,
                fenced: true,
                limits: ChildLimits {
                    core_bytes: Some(0),
                    group_memory: true,
                    ..ChildLimits::default()
                },
                ..ChildOptions::default()
            },
        };
        let bytes = image.encode();
        assert_eq!(Image::decode(&bytes), Ok(image));
        for cut in 0..bytes.len() {
            assert_eq!(Image::decode(&bytes[..cut]), Err(Malformed), "{cut}");
        }
    }

    #[test]
    fn candidates_follow_execvp() {
        let of = |program: &str, path: &str| candidates(program.as_ref(), path.as_ref()).unwrap();
        assert_eq!(of("ls", "/bin::/x"), [c"/bin/ls".to_owned(), c"./ls".into(), c"/x/ls".into()]);
        assert_eq!(of("./ls", "/bin"), [c"./ls".to_owned()]);
        assert!(of("", "/bin").is_empty());
        assert_eq!(candidates("a\0".as_ref(), "/bin".as_ref()), Err(NulInside));
    }
}
