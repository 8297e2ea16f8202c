//! Watching descriptors with epoll, in the same words as [`crate::io_uring`]: for where that is refused.
//!
//! Called by the runtime's I/O service. Watches are edge-triggered (`EPOLLET`), as multishot polls are.
//! See epoll(7).

use crate::OsError;
use crate::clock::{monotonic_ns, timespec};
use crate::io_uring::{After, Readiness};
use rustix::event::epoll;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Events of one system call at most.
const EVENTS_MAX: usize = 256;

/// A set of watches, until dropped.
#[derive(Debug)]
pub struct PollSet {
    epoll: OwnedFd,
    found: Vec<Readiness>,
    kernel_calls: u64,
}

impl PollSet {
    /// An empty set. One descriptor; allocates.
    ///
    /// # Errors
    /// What the kernel said (`EMFILE`, `ENOMEM`).
    pub fn new() -> Result<Self, OsError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(OsError::of("epoll_create1"))?;
        Ok(PollSet { epoll, found: Vec::with_capacity(EVENTS_MAX), kernel_calls: 0 })
    }

    /// Watches `fd` under `token`, in place of what was watched under this number. A file that
    /// is always ready, and a number that is not open, say so by a [`Readiness`]. One system call,
    /// two if the number was watched already; may allocate.
    ///
    /// # Errors
    /// What the kernel said (`ENOMEM`, `ENOSPC`).
    pub fn watch(
        &mut self,
        fd: RawFd,
        readable: bool,
        writable: bool,
        token: u64,
    ) -> Result<(), OsError> {
        let mut flags = epoll::EventFlags::ET;
        if readable {
            flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        }
        if writable {
            flags |= epoll::EventFlags::OUT;
        }
        let data = epoll::EventData::new_u64(token);
        let watched = self.with(fd, |epoll, fd| match epoll::add(epoll, fd, data, flags) {
            Err(Errno::EXIST) => epoll::modify(epoll, fd, data, flags),
            other => other,
        });
        match watched {
            Ok(()) => Ok(()),
            Err(Errno::PERM | Errno::BADF | Errno::LOOP | Errno::INVAL) => {
                let after = After::Never;
                self.found.push(Readiness { token, readable: true, writable: true, after });
                Ok(())
            }
            Err(errno) => Err(OsError::of("epoll_ctl(EPOLL_CTL_ADD)")(errno)),
        }
    }

    /// Ends what is watched under this number. If it was closed and the file lives on elsewhere (in a
    /// child, by dup(2)), the kernel goes on and cannot be told otherwise: the token tells. One system call.
    pub fn unwatch(&mut self, fd: RawFd) {
        // Closed: then it is out already.
        let _ = self.with(fd, |epoll, fd| epoll::delete(epoll, fd));
    }

    /// Whether the kernel can tell when `fd` becomes ready: `false` for a file that always is
    /// (`EPERM`). The set is as before, `fd` not in it. Two system calls.
    pub fn can_tell(&mut self, fd: RawFd) -> bool {
        let nothing = (epoll::EventData::new_u64(0), epoll::EventFlags::empty());
        let added = self.with(fd, |epoll, fd| epoll::add(epoll, fd, nothing.0, nothing.1));
        if added.is_ok() {
            self.unwatch(fd);
        }
        added != Err(Errno::PERM)
    }

    /// Says what was found; `false`: nothing. No system call.
    pub fn harvest(&mut self, ready: impl FnMut(Readiness)) -> bool {
        let any = !self.found.is_empty();
        self.found.drain(..).for_each(ready);
        any
    }

    /// Blocks until something is found or until `deadline_ns` (`CLOCK_MONOTONIC`; `None`: for as
    /// long as it takes; 0: not at all). A signal may cut it short. One system call, none if something
    /// was found already.
    ///
    /// # Errors
    /// None that stock Linux is known to return.
    pub fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), OsError> {
        if !self.found.is_empty() {
            return Ok(());
        }
        let left = deadline_ns.map(|at_ns| {
            timespec(match at_ns {
                0 => 0, // the clock need not be read
                at_ns => at_ns.saturating_sub(monotonic_ns()),
            })
        });
        self.kernel_calls += 1;
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut events, left.as_ref()) {
            Ok((events, _)) => {
                self.found.extend(events.iter().map(|event| readiness(*event)));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(OsError::of("epoll_pwait2")(errno)),
        }
    }

    /// System calls made since [`PollSet::new`].
    pub fn kernel_calls(&self) -> u64 {
        self.kernel_calls
    }

    fn with(
        &mut self,
        fd: RawFd,
        call: impl Fn(&OwnedFd, BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        self.kernel_calls += 1;
        // SAFETY: not -1. It is used for this call alone, which does not close it; that it may be
        // closed or another file by now is what the kernel's answer is for.
        call(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

fn readiness(event: epoll::Event) -> Readiness {
    // The kernel packs the structure: by value.
    let (flags, data) = (event.flags, event.data);
    let both = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
    let read = both | epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    Readiness {
        token: data.u64(),
        readable: flags.intersects(read),
        writable: flags.intersects(both | epoll::EventFlags::OUT),
        after: After::Watched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    fn harvest(set: &mut PollSet) -> Vec<Readiness> {
        let mut found = Vec::new();
        set.wait(Some(0)).unwrap();
        set.harvest(|readiness| found.push(readiness));
        found
    }

    #[test]
    fn a_watch_speaks_at_each_edge_and_when_made_anew() {
        let mut set = PollSet::new().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        set.watch(reader.as_raw_fd(), true, false, 7).unwrap();
        assert_eq!(harvest(&mut set), []);
        let ready =
            |token| Readiness { token, readable: true, writable: false, after: After::Watched };
        writer.write_all(b"x").unwrap();
        assert_eq!(harvest(&mut set), [ready(7)]);
        assert_eq!(harvest(&mut set), []);
        set.watch(reader.as_raw_fd(), true, false, 8).unwrap();
        assert_eq!(harvest(&mut set), [ready(8)]);
        set.unwatch(reader.as_raw_fd());
        writer.write_all(b"x").unwrap();
        assert_eq!(harvest(&mut set), []);
    }

    #[test]
    fn what_cannot_be_watched_is_told_once() {
        let mut set = PollSet::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for fd in [file.as_raw_fd(), 1 << 30, -1] {
            set.watch(fd, true, false, 7).unwrap();
            let never = Readiness { token: 7, readable: true, writable: true, after: After::Never };
            assert_eq!(harvest(&mut set), [never]);
            assert_eq!(harvest(&mut set), []);
            set.unwatch(fd);
        }
    }
}
