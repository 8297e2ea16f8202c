//! The messages of IGMP and MLD: those that arrive, and those that are sent.

use crate::flow::ICMPV6;
use crate::packet::build::{BuildError, ETHERNET, ethernet, group_link};
use crate::packet::{Headers, LinkAddress};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use smoltcp::wire::{
    EthernetProtocol, Icmpv6Message, Icmpv6Packet, IgmpPacket, IgmpRepr, IgmpVersion, Ipv4Packet,
    Ipv6OptionRepr, Ipv6OptionRouterAlert, Ipv6OptionsIterator, Ipv6Packet, MldAddressRecord,
    MldAddressRecordRepr, MldRecordType,
};
use upcall_core::time::Span;

/// IGMP's number (IANA, "Assigned Internet Protocol Numbers").
pub(in crate::host) const IGMP: u8 = 2;

/// All routers: they get the leaves (RFC 2236 §9, RFC 2710 §8).
const ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// All routers of MLDv2: they get the reports (RFC 3810 §5.2.14).
const MLD_V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Where the message is in a packet of IGMP, after the router alert, and the bytes of the packet.
const IGMP_AT: u8 = 24;
const IGMP_BYTES: u16 = 32;
/// The router alert of IPv4 (RFC 2113 §2.1).
const ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
/// The options with the router alert of MLD (RFC 2711 §2.1) before ICMPv6, and two bytes that fill
/// up (RFC 8200 §4.2).
const ALERT_V6: [u8; 8] = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// Types of MLDv1 that smoltcp does not name (RFC 2710 §3.1).
const MLD_V1_REPORT: u8 = 131;
const MLD_V1_DONE: u8 = 132;
/// The response time of queries of IGMPv1 (RFC 2236 §4).
const IGMP_V1_ANSWER: Span = Span::from_secs(10);

/// What a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) enum Kind {
    Joined,
    Present,
    Left,
}

/// A report to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) struct Report {
    pub(in crate::host) group: IpAddr,
    pub(in crate::host) kind: Kind,
    /// Whether it has the form of IGMPv1 or MLDv1.
    pub(in crate::host) is_v1: bool,
}

/// What a router or another host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) enum GroupMessage {
    Query {
        /// An address of the family that is meant.
        family_of: IpAddr,
        /// The group that is asked for; `None`: all.
        group: Option<IpAddr>,
        /// How late the answer may be.
        answer_max: Span,
        is_v1: bool,
    },
    Report {
        group: IpAddr,
    },
}

/// The message of IGMP or MLD in a packet that is no fragment, if it is a valid one.
/// [`crate::packet::check`] must have accepted the packet.
pub(in crate::host) fn read(frame: &[u8], headers: &Headers) -> Option<GroupMessage> {
    let (packet, message) =
        (frame.get(headers.packet.clone())?, frame.get(headers.transport.clone())?);
    if headers.is_ipv4() { igmp(packet, message) } else { mld(packet, message, headers) }
}

fn igmp(packet: &[u8], message: &[u8]) -> Option<GroupMessage> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let message = IgmpPacket::new_checked(message).ok()?;
    // RFC 2236 §2: none comes from another link.
    if ip.hop_limit() != 1 || !message.verify_checksum() {
        return None;
    }
    match IgmpRepr::parse(&message).ok()? {
        IgmpRepr::MembershipQuery { max_resp_time, group_addr, version } => {
            // A query of version 3 is longer (RFC 3376 §7.1).
            let is_v1 = version == IgmpVersion::Version1 && message.into_inner().len() == 8;
            let answer_max = Span::from_millis(max_resp_time.total_millis());
            let answer_max = if is_v1 { IGMP_V1_ANSWER } else { answer_max };
            let group = (!group_addr.is_unspecified()).then_some(group_addr.into());
            Some(GroupMessage::Query { family_of: group_addr.into(), group, answer_max, is_v1 })
        }
        IgmpRepr::MembershipReport { group_addr, .. } => {
            Some(GroupMessage::Report { group: group_addr.into() })
        }
        IgmpRepr::LeaveGroup { .. } => None,
    }
}

/// RFC 3810 §5.1 and §6.2, RFC 2710 §3.
fn mld(packet: &[u8], message: &[u8], headers: &Headers) -> Option<GroupMessage> {
    let ip = Ipv6Packet::new_checked(packet).ok()?;
    let is_alert = |option| {
        let alert = Ipv6OptionRouterAlert::MulticastListenerDiscovery;
        matches!(option, Ok(Ipv6OptionRepr::RouterAlert(found)) if found == alert)
    };
    // The first header should be that of hop-by-hop options, whose length is in its second byte.
    let options = packet.get(42..48 + 8 * usize::from(*packet.get(41)?))?;
    let from_link = ip.hop_limit() == 1
        && u8::from(ip.next_header()) == 0
        && headers.source.is_unicast_link_local()
        && Ipv6OptionsIterator::new(options).any(is_alert);
    if !from_link || message.len() < 24 {
        return None;
    }
    let message = Icmpv6Packet::new_unchecked(message);
    let (address, code) = (message.mcast_addr(), message.max_resp_code());
    let group = address.is_multicast().then_some(IpAddr::from(address));
    match u8::from(message.msg_type()) {
        MLD_V1_REPORT => Some(GroupMessage::Report { group: group? }),
        kind if kind == u8::from(Icmpv6Message::MldQuery) => {
            // RFC 3810 §8.1.
            let is_v1 = match message.into_inner().len() {
                24 => true,
                28.. => false,
                _ => return None,
            };
            if group.is_none() && !address.is_unspecified() {
                return None;
            }
            let answer_max =
                Span::from_millis(if is_v1 { code.into() } else { milliseconds(code) });
            Some(GroupMessage::Query { family_of: address.into(), group, answer_max, is_v1 })
        }
        _ => None,
    }
}

/// RFC 3810 §5.1.3.
fn milliseconds(code: u16) -> u64 {
    let (mantissa, exponent) = (u64::from(code & 0x0fff), code >> 12 & 7);
    if code < 0x8000 { code.into() } else { (mantissa | 0x1000) << (exponent + 3) }
}

/// Writes a report from `source`; that of IPv6 is link-local, or `::` (RFC 3810 §5.2.13).
///
/// # Errors
/// If the buffer is too short.
pub(in crate::host) fn write(
    out: &mut [u8],
    report: Report,
    link: LinkAddress,
    source: IpAddr,
) -> Result<usize, BuildError> {
    match (report.group, source) {
        (IpAddr::V4(group), IpAddr::V4(source)) => write_igmp(out, report, link, group, source),
        (IpAddr::V6(group), IpAddr::V6(source)) => write_mld(out, report, link, group, source),
        _ => Err(BuildError::MixedFamilies),
    }
}

fn write_igmp(
    out: &mut [u8],
    Report { kind, is_v1, .. }: Report,
    link: LinkAddress,
    group_addr: Ipv4Addr,
    source: Ipv4Addr,
) -> Result<usize, BuildError> {
    let version = if is_v1 { IgmpVersion::Version1 } else { IgmpVersion::Version2 };
    let (message, to) = match kind {
        Kind::Left => (IgmpRepr::LeaveGroup { group_addr }, ROUTERS_V4),
        _ => (IgmpRepr::MembershipReport { group_addr, version }, group_addr),
    };
    let needed = ETHERNET + usize::from(IGMP_BYTES);
    let to_link = group_link(to.into());
    let body = ethernet(out, link, to_link, EthernetProtocol::Ipv4, needed)?;
    body.fill(0);
    let mut packet = Ipv4Packet::new_unchecked(&mut *body);
    packet.set_version(4);
    packet.set_header_len(IGMP_AT);
    packet.set_total_len(IGMP_BYTES);
    packet.set_hop_limit(1);
    packet.set_next_header(IGMP.into());
    packet.set_src_addr(source);
    packet.set_dst_addr(to);
    let (head, rest) = body.split_at_mut(IGMP_AT.into());
    head[20..].copy_from_slice(&ALERT_V4);
    Ipv4Packet::new_unchecked(head).fill_checksum();
    message.emit(&mut IgmpPacket::new_unchecked(rest));
    Ok(needed)
}

fn write_mld(
    out: &mut [u8],
    Report { kind, is_v1, .. }: Report,
    link: LinkAddress,
    group: Ipv6Addr,
    source: Ipv6Addr,
) -> Result<usize, BuildError> {
    // With 8 bytes of options.
    let (to, payload) = match kind {
        _ if !is_v1 => (MLD_V2_ROUTERS, 36),
        Kind::Left => (ROUTERS_V6, 32),
        _ => (group, 32),
    };
    let needed = ETHERNET + 40 + usize::from(payload);
    let to_link = group_link(to.into());
    let body = ethernet(out, link, to_link, EthernetProtocol::Ipv6, needed)?;
    body.fill(0);
    let mut packet = Ipv6Packet::new_unchecked(&mut *body);
    packet.set_version(6);
    packet.set_payload_len(payload);
    packet.set_next_header(0.into());
    packet.set_hop_limit(1);
    packet.set_src_addr(source);
    packet.set_dst_addr(to);
    let (options, message) = body[40..].split_at_mut(ALERT_V6.len());
    options.copy_from_slice(&ALERT_V6);
    if is_v1 {
        message[0] = if kind == Kind::Left { MLD_V1_DONE } else { MLD_V1_REPORT };
        message[8..].copy_from_slice(&group.octets());
    } else {
        let record_type = match kind {
            // All sources are wanted: those to be excluded are none (RFC 3810 §4.2).
            Kind::Joined => MldRecordType::ChangeToExclude,
            Kind::Present => MldRecordType::ModeIsExclude,
            Kind::Left => MldRecordType::ChangeToInclude,
        };
        let mut packet = Icmpv6Packet::new_unchecked(&mut *message);
        packet.set_msg_type(Icmpv6Message::MldReport);
        packet.set_nr_mcast_addr_rcrds(1);
        let record = MldAddressRecordRepr::new(record_type, group);
        record.emit(&mut MldAddressRecord::new_unchecked(&mut message[8..]));
    }
    Icmpv6Packet::new_unchecked(message).fill_checksum(&source, &to);
    Ok(needed)
}
