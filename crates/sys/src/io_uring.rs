//! Watches descriptors with io_uring: one multishot poll for each, with completions read from
//! memory.
//!
//! The runtime's I/O service uses it. A *watch* is a poll request that stays
//! (`IORING_POLL_ADD_MULTI`, Linux 5.13). The kernel puts a completion into the ring each time its
//! descriptor becomes ready. [`PollRing::harvest`] reads the ring without a system call. See
//! io_uring_enter(2), io_uring_setup(2).
//!
//! ```text
//!   watch --submit--> watched --ready: completion with F_MORE--> watched
//!                        |  +-----completion without F_MORE----> ended: watch it again, or never
//!                        +--------unwatch-----------------------> gone
//! ```
//!
//! A watch is edge-triggered: a completion says that something came, and the next one may follow
//! only when more comes. A new watch checks first, and reports at once if the descriptor is already
//! ready.
//!
//! Two things end a watch. One is a full ring: the kernel keeps the last completion
//! (`IORING_FEAT_NODROP`), and [`PollRing::harvest`] fetches it with a system call. The other is a
//! descriptor that cannot be polled.
//!
//! The kernel makes completions on request (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1). A flag in
//! memory says that some are due, and one call makes up to 20 of them (Linux 6.18). Without this
//! option the kernel would interrupt the thread for each completion, and a sleeping system call
//! might return `EINTR`. docs/decisions/0012-io-events.md has the costs. Only the thread that made
//! the ring may use it.
//!
//! A watch holds its file open until [`PollRing::unwatch`] was submitted and harvested.

use crate::OsError;
use crate::clock::monotonic_ns;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::marker::PhantomData;
use std::os::fd::RawFd;

/// The token of requests whose completion is ignored.
const NOBODY: u64 = u64::MAX;

/// What happens to a watch after a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The watch continues.
    Watched,
    /// The watch has ended. Watch the descriptor again.
    Ended,
    /// The descriptor cannot be watched: it is closed or always ready. Another watch would report
    /// the same.
    Never,
}

/// A report of one watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The token of the watch.
    pub token: u64,
    /// There is something to read, or the end of the stream, or a failure.
    pub readable: bool,
    /// There is free space to write, or no reader any more, or a failure.
    pub writable: bool,
    /// Whether more reports will come.
    pub after: After,
}

/// The poll(2) events that count as readable and as writable here. A failure or a hang-up counts as
/// both, and the next call on the descriptor returns the cause.
const READABLE: i32 = (libc::POLLIN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as i32;
const WRITABLE: i32 = (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) as i32;

/// A ring and its watches, until dropped.
pub struct PollRing {
    ring: IoUring,
    /// System calls made.
    kernel_calls: u64,
    /// The kernel would refuse another thread (`EEXIST`).
    not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for PollRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollRing").field("kernel_calls", &self.kernel_calls).finish_non_exhaustive()
    }
}

impl PollRing {
    /// A ring for `completions` (rounded up to a power of two, 32768 at most). One descriptor, and
    /// memory that the kernel locks.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where io_uring is refused (`kernel.io_uring_disabled`, seccomp).
    /// `EINVAL` before Linux 6.1. `EMFILE`, `ENOMEM`.
    pub fn new(completions: u32) -> Result<Self, OsError> {
        let completions = completions.clamp(2, 32_768);
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(completions)
            .build((completions / 2).clamp(1, 256))
            .map_err(OsError::of_io("io_uring_setup"))?;
        Ok(PollRing { ring, kernel_calls: 0, not_send: PhantomData })
    }

    /// Watches `fd` under `token` from the next [`Self::submit`] on. The token must not be
    /// `u64::MAX` or one in use. For a number that is not open, a [`Readiness`] reports it. A
    /// system call only if the queue is full (256 requests).
    ///
    /// # Errors
    /// The kernel's error for earlier requests (`ENOMEM`). This request is not made then.
    pub fn watch(
        &mut self,
        fd: RawFd,
        readable: bool,
        writable: bool,
        token: u64,
    ) -> Result<(), OsError> {
        let mut events = 0;
        if readable {
            events |= libc::POLLIN | libc::POLLRDHUP;
        }
        if writable {
            events |= libc::POLLOUT;
        }
        #[expect(clippy::cast_sign_loss, reason = "a mask")]
        let events = i32::from(events) as u32;
        let poll = opcode::PollAdd::new(types::Fd(fd), events).multi(true).build();
        self.push(&poll.user_data(token))
    }

    /// Ends the watch of `token`, if there is one, at the next [`Self::submit`]. The watch may
    /// still report until [`Self::harvest`] has returned all completions of that moment.
    ///
    /// # Errors
    /// As [`Self::watch`].
    pub fn unwatch(&mut self, token: u64) -> Result<(), OsError> {
        // Not `PollRemove`, because it leaves a watch that is about to complete (`EALREADY`).
        self.push(&opcode::AsyncCancel::new(token).build().user_data(NOBODY))
    }

    /// Passes the requests made so far to the kernel: one system call if there are any.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`, `EAGAIN`, `EBUSY`). The next call passes the rest.
    pub fn submit(&mut self) -> Result<(), OsError> {
        while !self.ring.submission().is_empty() {
            self.kernel_calls += 1;
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(OsError::of_io("io_uring_enter")(error)),
            }
        }
        Ok(())
    }

    /// Passes the ring's completions to `ready`. Returns `false` if there were none and the kernel
    /// had none due. One system call if the ring is empty and the kernel has flagged due
    /// completions, otherwise none. Does not block or allocate; O(completions).
    #[inline]
    pub fn harvest(&mut self, mut ready: impl FnMut(Readiness)) -> bool {
        if self.drain(&mut ready) {
            return true;
        }
        let queue = self.ring.submission();
        if !queue.taskrun() && !queue.cq_overflow() {
            return false;
        }
        drop(queue);
        self.kernel_calls += 1;
        // Completions that the kernel cannot make now come with the next call: the flag stays.
        let _ = self.ring.submit();
        self.drain(&mut ready)
    }

    #[inline]
    fn drain(&mut self, ready: &mut impl FnMut(Readiness)) -> bool {
        let mut any = false;
        // Dropping the queue returns the entries to the kernel.
        for completion in self.ring.completion() {
            any = true;
            readiness(&completion).into_iter().for_each(&mut *ready);
        }
        any
    }

    /// Blocks until the ring holds a completion or until `deadline_ns` (`CLOCK_MONOTONIC`; `None`:
    /// without limit). Passes the requests made so far to the kernel. A signal may end the wait
    /// early. One system call, or none if the ring already holds a completion. Does not allocate.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`, `EAGAIN`, `EBUSY`).
    pub fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), OsError> {
        self.submit()?;
        if !self.ring.completion().is_empty() {
            return Ok(());
        }
        self.kernel_calls += 1;
        let waited = match deadline_ns {
            None => self.ring.submit_and_wait(1),
            Some(deadline_ns) => {
                let left_ns = deadline_ns.saturating_sub(monotonic_ns());
                let span = types::Timespec::from(std::time::Duration::from_nanos(left_ns));
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&span))
            }
        };
        match waited {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => Ok(()),
            Err(error) => Err(OsError::of_io("io_uring_enter")(error)),
        }
    }

    /// System calls made since [`PollRing::new`].
    pub fn kernel_calls(&self) -> u64 {
        self.kernel_calls
    }

    fn push(&mut self, request: &squeue::Entry) -> Result<(), OsError> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: a poll request and its cancellation contain only numbers. The kernel reads and
        // writes no memory of this process for them.
        unsafe { self.ring.submission().push(request) }
            .map_err(|_| OsError::new("io_uring_enter", libc::EBUSY))
    }
}

/// The report of a completion; `None` for an ignored one.
fn readiness(completion: &cqueue::Entry) -> Option<Readiness> {
    let (token, result) = (completion.user_data(), completion.result());
    if token == NOBODY {
        return None;
    }
    let ended = !cqueue::more(completion.flags());
    Some(match result {
        0.. => Readiness {
            token,
            readable: result & READABLE != 0,
            writable: result & WRITABLE != 0,
            after: if ended { After::Ended } else { After::Watched },
        },
        // No event came. A new watch shows whether the descriptor is ready.
        _ if matches!(-result, libc::ECANCELED | libc::ENOMEM | libc::EAGAIN | libc::EINTR) => {
            Readiness { token, readable: false, writable: false, after: After::Ended }
        }
        // EBADF: the next call on the descriptor returns the same.
        _ => Readiness { token, readable: true, writable: true, after: After::Never },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::io::Write;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::Duration;

    fn harvest(ring: &mut PollRing) -> Vec<Readiness> {
        let mut found = Vec::new();
        while ring.harvest(|readiness| found.push(readiness)) {}
        found
    }

    fn events(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect()
    }

    fn add_one(fd: &OwnedFd) {
        rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn one_call_makes_many_completions_and_an_idle_ring_needs_none() {
        let mut ring = PollRing::new(64).unwrap();
        let fds = events(4);
        for (token, fd) in (0..).zip(&fds) {
            ring.watch(fd.as_raw_fd(), true, false, token).unwrap();
        }
        ring.submit().unwrap();
        assert_eq!(harvest(&mut ring), []);
        let before = ring.kernel_calls();
        for round in 1..=5 {
            fds.iter().for_each(add_one);
            let found = harvest(&mut ring);
            let one =
                |token| Readiness { token, readable: true, writable: false, after: After::Watched };
            assert_eq!(found, [0, 1, 2, 3].map(one));
            assert_eq!(harvest(&mut ring), []);
            assert_eq!(ring.kernel_calls(), before + round);
        }
    }

    #[test]
    fn a_full_ring_loses_no_readiness() {
        let mut ring = PollRing::new(2).unwrap();
        let fds = events(100);
        for (token, fd) in (0..).zip(&fds) {
            ring.watch(fd.as_raw_fd(), true, false, token).unwrap();
        }
        ring.submit().unwrap();
        fds.iter().for_each(add_one);
        let found = harvest(&mut ring);
        for token in 0..100 {
            assert!(found.iter().any(|one| one.token == token && one.readable), "{token}");
        }
        // The watches that did not fit have ended and report it, so the test watches them again.
        let ended: Vec<u64> =
            found.iter().filter(|one| one.after == After::Ended).map(|one| one.token).collect();
        assert!(ended.len() >= 98, "{}", ended.len());
        for &token in &ended {
            let fd = &fds[usize::try_from(token).unwrap()];
            ring.watch(fd.as_raw_fd(), true, false, token).unwrap();
        }
        ring.submit().unwrap();
        let again = harvest(&mut ring);
        assert!(ended.iter().all(|token| again.iter().any(|one| one.token == *token)));
    }

    #[test]
    fn an_ended_watch_reports_nothing_and_releases_its_file() {
        let mut ring = PollRing::new(64).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        ring.watch(reader.as_raw_fd(), true, false, 7).unwrap();
        ring.submit().unwrap();
        drop(reader);
        // The watch holds the reading end open.
        writer.write_all(b"x").unwrap();
        assert!(harvest(&mut ring)[0].readable);
        ring.unwatch(7).unwrap();
        ring.submit().unwrap();
        assert!(harvest(&mut ring).iter().all(|one| !one.readable));
        // A child of another test has a copy of the reading end until it executes its program.
        let broken = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(1));
            writer.write_all(b"x").err().map(|error| error.kind())
        });
        let error = broken.take(5_000).flatten().next();
        assert_eq!(error, Some(std::io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn a_watch_with_a_pending_report_can_be_ended() {
        let mut ring = PollRing::new(64).unwrap();
        let fds = events(1);
        ring.watch(fds[0].as_raw_fd(), true, false, 7).unwrap();
        ring.submit().unwrap();
        add_one(&fds[0]);
        ring.unwatch(7).unwrap();
        ring.submit().unwrap();
        harvest(&mut ring);
        add_one(&fds[0]);
        assert_eq!(harvest(&mut ring), []);
    }

    #[test]
    fn a_closed_number_is_reported_and_not_watched() {
        let mut ring = PollRing::new(64).unwrap();
        ring.watch(1 << 30, true, false, 7).unwrap();
        ring.submit().unwrap();
        let never = Readiness { token: 7, readable: true, writable: true, after: After::Never };
        assert_eq!(harvest(&mut ring), [never]);
    }

    #[test]
    fn a_wait_ends_with_an_event_or_at_the_deadline() {
        let mut ring = PollRing::new(64).unwrap();
        let fds = events(1);
        ring.watch(fds[0].as_raw_fd(), true, false, 7).unwrap();
        let deadline_ns = monotonic_ns() + 2_000_000;
        while monotonic_ns() < deadline_ns {
            ring.wait(Some(deadline_ns)).unwrap();
        }
        assert_eq!(harvest(&mut ring), []);
        std::thread::scope(|threads| {
            threads.spawn(|| add_one(&fds[0]));
            let mut found = Vec::new();
            while found.is_empty() {
                ring.wait(None).unwrap();
                found = harvest(&mut ring);
            }
            assert_eq!(found[0].token, 7);
        });
    }
}
