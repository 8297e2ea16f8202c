//! A process that may be anyone's, held by a descriptor and not by its number.
//!
//! Called by the daemon for the processes that attached to it: it learns of
//! their end and can signal them, and never hits a process that got the same
//! number afterwards. See pidfd_open(2), pidfd_send_signal(2).

use crate::OsError;
use crate::readiness::{Direction, is_ready, wait_until};
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process. Closed when dropped, and on exec; the process is not touched.
///
/// Its descriptor becomes readable when the process ends, so it can be watched
/// ([`crate::readiness::Watch`]).
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

/// What can be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: end in your own way.
    Terminate,
    /// SIGKILL: it ends, whatever it does.
    Kill,
    /// SIGSTOP: all its threads stand still.
    Stop,
    /// SIGCONT: they go on.
    Continue,
}

impl PidFd {
    /// Process `pid`, be it a zombie. The number is looked up now: be sure that it is
    /// still the process that is meant. One system call.
    ///
    /// # Errors
    /// `ESRCH` if there is none; `ENOENT` (on older kernels `EINVAL`) if it is the
    /// number of a thread that is not its process's first; `EMFILE`.
    pub fn open(pid: u32) -> Result<PidFd, OsError> {
        const OPERATION: &str = "pidfd_open";
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(OsError::new(OPERATION, libc::ESRCH))?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map(PidFd::from)
            .map_err(OsError::of(OPERATION))
    }

    /// Whether it has ended: all its threads, even if nobody has waited for it. Does
    /// not block. One system call.
    ///
    /// # Errors
    /// What the kernel said (`ENOMEM`).
    pub fn has_exited(&self) -> Result<bool, OsError> {
        is_ready(self.fd.as_fd(), Direction::Readable)
    }

    /// Blocks until it has ended, or until the deadline (`None`: as long as it
    /// takes); says whether it has.
    ///
    /// # Errors
    /// What the kernel said (`ENOMEM`).
    pub fn wait(&self, deadline_ns: Option<u64>) -> Result<bool, OsError> {
        wait_until(self.fd.as_fd(), Direction::Readable, deadline_ns)
    }

    /// Sends it a signal; returns before it has any effect. One system call.
    ///
    /// # Errors
    /// `ESRCH` if it has ended and been waited for, `EPERM` without the right
    /// (kill(2)).
    pub fn send_signal(&self, signal: Signal) -> Result<(), OsError> {
        use rustix::process::Signal as Number;
        let number = match signal {
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
            Signal::Stop => Number::STOP,
            Signal::Continue => Number::CONT,
        };
        rustix::process::pidfd_send_signal(&self.fd, number)
            .map_err(OsError::of("pidfd_send_signal"))
    }
}

impl From<OwnedFd> for PidFd {
    /// `fd` is a pidfd, as one that another process sent; of any other descriptor,
    /// the calls here say nonsense or fail.
    fn from(fd: OwnedFd) -> Self {
        PidFd { fd }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;
    use crate::forked::{Forked, forked};
    use crate::process::{Exit, ThreadState, thread_state};
    use crate::readiness::{Readiness, Watch};
    use std::sync::Arc;

    fn sleeper() -> (Forked, PidFd) {
        // SAFETY: one system call, again and again.
        let child = unsafe {
            forked(|| {
                loop {
                    libc::pause();
                }
            })
        };
        let handle = PidFd::open(child.pid()).unwrap();
        (child, handle)
    }

    fn wait_for_state(pid: u32, wanted: ThreadState) {
        while thread_state(pid, pid).unwrap() != wanted {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_end_of_a_process_is_seen_once_it_has_come() {
        let (child, handle) = sleeper();
        assert!(!handle.has_exited().unwrap());
        assert!(!handle.wait(Some(monotonic_ns() + 1_000_000)).unwrap());
        let readiness = Arc::new(Readiness::new().unwrap());
        let _watch = Watch::new(&readiness, handle.as_fd(), Direction::Readable, 5).unwrap();
        handle.send_signal(Signal::Kill).unwrap();
        let mut said = Vec::new();
        assert!(readiness.wait(|number| said.push(number)));
        assert_eq!(said, [5]);
        assert!(handle.wait(None).unwrap() && handle.has_exited().unwrap());
        // A zombie is there still; once waited for, it is not.
        handle.send_signal(Signal::Terminate).unwrap();
        assert_eq!(thread_state(child.pid(), child.pid()), Ok(ThreadState::Dead));
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        let error = handle.send_signal(Signal::Terminate).unwrap_err();
        assert_eq!(error, OsError::new("pidfd_send_signal", libc::ESRCH));
        assert!(handle.has_exited().unwrap());
    }

    #[test]
    fn a_process_is_stopped_goes_on_and_is_asked_to_end() {
        let (child, handle) = sleeper();
        handle.send_signal(Signal::Stop).unwrap();
        wait_for_state(child.pid(), ThreadState::Stopped);
        handle.send_signal(Signal::Continue).unwrap();
        wait_for_state(child.pid(), ThreadState::Sleeping);
        handle.send_signal(Signal::Terminate).unwrap();
        assert_eq!(child.wait(), Exit::Signal(libc::SIGTERM));
    }

    #[test]
    fn a_thread_that_is_not_the_first_is_no_process() {
        let error = std::thread::spawn(|| PidFd::open(crate::process::thread_id())).join();
        let errno = error.unwrap().unwrap_err().raw_os_error();
        assert!(matches!(errno, libc::EINVAL | libc::ENOENT), "{errno}");
    }

    #[test]
    fn no_process_no_handle() {
        // Beyond pid_max (4194304 on 64 bits), so it cannot exist.
        for pid in [0, 5_000_000, u32::MAX] {
            assert_eq!(PidFd::open(pid).unwrap_err().raw_os_error(), libc::ESRCH, "{pid}");
        }
    }
}
