//! The kernel's routes and link addresses, for packets that the kernel does not send itself.
//!
//! The owner of an interface that shares the address of the kernel asks here (decision 0024). Each
//! call is a request of rtnetlink(7), which the kernel answers at once. It allocates.

use std::net::IpAddr;

use super::netlink::{Attribute, Attributes, Reply, Socket};
use crate::OsError;

/// The way of packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface where they leave.
    pub interface: u32,
    /// The router that gets them. `None`: the destination itself, which is on the link.
    pub gateway: Option<IpAddr>,
    /// The address that the kernel would send from.
    pub source: Option<IpAddr>,
    /// The most bytes of a packet, if the kernel has learnt it or the route says so.
    pub packet_bytes_max: Option<u32>,
}

/// What the kernel knows of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNeighbor {
    /// Its link address.
    pub link: [u8; 6],
    /// Whether the kernel has heard from it a short while ago, or was told the address.
    pub is_fresh: bool,
}

/// A socket for requests.
pub struct Routes {
    socket: Socket,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOR: u16 = 28;
const GET_NEIGHBOR: u16 = 30;

impl Routes {
    /// # Errors
    /// `EMFILE`.
    pub fn open() -> Result<Routes, OsError> {
        Ok(Routes { socket: Socket::route()? })
    }

    /// The route to `destination` on `interface`.
    ///
    /// # Errors
    /// `ENETUNREACH`, `EHOSTUNREACH`, `EACCES`: there is no route, or it is a prohibited one.
    pub fn route(&mut self, destination: IpAddr, interface: u32) -> Result<Route, OsError> {
        let bits = if destination.is_ipv4() { 32 } else { 128 };
        // `struct rtmsg`.
        let mut content = vec![family(destination), bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        attribute(&mut content, 1, &octets(destination));
        attribute(&mut content, 4, &interface.to_ne_bytes());
        let replies = self.socket.ask(GET_ROUTE, &content)?;
        let route = replies.iter().find(|reply| reply.kind == NEW_ROUTE).and_then(route_of);
        route.ok_or(OsError::new("RTM_GETROUTE", libc::ENETUNREACH))
    }

    /// The link address of `address`, if the kernel knows it. A group of Ethernet or the broadcast
    /// address is no neighbor.
    ///
    /// # Errors
    /// The kernel's error. Before Linux 5.0 `EOPNOTSUPP`.
    pub fn neighbor(
        &mut self,
        address: IpAddr,
        interface: u32,
    ) -> Result<Option<KernelNeighbor>, OsError> {
        let content = neighbor_message(address, interface, 0);
        match self.socket.ask(GET_NEIGHBOR, &content) {
            Ok(replies) => Ok(replies.iter().find_map(neighbor_of)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the kernel find out the link address of `address`, or check the one it has. It does
    /// not wait for that.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn resolve(&mut self, address: IpAddr, interface: u32) -> Result<(), OsError> {
        /// `NTF_USE`: as if a packet were sent there.
        const USE: u8 = 1;
        let content = neighbor_message(address, interface, USE);
        self.socket.create(NEW_NEIGHBOR, &content)
    }
}

/// `struct ndmsg` with the address.
fn neighbor_message(address: IpAddr, interface: u32, flags: u8) -> Vec<u8> {
    let mut content = vec![family(address), 0, 0, 0];
    content.extend(interface.to_ne_bytes());
    content.extend([0, 0, flags, 0]);
    attribute(&mut content, 1, &octets(address));
    content
}

fn route_of(reply: &Reply) -> Option<Route> {
    const HEAD_BYTES: usize = 12;
    let attributes = reply.content.get(HEAD_BYTES..)?;
    // Only a unicast, local, broadcast or multicast route carries packets.
    if !matches!(reply.content.get(7)?, 1..=5) {
        return None;
    }
    let of = |kind| Attributes::of(attributes).find(|attribute| attribute.kind == kind);
    let metrics = of(8).map(|metrics| metrics.content).unwrap_or_default();
    let packet_bytes_max = Attributes::of(metrics).find(|metric| metric.kind == 2);
    Some(Route {
        interface: of(4)?.u32()?,
        gateway: of(5).and_then(|gateway| address_of(&gateway)),
        source: of(7).and_then(|source| address_of(&source)),
        packet_bytes_max: packet_bytes_max.and_then(|metric| metric.u32()),
    })
}

fn neighbor_of(reply: &Reply) -> Option<KernelNeighbor> {
    const HEAD_BYTES: usize = 12;
    /// `NUD_REACHABLE`, `STALE`, `DELAY`, `PROBE`, `NOARP`, `PERMANENT`: the address is usable.
    const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
    /// `NUD_REACHABLE`, `NOARP`, `PERMANENT`.
    const FRESH: u16 = 0x02 | 0x40 | 0x80;
    if reply.kind != NEW_NEIGHBOR {
        return None;
    }
    let state = u16::from_ne_bytes(reply.content.get(8..10)?.try_into().ok()?);
    let mut attributes = Attributes::of(reply.content.get(HEAD_BYTES..)?);
    let link = attributes.find(|attribute| attribute.kind == 2)?;
    let link = (state & USABLE != 0).then(|| link.content.try_into().ok()).flatten()?;
    Some(KernelNeighbor { link, is_fresh: state & FRESH != 0 })
}

fn address_of(attribute: &Attribute<'_>) -> Option<IpAddr> {
    match attribute.content.len() {
        4 => <[u8; 4]>::try_from(attribute.content).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(attribute.content).ok().map(IpAddr::from),
        _ => None,
    }
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    u8::try_from(family).unwrap_or_default()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Appends an attribute. `content` is short, and what it is appended to a multiple of 4 long.
fn attribute(message: &mut Vec<u8>, kind: u16, content: &[u8]) {
    let bytes = u16::try_from(4 + content.len()).unwrap_or(u16::MAX);
    message.extend([bytes.to_ne_bytes(), kind.to_ne_bytes()].concat());
    message.extend(content);
    message.resize(message.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_route_to_this_machine_is_by_the_loopback_interface() {
        let index = super::super::index("lo").unwrap();
        let mut routes = Routes::open().unwrap();
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let route = routes.route(local, index).unwrap();
        assert_eq!((route.interface, route.gateway, route.source), (index, None, Some(local)));
        // A second request on the same socket.
        assert_eq!(routes.route(local, index).unwrap(), route);
        assert_eq!(routes.neighbor("192.0.2.77".parse().unwrap(), index), Ok(None));
    }

    #[test]
    fn cut_replies_are_no_routes() {
        let mut content = vec![2, 32, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        attribute(&mut content, 4, &7u32.to_ne_bytes());
        attribute(&mut content, 5, &[10, 0, 0, 1]);
        let mut metric = Vec::new();
        attribute(&mut metric, 2, &1400u32.to_ne_bytes());
        attribute(&mut content, 8, &metric);
        let whole = Reply { kind: NEW_ROUTE, content };
        let gateway = Some("10.0.0.1".parse().unwrap());
        let expected = Route { interface: 7, gateway, source: None, packet_bytes_max: Some(1400) };
        assert_eq!(route_of(&whole), Some(expected));
        for at in 0..whole.content.len() {
            let _ = route_of(&Reply { kind: NEW_ROUTE, content: whole.content[..at].to_vec() });
            let _ =
                neighbor_of(&Reply { kind: NEW_NEIGHBOR, content: whole.content[..at].to_vec() });
        }
    }
}
