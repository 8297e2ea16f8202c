//! Event channels: services that are registered by name, their clients, and the events between
//! them.
//!
//! An event is five words and a type or level. A [`Service`] says in which [`Forms`] events wait,
//! and which handler is invoked for what clients raise. A [`Client`] names the service, and says
//! how *it* is told of the service's events. A service has many clients, and a program may be a
//! client of many services.
//!
//! ```
//! # extern crate upcall_runtime as upcall;
//! use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms};
//!
//! // Clients learn the latest of each of 3 types of event; the service only counts what they raise.
//! let forms = Forms { to_service: Form::Counter, to_client: Form::Typed { types: 3 } };
//! let name = format!("weather-{}", std::process::id());
//! let service = Service::in_thread(&name, ServiceTerms::new(forms, Route::to(|_| {})))?;
//!
//! let mut client = Client::polled(&name)?;
//! service.raise_all(&Raise::row(2).words([31, 0, 0, 0, 0]));
//! client.wait(None); // sleeps until it is told
//! assert_eq!(client.take()?.map(|event| (event.row, event.words[0])), Some((2, 31)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who is told, and how
//!
//! (ecalls-2001 §2, decision 0011.) A client and its service need not be of one process, but of one
//! user.
//!
//! | client to service (§2.3.1) | |
//! |---|---|
//! | *fast* | [`Client::fast`]: the service's code, in the caller's thread, in one process |
//! | *deferred* | [`Client::raise`], with [`When`]: a store, and many events come to one invocation |
//! | by name | [`call`]: in a thread of the service, blocking |
//!
//! | told by | service | client (§2.3.2) |
//! |---|---|---|
//! | a handler in an executor | [`Runtime::service`](crate::Runtime::service) | [`Runtime::client`](crate::Runtime::client) |
//! | a handler in a thread, which may block | [`Service::in_thread`] | [`Client::in_thread`] |
//! | a real-time signal | | [`Client::signalled`] |
//! | nobody: it looks, or sleeps on its bell | | [`Client::polled`] |
//! | a handler of the service, on the client's behalf | | [`ServiceTerms::on_behalf`] |
//!
//! Handlers come one after the other as a [`Route`] has them; the first ones are filters.
//!
//! # How it works
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
//! 3. An executor: between two upcalls, and at each boundary of the handler that runs, as a user interrupt is
//!    delivered; its time is that of whoever runs, so it should be short. It is not admitted: what it
//!    is held to is [`Route::terms`]. What takes time belongs into an admitted handler: [`Route::to_handler`]. Among the domains of a daemon it is invoked as soon as the executor
//!    runs, whoever has the turn.
//! 4. By rank, as `events` of the crate `upcall-core` decides: recursion is refused and a handler
//!    that runs away held, and both are counted ([`Service::counts`]). Recursion is known among
//!    handlers that one desk serves.
//!
//! # Death
//!
//! The connection by which they met hangs up when either ends, however it does. What it raised is handled, then the
//! other is told ([`Route::on_gone`], [`RaiseError::Gone`]), and the memory goes. A peer that writes what
//! cannot be is at fault ([`Gone::Fault`]): detached at once; it has no memory but its own channel's.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_shm::channel::SegmentError;
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
mod holder;
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
pub use holder::Holder;
pub use message::ServiceRefusal;
pub use name::services_folder;
pub use raise::{Raise, Raiser};
pub use route::{HANDLER_TERMS, Route};
pub use segment::Forms;
pub use service::{Service, ServiceTerms};

pub(crate) use desk::{Desk, Moment};
pub(crate) use here::set_executor;
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

/// An event as a client or a handler takes it: from [`Client::take`] or [`Events::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelEvent {
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

/// What is said of an answer that did not come, or that none of this version gives.
const NO_ANSWER: &str = "the service gave no answer that this version knows";

fn write_no_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "`{name}` is no name of a service, expected 1 to 64 letters, digits, `-`, `_` or `.`")
}

/// Why there is no service or client.
#[non_exhaustive]
pub enum ChannelOpenError {
    /// No service can be called so.
    Name(String),
    /// There is a service of that name already, or a file in the place of its socket.
    Taken {
        /// That name.
        name: String,
        /// Where its socket is.
        socket: std::path::PathBuf,
        /// The process that serves it; `None`: none listens there.
        holder: Option<Holder>,
    },
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
    Refused(ServiceRefusal),
    /// The service did not answer in time, or what none of this version does.
    NoAnswer,
}

impl fmt::Display for ChannelOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelOpenError::Name(name) => write_no_name(f, name),
            ChannelOpenError::Taken { name, holder: Some(holder), .. } => {
                write!(f, "the name `{name}` is taken: {holder} serves it")
            }
            ChannelOpenError::Taken { name, socket, holder: None } => write!(
                f,
                "the name `{name}` is taken: there is a file at {}, and no service answers there",
                socket.display()
            ),
            ChannelOpenError::Folder(error) => error.fmt(f),
            ChannelOpenError::Os(error) => write!(f, "no channel could be opened: {error}"),
            ChannelOpenError::Memory(error) => write!(f, "a channel has no memory: {error}"),
            ChannelOpenError::Layout(error) => write!(f, "the memory cannot be a channel: {error}"),
            ChannelOpenError::Handlers(error) => error.fmt(f),
            ChannelOpenError::Thread(error) => {
                write!(f, "the thread of the channel does not run: {error}")
            }
            ChannelOpenError::Kernel(error) => {
                write!(f, "handlers of events need Linux 5.16: {error}")
            }
            ChannelOpenError::NoSuchCpu { cpu } => {
                write!(f, "CPU {cpu} has no scheduling thread of this runtime")
            }
            ChannelOpenError::NotInMode(mode) => {
                write!(f, "mode {} has no handlers of channels, expected mode upcall", mode.name())
            }
            ChannelOpenError::TooManyBells { bells_max } => {
                write!(f, "a CPU has at most {bells_max} streams and peers of channels")
            }
            ChannelOpenError::Refused(refusal) => refusal.fmt(f),
            ChannelOpenError::NoAnswer => f.write_str(NO_ANSWER),
        }
    }
}

upcall_core::debug_as_display!(ChannelOpenError);

impl std::error::Error for ChannelOpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ChannelOpenError::Folder(error) => Some(error),
            ChannelOpenError::Os(error) | ChannelOpenError::Kernel(error) => Some(error),
            ChannelOpenError::Memory(error) => Some(error),
            ChannelOpenError::Layout(error) => Some(error),
            ChannelOpenError::Handlers(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ServiceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServiceRefusal::Full => "the service has as many clients as it can, or is closed",
            ServiceRefusal::NoCall => "the service takes events and no calls",
            ServiceRefusal::Signal => "the signal is no real-time signal",
            ServiceRefusal::Resources => "the service has no memory or descriptors left",
        })
    }
}

/// Why an event was not raised.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RaiseError {
    /// Nobody takes it any more.
    Gone(Gone),
    /// No such type or level.
    Post(SegmentError),
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
            RaiseError::Dropped => {
                f.write_str("a handler on the client's behalf dropped the event")
            }
            RaiseError::Signal(error) => {
                write!(f, "the event was raised, but its signal was not sent: {error}")
            }
            RaiseError::NoPeer(PeerId(peer)) => write!(f, "there is no peer {peer}"),
        }
    }
}

upcall_core::debug_as_display!(RaiseError);

impl std::error::Error for RaiseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RaiseError::Post(error) => Some(error),
            RaiseError::Signal(error) => Some(error),
            _ => None,
        }
    }
}

/// Why there is no event to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
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

upcall_core::debug_as_display!(TakeError);

impl std::error::Error for TakeError {}

/// Why a fast call came to nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
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
            FastError::NoCall => {
                f.write_str("the fast call would block, and the service has no call that may")
            }
            FastError::WouldBlock => f.write_str("the fast call would block a scheduling thread"),
            FastError::Refused(refused) => refused.fmt(f),
            FastError::Panicked => f.write_str("the fast handler panicked"),
            FastError::Gone(gone) => gone.fmt(f),
        }
    }
}

upcall_core::debug_as_display!(FastError);

impl std::error::Error for FastError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FastError::Refused(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a call by name has no answer.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No service can be called so.
    Name(String),
    /// What the system said: `ENOENT` or `ECONNREFUSED` if there is no such service.
    Os(OsError),
    /// What the service said.
    Refused(ServiceRefusal),
    /// The deadline has come.
    Late,
    /// The service is gone, or said what none of this version does.
    NoAnswer,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Name(name) => write_no_name(f, name),
            CallError::Os(error) => write!(f, "the service could not be called: {error}"),
            CallError::Refused(refusal) => refusal.fmt(f),
            CallError::Late => f.write_str("the service did not answer in time"),
            CallError::NoAnswer => f.write_str(NO_ANSWER),
        }
    }
}

upcall_core::debug_as_display!(CallError);

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CallError::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for CallError {
    fn from(error: OsError) -> Self {
        CallError::Os(error)
    }
}

impl From<OsError> for ChannelOpenError {
    fn from(error: OsError) -> Self {
        ChannelOpenError::Os(error)
    }
}

impl From<MapError> for ChannelOpenError {
    fn from(error: MapError) -> Self {
        ChannelOpenError::Memory(error)
    }
}

impl From<LayoutError> for ChannelOpenError {
    fn from(error: LayoutError) -> Self {
        ChannelOpenError::Layout(error)
    }
}

impl From<AddError> for ChannelOpenError {
    fn from(error: AddError) -> Self {
        ChannelOpenError::Handlers(error)
    }
}
