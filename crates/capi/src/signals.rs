//! Keeps the program's signals out of the library's threads.
//!
//! Used by `library` while it starts them. A signal sent to a process goes to any
//! thread that does not block it. A program that waits for SIGTERM with sigwait(3), or
//! handles signals in a thread of its choice, knows nothing of ours; and a signal handler
//! would run in a real-time thread, inside somebody's quantum.

use core::mem::MaybeUninit;
use core::ptr::null_mut;

use libc::sigset_t;

/// Sent for what the thread itself did: blocked, they would kill the process past
/// its handlers for them.
const OF_THE_THREAD: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// As long as it lives, this thread blocks all signals but those of its own making; threads
/// that it starts meanwhile go on doing so.
pub(crate) struct Blocked {
    before: sigset_t,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::<sigset_t>::uninit();
        let mut before = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: `sigfillset` sets all of `all` before it is changed and read; the
        // second is written by `pthread_sigmask`, and zeros are a set as well. Both
        // calls fail only for numbers that are no signal or no way to set.
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
        // SAFETY: a set that the kernel gave; nothing is to be told in return.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}
