//! How the data of a stream moves.

/// How data gets from one end to the other.
///
/// A stream is created with at least the sizes that are asked for: a count or a capacity is rounded
/// up to a power of two, a ring to 64 bytes at least, and the bytes of a slot or buffer to a
/// multiple of 8. [`StreamForm::rounded`] and the stream's own `way` tell the result. Zero and a size
/// above the greatest are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamForm {
    /// Plain bytes, copied through a ring.
    Bytes {
        /// Bytes of the ring, 1 to 2^30.
        capacity: u32,
    },
    /// Messages of any size, copied through a ring.
    Messages {
        /// Bytes of the ring, 1 to 2^30. A message takes 8 more than its own, up to a
        /// multiple of 8.
        capacity: u32,
    },
    /// Slots of a fixed size, used in place and in order.
    Slots {
        /// How many, 1 to 65,536.
        slots: u32,
        /// Most bytes of a message, 1 to 2^24.
        slot_bytes: u32,
    },
    /// Buffers of a fixed size, used in place and given back in any order.
    Buffers {
        /// How many, 1 to 65,536.
        buffers: u32,
        /// Most bytes of a message, 1 to 2^24.
        buffer_bytes: u32,
    },
}
