//! How the data of a stream moves.

/// How data moves from one end to the other.
///
/// A stream has at least the sizes that its creator asks for. A count or a capacity is rounded up
/// to a power of two, and a ring has at least 64 bytes. The bytes of a slot or buffer are rounded
/// up to a multiple of 8. [`StreamForm::rounded`] and [`Stream::form`](super::Stream::form) return
/// the result. A size of 0 and a size above the greatest are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamForm {
    /// Plain bytes, copied through a ring.
    Bytes {
        /// Bytes of the ring, 1 to 2^30.
        capacity: u32,
    },
    /// Messages of any size, copied through a ring.
    Messages {
        /// Bytes of the ring, 1 to 2^30. A message takes 8 bytes more than its own, up to a
        /// multiple of 8.
        capacity: u32,
    },
    /// Slots of a fixed size, used in place and in order.
    Slots {
        /// Number of slots, 1 to 65,536.
        slots: u32,
        /// Greatest number of bytes of a message, 1 to 2^24.
        slot_bytes: u32,
    },
    /// Buffers of a fixed size, used in place and given back in any order.
    Buffers {
        /// Number of buffers, 1 to 65,536.
        buffers: u32,
        /// Greatest number of bytes of a message, 1 to 2^24.
        buffer_bytes: u32,
    },
}
