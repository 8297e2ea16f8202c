//! How a daemon broke the protocol of this version.
//!
//! The [`domain`](crate::domain) and [`status`](crate::status) modules use it in their errors.

use std::fmt;

use upcall_shm::wire::ToDomain;

/// A message of the daemon that can be decoded, but breaks the protocol of this version. Part of
/// [`AttachError`](crate::AttachError) and [`StatusError`](crate::status::StatusError).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DaemonFault {
    /// The message does not belong at this place of the exchange.
    OutOfPlace(Box<ToDomain>),
    /// The daemon gave the process a number that no domain can have.
    DomainNumber(u32),
    /// A virtual processor came without the descriptors of its pages.
    PagesMissing,
    /// A peer domain came without the descriptor of its user area.
    AreaMissing,
    /// A part of the status that belongs to a domain came before the first domain.
    PartOfNoDomain,
    /// A daemon that was started again does not schedule all CPUs of the domain.
    CpusMissing {
        /// How many CPUs of the domain it schedules.
        found: usize,
        /// On how many CPUs the domain has threads.
        wanted: usize,
    },
}

impl DaemonFault {
    pub(crate) fn out_of_place(message: ToDomain) -> Self {
        DaemonFault::OutOfPlace(Box::new(message))
    }
}

impl fmt::Display for DaemonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonFault::OutOfPlace(message) => write!(f, "{message:?} out of place"),
            DaemonFault::DomainNumber(found) => write!(f, "domain number {found}"),
            DaemonFault::PagesMissing => f.write_str("a virtual processor without its pages"),
            DaemonFault::AreaMissing => f.write_str("a peer without its area"),
            DaemonFault::PartOfNoDomain => f.write_str("a part of no domain"),
            DaemonFault::CpusMissing { found, wanted } => {
                write!(f, "it schedules {found} of {wanted} CPUs")
            }
        }
    }
}

upcall_core::debug_as_display!(DaemonFault);

impl std::error::Error for DaemonFault {}
