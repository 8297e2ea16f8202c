//! The memory of the frames.

use super::descriptor::{Descriptor, FrameForm};
use super::note::{NOTE_WORDS, Note};
use crate::stream::Payload;
use crate::words::{Kind, Words};
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};

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

    /// The first `N` words of a part that begins with a word, copied once. Behind the end of the
    /// part they are the bytes of its frame. `None`: the part begins elsewhere, or its frame ends
    /// before. O(N).
    #[inline]
    pub fn first_words<const N: usize>(&self, part: Descriptor) -> Option<[[u8; 8]; N]> {
        part.check(self.form, KIND.page).ok()?;
        let (word, byte) = (usize::from(part.offset) / 8, part.offset % 8);
        let words: &[AtomicU64; N] = self.frame(part.frame)[word..].first_chunk()?;
        // Relaxed: the queue that gave the part acquired them.
        let mut first = [[0; 8]; N];
        for (bytes, word) in first.iter_mut().zip(words) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        (byte == 0).then_some(first)
    }

    /// Writes the note in front of a part. O(1).
    ///
    /// # Errors
    /// The part is not inside of a frame, or has no space in front of it.
    #[inline(always)]
    pub fn write_note(&self, part: Descriptor, note: &Note) -> Result<(), PeerFault> {
        note.store(self.place_of_note(part)?);
        Ok(())
    }

    /// The note in front of a part, copied once. O(1).
    ///
    /// # Errors
    /// As [`FrameArea::write_note`], or the note is impossible.
    #[inline(always)]
    pub fn read_note(&self, part: Descriptor) -> Result<Note, PeerFault> {
        Note::load(self.place_of_note(part)?)
    }

    /// Loads the first word of a part, so that its cache line is on the way when it is looked at.
    #[inline]
    pub fn touch(&self, part: Descriptor) {
        if part.check(self.form, KIND.page).is_ok()
            && let Some(word) = self.frame(part.frame).get(usize::from(part.offset) / 8)
        {
            core::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    #[inline(always)]
    fn place_of_note(&self, part: Descriptor) -> Result<&[AtomicU64; NOTE_WORDS], PeerFault> {
        part.check(self.form, KIND.page)?;
        let word = usize::from(part.offset) / 8;
        if let Some(before) = word.checked_sub(NOTE_WORDS)
            && let Some(place) = self.frame(part.frame)[before..].first_chunk()
        {
            return Ok(place);
        }
        let (name, found, max) = ("offset", u64::from(part.offset), self.form.size.bytes() as u64);
        Err(PeerFault::Value { page: KIND.page, name, found, max })
    }

    /// All words of a frame that was checked.
    #[inline]
    fn frame(&self, frame: u32) -> &[AtomicU64] {
        let words = self.form.size.bytes() / 8;
        let start = frame as usize * words;
        &self.words.0.as_ref()[start..start + words]
    }
}
