//! The layout of a stream.
//!
//! The structures below are its only definition. The word numbers for the accessors are computed
//! from them. A change here requires a new [`LAYOUT_VERSION`] and a new golden table in the tests.

use super::form::StreamForm;
use super::payload::Payload;
use crate::words::{Kind, LINE_BYTES, LINE_WORDS, Words};
use crate::{AtomicU64, LayoutError};
use core::mem::{offset_of, size_of};

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 1;

/// Bytes before the data.
pub const HEADER_BYTES: usize = 512;

/// `upcstrm` and a zero, in memory on a little-endian machine.
pub(super) const KIND: Kind =
    Kind { page: "stream", magic: u64::from_le_bytes(*b"upcstrm\0"), version: LAYOUT_VERSION };

#[repr(C, align(64))]
struct Header {
    identity: Identity,
    written: IndexLine,
    read: IndexLine,
    reader: EndLine,
    writer: EndLine,
    active: IndexLine,
    reserved: [u64; 2 * LINE_WORDS],
}

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    /// A `u32` in a word of its own.
    version: u64,
    generation: u64,
    /// 1 bytes, 2 messages, 3 slots, 4 buffers.
    form: u64,
    /// Bytes of the ring, slots, or buffers: a power of two.
    count: u64,
    /// Bytes of a slot or of a buffer. 1 for a ring of bytes.
    unit_bytes: u64,
    start_level: u64,
    reserved: u64,
}

#[repr(C, align(64))]
struct IndexLine {
    index: u64,
    reserved: [u64; 7],
}

#[repr(C, align(64))]
struct EndLine {
    /// 1 once the end is claimed.
    claimed: u64,
    /// 0 open, 1 ended, 2 died.
    gone: u64,
    /// The peer's index at which this end must be woken.
    wanted: u64,
    /// The wait word. Its low half is a futex.
    wait: u64,
    reserved: [u64; 4],
}

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES && HEADER_BYTES == 8 * LINE_BYTES);
    assert!(size_of::<Identity>() == LINE_BYTES);
    assert!(size_of::<IndexLine>() == LINE_BYTES);
    assert!(size_of::<EndLine>() == LINE_BYTES);
    assert!(offset_of!(Header, identity) == 0);
    assert!(offset_of!(Header, written) == 64);
    assert!(offset_of!(Header, read) == 128);
    assert!(offset_of!(Header, reader) == 192);
    assert!(offset_of!(Header, writer) == 256);
    assert!(offset_of!(Header, active) == 320);
    assert!(offset_of!(Header, reserved) == 384);
    assert!(offset_of!(Identity, magic) == 0 && offset_of!(Identity, version) == 8);
    assert!(offset_of!(Identity, generation) == 16 && offset_of!(Identity, form) == 24);
    assert!(offset_of!(Identity, count) == 32 && offset_of!(Identity, unit_bytes) == 40);
    assert!(offset_of!(Identity, start_level) == 48 && offset_of!(Identity, reserved) == 56);
    assert!(offset_of!(IndexLine, index) == 0 && offset_of!(IndexLine, reserved) == 8);
    assert!(offset_of!(EndLine, claimed) == 0 && offset_of!(EndLine, gone) == 8);
    assert!(offset_of!(EndLine, wanted) == 16 && offset_of!(EndLine, wait) == 24);
    assert!(offset_of!(EndLine, reserved) == 32);
};

/// Numbers of words: offsets in bytes over 8.
pub(super) mod word {
    use super::{EndLine, HEADER_BYTES, Header, Identity, offset_of};
    use crate::words::LINE_WORDS;

    pub const GENERATION: usize = offset_of!(Identity, generation) / 8;
    pub const FORM: usize = offset_of!(Identity, form) / 8;
    pub const COUNT: usize = offset_of!(Identity, count) / 8;
    pub const UNIT_BYTES: usize = offset_of!(Identity, unit_bytes) / 8;
    pub const START_LEVEL: usize = offset_of!(Identity, start_level) / 8;

    pub const WRITTEN: usize = offset_of!(Header, written) / 8;
    pub const READ: usize = offset_of!(Header, read) / 8;
    pub const ACTIVE: usize = offset_of!(Header, active) / 8;

    /// The first words of the lines of the two ends. The words within a line follow below.
    pub const READER: usize = offset_of!(Header, reader) / 8;
    pub const WRITER: usize = offset_of!(Header, writer) / 8;

    pub const CLAIMED: usize = offset_of!(EndLine, claimed) / 8;
    pub const GONE: usize = offset_of!(EndLine, gone) / 8;
    pub const WANTED: usize = offset_of!(EndLine, wanted) / 8;
    pub const WAIT: usize = offset_of!(EndLine, wait) / 8;

    pub const DATA: usize = HEADER_BYTES / 8;

    /// Whether `word` of the header is 0 in every stream.
    pub const fn is_reserved(word: usize) -> bool {
        match word {
            0..WRITTEN => word > START_LEVEL,
            WRITTEN | READ | ACTIVE => false,
            READER..ACTIVE => word % LINE_WORDS > WAIT,
            _ => word < DATA,
        }
    }
}

/// The form with each size rounded up to one that a stream may have.
///
/// # Errors
/// A size is 0 or too large.
pub(super) fn rounded(form: StreamForm) -> Result<StreamForm, LayoutError> {
    let ring = |capacity: u32| {
        within("capacity", u64::from(capacity), (1, RING_BYTES.1))?;
        // The greatest capacity is a power of two, so this does not overflow.
        Ok(capacity.max(RING_BYTES_MIN).next_power_of_two())
    };
    let units = |count: u32, bytes: u32| {
        within("capacity", u64::from(count), UNITS)?;
        within("bytes of a unit", u64::from(bytes), (1, UNIT_BYTES.1))?;
        Ok((count.next_power_of_two(), bytes.next_multiple_of(8)))
    };
    Ok(match form {
        StreamForm::Bytes { capacity } => StreamForm::Bytes { capacity: ring(capacity)? },
        StreamForm::Messages { capacity } => StreamForm::Messages { capacity: ring(capacity)? },
        StreamForm::Slots { slots, slot_bytes } => {
            let (slots, slot_bytes) = units(slots, slot_bytes)?;
            StreamForm::Slots { slots, slot_bytes }
        }
        StreamForm::Buffers { buffers, buffer_bytes } => {
            let (buffers, buffer_bytes) = units(buffers, buffer_bytes)?;
            StreamForm::Buffers { buffers, buffer_bytes }
        }
    })
}

/// Bounds of three sizes: the bytes of a ring, the number of slots or buffers, the bytes of one
/// slot or buffer.
const RING_BYTES_MIN: u32 = 64;
const RING_BYTES: (u64, u64) = (RING_BYTES_MIN as u64, 1 << 30);
const UNITS: (u64, u64) = (1, 1 << 16);
const UNIT_BYTES: (u64, u64) = (8, 1 << 24);

/// A checked [`StreamForm`], in the numbers that the ends need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) form: StreamForm,
    /// The most by which [`word::WRITTEN`] may be ahead of [`word::READ`]: a power of two.
    pub(super) count: u64,
    /// The greatest number of bytes of a message.
    pub(super) len_max: usize,
    pub(super) start_level: u64,
    /// Words of a slot with its header, or of a buffer.
    stride: usize,
    /// Words of each of the two rings, with buffers.
    ring_words: usize,
}

impl StreamForm {
    /// The form with its sizes rounded up, as a stream has them. O(1).
    ///
    /// # Errors
    /// A size is 0 or too large.
    pub fn rounded(self) -> Result<StreamForm, LayoutError> {
        rounded(self)
    }

    /// Words of memory for a stream of this form, after rounding.
    ///
    /// # Errors
    /// As [`StreamForm::rounded`].
    pub fn words(self) -> Result<usize, LayoutError> {
        Shape::new(self.rounded()?, 0).map(|shape| shape.words())
    }
}

impl Shape {
    pub(super) fn new(form: StreamForm, start_level: u64) -> Result<Self, LayoutError> {
        let (_, count, unit_bytes) = numbers(form);
        let ring = matches!(form, StreamForm::Bytes { .. } | StreamForm::Messages { .. });
        within("capacity", count, if ring { RING_BYTES } else { UNITS })?;
        if !count.is_power_of_two() {
            let (min, max) = (count.next_power_of_two() / 2, count.next_power_of_two());
            return Err(value("power of two", count, (min, max)));
        }
        if !ring {
            within("bytes of a unit", unit_bytes, UNIT_BYTES)?;
            if !unit_bytes.is_multiple_of(8) {
                let (min, max) = (unit_bytes / 8 * 8, unit_bytes.next_multiple_of(8));
                return Err(value("multiple of 8", unit_bytes, (min, max)));
            }
        }
        within("start level", start_level, (0, count))?;
        let (units, bytes) = (usize_of(count), usize_of(unit_bytes));
        let (len_max, stride, ring_words) = match form {
            StreamForm::Bytes { .. } => (units, 0, 0),
            StreamForm::Messages { .. } => (units - 8, 0, 0),
            StreamForm::Slots { .. } => (bytes, (1 + bytes / 8).next_multiple_of(LINE_WORDS), 0),
            StreamForm::Buffers { .. } => {
                let stride = (bytes / 8).next_multiple_of(LINE_WORDS);
                (bytes, stride, units.next_multiple_of(LINE_WORDS))
            }
        };
        Ok(Shape { form, count, len_max, start_level, stride, ring_words })
    }

    /// The shape stated in the identity.
    pub(super) fn of_words<W: AsRef<[AtomicU64]>>(words: &Words<W>) -> Result<Self, LayoutError> {
        let narrow = (0, u64::from(u32::MAX));
        let number = |name, word| words.identity(KIND, name, word, narrow);
        let half = |found: u64| u32::try_from(found).unwrap_or(u32::MAX); // was checked
        let form = words.identity(KIND, "form", word::FORM, (1, 4))?;
        let count = half(number("capacity", word::COUNT)?);
        let unit_bytes = half(number("bytes of a unit", word::UNIT_BYTES)?);
        let form = match form {
            1 => StreamForm::Bytes { capacity: count },
            2 => StreamForm::Messages { capacity: count },
            3 => StreamForm::Slots { slots: count, slot_bytes: unit_bytes },
            _ => StreamForm::Buffers { buffers: count, buffer_bytes: unit_bytes },
        };
        Shape::new(form, number("start level", word::START_LEVEL)?)
    }

    pub(super) fn mark<W: AsRef<[AtomicU64]>>(&self, words: &Words<W>) {
        use crate::Ordering::Relaxed; // handing the memory over orders it
        let (form, count, unit_bytes) = numbers(self.form);
        words.store(word::FORM, form, Relaxed);
        words.store(word::COUNT, count, Relaxed);
        words.store(word::UNIT_BYTES, unit_bytes, Relaxed);
        words.store(word::START_LEVEL, self.start_level, Relaxed);
    }

    /// Words of header and data.
    pub(super) const fn words(&self) -> usize {
        let units = usize_of(self.count);
        word::DATA
            + match self.form {
                StreamForm::Bytes { .. } | StreamForm::Messages { .. } => units / 8,
                StreamForm::Slots { .. } => units * self.stride,
                StreamForm::Buffers { .. } => 2 * self.ring_words + units * self.stride,
            }
    }

    /// The place of an index in a ring with [`Self::count`] places.
    #[inline]
    pub(super) const fn place(&self, index: u64) -> usize {
        usize_of(index & (self.count - 1))
    }

    /// The word before the message at `index`: its length, or its descriptor.
    #[inline]
    pub(super) const fn head(&self, index: u64) -> usize {
        let place = self.place(index);
        word::DATA
            + match self.form {
                StreamForm::Bytes { .. } | StreamForm::Messages { .. } => place / 8,
                StreamForm::Slots { .. } => place * self.stride,
                StreamForm::Buffers { .. } => place,
            }
    }

    /// How far a message of `len` bytes moves an index.
    #[inline]
    pub(super) const fn units(&self, len: usize) -> u64 {
        match self.form {
            StreamForm::Bytes { .. } => len as u64,
            StreamForm::Messages { .. } => 8 + len.next_multiple_of(8) as u64,
            StreamForm::Slots { .. } | StreamForm::Buffers { .. } => 1,
        }
    }

    /// The place of a message of `len` bytes: at `index`, or in `buffer`.
    #[inline]
    pub(super) fn payload<'a, W: AsRef<[AtomicU64]>>(
        &self,
        words: &'a Words<W>,
        index: u64,
        buffer: u32,
        len: usize,
    ) -> Payload<'a> {
        let words = words.0.as_ref();
        match self.form {
            StreamForm::Bytes { .. } => Payload::new(&words[word::DATA..], self.place(index), len),
            StreamForm::Messages { .. } => {
                Payload::new(&words[word::DATA..], self.place(index + 8), len)
            }
            StreamForm::Slots { .. } => {
                Payload::new(&words[self.head(index) + 1..][..self.unit_words()], 0, len)
            }
            StreamForm::Buffers { .. } => {
                Payload::new(&words[self.buffer(buffer)..][..self.unit_words()], 0, len)
            }
        }
    }

    /// Words of a slot or buffer that a message may use.
    const fn unit_words(&self) -> usize {
        self.len_max / 8
    }

    /// The word in which the reader gives a buffer back.
    #[inline]
    pub(super) const fn back(&self, index: u64) -> usize {
        word::DATA + self.ring_words + self.place(index)
    }

    /// First word of a buffer.
    #[inline]
    pub(super) const fn buffer(&self, buffer: u32) -> usize {
        word::DATA + 2 * self.ring_words + buffer as usize * self.stride
    }
}

/// Number of the form, count and bytes of a unit.
const fn numbers(form: StreamForm) -> (u64, u64, u64) {
    match form {
        StreamForm::Bytes { capacity } => (1, capacity as u64, 1),
        StreamForm::Messages { capacity } => (2, capacity as u64, 1),
        StreamForm::Slots { slots, slot_bytes } => (3, slots as u64, slot_bytes as u64),
        StreamForm::Buffers { buffers, buffer_bytes } => (4, buffers as u64, buffer_bytes as u64),
    }
}

fn within(name: &'static str, found: u64, (min, max): (u64, u64)) -> Result<(), LayoutError> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(value(name, found, (min, max))) }
}

const fn value(name: &'static str, found: u64, (min, max): (u64, u64)) -> LayoutError {
    LayoutError::Value { page: KIND.page, name, found, min, max }
}

#[expect(clippy::cast_possible_truncation, reason = "the number is at most 2^30")]
const fn usize_of(number: u64) -> usize {
    number as usize
}
