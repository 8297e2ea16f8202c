//! On which CPUs the kernel works on the packets that an interface receives.
//!
//! The owner of an interface calls this (decision 0024, section 3). A drop on the protected CPU
//! costs time there, so the owner says where drops run, and may move them. Reads sysfs and procfs,
//! and allocates: for a start, not for a hot path. This module may not choose CPUs.
//!
//! ```text
//!   sender's CPU (veth), or CPU of the interrupt        rps_cpus, if set
//!   (1) NAPI poll: native XDP      -------------->  (2) generic XDP, protocols, socket
//!       threaded: on the CPUs of its kernel threads
//! ```

mod change;
mod files;
mod place;
#[cfg(test)]
mod tests;

pub use change::Change;
pub use place::{Cpus, Mode, Placement};

use crate::OsError;
use files::Files;

impl Placement {
    /// The placement of the interface with this name in this network namespace.
    ///
    /// # Errors
    /// `ENODEV` without such an interface, or if the sysfs at `/sys` belongs to another network
    /// namespace.
    pub fn of(interface: &str) -> Result<Placement, OsError> {
        let index = crate::interface::index(interface)?;
        Files::of_kernel(interface).placement(index)
    }
}

/// Lets the kernel pass received packets to `cpus` after polling, for every receive queue; an empty
/// list: it goes on where it polled. The caller restores the old value with [`Change::restore`].
///
/// # Errors
/// `EACCES` without root. `ENODEV`, `ENOENT` without such an interface. `EINVAL` or `EOVERFLOW` if
/// a CPU does not exist. Queues before the one that failed have their old values again.
pub fn set_rps_cpus(interface: &str, cpus: &[u32]) -> Result<Change, OsError> {
    crate::interface::index(interface)?;
    Files::of_kernel(interface).set_rps_cpus(cpus)
}

/// Lets kernel threads poll the interface (`threaded`), or interrupts again. Then the threads show
/// in [`Placement::napi_threads`]. The caller restores the old value with [`Change::restore`].
///
/// # Errors
/// `EACCES`, `EPERM` without root. `ENODEV`, `ENOENT` without such an interface. `EOPNOTSUPP` if
/// it is not polled at all, such as a veth without native XDP.
pub fn set_threaded(interface: &str, threaded: bool) -> Result<Change, OsError> {
    crate::interface::index(interface)?;
    Files::of_kernel(interface).set_threaded(threaded)
}
