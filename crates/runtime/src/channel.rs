//! Event channels: services that are registered by name, clients that register with them, and how each is told of
//! the other's events (ecalls-2001 §2). Decision 0011.
//!
//! A [`Service`] says which segments a client of it has ([`Forms`]), and what is invoked for what clients raise. A
//! [`Client`] names the service and says how *it* is told. Any number of clients a service, and of
//! services a client. Data and control are apart: [`upcall_shm::channel`] holds the events, here is who looks, and when.
//!
//! | client to service (§2.3.1) | |
//! |---|---|
//! | *fast* | [`Client::fast`]: the service's code, in the caller's thread, in one process |
//! | *deferred* | [`Client::raise`], with [`When`]: a store, and many events come to one invocation |
//! | by name | [`call`]: in a thread of the service, blocking |
//!
//! | told by | service | client (§2.3.2) |
//! |---|---|---|
//! | a handler in an executive | [`Runtime::service`](crate::Runtime::service) | [`Runtime::client`](crate::Runtime::client) |
//! | a handler in a thread, which may block | [`Service::in_thread`] | [`Client::in_thread`] |
//! | a real-time signal | | [`Client::signalled`] |
//! | nobody: it looks, or sleeps on its bell | | [`Client::polled`] |
//! | a handler of the service, on the client's behalf | | [`ServiceTerms::on_behalf`] |
//!
//! Handlers come one after the other as a [`Route`] has them; the first ones are filters.
//!
//! ```text
//!   Client                     the channel's memory                 who serves the other end
//!   raise: event (1) -------->  segment
//!          must tell? (2) --->  bell: rung  ------------------->  hears, at a crossing (3)
//!          futex, only if the bell says that it sleeps --------->  wakes: it slept on all bells
//!                                                                  its desk: which handler, with what (4)
//! ```
//!
//! 2. Only if it has taken all that it was told of before; and no system call if it is awake.
//! 3. An executive: between two upcalls, and at each boundary of the handler that runs, as a user interrupt is
//!    delivered; its time is that of whoever runs, so it should be short. It is not admitted: what it
//!    is held to is [`Route::terms`]. What takes time belongs into an admitted handler: [`Route::to_handler`]. Among the domains of a daemon it is invoked as soon as the executive
//!    runs, whoever has the turn.
//! 4. By rank, as [`upcall_core::events`] decides: recursion is refused and a handler that runs away held, and both
//!    are counted ([`Service::counts`]). Recursion is known among handlers that one desk serves.
//!
//! # Death
//!
//! The connection by which they met hangs up when either ends, however it does. What it raised is handled, then the
//! other is told ([`Route::on_gone`], [`RaiseError::Gone`]), and the memory goes. A peer that writes what
//! cannot be is at fault ([`Gone::Fault`]): detached at once; it has no memory but its own channel's.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_shm::channel::PostError;
use upcall_shm::{LayoutError, PeerFault};
use upcall_sys::OsError;
use upcall_sys::memfd::MapError;

pub use upcall_core::events::{AddError, Counts, HandlerTerms, Refused, Verdict, When};
pub use upcall_shm::channel::{Form, Posted};
pub use upcall_sys::process::real_time_signals;

mod client;
mod desk;
mod fast;
mod here;
mod line;
mod message;
mod name;
mod notes;
mod porter;
mod raise;
mod registrar;
mod route;
mod segment;
mod service;
mod thread;

pub use client::Client;
pub use desk::Events;
pub use fast::{FastAnswer, FastDone, call};
pub use message::Refusal;
pub use name::services_folder;
pub use raise::{Raise, Raiser};
pub use route::{HANDLER_TERMS, Route};
pub use segment::Forms;
pub use service::{Service, ServiceTerms};

pub(crate) use desk::{Desk, Moment};
pub(crate) use here::set_executive;
pub(crate) use line::{Caller, Newcomer};

use crate::config::Mode;
use crate::folder::FolderError;

/// What an event carries, and a call: words whose meaning the two ends agree on.
pub type Words = [u64; 5];

/// Names a peer: of a service its client, of a client its service. Never used again in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u64);

impl PeerId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: a number for itself.
        PeerId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An event as it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whose it is.
    pub peer: PeerId,
    /// Its type or level; 0 in a ring and in a counter.
    pub row: u32,
    /// How many more it stands for.
    pub merged: u64,
    /// What it carries, as its raiser says; 0 in a counter.
    pub words: Words,
}

/// How the other end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// Because it wanted to.
    Ended,
    /// Its process died, its handler panicked, or it said what none of this version does.
    Died,
    /// It wrote what cannot be, and was detached.
    Fault(PeerFault),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gone::Ended => f.write_str("the other end has left"),
            Gone::Died => f.write_str("the other end died"),
            Gone::Fault(fault) => write!(f, "the other end is at fault: {fault}"),
        }
    }
}

/// Why there is no service or client.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No service can be called so.
    Name(String),
    /// There is no folder for sockets ([`services_folder`]), or others may write to it.
    Folder(FolderError),
    /// What the system said.
    Os(OsError),
    /// No memory.
    Memory(MapError),
    /// A form that cannot be, or memory that is not of it.
    Layout(LayoutError),
    /// Too many handlers or peers, or terms out of range.
    Handlers(AddError),
    /// A thread did not start, or the scheduling thread has ended.
    Thread(String),
    /// The kernel lets nobody sleep on several bells: before Linux 5.16.
    Kernel(OsError),
    /// The runtime has no scheduling thread there.
    NoSuchCpu {
        /// There.
        cpu: u32,
    },
    /// In this mode the kernel decides, and threads are handlers'.
    NotInMode(Mode),
    /// Streams and peers of the scheduling thread are together too many to sleep on.
    TooManyBells {
        /// Most there may be.
        bells_max: usize,
    },
    /// What the service said.
    Refused(Refusal),
    /// The service did not answer in time, or what none of this version does.
    NoAnswer,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Name(name) => write!(
                f,
                "`{name}` is no name of a service, expected 1 to 64 letters, digits, `-`, `_` or `.`"
            ),
            OpenError::Folder(error) => error.fmt(f),
            OpenError::Os(error) => error.fmt(f),
            OpenError::Memory(error) => write!(f, "no memory for a channel: {error}"),
            OpenError::Layout(error) => write!(f, "no channel: {error}"),
            OpenError::Handlers(error) => error.fmt(f),
            OpenError::Thread(error) => write!(f, "no thread serves it: {error}"),
            OpenError::Kernel(error) => write!(f, "handlers of events need Linux 5.16: {error}"),
            OpenError::NoSuchCpu { cpu } => {
                write!(f, "CPU {cpu} has no scheduling thread of this runtime")
            }
            OpenError::NotInMode(mode) => {
                write!(f, "event handlers in mode {}, expected mode upcall", mode.name())
            }
            OpenError::TooManyBells { bells_max } => {
                write!(f, "more streams and peers on one CPU than {bells_max}")
            }
            OpenError::Refused(refusal) => refusal.fmt(f),
            OpenError::NoAnswer => f.write_str("the service did not answer as one does"),
        }
    }
}

impl std::error::Error for OpenError {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full => "the service has as many clients as it can, or is closed",
            Refusal::NoCall => "the service takes events and no calls",
            Refusal::Signal => "the signal is no real-time signal",
            Refusal::Resources => "the service has no memory or descriptors left",
        })
    }
}

/// Why an event was not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RaiseError {
    /// Nobody takes it any more.
    Gone(Gone),
    /// No such type or level.
    Post(PostError),
    /// Another thread raises on this channel now, and a scheduling thread does not wait for it.
    Busy,
    /// A handler on the client's behalf dropped it.
    Dropped,
    /// It is there, but the signal was not sent; the next raise tries again.
    Signal(OsError),
    /// There is no such peer, any more.
    NoPeer(PeerId),
}

impl fmt::Display for RaiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RaiseError::Gone(gone) => gone.fmt(f),
            RaiseError::Post(error) => error.fmt(f),
            RaiseError::Busy => f.write_str("another thread raises on this channel now"),
            RaiseError::Dropped => f.write_str("a handler on the client's behalf dropped it"),
            RaiseError::Signal(error) => write!(f, "the event is there, its signal not: {error}"),
            RaiseError::NoPeer(PeerId(peer)) => write!(f, "there is no peer {peer}"),
        }
    }
}

impl std::error::Error for RaiseError {}

/// Why there is no event to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeError {
    /// There will be none any more.
    Gone(Gone),
    /// The client's handlers take them.
    Handled,
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeError::Gone(gone) => gone.fmt(f),
            TakeError::Handled => f.write_str("the client's handlers take its events"),
        }
    }
}

impl std::error::Error for TakeError {}

/// Why a fast call came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastError {
    /// The handler is code of another process, which only a switch to it could run.
    OtherProcess,
    /// The service has no handler for it.
    NoHandler,
    /// It would have to block, or another thread is in it, and the service has no call that may.
    NoCall,
    /// The same, and this is a scheduling thread, which must not block.
    WouldBlock,
    /// It would be recursion, or the handler has run away.
    Refused(Refused),
    /// It panicked, and is not called again.
    Panicked,
    /// The service is gone.
    Gone(Gone),
}

impl fmt::Display for FastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FastError::OtherProcess => f.write_str(
                "the fast handler is code of another process; raise an event, or call by name",
            ),
            FastError::NoHandler => f.write_str("the service has no fast handler"),
            FastError::NoCall => f.write_str("it would block, and the service has no call"),
            FastError::WouldBlock => f.write_str("it would block a scheduling thread"),
            FastError::Refused(refused) => refused.fmt(f),
            FastError::Panicked => f.write_str("the fast handler panicked"),
            FastError::Gone(gone) => gone.fmt(f),
        }
    }
}

impl std::error::Error for FastError {}

/// Why a call by name has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No service can be called so.
    Name(String),
    /// What the system said: `ENOENT` or `ECONNREFUSED` if there is no such service.
    Os(OsError),
    /// What the service said.
    Refused(Refusal),
    /// The deadline has come.
    Late,
    /// The service is gone, or said what none of this version does.
    NoAnswer,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Name(name) => write!(f, "`{name}` is no name of a service"),
            CallError::Os(error) => error.fmt(f),
            CallError::Refused(refusal) => refusal.fmt(f),
            CallError::Late => f.write_str("the service did not answer in time"),
            CallError::NoAnswer => f.write_str("the service did not answer as one does"),
        }
    }
}

impl std::error::Error for CallError {}

impl From<OsError> for CallError {
    fn from(error: OsError) -> Self {
        CallError::Os(error)
    }
}

impl From<OsError> for OpenError {
    fn from(error: OsError) -> Self {
        OpenError::Os(error)
    }
}

impl From<MapError> for OpenError {
    fn from(error: MapError) -> Self {
        OpenError::Memory(error)
    }
}

impl From<LayoutError> for OpenError {
    fn from(error: LayoutError) -> Self {
        OpenError::Layout(error)
    }
}

impl From<AddError> for OpenError {
    fn from(error: AddError) -> Self {
        OpenError::Handlers(error)
    }
}
