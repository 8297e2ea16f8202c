//! Keeps the program's signals out of the library's threads.
//!
//! `library` uses it while it starts its threads. The kernel delivers a signal for a process to
//! any thread that does not block it. A program may wait for SIGTERM with sigwait(3), or handle
//! signals in a thread of its choice. It does not know the library's threads. A signal handler
//! in a real-time thread would run inside the quantum of a handler.

use core::mem::MaybeUninit;
use core::ptr::null_mut;

use libc::sigset_t;

/// Signals that a thread causes by its own instructions. If they were blocked, they would kill
/// the process without calling its signal handlers.
const OF_THE_THREAD: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// While the value lives, this thread blocks all signals except those that it causes itself.
/// Threads started meanwhile inherit the mask and keep it.
pub(crate) struct Blocked {
    before: sigset_t,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::<sigset_t>::uninit();
        let mut before = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: `sigfillset` sets all of `all` before it is changed and read.
        // `pthread_sigmask` writes the second set, and zeros are a valid set. Both calls fail
        // only for an invalid signal number or an invalid operation.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in OF_THE_THREAD {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Blocked { before: before.assume_init() }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set came from the kernel, and the old set is not requested.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}
