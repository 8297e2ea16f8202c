//! Frames through a descriptor, one system call for each: TAP devices and packet sockets.
//!
//! The devices of the runtime call this where AF_XDP does not work. A frame goes straight into
//! shared words and out of them, without another copy in this process. Nothing blocks. See
//! Linux, Documentation/networking/tuntap.rst, and packet(7).

use crate::{OsError, packet_socket};
use core::sync::atomic::AtomicU64;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

#[cfg(test)]
mod tests;

/// Room for a `struct cmsghdr` and a `struct tpacket_auxdata`.
const CONTROL_BYTES: usize = 40;

/// A descriptor that reads and writes whole frames.
#[derive(Debug)]
pub struct FrameFile {
    fd: OwnedFd,
    is_socket: bool,
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFrame {
    /// Its bytes, as far as they fit.
    pub bytes: usize,
    /// Whether its end is missing, because it was longer than the room. A TAP device does not tell:
    /// a frame that fills all the room counts as cut off.
    pub is_cut_off: bool,
    /// The VLAN tag that the kernel took out: it was in front of the EtherType, after 12 bytes.
    pub tag: Option<[u8; 4]>,
}

impl FrameFile {
    /// The new TAP interface `name`, of at most 15 bytes. It is deleted with this value. It is down
    /// until somebody sets it up. What we write arrives at it, and we read what it sends.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` ([`crate::grant::how_to_use_frames`]), `EBUSY` if there is
    /// such an interface, `EINVAL` for a name that is too long, `ENOENT` without /dev/net/tun.
    pub fn tap(name: &str) -> Result<FrameFile, OsError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
            .map_err(OsError::of("open(/dev/net/tun)"))?;
        // SAFETY: the struct has only integers and arrays of integers, for which zero is valid.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            return Err(OsError::new("ioctl(TUNSETIFF)", libc::EINVAL));
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        #[expect(clippy::cast_possible_truncation, reason = "small constants")]
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
        request.ifr_ifru.ifru_flags = flags;
        // SAFETY: the kernel reads and writes one `ifreq`.
        let made = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if made < 0 {
            return Err(OsError::last("ioctl(TUNSETIFF)"));
        }
        Ok(FrameFile { fd, is_socket: false })
    }

    /// A packet socket on the interface with this index. It gets a copy of every frame that
    /// arrives there, and the kernel works on them too. It does not get what this machine sends.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface, `ENETDOWN`.
    pub fn packet(interface: u32) -> Result<FrameFile, OsError> {
        let fd = packet_socket::open()?;
        packet_socket::turn_on(&fd, libc::PACKET_AUXDATA, "setsockopt(PACKET_AUXDATA)")?;
        packet_socket::bind(&fd, interface)?;
        Ok(FrameFile { fd, is_socket: true })
    }

    /// Takes the next frame into `words`. `None`: no frame waits. One system call. Does not block.
    ///
    /// # Errors
    /// `ENETDOWN`, `EBADFD`, `EIO`: the interface is down or gone.
    pub fn read(&self, words: &[AtomicU64]) -> Result<Option<ReadFrame>, OsError> {
        let read = if self.is_socket { self.receive(words) } else { self.read_file(words) };
        match read {
            Ok(frame) => Ok(Some(frame)),
            Err(error) if error.is_would_block() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_file(&self, words: &[AtomicU64]) -> Result<ReadFrame, OsError> {
        let (place, room) = (words.as_ptr().cast_mut().cast(), words.len() * 8);
        // SAFETY: the words are so many bytes, and may be written through a shared reference. The
        // kernel acts like one more thread.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), place, room) };
        let bytes = usize::try_from(read).map_err(|_| OsError::last("read(frame)"))?;
        // The kernel does not say that it cut a frame off.
        Ok(ReadFrame { bytes, is_cut_off: bytes == room, tag: None })
    }

    fn receive(&self, words: &[AtomicU64]) -> Result<ReadFrame, OsError> {
        let (place, room) = (words.as_ptr().cast_mut().cast(), words.len() * 8);
        let mut vector = libc::iovec { iov_base: place, iov_len: room };
        // Words, so that the messages are aligned.
        let mut control = [0u64; CONTROL_BYTES / 8];
        // SAFETY: the struct has only integers and pointers, for which zero is valid.
        let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL_BYTES);
        // SAFETY: the header names `words` and `control`, with their lengths, and both outlive the
        // call. The words may be written through a shared reference, and the kernel acts like one
        // more thread.
        let received =
            unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let bytes = usize::try_from(received).map_err(|_| OsError::last("recvmsg(AF_PACKET)"))?;
        let is_cut_off = header.msg_flags & libc::MSG_TRUNC != 0;
        Ok(ReadFrame { bytes, is_cut_off, tag: tag_in(&control) })
    }

    /// Sends `bytes` of `words` from the byte `start` on. `false`: the interface takes no frame
    /// now. One system call. Does not block.
    ///
    /// # Errors
    /// `ENETDOWN`, `ENXIO`, `EBADFD`, `EIO`: the interface is down or gone. `EMSGSIZE`, `EINVAL`:
    /// the frame is too long or too short for it, or not inside of `words`.
    pub fn write(&self, words: &[AtomicU64], start: usize, bytes: usize) -> Result<bool, OsError> {
        if start.checked_add(bytes).is_none_or(|end| end > words.len() * 8) {
            return Err(OsError::new("write(frame)", libc::EINVAL));
        }
        // SAFETY: the kernel reads bytes of `words`, as checked, and acts like one more thread.
        let written = unsafe {
            let place = words.as_ptr().cast::<u8>().add(start);
            libc::write(self.fd.as_raw_fd(), place.cast(), bytes)
        };
        match written {
            0.. => Ok(true),
            _ => match OsError::last("write(frame)") {
                error if error.is_would_block() || error.raw_os_error() == libc::ENOBUFS => {
                    Ok(false)
                }
                error => Err(error),
            },
        }
    }

    /// Frames that a packet socket dropped since the last call, because nobody read in time. One
    /// system call.
    ///
    /// # Errors
    /// `ENOTSOCK` for a TAP interface, which does not tell.
    pub fn take_drops(&self) -> Result<u64, OsError> {
        packet_socket::take_drops(self.as_fd())
    }
}

impl AsFd for FrameFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The VLAN tag in the control messages of a frame: a `struct cmsghdr`, and a `struct
/// tpacket_auxdata`. The socket asked for no others. Zeroes are no message.
fn tag_in(control: &[u64; CONTROL_BYTES / 8]) -> Option<[u8; 4]> {
    let halves = |at: usize| {
        let [a, b, c, d, e, f, g, h] = control[at].to_ne_bytes();
        (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
    };
    let (level, kind) = halves(1);
    if (level.cast_signed(), kind.cast_signed()) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    let (status, _) = halves(2);
    // After the status: two lengths of 4 bytes, two offsets of 2, and the tag.
    let [a, b, c, d, ..] = control[4].to_ne_bytes();
    let (tag, protocol) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    packet_socket::vlan_tag(status, tag, protocol)
}
