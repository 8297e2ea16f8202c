//! Watches descriptors with epoll, with the interface of [`crate::io_uring`]. For machines that
//! refuse io_uring.
//!
//! The runtime's I/O service uses it. Watches are edge-triggered (`EPOLLET`), as multishot polls
//! are. See epoll(7).

use crate::OsError;
use crate::clock::{monotonic_ns, timespec};
use crate::io_uring::{After, Readiness};
use rustix::event::epoll;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// The most events of one system call.
const EVENTS_MAX: usize = 256;

/// A set of watches, until dropped.
#[derive(Debug)]
pub struct PollSet {
    epoll: OwnedFd,
    found: Vec<Readiness>,
    kernel_calls: u64,
}

impl PollSet {
    /// An empty set. One descriptor. Allocates.
    ///
    /// # Errors
    /// The kernel's error (`EMFILE`, `ENOMEM`).
    pub fn new() -> Result<Self, OsError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(OsError::of("epoll_create1"))?;
        Ok(PollSet { epoll, found: Vec::with_capacity(EVENTS_MAX), kernel_calls: 0 })
    }

    /// Watches `fd` under `token`, and replaces an earlier watch of this number. For a file that is
    /// always ready, and for a number that is not open, a [`Readiness`] reports it. One system
    /// call, or two if the number was watched already. May allocate.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`, `ENOSPC`).
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

    /// Ends the watch of this number. If the number was closed but the file stays open elsewhere
    /// (in a child, or by dup(2)), the kernel continues the watch and cannot stop it. The caller
    /// recognizes such reports by the token. One system call.
    pub fn unwatch(&mut self, fd: RawFd) {
        // A closed descriptor has already left the set.
        let _ = self.with(fd, |epoll, fd| epoll::delete(epoll, fd));
    }

    /// Whether the kernel can report when `fd` becomes ready: `false` for a file that always is
    /// (`EPERM`). The set stays as it was, without `fd`. Two system calls.
    pub fn can_tell(&mut self, fd: RawFd) -> bool {
        let nothing = (epoll::EventData::new_u64(0), epoll::EventFlags::empty());
        let added = self.with(fd, |epoll, fd| epoll::add(epoll, fd, nothing.0, nothing.1));
        if added.is_ok() {
            self.unwatch(fd);
        }
        added != Err(Errno::PERM)
    }

    /// Passes the found reports to `ready`; `false` if there were none. No system call.
    pub fn harvest(&mut self, ready: impl FnMut(Readiness)) -> bool {
        let any = !self.found.is_empty();
        self.found.drain(..).for_each(ready);
        any
    }

    /// Blocks until something is found or until `deadline_ns` (`CLOCK_MONOTONIC`; `None`: without
    /// limit; 0: does not block). A signal may end the wait early. One system call, or none if
    /// something was found already.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), OsError> {
        if !self.found.is_empty() {
            return Ok(());
        }
        let left = deadline_ns.map(|at_ns| {
            timespec(match at_ns {
                0 => 0, // no need to read the clock
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
        // SAFETY: the number is not -1. Only this call uses it and does not close it. If the number
        // is closed or another file by now, the kernel's answer shows it.
        call(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

fn readiness(event: epoll::Event) -> Readiness {
    // The kernel packs the structure, so copy it by value.
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
    fn a_watch_reports_at_each_edge_and_when_made_again() {
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
    fn an_unwatchable_descriptor_is_reported_once() {
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
