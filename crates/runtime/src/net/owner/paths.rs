//! Where packets go: the paths of a host of our own, or those of the kernel.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use upcall_core::time::{Instant, Span};
use upcall_proto::host::{Host, RouteError};
use upcall_proto::packet::LinkAddress;
use upcall_proto::packet::build::{self, Path};
use upcall_sys::OsError;
use upcall_sys::interface::Routes;

/// Who is the host of the address of the flows.
#[derive(Debug)]
pub enum Paths {
    /// This owner: it answers ARP, discovery and ICMP, and joins groups.
    Own(Box<Host>),
    /// The kernel, whose address the flows share. It answers, and the owner asks it for paths.
    Kernel(KernelPaths),
}

/// Why there is no path now.
pub(super) enum PathFailure {
    /// The link address is being found out.
    Resolving,
    /// There is no way there.
    Unreachable,
}

impl Paths {
    /// The path to a peer, and the most bytes of a packet of IP to it.
    pub(super) fn path(
        &mut self,
        local: IpAddr,
        peer: IpAddr,
        now: Instant,
    ) -> Result<(Path, u16), PathFailure> {
        // Only a flow on every address of IPv6 has addresses of both families.
        if local.is_ipv4() != peer.is_ipv4() && local != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            return Err(PathFailure::Unreachable);
        }
        match self {
            Paths::Kernel(paths) => paths.path(local, peer, now),
            Paths::Own(host) => {
                let source = (!local.is_unspecified()).then_some(local);
                match host.path(source, peer, now) {
                    Ok(path) => Ok((path, host.packet_bytes_max(peer, now))),
                    Err(RouteError::Resolving | RouteError::Full) => Err(PathFailure::Resolving),
                    Err(_) => Err(PathFailure::Unreachable),
                }
            }
        }
    }

    /// A call of the owner begins.
    pub(super) fn begin(&mut self) {
        if let Paths::Kernel(paths) = self {
            paths.has_asked = false;
        }
    }
}

/// How long a packet waits for the link address of its receiver before the owner looks again.
pub(super) const RESOLVING: Span = Span::from_millis(5);
/// How long an answer of the kernel is used.
const VALID: Span = Span::from_secs(1);
/// How long an answer that there is no way is used.
const VALID_FAILURE: Span = Span::from_millis(100);
/// How long the kernel may take to find a link address: three requests, one a second.
const RESOLVING_MAX: Span = Span::from_secs(4);
/// The most peers whose paths are kept.
const PEERS_MAX: usize = 1024;

/// The kernel's paths on an interface. The first packet to a peer, and one each second, costs up to
/// three requests of rtnetlink(7): some microseconds each, and an allocation.
#[derive(Debug)]
pub struct KernelPaths {
    routes: Routes,
    interface: u32,
    link: LinkAddress,
    packet_bytes_max: u16,
    peers: HashMap<(IpAddr, IpAddr), Peer>,
    /// Whether the kernel was asked since [`KernelPaths::begin`].
    has_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    found: Option<(Path, u16)>,
    /// Since when the kernel has looked for the link address.
    resolving_since: Option<Instant>,
    until: Instant,
}

impl KernelPaths {
    /// The paths on an interface with this index, link address and longest packet.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn new(
        interface: u32,
        link: LinkAddress,
        packet_bytes_max: u16,
    ) -> Result<KernelPaths, OsError> {
        let peers = HashMap::with_capacity(PEERS_MAX);
        let routes = Routes::open()?;
        let has_asked = false;
        Ok(KernelPaths { routes, interface, link, packet_bytes_max, peers, has_asked })
    }

    fn path(
        &mut self,
        local: IpAddr,
        peer: IpAddr,
        now: Instant,
    ) -> Result<(Path, u16), PathFailure> {
        let known = self.peers.get(&(local, peer)).copied();
        if let Some(Peer { found, until, resolving_since }) = known
            && now < until
        {
            return match (found, resolving_since) {
                (Some(found), _) => Ok(found),
                (None, Some(_)) => Err(PathFailure::Resolving),
                (None, None) => Err(PathFailure::Unreachable),
            };
        }
        // One question a call of the owner: a flow with many peers must not keep the others.
        if std::mem::replace(&mut self.has_asked, true) {
            return known.and_then(|known| known.found).ok_or(PathFailure::Resolving);
        }
        let since = known.and_then(|known| known.resolving_since);
        let asked = self.ask(local, peer);
        let found = asked.as_ref().ok().copied().flatten();
        let is_late = since.is_some_and(|since| now.since(since) > RESOLVING_MAX);
        let resolving_since = match asked {
            Ok(None) if !is_late => Some(since.unwrap_or(now)),
            _ => None,
        };
        let valid = match (found, resolving_since) {
            (Some(_), _) => VALID,
            (None, Some(_)) => RESOLVING,
            (None, None) => VALID_FAILURE,
        };
        if self.peers.len() >= PEERS_MAX && known.is_none() {
            self.peers.retain(|_, peer| now < peer.until);
            if self.peers.len() >= PEERS_MAX {
                self.peers.clear();
            }
        }
        let entry = Peer { found, resolving_since, until: now + valid };
        self.peers.insert((local, peer), entry);
        match (found, resolving_since) {
            (Some(found), _) => Ok(found),
            (None, Some(_)) => Err(PathFailure::Resolving),
            (None, None) => Err(PathFailure::Unreachable),
        }
    }

    /// Asks the kernel. `None`: it looks for the link address.
    fn ask(&mut self, local: IpAddr, peer: IpAddr) -> Result<Option<(Path, u16)>, OsError> {
        let route = self.routes.route(peer, self.interface)?;
        let source = match local.is_unspecified() {
            true => route.source.ok_or(OsError::new("route", NETWORK_UNREACHABLE))?,
            false => local,
        };
        let next = route.gateway.unwrap_or(peer);
        let most = route.packet_bytes_max.and_then(|most| u16::try_from(most).ok());
        let most = most.unwrap_or(u16::MAX).min(self.packet_bytes_max);
        let link = match next {
            IpAddr::V4(Ipv4Addr::BROADCAST) => Some([0xff; 6]),
            next if next.is_multicast() => Some(build::group_link(next)),
            next => {
                let neighbor = self.routes.neighbor(next, self.interface)?;
                if neighbor.is_none_or(|neighbor| !neighbor.is_fresh) {
                    // As if the kernel had sent: it finds the address, or checks an old one.
                    self.routes.resolve(next, self.interface)?;
                }
                neighbor.map(|neighbor| neighbor.link)
            }
        };
        let path = link.map(|link_destination| Path {
            link_source: self.link,
            link_destination,
            source,
            destination: peer,
        });
        Ok(path.map(|path| (path, most)))
    }
}

/// `ENETUNREACH` of errno.h.
const NETWORK_UNREACHABLE: i32 = 101;
