//! Reads captures block by block, so that a file of any length takes only the memory of its largest
//! packet. `pcap-parser` parses the content of each block.
//!
//! The readers of `pcap-parser` are not used. They hold everything between packets, cannot
//! distinguish an inconsistent block from a truncated one, and give no reason when reading fails.
//! Its `if_tsresol` ignores powers of two and its `if_tsoffset` ignores big-endian sections (0.17).
//! Both are therefore taken from the option's bytes.
//!
//! Formats: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

use super::block_type::{ENHANCED_PACKET, INTERFACE, OLD_PACKET, SECTION, SIMPLE_PACKET};
use super::error::{ArrivalsError, CaptureFault};
use super::kind::Kind;
use super::limits::{BLOCK_BYTES_MAX, INTERFACES_MAX};
use super::note::Note;
use super::packet::Link;
use super::timeline::Timeline;
use pcap_parser::pcapng::{Block, InterfaceDescriptionBlock, OptionCode};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{parse_block_be, parse_block_le};
use pcap_parser::{parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};
use std::io::{self, Read};

/// Reads the packets to `port`, or all packets. Returns how many packets the capture has in all.
pub(super) fn read(
    input: impl Read,
    kind: Kind,
    port: Option<u16>,
    times: &mut Timeline,
    notes: &mut Vec<Note>,
) -> Result<u64, ArrivalsError> {
    let mut capture = Capture {
        input,
        block: Vec::new(),
        big_endian: false,
        port,
        packets: 0,
        unknown: None,
        times,
    };
    let ended = match kind {
        Kind::PcapNg => capture.pcapng(),
        _ => capture.pcap(),
    };
    let packets = capture.packets;
    if let Some((link, packets)) = capture.unknown {
        notes.push(Note::UnknownLink { link, packets });
    }
    match ended {
        Ok(()) => {}
        Err(Stop::Truncated) => notes.push(Note::Truncated { packets }),
        Err(Stop::Fault(fault)) => return Err(ArrivalsError::Capture { packets, fault }),
        Err(Stop::Other(error)) => return Err(error),
    }
    Ok(packets)
}

/// Why reading stopped.
enum Stop {
    Truncated,
    Fault(CaptureFault),
    Other(ArrivalsError),
}

struct Capture<'t, R> {
    input: R,
    /// The current packet or block.
    block: Vec<u8>,
    big_endian: bool,
    port: Option<u16>,
    packets: u64,
    /// The first unknown link type, and the number of packets of all unknown types.
    unknown: Option<(u32, u64)>,
    times: &'t mut Timeline,
}

/// The properties of an interface's packets.
#[derive(Clone, Copy)]
struct Interface {
    link_type: u32,
    link: Option<Link>,
    /// Resolution of the interface's clock.
    ticks_per_second: u64,
    /// Zero of the interface's clock, in seconds since 1970.
    offset_s: i64,
}

impl Interface {
    fn new(link_type: u32, ticks_per_second: u64, offset_s: i64) -> Self {
        Interface { link_type, link: Link::of_type(link_type), ticks_per_second, offset_s }
    }

    /// Nanoseconds since 1970, rounded down.
    fn nanos(self, ticks: u64) -> i128 {
        // The products are below 2^64 * 2^30 and 2^63 * 2^30, so both fit.
        let ns = i128::from(ticks) * 1_000_000_000 / i128::from(self.ticks_per_second);
        i128::from(self.offset_s) * 1_000_000_000 + ns
    }
}

impl<R: Read> Capture<'_, R> {
    fn pcap(&mut self) -> Result<(), Stop> {
        if self.more(24)? < 24 {
            return Err(Stop::Fault(CaptureFault::NoHeader));
        }
        let Ok((_, header)) = parse_pcap_header(&self.block) else {
            return Err(Stop::Fault(CaptureFault::NoHeader));
        };
        if header.version_major != 2 {
            return Err(Stop::Fault(CaptureFault::Version(header.version_major)));
        }
        self.big_endian = header.is_bigendian();
        let per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
        // The bits above the link type hold the length of a frame's checksum.
        let link_type = header.network.0.cast_unsigned() & 0x03ff_ffff;
        let interface = Interface::new(link_type, per_second, 0);
        while self.next_frame()? {
            let block = core::mem::take(&mut self.block);
            let parse = if self.big_endian { parse_pcap_frame_be } else { parse_pcap_frame };
            let Ok((_, frame)) = parse(&block) else {
                return Err(Stop::Fault(CaptureFault::Malformed { block: 0 }));
            };
            let ticks = u64::from(frame.ts_sec) * per_second + u64::from(frame.ts_usec);
            self.packet(interface, ticks, frame.data)?;
            self.block = block;
        }
        Ok(())
    }

    /// Reads the next packet and its header; returns `false` at the end of the file.
    fn next_frame(&mut self) -> Result<bool, Stop> {
        self.block.clear();
        match self.more(16)? {
            0 => return Ok(false),
            16 => {}
            _ => return Err(Stop::Truncated),
        }
        let captured = self.word(8);
        if captured > BLOCK_BYTES_MAX {
            return Err(Stop::Fault(CaptureFault::Length(captured)));
        }
        self.whole(captured)?;
        Ok(true)
    }

    fn pcapng(&mut self) -> Result<(), Stop> {
        let mut interfaces: Vec<Interface> = Vec::new();
        while let Some(kind) = self.next_block()? {
            let block = core::mem::take(&mut self.block);
            if !block.is_empty() {
                let parse = if self.big_endian { parse_block_be } else { parse_block_le };
                let (_, parsed) = parse(&block)
                    .map_err(|_| Stop::Fault(CaptureFault::Malformed { block: kind }))?;
                self.pcapng_block(&parsed, &mut interfaces)?;
            }
            self.block = block;
        }
        Ok(())
    }

    fn pcapng_block(
        &mut self,
        block: &Block<'_>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), Stop> {
        match block {
            Block::SectionHeader(section) => {
                if section.major_version != 1 {
                    return Err(Stop::Fault(CaptureFault::Version(section.major_version)));
                }
                interfaces.clear();
            }
            Block::InterfaceDescription(described) => {
                if interfaces.len() >= INTERFACES_MAX {
                    return Err(Stop::Fault(CaptureFault::Interfaces));
                }
                interfaces.push(interface(described, self.big_endian)?);
            }
            Block::EnhancedPacket(packet) => {
                let place = usize::try_from(packet.if_id).unwrap_or(usize::MAX);
                let Some(interface) = interfaces.get(place) else {
                    return Err(Stop::Fault(CaptureFault::Interface(packet.if_id)));
                };
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                self.packet(*interface, ticks, packet.packet_data())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the next block. Returns its type, and keeps the block if its type matters. Returns
    /// `None` at the end of the file.
    fn next_block(&mut self) -> Result<Option<u32>, Stop> {
        self.block.clear();
        match self.more(8)? {
            0 => return Ok(None),
            8 => {}
            _ => return Err(Stop::Truncated),
        }
        let mut read = 8;
        // This type reads the same in both byte orders. The section's byte order follows it.
        if self.word(0) == SECTION {
            self.whole(4)?;
            read = 12;
            self.big_endian = match self.block[8..] {
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                _ => return Err(Stop::Fault(CaptureFault::ByteOrder)),
            };
        }
        let (kind, length) = (self.word(0), self.word(4));
        if length < 12 || length % 4 != 0 {
            return Err(Stop::Fault(CaptureFault::Length(length)));
        }
        let rest = length.saturating_sub(read);
        match kind {
            OLD_PACKET | SIMPLE_PACKET => {
                return Err(Stop::Fault(CaptureFault::Timeless { block: kind }));
            }
            SECTION | INTERFACE | ENHANCED_PACKET if length > BLOCK_BYTES_MAX => {
                return Err(Stop::Fault(CaptureFault::Length(length)));
            }
            SECTION | INTERFACE | ENHANCED_PACKET => self.whole(rest)?,
            _ => {
                self.block.clear();
                let mut passed = self.input.by_ref().take(u64::from(rest));
                let passed = io::copy(&mut passed, &mut io::sink());
                if passed.map_err(|error| Stop::Other(ArrivalsError::Io(error)))? < rest.into() {
                    return Err(Stop::Truncated);
                }
            }
        }
        Ok(Some(kind))
    }

    fn packet(&mut self, interface: Interface, ticks: u64, data: &[u8]) -> Result<(), Stop> {
        self.packets += 1;
        let payload = |(_, payload)| payload;
        let selected = match (self.port, interface.link) {
            (None, link) => Some(link.and_then(|link| link.udp(data)).map_or(&[][..], payload)),
            (Some(port), Some(link)) => {
                link.udp(data).filter(|(found, _)| *found == port).map(payload)
            }
            (Some(_), None) => {
                self.unknown.get_or_insert((interface.link_type, 0)).1 += 1;
                None
            }
        };
        if let Some(payload) = selected {
            let pushed = self.times.push_packet(interface.nanos(ticks), payload);
            pushed.map_err(Stop::Other)?;
        }
        Ok(())
    }

    /// Reads `bytes` more behind the current ones. Returns how many were read.
    fn more(&mut self, bytes: u32) -> Result<usize, Stop> {
        let mut limited = self.input.by_ref().take(u64::from(bytes));
        // Grows with the bytes that come, not with the declared length.
        limited.read_to_end(&mut self.block).map_err(|error| Stop::Other(ArrivalsError::Io(error)))
    }

    fn whole(&mut self, bytes: u32) -> Result<(), Stop> {
        match u32::try_from(self.more(bytes)?) {
            Ok(read) if read == bytes => Ok(()),
            _ => Err(Stop::Truncated),
        }
    }

    /// The number at `place` of the current block, or 0 if the block is shorter.
    fn word(&self, place: usize) -> u32 {
        let bytes = self.block.get(place..).and_then(|rest| rest.first_chunk::<4>());
        let bytes = *bytes.unwrap_or(&[0; 4]);
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

/// Reads an interface description block (§4.2 of the format).
fn interface(
    described: &InterfaceDescriptionBlock<'_>,
    big_endian: bool,
) -> Result<Interface, Stop> {
    let (mut resolution, mut offset_s) = (6, 0);
    let options = described.options.iter();
    for option in options.take_while(|option| option.code != OptionCode::EndOfOpt) {
        let Ok(bytes) = option.as_bytes() else { continue };
        if option.code == OptionCode::IfTsresol
            && let [byte, ..] = bytes
        {
            resolution = *byte;
        }
        if option.code == OptionCode::IfTsoffset
            && let Some(bytes) = bytes.first_chunk::<8>()
        {
            let read = if big_endian { i64::from_be_bytes } else { i64::from_le_bytes };
            offset_s = read(*bytes);
        }
    }
    let exponent = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let Some(ticks_per_second) = base.checked_pow(exponent) else {
        return Err(Stop::Fault(CaptureFault::Resolution(resolution)));
    };
    Ok(Interface::new(described.linktype.0.cast_unsigned(), ticks_per_second, offset_s))
}
