//! Questions about an interface by ethtool requests, with ioctl(2).
//!
//! A virtual interface has no device in sysfs, and sysfs shows the network namespace of the process
//! that mounted it. These requests work for both. `placement` and `interface` call this.

use crate::OsError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::CStr;
use std::os::fd::AsRawFd;

/// `include/uapi/linux/sockios.h`, `ethtool.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo`: command, driver, and 160 bytes that nothing here reads.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    others: [u8; 160],
}

/// `struct ethtool_channels`.
#[derive(Default)]
#[repr(C)]
struct Channels {
    command: u32,
    /// Of receive, transmit, other and combined channels.
    max: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

const _: () = assert!(size_of::<DriverInfo>() == 196);
const _: () = assert!(size_of::<Channels>() == 36);

/// The structure of a request. It begins with the command, and has integers and arrays of integers
/// only.
///
/// # Safety
/// It is as long as the kernel's structure for its command, and any bytes are a valid value.
unsafe trait Request {}
// SAFETY: 196 bytes, by the assertion above. Integers and arrays of integers.
unsafe impl Request for DriverInfo {}
// SAFETY: 36 bytes, by the assertion above. Integers and arrays of integers.
unsafe impl Request for Channels {}

/// The driver of `interface`. `None` if the kernel does not say.
pub(crate) fn driver(interface: &str) -> Option<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], others: [0; 160] };
    ask(interface, &mut info).ok()?;
    let name = CStr::from_bytes_until_nul(&info.driver).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// How many queues `interface` receives by now. 1 if the driver does not say: most of these have
/// one queue.
///
/// # Errors
/// `ENODEV` without such an interface, `EMFILE`.
pub(crate) fn receive_queues(interface: &str) -> Result<u32, OsError> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    match ask(interface, &mut channels) {
        Ok(()) => Ok(channels.receive.saturating_add(channels.combined).max(1)),
        Err(error) if error.raw_os_error() == libc::EOPNOTSUPP => Ok(1),
        Err(error) => Err(error),
    }
}

fn ask<T: Request>(interface: &str, structure: &mut T) -> Result<(), OsError> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
        .map_err(OsError::of("socket"))?;
    // SAFETY: the struct has only integers and arrays of integers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(OsError::new("ioctl(SIOCETHTOOL)", libc::ENODEV));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_data = (&raw mut *structure).cast();
    // SAFETY: the kernel reads one `ifreq`, whose name ends with a zero. Its pointer is to
    // `structure`, which is as long as the kernel's (`Request`). The kernel keeps no pointer.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(OsError::last("ioctl(SIOCETHTOOL)")) }
}
