//! System calls past libc, and a child on a stack of its own in the memory of its parent. Until its
//! exec both are one thread to libc, which keeps the errno in memory: whatever such a child calls
//! has to leave that alone.

use std::ffi::{c_int, c_long, c_void};
use std::io;

use crate::raw::PAGE_BYTES;

/// Arguments of a call, in order; what is not needed is zero.
pub(crate) type Arguments = [usize; 4];

/// One system call. Async-signal-safe, and touches no memory but what the kernel is told to.
/// # Safety
/// That of the call: its pointers are good for what it does with them.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn call(number: c_long, [a, b, c, d]: Arguments) -> io::Result<usize> {
    let result: c_long;
    // SAFETY: the kernel changes these three registers and nothing else that Rust knows of, but the
    // memory that the caller answers for.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    checked(result)
}

/// The same by libc: on such a machine no child shares memory.
/// # Safety
/// That of the call: its pointers are good for what it does with them.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn call(number: c_long, [a, b, c, d]: Arguments) -> io::Result<usize> {
    // SAFETY: as the caller says.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    if result < 0 { Err(io::Error::last_os_error()) } else { checked(result) }
}

/// As the kernel answers: a small negative number is an errno.
fn checked(result: c_long) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(result) => Ok(result),
        Err(_negative) => {
            let errno = c_int::try_from(result.unsigned_abs()).unwrap_or(libc::EIO);
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// The word of a number, negative ones as the kernel takes them.
pub(crate) const fn word(number: c_int) -> usize {
    (number as isize).cast_unsigned()
}

/// Bytes of a stack: what lies between clone and exec needs a few KiB, of which only what is touched
/// takes memory.
const STACK_BYTES: usize = 128 * 1024;

/// The stack of a child that shares the memory of its parent. Its lowest page is nobody's, so that
/// too deep a call ends the child and not the parent.
#[derive(Debug)]
pub(crate) struct Stack(*mut u8);

impl Stack {
    /// Whether this build knows how to use one.
    pub(crate) const IS_OF_USE: bool = cfg!(target_arch = "x86_64");

    /// # Errors
    /// No memory left.
    pub(crate) fn new() -> io::Result<Self> {
        let pages = crate::raw::map_pages(STACK_BYTES);
        if pages.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let stack = Self(pages);
        // SAFETY: the first page of a mapping of ours that nobody uses yet.
        let closed = unsafe { libc::mprotect(pages.cast(), PAGE_BYTES, libc::PROT_NONE) };
        if closed == 0 { Ok(stack) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        crate::raw::unmap_pages(self.0, STACK_BYTES);
    }
}

/// Clones as `args` say, with the memory shared: the child runs `entry` with `data` on `stack` while
/// the caller goes on. Returns the pid.
/// # Safety
/// `args` is complete but for memory and stack. Stack and data stay as they are until the child's
/// exec or end; `entry` never returns, asks for no memory, takes no lock, and calls nothing of libc.
/// # Errors
/// As clone3; `ENOSYS` where a stack [is of no use](Stack::IS_OF_USE).
pub(crate) unsafe fn clone_beside(
    args: &mut libc::clone_args,
    stack: &Stack,
    entry: extern "C" fn(*const c_void) -> !,
    data: *const c_void,
) -> io::Result<usize> {
    args.flags |= u64::from(libc::CLONE_VM.unsigned_abs());
    args.stack = stack.0.expose_provenance() as u64;
    args.stack_size = STACK_BYTES as u64;
    // SAFETY: as the caller says.
    checked(unsafe { clone_onto_stack(args, entry, data) })
}

#[cfg(target_arch = "x86_64")]
unsafe fn clone_onto_stack(
    args: &mut libc::clone_args,
    entry: extern "C" fn(*const c_void) -> !,
    data: *const c_void,
) -> c_long {
    let args = std::ptr::from_mut(args);
    let result: c_long;
    // SAFETY: only the parent comes out at the end. The child begins behind the call with an empty,
    // aligned stack and these registers, calls `entry` and never comes back.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") args, in("rsi") size_of::<libc::clone_args>(),
            in("r12") entry, in("r13") data,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone_onto_stack(
    _args: &mut libc::clone_args,
    _entry: extern "C" fn(*const c_void) -> !,
    _data: *const c_void,
) -> c_long {
    -c_long::from(libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_tells_its_errno_and_leaves_that_of_libc_alone() {
        // SAFETY: a descriptor that is none.
        unsafe { libc::close(-1) };
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
        // SAFETY: a change of a folder without a name.
        let refused = unsafe { call(libc::SYS_chdir, [0, 0, 0, 0]) };
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EFAULT));
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
        // SAFETY: takes nothing.
        let pid = unsafe { call(libc::SYS_getpid, [0; 4]) }.unwrap();
        assert_eq!(u32::try_from(pid).unwrap(), std::process::id());
    }
}
