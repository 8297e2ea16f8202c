//! Destinations of packets, and the table that finds the slot of one.
//!
//! The owner of an interface binds destinations and asks for the slot of each packet. The XDP
//! program has the same table as a map (decision 0024, section 2).

use crate::seeded::Seeded;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use std::collections::HashMap;

/// ICMP's number (IANA, "Assigned Internet Protocol Numbers").
pub const ICMP: u8 = 1;
/// TCP's number.
pub const TCP: u8 = 6;
/// UDP's number.
pub const UDP: u8 = 17;
/// ICMPv6's number.
pub const ICMPV6: u8 = 58;

/// Where a packet goes: an address, a protocol, and a port if the protocol has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The address. One of IPv4 is mapped (`::ffff:a.b.c.d`), and `::` is any address.
    pub address: Ipv6Addr,
    /// The protocol above IP, such as [`UDP`].
    pub protocol: u8,
    /// The port; 0 for a protocol without ports.
    pub port: u16,
}

impl Destination {
    /// A destination at `address`. The unspecified address of either family is any address.
    pub fn new(address: IpAddr, protocol: u8, port: u16) -> Self {
        let address =
            if address.is_unspecified() { Ipv6Addr::UNSPECIFIED } else { mapped(address) };
        Destination { address, protocol, port }
    }

    /// The same protocol and port at any address.
    #[must_use]
    pub const fn at_any_address(self) -> Self {
        Destination { address: Ipv6Addr::UNSPECIFIED, ..self }
    }
}

impl fmt::Display for Destination {
    /// Prints `17 [::1]:5004`: protocol, address and port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.to_ipv4_mapped() {
            Some(address) => write!(f, "{} {address}:{}", self.protocol, self.port),
            None => write!(f, "{} [{}]:{}", self.protocol, self.address, self.port),
        }
    }
}

/// The 16 bytes of an address; those of IPv4 are mapped.
pub fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Why a destination was not bound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BindError {
    /// The destination has a slot already.
    Taken,
    /// The table has as many destinations as it may.
    Full,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BindError::Taken => "the destination is bound already",
            BindError::Full => "the table of destinations is full",
        })
    }
}

upcall_core::debug_as_display!(BindError);

impl core::error::Error for BindError {}

/// The slot of each bound destination. Bounded. Calls are O(1) on average.
///
/// Peers choose the packets that are looked up, but only the owner adds destinations.
#[derive(Clone, Debug)]
pub struct FlowTable {
    slots: HashMap<Destination, u32, Seeded>,
    destinations_max: usize,
}

impl FlowTable {
    /// An empty table for `destinations_max` destinations. Allocates all its memory.
    pub fn new(destinations_max: usize) -> Self {
        let slots = HashMap::with_capacity_and_hasher(destinations_max, Seeded(0));
        FlowTable { slots, destinations_max }
    }

    /// Binds `destination` to `slot`.
    ///
    /// # Errors
    /// If the destination is bound already, or if the table is full.
    pub fn bind(&mut self, destination: Destination, slot: u32) -> Result<(), BindError> {
        if self.slots.contains_key(&destination) {
            return Err(BindError::Taken);
        }
        if self.slots.len() >= self.destinations_max {
            return Err(BindError::Full);
        }
        self.slots.insert(destination, slot);
        Ok(())
    }

    /// Removes `destination`, and returns its slot if it was bound.
    pub fn unbind(&mut self, destination: Destination) -> Option<u32> {
        self.slots.remove(&destination)
    }

    /// The slot of a packet: that of its exact destination, or else that of any address.
    pub fn slot(&self, destination: Destination) -> Option<u32> {
        let exact = self.slots.get(&destination);
        exact.or_else(|| self.slots.get(&destination.at_any_address())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, port: u16) -> Destination {
        Destination::new(address.parse().unwrap(), UDP, port)
    }

    #[test]
    fn an_exact_address_goes_before_any_address() {
        let mut table = FlowTable::new(4);
        table.bind(at("0.0.0.0", 5004), 1).unwrap();
        table.bind(at("10.0.0.1", 5004), 2).unwrap();
        assert_eq!(table.slot(at("10.0.0.1", 5004)), Some(2));
        assert_eq!(table.slot(at("10.0.0.2", 5004)), Some(1));
        // `::` is any address of both families.
        assert_eq!(table.slot(at("fe80::1", 5004)), Some(1));
        assert_eq!(table.slot(at("10.0.0.1", 5005)), None);
        assert_eq!(table.slot(Destination { protocol: TCP, ..at("10.0.0.1", 5004) }), None);
        assert_eq!(table.unbind(at("10.0.0.1", 5004)), Some(2));
        assert_eq!(table.slot(at("10.0.0.1", 5004)), Some(1));
    }

    #[test]
    fn the_table_is_bounded_and_refuses_a_second_owner() {
        let mut table = FlowTable::new(2);
        table.bind(at("::1", 1), 1).unwrap();
        assert_eq!(table.bind(at("::1", 1), 2), Err(BindError::Taken));
        table.bind(at("::1", 2), 2).unwrap();
        assert_eq!(table.bind(at("::1", 3), 3), Err(BindError::Full));
        assert_eq!(table.unbind(at("::1", 3)), None);
        assert_eq!(table.slot(at("::1", 1)), Some(1));
    }

    #[test]
    fn destinations_print_with_their_protocol() {
        assert_eq!(at("10.0.0.1", 5004).to_string(), "17 10.0.0.1:5004");
        assert_eq!(at("fe80::1", 5004).to_string(), "17 [fe80::1]:5004");
    }
}
