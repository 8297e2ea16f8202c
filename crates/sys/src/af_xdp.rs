//! AF_XDP sockets: an interface's frames in shared memory, by rings and almost no system calls.
//!
//! The devices of the runtime call this. The module opens the socket, registers the area of frames,
//! maps the rings and wakes the kernel. It does not read a ring: `upcall-shm` does, because the
//! kernel is a peer there. A frame arrives only if an XDP program redirects it to the socket
//! (`early_drop`, `Action::Redirect`). Sending needs no program. See Linux,
//! Documentation/networking/af_xdp.rst.
//!
//! ```text
//!   (1) open: area registered, rings made and mapped
//!   (2) the caller puts free frames into the fill ring
//!   (3) bind to an interface and a queue
//!   (4) rings; wake_* only while the ring's flag says so
//!   (5) drop: the kernel stops, and takes no frame any more
//! ```

mod options;
mod rings;
#[cfg(test)]
mod tests;

pub use rings::{RingMemory, RingOffsets};

use crate::OsError;
use crate::memfd::SharedMapping;
use options::{length_of, read, set};
use rings::{Rings, Which};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// How the kernel moves frames between the driver and the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// It copies. Every interface can.
    Copy,
    /// The driver uses the area itself.
    Zero,
}

/// What a socket counted since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Frames dropped for other reasons, such as a missing free frame or one that is too long.
    pub receive_dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// How often the fill ring had no free frame.
    pub fill_ring_empty: u64,
    /// Entries of the fill ring that name no frame.
    pub fill_invalid: u64,
    /// Entries of the transmit ring that name no frame.
    pub transmit_invalid: u64,
}

/// An AF_XDP socket with all four rings, until dropped.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
    rings: Rings,
}

impl XdpSocket {
    /// A socket for the frames in `memory`, of 2048 or 4096 bytes each. `entries` of each ring, a
    /// power of two. It must be greater than the number of frames in use, so that no ring can be
    /// full. The kernel pins the memory. Allocates.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW` ([`crate::grant::how_to_use_frames`] says how to grant it).
    /// `EINVAL` for other sizes. `ENOBUFS` if
    /// `RLIMIT_MEMLOCK` is too small.
    pub fn open(
        memory: &SharedMapping,
        frame_bytes: u32,
        entries: u32,
    ) -> Result<XdpSocket, OsError> {
        let fd = socket()?;
        let area = libc::xdp_umem_reg_v1 {
            addr: memory.as_ptr().addr() as u64,
            len: memory.len() as u64,
            chunk_size: frame_bytes,
            headroom: 0,
        };
        // SAFETY: the kernel reads `area`. It pins the pages of the mapping and keeps them until
        // the socket is closed, also if the mapping goes. It acts like one more process that writes
        // them, and this process accesses them atomically alone.
        unsafe { set(&fd, libc::XDP_UMEM_REG, &area, "setsockopt(XDP_UMEM_REG)") }?;
        XdpSocket::with_rings(fd, entries)
    }

    /// A socket for the frames of `first`, for another interface or queue. Bind it with
    /// [`XdpSocket::bind_sharing`]. It has rings of its own. Allocates.
    ///
    /// # Errors
    /// As [`XdpSocket::open`].
    pub fn open_sharing(entries: u32) -> Result<XdpSocket, OsError> {
        XdpSocket::with_rings(socket()?, entries)
    }

    fn with_rings(fd: OwnedFd, entries: u32) -> Result<XdpSocket, OsError> {
        for (option, name) in [
            (libc::XDP_UMEM_FILL_RING, "setsockopt(XDP_UMEM_FILL_RING)"),
            (libc::XDP_UMEM_COMPLETION_RING, "setsockopt(XDP_UMEM_COMPLETION_RING)"),
            (libc::XDP_RX_RING, "setsockopt(XDP_RX_RING)"),
            (libc::XDP_TX_RING, "setsockopt(XDP_TX_RING)"),
        ] {
            // SAFETY: the kernel reads one number.
            unsafe { set(&fd, option, &entries, name) }?;
        }
        let rings = Rings::map(fd.as_fd(), entries)?;
        Ok(XdpSocket { fd, rings })
    }

    /// Binds the socket to one receive and transmit queue of an interface. From now on the kernel
    /// uses the rings, and says in their flags whether it must be woken.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the driver has no [`CopyMode::Zero`], `EBUSY` if the queue has a socket,
    /// `ENODEV`, `EINVAL` without such a queue, `ENETDOWN`.
    pub fn bind(&self, interface: u32, queue: u32, mode: CopyMode) -> Result<(), OsError> {
        let mode = match mode {
            CopyMode::Copy => libc::XDP_COPY,
            CopyMode::Zero => libc::XDP_ZEROCOPY,
        };
        self.bind_with(interface, queue, mode | libc::XDP_USE_NEED_WAKEUP, 0)
    }

    /// As [`XdpSocket::bind`], with the frames and the mode of `first`, which is bound. The socket
    /// comes from [`XdpSocket::open_sharing`].
    ///
    /// # Errors
    /// As [`XdpSocket::bind`]. `EBADF` if `first` has no frames.
    pub fn bind_sharing(
        &self,
        interface: u32,
        queue: u32,
        first: &XdpSocket,
    ) -> Result<(), OsError> {
        let shared = first.fd.as_raw_fd().cast_unsigned();
        self.bind_with(interface, queue, libc::XDP_SHARED_UMEM, shared)
    }

    fn bind_with(
        &self,
        interface: u32,
        queue: u32,
        flags: u16,
        shared: u32,
    ) -> Result<(), OsError> {
        #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared,
        };
        let length = length_of::<libc::sockaddr_xdp>();
        // SAFETY: the kernel reads `address`, whose length it gets.
        let bound = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 { Err(OsError::last("bind(AF_XDP)")) } else { Ok(()) }
    }

    /// The ring of free frames to receive into: we produce.
    pub fn fill(&self) -> &RingMemory {
        self.rings.ring(Which::Fill)
    }

    /// The ring of received frames: we consume.
    pub fn receive(&self) -> &RingMemory {
        self.rings.ring(Which::Receive)
    }

    /// The ring of frames to send: we produce.
    pub fn transmit(&self) -> &RingMemory {
        self.rings.ring(Which::Transmit)
    }

    /// The ring of sent frames: we consume.
    pub fn completion(&self) -> &RingMemory {
        self.rings.ring(Which::Completion)
    }

    /// Makes the kernel send. In copy mode it sends at most 32 frames here. One system call. Does
    /// not block.
    ///
    /// # Errors
    /// `EAGAIN`: more frames wait, so call again. `EBUSY`, `ENOBUFS`: the interface is busy, so
    /// call later. `ENETDOWN`, `ENXIO`: the interface is down or gone.
    pub fn wake_transmit(&self) -> Result<(), OsError> {
        // SAFETY: no data and no address.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                core::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null(),
                0,
            )
        };
        if sent < 0 { Err(OsError::last("sendto(AF_XDP)")) } else { Ok(()) }
    }

    /// Makes the driver look for free frames in the fill ring. One system call. Does not block.
    ///
    /// # Errors
    /// As [`XdpSocket::wake_transmit`].
    pub fn wake_receive(&self) -> Result<(), OsError> {
        // SAFETY: no data and no address.
        let received = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                core::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            )
        };
        if received < 0 { Err(OsError::last("recvfrom(AF_XDP)")) } else { Ok(()) }
    }

    /// Asks whether the interface is gone. The kernel reports that once. One system call.
    ///
    /// # Errors
    /// `ENETDOWN` after the interface was deleted.
    pub fn check(&self) -> Result<(), OsError> {
        match rustix::net::sockopt::socket_error(&self.fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) => Err(OsError::of("AF_XDP socket")(errno)),
            Err(errno) => Err(OsError::of("getsockopt(SO_ERROR)")(errno)),
        }
    }

    /// What the socket counted. One system call.
    ///
    /// # Errors
    /// The kernel's error. None is known.
    pub fn statistics(&self) -> Result<XdpStatistics, OsError> {
        // SAFETY: all zero is a valid value of a struct of numbers.
        let mut found: libc::xdp_statistics = unsafe { core::mem::zeroed() };
        let operation = "getsockopt(XDP_STATISTICS)";
        // SAFETY: every value of its numbers is valid.
        unsafe { read(self.fd.as_fd(), libc::XDP_STATISTICS, &mut found, operation) }?;
        Ok(XdpStatistics {
            receive_dropped: found.rx_dropped,
            receive_ring_full: found.rx_ring_full,
            fill_ring_empty: found.rx_fill_ring_empty_descs,
            fill_invalid: found.rx_invalid_descs,
            transmit_invalid: found.tx_invalid_descs,
        })
    }
}

impl AsFd for XdpSocket {
    /// For `EarlyDrop::insert_socket`, and to wait until frames arrive.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether `error`, of this module or of [`crate::frame_file`], says that the interface is down or
/// gone.
pub fn is_down(error: OsError) -> bool {
    let down = [libc::ENETDOWN, libc::ENXIO, libc::ENODEV, libc::EBADFD, libc::EIO];
    down.contains(&error.raw_os_error())
}

/// Whether `error` says that the interface has no room now.
pub fn is_busy(error: OsError) -> bool {
    [libc::EBUSY, libc::ENOBUFS].contains(&error.raw_os_error())
}

fn socket() -> Result<OwnedFd, OsError> {
    // SAFETY: takes only numbers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    match fd {
        0.. => {
            // SAFETY: the call has just made this descriptor, and nothing else knows it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(OsError::last("socket(AF_XDP)")),
    }
}
