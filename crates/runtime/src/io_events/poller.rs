//! The poller: reports to an event loop which of its descriptors are ready.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_core::time::Instant;
use upcall_shm::io_events::{
    DESCRIPTORS_MAX, Interest as PageInterest, IoClient, IoService, PAGE_BYTES, READABLE, WRITABLE,
};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::{OsError, futex};

use super::errors::{InterestError, PollerError};
use super::event::{Feed, Interest, IoEvent};
use super::feeder::{Feeder, Source};
use super::feeder_thread::FeederThread;
use super::memory::Memory;
use super::waker::{WakeReceiver, Waker};
use crate::clock;

/// The most events of one [`Poller::wait_many`].
const EVENTS_MAX: usize = 256;

/// The interest of the loop in a descriptor.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: usize,
    generation: u32,
    added: bool,
}

#[derive(Debug)]
enum Feeding {
    Loop(Box<Feeder<Memory>>),
    Thread(FeederThread),
}

/// Reports which of many descriptors are ready. An event loop has one. A poller stays on the thread
/// that created it, because io_uring serves one thread only. Other threads use a [`Waker`].
/// Dropping the poller ends all watches.
///
/// The interface is much like that of the crate `polling`. `add` and `modify` take a key and an
/// interest. [`Poller::wait_many`] is `wait` with a deadline, and [`Waker::wake`] is `notify`.
/// Events are edges, as with `PollMode::Edge` and in `mio`.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use std::collections::HashMap;
/// use std::io::{ErrorKind, Read, Write};
/// use std::net::{TcpListener, TcpStream};
/// use upcall::io_events::{Interest, Poller};
///
/// const LISTENER: usize = 0;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// listener.set_nonblocking(true)?;
/// let address = listener.local_addr()?;
/// let mut poller = Poller::new()?;
/// poller.add(&listener, LISTENER, Interest::Readable)?;
/// let waker = poller.waker()?;
/// let client = std::thread::spawn(move || -> std::io::Result<[u8; 5]> {
///     let (mut stream, mut echo) = (TcpStream::connect(address)?, [0; 5]);
///     stream.write_all(b"hello")?;
///     stream.read_exact(&mut echo)?;
///     waker.wake(); // ends the loop
///     Ok(echo)
/// });
///
/// let (mut connections, mut events) = (HashMap::new(), Vec::new());
/// let mut bytes = [0; 1024];
/// while poller.wait_many(&mut events, None)? > 0 {
///     for event in &events {
///         if event.key == LISTENER {
///             // Until the call would block: only then another event is promised.
///             while let Ok((stream, _)) = listener.accept() {
///                 stream.set_nonblocking(true)?;
///                 let key = LISTENER + 1 + connections.len();
///                 poller.add(&stream, key, Interest::Readable)?;
///                 connections.insert(key, stream);
///             }
///             continue;
///         }
///         let Some(stream) = connections.get_mut(&event.key) else { continue };
///         loop {
///             match stream.read(&mut bytes) {
///                 Ok(len) if len > 0 => stream.write_all(&bytes[..len])?,
///                 Err(error) if error.kind() == ErrorKind::WouldBlock => break,
///                 _ => {
///                     poller.delete(&*stream)?; // before it is closed
///                     connections.remove(&event.key);
///                     break;
///                 }
///             }
///         }
///     }
/// }
/// assert_eq!(&client.join().unwrap()?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Poller {
    client: IoClient<Memory>,
    feeding: Feeding,
    /// Indexed by the descriptor's number.
    entries: Vec<Entry>,
    /// Whether interest changed since the feeder was told.
    changed: bool,
    /// Receives from wakers. `None` until the first waker.
    receiver: Option<WakeReceiver>,
    /// Whether a waker has woken the poller, and no wait has returned for it yet.
    notified: bool,
}

impl Poller {
    /// Creates a poller with [`Feed::Ring`], or with [`Feed::EpollThread`] if io_uring is refused.
    /// Takes two descriptors and 548 KiB, or five descriptors and a thread. Allocates.
    ///
    /// # Errors
    /// There is no memory, or there are no descriptors.
    pub fn new() -> Result<Self, PollerError> {
        Poller::fed_by(Feed::Ring).or_else(|_| Poller::fed_by(Feed::EpollThread))
    }

    /// Creates a poller with this feed only.
    ///
    /// # Errors
    /// As [`Poller::new`]; io_uring is refused (`EPERM`, `ENOSYS`, `EINVAL` before Linux 6.1).
    pub fn fed_by(feed: Feed) -> Result<Self, PollerError> {
        let memory = SharedMapping::create("upcall-io-events", PAGE_BYTES);
        let memory = Memory(Arc::new(memory.map_err(PollerError::Memory)?));
        let client = IoClient::create(memory.clone()).map_err(PollerError::Layout)?;
        let page = IoService::attach(memory).map_err(PollerError::Layout)?;
        let feeding = match feed {
            Feed::Ring => {
                Source::ring().map(|source| Feeding::Loop(Box::new(Feeder::new(page, source))))
            }
            Feed::RingThread => FeederThread::start(page, Source::ring).map(Feeding::Thread),
            Feed::EpollThread => FeederThread::start(page, Source::epoll).map(Feeding::Thread),
        };
        let feeding = feeding.map_err(PollerError::Os)?;
        let entries = Vec::new();
        Ok(Poller { client, feeding, entries, changed: false, receiver: None, notified: false })
    }

    /// Watches `fd` under `key` from the next [`Poller::try_next`] or [`Poller::wait`] on. The key
    /// may be any number. A descriptor that is ready already is reported at once. Replaces a
    /// descriptor that was added under the same number. No system call here; may allocate.
    ///
    /// # Errors
    /// [`InterestError::TooLarge`]: 65,536 or more.
    pub fn add(
        &mut self,
        fd: impl AsFd,
        key: usize,
        interest: Interest,
    ) -> Result<(), InterestError> {
        let found = fd.as_fd().as_raw_fd();
        let number =
            usize::try_from(found).ok().filter(|&number| number < DESCRIPTORS_MAX as usize);
        let number = number.ok_or(InterestError::TooLarge { found })?;
        if number >= self.entries.len() {
            self.entries.resize(number + 1, Entry::default());
        }
        self.entries[number].key = key;
        self.state(number, interest.bits());
        Ok(())
    }

    /// Changes the key or interest of a descriptor that was added. Reports again if the descriptor
    /// is still ready. No system call here; does not allocate.
    ///
    /// # Errors
    /// [`InterestError::NotAdded`].
    pub fn modify(
        &mut self,
        fd: impl AsFd,
        key: usize,
        interest: Interest,
    ) -> Result<(), InterestError> {
        let number = self.added(fd)?;
        self.entries[number].key = key;
        self.state(number, interest.bits());
        Ok(())
    }

    /// Ends the watch of `fd`, which may be closed now. No event of `fd` follows. No system call
    /// here; does not allocate.
    ///
    /// # Errors
    /// [`InterestError::NotAdded`].
    pub fn delete(&mut self, fd: impl AsFd) -> Result<(), InterestError> {
        let number = self.added(fd)?;
        self.state(number, 0);
        Ok(())
    }

    /// The next event, if there is one by now. Does not block or allocate. Makes no system call if
    /// nothing has come, and none for a single readiness. With [`Feed::Ring`] it makes one for each
    /// 20 events that came together (the kernel's limit), after the known ones are taken. All
    /// changes of interest since the last call cost one more together. Two loads if nothing has
    /// come, else O(words touched).
    #[inline]
    pub fn try_next(&mut self) -> Option<IoEvent> {
        if self.changed {
            self.flush();
        }
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            let found = match &mut self.feeding {
                Feeding::Loop(feeder) => feeder.harvest(),
                Feeding::Thread(_) => false,
            };
            if !found {
                return None;
            }
        }
    }

    /// A waker, with which other threads end a wait. Takes two descriptors, once. Allocates.
    ///
    /// # Errors
    /// [`PollerError::Os`]: `EMFILE`; `EBADF` if no descriptor below 65,536 is free.
    pub fn waker(&mut self) -> Result<Waker, PollerError> {
        if self.receiver.is_none() {
            let receiver = WakeReceiver::new().map_err(PollerError::Os)?;
            // The key does not matter: `take` compares the descriptor.
            self.add(&receiver, 0, Interest::Readable)
                .map_err(|_| PollerError::Os(OsError::new("socketpair", 9)))?;
            self.receiver = Some(receiver);
        }
        // The receiver exists by now.
        let receiver =
            self.receiver.as_ref().ok_or(PollerError::Os(OsError::new("socketpair", 0)))?;
        Ok(receiver.waker())
    }

    /// Replaces the contents of `events` by the events that have come, and returns their number.
    /// Blocks until there is an event, a [`Waker`] wakes the poller, or `deadline` has come. `None`
    /// is no limit. Takes at most 256 events, so that the loop can handle them soon. The next call
    /// takes the others. Allocates until `events` has room for 256.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    pub fn wait_many(
        &mut self,
        events: &mut Vec<IoEvent>,
        deadline: Option<Instant>,
    ) -> Result<usize, OsError> {
        events.clear();
        if let Some(first) = self.wait(deadline)? {
            events.push(first);
            events.extend(std::iter::from_fn(|| self.try_next()).take(EVENTS_MAX - 1));
        }
        Ok(events.len())
    }

    /// The next event. Blocks until there is one, a [`Waker`] wakes the poller, or `deadline` has
    /// come. `None` is no limit. Returns `None` when a waker has woken the poller, and at the
    /// deadline. Makes at most one system call beyond those of [`Poller::try_next`].
    ///
    /// # Errors
    /// The error of the kernel (`ENOMEM`, `EAGAIN`). No event is lost: the program may call again.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<IoEvent>, OsError> {
        let deadline_ns = deadline.map(Instant::as_nanos);
        loop {
            if let Feeding::Thread(_) = self.feeding {
                // Ends the wait before it takes events. If the feeder raises an event later, it
                // notifies again.
                self.client.wake_word().finish_wait();
            }
            if let Some(event) = self.try_next() {
                return Ok(Some(event));
            }
            if std::mem::take(&mut self.notified) {
                return Ok(None);
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return Ok(None);
            }
            match &mut self.feeding {
                Feeding::Loop(feeder) => feeder.wait(deadline_ns)?,
                Feeding::Thread(_) => {
                    if self.client.wake_word().prepare_wait() {
                        // The loop looks at everything again, whatever ends the
                        // wait.
                        futex::wait_shared_until(
                            self.client.wake_word().word(),
                            ASLEEP,
                            deadline_ns,
                        );
                    }
                }
            }
        }
    }

    /// Ends a wait. A caller that sleeps on [`Poller::wake_word`] and other words calls this before
    /// it takes the events.
    pub(crate) fn finish_wait(&mut self) {
        if let Feeding::Thread(_) = self.feeding {
            self.client.wake_word().finish_wait();
        }
    }

    /// The word that changes when an event comes, and its value until then: the caller may sleep on
    /// both. `None` if an event has come. Also `None` if the loop's own thread feeds the poller,
    /// because that thread must sleep in the kernel interface.
    pub(crate) fn wake_word(&mut self) -> Option<(&AtomicU64, u32)> {
        let quiet =
            matches!(self.feeding, Feeding::Thread(_)) && self.client.wake_word().prepare_wait();
        quiet.then(|| (self.client.wake_word().word(), ASLEEP))
    }

    /// How many descriptors are known to be ready: the paper's `flag`. Two loads. A hint only:
    /// [`Poller::try_next`] looks further.
    pub fn active(&self) -> u64 {
        self.client.active()
    }

    /// How many system calls the loop's own thread made through this poller, not counting futex
    /// sleeps. Tests and benches use it.
    pub fn kernel_calls(&self) -> u64 {
        match &self.feeding {
            Feeding::Loop(feeder) => feeder.kernel_calls(),
            Feeding::Thread(thread) => thread.wake_calls(),
        }
    }

    fn added(&self, fd: impl AsFd) -> Result<usize, InterestError> {
        let found = fd.as_fd().as_raw_fd();
        usize::try_from(found)
            .ok()
            .filter(|&number| self.entries.get(number).is_some_and(|entry| entry.added))
            .ok_or(InterestError::NotAdded { found })
    }

    /// States the interest in a descriptor that has an entry.
    fn state(&mut self, number: usize, bits: u8) {
        let entry = &mut self.entries[number];
        // Generation 0 means that there was no interest yet. The number may wrap: a watch that is
        // 2^32 - 1 registrations old has long ended.
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.added = bits != 0;
        let stated = PageInterest { bits, generation: entry.generation };
        // The number is below 65,536, or there would be no entry.
        self.changed |= u32::try_from(number).is_ok_and(|number| self.client.state(number, stated));
    }

    #[inline]
    fn take(&mut self) -> Option<IoEvent> {
        loop {
            let (number, bits) = self.client.take()?;
            if let Some(receiver) =
                self.receiver.as_mut().filter(|receiver| receiver.number() == number)
            {
                receiver.drain();
                self.notified = true;
                continue;
            }
            // A feeder that has not seen the deletion yet may report a deleted descriptor.
            if let Some(entry) = self.entries.get(number as usize).filter(|entry| entry.added) {
                let (readable, writable) = (bits & READABLE != 0, bits & WRITABLE != 0);
                return Some(IoEvent { key: entry.key, readable, writable });
            }
        }
    }

    #[cold]
    fn flush(&mut self) {
        match &mut self.feeding {
            Feeding::Loop(feeder) => self.changed = !feeder.apply(),
            Feeding::Thread(thread) => {
                thread.wake();
                self.changed = false;
            }
        }
    }
}
