//! The mappings of the four rings of a socket.

use super::options::read;
use crate::OsError;
use crate::ring_mapping::RingMapping;
use core::sync::atomic::AtomicU32;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The places of a ring in its memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOffsets {
    /// Of the producer's index.
    pub producer: usize,
    /// Of the consumer's index.
    pub consumer: usize,
    /// Of the flags.
    pub flags: usize,
    /// Of the first entry.
    pub entries: usize,
}

/// The memory of one ring. Copies refer to the same mapping, which lives as long as one of them.
#[derive(Clone, Debug)]
pub struct RingMemory {
    mapping: Arc<RingMapping>,
    offsets: RingOffsets,
    entries: u32,
}

impl RingMemory {
    /// Where the parts of the ring are.
    pub fn offsets(&self) -> RingOffsets {
        self.offsets
    }

    /// Entries of the ring: a power of two.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

impl AsRef<[AtomicU32]> for RingMemory {
    fn as_ref(&self) -> &[AtomicU32] {
        self.mapping.words_of_32_bits()
    }
}

/// Which of the rings.
#[derive(Clone, Copy)]
pub(super) enum Which {
    Fill,
    Receive,
    Transmit,
    Completion,
}

/// All rings of a socket.
#[derive(Debug)]
pub(super) struct Rings([RingMemory; 4]);

impl Rings {
    /// Maps the rings of `socket`, which have `entries` each.
    pub(super) fn map(socket: BorrowedFd<'_>, entries: u32) -> Result<Rings, OsError> {
        // SAFETY: all zero is a valid value of a struct of numbers.
        let mut found: libc::xdp_mmap_offsets = unsafe { core::mem::zeroed() };
        // SAFETY: every value of its numbers is valid.
        unsafe {
            read(socket, libc::XDP_MMAP_OFFSETS, &mut found, "getsockopt(XDP_MMAP_OFFSETS)")
        }?;
        let receive = libc::XDP_PGOFF_RX_RING.cast_unsigned();
        let transmit = libc::XDP_PGOFF_TX_RING.cast_unsigned();
        let map = |place: &libc::xdp_ring_offset, entry_bytes: usize, page_offset| {
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            let offsets = RingOffsets {
                producer: at(place.producer),
                consumer: at(place.consumer),
                flags: at(place.flags),
                entries: at(place.desc),
            };
            let bytes = offsets.entries + entries as usize * entry_bytes;
            let mapping = Arc::new(RingMapping::of(socket, bytes, page_offset)?);
            Ok(RingMemory { mapping, offsets, entries })
        };
        Ok(Rings([
            map(&found.fr, 8, libc::XDP_UMEM_PGOFF_FILL_RING)?,
            map(&found.rx, 16, receive)?,
            map(&found.tx, 16, transmit)?,
            map(&found.cr, 8, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?,
        ]))
    }

    pub(super) fn ring(&self, which: Which) -> &RingMemory {
        &self.0[which as usize]
    }
}
