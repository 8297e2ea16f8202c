//! What a queue says of a frame beside its descriptor: the peer, the time, and the kind.
//!
//! The note stands in front of the data, in the last 32 bytes that are aligned to 8: in the cache
//! line of the headers, which are no longer needed. The side that hands the frame over writes it,
//! and the reader copies it once and checks the copy. The queue orders both: the note is written
//! before [`super::queue::Writer::publish`], and read after [`super::queue::Reader::take`].
//!
//! | bytes | words of 8 bytes, native order | |
//! |---|---|---|
//! | 0..16 | address of the peer, in the order of the network; IPv4 is mapped | |
//! | 16..24 | port (2 bytes), kind (2), most bytes of a packet (2), 2 reserved | |
//! | 24..32 | nanoseconds of `CLOCK_MONOTONIC` | when the datagram arrived |

use crate::Ordering::Relaxed;
use crate::{AtomicU64, PeerFault};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a note. A frame has at least [`HEADROOM_BYTES`] before its data.
pub const NOTE_BYTES: usize = 32;

/// Words of a note.
pub(super) const NOTE_WORDS: usize = NOTE_BYTES / 8;

/// Bytes in front of the data of each frame: the note, and room for the headers of Ethernet, IPv6
/// and UDP (62 bytes).
pub const HEADROOM_BYTES: u16 = 128;

/// `::ffff:0:0`, the mapped addresses of IPv4.
const MAPPED: u128 = 0xffff << 32;

/// Names the note in errors.
const PAGE: &str = "note of a frame";

/// What the frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// A datagram from the peer, or one for it.
    Datagram,
    /// No datagram: the peer has no receiver at this port (ICMP port unreachable).
    PortUnreachable,
    /// No datagram: the peer cannot be reached.
    HostUnreachable,
    /// No datagram: a packet to the peer was too long.
    TooLong {
        /// The most bytes of a packet of IP to this peer.
        packet_bytes_max: u16,
    },
}

/// The note of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The address of the peer, by [`Ipv6Addr::to_bits`]. One of IPv4 is mapped. A number, because
    /// the compiler moves an array of 16 bytes by the byte.
    pub address_bits: u128,
    /// The port of the peer.
    pub port: u16,
    /// What the frame holds.
    pub kind: NoteKind,
    /// When it arrived, in nanoseconds of `CLOCK_MONOTONIC`. 0 in a datagram that is sent.
    pub at_ns: u64,
}

impl Note {
    /// A note with `peer`.
    pub fn new(peer: SocketAddr, kind: NoteKind, at_ns: u64) -> Note {
        let address = match peer.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Note { address_bits: address.to_bits(), port: peer.port(), kind, at_ns }
    }

    /// The peer. A mapped address is one of IPv4.
    #[inline]
    pub fn peer(&self) -> SocketAddr {
        let bits = self.address_bits;
        let address = match u32::try_from(bits ^ MAPPED) {
            Ok(bits) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            Err(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        SocketAddr::new(address, self.port)
    }

    /// Writes the note into four words. Four stores.
    #[inline(always)]
    pub(super) fn store(&self, frame: &[AtomicU64; NOTE_WORDS]) {
        let (kind, detail) = match self.kind {
            NoteKind::Datagram => (0u16, 0u16),
            NoteKind::PortUnreachable => (1, 0),
            NoteKind::HostUnreachable => (2, 0),
            NoteKind::TooLong { packet_bytes_max } => (3, packet_bytes_max),
        };
        let [port_low, port_high] = self.port.to_ne_bytes();
        let ([kind_low, kind_high], [low, high]) = (kind.to_ne_bytes(), detail.to_ne_bytes());
        let port = [port_low, port_high, kind_low, kind_high, low, high, 0, 0];
        // Relaxed: `Writer::publish` hands them over with the frame.
        let low = (self.address_bits << 64 >> 64) as u64;
        frame[0].store(((self.address_bits >> 64) as u64).to_be(), Relaxed);
        frame[1].store(low.to_be(), Relaxed);
        frame[2].store(u64::from_ne_bytes(port), Relaxed);
        frame[3].store(self.at_ns, Relaxed);
    }

    /// The note in four words. Four loads; the only copy of it.
    ///
    /// # Errors
    /// It has another kind than those that there are.
    #[inline(always)]
    pub(super) fn load(frame: &[AtomicU64; NOTE_WORDS]) -> Result<Note, PeerFault> {
        // Relaxed: `Reader::take` acquired them.
        let word = |at: usize| frame[at].load(Relaxed);
        let (high, low, port, at_ns) = (word(0), word(1), word(2), word(3));
        let address_bits = u128::from(u64::from_be(high)) << 64 | u128::from(u64::from_be(low));
        let [a, b, kind, kind_high, detail, detail_high, 0, 0] = port.to_ne_bytes() else {
            let max = u64::MAX >> 16;
            return Err(PeerFault::Value { page: PAGE, name: "reserved", found: port, max });
        };
        let packet_bytes_max = u16::from_ne_bytes([detail, detail_high]);
        let kind = match u16::from_ne_bytes([kind, kind_high]) {
            0 => NoteKind::Datagram,
            1 => NoteKind::PortUnreachable,
            2 => NoteKind::HostUnreachable,
            3 => NoteKind::TooLong { packet_bytes_max },
            found => {
                let found = found.into();
                return Err(PeerFault::Value { page: PAGE, name: "kind", found, max: 3 });
            }
        };
        Ok(Note { address_bits, port: u16::from_ne_bytes([a, b]), kind, at_ns })
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let frame = [const { AtomicU64::new(u64::MAX) }; NOTE_WORDS];
        let kinds = [
            NoteKind::Datagram,
            NoteKind::PortUnreachable,
            NoteKind::HostUnreachable,
            NoteKind::TooLong { packet_bytes_max: 1280 },
        ];
        for peer in ["10.0.0.1:5004", "[fe80::1]:65535", "0.0.0.0:0"] {
            for kind in kinds {
                let peer = peer.parse().unwrap();
                let note = Note::new(peer, kind, u64::MAX - 3);
                note.store(&frame);
                assert_eq!(Note::load(&frame), Ok(note));
                assert_eq!(note.peer(), peer);
            }
        }
    }

    #[test]
    fn the_bytes_of_a_note_stay() {
        let frame = [const { AtomicU64::new(0) }; NOTE_WORDS];
        let kind = NoteKind::TooLong { packet_bytes_max: 0x0506 };
        Note::new("1.2.3.4:258".parse().unwrap(), kind, 7).store(&frame);
        let bytes: Vec<u8> =
            frame.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let golden = [
            [0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0xff, 0xff, 1, 2, 3, 4],
            [2, 1, 3, 0, 6, 5, 0, 0],
            [7, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, golden.concat());
    }

    #[test]
    fn an_impossible_note_is_a_fault() {
        let frame = [const { AtomicU64::new(0) }; NOTE_WORDS];
        frame[2].store(4 << 16, Relaxed);
        assert!(matches!(Note::load(&frame), Err(PeerFault::Value { name: "kind", .. })));
        frame[2].store(1 << 48, Relaxed);
        assert!(matches!(Note::load(&frame), Err(PeerFault::Value { name: "reserved", .. })));
    }
}
