//! The memory of the frames.

use super::descriptor::{Descriptor, FrameForm};
use super::note::Note;
use crate::stream::Payload;
use crate::words::{Kind, Words};
use crate::{AtomicU64, LayoutError, PeerFault};

/// Names the area in errors. It has no words of its own: the kernel takes whole pages of frames.
const KIND: Kind = Kind { page: "frame area", magic: 0, version: 0 };

/// Frames of one size, one behind the other. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct FrameArea<W> {
    words: Words<W>,
    form: FrameForm,
}

impl<W: AsRef<[AtomicU64]>> FrameArea<W> {
    /// Takes `words` as the frames of `form`.
    ///
    /// # Errors
    /// [`LayoutError::Length`] if the memory has another length.
    pub fn new(words: W, form: FrameForm) -> Result<Self, LayoutError> {
        Ok(FrameArea { words: Words::new(KIND, words, form.bytes() / 8)?, form })
    }

    /// Number and size of the frames.
    pub fn form(&self) -> FrameForm {
        self.form
    }

    /// The memory, for a device that maps it.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// The bytes of `part`, to be copied once before they are checked: the other side may write
    /// them at any moment. O(1).
    ///
    /// # Errors
    /// The part is not inside of a frame.
    #[inline]
    pub fn part(&self, part: Descriptor) -> Result<Payload<'_>, PeerFault> {
        part.check(self.form, KIND.page)?;
        Ok(Payload::new(self.frame(part.frame), part.offset.into(), part.length.into()))
    }

    /// Writes the note of a frame. O(1).
    ///
    /// # Errors
    /// There is no such frame.
    #[inline]
    pub fn write_note(&self, frame: u32, note: &Note) -> Result<(), PeerFault> {
        self.check(frame)?;
        note.store(self.frame(frame));
        Ok(())
    }

    /// The note of a frame, copied once. O(1).
    ///
    /// # Errors
    /// There is no such frame, or its note is impossible.
    #[inline]
    pub fn read_note(&self, frame: u32) -> Result<Note, PeerFault> {
        self.check(frame)?;
        Note::load(self.frame(frame))
    }

    fn check(&self, frame: u32) -> Result<(), PeerFault> {
        Descriptor { frame, offset: 0, length: 0 }.check(self.form, KIND.page)
    }

    /// All words of a frame that was checked.
    fn frame(&self, frame: u32) -> &[AtomicU64] {
        let words = self.form.size.bytes() / 8;
        let start = frame as usize * words;
        &self.words.0.as_ref()[start..start + words]
    }
}
