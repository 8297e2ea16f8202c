//! Why a host refuses a call.

use core::fmt;
use core::net::IpAddr;

/// Why there is no host with these settings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HostError {
    /// The text is not an address with a prefix.
    NotAPrefix,
    /// There is no address.
    NoAddress,
    /// There are more addresses than [`super::ADDRESSES_MAX`].
    TooManyAddresses,
    /// The address, or that of a gateway, is not one of a single device on a network.
    NotUnicast(IpAddr),
    /// The address is there twice.
    Repeated(IpAddr),
    /// The prefix of this address has more bits than the address.
    PrefixTooLong(IpAddr),
    /// There are two gateways of one family; this is the second one.
    SecondGateway(IpAddr),
    /// No address of the interface has a prefix with this gateway.
    GatewayOffLink(IpAddr),
    /// The link address is a group, or zero.
    NotALinkAddress,
    /// The interface takes fewer bytes than its addresses need.
    MtuTooSmall {
        /// The fewest bytes of a packet.
        needed: u16,
    },
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::NotAPrefix => {
                f.write_str("expected an address and a prefix such as 10.0.0.2/24")
            }
            HostError::NoAddress => f.write_str("no address"),
            HostError::TooManyAddresses => f.write_str("too many addresses"),
            HostError::NotUnicast(address) => write!(f, "{address} is not the address of a device"),
            HostError::Repeated(address) => write!(f, "{address} is there twice"),
            HostError::PrefixTooLong(address) => write!(f, "the prefix of {address} is too long"),
            HostError::SecondGateway(address) => {
                write!(f, "{address} is the second gateway of its family")
            }
            HostError::GatewayOffLink(address) => {
                write!(f, "the gateway {address} is on none of the links")
            }
            HostError::NotALinkAddress => f.write_str("the link address is a group or zero"),
            HostError::MtuTooSmall { needed } => {
                write!(f, "packets of {needed} bytes must fit into the interface")
            }
        }
    }
}

upcall_core::debug_as_display!(HostError);

impl core::error::Error for HostError {}

/// Why a group was not joined or left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MembershipError {
    /// The address is no group.
    NotAGroup,
    /// The host has no address of the family of the group.
    NoAddress,
    /// The host is in [`super::GROUPS_MAX`] groups.
    TooManyGroups,
    /// The host is not in the group.
    NotJoined,
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MembershipError::NotAGroup => "the address is no group",
            MembershipError::NoAddress => "the host has no address of this family",
            MembershipError::TooManyGroups => "the host is in as many groups as it may",
            MembershipError::NotJoined => "the host is not in the group",
        })
    }
}

upcall_core::debug_as_display!(MembershipError);

impl core::error::Error for MembershipError {}

/// Why a static neighbor was not noted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NeighborError {
    /// The address or the link address is not that of another device on a link of the host.
    NotANeighbor,
    /// All [`super::NEIGHBORS_MAX`] entries are static or in use.
    Full,
}

impl fmt::Display for NeighborError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NeighborError::NotANeighbor => "this is no other device on the link",
            NeighborError::Full => "the table of neighbors is full",
        })
    }
}

upcall_core::debug_as_display!(NeighborError);

impl core::error::Error for NeighborError {}

/// Why there is no way to a destination now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RouteError {
    /// The destination is on no link of the host, and there is no gateway; or it is no address of
    /// another device, group or broadcast.
    NoRoute,
    /// The source is no address of the host, or one of the other family.
    NotOwn,
    /// The link address is not known yet. [`super::Host::output`] asks for it.
    Resolving,
    /// Nobody answered to the requests for the link address.
    Unreachable,
    /// The table of neighbors has no room for the address.
    Full,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RouteError::NoRoute => "no route to the destination",
            RouteError::NotOwn => "the source is no address of the host",
            RouteError::Resolving => "the link address is not known yet",
            RouteError::Unreachable => "the next hop does not answer",
            RouteError::Full => "the table of neighbors is full",
        })
    }
}

upcall_core::debug_as_display!(RouteError);

impl core::error::Error for RouteError {}
