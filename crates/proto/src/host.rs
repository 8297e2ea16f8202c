//! STUB, replaced by merge.
use crate::flow::Destination;
use crate::packet::build::Path;
use crate::packet::{Frame, Headers, LinkAddress};
use core::net::IpAddr;
use upcall_core::time::Instant;
/// stub
#[derive(Debug)]
pub struct Host;
/// stub
#[derive(Debug)]
pub enum Input {
    /// s
    Handled,
    /// s
    Error(PathError),
    /// s
    Ignored,
}
/// stub
#[derive(Debug)]
pub struct PathError {
    /// s
    pub local: Destination,
    /// s
    pub peer: (IpAddr, u16),
    /// s
    pub kind: PathErrorKind,
}
/// stub
#[derive(Debug)]
pub enum PathErrorKind {
    /// s
    PortUnreachable,
    /// s
    HostUnreachable,
    /// s
    TooBig {
        /// s
        mtu: u16,
    },
}
/// stub
#[derive(Debug)]
pub enum RouteError {
    /// s
    Resolving,
    /// s
    NoRoute,
}
/// stub
pub fn group_link(_: IpAddr) -> Option<LinkAddress> {
    None
}
impl Host {
    /// s
    pub fn input(&mut self, _: &[u8], _: &Frame, _: Instant) -> Input {
        Input::Handled
    }
    /// s
    pub fn unreachable(&mut self, _: &[u8], _: &Headers, _: Instant) {}
    /// s
    pub fn path(&mut self, _: Option<IpAddr>, _: IpAddr, _: Instant) -> Result<Path, RouteError> {
        Err(RouteError::NoRoute)
    }
    /// s
    pub fn packet_bytes_max(&self, _: IpAddr, _: Instant) -> u16 {
        1500
    }
    /// s
    pub fn output(&mut self, _: &mut [u8], _: Instant) -> Option<usize> {
        None
    }
    /// s
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
