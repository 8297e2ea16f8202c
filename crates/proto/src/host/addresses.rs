//! The addresses and gateways of a host: which addresses are its own, which are on its link, and
//! from which address it sends. [`super::Host`] alone calls it. Nothing changes after it was made.

use super::error::HostError;
use crate::packet::LinkAddress;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// The most addresses of a host. Each packet is compared with all of them.
pub const ADDRESSES_MAX: usize = 16;
/// What every host of IPv4 receives whole (RFC 1122 §3.3.2). An error has as many bytes at most.
const MTU_V4_MIN: u16 = 576;
/// What every link of IPv6 transmits (RFC 8200 §5).
pub(super) const MTU_V6_MIN: u16 = 1280;

/// An interface, as its owner describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// The link address from which packets are sent. Behind packet rings it is that of the
    /// interface, else nothing arrives. Behind a TAP it is one that no other host has, also not the
    /// kernel's end.
    pub link: LinkAddress,
    /// The greatest IP packet of the interface in bytes: at least 576, and 1280 with an address of
    /// IPv6.
    pub mtu: u16,
    /// From 1 to [`ADDRESSES_MAX`]. Of those that fit a destination the first is the source.
    pub addresses: Vec<AddressPrefix>,
    /// Where packets go whose destination is not on the link: at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Delays are drawn from it. Hosts with equal seeds answer to queries at the same time.
    pub seed: u64,
}

impl HostSettings {
    /// The device `link` with these addresses: packets of up to 1500 bytes, and no gateways. The
    /// seed comes from `link`, so hosts of one link have different ones.
    pub fn new(link: LinkAddress, addresses: Vec<AddressPrefix>) -> HostSettings {
        let [a, b, c, d, e, f] = link;
        let seed = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        HostSettings { link, mtu: 1500, addresses, gateways: Vec::new(), seed }
    }
}

/// An address of a host, and the prefix of its link. As text: `10.0.0.2/24` or `fd00::2/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix {
    /// The address.
    pub address: IpAddr,
    /// How many bits the addresses on the link have in common: up to 32 or 128.
    pub prefix_bits: u8,
}

impl FromStr for AddressPrefix {
    type Err = HostError;

    /// # Errors
    /// [`HostError::NotAPrefix`]. [`super::Host::new`] looks at the number of bits.
    fn from_str(text: &str) -> Result<AddressPrefix, HostError> {
        let parts = text.split_once('/').ok_or(HostError::NotAPrefix)?;
        let (Ok(address), Ok(prefix_bits)) = (parts.0.parse(), parts.1.parse()) else {
            return Err(HostError::NotAPrefix);
        };
        Ok(AddressPrefix { address, prefix_bits })
    }
}

impl AddressPrefix {
    fn contains(&self, other: IpAddr) -> bool {
        let bits = u32::from(self.prefix_bits);
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differ = u32::from(a) ^ u32::from(b);
                differ.checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differ = u128::from(a) ^ u128::from(b);
                differ.checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// The broadcast address of the link. One of 31 or 32 bits has none (RFC 3021 §2.1).
    fn broadcast(&self) -> Option<Ipv4Addr> {
        let IpAddr::V4(address) = self.address else { return None };
        let of_link = || Ipv4Addr::from(u32::from(address) | u32::MAX >> self.prefix_bits);
        (self.prefix_bits <= 30).then(of_link)
    }
}

/// Whether the address belongs to one link (RFC 3927, RFC 4291 §2.5.6).
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Whether one device may have the address on a network (RFC 1122 §3.2.1.3, RFC 4291 §2.5). The
/// broadcast addresses of networks are not known here.
fn is_device(address: IpAddr) -> bool {
    let is_reserved = match address {
        IpAddr::V4(address) => address.octets()[0] == 0 || address.octets()[0] >= 240,
        IpAddr::V6(address) => address == Ipv6Addr::UNSPECIFIED,
    };
    !is_reserved && !address.is_multicast() && !address.is_loopback()
}

#[derive(Debug)]
pub(super) struct Addresses {
    own: Vec<AddressPrefix>,
    gateways: Vec<IpAddr>,
}

impl Addresses {
    pub(super) fn new(settings: &HostSettings) -> Result<Addresses, HostError> {
        if settings.link[0] & 1 == 1 || settings.link == [0; 6] {
            return Err(HostError::NotALinkAddress);
        }
        if settings.addresses.is_empty() {
            return Err(HostError::NoAddress);
        }
        if settings.addresses.len() > ADDRESSES_MAX {
            return Err(HostError::TooManyAddresses);
        }
        let (own, gateways) = (Vec::with_capacity(ADDRESSES_MAX), Vec::with_capacity(2));
        let mut all = Addresses { own, gateways };
        for one in &settings.addresses {
            all.add(*one)?;
        }
        let has_v6 = all.own.iter().any(|own| own.address.is_ipv6());
        let needed = if has_v6 { MTU_V6_MIN } else { MTU_V4_MIN };
        if settings.mtu < needed {
            return Err(HostError::MtuTooSmall { needed });
        }
        for gateway in &settings.gateways {
            all.add_gateway(gateway.to_canonical())?;
        }
        Ok(all)
    }

    fn add(&mut self, one: AddressPrefix) -> Result<(), HostError> {
        let one = AddressPrefix { address: one.address.to_canonical(), ..one };
        let AddressPrefix { address, prefix_bits } = one;
        if prefix_bits > if address.is_ipv4() { 32 } else { 128 } {
            return Err(HostError::PrefixTooLong(address));
        }
        if !is_device(address) || one.broadcast().is_some_and(|it| it == address) {
            return Err(HostError::NotUnicast(address));
        }
        if self.is_own(address) {
            return Err(HostError::Repeated(address));
        }
        self.own.push(one);
        Ok(())
    }

    fn add_gateway(&mut self, gateway: IpAddr) -> Result<(), HostError> {
        if !self.is_peer(gateway) {
            return Err(HostError::NotUnicast(gateway));
        }
        if self.gateway(gateway).is_some() {
            return Err(HostError::SecondGateway(gateway));
        }
        if !self.is_on_link(gateway) {
            return Err(HostError::GatewayOffLink(gateway));
        }
        self.gateways.push(gateway);
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.own.iter().map(|own| own.address)
    }

    /// Whether it is an address of the host, and of no other device.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.iter().any(|own| own == address)
    }

    pub(super) fn has_family_of(&self, address: IpAddr) -> bool {
        self.iter().any(|own| own.is_ipv4() == address.is_ipv4())
    }

    /// Whether all hosts of a link of the host have the address (RFC 919 §7).
    pub(super) fn is_broadcast(&self, address: IpAddr) -> bool {
        address == Ipv4Addr::BROADCAST
            || self.own.iter().any(|own| own.broadcast().is_some_and(|it| it == address))
    }

    /// Whether it may be the address of one other device.
    pub(super) fn is_peer(&self, address: IpAddr) -> bool {
        is_device(address) && !self.is_broadcast(address) && !self.is_own(address)
    }

    /// Whether packets go to the address without a gateway (RFC 1122 §3.3.1.1, RFC 4861 §5.2).
    pub(super) fn is_on_link(&self, address: IpAddr) -> bool {
        let is_local = is_link_local(address) && self.has_family_of(address);
        is_local || self.own.iter().any(|own| own.contains(address))
    }

    /// The next device on the way to a single device.
    pub(super) fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        if self.is_on_link(destination) {
            return Some(destination);
        }
        self.gateway(destination)
    }

    fn gateway(&self, destination: IpAddr) -> Option<IpAddr> {
        self.gateways.iter().find(|it| it.is_ipv4() == destination.is_ipv4()).copied()
    }

    /// The own address to send from. RFC 6724 §5 in part: the scope (rule 2) first, then an address
    /// whose prefix has the destination, then the order of the settings.
    pub(super) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let is_narrow = match destination {
            IpAddr::V6(group) if group.is_multicast() => group.octets()[1] & 0x0f <= 2,
            other => is_link_local(other),
        };
        let family = self.own.iter().filter(|own| own.address.is_ipv4() == destination.is_ipv4());
        // The first of equals is the least.
        let least = family.min_by_key(|own| {
            (is_link_local(own.address) != is_narrow, !own.contains(destination))
        });
        least.map(|own| own.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    fn made(addresses: &[&str], gateways: &[&str]) -> Result<Addresses, HostError> {
        Addresses::new(&HostSettings {
            link: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            addresses: addresses.iter().map(|text| prefix(text)).collect(),
            gateways: gateways.iter().map(|text| address(text)).collect(),
            seed: 0,
        })
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        let refused = |addresses: &[&str], gateways: &[&str]| made(addresses, gateways).err();
        let four = "10.0.0.1/24";
        assert_eq!(refused(&[], &[]), Some(HostError::NoAddress));
        assert_eq!(refused(&[four; 17], &[]), Some(HostError::TooManyAddresses));
        assert_eq!(refused(&[four, four], &[]), Some(HostError::Repeated(address("10.0.0.1"))));
        for long in ["10.0.0.1/33", "fe80::1/129"] {
            assert_eq!(refused(&[long], &[]), Some(HostError::PrefixTooLong(prefix(long).address)));
        }
        let groups = ["224.0.0.5/24", "ff02::5/64", "10.0.0.255/24", "255.255.255.255/32"];
        let none = ["0.0.0.0/0", "::/64", "127.0.0.1/8", "::1/128"];
        for wrong in groups.into_iter().chain(none) {
            assert_eq!(refused(&[wrong], &[]), Some(HostError::NotUnicast(prefix(wrong).address)));
        }
        let gateway = |gateways: &[&str]| refused(&[four, "fe80::1/64"], gateways);
        let error = HostError::SecondGateway(address("10.0.0.8"));
        assert_eq!(gateway(&["10.0.0.9", "10.0.0.8"]), Some(error));
        assert_eq!(gateway(&["10.0.0.9", "fe80::9"]), None);
        assert_eq!(gateway(&["10.0.1.9"]), Some(HostError::GatewayOffLink(address("10.0.1.9"))));
        assert_eq!(gateway(&["10.0.0.1"]), Some(HostError::NotUnicast(address("10.0.0.1"))));
        let settings = |link, mtu, one| HostSettings {
            link,
            mtu,
            addresses: vec![prefix(one)],
            gateways: vec![],
            seed: 0,
        };
        let refused = |link, mtu, one| Addresses::new(&settings(link, mtu, one)).err();
        assert_eq!(refused([0; 6], 1500, four), Some(HostError::NotALinkAddress));
        assert_eq!(refused([1; 6], 1500, four), Some(HostError::NotALinkAddress));
        assert_eq!(refused([2; 6], 575, four), Some(HostError::MtuTooSmall { needed: 576 }));
        assert_eq!(refused([2; 6], 576, four), None);
        let v6 = Some(HostError::MtuTooSmall { needed: 1280 });
        assert_eq!(refused([2; 6], 1279, "fe80::1/64"), v6);
    }

    #[test]
    fn a_prefix_is_an_address_and_a_number_of_bits() {
        let found = AddressPrefix { address: address("fd00::2"), prefix_bits: 64 };
        assert_eq!("fd00::2/64".parse(), Ok(found));
        for wrong in ["", "10.0.0.2", "10.0.0.2/", "10.0.0/24", "10.0.0.2/-1", "10.0.0.2/256"] {
            assert_eq!(wrong.parse::<AddressPrefix>(), Err(HostError::NotAPrefix), "{wrong}");
        }
    }

    #[test]
    fn hosts_of_one_link_have_different_seeds() {
        let seed = |last| HostSettings::new([2, 0, 0, 0, 0, last], Vec::new()).seed;
        assert_ne!(seed(1), seed(2));
    }

    #[test]
    fn a_prefix_has_its_addresses_and_its_broadcast() {
        let all = made(&["10.1.2.3/23", "192.0.2.0/31", "2001:db8::1/64"], &[]).unwrap();
        for (text, is_on_link) in [
            ("10.1.3.255", true),
            ("10.1.4.0", false),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("169.254.1.1", true),
            ("2001:db8::ffff", true),
            ("2001:db8:0:1::1", false),
            ("fe80::7", true),
        ] {
            assert_eq!(all.is_on_link(address(text)), is_on_link, "{text}");
        }
        for (text, is_broadcast) in
            [("255.255.255.255", true), ("10.1.3.255", true), ("192.0.2.1", false)]
        {
            assert_eq!(all.is_broadcast(address(text)), is_broadcast, "{text}");
            assert_eq!(all.is_peer(address(text)), !is_broadcast, "{text}");
        }
        assert!(made(&["10.0.0.1/0"], &[]).unwrap().is_on_link(address("192.0.2.9")));
        assert!(made(&["2001:db8::1/0"], &[]).unwrap().is_on_link(address("2002::9")));
        assert!(!made(&["2001:db8::1/128"], &[]).unwrap().is_on_link(address("2001:db8::2")));
    }

    #[test]
    fn the_source_has_the_scope_and_the_prefix_of_the_destination() {
        let own =
            ["fe80::1/64", "2001:db8::1/64", "2001:db8:1::1/64", "10.0.0.1/24", "10.1.0.1/16"];
        let all = made(&own, &["10.0.0.9"]).unwrap();
        for (destination, source) in [
            ("fe80::9", "fe80::1"),
            ("2001:db8:1::9", "2001:db8:1::1"),
            ("2002::9", "2001:db8::1"),
            ("ff02::16", "fe80::1"),
            ("ff0e::5", "2001:db8::1"),
            ("10.1.7.7", "10.1.0.1"),
            ("192.0.2.7", "10.0.0.1"),
            ("255.255.255.255", "10.0.0.1"),
        ] {
            assert_eq!(
                all.source_for(address(destination)),
                Some(address(source)),
                "{destination}"
            );
        }
        assert_eq!(all.next_hop(address("10.1.7.7")), Some(address("10.1.7.7")));
        assert_eq!(all.next_hop(address("192.0.2.7")), Some(address("10.0.0.9")));
        assert_eq!(all.next_hop(address("2002::9")), None);
        assert_eq!(made(&["10.0.0.1/24"], &[]).unwrap().source_for(address("fe80::9")), None);
    }
}
