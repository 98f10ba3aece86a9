//! The pseudo-terminal of one process, as its daemon holds it: the master, and a descriptor of the
//! other side, so that the master never reads as ended while the tree lives, even when all of it
//! has closed the terminal for a while.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, QueueSelector, SpecialCodeIndex, Termios, Winsize, tcflush, tcgetattr,
    tcgetpgrp, tcsetwinsize,
};

/// Rows and columns, characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// 1..=65535.
    pub rows: u16,
    /// 1..=65535.
    pub cols: u16,
}

impl From<Size> for Winsize {
    fn from(size: Size) -> Self {
        Self { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// A terminal. Dropping it closes both sides.
#[derive(Debug)]
pub struct Terminal {
    master: OwnedFd,
    other: OwnedFd,
}

/// What the line discipline does with input now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discipline {
    /// Whole lines are handed on, and long ones cut.
    pub is_line_mode: bool,
    /// The end of a file as a character.
    pub eof: u8,
    /// Characters that end a line, newline aside.
    ends: [u8; 3],
    /// Carriage return becomes newline.
    cr_is_newline: bool,
    signals: Option<[u8; 3]>,
}

impl Discipline {
    /// That of a terminal nobody has touched.
    pub const USUAL: Self = Self {
        is_line_mode: true,
        eof: 4,
        ends: [4, 0, 0],
        cr_is_newline: true,
        signals: Some([3, 28, 26]),
    };

    fn of(modes: &Termios) -> Self {
        let code = |index: SpecialCodeIndex| modes.special_codes[index];
        let eof = match code(SpecialCodeIndex::VEOF) {
            0 => Self::USUAL.eof,
            eof => eof,
        };
        let signals = [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT, SpecialCodeIndex::VSUSP];
        let is_signalling = modes.local_modes.contains(LocalModes::ISIG);
        Self {
            is_line_mode: modes.local_modes.contains(LocalModes::ICANON),
            eof,
            ends: [
                code(SpecialCodeIndex::VEOF),
                code(SpecialCodeIndex::VEOL),
                code(SpecialCodeIndex::VEOL2),
            ],
            cr_is_newline: modes.input_modes.contains(InputModes::ICRNL),
            signals: is_signalling.then(|| signals.map(code)),
        }
    }

    /// Whether a byte ends a line.
    #[must_use]
    pub fn ends_line(&self, byte: u8) -> bool {
        byte == b'\n'
            || (byte == b'\r' && self.cr_is_newline)
            || (byte != 0 && self.ends.contains(&byte))
    }

    /// The signal that a typed byte becomes.
    #[must_use]
    pub fn signal_of(&self, byte: u8) -> Option<i32> {
        let place = self.signals?.iter().position(|&code| code == byte && byte != 0)?;
        [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP].get(place).copied()
    }
}

impl Terminal {
    /// A new one of this size; its master does not block. Close-on-exec.
    /// # Errors
    /// None is to be had.
    pub fn open(size: Size) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let other = ioctl_tiocgptpeer(&master, flags)?;
        tcsetwinsize(&other, size.into())?;
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok(Self { master, other })
    }

    /// One more descriptor of the side that a command gets.
    /// # Errors
    /// None left.
    pub fn for_command(&self) -> io::Result<OwnedFd> {
        self.other.try_clone()
    }

    /// One more descriptor of the master.
    /// # Errors
    /// None left.
    pub fn master(&self) -> io::Result<OwnedFd> {
        self.master.try_clone()
    }

    /// Sets the size; the foreground process group hears of it once, if it is another one.
    /// # Errors
    /// What the kernel says.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        Ok(tcsetwinsize(&self.master, size.into())?)
    }

    /// The foreground process group, if there is one.
    #[must_use]
    pub fn foreground(&self) -> Option<i32> {
        tcgetpgrp(&self.master).ok().map(Pid::as_raw_nonzero).map(std::num::NonZero::get)
    }

    /// SIGINT, SIGQUIT or SIGTSTP to the foreground process group.
    /// # Errors
    /// What the kernel says.
    pub fn signal_foreground(&self, signal: i32) -> io::Result<()> {
        crate::raw::signal_terminal(self.master.as_fd(), signal)
    }

    /// What the line discipline does with input now; as usual when it cannot be told.
    #[must_use]
    pub fn discipline(&self) -> Discipline {
        tcgetattr(&self.master).map_or(Discipline::USUAL, |modes| Discipline::of(&modes))
    }

    /// Throws away what was written to the master and not read by the command.
    pub fn discard_input(&self) {
        // Of the master it is output, of the other side input: both queues on the way.
        let _gone = tcflush(&self.master, QueueSelector::OFlush);
        let _gone = tcflush(&self.other, QueueSelector::IFlush);
    }

    /// Writes to the command's input what fits.
    /// # Errors
    /// `WouldBlock` when nothing does.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(&self.master, bytes))?)
    }

    /// The number of the master, for logs.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.master.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_terminal_has_its_size_is_in_line_mode_and_is_never_inherited() {
        let terminal = Terminal::open(Size { rows: 7, cols: 65_535 }).unwrap();
        let size = rustix::termios::tcgetwinsize(&terminal.other).unwrap();
        assert_eq!((size.ws_row, size.ws_col), (7, 65_535));
        for fd in [&terminal.master, &terminal.other] {
            let flags = rustix::io::fcntl_getfd(fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        let discipline = terminal.discipline();
        assert_eq!((discipline.is_line_mode, discipline.eof), (true, 4));
        assert!(
            discipline.ends_line(b'\n') && discipline.ends_line(b'\r') && discipline.ends_line(4)
        );
        assert!(!discipline.ends_line(b'a') && !discipline.ends_line(0));
        assert_eq!(discipline.signal_of(3), Some(libc::SIGINT));
        assert_eq!(discipline.signal_of(b'c'), None);
        assert_eq!(terminal.foreground(), None);
    }

    #[test]
    fn what_was_not_read_can_be_thrown_away() {
        let terminal = Terminal::open(Size { rows: 24, cols: 80 }).unwrap();
        assert_eq!(terminal.write(b"gone\n").unwrap(), 5);
        terminal.discard_input();
        assert_eq!(terminal.write(b"kept\n").unwrap(), 5);
        let mut buffer = [0; 64];
        let len = rustix::io::read(&terminal.other, &mut buffer).unwrap();
        assert_eq!(buffer.get(..len), Some(b"kept\n".as_slice()));
    }
}
