//! Load around a run: embedded senders and background programs, each in a
//! process of its own.
//!
//! The senders' process is this program started again; it reports through a
//! shared page ([`upcall_shm::load_page`]), which the parent reads as it reads
//! any peer: copied once, then validated. Every process started here dies with
//! its handle, and with us (`PR_SET_PDEATHSIG`).

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::str::FromStr;

use upcall_core::time::{Instant, Span};
use upcall_shm::load_page::{ChildPage, PAGE_BYTES, PageError, ParentPage, State};
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::error::OsError;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{Child, Options};
use upcall_sys::udp::{SendBatch, UdpSocket};
use upcall_sys::{process, schedule};

mod sender;

pub use sender::serve;

/// Time the senders' process has to get ready, and to end.
const READY_WITHIN: Span = Span::from_secs(5);
/// Time a background program has to end by itself.
const END_WITHIN: Span = Span::from_millis(300);

/// What one embedded sender does: `burst` datagrams every `interval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderPlan {
    /// Where it sends to: loopback only.
    pub target: SocketAddr,
    /// Time between two bursts.
    pub interval: Span,
    /// Datagrams sent at once.
    pub burst: u32,
    /// Largest PDU.
    pub pdu_bytes: u32,
    /// Largest datagram.
    pub datagram_bytes: u32,
    /// Named processor whose payload is sent.
    pub work: String,
}
