//! Waiting until descriptors become readable or writable.
//!
//! Called by the runtime for its tasks. A *watch* asks once: when its
//! descriptor is ready, one call of [`Readiness::wait`] says the watch's number,
//! and then it is silent until it is armed again. A watch holds a descriptor of
//! its own for the same open file, so two may watch one file, and the caller may
//! close its own meanwhile. See epoll(7), and there "Questions and answers" for why
//! a watch is taken out before its descriptor is closed.

use crate::OsError;
use crate::clock::{monotonic_ns, timespec};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a descriptor is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// There is something to read, or the end has come.
    Readable,
    /// There is room to write, or nobody reads any more.
    Writable,
}

/// The number that no watch may have: it ends the waiting.
const STOP: u64 = u64::MAX;
/// Watches that one call reports at most.
const EVENTS_MAX: usize = 64;

/// A set of watches, and one thread that waits for them.
#[derive(Debug)]
pub struct Readiness {
    epoll: OwnedFd,
    stop: OwnedFd,
}

impl Readiness {
    /// An empty set. Two descriptors.
    ///
    /// # Errors
    /// What the kernel said (`EMFILE`, `ENOMEM`).
    pub fn new() -> Result<Self, OsError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(OsError::of("epoll_create1"))?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(OsError::of("eventfd"))?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)
            .map_err(OsError::of("epoll_ctl(EPOLL_CTL_ADD)"))?;
        Ok(Readiness { epoll, stop })
    }

    /// Blocks until watches are ready, and says the number of each; `false` when
    /// [`Readiness::stop`] was called. One system call; does not allocate.
    pub fn wait(&self, mut ready: impl FnMut(u64)) -> bool {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut events, None) {
            Ok((events, _)) => {
                let mut goes_on = true;
                for event in events {
                    // The kernel packs the structure: by value.
                    match event.data.u64() {
                        STOP => goes_on = false,
                        number => ready(number),
                    }
                }
                goes_on
            }
            // A signal.
            Err(Errno::INTR) => true,
            // The rest (a bad descriptor, a bad address) cannot be: both are ours.
            Err(_) => false,
        }
    }

    /// Makes this and every later [`Readiness::wait`] return `false`.
    pub fn stop(&self) {
        // It fails only if it was done 2^64 - 1 times before.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// One descriptor that is watched for one direction, until dropped.
#[derive(Debug)]
pub struct Watch {
    readiness: Arc<Readiness>,
    fd: OwnedFd,
    direction: Direction,
    number: u64,
}

impl Watch {
    /// Armed: `number`, not `u64::MAX`, is said once when `fd` is ready, at once if
    /// it is already. Two system calls; does not allocate.
    ///
    /// # Errors
    /// What the kernel said: `EMFILE`, or `EPERM` for a file that is always ready.
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

    /// Arms it again after its number was said. One system call.
    ///
    /// # Errors
    /// What the kernel said (`ENOMEM`).
    pub fn arm(&self) -> Result<(), OsError> {
        let data = epoll::EventData::new_u64(self.number);
        epoll::modify(&self.readiness.epoll, &self.fd, data, flags(self.direction))
            .map_err(OsError::of("epoll_ctl(EPOLL_CTL_MOD)"))
    }

    /// Whether it is ready now. One system call; does not block.
    ///
    /// # Errors
    /// As [`is_ready`].
    pub fn is_ready(&self) -> Result<bool, OsError> {
        is_ready(self.fd.as_fd(), self.direction)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It is in the set. Were it left there, the other descriptors of the file
        // would keep it alive.
        let _ = epoll::delete(&self.readiness.epoll, &self.fd);
    }
}

fn flags(direction: Direction) -> epoll::EventFlags {
    let what = match direction {
        Direction::Readable => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Direction::Writable => epoll::EventFlags::OUT,
    };
    what | epoll::EventFlags::ONESHOT
}

/// Whether `fd` is ready now: also if it has failed or hung up, for then a call
/// would say so and not block. One system call; does not block or allocate.
///
/// # Errors
/// What the kernel said (`ENOMEM`).
pub fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> Result<bool, OsError> {
    wait_until(fd, direction, Some(0))
}

/// Blocks until `fd` is ready as [`is_ready`] means it, or until `deadline_ns`
/// (`CLOCK_MONOTONIC`; `None`: for as long as it takes); says whether it is. Signals do
/// not cut it short. For a thread that waits for one descriptor (poll(2)).
///
/// # Errors
/// What the kernel said (`ENOMEM`).
pub fn wait_until(
    fd: BorrowedFd<'_>,
    direction: Direction,
    deadline_ns: Option<u64>,
) -> Result<bool, OsError> {
    let what = match direction {
        Direction::Readable => PollFlags::IN | PollFlags::RDHUP,
        Direction::Writable => PollFlags::OUT,
    };
    let mut fds = [PollFd::from_borrowed_fd(fd, what)];
    loop {
        // poll takes a length of time, so it is worked out again after a signal.
        let left = deadline_ns.map(|at_ns| match at_ns {
            0 => timespec(0), // the clock need not be read
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
    use std::io::{Read, Write};

    #[test]
    fn a_watch_speaks_once_each_time_it_is_armed() {
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
        // Still ready, but only who is armed again speaks again.
        second.arm().unwrap();
        let mut again = Vec::new();
        assert!(readiness.wait(|number| again.push(number)));
        assert_eq!(again, [8]);
        reader.read_exact(&mut [0]).unwrap();
        assert!(!first.is_ready().unwrap());
    }

    #[test]
    fn a_dropped_watch_is_silent_and_stop_ends_the_waiting() {
        let readiness = Arc::new(Readiness::new().unwrap());
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(Watch::new(&readiness, reader.as_fd(), Direction::Readable, 7).unwrap());
        writer.write_all(b"x").unwrap();
        readiness.stop();
        assert!(!readiness.wait(|number| panic!("{number}")));
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
    fn a_wait_ends_when_it_is_ready_or_at_the_deadline() {
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
