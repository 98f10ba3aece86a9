//! Thin wrappers of the system calls that neither rustix nor nix has in the form needed.
//! One operation an unsafe block; no policy here.

mod clone;

use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;

use crate::bare::{self, word};
use crate::image::Image;
pub(crate) use clone::{Forked, Lent, Life, clone_init, clone_into, fork, live_beside, live_in};

/// The larger of the kernel's signal numbers.
const SIGNAL_MAX: c_int = 64;
/// Which libc may not have yet.
const SO_PEERPIDFD: c_int = 77;
/// Asks for the version instead of a set of rules.
const LANDLOCK_ASK_VERSION: u32 = 1;
/// A rule for a file, or a folder and what is below it.
const LANDLOCK_PATH_BENEATH: u32 = 1;
/// Bytes of the kernel's own signal set.
const KERNEL_SET_BYTES: usize = 8;

/// How many heaps the allocator has at most; before there is a second thread.
pub(crate) fn limit_heaps(count: c_int) {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; no other thread allocates yet.
    let _whether_set = unsafe { libc::mallopt(libc::M_ARENA_MAX, count) };
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}

/// Gives memory that the allocator keeps for later back to the system. Walks all of it.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; the allocator guards itself against its other callers.
    let _whether_any = unsafe { libc::malloc_trim(0) };
}

/// Bytes of a page: the smallest there is, which every larger one is a multiple of.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Fresh pages for at least so many bytes; null when there are none.
pub(crate) fn map_pages(bytes: usize) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: asks for new memory at a place of the kernel's choice.
    let pages = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, kind, -1, 0) };
    if pages == libc::MAP_FAILED { ptr::null_mut() } else { pages.cast() }
}

/// Gives pages of [`map_pages`] back, which nobody uses any more.
pub(crate) fn unmap_pages(pages: *mut u8, bytes: usize) {
    // SAFETY: a whole mapping of ours, of that size, without a user.
    let _unmapped = unsafe { libc::munmap(pages.cast(), bytes) };
}

/// Where the first heap of the allocator lies: from the program's break as it was at the start, as
/// [`remember_heap`] has seen it, to where it is now. Empty if that is not known.
pub(crate) fn heap() -> std::ops::Range<usize> {
    let start = HEAP_START.load(std::sync::atomic::Ordering::Relaxed);
    if start == 0 {
        return 0..0;
    }
    // SAFETY: a step of zero moves nothing and tells where the break is.
    let end = unsafe { libc::sbrk(0) };
    start..end.addr().max(start)
}

static HEAP_START: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Remembers where the heap begins, for forks of this process.
pub(crate) fn remember_heap() {
    let start = crate::procfs::heap_start().map_or(0, |start| start.next_multiple_of(PAGE_BYTES));
    HEAP_START.store(start, std::sync::atomic::Ordering::Relaxed);
}

/// Drops what is in [`heap`]: it reads as zeros then. For a process that uses nothing of it.
pub(crate) fn drop_heap() {
    let heap = heap();
    let start = ptr::with_exposed_provenance_mut(heap.start);
    // SAFETY: whole pages of this process's own break, of which nothing is used any more.
    let _dropped = unsafe { libc::madvise(start, heap.len(), libc::MADV_DONTNEED) };
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Ends this process at once: no destructor, no flush.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(code) }
}

/// The life of a probe's child: waits until nobody holds the other end of the pipe. Only raw
/// calls: libc does not know of the fork.
pub(crate) fn wait_for_close(own_write_end: RawFd, read_end: RawFd) -> ! {
    let flags: c_int = 0;
    // SAFETY: closes a descriptor of a process that uses no owner of it any more.
    let _closed = unsafe { libc::close(own_write_end) };
    // SAFETY: clears O_NONBLOCK of the pipe's own reading end.
    let _blocking = unsafe { libc::fcntl(read_end, libc::F_SETFL, flags) };
    let mut byte = 0_u8;
    // SAFETY: one byte of memory for a read of one byte.
    let _end = unsafe { libc::read(read_end, (&raw mut byte).cast(), 1) };
    exit_now(0)
}

/// Every signal at its default, none blocked. Through the raw call, since libc refuses to touch
/// the two signals it keeps for itself, which may have been inherited as ignored all the same.
/// Async-signal-safe.
pub(crate) fn reset_signals() -> io::Result<()> {
    // All zeros: SIG_DFL, no flags, empty mask, whatever the order of the kernel's fields.
    let default = [0_u64; 4];
    // Handlers go at the exec by themselves.
    let changed = IGNORED.get().copied().unwrap_or(u64::MAX);
    for signal in 1..=SIGNAL_MAX {
        let is_changed = changed & (1 << (signal - 1)) != 0;
        if signal == libc::SIGKILL || signal == libc::SIGSTOP || !is_changed {
            continue;
        }
        let default = default.as_ptr().expose_provenance();
        let arguments = [word(signal), default, 0, KERNEL_SET_BYTES];
        // SAFETY: `default` is at least as large as the kernel's sigaction; no old one is asked.
        unsafe { bare::call(libc::SYS_rt_sigaction, arguments) }?;
    }
    set_mask(0)
}

/// The signals that this process ignores, for its children to come: set once nothing changes them
/// any more. Without it a child resets each of them.
static IGNORED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();

/// Notes which signals are ignored; from now on [`reset_signals`] resets no others.
pub(crate) fn note_ignored_signals() -> io::Result<()> {
    let mut ignored = 0;
    for signal in 1..=SIGNAL_MAX {
        // Larger than the kernel's sigaction, whose first word is the handler.
        let mut old = [0_u64; 4];
        let new: *const u64 = ptr::null();
        // SAFETY: nothing is set; `old` has room for the kernel's sigaction.
        let result = unsafe {
            let old = old.as_mut_ptr();
            libc::syscall(libc::SYS_rt_sigaction, signal, new, old, KERNEL_SET_BYTES)
        };
        long(result)?;
        if old.first().is_some_and(|&handler| handler == libc::SIG_IGN as u64) {
            ignored |= 1 << (signal - 1);
        }
    }
    IGNORED.get_or_init(|| ignored);
    Ok(())
}

/// Takes over an inherited descriptor, and has it closed at an exec.
pub(crate) fn own_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; a number that is not open is refused.
    let result = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, as just seen, was handed to this process as its own, and nobody else in
    // it knows the number: the caller is the first code that runs.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Blocks this signal and nothing else.
pub(crate) fn block_only(signal: c_int) -> io::Result<()> {
    set_mask(1 << (signal - 1))
}

/// Blocks nothing.
pub(crate) fn unblock_all() -> io::Result<()> {
    set_mask(0)
}

/// Sets the signal mask: bit n - 1 is signal n. Async-signal-safe.
fn set_mask(mask: u64) -> io::Result<()> {
    let mask = (&raw const mask).expose_provenance();
    let arguments = [word(libc::SIG_SETMASK), mask, 0, KERNEL_SET_BYTES];
    // SAFETY: `mask` is a kernel signal set of the size given; no old one is asked.
    unsafe { bare::call(libc::SYS_rt_sigprocmask, arguments) }.map(drop)
}

fn long(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Ignores a signal.
pub(crate) fn ignore(signal: c_int) {
    // SAFETY: SIG_IGN is no handler, so nothing of ours can run at a bad moment.
    let previous = unsafe { libc::signal(signal, libc::SIG_IGN) };
    debug_assert_ne!(previous, libc::SIG_ERR);
}

/// SIGCHLD at its default: were it ignored, as it may have been inherited, children would reap
/// themselves.
pub(crate) fn default_child_signal() {
    // SAFETY: SIG_DFL is no handler, so nothing of ours can run at a bad moment.
    let previous = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    debug_assert_ne!(previous, libc::SIG_ERR);
}

/// Takes the pending SIGCHLD off its descriptor.
pub(crate) fn drain_signals(signals: &OwnedFd) {
    let mut buffer = [0; 1024];
    while rustix::io::read(signals, &mut buffer).is_ok_and(|count| count > 0) {}
}

/// A descriptor that turns readable when SIGCHLD (which must be blocked) is pending.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    let mask: u64 = 1 << (libc::SIGCHLD - 1);
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: a new signalfd over a kernel signal set of the size given.
    let result =
        unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, KERNEL_SET_BYTES, flags) };
    let Ok(fd) = RawFd::try_from(result) else {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    };
    let fd = check(fd)?;
    // SAFETY: the kernel just made it, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor from `first` to `last`. Async-signal-safe. For a process that keeps no
/// owner of any of them.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    let arguments = [first as usize, last as usize, 0, 0];
    // SAFETY: plain numbers; the caller keeps no owner of the descriptors that go.
    unsafe { bare::call(libc::SYS_close_range, arguments) }.map(drop)
}

/// Makes `to` another name of `from`. Async-signal-safe. `close_on_exec` as said.
pub(crate) fn duplicate(from: RawFd, to: RawFd, close_on_exec: bool) -> io::Result<()> {
    if from == to {
        let flags = if close_on_exec { libc::FD_CLOEXEC } else { 0 };
        let arguments = [word(from), word(libc::F_SETFD), word(flags), 0];
        // SAFETY: sets the flags of a descriptor by number.
        return unsafe { bare::call(libc::SYS_fcntl, arguments) }.map(drop);
    }
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: plain numbers; whatever `to` was has no owner that is used later.
    unsafe { bare::call(libc::SYS_dup3, [word(from), word(to), word(flags), 0]) }.map(drop)
}

/// Makes a name of `from` that is `lowest` or above, closed at an exec. Async-signal-safe.
pub(crate) fn duplicate_above(from: RawFd, lowest: RawFd) -> io::Result<RawFd> {
    let arguments = [word(from), word(libc::F_DUPFD_CLOEXEC), word(lowest), 0];
    // SAFETY: plain numbers; a new descriptor takes the place of none.
    number_of(unsafe { bare::call(libc::SYS_fcntl, arguments) }?)
}

/// Makes a folder the working one. Async-signal-safe.
pub(crate) fn enter_folder(folder: RawFd) -> io::Result<()> {
    // SAFETY: a descriptor by number.
    unsafe { bare::call(libc::SYS_fchdir, [word(folder), 0, 0, 0]) }.map(drop)
}

/// The number of a descriptor in the answer of a call.
fn number_of(answer: usize) -> io::Result<RawFd> {
    RawFd::try_from(answer).map_err(|_too_large| io::Error::from_raw_os_error(libc::EBADF))
}

/// An image with its arguments and environment in the form that exec wants.
#[derive(Debug)]
pub(crate) struct Executable {
    image: Image,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

impl Executable {
    pub(crate) fn new(image: Image) -> Self {
        let (argv, envp) = (terminated(&image.argv), terminated(&image.envp));
        Self { image, argv, envp }
    }

    /// As it was given; nobody can change it.
    pub(crate) const fn image(&self) -> &Image {
        &self.image
    }

    /// Replaces this process. Returns only the errno. Async-signal-safe.
    pub(crate) fn exec(&self, path: &CStr) -> c_int {
        let path = path.as_ptr().expose_provenance();
        let (argv, envp) = (self.argv.as_ptr(), self.envp.as_ptr());
        let arguments = [path, argv.expose_provenance(), envp.expose_provenance(), 0];
        // SAFETY: both arrays end with a null pointer and point at C strings of the image, which
        // lie where they are as long as it is there, wherever it is moved.
        let refused = unsafe { bare::call(libc::SYS_execve, arguments) };
        refused.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
    }
}

fn terminated(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Writes without any ceremony. Async-signal-safe.
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> bool {
    let arguments = [word(fd), bytes.as_ptr().expose_provenance(), bytes.len(), 0];
    // SAFETY: the slice is valid for its length.
    let written = unsafe { bare::call(libc::SYS_write, arguments) };
    written.is_ok_and(|written| written == bytes.len())
}

/// Opens a file for writing. Async-signal-safe.
pub(crate) fn open_to_write(path: &CStr) -> io::Result<RawFd> {
    let path = path.as_ptr().expose_provenance();
    let arguments = [word(libc::AT_FDCWD), path, word(libc::O_WRONLY | libc::O_CLOEXEC), 0];
    // SAFETY: a C string and plain flags.
    number_of(unsafe { bare::call(libc::SYS_openat, arguments) }?)
}

/// Leaves the caller's mounts for a copy of them. The working folder stays the same one.
/// Async-signal-safe.
pub(crate) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: plain flags; no memory or descriptor is shared or lost by it.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }).map(drop)
}

/// From here on no mount of this process shows elsewhere; those made elsewhere still show here.
/// Async-signal-safe.
pub(crate) fn keep_mounts_to_itself() -> io::Result<()> {
    let flags = libc::MS_SLAVE | libc::MS_REC;
    // SAFETY: C strings; a change of propagation reads nothing else.
    check(unsafe { libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), flags, ptr::null()) })
        .map(drop)
}

/// Mounts at /proc that of the PID namespace the caller is in. Async-signal-safe.
pub(crate) fn mount_own_proc() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (kind, place) = (c"proc".as_ptr(), c"/proc".as_ptr());
    // SAFETY: C strings; proc takes no data.
    check(unsafe { libc::mount(kind, place, kind, flags, ptr::null()) }).map(drop)
}

/// One byte of a pipe, waited for; `false` = its end. Async-signal-safe.
pub(crate) fn read_byte(fd: RawFd) -> bool {
    let mut byte = 0_u8;
    let arguments = [word(fd), (&raw mut byte).expose_provenance(), 1, 0];
    // SAFETY: one byte of memory for a read of one byte.
    unsafe { bare::call(libc::SYS_read, arguments) }.is_ok_and(|count| count == 1)
}

/// A child that has ended and is not reaped, if there is one. rustix tells no pid, nix no end by a
/// real-time signal.
pub(crate) fn find_ended_child() -> Option<Pid> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all zeros is a siginfo, one without a process.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the kernel fills a complete siginfo.
        match check(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) }) {
            // SAFETY: zeroed, or filled for an end of a child: both have a pid.
            Ok(_) => return Pid::from_raw(unsafe { info.si_pid() }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_no_child) => return None,
        }
    }
}

/// Signals an own child that is not reaped, or (negative) its process group.
pub(crate) fn kill(pid: Pid, group: bool, signal: c_int) -> io::Result<()> {
    let raw = pid.as_raw_nonzero().get();
    if raw <= 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let target = if group { -raw } else { raw };
    // SAFETY: a signal by number to a target that is neither 0, 1 nor -1.
    check(unsafe { libc::kill(target, signal) }).map(drop)
}

/// Has the master of a terminal signal the foreground process group.
pub(crate) fn signal_terminal(master: BorrowedFd<'_>, signal: c_int) -> io::Result<()> {
    // SAFETY: this request takes a number in place of a pointer.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSIG, signal) }).map(drop)
}

/// The pidfd of who connected, held by the socket itself. `ENOPROTOOPT` before Linux 6.5.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut pidfd: c_int = -1;
    let Ok(mut length) = libc::socklen_t::try_from(size_of::<c_int>()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    // SAFETY: room for one descriptor number, and its size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut pidfd).cast(),
            &raw mut length,
        )
    };
    check(result)?;
    let pidfd = check(pidfd)?;
    // SAFETY: on success the kernel stored a new descriptor there, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// Clock ticks since the boot, time asleep included, as /proc counts the start of a process.
pub(crate) fn boot_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    let whole = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(per_second);
    let part = u64::try_from(now.tv_nsec).unwrap_or(0).saturating_mul(per_second);
    whole + part / 1_000_000_000
}

/// The version of the kernel's Landlock; 0 = none.
pub(crate) fn landlock_abi() -> u32 {
    let none: *const u64 = ptr::null();
    // SAFETY: asks for the version only; no attribute is given, as the flag wants it.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, LANDLOCK_ASK_VERSION)
    };
    u32::try_from(result).unwrap_or(0)
}

/// A set of rules that handles these rights on files; it allows none of them yet.
pub(crate) fn landlock_ruleset(handled: u64) -> io::Result<OwnedFd> {
    // The kernel's attribute: the rights on files come first, and it takes a shorter one.
    let attribute = [handled];
    // SAFETY: an attribute of the size given, read only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attribute.as_ptr(),
            size_of_val(&attribute),
            0_u32,
        )
    };
    let Ok(fd) = RawFd::try_from(result) else {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    };
    let fd = check(fd)?;
    // SAFETY: the kernel just made it, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Allows rights on a file, or in and below a folder.
pub(crate) fn landlock_allow(
    ruleset: BorrowedFd<'_>,
    what: BorrowedFd<'_>,
    rights: u64,
) -> io::Result<()> {
    // The kernel's attribute, packed: eight bytes of rights, four of a descriptor.
    let mut attribute = [0_u8; 12];
    let (first, last) = attribute.split_at_mut(8);
    first.copy_from_slice(&rights.to_ne_bytes());
    last.copy_from_slice(&what.as_raw_fd().to_ne_bytes());
    // SAFETY: an attribute of the kernel's own size, read only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            LANDLOCK_PATH_BENEATH,
            attribute.as_ptr(),
            0_u32,
        )
    };
    long(result)
}

/// Holds this thread, and all it starts, to a set of rules for good. Async-signal-safe.
pub(crate) fn landlock_restrict(ruleset: RawFd) -> io::Result<()> {
    // SAFETY: a descriptor by number and no flags.
    let held = unsafe { bare::call(libc::SYS_landlock_restrict_self, [word(ruleset), 0, 0, 0]) };
    held.map(drop)
}

/// Signals through a pidfd.
pub(crate) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: c_int) -> io::Result<()> {
    let info: *const libc::siginfo_t = ptr::null();
    // SAFETY: a descriptor and numbers; no siginfo is given.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0_u32)
    };
    long(result)
}

/// Has glibc not share its restartable sequences with the kernel, which writes to them whenever the
/// process was interrupted: a page of its own for each shim. Other C libraries know nothing of it.
const LEAN: &CStr = c"GLIBC_TUNABLES=glibc.pthread.rseq=0";

/// Starts this very binary again with `argv`, an environment of [`LEAN`] and `control` as descriptor
/// 0; descriptors 1 and 2 stay, all others must be close-on-exec. Safe with threads: the kernel
/// suspends only the caller, and nothing of its memory is copied.
pub(crate) fn respawn(argv: &[&CStr], control: BorrowedFd<'_>) -> io::Result<Pid> {
    let mut actions = std::mem::MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit();
    // SAFETY: initialises the object it is given.
    number(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
    let control = control.as_raw_fd();
    // SAFETY: the actions are initialised.
    let added = unsafe { libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), control, 0) };
    let mut pointers: Vec<*mut c_char> = argv.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
    pointers.push(ptr::null_mut());
    let envp: [*mut c_char; 2] = [LEAN.as_ptr().cast_mut(), ptr::null_mut()];
    let mut pid: libc::pid_t = 0;
    let spawned = number(added).and_then(|()| {
        // SAFETY: path, argv and envp are null-terminated and outlive the call.
        number(unsafe {
            libc::posix_spawn(
                &raw mut pid,
                c"/proc/self/exe".as_ptr(),
                actions.as_ptr(),
                ptr::null(),
                pointers.as_ptr(),
                envp.as_ptr(),
            )
        })
    });
    // SAFETY: initialised above, used for nothing after this.
    number(unsafe { libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr()) })?;
    spawned?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
}

/// The result of a call that returns the error number itself.
fn number(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
