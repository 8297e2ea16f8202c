//! Packet quotas of destinations, on the interfaces of a daemon
//! (docs/decisions/0024-network.md).
//!
//! ```text
//!  idle -- (1) first quota --> attached -- (2) last quota ends, drop --> idle
//!                                  |
//!                                  +------ (3) killed ------------------> idle
//! ```
//!
//! 1. Each interface gets the program that drops packets. If one refuses, none keeps it.
//! 2. The programs go with their descriptors, unless flows use them (`xdp_programs`).
//! 3. The kernel closes the descriptors of a process that ends, so nothing is left.
//!
//! A quota has the same slot on each interface, so it holds on each by itself: a receiver that gets
//! packets from two interfaces may get twice its rate.
//!
//! One thread uses it, the server's. A change is some system calls an interface, and blocks for no
//! packet. Reading counts makes none.

use core::fmt;
use std::collections::BTreeMap;

use upcall_core::time::Span;
use upcall_shm::quota_page::{Quota, QuotaError};
use upcall_shm::wire::{PacketCounts, PacketDestination, PacketQuota, PacketQuotaStatus};
use upcall_sys::clock;

use crate::xdp_programs::XdpPrograms;
pub(crate) use interface::InterfaceError;
use interface::{Interface, SLOT_OTHERS};

mod interface;

/// The longest interval between two packets: one hour.
const INTERVAL_NS_MAX: u64 = 3_600_000_000_000;
/// The most packets ahead of their eligible times.
const DEPTH_MAX: u32 = 10_000_000;

/// The quotas of a daemon, and the interfaces that keep them.
pub(crate) struct PacketQuotas {
    /// The names that the operator gave.
    names: Vec<String>,
    /// For all destinations without a quota. `None`: no limit.
    others: Option<PacketQuota>,
    /// In the order of their names. Empty without quotas.
    interfaces: Vec<Interface>,
    quotas: BTreeMap<PacketDestination, Held>,
}

/// A quota and its owner.
struct Held {
    quota: PacketQuota,
    slot: u32,
    owner: Owner,
}

/// Who asked for a quota.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) session: u64,
    /// The process of its program, for display.
    pub(crate) pid: u32,
    /// The name of its program, for display.
    pub(crate) name: String,
}

/// A quota that has ended.
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) destination: PacketDestination,
    pub(crate) counts: PacketCounts,
}

/// Why there is no quota.
#[derive(Debug)]
pub(crate) enum PacketQuotaError {
    /// The daemon has no interfaces.
    NoInterface,
    /// An interface refused.
    Interface { name: String, error: InterfaceError },
    /// The destination has a quota.
    Taken { pid: u32, name: String },
    /// All slots are taken.
    TooMany { slots: u32 },
    /// The destination stands for all others.
    Destination,
    /// The interval is 0, or longer than an hour.
    Interval,
    /// The depth is 0, or too great.
    Depth,
    /// So many packets at once, and so rarely, that their time is beyond all bounds.
    Product(QuotaError),
}

impl fmt::Display for PacketQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketQuotaError::NoInterface => f.write_str(
                "the daemon has no interface for packet quotas: start it with `--interfaces`, \
                 such as `--interfaces eth1` (`upcall net` lists them)",
            ),
            PacketQuotaError::Interface { name, error } => write!(f, "interface {name}: {error}"),
            PacketQuotaError::Taken { pid, name } => {
                write!(f, "the destination has a quota already, of `{name}` (process {pid})")
            }
            PacketQuotaError::TooMany { slots } => {
                write!(f, "all {slots} quotas of the daemon are taken")
            }
            PacketQuotaError::Destination => f.write_str(
                "a quota needs a protocol and a port; `--other-packets` limits all others",
            ),
            PacketQuotaError::Interval => f.write_str("an interval of packets is 1 ns to 1 hour"),
            PacketQuotaError::Product(error) => error.fmt(f),
            PacketQuotaError::Depth => write!(f, "a depth of packets is 1 to {DEPTH_MAX}"),
        }
    }
}

impl core::error::Error for PacketQuotaError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            PacketQuotaError::Interface { error, .. } => Some(error),
            PacketQuotaError::Product(error) => Some(error),
            _ => None,
        }
    }
}

impl PacketQuotas {
    /// No quotas, for a daemon with these interfaces. Attaches nothing before the first quota.
    /// `others` limits packets for destinations without a quota, while there are quotas.
    pub(crate) fn new(mut names: Vec<String>, others: Option<(Span, u32)>) -> Self {
        names.sort();
        names.dedup();
        let others = others.map(|(interval, depth)| PacketQuota {
            destination: PacketDestination::OTHERS,
            interval_ns: interval.as_nanos().clamp(1, INTERVAL_NS_MAX),
            depth: depth.clamp(1, DEPTH_MAX),
        });
        PacketQuotas { names, others, interfaces: Vec::new(), quotas: BTreeMap::new() }
    }

    /// How many quotas there are.
    pub(crate) fn count(&self) -> usize {
        self.quotas.len()
    }

    /// Limits a destination on all interfaces. Returns where packets are dropped, a line for each
    /// interface. It warns where that is one of `protected`, the CPUs that the daemon schedules.
    ///
    /// # Errors
    /// See [`PacketQuotaError`]; then nothing has changed.
    pub(crate) fn set(
        &mut self,
        quota: PacketQuota,
        owner: Owner,
        protected: &[u32],
        programs: &mut XdpPrograms,
    ) -> Result<String, PacketQuotaError> {
        if quota.destination.protocol == 0 {
            return Err(PacketQuotaError::Destination);
        }
        if !(1..=INTERVAL_NS_MAX).contains(&quota.interval_ns) {
            return Err(PacketQuotaError::Interval);
        }
        if !(1..=DEPTH_MAX).contains(&quota.depth) {
            return Err(PacketQuotaError::Depth);
        }
        let product = Quota::new(quota.interval_ns, 0, quota.depth.into());
        product.map_err(PacketQuotaError::Product)?;
        let quota = PacketQuota { destination: canonical(quota.destination), ..quota };
        if let Some(Held { owner, .. }) = self.quotas.get(&quota.destination) {
            let name = owner.name.clone();
            return Err(PacketQuotaError::Taken { pid: owner.pid, name });
        }
        let slot = self.free_slot()?;
        self.attach(programs)?;
        for at in 0..self.interfaces.len() {
            if let Err(error) = self.interfaces[at].set(slot, &quota) {
                let name = self.interfaces[at].name().to_owned();
                self.interfaces[..at].iter_mut().for_each(|set| set.remove(slot, &quota));
                self.detach_without_quotas();
                return Err(PacketQuotaError::Interface { name, error });
            }
        }
        self.quotas.insert(quota.destination, Held { quota, slot, owner });
        let places = self.interfaces.iter().map(|interface| interface.place(protected));
        Ok(places.collect::<Vec<_>>().join("\n"))
    }

    /// Ends all quotas of a session. Returns them with their counts.
    pub(crate) fn end(&mut self, session: u64) -> Vec<Ended> {
        let of_session = self.quotas.extract_if(.., |_, held| held.owner.session == session);
        let held: Vec<Held> = of_session.map(|(_, held)| held).collect();
        let mut ended = Vec::new();
        for Held { quota, slot, owner } in held {
            let (destination, counts) = (quota.destination, self.counts_of(slot));
            ended.push(Ended { name: owner.name, destination, counts });
            self.interfaces.iter_mut().for_each(|interface| interface.remove(slot, &quota));
        }
        self.detach_without_quotas();
        ended
    }

    /// The counts of a session's quota, on all interfaces. `None`: it has no such quota.
    pub(crate) fn counts(
        &self,
        session: u64,
        destination: PacketDestination,
    ) -> Option<PacketCounts> {
        let held = self
            .quotas
            .get(&canonical(destination))
            .filter(|held| held.owner.session == session)?;
        Some(self.counts_of(held.slot))
    }

    /// The counts of a slot, on all interfaces.
    fn counts_of(&self, slot: u32) -> PacketCounts {
        let add = |sum: PacketCounts, of: PacketCounts| PacketCounts {
            passed: sum.passed.saturating_add(of.passed),
            dropped: sum.dropped.saturating_add(of.dropped),
        };
        let each = self.interfaces.iter().map(|interface| interface.counts(slot));
        each.fold(PacketCounts::default(), add)
    }

    /// The state of each quota on each interface.
    pub(crate) fn status(&self) -> Vec<PacketQuotaStatus> {
        let of = |quota, slot, (pid, name): (u32, &str), interface: &Interface| PacketQuotaStatus {
            quota,
            counts: interface.counts(slot),
            pid,
            at_ns: clock::monotonic_ns(),
            interface: interface.name().to_owned(),
            name: name.to_owned(),
        };
        let held = self
            .quotas
            .values()
            .map(|Held { quota, slot, owner }| (*quota, *slot, (owner.pid, owner.name.as_str())));
        let others = self.others.map(|quota| (quota, SLOT_OTHERS, (std::process::id(), "")));
        let all = held.chain(others);
        all.flat_map(|(quota, slot, owner)| {
            self.interfaces.iter().map(move |interface| of(quota, slot, owner, interface))
        })
        .collect()
    }

    /// The least number that no quota has.
    fn free_slot(&self) -> Result<u32, PacketQuotaError> {
        let is_free = |slot: &u32| self.quotas.values().all(|held| held.slot != *slot);
        let slots = interface::SLOTS;
        (SLOT_OTHERS + 1..slots).find(is_free).ok_or(PacketQuotaError::TooMany { slots: slots - 1 })
    }

    /// Attaches each interface that is not attached, with all quotas. One may have been removed and
    /// made again under its name; its counts begin again.
    fn attach(&mut self, programs: &mut XdpPrograms) -> Result<(), PacketQuotaError> {
        if self.names.is_empty() {
            return Err(PacketQuotaError::NoInterface);
        }
        for at in 0..self.names.len() {
            if self.interfaces.get(at).is_some_and(Interface::is_there) {
                continue;
            }
            match self.attached(&self.names[at], programs) {
                Ok(new) if at < self.interfaces.len() => self.interfaces[at] = new,
                Ok(new) => self.interfaces.push(new),
                Err(error) => {
                    self.detach_without_quotas();
                    let name = self.names[at].clone();
                    return Err(PacketQuotaError::Interface { name, error });
                }
            }
        }
        Ok(())
    }

    /// An interface with all quotas.
    fn attached(
        &self,
        name: &str,
        programs: &mut XdpPrograms,
    ) -> Result<Interface, InterfaceError> {
        let mut interface = Interface::attach(name, self.others.as_ref(), programs)?;
        for Held { quota, slot, .. } in self.quotas.values() {
            interface.set(*slot, quota)?;
        }
        Ok(interface)
    }

    fn detach_without_quotas(&mut self) {
        if self.quotas.is_empty() {
            self.interfaces.clear();
        }
    }
}

/// One form of each destination: any address is zeros, whatever its family.
fn canonical(destination: PacketDestination) -> PacketDestination {
    let any = std::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets();
    match destination.address == any {
        true => PacketDestination { address: [0; 16], ..destination },
        false => destination,
    }
}
