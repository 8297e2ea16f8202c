//! The frames of a device that copies: those to receive into, and those that were sent.
//!
//! Each device but AF_XDP has one. It knows no account: that is the port's.

use super::device::{Area, DeviceError};
use upcall_shm::frames::Descriptor;

/// Indexes of frames. Allocates only when it is made.
#[derive(Debug)]
pub(super) struct FrameLists {
    /// Frames to receive into.
    pub free: Vec<u32>,
    /// Frames that were sent. They are unused at once, because they were copied.
    pub sent: Vec<u32>,
}

impl FrameLists {
    /// No frame yet, and room for all of `area`.
    pub(super) fn new(area: &Area) -> FrameLists {
        let list = || Vec::with_capacity(area.form().frames as usize);
        FrameLists { free: list(), sent: list() }
    }

    /// `Device::supply`.
    pub(super) fn supply(&mut self, free: &mut Vec<u32>) {
        let room = self.free.capacity() - self.free.len();
        let from = free.len().saturating_sub(room);
        self.free.extend(free.drain(from..));
    }

    /// `Device::take_sent`.
    pub(super) fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) {
        let taken = most.min(self.sent.len());
        frames.extend(self.sent.drain(..taken));
    }
}

/// Puts a VLAN tag back into the frame `part`, in front of its EtherType. There are 4 free bytes
/// before the part.
///
/// # Errors
/// There are not.
pub(super) fn with_tag(
    area: &Area,
    part: Descriptor,
    tag: Option<[u8; 4]>,
) -> Result<Descriptor, DeviceError> {
    let Some(tag) = tag else { return Ok(part) };
    let mut addresses = [0; 12];
    area.part(part)?.copy_to(0, &mut addresses);
    let part = Descriptor {
        offset: part.offset.saturating_sub(TAG_BYTES),
        length: part.length.saturating_add(TAG_BYTES),
        ..part
    };
    let payload = area.part(part)?;
    payload.fill(0, &addresses);
    payload.fill(addresses.len(), &tag);
    Ok(part)
}

/// Bytes of a VLAN tag.
pub(super) const TAG_BYTES: u16 = 4;
