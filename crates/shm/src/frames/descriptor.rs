//! Which bytes of which frame, in one word.

use crate::PeerFault;

/// Bytes of a frame. The kernel's AF_XDP takes these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameSize {
    /// 2 KiB: a frame of Ethernet with 1500 bytes.
    Half = 2048,
    /// 4 KiB: a page.
    Page = 4096,
}

impl FrameSize {
    /// Bytes of a frame.
    pub const fn bytes(self) -> usize {
        self as usize
    }
}

/// Number and size of the frames of an area. A descriptor is checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameForm {
    /// Frames.
    pub frames: u32,
    /// Bytes of each.
    pub size: FrameSize,
}

impl FrameForm {
    /// Bytes of the area.
    pub const fn bytes(self) -> usize {
        self.frames as usize * self.size.bytes()
    }
}

/// A part of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The index of the frame in its area.
    pub frame: u32,
    /// Bytes from the start of the frame: the headroom.
    pub offset: u16,
    /// Bytes of the part.
    pub length: u16,
}

impl Descriptor {
    /// The part split after `header_bytes`: headers and data. Both name the same frame.
    #[must_use]
    pub const fn split(self, header_bytes: u16) -> (Descriptor, Descriptor) {
        let cut = if header_bytes < self.length { header_bytes } else { self.length };
        let data = Descriptor { offset: self.offset + cut, length: self.length - cut, ..self };
        (Descriptor { length: cut, ..self }, data)
    }

    /// As a word of a queue: frame in the low half, then offset, then length.
    #[inline]
    pub(super) fn word(self) -> u64 {
        u64::from(self.frame) | u64::from(self.offset) << 32 | u64::from(self.length) << 48
    }

    /// The descriptor in a word that a peer wrote.
    ///
    /// # Errors
    /// There is no such frame, or the part is not inside of it.
    #[expect(clippy::cast_possible_truncation, reason = "takes the word apart")]
    #[inline]
    pub(super) fn of_word(
        word: u64,
        form: FrameForm,
        page: &'static str,
    ) -> Result<Self, PeerFault> {
        let found = Descriptor {
            frame: word as u32,
            offset: (word >> 32) as u16,
            length: (word >> 48) as u16,
        };
        found.check(form, page)?;
        Ok(found)
    }

    /// Checks that it is inside of a frame of `form`.
    ///
    /// # Errors
    /// [`PeerFault::Value`] with the first part that is not.
    #[inline]
    pub fn check(self, form: FrameForm, page: &'static str) -> Result<(), PeerFault> {
        let end = usize::from(self.offset) + usize::from(self.length);
        if self.frame < form.frames && end <= form.size.bytes() {
            return Ok(());
        }
        Err(self.fault(form, page))
    }

    /// What is wrong with a descriptor that [`Descriptor::check`] refuses.
    #[cold]
    fn fault(self, form: FrameForm, page: &'static str) -> PeerFault {
        let bytes = form.size.bytes() as u64;
        let (offset, length) = (u64::from(self.offset), u64::from(self.length));
        let (name, found, max) = if self.frame >= form.frames {
            ("frame", self.frame.into(), u64::from(form.frames).saturating_sub(1))
        } else if offset > bytes {
            ("offset", offset, bytes)
        } else {
            ("length", length, bytes - offset)
        };
        PeerFault::Value { page, name, found, max }
    }
}
