//! An interface by a TAP device or a packet socket: one system call for each frame.

use super::device::{Area, Device, DeviceError};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_core::time::Instant;
use upcall_shm::frames::Descriptor;
use upcall_sys::frame_file::FrameFile;

/// A device over a descriptor that reads and writes frames.
#[derive(Debug)]
pub struct FileDevice {
    file: FrameFile,
    area: Arc<Area>,
    /// Frames to receive into.
    free: Vec<u32>,
    /// Frames that were sent. They are unused at once, because the kernel copied them.
    sent: Vec<u32>,
    /// Drops so far. `None` for a TAP device, which does not tell.
    drops: Option<u64>,
}

impl FileDevice {
    /// The new TAP interface `name` ([`FrameFile::tap`]).
    ///
    /// # Errors
    /// As [`FrameFile::tap`].
    pub fn tap(area: &Arc<Area>, name: &str) -> Result<FileDevice, DeviceError> {
        Ok(FileDevice::new(area, FrameFile::tap(name)?, None))
    }

    /// A packet socket on the interface with this index ([`FrameFile::packet`]).
    ///
    /// # Errors
    /// As [`FrameFile::packet`].
    pub fn packet(area: &Arc<Area>, interface: u32) -> Result<FileDevice, DeviceError> {
        Ok(FileDevice::new(area, FrameFile::packet(interface)?, Some(0)))
    }

    fn new(area: &Arc<Area>, file: FrameFile, drops: Option<u64>) -> FileDevice {
        let frames = area.form().frames as usize;
        let list = || Vec::with_capacity(frames);
        FileDevice { file, area: area.clone(), free: list(), sent: list(), drops }
    }

    /// All words of a frame.
    fn words(&self, frame: u32) -> Result<&[AtomicU64], DeviceError> {
        let length = self.area.form().size as u16;
        let whole = self.area.part(Descriptor { frame, offset: 0, length })?;
        Ok(whole.words().unwrap_or_default())
    }
}

impl Device for FileDevice {
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        let room = self.free.capacity() - self.free.len();
        let from = free.len().saturating_sub(room);
        self.free.extend(free.drain(from..));
        Ok(())
    }

    fn receive(&mut self, _: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        while parts.len() < parts.capacity()
            && let Some(&frame) = self.free.last()
            && let Some(bytes) = self.file.read(self.words(frame)?)?
        {
            self.free.pop();
            // At most the bytes of a frame.
            let length = u16::try_from(bytes).unwrap_or(u16::MAX);
            parts.push(Descriptor { frame, offset: 0, length });
        }
        Ok(())
    }

    fn transmit(&mut self, _: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        for (taken, part) in parts.iter().enumerate() {
            let written = part
                .check(self.area.form(), "transmit batch")
                .map_err(DeviceError::from)
                .and_then(|()| self.words(part.frame))
                .and_then(|words| {
                    Ok(self.file.write(words, part.offset.into(), part.length.into())?)
                });
            match written {
                Ok(true) => self.sent.push(part.frame),
                Ok(false) => return Ok(taken),
                // The next call finds the same error for its first frame.
                Err(_) if taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
        Ok(parts.len())
    }

    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError> {
        let taken = most.min(self.sent.len());
        frames.extend(self.sent.drain(..taken));
        Ok(())
    }

    fn drops(&mut self) -> Result<Option<u64>, DeviceError> {
        if let Some(drops) = &mut self.drops {
            *drops += self.file.take_drops()?;
        }
        Ok(self.drops)
    }
}
