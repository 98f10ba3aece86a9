//! What daemon, guardian and shim say to each other: one datagram each, of fixed small shape.
//! Bodies (arguments and environment) travel in a sealed memfd, see [`crate::channel`].

use procd_core::LeaderEnd;

use crate::isolation::Isolation;

/// Bytes of the largest datagram.
pub const MESSAGE_BYTES_MAX: usize = 256;

/// A number that comes back with the answer; the caller's own.
pub type Tag = u8;

/// What the daemon asks of the guardian, or (key 0) of a shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// First message to a guardian. Descriptors: the payload folder in tier 1, then whatever it
    /// has to hold open (the locks). The body is the payload's path as /proc shows it.
    Setup {
        /// Whether the first descriptor is the payload folder.
        payload: bool,
    },
    /// Start a command. Body: an [`crate::image::Image`]. Descriptors: folder, stdin, stdout,
    /// stderr, then the shim's end of its socket if it has one, then the leaf if it has one, then
    /// the fence if the image says that there is one.
    Start {
        /// The command, the caller's number, never reused.
        key: u64,
        /// What holds it.
        hold: Hold,
    },
    /// Look whether the leader lives, then signal the target.
    Signal {
        /// The command.
        key: u64,
        /// The number of the signal; 0 = look only.
        signal: i32,
        /// Comes back in [`Report::Reached`].
        tag: Tag,
        /// For whom. A guardian knows leaders only.
        target: Target,
    },
    /// Shim only: look whether the leader lives, then kill the tree until it is empty.
    Kill {
        /// Comes back in [`Report::Reached`].
        tag: Tag,
    },
    /// Guardian only: reap a leader that has ended.
    Reap {
        /// The command.
        key: u64,
    },
}

/// What holds a tree together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Tier 1: a leaf.
    Leaf,
    /// Tier 2: a shim.
    Shim,
    /// Tier 3: a shim that is the init of a PID namespace.
    Init {
        /// How the namespace is made.
        isolation: Isolation,
        /// Whether it is in a leaf too.
        leaf: bool,
    },
}

impl Hold {
    /// Whether a shim holds it, be it an init or not.
    #[must_use]
    pub const fn is_shim(self) -> bool {
        match self {
            Self::Leaf => false,
            Self::Shim | Self::Init { .. } => true,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Leaf => 0,
            Self::Shim => 1,
            Self::Init { isolation, leaf } => 2 + (isolation as u8) * 2 + if leaf { 1 } else { 0 },
        }
    }

    fn from_number(number: u8) -> Result<Self, Malformed> {
        let init = |isolation| Self::Init { isolation, leaf: number % 2 == 1 };
        match number {
            0 => Ok(Self::Leaf),
            1 => Ok(Self::Shim),
            2 | 3 => Ok(init(Isolation::Plain)),
            4 | 5 => Ok(init(Isolation::User)),
            _ => Err(Malformed),
        }
    }
}

/// Whom a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The leader alone.
    Leader,
    /// Every process of the tree; SIGTERM is followed by SIGCONT.
    Tree,
    /// Every process of the tree, with this signal alone.
    TreeExactly,
    /// Those of the tree in this process group. An init cannot tell the numbers of others: for it,
    /// the foreground group of the leader's terminal.
    Group(i32),
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// The request could not be read.
    Body = 1,
    /// No process could be made.
    Clone = 2,
    /// Signals, POSIX session, descriptors, limits, priority, privileges.
    Setup = 3,
    /// Entering the working folder.
    Folder = 4,
    /// The exec.
    Exec = 5,
    /// The namespaces of an isolated one.
    Isolation = 6,
    /// Being held to its access.
    Fence = 7,
}

impl Stage {
    /// The stage of a number in a message.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Body),
            2 => Some(Self::Clone),
            3 => Some(Self::Setup),
            4 => Some(Self::Folder),
            5 => Some(Self::Exec),
            6 => Some(Self::Isolation),
            7 => Some(Self::Fence),
            _ => None,
        }
    }
}

/// What guardian and shim report. A shim's key is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The guardian is set up.
    Ready,
    /// The process exists; its exec is not done. The guardian passes its pidfd along (tier 2: the
    /// shim's); an init that of the leader, whose number it sees is not the one others see.
    Started {
        /// The command.
        key: u64,
        /// Its pid.
        pid: i32,
    },
    /// The exec succeeded.
    Executed {
        /// The command.
        key: u64,
    },
    /// Nothing was started; what there was of it is reaped.
    Failed {
        /// The command.
        key: u64,
        /// Where.
        stage: Stage,
        /// Why.
        errno: i32,
    },
    /// It died before its exec. Not reaped.
    DiedEarly {
        /// The command.
        key: u64,
    },
    /// The leader ended. Not reaped, unless that was told before.
    Ended {
        /// The command.
        key: u64,
        /// As `waitid` saw it.
        end: LeaderEnd,
        /// Shim only: others of its tree alive then.
        leftovers: u32,
    },
    /// A signal went out.
    Reached {
        /// The command.
        key: u64,
        /// Of the request.
        tag: Tag,
        /// Whether the leader had not ended just before.
        alive: bool,
        /// The last errno of a refusal, 0 if there was none.
        errno: i32,
        /// How many processes refused.
        refused: u32,
        /// How many it was delivered to.
        delivered: u32,
    },
    /// The leader was reaped; its numbers are free.
    Reaped {
        /// The command.
        key: u64,
    },
    /// Shim only: no child is left, the leader is reaped. It exits now.
    Empty,
    /// A shim ended. When `clean` is false its tree fell to the guardian and is killed by now.
    ShimEnded {
        /// The command.
        key: u64,
        /// Whether the shim exited by itself.
        clean: bool,
    },
    /// Adopted processes found outside every leaf, and killed, so far.
    Escaped {
        /// Their number.
        count: u64,
    },
}

/// A datagram that is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message")]
pub struct Malformed;

impl Request {
    /// The datagram.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Setup { payload } => Writer::new(1).u8(payload.into()),
            Self::Start { key, hold } => Writer::new(2).u64(key).u8(hold.number()),
            Self::Signal { key, signal, tag, target } => {
                let (kind, group) = match target {
                    Target::Leader => (0, 0),
                    Target::Tree => (1, 0),
                    Target::TreeExactly => (2, 0),
                    Target::Group(group) => (3, group),
                };
                Writer::new(3).u64(key).i32(signal).u8(tag).u8(kind).i32(group)
            }
            Self::Kill { tag } => Writer::new(4).u8(tag),
            Self::Reap { key } => Writer::new(5).u64(key),
        }
        .0
    }

    /// Reads a datagram.
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let request = match from.u8()? {
            1 => Self::Setup { payload: from.bool()? },
            2 => Self::Start { key: from.u64()?, hold: Hold::from_number(from.u8()?)? },
            3 => Self::Signal {
                key: from.u64()?,
                signal: from.i32()?,
                tag: from.u8()?,
                target: from.target()?,
            },
            4 => Self::Kill { tag: from.u8()? },
            5 => Self::Reap { key: from.u64()? },
            _ => return Err(Malformed),
        };
        from.end(request)
    }
}

impl Report {
    /// The command it speaks of; `None` = no command, or the shim's own.
    #[must_use]
    pub const fn key(self) -> Option<u64> {
        match self {
            Self::Ready | Self::Empty | Self::Escaped { .. } => None,
            Self::Started { key, .. }
            | Self::Executed { key }
            | Self::Failed { key, .. }
            | Self::DiedEarly { key }
            | Self::Ended { key, .. }
            | Self::Reached { key, .. }
            | Self::Reaped { key }
            | Self::ShimEnded { key, .. } => Some(key),
        }
    }

    /// The datagram.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Ready => Writer::new(1),
            Self::Started { key, pid } => Writer::new(2).u64(key).i32(pid),
            Self::Executed { key } => Writer::new(3).u64(key),
            Self::Failed { key, stage, errno } => {
                Writer::new(4).u64(key).u8(stage as u8).i32(errno)
            }
            Self::DiedEarly { key } => Writer::new(5).u64(key),
            Self::Ended { key, end, leftovers } => {
                let writer = Writer::new(6).u64(key);
                match end {
                    LeaderEnd::Code(code) => writer.u8(0).i32(code.into()),
                    LeaderEnd::Signal { signal, core_dumped } => {
                        writer.u8(1 + u8::from(core_dumped)).i32(signal)
                    }
                }
                .u32(leftovers)
            }
            Self::Reached { key, tag, alive, errno, refused, delivered } => Writer::new(7)
                .u64(key)
                .u8(tag)
                .u8(alive.into())
                .i32(errno)
                .u32(refused)
                .u32(delivered),
            Self::Reaped { key } => Writer::new(8).u64(key),
            Self::Empty => Writer::new(9),
            Self::ShimEnded { key, clean } => Writer::new(10).u64(key).u8(clean.into()),
            Self::Escaped { count } => Writer::new(11).u64(count),
        }
        .0
    }

    /// Reads a datagram of one report.
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (report, rest) = Self::decode_first(bytes)?;
        if rest.is_empty() { Ok(report) } else { Err(Malformed) }
    }

    /// Reads the first report of a datagram of several, and says what is behind it.
    /// # Errors
    /// [`Malformed`].
    pub fn decode_first(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut from = Reader(bytes);
        let report = match from.u8()? {
            1 => Self::Ready,
            2 => Self::Started { key: from.u64()?, pid: from.i32()? },
            3 => Self::Executed { key: from.u64()? },
            4 => {
                let key = from.u64()?;
                let stage = Stage::from_number(from.u8()?).ok_or(Malformed)?;
                Self::Failed { key, stage, errno: from.i32()? }
            }
            5 => Self::DiedEarly { key: from.u64()? },
            6 => {
                let key = from.u64()?;
                let end = from.end_of_leader()?;
                Self::Ended { key, end, leftovers: from.u32()? }
            }
            7 => Self::Reached {
                key: from.u64()?,
                tag: from.u8()?,
                alive: from.bool()?,
                errno: from.i32()?,
                refused: from.u32()?,
                delivered: from.u32()?,
            },
            8 => Self::Reaped { key: from.u64()? },
            9 => Self::Empty,
            10 => Self::ShimEnded { key: from.u64()?, clean: from.bool()? },
            11 => Self::Escaped { count: from.u64()? },
            _ => return Err(Malformed),
        };
        Ok((report, from.0))
    }
}

/// Appends numbers, little endian.
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn new(kind: u8) -> Self {
        Self(vec![kind])
    }
    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut next = self.u64(bytes.len() as u64);
        next.0.extend_from_slice(bytes);
        next
    }
}

/// Takes numbers from the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*head)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }
    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }
    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.take().map(i32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let Ok(len) = usize::try_from(self.u64()?) else { return Err(Malformed) };
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }
    fn target(&mut self) -> Result<Target, Malformed> {
        let kind = self.u8()?;
        let group = self.i32()?;
        match kind {
            0 => Ok(Target::Leader),
            1 => Ok(Target::Tree),
            2 => Ok(Target::TreeExactly),
            3 => Ok(Target::Group(group)),
            _ => Err(Malformed),
        }
    }
    fn end_of_leader(&mut self) -> Result<LeaderEnd, Malformed> {
        let kind = self.u8()?;
        let number = self.i32()?;
        match kind {
            0 => u8::try_from(number).map_or(Err(Malformed), |code| Ok(LeaderEnd::Code(code))),
            1 | 2 => Ok(LeaderEnd::Signal { signal: number, core_dumped: kind == 2 }),
            _ => Err(Malformed),
        }
    }
    pub(crate) const fn end<T: Copy>(&self, value: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_and_request_round_trips_and_a_cut_one_is_refused() {
        let reports = [
            Report::Ready,
            Report::Started { key: 7, pid: 42 },
            Report::Executed { key: u64::MAX },
            Report::Failed { key: 1, stage: Stage::Folder, errno: 13 },
            Report::DiedEarly { key: 2 },
            Report::Ended { key: 3, end: LeaderEnd::Code(255), leftovers: 9 },
            Report::Ended {
                key: 3,
                end: LeaderEnd::Signal { signal: 11, core_dumped: true },
                leftovers: 0,
            },
            Report::Reached { key: 4, tag: 5, alive: true, errno: 1, refused: 2, delivered: 3 },
            Report::Reaped { key: 5 },
            Report::Empty,
            Report::ShimEnded { key: 6, clean: false },
            Report::Escaped { count: 3 },
        ];
        let mut together = Vec::new();
        for report in reports {
            let bytes = report.encode();
            together.extend_from_slice(&bytes);
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(Report::decode(&bytes), Ok(report));
            assert_eq!(Report::decode(&bytes[..bytes.len() - 1]), Err(Malformed));
        }
        let mut rest = together.as_slice();
        for report in reports {
            let (first, behind) = Report::decode_first(rest).unwrap();
            assert_eq!(first, report);
            rest = behind;
        }
        assert!(rest.is_empty());
        let init = |isolation, leaf| Hold::Init { isolation, leaf };
        let requests = [
            Request::Setup { payload: true },
            Request::Start { key: 9, hold: Hold::Leaf },
            Request::Start { key: 9, hold: Hold::Shim },
            Request::Start { key: 9, hold: init(Isolation::Plain, false) },
            Request::Start { key: 9, hold: init(Isolation::Plain, true) },
            Request::Start { key: 9, hold: init(Isolation::User, false) },
            Request::Start { key: 9, hold: init(Isolation::User, true) },
            Request::Signal { key: 9, signal: 15, tag: 2, target: Target::Tree },
            Request::Signal { key: 9, signal: 0, tag: 2, target: Target::Group(77) },
            Request::Kill { tag: 3 },
            Request::Reap { key: 9 },
        ];
        for request in requests {
            let mut bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            bytes.push(0);
            assert_eq!(Request::decode(&bytes), Err(Malformed));
        }
    }
}
