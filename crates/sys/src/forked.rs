//! A second process for a test: a copy of this one, made with fork(2).
//!
//! Only this crate's tests use it, for effects between two processes. The copy has one thread and
//! all mappings of the test.

use crate::OsError;
use crate::process::Exit;

/// A copy of this process. Dropping it kills it and waits for it.
pub struct Forked {
    pid: i32,
    waited: bool,
}

/// Runs `work` in a copy of this process, which exits with the returned code.
///
/// # Safety
/// `work` may only make async-signal-safe calls, because another thread of this process may have
/// held any lock at the moment of the copy. So it may make system calls and touch memory, but must
/// not allocate or panic.
pub unsafe fn forked(work: impl FnOnce() -> i32) -> Forked {
    // SAFETY: the copy runs `work`, which keeps the caller's promise, and then calls `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", OsError::last("fork"));
    if pid == 0 {
        // SAFETY: both calls take only numbers. `_exit` runs no code of the copy.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::_exit(work());
        }
    }
    Forked { pid, waited: false }
}

impl Forked {
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Blocks until the copy has ended.
    pub fn wait(mut self) -> Exit {
        self.reap()
    }

    fn reap(&mut self) -> Exit {
        let mut status = 0;
        // SAFETY: `status` is valid for one write.
        while unsafe { libc::waitpid(self.pid, &raw mut status, 0) } < 0 {
            assert_eq!(OsError::last("waitpid").raw_os_error(), libc::EINTR);
        }
        self.waited = true;
        if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if !self.waited {
            // SAFETY: the call takes only numbers. The child is not reaped yet, so the number is
            // still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}
