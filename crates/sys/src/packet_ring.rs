//! Packet sockets with rings (PACKET_MMAP): the kernel copies frames into memory that this process
//! maps, and sends many of them by one call.
//!
//! The devices of the runtime call this where AF_XDP does not work. The module opens the socket,
//! makes and maps its rings, and wakes the kernel. It does not read a ring: `upcall-shm` does,
//! because the kernel is a peer there. See packet(7) and Linux,
//! Documentation/networking/packet_mmap.rst. The rings have the form TPACKET_V3:
//!
//! ```text
//!   memory:  receive block 0 | ... | receive block b-1 | transmit slot 0 | ... | slot s-1
//!   block:   many frames; the kernel hands it over when it is full, or after a timeout
//!   slot:    one frame
//! ```

use crate::ring_mapping::RingMapping;
use crate::{OsError, packet_socket};
use core::sync::atomic::AtomicU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// After so many milliseconds the kernel hands over a block that is not full: the least that it can
/// be told. A lone frame waits so long at most on Linux 6.18, and a tick longer before.
const BLOCK_TIMEOUT_MS: u32 = 1;

/// The sizes of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRingForm {
    /// Bytes of a receive block: a power of two of pages. A longer frame is cut off.
    pub block_bytes: u32,
    /// Receive blocks, at least 1.
    pub blocks: u32,
    /// Bytes of a transmit slot: a power of two that divides `block_bytes`. The kernel's header
    /// takes 48 of them.
    pub slot_bytes: u32,
    /// Transmit slots: a multiple of the slots of `block_bytes`.
    pub slots: u32,
}

impl PacketRingForm {
    /// Bytes of all receive blocks. The first transmit slot is after them.
    pub fn receive_bytes(&self) -> usize {
        self.block_bytes as usize * self.blocks as usize
    }
}

/// A packet socket with a receive and a transmit ring, until dropped.
#[derive(Debug)]
pub struct PacketRing {
    fd: OwnedFd,
    memory: PacketRingMemory,
}

/// The memory of both rings. Copies refer to the same mapping, which lives as long as one of them.
#[derive(Clone, Debug)]
pub struct PacketRingMemory(Arc<RingMapping>);

impl AsRef<[AtomicU64]> for PacketRingMemory {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.words_of_64_bits()
    }
}

impl PacketRing {
    /// A socket on the interface with this index. It gets a copy of every frame that arrives there,
    /// and the kernel works on them too. It does not get what this machine sends. What it sends
    /// goes to the driver at once, past the interface's queueing discipline. A frame that the
    /// interface refuses, such as one that is too long for it, is lost without an error. Allocates.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW` ([`crate::grant::how_to_use_frames`]), `ENODEV` without such
    /// an interface, `ENETDOWN`, `EINVAL` for other sizes, `ENOMEM`.
    pub fn open(interface: u32, form: PacketRingForm) -> Result<PacketRing, OsError> {
        let PacketRingForm { block_bytes, blocks, slot_bytes, slots } = form;
        let per_block = block_bytes.checked_div(slot_bytes).unwrap_or(0);
        // The kernel takes no blocks for a request to free the ring.
        if per_block == 0 || blocks == 0 || slots == 0 {
            return Err(OsError::new("packet ring", libc::EINVAL));
        }
        let fd = packet_socket::open()?;
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        // SAFETY: takes a number.
        unsafe {
            packet_socket::set(&fd, libc::PACKET_VERSION, &version, "setsockopt(PACKET_VERSION)")
        }?;
        // Without it the kernel stops at a frame that it refuses, for good.
        packet_socket::turn_on(&fd, libc::PACKET_LOSS, "setsockopt(PACKET_LOSS)")?;
        packet_socket::turn_on(&fd, libc::PACKET_QDISC_BYPASS, "setsockopt(PACKET_QDISC_BYPASS)")?;
        let mut request = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            // The kernel only checks the size of a frame to receive, and does not use it.
            tp_frame_size: slot_bytes,
            tp_frame_nr: per_block.saturating_mul(blocks),
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let operation = "setsockopt(PACKET_RX_RING)";
        // SAFETY: takes this struct. The ring is the kernel's memory until it is mapped.
        unsafe { packet_socket::set(&fd, libc::PACKET_RX_RING, &request, operation) }?;
        request.tp_block_nr = slots / per_block;
        (request.tp_frame_nr, request.tp_retire_blk_tov) = (slots, 0);
        let operation = "setsockopt(PACKET_TX_RING)";
        // SAFETY: as above.
        unsafe { packet_socket::set(&fd, libc::PACKET_TX_RING, &request, operation) }?;
        let bytes = form.receive_bytes() + slots as usize * slot_bytes as usize;
        let memory = PacketRingMemory(Arc::new(RingMapping::of(fd.as_fd(), bytes, 0)?));
        packet_socket::bind(&fd, interface)?;
        Ok(PacketRing { fd, memory })
    }

    /// The memory: first the receive blocks, then the transmit slots.
    pub fn memory(&self) -> &PacketRingMemory {
        &self.memory
    }

    /// Makes the kernel send what is in the transmit ring. One system call. Does not block.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOBUFS`: there is no room now, so call again later. `ENETDOWN`, `ENXIO`: the
    /// interface is down or gone.
    pub fn send(&self) -> Result<(), OsError> {
        let (nothing, nowhere) = (core::ptr::null(), core::ptr::null());
        // SAFETY: no data and no address.
        let sent = unsafe {
            libc::sendto(self.fd.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT, nowhere, 0)
        };
        if sent < 0 { Err(OsError::last("sendto(AF_PACKET)")) } else { Ok(()) }
    }

    /// Asks whether the interface went down or away. The kernel reports that once. One system call.
    ///
    /// # Errors
    /// `ENETDOWN` after the interface went down or was deleted.
    pub fn check(&self) -> Result<(), OsError> {
        match rustix::net::sockopt::socket_error(&self.fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) => Err(OsError::of("packet socket")(errno)),
            Err(errno) => Err(OsError::of("getsockopt(SO_ERROR)")(errno)),
        }
    }

    /// Frames that the kernel dropped since the last call, because all receive blocks were full.
    /// One system call.
    ///
    /// # Errors
    /// The kernel's error. None is known.
    pub fn take_drops(&self) -> Result<u64, OsError> {
        packet_socket::take_drops(self.fd.as_fd())
    }

    /// The VLAN tag that the kernel took out of a frame, from its record in the receive ring. It
    /// was in front of the EtherType, after 12 bytes. `None`: it took none.
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    pub fn vlan_tag(status: u32, control: u32, protocol: u16) -> Option<[u8; 4]> {
        packet_socket::vlan_tag(status, control as u16, protocol)
    }
}

impl AsFd for PacketRing {
    /// To wait until frames arrive.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
