//! The errors of channels.

use std::fmt;

use upcall_core::events::{AddError, Refused};
use upcall_shm::LayoutError;
use upcall_shm::channel::SegmentError;
use upcall_sys::OsError;
use upcall_sys::memfd::MapError;

use super::owner::ServiceOwner;
use super::peer::{Gone, PeerId};
use crate::config::Mode;
use crate::folder::FolderError;

/// Why a service does not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServiceRefusal {
    /// The service has as many clients as it may have, or is closed.
    Full,
    /// The service takes events only, not calls.
    NoCall,
    /// The signal is not a real-time signal.
    Signal,
    /// The service has no memory or descriptors left.
    Resources,
}

/// The message for a reply that did not come, or that this version does not know.
const NO_ANSWER: &str = "the service gave no answer that this version knows";

fn write_no_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "`{name}` is no name of a service, expected 1 to 64 letters, digits, `-`, `_` or `.`")
}

/// Why a service or client could not be opened.
#[non_exhaustive]
pub enum ChannelOpenError {
    /// The name is not valid for a service.
    Name(String),
    /// Another service has that name, or a file is in the place of its socket.
    Taken {
        /// The name.
        name: String,
        /// The path of its socket.
        socket: std::path::PathBuf,
        /// The process that serves the name, or `None` if no process listens there.
        owner: Option<ServiceOwner>,
    },
    /// There is no folder for sockets ([`services_folder`](super::services_folder)), or other users
    /// may write to it.
    Folder(FolderError),
    /// The system refused something.
    Os(OsError),
    /// The channel's memory could not be allocated or mapped.
    Memory(MapError),
    /// The form is out of range, or the memory does not match it.
    Layout(LayoutError),
    /// Too many handlers or peers, or terms out of range.
    Handlers(AddError),
    /// A thread did not start.
    Thread(std::io::Error),
    /// The scheduling thread has ended.
    ThreadEnded,
    /// The kernel cannot wait on several futexes: it is older than Linux 5.16.
    Kernel(OsError),
    /// The runtime has no scheduling thread on this CPU.
    NoSuchCpu {
        /// The CPU.
        cpu: u32,
    },
    /// In this mode the kernel schedules handlers as threads, and no executor serves channels.
    NotInMode(Mode),
    /// The streams and peers of the scheduling thread are more than it can wait on.
    TooManyPeers {
        /// The greatest number of peers of one dispatcher.
        peers_max: usize,
    },
    /// The service refused.
    Refused(ServiceRefusal),
    /// The service did not reply in time, or with a message that this version does not know.
    NoAnswer,
}

impl fmt::Display for ChannelOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelOpenError::Name(name) => write_no_name(f, name),
            ChannelOpenError::Taken { name, owner: Some(owner), .. } => {
                write!(f, "the name `{name}` is taken: {owner} serves it")
            }
            ChannelOpenError::Taken { name, socket, owner: None } => write!(
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
            ChannelOpenError::ThreadEnded => f.write_str(
                "the thread of the channel does not run: the scheduling thread has ended",
            ),
            ChannelOpenError::Kernel(error) => {
                write!(f, "handlers of events need Linux 5.16: {error}")
            }
            ChannelOpenError::NoSuchCpu { cpu } => {
                write!(f, "CPU {cpu} has no scheduling thread of this runtime")
            }
            ChannelOpenError::NotInMode(mode) => {
                write!(f, "mode {} has no handlers of channels, expected mode upcall", mode.name())
            }
            ChannelOpenError::TooManyPeers { peers_max } => {
                write!(f, "a CPU has at most {peers_max} streams and peers of channels")
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
            ChannelOpenError::Thread(error) => Some(error),
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
    /// The other end takes no more events.
    Gone(Gone),
    /// There is no such type or level.
    Post(SegmentError),
    /// Another thread raises on this channel at this moment. A scheduling thread does not wait, nor
    /// does the thread of an I/O event service.
    Busy,
    /// A handler on the client's behalf dropped the event.
    Dropped,
    /// The event was raised, but the signal could not be sent. The next raise tries again.
    Signal(OsError),
    /// There is no such peer, or it is gone.
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

/// Why a client cannot take an event.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeError {
    /// The service is gone, and all its events are taken.
    Gone(Gone),
    /// The client has handlers, which take its events.
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

/// Why a fast call failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastError {
    /// The handler is code of another process.
    OtherProcess,
    /// The service has no fast handler.
    NoHandler,
    /// The handler would have to block, or another thread runs it, and the service has no blocking
    /// call.
    NoCall,
    /// The service would use its blocking call, but a scheduling thread must not block.
    WouldBlock,
    /// The call would be recursion, or the handler has run away.
    Refused(Refused),
    /// The handler panicked, and is not called again.
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

/// Why a call by name failed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The name is not valid for a service.
    Name(String),
    /// The system refused: `ENOENT` or `ECONNREFUSED` if there is no such service.
    Os(OsError),
    /// The service refused.
    Refused(ServiceRefusal),
    /// The deadline has come.
    Late,
    /// The service is gone, or replied with a message that this version does not know.
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
