//! An interface with packet quotas: the program in its driver, and the page of its quotas.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use upcall_runtime::net::{Program, ProgramError};
use upcall_shm::quota_page::{self, Quota, QuotaError};
use upcall_shm::wire::{PacketCounts, PacketDestination, PacketQuota};
use upcall_sys::OsError;
use upcall_sys::early_drop::{Destination, EarlyDropError, Request};
use upcall_sys::interface;
use upcall_sys::placement::{Cpus, Mode, Placement};

use crate::network::FLOWS_MAX;
use crate::xdp_programs::XdpPrograms;

/// Slots for destinations, and [`SLOT_OTHERS`]. Those above are of flows.
pub(super) const SLOTS: u32 = quota_page::SLOT_MAX + 1 - FLOWS_MAX;
/// The slot of packets for destinations without a quota.
pub(super) const SLOT_OTHERS: u32 = quota_page::SLOT_UNKNOWN;

/// See the module's head. Its quotas must be removed before it is dropped: the program may stay for
/// flows.
pub(super) struct Interface {
    name: String,
    program: Program,
}

/// Why an interface cannot keep a quota.
#[derive(Debug)]
pub(crate) enum InterfaceError {
    /// There is no such interface.
    Missing(OsError),
    /// The program was not attached, or has the destination for a flow.
    Program(ProgramError),
    /// The program is attached for flows, and not in the driver. The driver's refusal, if it gave
    /// one.
    NotNative(Option<OsError>),
    /// The numbers are no quota.
    Quota(QuotaError),
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceError::Missing(error) => write!(
                f,
                "no such interface in the daemon's network namespace (`upcall net` lists them): {error}"
            ),
            InterfaceError::Program(ProgramError::Attach(EarlyDropError::Os(error)))
            | InterfaceError::NotNative(Some(error)) => write!(
                f,
                "its driver does not run the program that drops packets (`upcall net` shows which \
                 do): {error}"
            ),
            InterfaceError::NotNative(None) => {
                f.write_str("its driver does not run the program that drops packets")
            }
            InterfaceError::Program(error) => error.fmt(f),
            InterfaceError::Quota(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for InterfaceError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(match self {
            InterfaceError::Missing(error) => error,
            InterfaceError::Program(error) => error,
            InterfaceError::NotNative(error) => error.as_ref()?,
            InterfaceError::Quota(error) => error,
        })
    }
}

impl Interface {
    /// Attaches the program to the driver of the interface `name`, if it is not there yet. Packets
    /// pass, except those beyond `others`.
    pub(super) fn attach(
        name: &str,
        others: Option<&PacketQuota>,
        programs: &mut XdpPrograms,
    ) -> Result<Self, InterfaceError> {
        let index = interface::index(name).map_err(InterfaceError::Missing)?;
        // Generic XDP costs the CPU about as much as it saves.
        let program = programs.of(index, Request::Native).map_err(InterfaceError::Program)?;
        if program.mode() != Mode::Native {
            return Err(InterfaceError::NotNative(program.native_refusal()));
        }
        if let Some(others) = others {
            program.page().set_quota(SLOT_OTHERS, limit(others)?);
        }
        Ok(Interface { name: name.to_owned(), program })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the interface with this name is the one to which the program was attached.
    pub(super) fn is_there(&self) -> bool {
        interface::index(&self.name) == Ok(self.program.interface())
    }

    /// Limits a destination by `slot`, which no destination has. If it fails, nothing has changed.
    pub(super) fn set(&mut self, slot: u32, quota: &PacketQuota) -> Result<(), InterfaceError> {
        let limit = limit(quota)?;
        // The counts of a former destination end here. Then the quota comes first, so that the
        // first packet has it.
        self.program.page().clear(slot);
        self.program.page().set_quota(slot, limit);
        for key in keys(&quota.destination) {
            if let Err(error) = self.program.insert(key, slot) {
                self.remove(slot, quota);
                return Err(InterfaceError::Program(error));
            }
        }
        Ok(())
    }

    /// Ends the limit of a destination, and frees its slot.
    pub(super) fn remove(&mut self, slot: u32, quota: &PacketQuota) {
        for key in keys(&quota.destination) {
            // No error is known; it would leave a limit until the program is detached.
            if let Err(error) = self.program.remove(key, slot) {
                let (event, name) = ("packet quotas", &self.name);
                tracing::warn!(event, name, %error, "a packet quota is not removed");
            }
        }
        self.program.page().clear(slot);
    }

    pub(super) fn counts(&self, slot: u32) -> PacketCounts {
        let counters = self.program.page().counters(slot);
        let dropped = counters.dropped + counters.contended + counters.undelivered;
        PacketCounts { passed: counters.passed, dropped }
    }

    /// Where packets are dropped, in one line, with a warning if that is one of the CPUs
    /// `protected`. Reads files of the kernel.
    pub(super) fn place(&self, protected: &[u32]) -> String {
        let (name, mode) = (&self.name, self.program.mode());
        let placement = match Placement::of(name) {
            Ok(placement) => placement,
            Err(error) => {
                return format!(
                    "{name}: the quota holds, but where drops run is not known: {error}; /sys \
                     shows another network namespace if it was mounted there"
                );
            }
        };
        let line = placement.line(mode);
        match taken(&placement.early_drop(mode), protected).as_slice() {
            [] => format!("{name}: {line}"),
            cpus => format!(
                "{name}: {line}; WARNING: the daemon schedules {}, so a flood takes time of its \
                 handlers and programs: let another CPU do it (interrupt affinity, `ethtool -L`)",
                Cpus::Listed(cpus.to_vec())
            ),
        }
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        // The limit of other packets is there while there are quotas.
        self.program.page().clear(SLOT_OTHERS);
    }
}

/// A quota as the page has it.
fn limit(quota: &PacketQuota) -> Result<Quota, InterfaceError> {
    let PacketQuota { interval_ns, depth, .. } = *quota;
    Quota::new(interval_ns, 0, u64::from(depth)).map_err(InterfaceError::Quota)
}

/// The CPUs of `protected` on which packets are dropped for sure.
fn taken(drops: &Cpus, protected: &[u32]) -> Vec<u32> {
    match drops {
        Cpus::Listed(cpus) => protected.iter().copied().filter(|cpu| cpus.contains(cpu)).collect(),
        Cpus::Senders | Cpus::Unknown => Vec::new(),
    }
}

/// The keys of a destination in the map of the program. Any address is one of each family.
fn keys(destination: &PacketDestination) -> Vec<Destination> {
    let PacketDestination { address, protocol, port } = *destination;
    let addresses: &[IpAddr] = match Ipv6Addr::from(address) {
        Ipv6Addr::UNSPECIFIED => {
            &[IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
        }
        address => &[IpAddr::V6(address)],
    };
    let key = |&address| Destination { address, protocol, port };
    addresses.iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protected_cpu_on_which_drops_run_is_found() {
        let drops = Cpus::Listed(vec![0, 2]);
        assert_eq!(taken(&drops, &[1, 2, 3]), [2]);
        assert!(taken(&drops, &[1, 3]).is_empty());
        assert!(taken(&Cpus::Senders, &[0]).is_empty());
    }

    #[test]
    fn any_address_is_one_of_each_family() {
        let any = PacketDestination { address: [0; 16], protocol: 17, port: 5004 };
        let families: Vec<bool> = keys(&any).iter().map(|key| key.address.is_ipv4()).collect();
        assert_eq!(families, [true, false]);
        let mapped = Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped();
        let one = keys(&PacketDestination { address: mapped.octets(), ..any });
        assert_eq!(one, [Destination { address: IpAddr::V6(mapped), protocol: 17, port: 5004 }]);
    }
}
