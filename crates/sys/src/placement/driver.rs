//! The name of an interface's driver: ethtool, by ioctl(2).
//!
//! A virtual interface has no device in sysfs, but answers this request.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::CStr;
use std::os::fd::AsRawFd;

/// `include/uapi/linux/sockios.h`, `ethtool.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;

/// `struct ethtool_drvinfo`: command, driver, and 160 bytes that nothing here reads.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    others: [u8; 160],
}

/// The driver of `interface`. `None` if the kernel does not say.
pub(super) fn of(interface: &str) -> Option<String> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], others: [0; 160] };
    // SAFETY: the struct has only integers and arrays of integers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return None;
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: the kernel reads one `ifreq`, whose name ends with a zero. Its pointer is to `info`,
    // which is as long as the kernel's structure for this command (196 bytes). It
    // keeps no pointer.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done != 0 {
        return None;
    }
    let name = CStr::from_bytes_until_nul(&info.driver).ok()?;
    Some(name.to_string_lossy().into_owned())
}

const _: () = assert!(size_of::<DriverInfo>() == 196);
