//! The block types of pcapng that the reader distinguishes.

pub(super) const SECTION: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
/// Obsolete, and unknown to `pcap-parser`.
pub(super) const OLD_PACKET: u32 = 2;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;
