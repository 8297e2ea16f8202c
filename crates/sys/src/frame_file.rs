//! Frames through a descriptor, one system call for each: TAP devices and packet sockets.
//!
//! The devices of the runtime call this where AF_XDP does not work. A frame goes straight into
//! shared words and out of them, without another copy in this process. Nothing blocks. See
//! Linux, Documentation/networking/tuntap.rst, and packet(7).

use crate::OsError;
use core::sync::atomic::AtomicU64;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

#[cfg(test)]
mod tests;

/// `ETH_P_ALL` of linux/if_ether.h.
const EVERY_PROTOCOL: u16 = 3;
/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h.
const IGNORE_OUTGOING: libc::c_int = 23;
/// `PACKET_STATISTICS` of linux/if_packet.h.
const STATISTICS: libc::c_int = 6;

/// A descriptor that reads and writes whole frames.
#[derive(Debug)]
pub struct FrameFile(OwnedFd);

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
        if made < 0 { Err(OsError::last("ioctl(TUNSETIFF)")) } else { Ok(FrameFile(fd)) }
    }

    /// A packet socket on the interface with this index. It gets a copy of every frame that
    /// arrives there, and the kernel works on them too. It does not get what this machine sends.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface, `ENETDOWN`.
    pub fn packet(interface: u32) -> Result<FrameFile, OsError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes only numbers. Protocol 0: nothing arrives before the bind.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(OsError::last("socket(AF_PACKET)"));
        }
        // SAFETY: the call has just made this descriptor, and nothing else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (one, length): (libc::c_int, _) = (1, length_of::<libc::c_int>());
        // SAFETY: the kernel reads one number.
        let set = unsafe {
            let one = (&raw const one).cast();
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, IGNORE_OUTGOING, one, length)
        };
        if set < 0 {
            return Err(OsError::last("setsockopt(PACKET_IGNORE_OUTGOING)"));
        }
        // SAFETY: the struct has only integers and arrays of integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
        address.sll_protocol = EVERY_PROTOCOL.to_be();
        address.sll_ifindex = interface.cast_signed();
        let (place, length) = ((&raw const address).cast(), length_of::<libc::sockaddr_ll>());
        // SAFETY: the kernel reads `address`, whose length it gets.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), place, length) };
        if bound < 0 { Err(OsError::last("bind(AF_PACKET)")) } else { Ok(FrameFile(fd)) }
    }

    /// Takes the next frame into `words`, and returns its bytes, as far as they fit. `None`: no
    /// frame waits. One system call. Does not block.
    ///
    /// # Errors
    /// `ENETDOWN`, `EBADFD`, `EIO`: the interface is down or gone.
    pub fn read(&self, words: &[AtomicU64]) -> Result<Option<usize>, OsError> {
        let place = words.as_ptr().cast_mut().cast();
        // SAFETY: the words are so many bytes, and may be written through a shared reference. The
        // kernel acts like one more thread.
        let read = unsafe { libc::read(self.0.as_raw_fd(), place, words.len() * 8) };
        match usize::try_from(read) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) => match OsError::last("read(frame)") {
                error if error.is_would_block() => Ok(None),
                error => Err(error),
            },
        }
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
            libc::write(self.0.as_raw_fd(), place.cast(), bytes)
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
        let (mut found, mut length) = ([0u32; 2], length_of::<[u32; 2]>());
        // SAFETY: the kernel writes at most two numbers (`struct tpacket_stats`).
        let read = unsafe {
            let place = (&raw mut found).cast();
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                STATISTICS,
                place,
                &raw mut length,
            )
        };
        let [_, drops] = found;
        if read < 0 {
            Err(OsError::last("getsockopt(PACKET_STATISTICS)"))
        } else {
            Ok(drops.into())
        }
    }
}

impl AsFd for FrameFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}
