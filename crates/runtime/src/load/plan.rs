//! What the parent and the senders' process share: plans, the page's descriptor, errors.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use upcall_core::time::Span;
use upcall_shm::load_page::{LayoutError, PeerFault};
use upcall_sys::OsError;
use upcall_sys::memfd::MapError;

/// The descriptor under which the senders' process finds the page.
pub(super) const PAGE_FD: i32 = 3;

/// What one embedded sender does: `burst` datagrams every `interval`, spread over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderPlan {
    /// The address that it sends to.
    pub target: SocketAddr,
    /// The time between two bursts.
    pub interval: Span,
    /// How many datagrams it sends in an interval.
    pub burst: u32,
    /// The largest PDU in bytes.
    pub pdu_bytes: u32,
    /// The largest datagram in bytes.
    pub datagram_bytes: u32,
    /// The named processor whose payload it sends.
    pub work: String,
}

/// Why a load could not be started, or did not end in order.
#[derive(Clone)]
#[non_exhaustive]
pub enum LoadError {
    /// The system refused something.
    System(OsError),
    /// The page could not be shared.
    Map(MapError),
    /// The page cannot be used: too many streams, another version.
    Layout(LayoutError),
    /// The senders' process wrote an invalid value into the page.
    Peer(PeerFault),
    /// The senders' process did not reply in time, or is gone.
    Silent,
    /// A sender's plan could not be parsed.
    Plan(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::System(error) => write!(f, "load could not be started or ended: {error}"),
            LoadError::Map(error) => write!(f, "the senders' page cannot be shared: {error}"),
            LoadError::Layout(error) => write!(f, "the senders' page cannot be used: {error}"),
            LoadError::Peer(error) => write!(f, "the senders' process is at fault: {error}"),
            LoadError::Silent => f.write_str("the senders' process does not answer"),
            LoadError::Plan(text) => write!(f, "found `{text}`, expected the plan of a sender"),
        }
    }
}

upcall_core::debug_as_display!(LoadError);

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::System(error) => Some(error),
            LoadError::Map(error) => Some(error),
            LoadError::Layout(error) => Some(error),
            LoadError::Peer(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for LoadError {
    fn from(error: OsError) -> Self {
        LoadError::System(error)
    }
}

impl From<MapError> for LoadError {
    fn from(error: MapError) -> Self {
        LoadError::Map(error)
    }
}

impl From<LayoutError> for LoadError {
    fn from(error: LayoutError) -> Self {
        LoadError::Layout(error)
    }
}

impl From<PeerFault> for LoadError {
    fn from(fault: PeerFault) -> Self {
        LoadError::Peer(fault)
    }
}

impl fmt::Display for SenderPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{},{},{},{},{},{}",
            self.target,
            self.interval.as_nanos(),
            self.burst,
            self.pdu_bytes,
            self.datagram_bytes,
            self.work
        )
    }
}

impl FromStr for SenderPlan {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let bad = || LoadError::Plan(text.to_owned());
        let fields: Vec<&str> = text.split(',').collect();
        let &[target, interval_ns, burst, pdu_bytes, datagram_bytes, work] = fields.as_slice()
        else {
            return Err(bad());
        };
        let plan = SenderPlan {
            target: target.parse().map_err(|_| bad())?,
            interval: Span::from_nanos(interval_ns.parse().map_err(|_| bad())?),
            burst: burst.parse().map_err(|_| bad())?,
            pdu_bytes: pdu_bytes.parse().map_err(|_| bad())?,
            datagram_bytes: datagram_bytes.parse().map_err(|_| bad())?,
            work: work.to_owned(),
        };
        if plan.interval.is_zero() || plan.burst == 0 || plan.datagram_bytes == 0 {
            return Err(bad());
        }
        Ok(plan)
    }
}
