//! Packet sockets: what those with and without rings have in common (packet(7)).
//!
//! [`crate::frame_file`] and [`crate::packet_ring`] call this. Nothing blocks.

use crate::OsError;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `ETH_P_ALL` of linux/if_ether.h.
const EVERY_PROTOCOL: u16 = 3;

/// A packet socket that gets nothing yet, and never what this machine sends.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`.
pub(crate) fn open() -> Result<OwnedFd, OsError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes only numbers. Protocol 0: nothing arrives before the bind.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(OsError::last("socket(AF_PACKET)"));
    }
    // SAFETY: the call has just made this descriptor, and nothing else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    turn_on(&fd, libc::PACKET_IGNORE_OUTGOING, "setsockopt(PACKET_IGNORE_OUTGOING)")?;
    Ok(fd)
}

/// Makes the socket get every frame that arrives at the interface with this index.
///
/// # Errors
/// `ENODEV` without such an interface, `ENETDOWN`.
pub(crate) fn bind(fd: &OwnedFd, interface: u32) -> Result<(), OsError> {
    // SAFETY: the struct has only integers and arrays of integers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
    address.sll_protocol = EVERY_PROTOCOL.to_be();
    address.sll_ifindex = interface.cast_signed();
    let (place, length) = ((&raw const address).cast(), length_of::<libc::sockaddr_ll>());
    // SAFETY: the kernel reads `address`, whose length it gets.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), place, length) };
    if bound < 0 { Err(OsError::last("bind(AF_PACKET)")) } else { Ok(()) }
}

/// Sets an option that is a flag.
pub(crate) fn turn_on(
    fd: &OwnedFd,
    option: libc::c_int,
    operation: &'static str,
) -> Result<(), OsError> {
    let one: libc::c_int = 1;
    // SAFETY: the flags of this level take a number.
    unsafe { set(fd, option, &one, operation) }
}

/// Sets an option.
///
/// # Safety
/// `option` takes a `T`, and what the kernel does with it is sound.
pub(crate) unsafe fn set<T>(
    fd: &OwnedFd,
    option: libc::c_int,
    value: &T,
    operation: &'static str,
) -> Result<(), OsError> {
    let (value, length) = ((&raw const *value).cast(), length_of::<T>());
    // SAFETY: the kernel reads one `T`. The caller knows the option.
    let set = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, value, length) };
    if set < 0 { Err(OsError::last(operation)) } else { Ok(()) }
}

/// Frames that the socket dropped since the last call, because nobody took them in time. One system
/// call.
///
/// # Errors
/// `ENOTSOCK` for another file.
pub(crate) fn take_drops(fd: BorrowedFd<'_>) -> Result<u64, OsError> {
    let (mut found, mut length) = ([0u32; 2], length_of::<[u32; 2]>());
    let place = (&raw mut found).cast();
    let option = libc::PACKET_STATISTICS;
    // SAFETY: the kernel writes at most two numbers, with which each `struct tpacket_stats` begins.
    let read = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, place, &raw mut length)
    };
    let [_, drops] = found;
    if read < 0 { Err(OsError::last("getsockopt(PACKET_STATISTICS)")) } else { Ok(drops.into()) }
}

/// The VLAN tag that the kernel took out of a frame, as it was in front of the EtherType. `status`
/// is that of the frame. `None`: it took none.
pub(crate) fn vlan_tag(status: u32, control: u16, protocol: u16) -> Option<[u8; 4]> {
    /// 802.1Q. A kernel without the protocol in its record knows no other.
    const CUSTOMER_TAG: u16 = 0x8100;
    let has = |flag| status & flag != 0;
    let protocol = if has(libc::TP_STATUS_VLAN_TPID_VALID) { protocol } else { CUSTOMER_TAG };
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), control.to_be_bytes());
    has(libc::TP_STATUS_VLAN_VALID).then_some([a, b, c, d])
}

/// Bytes of a `T`, as the kernel wants them.
pub(crate) fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}
