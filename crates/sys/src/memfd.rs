//! Memory shared between processes: a sealed memfd, mapped.
//!
//! Called by whoever starts a process and wants to hear from it. The parent
//! creates a mapping and hands its descriptor over; the child maps the same
//! pages. What the words mean is the business of the shm room; here they are
//! words.
//!
//! A mapping must not end before its pages do: touching a page that the file
//! no longer has is SIGBUS, in whichever process touches it. So the file is
//! sealed against any change of size, and a file from elsewhere is mapped only
//! after its seals and then its size have been looked at. See memfd_create(2)
//! and F_ADD_SEALS in fcntl(2).

use crate::OsError;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(test)]
mod tests;

/// What a file must promise before it is mapped: its size stays, and the
/// promises stay.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Pages shared with other processes, readable and writable, until dropped.
#[derive(Debug)]
pub struct SharedMapping {
    start: NonNull<AtomicU64>,
    bytes: usize,
    fd: OwnedFd,
}

// SAFETY: the pages belong to the mapping and not to a thread, and all access
// through it is atomic (`words`).
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// New zeroed memory of `bytes`, a multiple of 8, faulted in. `name` is
    /// for `/proc/<pid>/maps` and need not be unique.
    ///
    /// # Errors
    /// [`MapError::Length`], or what the kernel said (`ENOMEM`, `EMFILE`).
    pub fn create(name: &str, bytes: usize) -> Result<SharedMapping, MapError> {
        check_length(bytes)?;
        let fd = memfd(name).map_err(OsError::of("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(OsError::of("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(OsError::of("fcntl(F_ADD_SEALS)"))?;
        SharedMapping::map(fd, bytes)
    }

    /// Maps the memory behind `fd`, which another process created.
    ///
    /// # Errors
    /// Refused unless it is a memfd sealed against shrinking, growing and
    /// further seals, and exactly `bytes` long.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<SharedMapping, MapError> {
        check_length(bytes)?;
        // Seals first: until they are known to be there, the size can change.
        let seals = match rustix::fs::fcntl_get_seals(&fd) {
            Ok(seals) => seals,
            Err(Errno::INVAL) => SealFlags::empty(), // not a file that can be sealed
            Err(errno) => return Err(OsError::of("fcntl(F_GET_SEALS)")(errno).into()),
        };
        if !seals.contains(SEALS) {
            return Err(MapError::Unsealed);
        }
        let found = rustix::fs::fstat(&fd).map_err(OsError::of("fstat"))?.st_size;
        if u64::try_from(found) != Ok(bytes as u64) {
            return Err(MapError::Size { found, expected: bytes });
        }
        SharedMapping::map(fd, bytes)
    }

    /// The descriptor, to hand to another process. Closed on exec unless
    /// passed on explicitly ([`crate::process::SpawnOptions::inherit`]).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Start of the memory, page aligned, valid as long as `self`.
    pub fn as_ptr(&self) -> *const AtomicU64 {
        self.start.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The memory as words. Other processes may change them at any time: copy
    /// a value once, then check it.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `map` made `start` the start of `bytes` readable, writable
        // bytes, page aligned and hence aligned for a word, that stay mapped
        // until `drop`, which needs `self` back. The file cannot be shortened
        // (SEALS), so no page disappears. Every bit pattern is an AtomicU64.
        // The only access this room gives is through this slice, and another
        // process is to the hardware one more thread: its stores race with
        // atomic loads, which is defined.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }

    /// Maps `fd`, known to be at least `bytes` long for ever.
    fn map(fd: OwnedFd, bytes: usize) -> Result<SharedMapping, MapError> {
        // Populated, so that no page fault comes when it is used.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place the kernel chooses changes no
        // memory that exists.
        let start = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                &fd,
                0,
            )
        }
        .map_err(OsError::of("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(OsError::new("mmap", libc::ENOMEM))?;
        Ok(SharedMapping { start, bytes, fd })
    }
}

impl AsRef<[AtomicU64]> for SharedMapping {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; references from `words` borrow
        // `self` and are gone. It cannot fail for a mapping that exists.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A memfd that can be sealed and, where the kernel knows how (6.3), never
/// executed: some systems refuse others (`vm.memfd_noexec`).
fn memfd(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        result => result,
    }
}

/// Whole words, at least one, and a size the kernel can express.
fn check_length(bytes: usize) -> Result<(), MapError> {
    if bytes == 0 || !bytes.is_multiple_of(8) || i64::try_from(bytes).is_err() {
        return Err(MapError::Length { found: bytes });
    }
    Ok(())
}

/// Why memory could not be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// The caller asked for a length that is no whole number of words.
    Length {
        /// As asked for, in bytes.
        found: usize,
    },
    /// The file is not sealed, so its owner could shorten it at any time.
    Unsealed,
    /// The file has another size.
    Size {
        /// Bytes of the file.
        found: i64,
        /// Bytes it should have.
        expected: usize,
    },
    /// The kernel refused.
    Os(OsError),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Length { found } => {
                write!(f, "cannot share {found} bytes; a multiple of 8 above 0 is needed")
            }
            MapError::Unsealed => f.write_str(
                "shared memory is not sealed; expected a memfd with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL",
            ),
            MapError::Size { found, expected } => {
                write!(f, "shared memory has {found} bytes, expected {expected}")
            }
            MapError::Os(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MapError {}

impl From<OsError> for MapError {
    fn from(error: OsError) -> Self {
        MapError::Os(error)
    }
}
