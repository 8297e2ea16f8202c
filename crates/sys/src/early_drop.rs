//! Dropping packets beyond a quota before the kernel spends work on them: early drop by XDP.
//!
//! The owner of an interface calls this (decision 0024). The program is `early_drop.bpf.c`, and its
//! object is in the source, so a user needs no compiler. The quotas and counters are in the quota
//! page, which `upcall-shm` reads and writes.
//!
//! ```text
//!   owner                                        XDP program, at each packet
//!   (1) attach                                   destinations: address, protocol, port -> slot
//!   (2) map_quota_page                           slots: quota -> pass, redirect or drop
//!   (3) quota into a slot, insert destination    counts into the slot
//!   (4) drop: the link, the program and the maps go
//! ```
//!
//! Everything is a descriptor of this process and nothing is pinned. If the process is killed,
//! (4) happens too. This module may not decide on quotas, and touches no other XDP program.

mod error;
mod link;
mod quota_pages;
#[cfg(test)]
mod tests;

pub use crate::placement::Mode;
pub use error::EarlyDropError;
pub use quota_pages::QuotaPages;

use crate::OsError;
use aya::maps::{HashMap, Map, MapData, XskMap};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use core::net::IpAddr;
use error::{of_map, of_object, of_program, os_of_map};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The compiled program.
static OBJECT: &[u8] = aya::include_bytes_aligned!("early_drop/early_drop.bpf.o");

/// Its name in the object.
const PROGRAM: &str = "early_drop";

/// The greatest number of a slot. The page has one more, for counts of all packets.
pub const SLOT_MAX: u32 = quota_pages::SLOTS - 2;

/// Where the kernel is to run the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Request {
    /// In the driver, or else [`Mode::Generic`]. [`EarlyDrop::native_refusal`] says why.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// After the driver.
    Generic,
}

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The address. An unspecified one (`0.0.0.0` or `::`) stands for every address of its family
    /// that has no destination of its own. An IPv4 address may be mapped to IPv6.
    pub address: IpAddr,
    /// The number of the protocol: 17 is UDP, 6 is TCP.
    pub protocol: u8,
    /// The port. 0 for every protocol except UDP and TCP.
    pub port: u16,
}

impl Destination {
    /// The key in the map: `struct destination` of the program.
    fn key(&self) -> [u8; 20] {
        let address = match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut key = [0; 20];
        key[..16].copy_from_slice(&address.octets());
        key[16] = self.protocol;
        key[18..].copy_from_slice(&self.port.to_be_bytes());
        key
    }
}

/// The early drop of one interface, until dropped.
#[derive(Debug)]
pub struct EarlyDrop {
    /// First, so that the program is detached before its maps are closed.
    _link: OwnedFd,
    loaded: Loaded,
    mode: Mode,
    native_refusal: Option<OsError>,
}

impl EarlyDrop {
    /// Loads the program and attaches it to the interface with this index
    /// ([`crate::interface::index`]). There are no destinations yet, and no slot has a quota. So
    /// every packet passes. Blocks for about 0.1 s, in which the kernel verifies the program.
    /// Allocates.
    ///
    /// # Errors
    /// [`EarlyDropError::Rights`] without `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`.
    /// [`EarlyDropError::Busy`] if the interface has another XDP program.
    /// [`EarlyDropError::Verifier`] before Linux 5.18. [`EarlyDropError::Os`] with `ENODEV` without
    /// such an interface, and with the driver's errno if it refuses [`Request::Native`].
    pub fn attach(interface: u32, request: Request) -> Result<EarlyDrop, EarlyDropError> {
        let loaded = Loaded::load()?;
        let create = |mode| link::create(loaded.program()?, interface, mode);
        let (link, mode, native_refusal) = match request {
            Request::Native => (create(Mode::Native)?, Mode::Native, None),
            Request::Generic => (create(Mode::Generic)?, Mode::Generic, None),
            Request::Auto => match create(Mode::Native) {
                Ok(link) => (link, Mode::Native, None),
                Err(EarlyDropError::Os(refusal)) => {
                    (create(Mode::Generic)?, Mode::Generic, Some(refusal))
                }
                Err(error) => return Err(error),
            },
        };
        Ok(EarlyDrop { _link: link, loaded, mode, native_refusal })
    }

    /// Where the kernel runs the program.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Why the driver does not run the program. `None` if it does, or was not asked.
    pub fn native_refusal(&self) -> Option<OsError> {
        self.native_refusal
    }

    /// Maps the quota page, for `upcall_shm::quota_page::Owner::new`. The mapping may outlive
    /// `self`, but no packet is counted then.
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`).
    pub fn map_quota_page(&self) -> Result<QuotaPages, OsError> {
        QuotaPages::map(self.loaded.slots.fd().as_fd())
    }

    /// From now on packets to `destination` belong to `slot`. It replaces an earlier slot. The
    /// caller has set the quota of the slot.
    ///
    /// # Errors
    /// `EINVAL` if `slot` is greater than [`SLOT_MAX`], `E2BIG` if there are already 4096
    /// destinations, `ENOMEM`.
    pub fn insert(&mut self, destination: Destination, slot: u32) -> Result<(), OsError> {
        let operation = "bpf(BPF_MAP_UPDATE_ELEM)";
        if slot > SLOT_MAX {
            return Err(OsError::new(operation, libc::EINVAL));
        }
        let inserted = self.loaded.destinations.insert(destination.key(), slot, 0);
        inserted.map_err(|error| os_of_map(operation, error))
    }

    /// From now on packets to `destination` have no slot of their own. Packets that the program
    /// looks at right now may still be counted there. Returns whether there was such a destination.
    ///
    /// # Errors
    /// The kernel's error. None is known.
    pub fn remove(&mut self, destination: Destination) -> Result<bool, OsError> {
        let operation = "bpf(BPF_MAP_DELETE_ELEM)";
        let removed = self.loaded.destinations.remove(&destination.key());
        match removed.map_err(|error| os_of_map(operation, error)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes `socket` the AF_XDP socket with this number, from 0 to 255. A slot that redirects to
    /// the socket `n` sends packets of the receive queue `q` to the socket `n + q`, because a
    /// socket gets packets of its own queue only. So a single-queue interface needs one number.
    ///
    /// Packets for a socket that is not bound to the interface and the queue are dropped, but
    /// counted as passed. So are those in several pieces, unless it is bound with `XDP_USE_SG`.
    ///
    /// # Errors
    /// `EINVAL` if the number is too great, `EOPNOTSUPP` if `socket` is no AF_XDP socket.
    pub fn insert_socket(&mut self, number: u32, socket: BorrowedFd<'_>) -> Result<(), OsError> {
        let operation = "bpf(BPF_MAP_UPDATE_ELEM, XSKMAP)";
        let inserted = self.loaded.sockets.set(number, socket.as_raw_fd(), 0);
        inserted.map_err(|error| os_of_map(operation, error))
    }

    /// There is no AF_XDP socket with this number any more. Packets of slots that redirect to it
    /// are dropped and counted as undelivered.
    ///
    /// # Errors
    /// `EINVAL` if the number is too great.
    pub fn remove_socket(&mut self, number: u32) -> Result<(), OsError> {
        let operation = "bpf(BPF_MAP_DELETE_ELEM, XSKMAP)";
        let removed = self.loaded.sockets.unset(number);
        removed.map_err(|error| os_of_map(operation, error))
    }
}

/// The program and its maps in the kernel, attached to nothing.
struct Loaded {
    object: Ebpf,
    destinations: HashMap<MapData, [u8; 20], u32>,
    slots: MapData,
    sockets: XskMap<MapData>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Loaded {
    fn load() -> Result<Loaded, EarlyDropError> {
        // The object has no types of its own, so nothing needs the kernel's. At this level the log
        // of a refusal is some lines long and has the reason.
        let mut loader = EbpfLoader::new();
        loader.btf(None).verifier_log_level(VerifierLogLevel::STATS);
        let mut object = loader.load(OBJECT).map_err(of_object)?;
        let mut take = |name| object.take_map(name).ok_or(EarlyDropError::Object(name));
        let destinations = take("destinations")?.try_into().map_err(of_map)?;
        let sockets = take("sockets")?.try_into().map_err(of_map)?;
        let Map::Array(slots) = take("slots")? else { return Err(EarlyDropError::Object("slots")) };
        let program = object.program_mut(PROGRAM).ok_or(EarlyDropError::Object(PROGRAM))?;
        let program: &mut Xdp = program.try_into().map_err(of_program)?;
        program.load().map_err(of_program)?;
        Ok(Loaded { object, destinations, slots, sockets })
    }

    fn program(&self) -> Result<BorrowedFd<'_>, EarlyDropError> {
        let program = self.object.program(PROGRAM).ok_or(EarlyDropError::Object(PROGRAM))?;
        Ok(program.fd().map_err(of_program)?.as_fd())
    }
}
