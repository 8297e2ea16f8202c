//! A network namespace with a veth pair, and frames sent through it.

use crate::OsError;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

/// Runs `work` on a thread with a network namespace of its own. It has the ends `ours` and
/// `theirs` of a veth pair, both up. `ours` has the addresses that [`super::packets`] sends to.
pub fn in_own_network(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // SAFETY: changes the network of this thread only, which has no socket yet.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", OsError::last("unshare"));
        ip("link add ours address 02:00:00:00:00:01 type veth peer name theirs");
        ip("address add 10.0.0.1/24 dev ours");
        ip("link set ours up");
        ip("link set theirs up");
        work();
    });
    // The kernel removes the namespace and the pair with the thread.
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Lets `/sys` show the network of this thread, to this thread only.
pub fn show_own_network() {
    // SAFETY: gives this thread mounts and a working directory of its own. Both stay the same.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(unshared, 0, "{}", OsError::last("unshare"));
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
    mount("none", "/sys", "sysfs", MountFlags::empty(), None).unwrap();
}

pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether `interface` has an XDP program.
pub fn has_program(interface: &str) -> bool {
    ip(&format!("link show {interface}")).contains("xdp")
}

/// Sends frames on an interface, as they are.
pub struct Wire(OwnedFd);

impl Wire {
    pub fn of(interface: &str) -> Wire {
        // SAFETY: takes only numbers. Protocol 0: nothing is received.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", OsError::last("socket(AF_PACKET)"));
        // SAFETY: the call has just made this descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the struct has only integers and arrays of integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_ifindex = crate::interface::index(interface).unwrap().cast_signed();
        let length = u32::try_from(size_of_val(&address)).unwrap();
        // SAFETY: the kernel reads `address`, whose length it gets.
        let bound = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
        assert_eq!(bound, 0, "{}", OsError::last("bind"));
        Wire(socket)
    }

    pub fn send(&self, frame: &[u8]) {
        let sent = rustix::io::write(&self.0, frame);
        assert_eq!(sent, Ok(frame.len()), "{}", self.0.as_raw_fd());
    }
}
