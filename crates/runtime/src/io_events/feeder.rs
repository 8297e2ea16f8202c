//! Connects the page of I/O events to the kernel.
//!
//! The poller uses the feeder in the loop's thread, or the feeder thread does. The feeder arms the
//! interest that the page states, and raises the readiness that the kernel reports.
//!
//! ```text
//!         (1) stated                (2) after: Ended
//!   none ------------> watched ------------------------> refused
//!    ^                  |   ^                              |
//!    +---(3) stated ----+   +---(4) next pass, in order ---+
//! ```
//!
//! 1. Each interest has a generation of its own. The watch's token holds it, so completions of an
//!    older watch are recognised.
//! 2. The ring is full, or the kernel has no memory.
//! 3. The page states another generation, with or without interest.
//! 4. The feeder repeats requests that the kernel could not take. A new watch first checks for
//!    readiness, so no event is lost in between.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;

use upcall_shm::io_events::{IoService, READABLE, WRITABLE};
use upcall_sys::OsError;
use upcall_sys::io_epoll::PollSet;
use upcall_sys::io_uring::{After, PollRing, Readiness};

/// How many completions the ring has room for. Further ones cost more, but are not lost.
const COMPLETIONS: u32 = 32_768;

/// The kernel interface that reports readiness.
#[derive(Debug)]
pub(super) enum Source {
    Ring(Box<PollRing>),
    Set(PollSet),
}

impl Source {
    pub(super) fn ring() -> Result<Self, OsError> {
        PollRing::new(COMPLETIONS).map(|ring| Source::Ring(Box::new(ring)))
    }

    pub(super) fn epoll() -> Result<Self, OsError> {
        PollSet::new().map(Source::Set)
    }

    fn watch(&mut self, watch: Watch) -> Result<(), OsError> {
        let Watch { fd, bits, token } = watch;
        let (readable, writable) = (bits & READABLE != 0, bits & WRITABLE != 0);
        match self {
            Source::Ring(ring) => ring.watch(fd, readable, writable, token),
            Source::Set(set) => set.watch(fd, readable, writable, token),
        }
    }

    fn unwatch(&mut self, watch: Watch) -> Result<(), OsError> {
        match self {
            Source::Ring(ring) => ring.unwatch(watch.token),
            Source::Set(set) => {
                set.unwatch(watch.fd);
                Ok(())
            }
        }
    }

    fn submit(&mut self) -> Result<(), OsError> {
        match self {
            Source::Ring(ring) => ring.submit(),
            Source::Set(_) => Ok(()),
        }
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), OsError> {
        match self {
            Source::Ring(ring) => ring.wait(deadline_ns),
            Source::Set(set) => set.wait(deadline_ns),
        }
    }

    fn harvest(&mut self, ready: impl FnMut(Readiness)) -> bool {
        match self {
            Source::Ring(ring) => ring.harvest(ready),
            Source::Set(set) => set.harvest(ready),
        }
    }
}

/// One watch of the kernel.
#[derive(Clone, Copy, Debug)]
struct Watch {
    fd: RawFd,
    bits: u8,
    token: u64,
}

/// A request to the kernel.
#[derive(Clone, Copy, Debug)]
enum Request {
    Watch(Watch),
    Unwatch(Watch),
}

/// The interest that is armed for a descriptor.
#[derive(Clone, Copy, Debug, Default)]
struct Armed {
    generation: u32,
    bits: u8,
}

/// The token of the wake socket. No descriptor has it.
const WAKE_SOCKET: u64 = u64::MAX - 1;

fn token(number: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(number)
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Feeder<W> {
    page: IoService<W>,
    source: Source,
    /// Indexed by the descriptor's number.
    armed: Vec<Armed>,
    refused: Vec<Request>,
    wake_socket: Option<Watch>,
    /// An epoll set that asks the kernel whether it can report the readiness of a descriptor.
    /// Created at first use.
    probe: Option<PollSet>,
}

impl<W: AsRef<[AtomicU64]>> Feeder<W> {
    pub(super) fn new(page: IoService<W>, source: Source) -> Self {
        Feeder {
            page,
            source,
            armed: Vec::new(),
            refused: Vec::new(),
            wake_socket: None,
            probe: None,
        }
    }

    /// Watches `fd`: when it is readable, [`Self::wait`] returns and [`Self::harvest`] returns
    /// `true`.
    pub(super) fn watch_wake_socket(&mut self, fd: RawFd) {
        let wake_socket = Watch { fd, bits: READABLE, token: WAKE_SOCKET };
        self.wake_socket = Some(wake_socket);
        self.submit(Request::Watch(wake_socket));
        // A request that the kernel refuses now is repeated in the next pass.
        let _ = self.source.submit();
    }

    /// Gives the kernel the stated interest. Returns `false` if the kernel did not take all of it:
    /// then the caller calls again. May allocate.
    pub(super) fn apply(&mut self) -> bool {
        self.retry_refused();
        while let Some((number, stated)) = self.page.take_update() {
            let at = number as usize;
            if at >= self.armed.len() {
                self.armed.resize(at + 1, Armed::default());
            }
            let before = self.armed[at];
            if before.generation == stated.generation {
                continue;
            }
            self.armed[at] = Armed { generation: stated.generation, bits: stated.bits };
            if before.bits != 0 {
                self.submit(Request::Unwatch(watch(number, before)));
            }
            if stated.bits != 0 {
                self.submit(Request::Watch(watch(number, self.armed[at])));
            }
        }
        self.source.submit().is_ok() && self.refused.is_empty()
    }

    /// Raises the readiness that the kernel has reported. Makes a system call if the kernel has
    /// flagged that it holds more reports, and if watches have ended. Returns whether there was any
    /// report.
    #[inline]
    pub(super) fn harvest(&mut self) -> bool {
        let Feeder { page, source, armed, refused, probe, wake_socket } = self;
        let mut any = source.harvest(|ready| {
            if ready.token != WAKE_SOCKET {
                handle_readiness(ready, page, armed, refused, probe);
            } else if ready.after == After::Ended {
                refused.extend(wake_socket.map(Request::Watch));
            }
        });
        if !self.refused.is_empty() {
            self.retry_refused();
            any |= self.source.submit().is_ok();
        }
        any
    }

    /// Blocks until the kernel reports something, or until `deadline_ns`.
    pub(super) fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), OsError> {
        self.retry_refused();
        self.source.wait(deadline_ns)
    }

    /// The feeder's end of the page, with the loop's wake word.
    pub(super) fn page(&self) -> &IoService<W> {
        &self.page
    }

    pub(super) fn kernel_calls(&self) -> u64 {
        let source = match &self.source {
            Source::Ring(ring) => ring.kernel_calls(),
            Source::Set(set) => set.kernel_calls(),
        };
        source + self.probe.as_ref().map_or(0, PollSet::kernel_calls)
    }

    fn retry_refused(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        for request in std::mem::take(&mut self.refused) {
            // If the interest was stated again meanwhile, the newest statement counts.
            let stale = matches!(request, Request::Watch(watch) if !self.is_current(watch.token));
            if !stale {
                self.submit(request);
            }
        }
    }

    fn is_current(&self, token: u64) -> bool {
        token == WAKE_SOCKET || current(&self.armed, token).is_some()
    }

    fn submit(&mut self, request: Request) {
        let done = match request {
            // If an earlier request was refused, this one is too: requests must stay in order.
            _ if !self.refused.is_empty() => Err(()),
            Request::Watch(watch) => self.source.watch(watch).map_err(drop),
            Request::Unwatch(watch) => self.source.unwatch(watch).map_err(drop),
        };
        if done.is_err() {
            self.refused.push(request);
        }
    }
}

fn watch(number: u32, armed: Armed) -> Watch {
    let fd = RawFd::try_from(number).unwrap_or(-1); // below 65536
    Watch { fd, bits: armed.bits, token: token(number, armed.generation) }
}

/// The descriptor of `token`, and its armed interest. `None` if the token is of an older watch.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
#[inline]
fn current(armed: &[Armed], token: u64) -> Option<(u32, Armed)> {
    let (number, generation) = (token as u32, (token >> 32) as u32);
    let armed = armed.get(number as usize).copied()?;
    (armed.generation == generation && armed.bits != 0).then_some((number, armed))
}

/// Handles one report of the kernel.
#[inline]
fn handle_readiness<W: AsRef<[AtomicU64]>>(
    ready: Readiness,
    page: &mut IoService<W>,
    armed: &[Armed],
    refused: &mut Vec<Request>,
    probe: &mut Option<PollSet>,
) {
    let Some((number, armed)) = current(armed, ready.token) else {
        return; // of an older watch
    };
    let found =
        if ready.readable { READABLE } else { 0 } | if ready.writable { WRITABLE } else { 0 };
    page.raise(number, found & armed.bits);
    if ready.after == After::Ended {
        let watch = watch(number, armed);
        // A file that is always ready, such as a regular file, would be reported and would end its
        // watch again and again. Epoll refuses such a file, so it is not watched again.
        if probe.is_none() {
            *probe = PollSet::new().ok();
        }
        if probe.as_mut().is_none_or(|probe| probe.can_tell(watch.fd)) {
            refused.push(Request::Watch(watch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use upcall_shm::io_events::{Interest, IoClient, PAGE_WORDS};

    /// With sixty descriptors and a ring of four, most completions do not fit and end their watch.
    #[test]
    fn a_ring_that_is_far_too_small_loses_no_edge() {
        let words: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut client = IoClient::create(&words).unwrap();
        let source = Source::Ring(Box::new(PollRing::new(4).unwrap()));
        let mut feeder = Feeder::new(IoService::attach(&words).unwrap(), source);
        let mut pairs: Vec<_> = (0..60).map(|_| UnixStream::pair().unwrap()).collect();
        for (near, _) in &pairs {
            let number = u32::try_from(near.as_raw_fd()).unwrap();
            assert!(client.state(number, Interest { bits: READABLE, generation: 1 }));
        }
        assert!(feeder.apply());
        for round in 0..50 {
            pairs.iter_mut().for_each(|(_, far)| far.write_all(b"x").unwrap());
            let mut left: Vec<RawFd> = pairs.iter().map(|(near, _)| near.as_raw_fd()).collect();
            let mut passes = 0;
            while !left.is_empty() {
                feeder.harvest();
                while let Some((number, bits)) = client.take() {
                    assert_eq!(bits, READABLE);
                    left.retain(|&fd| fd.unsigned_abs() != number);
                }
                passes += 1;
                assert!(passes < 10_000, "round {round}: {left:?} were never reported");
            }
            pairs.iter_mut().for_each(|(near, _)| near.read_exact(&mut [0]).unwrap());
        }
    }
}
