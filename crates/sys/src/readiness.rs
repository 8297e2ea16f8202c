//! Waits until descriptors become readable or writable.
//!
//! The runtime uses it for its tasks and for its I/O event service. A *watch* is one-shot: when its
//! descriptor is ready, one call of [`Readiness::wait`] reports the watch's number. The watch
//! reports nothing more until it is armed again. It holds a duplicate of the descriptor. So two
//! watches may watch one file, and the caller may close its descriptor. A watch is taken out before
//! its duplicate is closed. See epoll(7), "Questions and answers", for the reason.

use crate::OsError;
use crate::clock::{monotonic_ns, timespec};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The readiness that a watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// There is something to read, or the end of the stream.
    Readable,
    /// There is free space to write, or no reader any more.
    Writable,
    /// Either of them.
    Either,
}

/// The number that no watch may have. It ends the waiting.
const STOP: u64 = u64::MAX;
/// The most watches that one call reports.
const EVENTS_MAX: usize = 64;

/// A set of watches, and one thread that waits for them.
#[derive(Debug)]
pub struct Readiness {
    epoll: OwnedFd,
    stop: OwnedFd,
    /// The process that made it. A copy made by fork(2) shares the set, but has no thread that
    /// waits, so it must not change the set.
    process: u32,
}

impl Readiness {
    /// An empty set. Uses two descriptors.
    ///
    /// # Errors
    /// The kernel's error (`EMFILE`, `ENOMEM`).
    pub fn new() -> Result<Self, OsError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(OsError::of("epoll_create1"))?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(OsError::of("eventfd"))?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)
            .map_err(OsError::of("epoll_ctl(EPOLL_CTL_ADD)"))?;
        Ok(Readiness { epoll, stop, process: std::process::id() })
    }

    /// Blocks until watches are ready, and passes the number of each to `ready`. Returns `false`
    /// after [`Readiness::stop`]. One system call. Does not allocate.
    pub fn wait(&self, ready: impl FnMut(u64)) -> bool {
        self.wait_until(None, ready)
    }

    /// As [`Readiness::wait`], but at most until `deadline_ns` of `CLOCK_MONOTONIC`. A deadline
    /// that has passed asks what is ready now. Two system calls with a deadline.
    pub fn wait_until(&self, deadline_ns: Option<u64>, mut ready: impl FnMut(u64)) -> bool {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let span = deadline_ns.map(|_| {
            // epoll_wait(2) rounds up to milliseconds, poll does not. If poll fails, the set says
            // what is ready.
            let _ = wait_until(self.epoll.as_fd(), Direction::Readable, deadline_ns);
            timespec(0)
        });
        match epoll::wait(&self.epoll, &mut events, span.as_ref()) {
            Ok((events, _)) => {
                let mut goes_on = true;
                for event in events {
                    // The kernel packs the structure, so copy the field by value.
                    match event.data.u64() {
                        STOP => goes_on = false,
                        number => ready(number),
                    }
                }
                goes_on
            }
            // A signal came.
            Err(Errno::INTR) => true,
            // Other errors (a bad descriptor, a bad address) are impossible: this type owns both.
            Err(_) => false,
        }
    }

    /// Makes this and every later [`Readiness::wait`] return `false`. Without effect in a copy of
    /// the process. Two system calls.
    pub fn stop(&self) {
        if self.process != std::process::id() {
            return;
        }
        // The write fails only after 2^64 - 1 calls.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// One descriptor, watched for one direction until dropped.
#[derive(Debug)]
pub struct Watch {
    readiness: Arc<Readiness>,
    fd: OwnedFd,
    direction: Direction,
    number: u64,
}

impl Watch {
    /// Makes an armed watch. `number`, which must not be `u64::MAX`, is reported once when `fd` is
    /// ready, at once if it is already ready. Two system calls. Does not allocate.
    ///
    /// # Errors
    /// The kernel's error: `EMFILE`, or `EPERM` for a file that is always ready.
    pub fn new(
        readiness: &Arc<Readiness>,
        fd: BorrowedFd<'_>,
        direction: Direction,
        number: u64,
    ) -> Result<Self, OsError> {
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)
            .map_err(OsError::of("fcntl(F_DUPFD_CLOEXEC)"))?;
        epoll::add(&readiness.epoll, &fd, epoll::EventData::new_u64(number), flags(direction))
            .map_err(OsError::of("epoll_ctl(EPOLL_CTL_ADD)"))?;
        Ok(Watch { readiness: readiness.clone(), fd, direction, number })
    }

    /// Arms the watch again after its number was reported. One system call.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`).
    pub fn arm(&self) -> Result<(), OsError> {
        let data = epoll::EventData::new_u64(self.number);
        epoll::modify(&self.readiness.epoll, &self.fd, data, flags(self.direction))
            .map_err(OsError::of("epoll_ctl(EPOLL_CTL_MOD)"))
    }

    /// Whether the descriptor is ready now. One system call. Does not block.
    ///
    /// # Errors
    /// As [`is_ready`].
    pub fn is_ready(&self) -> Result<bool, OsError> {
        is_ready(self.fd.as_fd(), self.direction)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.readiness.process != std::process::id() {
            return;
        }
        // The watch is in the set. If it stayed there, the other descriptors of the file would keep
        // it alive.
        let _ = epoll::delete(&self.readiness.epoll, &self.fd);
    }
}

fn flags(direction: Direction) -> epoll::EventFlags {
    let what = match direction {
        Direction::Readable => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Direction::Writable => epoll::EventFlags::OUT,
        Direction::Either => {
            epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::OUT
        }
    };
    what | epoll::EventFlags::ONESHOT
}

/// Whether `fd` is ready now. A failed or closed descriptor counts as ready, because a call on it
/// would return that at once. One system call. Does not block or allocate.
///
/// # Errors
/// The kernel's error (`ENOMEM`).
pub fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> Result<bool, OsError> {
    wait_until(fd, direction, Some(0))
}

/// Blocks until `fd` is ready in the sense of [`is_ready`], or until `deadline_ns`
/// (`CLOCK_MONOTONIC`; `None`: without limit). Returns whether it is ready. Signals do not end the
/// wait early. For a thread that waits for one descriptor (poll(2)).
///
/// # Errors
/// The kernel's error (`ENOMEM`).
pub fn wait_until(
    fd: BorrowedFd<'_>,
    direction: Direction,
    deadline_ns: Option<u64>,
) -> Result<bool, OsError> {
    let what = match direction {
        Direction::Readable => PollFlags::IN | PollFlags::RDHUP,
        Direction::Writable => PollFlags::OUT,
        Direction::Either => PollFlags::IN | PollFlags::RDHUP | PollFlags::OUT,
    };
    let mut fds = [PollFd::from_borrowed_fd(fd, what)];
    loop {
        // poll takes a duration, so it is computed again after a signal.
        let left = deadline_ns.map(|at_ns| match at_ns {
            0 => timespec(0), // no need to read the clock
            at_ns => timespec(at_ns.saturating_sub(monotonic_ns())),
        });
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(OsError::of("poll")(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::forked;
    use crate::process::Exit;
    use std::io::{Read, Write};
    use std::mem::ManuallyDrop;

    #[test]
    fn a_watch_reports_once_each_time_it_is_armed() {
        let readiness = Arc::new(Readiness::new().unwrap());
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let first = Watch::new(&readiness, reader.as_fd(), Direction::Readable, 7).unwrap();
        let second = Watch::new(&readiness, reader.as_fd(), Direction::Readable, 8).unwrap();
        assert!(!first.is_ready().unwrap());
        writer.write_all(b"x").unwrap();
        let mut said = Vec::new();
        while said.len() < 2 {
            assert!(readiness.wait(|number| said.push(number)));
        }
        said.sort_unstable();
        assert_eq!(said, [7, 8]);
        assert!(first.is_ready().unwrap() && second.is_ready().unwrap());
        // Both are still ready, but only the re-armed watch reports again.
        second.arm().unwrap();
        let mut again = Vec::new();
        assert!(readiness.wait(|number| again.push(number)));
        assert_eq!(again, [8]);
        reader.read_exact(&mut [0]).unwrap();
        assert!(!first.is_ready().unwrap());
    }

    #[test]
    fn a_watch_of_either_direction_reports_the_first_that_is_there() {
        let readiness = Arc::new(Readiness::new().unwrap());
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        while (&near).write(&[0; 4096]).is_ok() {} // until it is full
        let watch = Watch::new(&readiness, near.as_fd(), Direction::Either, 7).unwrap();
        assert!(!watch.is_ready().unwrap());
        far.write_all(b"x").unwrap();
        let mut said = Vec::new();
        assert!(readiness.wait(|number| said.push(number)));
        assert!(watch.is_ready().unwrap());
        assert_eq!((&near).read(&mut [0]).unwrap(), 1);
        assert!(!watch.is_ready().unwrap());
        while far.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
        watch.arm().unwrap();
        assert!(readiness.wait(|number| said.push(number)));
        assert_eq!(said, [7, 7]);
    }

    #[test]
    fn a_dropped_watch_reports_nothing_and_stop_ends_the_wait() {
        let readiness = Arc::new(Readiness::new().unwrap());
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(Watch::new(&readiness, reader.as_fd(), Direction::Readable, 7).unwrap());
        writer.write_all(b"x").unwrap();
        readiness.stop();
        assert!(!readiness.wait(|number| panic!("{number}")));
        assert!(!readiness.wait(|number| panic!("{number}")));
    }

    /// Before, the copy took the watch out of the set, which both processes share, and ended the
    /// waiting of the original.
    #[test]
    fn a_copy_of_the_process_leaves_watches_and_waiting_to_the_original() {
        let readiness = Arc::new(Readiness::new().unwrap());
        let (reader, mut writer) = std::io::pipe().unwrap();
        let watch = Watch::new(&readiness, reader.as_fd(), Direction::Readable, 7).unwrap();
        let mut watch = ManuallyDrop::new(watch);
        let (copied, stopped) = (&mut watch, &readiness);
        // SAFETY: the copy makes only system calls. The original keeps `readiness`, so its count
        // does not get to 0, and nothing is freed.
        let copy = unsafe {
            forked(|| {
                ManuallyDrop::drop(copied);
                stopped.stop();
                0
            })
        };
        assert_eq!(copy.wait(), Exit::Code(0));
        writer.write_all(b"x").unwrap();
        let mut said = Vec::new();
        assert!(readiness.wait_until(Some(monotonic_ns()), |number| said.push(number)));
        assert_eq!(said, [7]);
        drop(ManuallyDrop::into_inner(watch));
        readiness.stop();
        assert!(!readiness.wait(|number| panic!("{number}")));
    }

    #[test]
    fn a_file_that_is_always_ready_needs_no_watch() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(is_ready(file.as_fd(), Direction::Readable).unwrap());
        let readiness = Arc::new(Readiness::new().unwrap());
        let error = Watch::new(&readiness, file.as_fd(), Direction::Readable, 1).unwrap_err();
        assert!(error.is_permission());
    }

    #[test]
    fn a_wait_ends_when_the_descriptor_is_ready_or_at_the_deadline() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let deadline_ns = monotonic_ns() + 2_000_000;
        let waited = wait_until(reader.as_fd(), Direction::Readable, Some(deadline_ns));
        assert_eq!(waited, Ok(false));
        assert!(monotonic_ns() >= deadline_ns);
        assert_eq!(wait_until(writer.as_fd(), Direction::Writable, None), Ok(true));
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| wait_until(reader.as_fd(), Direction::Readable, None));
            writer.write_all(b"x").unwrap();
            assert_eq!(waiter.join().unwrap(), Ok(true));
        });
    }
}
