//! The network interfaces of this network namespace: names, numbers, and what each can do.

mod list;
mod netlink;
mod routes;

pub use list::{AttachedXdp, Interface, XdpFeatures, XdpMode, addresses, all};
pub use routes::{KernelNeighbor, Route, Routes};

use crate::OsError;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::OwnedFd;

/// The index of the interface with this name. Opens a socket. Does not block.
///
/// # Errors
/// `ENODEV` without such an interface, `EMFILE`.
pub fn index(name: &str) -> Result<u32, OsError> {
    let index = name_to_index(&any_socket()?, name);
    index.map_err(OsError::of("ioctl(SIOCGIFINDEX)"))
}

/// The name of the interface with this index. Opens a socket. Does not block. Allocates.
///
/// # Errors
/// `ENODEV` without such an interface, `EMFILE`.
pub fn name(index: u32) -> Result<String, OsError> {
    let name = index_to_name(&any_socket()?, index);
    name.map_err(OsError::of("ioctl(SIOCGIFNAME)"))
}

/// How many queues the interface receives by now, at least 1. Opens a socket. Does not block.
///
/// # Errors
/// `ENODEV` without such an interface, `EMFILE`.
pub fn receive_queues(name: &str) -> Result<u32, OsError> {
    crate::ethtool::receive_queues(name)
}

/// The kernel takes these requests on any socket.
fn any_socket() -> Result<OwnedFd, OsError> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(OsError::of("socket"))
}
