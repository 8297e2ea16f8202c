//! The rings of an AF_XDP socket: queues between this process and the kernel.
//!
//! The runtime brings the memory and the places in it, which `upcall-sys` maps. The kernel is the
//! peer. Its words are checked as those of any other: a broken ring of the kernel is a fault and no
//! panic. No call makes a system call or allocates, and every call is wait-free.
//!
//! ```text
//!   ring         producer   consumer   an entry
//!   fill         we         kernel     address of a free frame
//!   receive      kernel     we         address, length
//!   transmit     we         kernel     address, length
//!   completion   kernel     we         address of a sent frame
//! ```
//!
//! The kernel orders its side so (Linux 6.18, net/xdp/xsk_queue.h): the producer stores its index
//! with release after the entries. The consumer loads it with acquire before them, and stores its
//! own index with release after it has read them. `producer` and `consumer` are words of 32 bits
//! that wrap around, and each has a cache line of its own.

use super::descriptor::{Descriptor, FrameForm};
use crate::edge::{Edge, ordering};
use crate::{AtomicU32, LayoutError, Ordering, PeerFault, fence};
use Ordering::{Acquire, Relaxed, Release, SeqCst};

#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// Names the ring in errors.
const PAGE: &str = "AF_XDP ring";

/// `XDP_RING_NEED_WAKEUP` of linux/if_xdp.h.
const NEED_WAKEUP: u32 = 1;

/// What an entry of a ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// An address: 8 bytes (fill, completion).
    Addresses,
    /// An address, a length and options: 16 bytes (receive, transmit).
    Descriptors,
}

/// The places of a ring in its memory, in bytes: `struct xdp_ring_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlaces {
    /// Of the producer's index.
    pub producer: usize,
    /// Of the consumer's index.
    pub consumer: usize,
    /// Of the flags.
    pub flags: usize,
    /// Of the first entry.
    pub entries: usize,
}

/// One ring, for either side.
#[derive(Debug)]
struct Ring<W> {
    memory: W,
    places: RingPlaces,
    holds: Entries,
    entries: u32,
    form: FrameForm,
    produced: u32,
    consumed: u32,
}

impl<W: AsRef<[AtomicU32]>> Ring<W> {
    fn new(
        memory: W,
        places: RingPlaces,
        (holds, entries): (Entries, u32),
        form: FrameForm,
    ) -> Result<Self, LayoutError> {
        let found = memory.as_ref().len();
        let words = match holds {
            Entries::Addresses => 2,
            Entries::Descriptors => 4,
        };
        let end = places.entries / 4 + entries as usize * words;
        let last = end.max(places.producer.max(places.consumer).max(places.flags) / 4 + 1);
        if found < last || !entries.is_power_of_two() {
            return Err(LayoutError::Length { page: PAGE, found, expected: last });
        }
        let mut ring = Ring { memory, places, holds, entries, form, produced: 0, consumed: 0 };
        (ring.produced, ring.consumed) = (ring.load(places.producer), ring.load(places.consumer));
        Ok(ring)
    }

    #[inline]
    fn word(&self, byte: usize) -> &AtomicU32 {
        &self.memory.as_ref()[byte / 4]
    }

    #[inline]
    fn load(&self, byte: usize) -> u32 {
        // Acquire: pairs with `smp_store_release` in `__xskq_prod_submit` and `__xskq_cons_release`
        // of the kernel (in the loom test: with `store`).
        self.word(byte).load(ordering(Edge::XdpIndexLoad, Acquire))
    }

    #[inline]
    fn store(&self, byte: usize, index: u32) {
        // Release: pairs with `smp_load_acquire` in `__xskq_cons_peek` and `xskq_prod_nb_free` of
        // the kernel (in the loom test: with `load`).
        self.word(byte).store(index, ordering(Edge::XdpIndexStore, Release));
    }

    /// Entries between the two indexes.
    #[inline]
    fn pending(&self, produced: u32, consumed: u32) -> Result<u32, PeerFault> {
        let found = produced.wrapping_sub(consumed);
        if found > self.entries {
            let (found, max) = (found.into(), self.entries.into());
            return Err(PeerFault::Value { page: PAGE, name: "pending", found, max });
        }
        Ok(found)
    }

    /// The words of the entry of `index`.
    #[inline]
    fn entry(&self, index: u32) -> &[AtomicU32] {
        let words = match self.holds {
            Entries::Addresses => 2,
            Entries::Descriptors => 4,
        };
        let start = self.places.entries / 4 + (index & (self.entries - 1)) as usize * words;
        &self.memory.as_ref()[start..start + words]
    }

    #[inline]
    fn write(&self, index: u32, part: Descriptor) {
        let bytes = self.form.size.bytes() as u64;
        let address = u64::from(part.frame) * bytes + u64::from(part.offset);
        let halves = address.to_ne_bytes();
        let [a, b, c, d, e, f, g, h] = halves;
        let entry = self.entry(index);
        // Relaxed: `store` hands the entry over.
        entry[0].store(u32::from_ne_bytes([a, b, c, d]), Relaxed);
        entry[1].store(u32::from_ne_bytes([e, f, g, h]), Relaxed);
        if let [_, _, length, options] = entry {
            length.store(part.length.into(), Relaxed);
            options.store(0, Relaxed);
        }
    }

    #[inline]
    fn read(&self, index: u32) -> Result<Descriptor, PeerFault> {
        let entry = self.entry(index);
        // Relaxed: `load` acquired the entry. The only copy of it.
        let [a, b, c, d] = entry[0].load(Relaxed).to_ne_bytes();
        let [e, f, g, h] = entry[1].load(Relaxed).to_ne_bytes();
        let address = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let length = entry.get(2).map_or(0, |word| word.load(Relaxed));
        let bytes = self.form.size.bytes() as u64;
        let narrow = |name, found: u64, max: u64| {
            u16::try_from(found).map_err(|_| PeerFault::Value { page: PAGE, name, found, max })
        };
        let max = u64::from(self.form.frames).saturating_sub(1);
        // A power of two. A quotient would be a division for each packet.
        let found = address >> bytes.trailing_zeros();
        let frame = u32::try_from(found);
        let frame =
            frame.map_err(|_| PeerFault::Value { page: PAGE, name: "frame", found, max })?;
        let offset = narrow("offset", address & (bytes - 1), bytes)?;
        let length = narrow("length", length.into(), bytes)?;
        let part = Descriptor { frame, offset, length };
        part.check(self.form, PAGE)?;
        Ok(part)
    }
}

/// Our side of the fill and of the transmit ring.
#[derive(Debug)]
pub struct Producer<W>(Ring<W>);

impl<W: AsRef<[AtomicU32]>> Producer<W> {
    /// The ring in `memory`, with a power of two of entries.
    ///
    /// # Errors
    /// [`LayoutError::Length`] if the ring does not fit the memory.
    pub fn new(
        memory: W,
        places: RingPlaces,
        entries: (Entries, u32),
        form: FrameForm,
    ) -> Result<Self, LayoutError> {
        Ok(Producer(Ring::new(memory, places, entries, form)?))
    }

    /// Puts `part` into the ring. The kernel sees it after [`Producer::publish`]. `false`: the ring
    /// is full. Loads the kernel's index only if the ring looks full. O(1).
    ///
    /// # Errors
    /// The index of the consumer is impossible.
    #[inline]
    pub fn push(&mut self, part: Descriptor) -> Result<bool, PeerFault> {
        let ring = &mut self.0;
        if ring.produced.wrapping_sub(ring.consumed) >= ring.entries {
            let consumed = ring.load(ring.places.consumer);
            if ring.pending(ring.produced, consumed)? == ring.entries {
                return Ok(false);
            }
            ring.consumed = consumed;
        }
        ring.write(ring.produced, part);
        ring.produced = ring.produced.wrapping_add(1);
        Ok(true)
    }

    /// Hands all pushed entries over. One store.
    #[inline]
    pub fn publish(&mut self) {
        self.0.store(self.0.places.producer, self.0.produced);
    }

    /// Whether the kernel must be called to look at the ring. The fence puts the load behind the
    /// store of [`Producer::publish`]: the kernel sets the flag before it looks a last time.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        fence(SeqCst);
        self.0.word(self.0.places.flags).load(Relaxed) & NEED_WAKEUP != 0
    }
}

/// Our side of the receive and of the completion ring.
#[derive(Debug)]
pub struct Consumer<W>(Ring<W>);

impl<W: AsRef<[AtomicU32]>> Consumer<W> {
    /// As [`Producer::new`].
    ///
    /// # Errors
    /// As [`Producer::new`].
    pub fn new(
        memory: W,
        places: RingPlaces,
        entries: (Entries, u32),
        form: FrameForm,
    ) -> Result<Self, LayoutError> {
        Ok(Consumer(Ring::new(memory, places, entries, form)?))
    }

    /// The oldest entry, which is inside of a frame of the area. `None`: there is none. An address
    /// alone has length 0. Loads the kernel's index only after all that it knows of. O(1).
    ///
    /// # Errors
    /// The index of the producer is impossible, or the entry lies outside of every frame.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Descriptor>, PeerFault> {
        let ring = &mut self.0;
        if ring.consumed == ring.produced {
            let produced = ring.load(ring.places.producer);
            if ring.pending(produced, ring.consumed)? == 0 {
                return Ok(None);
            }
            ring.produced = produced;
        }
        let part = ring.read(ring.consumed)?;
        ring.consumed = ring.consumed.wrapping_add(1);
        Ok(Some(part))
    }

    /// Gives the room of all taken entries back. One store.
    #[inline]
    pub fn release(&mut self) {
        self.0.store(self.0.places.consumer, self.0.consumed);
    }
}
