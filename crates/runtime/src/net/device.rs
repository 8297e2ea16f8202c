//! What every device does, and how it fails.

use std::fmt;
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_shm::frames::account::AccountError;
use upcall_shm::frames::{Descriptor, FrameArea, FrameForm};
use upcall_shm::{LayoutError, PeerFault};
use upcall_sys::OsError;
use upcall_sys::memfd::{MapError, SharedMapping};

/// Frames in memory that the devices, the owner and the domains share.
pub type Area = FrameArea<SharedMapping>;

/// A new area. Takes memory as frames are used. Allocates.
///
/// # Errors
/// [`DeviceError::Map`] if the kernel has no memory, or `form` has no frames.
pub fn area(form: FrameForm) -> Result<Arc<Area>, DeviceError> {
    let memory = SharedMapping::create("upcall frames", form.bytes()).map_err(DeviceError::Map)?;
    Ok(Arc::new(FrameArea::new(memory, form)?))
}

/// Bytes at the start of a frame that no device receives into.
pub use upcall_shm::frames::HEADROOM_BYTES;

/// One interface, or one queue of it. A call handles a batch, and never blocks. `now` is the time
/// of the call. Only the model of a wire uses it.
pub trait Device: fmt::Debug {
    /// Takes frames to receive into, from the end of `free`, as many as it can hold. No system
    /// call.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError>;

    /// Appends the frames that arrived, in their order, until `parts` has reached its capacity.
    /// Each has [`HEADROOM_BYTES`] before it, and its VLAN tags. One that is too long for the rest
    /// of a frame is dropped.
    ///
    /// # Errors
    /// The interface is down or gone, or the kernel broke a ring. What was appended is valid.
    fn receive(&mut self, now: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError>;

    /// Sends `parts` in their order, and returns how many the device took. A full device takes
    /// fewer.
    ///
    /// # Errors
    /// The first part was not taken: it fits no frame, or the interface refuses it or is gone.
    fn transmit(&mut self, now: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError>;

    /// Appends the frames that were sent and are no longer used, at most `most`.
    ///
    /// # Errors
    /// As [`Device::receive`].
    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError>;

    /// Frames that arrived and were dropped since the device was made. `None`: the device does not
    /// tell. One system call for each socket at most.
    ///
    /// # Errors
    /// The kernel's error.
    fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError>;
}

/// Frames that a device dropped before its owner saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceDrops {
    /// No frame was free, or a ring or the buffer of a socket was full.
    pub no_room: u64,
    /// Longer than the room of a frame.
    pub too_long: u64,
}

impl DeviceDrops {
    /// Those for both reasons.
    pub fn all(self) -> u64 {
        self.no_room + self.too_long
    }
}

impl std::ops::AddAssign for DeviceDrops {
    fn add_assign(&mut self, more: DeviceDrops) {
        self.no_room += more.no_room;
        self.too_long += more.too_long;
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        (**self).supply(free)
    }

    fn receive(&mut self, now: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        (**self).receive(now, parts)
    }

    fn transmit(&mut self, now: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        (**self).transmit(now, parts)
    }

    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError> {
        (**self).take_sent(frames, most)
    }

    fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError> {
        (**self).drops()
    }
}

/// Why a device failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The interface is down or gone.
    Down(OsError),
    /// A ring or a descriptor holds an impossible value.
    Fault(PeerFault),
    /// A frame is not where the account has it.
    Account(AccountError),
    /// The rings do not fit their memory.
    Layout(LayoutError),
    /// There is no memory for the area.
    Map(MapError),
    /// Another error of a system call. A packet socket and AF_XDP need `CAP_NET_RAW`, a TAP device
    /// `CAP_NET_ADMIN`.
    Os(OsError),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Down(error) => write!(f, "{error}: the interface is down or gone"),
            DeviceError::Fault(fault) => fault.fmt(f),
            DeviceError::Account(error) => error.fmt(f),
            DeviceError::Layout(error) => error.fmt(f),
            DeviceError::Map(error) => error.fmt(f),
            DeviceError::Os(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for DeviceError {
    /// As `Display`: `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for DeviceError {}

impl From<OsError> for DeviceError {
    fn from(error: OsError) -> Self {
        use upcall_sys::af_xdp::is_down;
        if is_down(error) { DeviceError::Down(error) } else { DeviceError::Os(error) }
    }
}

impl From<PeerFault> for DeviceError {
    fn from(fault: PeerFault) -> Self {
        DeviceError::Fault(fault)
    }
}

impl From<AccountError> for DeviceError {
    fn from(error: AccountError) -> Self {
        DeviceError::Account(error)
    }
}

impl From<LayoutError> for DeviceError {
    fn from(error: LayoutError) -> Self {
        DeviceError::Layout(error)
    }
}
