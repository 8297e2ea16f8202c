//! Why there is no flow, and the checks of a request that need no state.

use core::fmt;
use std::net::IpAddr;

use upcall_runtime::net::{
    BindError, FlowError, FlowTerms, InterfaceError, OwnerError, ProgramError, Quota as FlowQuota,
    Share,
};
use upcall_shm::quota_page::{Quota, QuotaError};
use upcall_shm::wire::FlowCause;
use upcall_sys::OsError;

/// The greatest weight of a flow. With weights of any size one user could leave others nothing.
const WEIGHT_MAX: u32 = 100;
/// The shortest interval between two packets that are sent: the period of the network thread.
/// Shorter ones would be before all flows by weight in each period.
const PACE_NS_MIN: u64 = 1_000_000;
/// The longest interval between two packets: one hour.
const INTERVAL_NS_MAX: u64 = 3_600_000_000_000;
/// `EADDRINUSE` of errno.h.
const ADDRESS_IN_USE: i32 = 98;
/// The most slots of a queue.
const SLOTS_MAX: u32 = 4096;

/// Why there is no flow.
#[derive(Debug)]
pub(crate) enum FlowRefusal {
    /// The user may not have this port.
    Port { least: u16 },
    /// The daemon was not given the interface.
    NoInterface { known: Vec<String> },
    /// There is no such interface.
    Missing(OsError),
    /// An interface with the same name was removed, and its flows are being closed.
    Replaced,
    /// Its XDP program was not attached.
    Program(ProgramError),
    /// The interface was not opened, or refused the flow.
    Interface(InterfaceError),
    /// There is no thread for it.
    Thread(std::io::Error),
    /// The network thread did not answer in time, or its interface has failed.
    Silent,
    /// The user has as many flows as a user may have.
    FlowsOfUser { most: usize },
    /// The same of frames.
    FramesOfUser { most: u32 },
    /// The same of packets that may wait.
    DepthsOfUser { most: u32 },
    /// The interface has as many flows, or packets that may wait, as it can have.
    Full,
    /// The address is not one of the interface.
    NotLocal(IpAddr),
    /// A number of slots is no power of two, or too great.
    Slots,
    /// The interval is 0, or longer than an hour, or below a millisecond for sending.
    Interval,
    /// The depth is 0.
    Depth,
    /// The weight is 0 or too great.
    Weight,
    /// The quota is beyond all bounds.
    Quota(QuotaError),
    /// There is no memory to offer, or the program has not taken it as it must.
    Memory(FlowError),
}

/// Checks numbers that a peer has sent.
pub(super) fn check(terms: &FlowTerms) -> Result<(), FlowRefusal> {
    let is_slots = |slots: u32| slots.is_power_of_two() && slots <= SLOTS_MAX;
    if !is_slots(terms.form.receive_slots) || !is_slots(terms.form.transmit_slots) {
        return Err(FlowRefusal::Slots);
    }
    let is_interval = |ns: u64| (1..=INTERVAL_NS_MAX).contains(&ns);
    if let Some(FlowQuota { step_ns, interval_ns, depth, .. }) = terms.receive {
        if !is_interval(interval_ns) || step_ns > INTERVAL_NS_MAX {
            return Err(FlowRefusal::Interval);
        }
        if depth == 0 {
            return Err(FlowRefusal::Depth);
        }
        Quota::new(interval_ns, step_ns, depth.into()).map_err(FlowRefusal::Quota)?;
    }
    match terms.send {
        Share::Paced { interval }
            if !(PACE_NS_MIN..=INTERVAL_NS_MAX).contains(&interval.as_nanos()) =>
        {
            Err(FlowRefusal::Interval)
        }
        Share::Weight(weight) if !(1..=WEIGHT_MAX).contains(&weight) => Err(FlowRefusal::Weight),
        _ => Ok(()),
    }
}

impl FlowRefusal {
    /// In one word, for the peer.
    pub(crate) fn cause(&self) -> FlowCause {
        match self {
            FlowRefusal::Port { .. } => FlowCause::NoRight,
            FlowRefusal::NoInterface { .. } => FlowCause::NoInterface,
            FlowRefusal::Program(ProgramError::Taken(_))
            | FlowRefusal::Interface(
                InterfaceError::Program(ProgramError::Taken(_))
                | InterfaceError::Owner(OwnerError::Bind(BindError::Taken)),
            ) => FlowCause::Taken,
            FlowRefusal::Interface(InterfaceError::Bind(_, error))
                if error.raw_os_error() == ADDRESS_IN_USE =>
            {
                FlowCause::Taken
            }
            FlowRefusal::Interface(InterfaceError::Owner(_)) | FlowRefusal::Full => FlowCause::Full,
            FlowRefusal::Missing(_)
            | FlowRefusal::Replaced
            | FlowRefusal::Program(_)
            | FlowRefusal::Interface(_)
            | FlowRefusal::Thread(_)
            | FlowRefusal::Silent => FlowCause::Interface,
            FlowRefusal::FlowsOfUser { .. }
            | FlowRefusal::FramesOfUser { .. }
            | FlowRefusal::DepthsOfUser { .. } => FlowCause::Limit,
            FlowRefusal::NotLocal(_) => FlowCause::NotLocal,
            FlowRefusal::Slots
            | FlowRefusal::Interval
            | FlowRefusal::Depth
            | FlowRefusal::Weight
            | FlowRefusal::Quota(_) => FlowCause::Terms,
            FlowRefusal::Memory(_) => FlowCause::Memory,
        }
    }
}

impl fmt::Display for FlowRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowRefusal::Port { least } => write!(f, "only root has flows on ports below {least}"),
            FlowRefusal::NoInterface { known } if known.is_empty() => f.write_str(
                "the daemon has no interface for flows: start it with `--interfaces`, such as \
                 `--interfaces eth1` (`upcall net` lists them)",
            ),
            FlowRefusal::NoInterface { known } => {
                write!(f, "the daemon has flows on {} only", known.join(", "))
            }
            FlowRefusal::Missing(error) => write!(
                f,
                "no such interface in the daemon's network namespace (`upcall net` lists them): \
                 {error}"
            ),
            FlowRefusal::Replaced => f.write_str(
                "the interface was made again, and the flows of the former one are being closed: \
                 try again",
            ),
            FlowRefusal::Program(error) => error.fmt(f),
            FlowRefusal::Interface(error) => error.fmt(f),
            FlowRefusal::Thread(error) => {
                write!(f, "there is no thread for the interface: {error}")
            }
            FlowRefusal::Silent => f.write_str("the interface has failed, or is overloaded"),
            FlowRefusal::FlowsOfUser { most } => write!(f, "a user has at most {most} flows"),
            FlowRefusal::FramesOfUser { most } => {
                write!(f, "the flows of a user have at most {most} frames (slots of their queues)")
            }
            FlowRefusal::DepthsOfUser { most } => {
                write!(f, "the quotas of a user's flows have depths of at most {most} together")
            }
            FlowRefusal::Full => f.write_str(
                "the interface has as many flows, or datagrams that may wait, as it can have",
            ),
            FlowRefusal::NotLocal(address) => {
                write!(f, "{address} is not an address of the interface")
            }
            FlowRefusal::Slots => {
                write!(f, "the slots of a queue are a power of two up to {SLOTS_MAX}")
            }
            FlowRefusal::Interval => f.write_str("an interval of packets is 1 ns to 1 hour"),
            FlowRefusal::Depth => f.write_str("a depth of packets is at least 1"),
            FlowRefusal::Weight => f.write_str("a weight is at least 1"),
            FlowRefusal::Quota(error) => error.fmt(f),
            FlowRefusal::Memory(error) => write!(f, "the memory of the flow: {error}"),
        }
    }
}

impl core::error::Error for FlowRefusal {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            FlowRefusal::Missing(error) => Some(error),
            FlowRefusal::Program(error) => Some(error),
            FlowRefusal::Interface(error) => Some(error),
            FlowRefusal::Thread(error) => Some(error),
            FlowRefusal::Quota(error) => Some(error),
            FlowRefusal::Memory(error) => Some(error),
            _ => None,
        }
    }
}
