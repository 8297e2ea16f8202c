//! The I/O pump: carries bytes between streams and files, pipes, sockets and terminals.
//!
//! Started by programs that want it. One ordinary thread, `upcall-io-pump`, which sleeps until a
//! descriptor is ready or a stream has what is waited for, on all of them together. Whatever it
//! carries is bounded by the stream: it reads no more than there is room for.
//!
//! ```text
//!   descriptors --> Poller (its own thread) --bell--\
//!   streams ----------------------------------bells--> upcall-io-pump --> a step of each carry
//!   IoPump's calls --> orders --------------word----/                    wakers
//! ```
//!
//! A *source* reads a descriptor and writes a stream; at the end of its input the stream ends, and if
//! the input fails it dies. If the stream has a `B_start` and there is no room, it rests until the reader
//! starts it; otherwise it goes on whenever there is room. A *sink* reads a stream and writes a
//! descriptor; what it could not write is not taken from the stream.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Waker;
use std::thread::JoinHandle;

use upcall_core::time::Instant;
use upcall_shm::stream::{self as shm, WAITING};
use upcall_sys::OsError;
use upcall_sys::futex::{self, WaitSet};
use upcall_sys::transfer::NonBlocking;

use super::{Closed, End, Memory, StreamOpenError, StreamReader, StreamWriter};
use crate::clock;
use crate::io_events::{Feed, InterestError, Poller, PollerError};
use carry::{Carry, Step};

mod carry;

/// Streams that may be waited for at a time: two words are its own.
const BELLS_MAX: usize = WaitSet::WORDS_MAX - 2;

/// A thread that carries bytes between streams and files, pipes, sockets or terminals, and wakes
/// those that await a stream.
///
/// Start one a program; the thread, `upcall-io-pump`, is of the ordinary class, and a second one
/// watches the descriptors. One pump serves up to 126 streams.
///
/// - A *source* ([`IoPump::source`]) reads a descriptor and writes a stream. So a socket can feed
///   a handler that is upcalled when enough is there, and the handler makes no system call.
/// - A *sink* ([`IoPump::sink`]) reads a stream and writes a descriptor.
/// - [`IoPump::reader`] and [`IoPump::writer`] make an end of a stream that `async` code of another
///   executor, such as tokio, can await.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use std::io::Write;
/// use upcall::clock;
/// use upcall::stream::{Closed, IoPump, Stream, StreamForm};
/// use upcall::time::Span;
///
/// let stream = Stream::create(StreamForm::Messages { capacity: 4096 }, 0)?;
/// let mut reader = stream.reader()?;
/// let pump = IoPump::start()?;
/// let (input, mut output) = std::io::pipe()?;
/// let _source = pump.source(input, stream.writer()?)?;
/// output.write_all(b"hello")?;
/// drop(output); // the end of the input ends the stream
///
/// let mut bytes = [0; 16];
/// assert!(reader.wait(1, Some(clock::now() + Span::from_secs(10))));
/// assert_eq!(reader.pop(&mut bytes)?, Some(5));
/// assert!(reader.wait(1, Some(clock::now() + Span::from_secs(10))));
/// assert_eq!(reader.front().err(), Some(Closed::Ended));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropped, it stops: a stream that was not carried to its end has [died](Closed::Died).
#[derive(Debug)]
pub struct IoPump {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// How it is told.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Changes with each order.
    word: AtomicU32,
    orders: Mutex<Orders>,
}

#[derive(Debug, Default)]
struct Orders {
    new: Vec<Order>,
    /// Streams that are in use, of those that may be.
    bells: usize,
    stop: bool,
}

enum Order {
    Carry(Box<Carry>, mpsc::Sender<Carried>),
    /// Wakes once the bell is no longer waited on.
    Tell(shm::Stream<Memory>, End, Waker),
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Carry(..) => "Carry",
            Order::Tell(..) => "Tell",
        })
    }
}

/// What was carried, and why no more is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that were handed over: by a source committed, by a sink written.
    pub bytes: u64,
    /// Datagrams that a source dropped because they were longer than a message may be.
    pub too_long: u64,
    /// Why it ended.
    pub end: CarryEnd,
}

/// Why a carry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CarryEnd {
    /// A source: its input has ended, and all of it was committed.
    EndOfInput,
    /// The stream is closed: for a sink [`Closed::Ended`] is the end of all there was.
    Closed(Closed),
    /// The descriptor failed.
    Failed(OsError),
    /// The I/O pump was stopped.
    Stopped,
}

/// The end of what [`IoPump::source`] or [`IoPump::sink`] carries, to be waited for. Dropped, the
/// pump carries on.
#[derive(Debug)]
pub struct Wait(mpsc::Receiver<Carried>);

impl Wait {
    /// Blocks until the carry has ended, or until `deadline`; `None` is no limit. The answer is
    /// `None` where `deadline` has come, or the I/O pump was dropped. Does not allocate.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Carried> {
        match deadline {
            None => self.0.recv().ok(),
            Some(deadline) => self.0.recv_timeout(deadline.since(clock::now()).into()).ok(),
        }
    }
}

/// Why an I/O pump does not start, or take an order.
#[non_exhaustive]
pub enum IoPumpError {
    /// The thread did not start.
    Thread(std::io::Error),
    /// Nobody watches descriptors.
    Poller(PollerError),
    /// The kernel does not let a thread sleep on several words, or a descriptor cannot be used.
    Os(OsError),
    /// A descriptor cannot be watched.
    Interest(InterestError),
    /// The stream's memory was spoilt.
    Open(StreamOpenError),
    /// It has as many streams as it can.
    Full {
        /// That many.
        streams_max: usize,
    },
}

impl fmt::Display for IoPumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoPumpError::Thread(error) => write!(f, "the I/O pump's thread did not start: {error}"),
            IoPumpError::Poller(error) => error.fmt(f),
            IoPumpError::Os(error) => write!(f, "the I/O pump could not do it: {error}"),
            IoPumpError::Interest(error) => error.fmt(f),
            IoPumpError::Open(error) => error.fmt(f),
            IoPumpError::Full { streams_max } => {
                write!(f, "an I/O pump has at most {streams_max} streams")
            }
        }
    }
}

upcall_core::debug_as_display!(IoPumpError);

impl std::error::Error for IoPumpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IoPumpError::Thread(error) => Some(error),
            IoPumpError::Poller(error) => Some(error),
            IoPumpError::Os(error) => Some(error),
            IoPumpError::Interest(error) => Some(error),
            IoPumpError::Open(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for IoPumpError {
    fn from(error: OsError) -> Self {
        IoPumpError::Os(error)
    }
}

impl IoPump {
    /// Starts its thread and the one that watches its descriptors. Allocates.
    ///
    /// # Errors
    /// See [`IoPumpError`].
    pub fn start() -> Result<Self, IoPumpError> {
        WaitSet::is_known()?;
        let desk = Arc::new(Desk::default());
        let (told, tells) = mpsc::channel();
        let at = desk.clone();
        let thread = std::thread::Builder::new()
            .name("upcall-io-pump".to_owned())
            .spawn(move || {
                let poller = Poller::fed_by(Feed::RingThread);
                match poller.or_else(|_| Poller::fed_by(Feed::EpollThread)) {
                    Ok(poller) => {
                        let _ = told.send(Ok(()));
                        Round::new(at, poller).run();
                    }
                    Err(error) => drop(told.send(Err(error))),
                }
            })
            .map_err(IoPumpError::Thread)?;
        match tells.recv() {
            Ok(Ok(())) => Ok(IoPump { desk, thread: Some(thread) }),
            Ok(Err(error)) => Err(IoPumpError::Poller(error)),
            Err(_) => Err(IoPumpError::Thread(std::io::ErrorKind::Other.into())),
        }
    }

    /// Carries what `fd` gives into a stream, until it ends: plain bytes, or what one read gives (at most
    /// a message's room) as one message. `fd` does not block meanwhile, which others who have the same
    /// open file find too. A file is read by this thread, and the others wait for its disk.
    ///
    /// Of a socket for datagrams, such as a `std::net::UdpSocket`, each datagram is one message, also
    /// one without bytes. The message holds the payload alone, not the sender's address; a handler
    /// that needs it has a [`Receiver`](crate::udp::Receiver). A datagram longer than a message may
    /// be is dropped and counted in [`Carried::too_long`]: longer than a slot, a buffer, or a
    /// quarter of the capacity of [`StreamForm::Messages`](super::StreamForm::Messages) and
    /// [`StreamForm::Bytes`](super::StreamForm::Bytes), and in any case than 64 KiB. While the stream has no room
    /// for the longest, datagrams wait in the socket, and the kernel drops what finds no room there.
    /// So a reader of messages or bytes must not wait for more than three quarters of the capacity.
    ///
    /// # Errors
    /// See [`IoPumpError`].
    pub fn source(
        &self,
        fd: impl Into<OwnedFd>,
        writer: StreamWriter,
    ) -> Result<Wait, IoPumpError> {
        self.carry(Carry::source(NonBlocking::new(fd.into())?, writer)?)
    }

    /// Carries what a stream gives to `fd`, until it ends: messages one after the other, of a stream socket or a
    /// pipe their bounds are lost. Otherwise as [`IoPump::source`].
    ///
    /// # Errors
    /// See [`IoPumpError`].
    pub fn sink(&self, reader: StreamReader, fd: impl Into<OwnedFd>) -> Result<Wait, IoPumpError> {
        self.carry(Carry::sink(reader, NonBlocking::new(fd.into())?)?)
    }

    fn carry(&self, carry: Carry) -> Result<Wait, IoPumpError> {
        self.desk.take_bell()?;
        let (ended, ends) = mpsc::channel();
        self.desk.order(Order::Carry(Box::new(carry), ended));
        Ok(Wait(ends))
    }

    /// Where others ask to be woken.
    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }
}

impl Drop for IoPump {
    fn drop(&mut self) {
        self.desk.orders.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.desk.ring();
        if let Some(thread) = self.thread.take() {
            // It does not wait for anybody.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).new.push(order);
        self.ring();
    }

    fn ring(&self) {
        // Release pairs with the Acquire in `Round::run`; the orders have their lock.
        self.word.fetch_add(1, Ordering::Release);
        futex::wake(&self.word, 1);
    }

    /// One stream more, until [`Desk::give_bell_back`].
    pub(super) fn take_bell(&self) -> Result<(), IoPumpError> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.bells == BELLS_MAX {
            return Err(IoPumpError::Full { streams_max: BELLS_MAX });
        }
        orders.bells += 1;
        Ok(())
    }

    pub(super) fn give_bell_back(&self) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).bells -= 1;
    }

    /// Wakes `waker` once the bell of `end` is rung. For who has begun to wait.
    pub(super) fn tell(&self, stream: shm::Stream<Memory>, end: End, waker: Waker) {
        self.order(Order::Tell(stream, end, waker));
    }
}

/// What the thread is at.
struct Round {
    desk: Arc<Desk>,
    poller: Poller,
    /// By the key of their descriptors.
    wards: Vec<Option<Ward>>,
    tells: Vec<(shm::Stream<Memory>, End, Waker)>,
}

/// A carry, and who waits for its end.
struct Ward {
    carry: Box<Carry>,
    ended: mpsc::Sender<Carried>,
    step: Step,
}

impl Round {
    fn new(desk: Arc<Desk>, poller: Poller) -> Self {
        Round { desk, poller, wards: Vec::new(), tells: Vec::new() }
    }

    fn run(mut self) {
        loop {
            // Before all that is looked at. Acquire pairs with the Release in `Desk::ring`.
            let seen = self.desk.word.load(Ordering::Acquire);
            self.poller.finish_wait();
            if self.obey() {
                return self.stop();
            }
            self.take_events();
            self.tells.retain(|(stream, end, waker)| {
                let waits = is_waiting(stream, *end);
                if !waits {
                    waker.wake_by_ref();
                }
                waits
            });
            if !self.go_on() {
                self.sleep(seen);
            }
        }
    }

    /// Takes new orders; `true`: to stop.
    fn obey(&mut self) -> bool {
        let (new, stop) = {
            let mut orders = self.desk.orders.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut orders.new), orders.stop)
        };
        for order in new {
            match order {
                // Of two that wait for the same end the later one is told.
                Order::Tell(stream, end, waker) => {
                    let same = |(known, of, _): &(shm::Stream<Memory>, End, Waker)| {
                        *of == end && std::ptr::eq(known.wait_word(*of), stream.wait_word(end))
                    };
                    self.tells.retain(|tell| !same(tell));
                    self.tells.push((stream, end, waker));
                }
                Order::Carry(carry, ended) => self.enter(Ward { carry, ended, step: Step::Again }),
            }
        }
        stop
    }

    fn enter(&mut self, mut ward: Ward) {
        let free = self.wards.iter().position(Option::is_none);
        let key = free.unwrap_or_else(|| {
            self.wards.push(None);
            self.wards.len() - 1
        });
        let (fd, interest) = (ward.carry.fd(), ward.carry.interest());
        if self.poller.add(fd, key, interest).is_err() {
            // Its number is beyond what can be watched.
            ward.step = ward.carry.fail(OsError::new("watch", 24));
        }
        self.wards[key] = Some(ward);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.poller.try_next() {
            if let Some(Ward { step, .. }) = self.wards.get_mut(event.key).and_then(Option::as_mut)
                && matches!(step, Step::Descriptor | Step::DescriptorOrEnd)
            {
                *step = Step::Again;
            }
        }
    }

    /// A step of each that can; `false`: there is nothing more to do.
    fn go_on(&mut self) -> bool {
        let mut any = false;
        for place in &mut self.wards {
            let Some(Ward { carry, ended, step }) = place else { continue };
            if step.is_on_bell() && !carry.waits() {
                *step = Step::Again;
            }
            if let Step::Again = step {
                *step = carry.step();
                any |= matches!(step, Step::Again);
            }
            if let Step::Over(carried) = step {
                let _ = self.poller.delete(carry.fd());
                // Nobody need wait for it.
                let _ = ended.send(*carried);
                self.desk.give_bell_back();
                *place = None;
                any = true;
            }
        }
        any
    }

    /// Until something is to be done: a futex call.
    fn sleep(&mut self, seen: u32) {
        let mut set = WaitSet::new();
        set.add_private(&self.desk.word, seen);
        let Some((word, expected)) = self.poller.wake_word() else { return };
        set.add_shared(word, expected);
        for Ward { carry, step, .. } in self.wards.iter().flatten() {
            if step.is_on_bell() {
                set.add_shared(carry.wait_word(), WAITING);
            }
        }
        for (stream, end, _) in &self.tells {
            set.add_shared(stream.wait_word(*end), WAITING);
        }
        // Whatever ends the wait, all is looked at again.
        let _ = set.wait_until(None);
    }

    fn stop(self) {
        for Ward { mut carry, ended, .. } in self.wards.into_iter().flatten() {
            let _ = ended.send(carry.stop());
        }
        for (_, _, waker) in self.tells {
            waker.wake();
        }
    }
}

/// Whether an end still waits on its bell. A load.
fn is_waiting(stream: &shm::Stream<Memory>, end: End) -> bool {
    // Relaxed: only decides whether to look; the end's `rouse` synchronises.
    stream.wait_word(end).load(Ordering::Relaxed) == u64::from(WAITING)
}
