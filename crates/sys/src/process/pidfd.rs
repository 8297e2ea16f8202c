//! A process held by a descriptor instead of its number. It may belong to any parent.
//!
//! The daemon uses it for the processes that attached to it. It learns of their end and can signal
//! them. A signal never reaches another process that got the same number later. See pidfd_open(2),
//! pidfd_send_signal(2).

use crate::OsError;
use crate::readiness::{Direction, is_ready, wait_until};
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A handle of a process. Closed when dropped, and on exec; the process itself is unaffected.
///
/// Its descriptor becomes readable when the process ends, so it can be watched
/// ([`crate::readiness::Watch`]).
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

/// A signal that can be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: asks the process to end.
    Terminate,
    /// SIGINT: as Ctrl-C in a terminal.
    Interrupt,
    /// SIGQUIT: as Ctrl-\ in a terminal.
    Quit,
    /// SIGHUP: its terminal is gone.
    HangUp,
    /// SIGKILL: ends the process at once.
    Kill,
    /// SIGSTOP: stops all its threads.
    Stop,
    /// SIGCONT: resumes them.
    Continue,
}

impl PidFd {
    /// Opens process `pid`, also if it is a zombie. The kernel looks the number up now, so the
    /// caller must know that it still belongs to the intended process. One system call.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process. `ENOENT` (on older kernels `EINVAL`) if it is the
    /// number of a thread that is not the first of its process. `EMFILE`.
    pub fn open(pid: u32) -> Result<PidFd, OsError> {
        const OPERATION: &str = "pidfd_open";
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(OsError::new(OPERATION, libc::ESRCH))?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map(PidFd::from)
            .map_err(OsError::of(OPERATION))
    }

    /// Whether the process has ended, that is, all its threads, even if its parent has not reaped
    /// it. Does not block. One system call.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`).
    pub fn has_exited(&self) -> Result<bool, OsError> {
        is_ready(self.fd.as_fd(), Direction::Readable)
    }

    /// Blocks until the process has ended, or until the deadline (`None`: without limit). Returns
    /// whether it has ended.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`).
    pub fn wait(&self, deadline_ns: Option<u64>) -> Result<bool, OsError> {
        wait_until(self.fd.as_fd(), Direction::Readable, deadline_ns)
    }

    /// Sends the process a signal. Returns before the signal has any effect. One system call.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended and been reaped. `EPERM` without the right (kill(2)).
    pub fn send_signal(&self, signal: Signal) -> Result<(), OsError> {
        use rustix::process::Signal as Number;
        let number = match signal {
            Signal::Terminate => Number::TERM,
            Signal::Interrupt => Number::INT,
            Signal::Quit => Number::QUIT,
            Signal::HangUp => Number::HUP,
            Signal::Kill => Number::KILL,
            Signal::Stop => Number::STOP,
            Signal::Continue => Number::CONT,
        };
        rustix::process::pidfd_send_signal(&self.fd, number)
            .map_err(OsError::of("pidfd_send_signal"))
    }

    /// Queues a real-time signal with `value` (`si_value`, as sigqueue(3) does). Each queued signal
    /// is delivered, in order. One system call. Does not block or allocate.
    ///
    /// # Errors
    /// `EINVAL` if `number` is not in [`real_time_signals`]. `EAGAIN` if the process has as many
    /// signals pending as its `RLIMIT_SIGPENDING` allows. `ESRCH`, `EPERM` as
    /// [`PidFd::send_signal`].
    pub fn queue_signal(&self, number: i32, value: i32) -> Result<(), OsError> {
        const OPERATION: &str = "pidfd_send_signal";
        if !real_time_signals().contains(&number) {
            return Err(OsError::new(OPERATION, libc::EINVAL));
        }
        let info = Queued {
            number,
            code: libc::SI_QUEUE,
            // The receiver may read these. The kernel does not check them.
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
            value: u64::from(value.cast_unsigned()),
            ..Queued::default()
        };
        // SAFETY: the kernel reads one siginfo_t from `info`. It has the size and layout of one
        // (asserted below) and lives for the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                number,
                &raw const info,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(OsError::last(OPERATION)) }
    }
}

/// The real-time signals that the C library leaves to programs (signal(7)): 34 to 64 with glibc.
pub fn real_time_signals() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// A `siginfo_t` of a queued signal (`_rt`, linux/uapi/asm-generic/siginfo.h), 64 bits.
#[repr(C)]
#[derive(Default)]
struct Queued {
    number: i32,
    error: i32,
    code: i32,
    padding: i32,
    pid: u32,
    uid: u32,
    /// A union of an `int` and a pointer: the `int` is the low half on little-endian machines.
    value: u64,
    rest: [u64; 12],
}

const _: () = {
    assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());
    assert!(core::mem::offset_of!(Queued, pid) == 16 && core::mem::offset_of!(Queued, value) == 24);
};

impl From<OwnedFd> for PidFd {
    /// `fd` must be a pidfd, for example one that another process sent. For any other descriptor
    /// the methods fail or return meaningless results.
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
        // SAFETY: the child only repeats one system call.
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
    fn the_end_of_a_process_is_reported_when_it_has_ended() {
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
        // A zombie still exists. Once reaped, it does not.
        handle.send_signal(Signal::Terminate).unwrap();
        assert_eq!(thread_state(child.pid(), child.pid()), Ok(ThreadState::Dead));
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        let error = handle.send_signal(Signal::Terminate).unwrap_err();
        assert_eq!(error, OsError::new("pidfd_send_signal", libc::ESRCH));
        assert!(handle.has_exited().unwrap());
    }

    #[test]
    fn a_process_is_stopped_resumed_and_asked_to_end() {
        let (child, handle) = sleeper();
        handle.send_signal(Signal::Stop).unwrap();
        wait_for_state(child.pid(), ThreadState::Stopped);
        handle.send_signal(Signal::Continue).unwrap();
        wait_for_state(child.pid(), ThreadState::Sleeping);
        handle.send_signal(Signal::Terminate).unwrap();
        assert_eq!(child.wait(), Exit::Signal(libc::SIGTERM));
    }

    #[test]
    fn queued_signals_come_in_order_with_their_values() {
        let number = libc::SIGRTMIN() + 5;
        // SAFETY: signal calls only, on a set that sigemptyset initialized.
        let child = unsafe {
            forked(|| {
                let mut set = core::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, number);
                libc::sigprocmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
                libc::raise(libc::SIGSTOP);
                for expected in [7, -8, 9] {
                    let mut info: libc::siginfo_t = core::mem::zeroed();
                    let found = libc::sigwaitinfo(&raw const set, &raw mut info);
                    let value = info.si_value().sival_ptr.addr() as u64 & u64::from(u32::MAX);
                    let expected: i32 = expected;
                    if found != number || value != u64::from(expected.cast_unsigned()) {
                        return 1;
                    }
                }
                0
            })
        };
        wait_for_state(child.pid(), ThreadState::Stopped);
        let handle = PidFd::open(child.pid()).unwrap();
        for value in [7, -8, 9] {
            handle.queue_signal(number, value).unwrap();
        }
        for wrong in [0, libc::SIGKILL, libc::SIGRTMAX() + 1] {
            let refused = Err(OsError::new("pidfd_send_signal", libc::EINVAL));
            assert_eq!(handle.queue_signal(wrong, 0), refused);
        }
        handle.send_signal(Signal::Continue).unwrap();
        assert_eq!(child.wait(), Exit::Code(0));
    }

    #[test]
    fn a_thread_that_is_not_the_first_is_no_process() {
        let error = std::thread::spawn(|| PidFd::open(crate::process::thread_id())).join();
        let errno = error.unwrap().unwrap_err().raw_os_error();
        assert!(matches!(errno, libc::EINVAL | libc::ENOENT), "{errno}");
    }

    #[test]
    fn a_number_without_a_process_is_refused() {
        // Beyond pid_max (4194304 on 64 bits), so it cannot exist.
        for pid in [0, 5_000_000, u32::MAX] {
            assert_eq!(PidFd::open(pid).unwrap_err().raw_os_error(), libc::ESRCH, "{pid}");
        }
    }
}
