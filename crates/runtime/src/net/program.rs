//! The XDP program of an interface, which packet quotas and flows share: an interface can have one.
//!
//! Several owners have a [`Program`] of the same interface. The kernel detaches it when the last of
//! them drops it, also if the process is killed.
//!
//! ```text
//!   slot of the page     whose
//!   0                    packets for no destination
//!   1, 2 and on          packet quotas, from below
//!   1022, 1021 and on    flows, from above
//! ```
//!
//! A call blocks for a system call, and for another thread that is in such a call. A look at the
//! page does neither.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use upcall_shm::LayoutError;
use upcall_shm::quota_page::{Owner, SLOT_MAX};
use upcall_sys::OsError;
use upcall_sys::early_drop::{Destination, EarlyDrop, EarlyDropError, Mode, QuotaPages, Request};

/// The program of an interface. A clone is the same program.
///
/// [`UdpInterface::open`](super::UdpInterface::open) attaches one by itself. A program of your own
/// needs this for packet quotas beside flows, or to ask for the driver:
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// use upcall::net::{InterfaceSettings, Program, Request, UdpInterface, interface_index};
///
/// // In the driver, or not at all.
/// let program = Program::attach(interface_index("eth1")?, Request::Native)?;
/// let interface = UdpInterface::open_with(program, "eth1", InterfaceSettings::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program(Arc<Shared>);

/// A program that somebody else keeps.
#[derive(Clone, Debug)]
pub struct WeakProgram(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    interface: u32,
    mode: Mode,
    native_refusal: Option<OsError>,
    /// First, so that the program is detached before its page is unmapped.
    destinations: Mutex<Destinations>,
    page: Owner<QuotaPages>,
}

#[derive(Debug)]
struct Destinations {
    early_drop: EarlyDrop,
    /// The slot of each destination, by its canonical address.
    slots: HashMap<Destination, u32>,
}

impl Program {
    /// Attaches the program to the interface with this index. Blocks for about 0.1 s, in which the
    /// kernel verifies it. Allocates.
    ///
    /// # Errors
    /// See [`ProgramError`].
    pub fn attach(interface: u32, request: Request) -> Result<Program, ProgramError> {
        let early_drop = EarlyDrop::attach(interface, request).map_err(ProgramError::Attach)?;
        let pages = early_drop.map_quota_page().map_err(ProgramError::Os)?;
        let page = Owner::new(pages).map_err(ProgramError::Page)?;
        Ok(Program(Arc::new(Shared {
            interface,
            mode: early_drop.mode(),
            native_refusal: early_drop.native_refusal(),
            destinations: Mutex::new(Destinations { early_drop, slots: HashMap::new() }),
            page,
        })))
    }

    /// A reference that does not keep the program attached.
    pub fn downgrade(&self) -> WeakProgram {
        WeakProgram(Arc::downgrade(&self.0))
    }

    /// The index of its interface.
    pub fn interface(&self) -> u32 {
        self.0.interface
    }

    /// Where the kernel runs it.
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// Why the driver does not run it. `None` if it does.
    pub fn native_refusal(&self) -> Option<OsError> {
        self.0.native_refusal
    }

    /// Its quota page.
    pub fn page(&self) -> &Owner<QuotaPages> {
        &self.0.page
    }

    /// Packets for `destination` belong to `slot` from now on.
    ///
    /// # Errors
    /// [`ProgramError::Taken`]: the destination has a slot. [`ProgramError::Os`]: there are 4096
    /// destinations (`E2BIG`), or `ENOMEM`.
    pub fn insert(&self, destination: Destination, slot: u32) -> Result<(), ProgramError> {
        let key = canonical(destination);
        let mut destinations = self.destinations();
        if destinations.slots.contains_key(&key) {
            return Err(ProgramError::Taken(key));
        }
        destinations.early_drop.insert(key, slot).map_err(ProgramError::Os)?;
        destinations.slots.insert(key, slot);
        Ok(())
    }

    /// Packets for `destination` have no slot from now on, if they had this one.
    ///
    /// # Errors
    /// The kernel's. None is known.
    pub fn remove(&self, destination: Destination, slot: u32) -> Result<(), OsError> {
        let key = canonical(destination);
        let mut destinations = self.destinations();
        if destinations.slots.get(&key) != Some(&slot) {
            return Ok(());
        }
        destinations.early_drop.remove(key)?;
        destinations.slots.remove(&key);
        Ok(())
    }

    /// Packets of slots with the action
    /// [`Redirect`](upcall_shm::quota_page::Action::Redirect) to `number` go to an AF_XDP socket
    /// from now on. Each receive queue has a socket of its own, and numbers that follow each other
    /// ([`XdpDevice::sockets`](super::XdpDevice::sockets)).
    ///
    /// # Errors
    /// `EINVAL`: `number` is greater than 255. `EOPNOTSUPP`: `socket` is no AF_XDP socket.
    pub fn insert_socket(&self, number: u32, socket: BorrowedFd<'_>) -> Result<(), OsError> {
        self.destinations().early_drop.insert_socket(number, socket)
    }

    /// Packets for the socket `number` are dropped and counted as undelivered from now on.
    ///
    /// # Errors
    /// `EINVAL`: `number` is greater than 255.
    pub fn remove_socket(&self, number: u32) -> Result<(), OsError> {
        self.destinations().early_drop.remove_socket(number)
    }

    fn destinations(&self) -> MutexGuard<'_, Destinations> {
        // A panic leaves the map as the kernel has it, or with one entry more.
        self.0.destinations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakProgram {
    /// The program. `None`: nobody keeps it, so it is detached.
    pub fn upgrade(&self) -> Option<Program> {
        self.0.upgrade().map(Program)
    }
}

/// The slot of the page for the flow with this number.
pub const fn flow_slot(flow: u32) -> u32 {
    SLOT_MAX - flow
}

/// One form of each destination.
fn canonical(destination: Destination) -> Destination {
    let address = match destination.address {
        IpAddr::V6(address) => address.to_canonical(),
        address => address,
    };
    Destination { address, ..destination }
}

/// Why an interface has no program, or a destination no slot.
#[non_exhaustive]
pub enum ProgramError {
    /// The program was refused, such as for want of rights.
    Attach(EarlyDropError),
    /// The quota page is not one.
    Page(LayoutError),
    /// A packet quota or a flow has this destination.
    Taken(Destination),
    /// Another error of the kernel.
    Os(OsError),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Attach(error) => error.fmt(f),
            ProgramError::Page(error) => error.fmt(f),
            ProgramError::Taken(Destination { address, port, .. }) => {
                write!(f, "a packet quota or a flow has the address {address} with port {port}")
            }
            ProgramError::Os(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for ProgramError {
    /// As `Display`: `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ProgramError::Attach(error) => Some(error),
            ProgramError::Page(error) => Some(error),
            ProgramError::Taken(_) => None,
            ProgramError::Os(error) => Some(error),
        }
    }
}
