//! Forks and clones.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::Pid;

use super::check;
use crate::bare::{self, Stack};

/// `CLONE_INTO_CGROUP`, which libc has in too narrow a type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Forked<T> {
    /// The new process.
    Child,
    /// The caller, with what it knows of the child.
    Parent(T),
}

/// Forks. For single-threaded callers: then the child may do whatever its parent could, since no
/// lock can be held by a thread that is not there. Past libc, which would write to pages of its own
/// in both, so that each shim had its own copy of them.
pub(crate) fn fork() -> io::Result<Forked<Pid>> {
    // SAFETY: no memory is shared and no place for a number is given, so both sides return here;
    // called in single-threaded processes only, so the child's memory is consistent.
    let result = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    let Ok(pid) = c_int::try_from(result) else {
        return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
    };
    Ok(Pid::from_raw(check(pid)?).map_or(Forked::Child, Forked::Parent))
}

/// Forks straight into a control group, with a pidfd. The child may only do async-signal-safe
/// things: libc does not know of this fork.
pub(crate) fn clone_into(leaf: BorrowedFd<'_>) -> io::Result<Forked<(Pid, OwnedFd)>> {
    clone(0, Some(leaf))
}

/// Forks the init of a new PID namespace, `with_user` in a user namespace of its own, and into a
/// control group if there is one. libc does not know of this fork: the child of a process with
/// threads may only do async-signal-safe things.
pub(crate) fn clone_init(
    with_user: bool,
    leaf: Option<BorrowedFd<'_>>,
) -> io::Result<Forked<(Pid, OwnedFd)>> {
    let user = if with_user { libc::CLONE_NEWUSER } else { 0 };
    clone(libc::CLONE_NEWPID | user, leaf)
}

fn clone(more: c_int, leaf: Option<BorrowedFd<'_>>) -> io::Result<Forked<(Pid, OwnedFd)>> {
    let mut pidfd: c_int = -1;
    let mut args = clone_args(more | libc::CLONE_PIDFD, leaf)?;
    args.pidfd = (&raw mut pidfd).expose_provenance() as u64;
    let size = size_of::<libc::clone_args>();
    // SAFETY: `args` is a complete clone_args of the size given and `pidfd` outlives the call;
    // without CLONE_VM and a stack this is a plain fork, so both sides return here.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size) };
    let pid = match c_int::try_from(result) {
        Ok(pid) => check(pid)?,
        Err(_out_of_range) => return Err(io::Error::from_raw_os_error(libc::EOVERFLOW)),
    };
    let Some(pid) = Pid::from_raw(pid) else { return Ok(Forked::Child) };
    // SAFETY: on success the kernel stored a new descriptor there, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Forked::Parent((pid, pidfd)))
}

/// A child that ends with SIGCHLD.
fn clone_args(flags: c_int, leaf: Option<BorrowedFd<'_>>) -> io::Result<libc::clone_args> {
    let mut flags = u64::from(flags.unsigned_abs());
    let mut group = 0;
    if let Some(leaf) = leaf {
        flags |= CLONE_INTO_CGROUP;
        group = match u64::try_from(leaf.as_raw_fd()) {
            Ok(group) => group,
            Err(_negative) => return Err(io::Error::from_raw_os_error(libc::EBADF)),
        };
    }
    Ok(libc::clone_args {
        flags,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: group,
    })
}

/// The life of a child from its clone: in memory that it may share with its parent it asks for
/// none, takes no lock, and calls nothing of libc.
pub(crate) trait Life {
    /// Until the exec, or the end.
    fn live(&self) -> !;
}

/// What a child that shares our memory uses of it: to be kept until its exec or its end.
#[derive(Debug)]
pub(crate) struct Lent<T> {
    stack: Stack,
    _life: Box<T>,
}

impl<T> Lent<T> {
    /// Nobody uses it any more; the stack is good for another.
    pub(crate) fn take_back(self) -> Stack {
        self.stack
    }
}

/// Clones straight into a control group, with a pidfd. With a stack the child shares our memory, of
/// which nothing is copied then, and lives beside us; without one it has its own.
pub(crate) fn live_in<T: Life>(
    leaf: BorrowedFd<'_>,
    life: Box<T>,
    stack: Option<Stack>,
) -> io::Result<(Pid, OwnedFd, Option<Lent<T>>)> {
    let Some(stack) = stack else {
        return match clone_into(leaf)? {
            Forked::Child => life.live(),
            Forked::Parent((pid, pidfd)) => Ok((pid, pidfd, None)),
        };
    };
    let mut pidfd: c_int = -1;
    let mut args = clone_args(libc::CLONE_PIDFD, Some(leaf))?;
    args.pidfd = (&raw mut pidfd).expose_provenance() as u64;
    let (pid, lent) = share(args, life, stack)?;
    // SAFETY: on success the kernel stored a new descriptor there, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pid, pidfd, Some(lent)))
}

/// The same where we are ourselves, without a pidfd.
pub(crate) fn live_beside<T: Life>(
    life: Box<T>,
    stack: Option<Stack>,
) -> io::Result<(Pid, Option<Lent<T>>)> {
    let Some(stack) = stack else {
        return match fork()? {
            Forked::Child => life.live(),
            Forked::Parent(pid) => Ok((pid, None)),
        };
    };
    let (pid, lent) = share(clone_args(0, None)?, life, stack)?;
    Ok((pid, Some(lent)))
}

fn share<T: Life>(
    mut args: libc::clone_args,
    life: Box<T>,
    stack: Stack,
) -> io::Result<(Pid, Lent<T>)> {
    let data = ptr::from_ref(life.as_ref()).cast();
    // SAFETY: the arguments are complete; stack and life are kept in what is returned, whose owner
    // keeps it until the exec or the end; `enter` leads into a [`Life`].
    let pid = unsafe { bare::clone_beside(&mut args, &stack, enter::<T>, data) }?;
    let pid = c_int::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    Ok((pid, Lent { stack, _life: life }))
}

extern "C" fn enter<T: Life>(life: *const c_void) -> ! {
    // SAFETY: what [`share`] was given, which its parent keeps.
    unsafe { &*life.cast::<T>() }.live()
}
