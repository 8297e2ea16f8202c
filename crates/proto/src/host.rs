//! The IP host of an interface that user space owns: ARP, neighbor discovery, echo, errors of ICMP,
//! path MTU and groups, of IPv4 and IPv6.
//!
//! The owner of the interface gives it each frame that belongs to no flow, asks it for the way of
//! each packet, and sends what it has to send. It is pure: it has no clock and no device, and
//! allocates only in [`Host::new`]. No bytes of a peer make it panic. Its tables are bounded.
//!
//! ```text
//!  frame of no flow --input--> Host --output--> frame to send
//!  packet of a flow --path, packet_bytes_max--> addresses and size
//!                              Host --next_deadline--> when to call output
//! ```
//!
//! | part | rules | bound |
//! |---|---|---|
//! | neighbors | RFC 826; RFC 1122 §2.3.2; RFC 4861 §7 | [`NEIGHBORS_MAX`] |
//! | announcement of the own addresses at the start | RFC 5227 §2.3, RFC 4861 §7.2.6 | one each |
//! | echo | RFC 1122 §3.2.2.6, RFC 4443 §4.2; not for groups | [`ANSWERS_MAX`] wait |
//! | port unreachable | RFC 1122 §3.2.2, RFC 4443 §2.4 | 10 at once, 10 a second |
//! | path MTU | RFC 1191, RFC 8201 | [`PATHS_MAX`] |
//! | groups | RFC 2236, RFC 3810, RFC 2710 | [`GROUPS_MAX`] |
//!
//! What it does not do: it does not look for duplicates of its addresses before it uses them
//! (RFC 5227 §2.1, RFC 4862 §5.4), and counts them later as conflicts. It makes no address, so one
//! of IPv6 should have a link-local one beside it. It ignores router advertisements and redirects:
//! gateways are given. It neither fragments nor reassembles, forwards nothing, and sends nothing to
//! itself. Frames with VLAN tags are ignored. Unknown protocols get no error.

use crate::flow::{ICMP, ICMPV6, UDP};
use crate::packet::build::{self, BuildError, Path};
use crate::packet::{Arp, Frame, Headers, LinkAddress, Neighbor, check, neighbor};
use crate::quota::{Meter, Quota};
use addresses::{Addresses, is_link_local};
use answers::{Answers, Discovery};
use core::net::{IpAddr, Ipv6Addr};
use multicast::{IGMP, Memberships, Report};
use neighbors::{Neighbors, Request};
use path_error::quoted;
use path_mtu::Paths;
use upcall_core::time::Instant;

mod addresses;
mod answers;
mod chance;
mod error;
mod multicast;
mod neighbors;
mod outcome;
mod path_error;
mod path_mtu;
#[cfg(test)]
mod tests;

pub use addresses::{ADDRESSES_MAX, AddressPrefix, HostSettings};
pub use answers::{ANSWERS_MAX, DISCOVERY_ANSWERS_MAX};
pub use error::{HostError, MembershipError, NeighborError, RouteError};
pub use multicast::GROUPS_MAX;
pub use neighbors::NEIGHBORS_MAX;
pub use outcome::{HostCounts, IgnoreReason, Input};
pub use path_error::{PathError, PathErrorKind};
pub use path_mtu::PATHS_MAX;

/// Errors that the host sends: the token bucket that RFC 4443 §2.4 (f) gives as an example, one
/// each 100 ms and 10 at once.
const ERRORS: Quota = Quota { step_ns: 0, interval_ns: 100_000_000, depth: 10, at_once: 1 };

/// The host of one interface.
#[derive(Debug)]
pub struct Host {
    link: LinkAddress,
    addresses: Addresses,
    neighbors: Neighbors,
    paths: Paths,
    groups: Memberships,
    answers: Answers,
    errors: Meter,
    /// How many of the own addresses were announced.
    announced: usize,
    counts: HostCounts,
}

impl Host {
    /// Makes a host that announces its addresses with the first [`Host::output`], and is in the
    /// solicited-node group of each (RFC 4861 §7.2.1). Allocates all its memory: about 8 packets of
    /// `mtu` bytes and 40 KiB.
    ///
    /// # Errors
    /// If the settings cannot be.
    pub fn new(settings: HostSettings) -> Result<Host, HostError> {
        let addresses = Addresses::new(&settings)?;
        let HostSettings { link, mtu, seed, .. } = settings;
        let mut groups = Memberships::new(!seed);
        for address in addresses.iter() {
            if let IpAddr::V6(address) = address {
                // There is room: GROUPS_MAX is above ADDRESSES_MAX.
                let _ = groups.join(build::solicited_node(address).into(), Instant::ZERO);
            }
        }
        Ok(Host {
            link,
            addresses,
            neighbors: Neighbors::new(seed),
            paths: Paths::new(mtu),
            groups,
            answers: Answers::new(build::ETHERNET + usize::from(mtu)),
            errors: Meter::new(ERRORS),
            announced: 0,
            counts: HostCounts::default(),
        })
    }

    /// Whether packets to `address` are for the host: its own addresses, groups that it is in, and
    /// the broadcast addresses of its links. O(addresses + log groups).
    pub fn is_own(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.addresses.is_own(address)
            || self.groups.is_member(address)
            || self.addresses.is_broadcast(address)
    }

    /// Takes a frame that belongs to no flow, or a packet of ICMP. `parsed` is what
    /// [`crate::packet::parse`] found in it. Verifies checksums. O(length of the frame), and
    /// O(entries) if a table changes.
    pub fn input(&mut self, frame: &[u8], parsed: &Frame, now: Instant) -> Input {
        let found = match parsed {
            Frame::Arp(arp) => self.arp(frame, arp, now).map(|()| Input::Handled),
            Frame::Ip(headers) => self.ip(frame, headers, now),
            Frame::Other { .. } => Err(IgnoreReason::Unsupported),
        };
        self.counts.handled += u64::from(found.is_ok());
        found.unwrap_or_else(|reason| {
            self.counts.ignored += 1;
            self.counts.conflicts += u64::from(reason == IgnoreReason::Conflict);
            Input::Ignored(reason)
        })
    }

    /// Takes a UDP datagram to an own address whose port no flow has: answers "port unreachable"
    /// (RFC 1122 §4.1.3.1, RFC 4443 §3.1), unless no error may be sent or there were too many.
    /// O(length of the frame).
    pub fn unreachable(&mut self, frame: &[u8], headers: &Headers, now: Instant) {
        let own = headers.destination.address.to_canonical();
        let may = self.is_for_us(headers)
            && headers.destination.protocol == UDP
            && self.addresses.is_own(own)
            && self.addresses.is_peer(headers.source.to_canonical());
        if !may {
            self.counts.ignored += 1;
        } else if !self.errors.pass(now) {
            // Before the checksum is verified, so that a flood costs little.
            self.counts.errors_limited += 1;
        } else {
            let is_whole = check(frame, headers).is_ok();
            let is_answered =
                is_whole && self.answers.push(|out| build::port_unreachable(out, frame, headers));
            self.counts.ignored += u64::from(!is_answered);
        }
    }

    /// The way of a packet to `destination`, from `source` or else from the own address that fits
    /// it (RFC 6724 §5 in part: scope, prefix, order of the settings). O(addresses + log neighbors)
    /// if the next hop is known.
    ///
    /// # Errors
    /// If there is none now. With [`RouteError::Resolving`] the caller may keep the packet and ask
    /// again after the next [`Host::input`] or deadline.
    pub fn path(
        &mut self,
        source: Option<IpAddr>,
        destination: IpAddr,
        now: Instant,
    ) -> Result<Path, RouteError> {
        let destination = destination.to_canonical();
        let given = source.map(|source| source.to_canonical()).filter(|it| !it.is_unspecified());
        let source = match given {
            Some(source) => {
                let is_right =
                    self.addresses.is_own(source) && source.is_ipv4() == destination.is_ipv4();
                is_right.then_some(source).ok_or(RouteError::NotOwn)?
            }
            None => self.addresses.source_for(destination).ok_or(RouteError::NoRoute)?,
        };
        let link_destination =
            if destination.is_multicast() || self.addresses.is_broadcast(destination) {
                build::group_link(destination)
            } else if self.addresses.is_peer(destination) {
                let next_hop = self.addresses.next_hop(destination);
                self.neighbors.resolve(next_hop.ok_or(RouteError::NoRoute)?, now)?
            } else {
                return Err(RouteError::NoRoute);
            };
        Ok(Path { link_source: self.link, link_destination, source, destination })
    }

    /// The greatest packet to `destination` in bytes, with its header of IP. From 552 (IPv4) or
    /// 1280 (IPv6) to that of the interface. O(log paths).
    pub fn packet_bytes_max(&self, destination: IpAddr, now: Instant) -> u16 {
        self.paths.bytes_max(destination.to_canonical(), now)
    }

    /// Joins a group, of all sources, once more. O(groups).
    ///
    /// # Errors
    /// If it is no group, the host has no address of the family, or is in too many groups.
    pub fn join(&mut self, group: IpAddr, now: Instant) -> Result<(), MembershipError> {
        let group = group.to_canonical();
        if !self.addresses.has_family_of(group) {
            return Err(MembershipError::NoAddress);
        }
        self.groups.join(group, now)
    }

    /// Leaves a group once. The host is in it until it has left as often as it joined. O(groups).
    ///
    /// # Errors
    /// If the host is not in the group.
    pub fn leave(&mut self, group: IpAddr, now: Instant) -> Result<(), MembershipError> {
        self.groups.leave(group.to_canonical(), now)
    }

    /// Writes the next frame of the host itself that is due into `out`, and returns its length.
    /// `None`: none is due. `out` should have room for the greatest packet and 14 bytes. O(1) if
    /// none is due, else O(entries) of the tables.
    ///
    /// The order is: answers of discovery, requests, announcements, reports, other answers.
    pub fn output(&mut self, out: &mut [u8], now: Instant) -> Option<usize> {
        loop {
            match self.next(out, now)? {
                Ok(length) => {
                    self.counts.sent += 1;
                    return Some(length);
                }
                Err(_) => self.counts.too_long += 1,
            }
        }
    }

    /// When [`Host::output`] has something to send, or a little before. `None`: not until another
    /// call. O(1).
    pub fn next_deadline(&self) -> Option<Instant> {
        let is_due = !self.answers.is_empty() || self.announced < self.addresses.iter().count();
        let first = self.neighbors.wake().min(self.groups.wake());
        let first = if is_due { Instant::ZERO } else { first };
        (first < Instant::FAR).then_some(first)
    }

    /// Notes the link address of a neighbor for good, such as one of the kernel's table.
    /// O(entries).
    ///
    /// # Errors
    /// If it is no other device on the link, or the table is full.
    pub fn set_neighbor(
        &mut self,
        address: IpAddr,
        link: LinkAddress,
    ) -> Result<(), NeighborError> {
        let address = address.to_canonical();
        if !self.is_neighbor(address) || !is_device(link) {
            return Err(NeighborError::NotANeighbor);
        }
        self.neighbors.set_static(address, link)
    }

    /// What the host did so far.
    pub fn counts(&self) -> HostCounts {
        HostCounts {
            answers_dropped: self.answers.dropped,
            neighbors_refused: self.neighbors.refused,
            neighbors_failed: self.neighbors.failed,
            paths_lowered: self.paths.lowered,
            ..self.counts
        }
    }

    /// Whether it is another device on a link of the host.
    fn is_neighbor(&self, address: IpAddr) -> bool {
        self.addresses.is_peer(address) && self.addresses.is_on_link(address)
    }

    /// Whether a frame goes to this device or to a group of devices, without a tag.
    fn is_for_us(&self, headers: &Headers) -> bool {
        headers.link.tags == 0 && self.is_link_ours(headers.link.destination)
    }

    fn is_link_ours(&self, link: LinkAddress) -> bool {
        link == self.link || link[0] & 1 == 1
    }

    /// RFC 826, RFC 5227 §2.4.
    fn arp(&mut self, frame: &[u8], arp: &Arp, now: Instant) -> Result<(), IgnoreReason> {
        let (to, _) = frame.split_first_chunk().ok_or(IgnoreReason::Invalid)?;
        if frame.get(12..14) != Some(&[0x08, 0x06]) {
            return Err(IgnoreReason::Tagged);
        }
        if !self.is_link_ours(*to) {
            return Err(IgnoreReason::OtherReceiver);
        }
        let (source, link) = (IpAddr::from(arp.source), arp.source_link);
        if !is_device(link) || link == self.link {
            return Err(IgnoreReason::BadSource);
        }
        if self.addresses.is_own(source) {
            return Err(IgnoreReason::Conflict);
        }
        let is_target = self.addresses.is_own(arp.target.into());
        // Who looks for duplicates has no address yet (RFC 5227 §2.1.1).
        if arp.is_request
            && is_target
            && (source.is_unspecified() || self.addresses.is_peer(source))
        {
            self.answers.push_discovery(Discovery::Arp(*arp));
        }
        if self.is_neighbor(source) {
            if is_target && !arp.is_request && *to == self.link {
                self.neighbors.replied(source, link, now);
            } else {
                self.neighbors.stated(source, link, is_target && arp.is_request, now);
            }
        }
        is_target.then_some(()).ok_or(IgnoreReason::OtherReceiver)
    }

    fn ip(&mut self, frame: &[u8], headers: &Headers, now: Instant) -> Result<Input, IgnoreReason> {
        let protocol = headers.destination.protocol;
        if headers.link.tags > 0 {
            return Err(IgnoreReason::Tagged);
        }
        if !self.is_for_us(headers) || !self.is_own(headers.destination.address.into()) {
            return Err(IgnoreReason::OtherReceiver);
        }
        let is_ours =
            if headers.is_ipv4() { matches!(protocol, ICMP | IGMP) } else { protocol == ICMPV6 };
        if !is_ours {
            return Err(IgnoreReason::Unsupported);
        }
        if headers.fragment.is_some() {
            return Err(IgnoreReason::Fragment);
        }
        check(frame, headers).map_err(IgnoreReason::Damaged)?;
        let source = headers.source.to_canonical();
        if self.addresses.is_own(source) && headers.link.source == self.link {
            // Its own frame, from a device that returns them.
            return Err(IgnoreReason::BadSource);
        }
        let kind = frame.get(headers.transport.start).copied();
        match (protocol, kind) {
            (IGMP, _) | (ICMPV6, Some(130..=132)) => {
                let message = multicast::read(frame, headers).ok_or(IgnoreReason::Invalid)?;
                self.groups.learn(message, now);
                Ok(Input::Handled)
            }
            (ICMPV6, Some(135 | 136)) => self.discovery(frame, headers, now),
            _ if !self.addresses.is_peer(source) => Err(IgnoreReason::BadSource),
            (ICMP, Some(8)) | (ICMPV6, Some(128)) => self.echo(frame, headers),
            (ICMP, Some(3 | 11 | 12)) | (ICMPV6, Some(1..=4)) => self.error(frame, headers, now),
            _ => Err(IgnoreReason::Unsupported),
        }
    }

    fn echo(&mut self, frame: &[u8], headers: &Headers) -> Result<Input, IgnoreReason> {
        if !self.addresses.is_own(headers.destination.address.to_canonical()) {
            // RFC 1122 §3.2.2.6 and RFC 4443 §4.2 let a host do so.
            return Err(IgnoreReason::Unsupported);
        }
        let is_answered = self.answers.push(|out| build::echo_reply(out, frame, headers));
        is_answered.then_some(Input::Handled).ok_or(IgnoreReason::Invalid)
    }

    fn error(
        &mut self,
        frame: &[u8],
        headers: &Headers,
        now: Instant,
    ) -> Result<Input, IgnoreReason> {
        let quoted = quoted(frame, headers).ok_or(IgnoreReason::Invalid)?;
        let (peer, _) = quoted.peer;
        let own = quoted.local.address.to_canonical();
        let may_be_sent = self.addresses.is_own(own)
            && quoted.local.address == headers.destination.address
            && (peer.is_multicast() || self.addresses.is_peer(peer));
        if !may_be_sent {
            return Err(IgnoreReason::Invalid);
        }
        let mut kind = quoted.kind;
        if let PathErrorKind::TooBig { mtu } = &mut kind {
            let limit = self.paths.too_big(peer, quoted.packet_bytes, quoted.named_mtu, now);
            *mtu = limit.ok_or(IgnoreReason::Invalid)?;
        }
        Ok(Input::Error(PathError { local: quoted.local, peer: quoted.peer, kind }))
    }

    /// RFC 4861 §7.1 and §7.2.
    fn discovery(
        &mut self,
        frame: &[u8],
        headers: &Headers,
        now: Instant,
    ) -> Result<Input, IgnoreReason> {
        let message = neighbor(frame, headers).ok_or(IgnoreReason::Invalid)?;
        let (source, to) = (headers.source, headers.destination.address);
        match message {
            Neighbor::Solicitation { target, link } => {
                let is_new = source.is_unspecified();
                if is_new && (link.is_some() || to != build::solicited_node(target)) {
                    return Err(IgnoreReason::Invalid);
                }
                if !self.addresses.is_own(target.into()) {
                    return Err(IgnoreReason::OtherReceiver);
                }
                if self.addresses.is_own(source.into()) {
                    return Err(IgnoreReason::Conflict);
                }
                let to_link = link.unwrap_or(headers.link.source);
                let may = is_new || self.addresses.is_peer(source.into());
                if !may || !is_device(to_link) || to_link == self.link {
                    return Err(IgnoreReason::BadSource);
                }
                if link.is_some() && self.is_neighbor(source.into()) {
                    self.neighbors.stated(source.into(), to_link, true, now);
                }
                let answer = Discovery::Advertisement { own: target, to_link, to: source };
                self.answers.push_discovery(answer);
            }
            Neighbor::Advertisement { target, link, is_solicited, is_override } => {
                if self.addresses.is_own(target.into()) {
                    return Err(IgnoreReason::Conflict);
                }
                if is_solicited && to.is_multicast() {
                    return Err(IgnoreReason::Invalid);
                }
                let is_right = link.is_none_or(|link| is_device(link) && link != self.link);
                if !is_right || !self.addresses.is_peer(source.into()) {
                    return Err(IgnoreReason::BadSource);
                }
                let flags = (is_solicited, is_override);
                self.neighbors.advertised(target.into(), link, flags, now);
            }
        }
        Ok(Input::Handled)
    }

    /// Writes the next frame that is due.
    fn next(&mut self, out: &mut [u8], now: Instant) -> Option<Result<usize, BuildError>> {
        if let Some(written) = self.answers.pop_discovery(out, self.link) {
            return Some(written);
        }
        if let Some(request) = self.neighbors.next_request(now) {
            return Some(self.write_request(out, request));
        }
        if let Some(own) = self.addresses.iter().nth(self.announced) {
            self.announced += 1;
            let to_all = ([0; 6], Ipv6Addr::UNSPECIFIED);
            return Some(match own {
                IpAddr::V4(own) => build::arp_request(out, self.link, own, own),
                IpAddr::V6(own) => build::neighbor_advertisement(out, (self.link, own), to_all),
            });
        }
        if let Some(report) = self.groups.next_report(now) {
            return Some(self.write_report(out, report));
        }
        self.answers.pop(out)
    }

    fn write_request(&self, out: &mut [u8], request: Request) -> Result<usize, BuildError> {
        let Request { asked, link } = request;
        match (self.addresses.source_for(asked), asked) {
            (Some(IpAddr::V4(own)), IpAddr::V4(asked)) => match link {
                Some(link) => build::arp_poll(out, self.link, own, (link, asked)),
                None => build::arp_request(out, self.link, own, asked),
            },
            (Some(IpAddr::V6(own)), IpAddr::V6(asked)) => match link {
                Some(link) => build::neighbor_poll(out, self.link, own, (link, asked)),
                None => build::neighbor_solicitation(out, self.link, own, asked),
            },
            _ => Err(BuildError::MixedFamilies),
        }
    }

    fn write_report(&self, out: &mut [u8], report: Report) -> Result<usize, BuildError> {
        let source = match report.group {
            IpAddr::V4(_) => self.addresses.source_for(report.group),
            // RFC 3810 §5.2.13: without a link-local address it is the unspecified one.
            IpAddr::V6(_) => self.addresses.iter().find(|own| own.is_ipv6() && is_link_local(*own)),
        };
        let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        multicast::write(out, report, self.link, source)
    }
}

/// Whether one device may have the link address.
fn is_device(link: LinkAddress) -> bool {
    link[0] & 1 == 0 && link != [0; 6]
}
