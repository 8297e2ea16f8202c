//! A second process for a test: a copy of this one, made with fork(2).
//!
//! Used only by the tests of this crate, for what can be shown between two
//! processes only. The copy has one thread and everything the test had mapped.

use crate::OsError;
use crate::process::Exit;

/// A copy of this process. Dropping it kills it and waits for it.
pub struct Forked {
    pid: i32,
    waited: bool,
}

/// Runs `work` in a copy of this process, which ends with the code it returns.
///
/// # Safety
/// `work` may do only what is async-signal-safe: another thread of this process
/// may have held any lock at the moment of the copy. So it makes system calls
/// and touches memory, but does not allocate and does not panic.
pub unsafe fn forked(work: impl FnOnce() -> i32) -> Forked {
    // SAFETY: the copy does what the caller promised, and then `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", OsError::last("fork"));
    if pid == 0 {
        // SAFETY: both take numbers only; `_exit` runs nothing of the copy.
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

    /// Blocks until it has ended.
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
            // SAFETY: takes numbers only; the child is ours and not waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}
