//! The list of all interfaces, with what each can do for Upcall.
//!
//! `upcall net` and the choice of a device use it. The list comes from rtnetlink(7), and what the
//! driver can do from the generic netlink family `netdev` (Linux 6.3,
//! Documentation/netlink/specs/netdev.yaml). So it is the list of the calling thread's namespace,
//! whatever `/sys` is mounted. Each call allocates, and blocks until the kernel has answered.

use core::fmt;
use core::net::IpAddr;

use super::netlink::{self, Attributes, Socket};
use crate::OsError;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number in this namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind, such as `veth` or `tun`. Empty for hardware.
    pub kind: String,
    /// Its address on the link. `None`: it has none, or is not of Ethernet.
    pub link: Option<[u8; 6]>,
    /// The longest packet that it carries.
    pub mtu_bytes: u32,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether it leads to this machine itself.
    pub is_loopback: bool,
    /// The most receive queues that it can have. [`receive_queues`](super::receive_queues) tells
    /// how many are in use.
    pub receive_queues: u32,
    /// Its transmit queues.
    pub transmit_queues: u32,
    /// The XDP program that it has.
    pub xdp: Option<AttachedXdp>,
    /// What its driver can do. `None`: this kernel does not say.
    pub features: Option<XdpFeatures>,
}

/// An XDP program that is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedXdp {
    /// The number of the program.
    pub program: u32,
    /// Where it runs.
    pub mode: XdpMode,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel makes a packet of the frame.
    Native,
    /// In the kernel's network code, after that.
    Generic,
    /// In the hardware.
    Offloaded,
    /// Programs run at several places.
    Several,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
            XdpMode::Offloaded => "offloaded",
            XdpMode::Several => "several",
        })
    }
}

/// What a driver can do with XDP (`enum xdp-act` of the specification).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    /// Programs that pass and drop run in the driver.
    pub fn has_native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Programs may redirect, such as to an AF_XDP socket.
    pub fn has_redirect(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// AF_XDP sockets work without a copy.
    pub fn has_zero_copy(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// Programs get frames of several buffers, so large MTUs work.
    pub fn has_fragments(self) -> bool {
        self.0 & 1 << 5 != 0
    }
}

/// All interfaces, by number.
///
/// # Errors
/// The kernel's error. No right is needed.
pub fn all() -> Result<Vec<Interface>, OsError> {
    let mut interfaces = links()?;
    interfaces.sort_by_key(|interface| interface.index);
    for (index, features) in features()? {
        for interface in interfaces.iter_mut().filter(|of| of.index == index) {
            interface.features = Some(features);
        }
    }
    Ok(interfaces)
}

/// Asks rtnetlink(7) for all links.
fn links() -> Result<Vec<Interface>, OsError> {
    const NEWLINK: u16 = 16;
    const GETLINK: u16 = 18;
    /// `struct ifinfomsg`.
    const HEAD_BYTES: usize = 16;
    let mut socket = Socket::route()?;
    let replies = socket.dump(GETLINK, &[0; HEAD_BYTES])?;
    let links = replies.iter().filter(|reply| reply.kind == NEWLINK);
    Ok(links.filter_map(|reply| link(reply.content.split_at_checked(HEAD_BYTES)?)).collect())
}

/// The addresses of the interface with this index.
///
/// # Errors
/// The kernel's error. No right is needed.
pub fn addresses(interface: u32) -> Result<Vec<IpAddr>, OsError> {
    const NEWADDR: u16 = 20;
    const GETADDR: u16 = 22;
    let mut socket = Socket::route()?;
    let replies = socket.dump(GETADDR, &[0; ADDRESS_HEAD_BYTES])?;
    let found = replies.iter().filter(|reply| reply.kind == NEWADDR);
    Ok(found.filter_map(|reply| address(&reply.content, interface)).collect())
}

/// Bytes of `struct ifaddrmsg`.
const ADDRESS_HEAD_BYTES: usize = 8;

/// The address of `struct ifaddrmsg` and its attributes. `None`: it is of another interface.
fn address(content: &[u8], interface: u32) -> Option<IpAddr> {
    const PEER_OR_OWN: u16 = 1;
    const OWN: u16 = 2;
    let (head, attributes) = content.split_at_checked(ADDRESS_HEAD_BYTES)?;
    if u32::from_ne_bytes(head.get(4..8)?.try_into().ok()?) != interface {
        return None;
    }
    let of = |kind| Attributes::of(attributes).find(|attribute| attribute.kind == kind);
    // On a link between two hosts the first one is the peer's.
    let own = of(OWN).or(of(PEER_OR_OWN))?.content;
    let ipv4 = <[u8; 4]>::try_from(own).map(IpAddr::from);
    ipv4.or(<[u8; 16]>::try_from(own).map(IpAddr::from)).ok()
}

/// A link of `struct ifinfomsg` and its attributes; `None`: the head is not one.
fn link((head, attributes): (&[u8], &[u8])) -> Option<Interface> {
    const UP: u32 = 1;
    const LOOPBACK: u32 = 8;
    let word = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let flags = word(8)?;
    let mut interface = Interface {
        index: word(4)?,
        is_up: flags & UP != 0,
        is_loopback: flags & LOOPBACK != 0,
        ..Interface::default()
    };
    for attribute in Attributes::of(attributes) {
        match attribute.kind {
            1 => interface.link = attribute.content.try_into().ok(),
            3 => interface.name = attribute.text(),
            4 => interface.mtu_bytes = attribute.u32().unwrap_or(0),
            18 => {
                let kind = Attributes::of(attribute.content).find(|inner| inner.kind == 1);
                interface.kind = kind.map(|kind| kind.text()).unwrap_or_default();
            }
            31 => interface.transmit_queues = attribute.u32().unwrap_or(0),
            32 => interface.receive_queues = attribute.u32().unwrap_or(0),
            43 => interface.xdp = attached(attribute.content),
            _ => {}
        }
    }
    Some(interface)
}

/// The content of `IFLA_XDP`.
fn attached(content: &[u8]) -> Option<AttachedXdp> {
    let of = |kind| Attributes::of(content).find(|attribute| attribute.kind == kind);
    let mode = match of(2)?.content.first()? {
        1 => XdpMode::Native,
        2 => XdpMode::Generic,
        3 => XdpMode::Offloaded,
        4 => XdpMode::Several,
        _ => return None,
    };
    let program = of(4).and_then(|attribute| attribute.u32()).unwrap_or(0);
    Some(AttachedXdp { program, mode })
}

/// Asks the family `netdev` for what the drivers can do. Empty before Linux 6.3.
fn features() -> Result<Vec<(u32, XdpFeatures)>, OsError> {
    const DEVICE_GET: u8 = 1;
    let mut socket = Socket::generic()?;
    let Some(family) = socket.family("netdev")? else { return Ok(Vec::new()) };
    let replies = socket.dump(family, &netlink::generic_head(DEVICE_GET))?;
    let device = |reply: &netlink::Reply| {
        let content = reply.content.get(netlink::GENERIC_HEAD_BYTES..)?;
        let of = |kind| Attributes::of(content).find(|attribute| attribute.kind == kind);
        Some((of(1)?.u32()?, XdpFeatures(of(3)?.u64()?)))
    };
    Ok(replies.iter().filter(|reply| reply.kind == family).filter_map(device).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let all = all().unwrap();
        let loopback = all.iter().find(|of| of.is_loopback).expect("a loopback interface");
        assert_eq!(loopback.name, "lo");
        assert!(loopback.index > 0 && loopback.mtu_bytes > 0, "{loopback:?}");
        assert!(all.iter().is_sorted_by_key(|of| of.index));
    }

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let bytes = u16::try_from(4 + content.len()).unwrap();
        let mut whole = [bytes.to_ne_bytes(), kind.to_ne_bytes()].concat();
        whole.extend(content);
        whole.resize(whole.len().next_multiple_of(4), 0);
        whole
    }

    #[test]
    fn the_address_of_an_interface_is_its_own_and_not_that_of_its_peer() {
        let of_third = [[0; 4], 3u32.to_ne_bytes()].concat();
        let peer_and_own = [attribute(1, &[10, 0, 0, 2]), attribute(2, &[10, 0, 0, 1])].concat();
        let content = [of_third.clone(), peer_and_own].concat();
        assert_eq!(address(&content, 3), Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(address(&content, 4), None);
        let mut ipv6 = [0; 16];
        ipv6[15] = 1;
        let content = [of_third, attribute(1, &ipv6)].concat();
        assert_eq!(address(&content, 3), Some(IpAddr::from(ipv6)));
        assert_eq!(address(&content[..7], 3), None);
    }

    #[test]
    fn a_link_is_read_from_its_attributes() {
        let head = [[0; 4], 7u32.to_ne_bytes(), 9u32.to_ne_bytes(), [0; 4]].concat();
        let xdp = [attribute(2, &[1]), attribute(4, &5u32.to_ne_bytes())].concat();
        let attributes = [
            attribute(1, &[2, 0, 0, 0, 0, 9]),
            attribute(3, b"eth1\0"),
            attribute(4, &1500u32.to_ne_bytes()),
            // The flag of a nested attribute.
            attribute(18 | 1 << 15, &attribute(1, b"veth\0")),
            attribute(32, &2u32.to_ne_bytes()),
            attribute(43, &xdp),
        ]
        .concat();
        let found = link((&head, &attributes)).unwrap();
        let expected = Interface {
            index: 7,
            name: "eth1".to_owned(),
            kind: "veth".to_owned(),
            link: Some([2, 0, 0, 0, 0, 9]),
            mtu_bytes: 1500,
            is_up: true,
            is_loopback: true,
            receive_queues: 2,
            xdp: Some(AttachedXdp { program: 5, mode: XdpMode::Native }),
            ..Interface::default()
        };
        assert_eq!(found, expected);
        // Cut anywhere, there is no panic.
        for at in 0..attributes.len() {
            let _ = link((&head, &attributes[..at]));
        }
        assert_eq!(link((&head[..7], &attributes)), None);
    }
}
