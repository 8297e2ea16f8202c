//! A link between an XDP program and an interface: bpf(2), `BPF_LINK_CREATE`.
//!
//! aya would fall back to netlink, whose attachment stays when the process ends. So this module
//! makes the link itself.

use super::{EarlyDropError, Mode};
use crate::OsError;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `include/uapi/linux/bpf.h`, `if_link.h`.
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The part of `union bpf_attr` for `BPF_LINK_CREATE`. The kernel takes what is missing as 0.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches `program` to `interface` until the returned descriptor is closed.
pub(super) fn create(
    program: BorrowedFd<'_>,
    interface: u32,
    mode: Mode,
) -> Result<OwnedFd, EarlyDropError> {
    let flags = match mode {
        Mode::Native => XDP_FLAGS_DRV_MODE,
        Mode::Generic => XDP_FLAGS_SKB_MODE,
    };
    let program = program.as_raw_fd().cast_unsigned();
    let attributes = LinkCreate { program, interface, attach_type: BPF_XDP, flags };
    // SAFETY: the kernel reads `attributes`, whose size it gets, and keeps no pointer to it.
    let made = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, &attributes, size_of::<LinkCreate>())
    };
    match i32::try_from(made) {
        // SAFETY: the call has just made this descriptor, and nothing else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => {
            let error = OsError::last("bpf(BPF_LINK_CREATE)");
            match error.raw_os_error() {
                // EEXIST: a program of the other mode, or on a device above this one.
                libc::EBUSY | libc::EEXIST => Err(EarlyDropError::Busy(error)),
                // Also if there is no such interface.
                libc::EINVAL => {
                    Err(crate::interface::name(interface).err().unwrap_or(error).into())
                }
                _ => Err(error.into()),
            }
        }
    }
}
