//! The rings of a packet socket (PACKET_MMAP, TPACKET_V3): memory into which the kernel copies
//! frames, and from which it sends them.
//!
//! The runtime brings the memory, which `upcall-sys` maps. The kernel is the peer. Each word of its
//! headers is copied once and then checked, as that of any other: a broken ring of the kernel is a
//! fault and no panic. No call makes a system call or allocates, and every call is wait-free.
//!
//! ```text
//!   receive                                   transmit
//!   (1) kernel fills a block                  (1) we fill a slot
//!   (2) kernel: status USER                   (2) we: status SEND_REQUEST
//!   (3) we copy its frames, one by one        (3) kernel sends it, by our system call
//!   (4) we: status KERNEL                     (4) kernel: status AVAILABLE
//! ```
//!
//! The kernel orders its side so (net/packet/af_packet.c): it stores a status beside `smp_wmb`
//! (`prb_close_block`, `__packet_set_status`), and issues `smp_rmb` beside the load of one
//! (`prb_dispatch_next_block`, `__packet_get_status`). A status shares a word of 64 bits with a
//! number that the kernel does not use while the block or slot is ours.

use crate::stream::Payload;
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release};

#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// Names the rings in errors.
const PAGE: &str = "packet ring";

/// `TP_STATUS_USER` of linux/if_packet.h, in the status of a block.
const USER: u32 = 1;
/// `TP_STATUS_SEND_REQUEST`, in the status of a slot.
const SEND_REQUEST: u32 = 1;
/// `TP_STATUS_SEND_REQUEST` and `TP_STATUS_SENDING`.
const IN_USE_MAX: u32 = 3;
/// Bits of a slot's status beside those of time stamps.
const SLOT_STATUS: u32 = 7;

/// `struct tpacket_block_desc` and `struct tpacket3_hdr`: both have 48 bytes.
const HEADER_BYTES: usize = 48;

/// The two halves of a word of a header.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

/// The word with these halves.
fn word(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The two halves of such a half.
fn quarters(half: u32) -> (u16, u16) {
    let [a, b, c, d] = half.to_ne_bytes();
    (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]))
}

/// `found`, if it is at most `max`.
fn at_most(name: &'static str, found: u32, max: usize) -> Result<usize, PeerFault> {
    match found as usize {
        place if place <= max => Ok(place),
        _ => Err(PeerFault::Value { page: PAGE, name, found: found.into(), max: max as u64 }),
    }
}

/// As [`at_most`], for a place where a header may begin.
fn header_at(name: &'static str, found: u32, max: usize) -> Result<usize, PeerFault> {
    let place = at_most(name, found, max)?;
    if place < HEADER_BYTES || !place.is_multiple_of(8) {
        return Err(PeerFault::Value { page: PAGE, name, found: found.into(), max: max as u64 });
    }
    Ok(place)
}

/// A frame in a receive block.
#[derive(Clone, Copy, Debug)]
pub struct RingFrame<'a> {
    /// The frame, as far as the kernel has kept it.
    pub payload: Payload<'a>,
    /// Bytes of the whole frame.
    pub whole_bytes: u32,
    /// `tp_status`: which other parts hold something.
    pub status: u32,
    /// The control information of a VLAN tag that the kernel took out, in its low half.
    pub tag_control: u32,
    /// The protocol of that tag.
    pub tag_protocol: u16,
}

/// Our side of the receive ring.
#[derive(Debug)]
pub struct ReceiveBlocks<W> {
    memory: W,
    blocks: u32,
    block_bytes: usize,
    /// The block to look at.
    block: u32,
    /// Whether the kernel has handed it over.
    is_ours: bool,
    /// Frames of it that were not taken.
    left: usize,
    /// Where the next of them begins in it.
    next: usize,
}

impl<W: AsRef<[AtomicU64]>> ReceiveBlocks<W> {
    /// `blocks` of `block_bytes` each, at the start of `memory`.
    ///
    /// # Errors
    /// [`LayoutError::Length`] if they do not fit the memory, or a block is too small.
    pub fn new(memory: W, blocks: u32, block_bytes: usize) -> Result<Self, LayoutError> {
        let found = memory.as_ref().len();
        let expected = blocks as usize * block_bytes / 8;
        if found < expected || blocks == 0 || block_bytes < 2 * HEADER_BYTES {
            return Err(LayoutError::Length { page: PAGE, found, expected });
        }
        let (block, is_ours, left, next) = (0, false, 0, 0);
        Ok(ReceiveBlocks { memory, blocks, block_bytes, block, is_ours, left, next })
    }

    /// The words of the present block.
    fn words(&self) -> &[AtomicU64] {
        let words = self.block_bytes / 8;
        &self.memory.as_ref()[self.block as usize * words..][..words]
    }

    /// The oldest frame. `None`: the kernel has handed over no more. The caller copies it before it
    /// calls [`ReceiveBlocks::release`]. O(1).
    ///
    /// # Errors
    /// A number in a header is impossible. The next call finds the same.
    pub fn take(&mut self) -> Result<Option<RingFrame<'_>>, PeerFault> {
        let last = self.block_bytes - HEADER_BYTES;
        if !self.is_ours {
            // Acquire: pairs with `smp_wmb` in `prb_close_block` of the kernel.
            let (status, frames) = halves(self.words()[1].load(Acquire));
            if status & USER == 0 {
                return Ok(None);
            }
            // The load above acquired all other words of the block.
            let (first, _) = halves(self.words()[2].load(Relaxed));
            self.next = header_at("first frame", first, last)?;
            self.left = at_most("frames", frames, self.block_bytes / HEADER_BYTES)?;
            self.is_ours = true;
        }
        if self.left == 0 {
            return Ok(None);
        }
        let (at, words) = (self.next, self.words());
        let header = |index: usize| words[at / 8 + index].load(Relaxed);
        let ((to_next, _), (_, kept), (whole_bytes, status)) =
            (halves(header(0)), halves(header(1)), halves(header(2)));
        let (start, _) = quarters(halves(header(3)).0);
        let (tag_control, rest) = halves(header(4));
        let (tag_protocol, _) = quarters(rest);
        // From here on no word of the header is read again.
        let room = self.block_bytes - at;
        let start = at_most("start of a frame", start.into(), room)?;
        let len = at_most("length of a frame", kept, room - start)?;
        let next = match self.left {
            1 => 0,
            _ => at + header_at("next frame", to_next, last.saturating_sub(at))?,
        };
        (self.left, self.next) = (self.left - 1, next);
        let payload = Payload::new(self.words(), at + start, len);
        Ok(Some(RingFrame { payload, whole_bytes, status, tag_control, tag_protocol }))
    }

    /// Gives the block back if all its frames were taken. To be called after each
    /// [`ReceiveBlocks::take`].
    pub fn release(&mut self) {
        if self.is_ours && self.left == 0 {
            // Release: pairs with `smp_rmb` in `prb_dispatch_next_block` of the kernel. It resets
            // the number of frames, which shares the word, itself.
            self.words()[1].store(0, Release);
            self.block = (self.block + 1) % self.blocks;
            self.is_ours = false;
        }
    }
}

/// Our side of the transmit ring.
#[derive(Debug)]
pub struct TransmitSlots<W> {
    memory: W,
    first_byte: usize,
    slots: u32,
    slot_bytes: usize,
    /// The slot to fill next.
    slot: u32,
}

impl<W: AsRef<[AtomicU64]>> TransmitSlots<W> {
    /// `slots` of `slot_bytes` each in `memory`, from `first_byte` on.
    ///
    /// # Errors
    /// [`LayoutError::Length`] if they do not fit the memory, or a slot is too small.
    pub fn new(
        memory: W,
        first_byte: usize,
        slots: u32,
        slot_bytes: usize,
    ) -> Result<Self, LayoutError> {
        let found = memory.as_ref().len();
        let expected = (first_byte + slots as usize * slot_bytes) / 8;
        let is_aligned = first_byte.is_multiple_of(8) && slot_bytes.is_multiple_of(8);
        if found < expected || slots == 0 || slot_bytes < HEADER_BYTES || !is_aligned {
            return Err(LayoutError::Length { page: PAGE, found, expected });
        }
        Ok(TransmitSlots { memory, first_byte, slots, slot_bytes, slot: 0 })
    }

    /// The most bytes of a frame.
    pub fn frame_bytes_max(&self) -> usize {
        self.slot_bytes - HEADER_BYTES
    }

    /// Copies `frame`, of at most [`TransmitSlots::frame_bytes_max`], into the next slot, for the
    /// kernel's next send. `false`: all slots are in use. O(bytes).
    ///
    /// # Errors
    /// The status of a slot is impossible, or the frame is too long.
    pub fn push(&mut self, frame: &Payload<'_>) -> Result<bool, PeerFault> {
        let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        at_most("length of a frame", bytes, self.frame_bytes_max())?;
        let start = (self.first_byte + self.slot as usize * self.slot_bytes) / 8;
        let words = &self.memory.as_ref()[start..start + self.slot_bytes / 8];
        // Acquire: pairs with `smp_wmb` of the kernel, which has read the slot before.
        let (_, status) = halves(words[2].load(Acquire));
        match status & SLOT_STATUS {
            0 => {}
            1..=IN_USE_MAX => return Ok(false),
            found => {
                let (found, max) = (found.into(), IN_USE_MAX.into());
                return Err(PeerFault::Value { page: PAGE, name: "status of a slot", found, max });
            }
        }
        Payload::new(words, HEADER_BYTES, frame.len()).copy_from(frame);
        // No slot follows at another distance.
        words[0].store(0, Relaxed);
        // Release: pairs with `smp_rmb` in `__packet_get_status` of the kernel.
        words[2].store(word(bytes, SEND_REQUEST), Release);
        self.slot = (self.slot + 1) % self.slots;
        Ok(true)
    }
}
