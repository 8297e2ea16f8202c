//! An interface by a TAP device or a packet socket: one system call for each frame.

use super::device::{Area, Device, DeviceDrops, DeviceError, HEADROOM_BYTES};
use super::frame_lists::{FrameLists, TAG_BYTES, with_tag};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_core::time::Instant;
use upcall_shm::frames::Descriptor;
use upcall_sys::frame_file::FrameFile;

/// Where a frame is read to: a whole word after the headroom, with room for a VLAN tag before it.
const READ_AT: u16 = HEADROOM_BYTES + TAG_BYTES.next_multiple_of(8);

/// A device over a descriptor that reads and writes frames.
#[derive(Debug)]
pub struct FileDevice {
    file: FrameFile,
    area: Arc<Area>,
    frames: FrameLists,
    /// Drops so far. `None` for a TAP device, which does not tell.
    drops: Option<DeviceDrops>,
}

impl FileDevice {
    /// The new TAP interface `name`, of at most 15 bytes. It is deleted with the device, and down
    /// until somebody sets it up. What the device sends arrives at the kernel there, and what the
    /// kernel sends there arrives at the device.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if there is such an interface, `EINVAL` for a name
    /// that is too long, `ENOENT` without /dev/net/tun.
    pub fn tap(area: &Arc<Area>, name: &str) -> Result<FileDevice, DeviceError> {
        Ok(FileDevice::new(area, FrameFile::tap(name)?, None))
    }

    /// A packet socket on the interface with this index ([`interface_index`]). It gets a copy of
    /// every frame that arrives there, and the kernel works on them too. It does not get what this
    /// machine sends.
    ///
    /// [`interface_index`]: super::interface_index
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface, `ENETDOWN`.
    pub fn packet(area: &Arc<Area>, interface: u32) -> Result<FileDevice, DeviceError> {
        Ok(FileDevice::new(area, FrameFile::packet(interface)?, Some(DeviceDrops::default())))
    }

    fn new(area: &Arc<Area>, file: FrameFile, drops: Option<DeviceDrops>) -> FileDevice {
        FileDevice { file, area: area.clone(), frames: FrameLists::new(area), drops }
    }

    /// The words of a frame from the byte `offset` on, which begins a word.
    fn words(&self, frame: u32, offset: u16) -> Result<&[AtomicU64], DeviceError> {
        let length = self.area.form().size as u16 - offset;
        let rest = self.area.part(Descriptor { frame, offset, length })?;
        Ok(rest.words().unwrap_or_default())
    }
}

impl Device for FileDevice {
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        self.frames.supply(free);
        Ok(())
    }

    fn receive(&mut self, _: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        while parts.len() < parts.capacity()
            && let Some(&frame) = self.frames.free.last()
            && let Some(read) = self.file.read(self.words(frame, READ_AT)?)?
        {
            if read.is_cut_off {
                if let Some(drops) = &mut self.drops {
                    drops.too_long += 1;
                }
                continue;
            }
            // At most the bytes of a frame.
            let length = u16::try_from(read.bytes).unwrap_or(u16::MAX);
            let part = Descriptor { frame, offset: READ_AT, length };
            parts.push(with_tag(&self.area, part, read.tag)?);
            self.frames.free.pop();
        }
        Ok(())
    }

    fn transmit(&mut self, _: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        for (taken, part) in parts.iter().enumerate() {
            let written = part
                .check(self.area.form(), "transmit batch")
                .map_err(DeviceError::from)
                .and_then(|()| self.words(part.frame, 0))
                .and_then(|words| {
                    Ok(self.file.write(words, part.offset.into(), part.length.into())?)
                });
            match written {
                Ok(true) => self.frames.sent.push(part.frame),
                Ok(false) => return Ok(taken),
                // The next call finds the same error for its first frame.
                Err(_) if taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
        Ok(parts.len())
    }

    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError> {
        self.frames.take_sent(frames, most);
        Ok(())
    }

    fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError> {
        if let Some(drops) = &mut self.drops {
            drops.no_room += self.file.take_drops()?;
        }
        Ok(self.drops)
    }
}
