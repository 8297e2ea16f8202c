//! Why a frame is refused.

use core::fmt;

/// What is wrong with the headers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The frame is shorter than an Ethernet header.
    EthernetCutOff,
    /// The frame ends within a VLAN tag.
    TagCutOff,
    /// There are more VLAN tags than [`super::TAGS_MAX`].
    TooManyTags,
    /// The frame ends within the message of ARP.
    ArpCutOff,
    /// The message of ARP is for other networks, or neither a request nor a reply.
    ArpKind,
    /// The version of IP is not that of the EtherType.
    IpVersion,
    /// The frame ends within the header of IPv4.
    Ipv4CutOff,
    /// The header of IPv4 says that it is shorter than 20 bytes.
    Ipv4HeaderLength,
    /// The packet says that it is shorter than its header, or longer than the frame.
    Ipv4TotalLength,
    /// The frame ends within the header of IPv6.
    Ipv6CutOff,
    /// The packet says that it is longer than the frame.
    Ipv6PayloadLength,
    /// An address of the packet of IPv6 is a mapped address of IPv4.
    Ipv6Mapped,
    /// The packet ends within an extension header, or one has a length that cannot be.
    ExtensionCutOff,
    /// There are more extension headers than [`super::EXTENSIONS_MAX`].
    TooManyExtensions,
    /// There are two fragment headers.
    SecondFragmentHeader,
    /// A fragment that is not the last has a length of 0, or one that is no multiple of 8.
    FragmentLength,
    /// The fragment ends beyond the greatest datagram.
    FragmentBeyondEnd,
    /// The packet ends within the header of UDP.
    UdpCutOff,
    /// The datagram says that it is shorter than its header, or longer than the packet.
    UdpLength,
    /// The packet ends within the header of TCP.
    TcpCutOff,
    /// The header of TCP says that it is shorter than 20 bytes, or longer than the packet.
    TcpHeaderLength,
    /// The packet ends within the header of ICMP.
    IcmpCutOff,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::EthernetCutOff => "the Ethernet header is cut off",
            ParseError::TagCutOff => "a VLAN tag is cut off",
            ParseError::TooManyTags => "too many VLAN tags",
            ParseError::ArpCutOff => "the ARP message is cut off",
            ParseError::ArpKind => "an ARP message of an unknown kind",
            ParseError::IpVersion => "another version of IP than the EtherType says",
            ParseError::Ipv4CutOff => "the IPv4 header is cut off",
            ParseError::Ipv4HeaderLength => "an IPv4 header of less than 20 bytes",
            ParseError::Ipv4TotalLength => "a wrong length of the IPv4 packet",
            ParseError::Ipv6CutOff => "the IPv6 header is cut off",
            ParseError::Ipv6PayloadLength => "the IPv6 packet is longer than the frame",
            ParseError::Ipv6Mapped => "an IPv4 address in an IPv6 packet",
            ParseError::ExtensionCutOff => "an IPv6 extension header is cut off",
            ParseError::TooManyExtensions => "too many IPv6 extension headers",
            ParseError::SecondFragmentHeader => "a second fragment header",
            ParseError::FragmentLength => "a fragment that is not the last, with a wrong length",
            ParseError::FragmentBeyondEnd => "a fragment beyond the end of the greatest datagram",
            ParseError::UdpCutOff => "the UDP header is cut off",
            ParseError::UdpLength => "a wrong length of the UDP datagram",
            ParseError::TcpCutOff => "the TCP header is cut off",
            ParseError::TcpHeaderLength => "a wrong length of the TCP header",
            ParseError::IcmpCutOff => "the ICMP header is cut off",
        })
    }
}

impl core::error::Error for ParseError {}

/// Which checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumError {
    /// That of the header of IPv4.
    Ipv4Header,
    /// That of the datagram.
    Udp,
    /// A datagram over IPv6 has none (RFC 8200 §8.1).
    UdpMissing,
    /// That of the message of ICMP or ICMPv6.
    Icmp,
}

impl fmt::Display for ChecksumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChecksumError::Ipv4Header => "a wrong checksum of the IPv4 header",
            ChecksumError::Udp => "a wrong UDP checksum",
            ChecksumError::UdpMissing => "a UDP datagram over IPv6 without checksum",
            ChecksumError::Icmp => "a wrong ICMP checksum",
        })
    }
}

impl core::error::Error for ChecksumError {}
