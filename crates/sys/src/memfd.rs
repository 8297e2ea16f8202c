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
//!
//! Some pages have one writer and are read by processes that must not change
//! them. A descriptor that was opened for reading is not enough: whoever has it
//! may open `/proc/self/fd/N` again for writing, for a memfd belongs to its
//! creator with mode 0666 (Linux 6.18: also as another user). What is enough is a
//! seal against new writers:
//!
//! ```text
//!  creator                         owner                   reader
//!  (1) create_to_seal
//!           ---- fd ------------->
//!                                  (2) from_fd: may write
//!           <--- "mapped" --------
//!  (3) seal_future_writes
//!           ---- read_only_fd ---------------------------->
//!                                                          (4) ReadOnlyMapping
//! ```
//!
//! Mappings made before (3), the creator's among them, stay writable; no other can
//! be made so, by anyone, whatever descriptor they hold. It also holds for the creator
//! when it is started anew.

use crate::OsError;
use core::fmt;
use core::sync::atomic::AtomicU64;
use pages::Pages;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

mod pages;
mod read_only;
#[cfg(test)]
mod tests;

pub use read_only::ReadOnlyMapping;

/// What a file must promise before it is mapped: its size stays. A seal cannot be
/// broken, so nothing need promise that these two stay.
const SEALS_NEEDED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Nobody gets write access any more, and nobody adds a seal.
const SEALS_FUTURE_WRITE: SealFlags = SealFlags::FUTURE_WRITE.union(SealFlags::SEAL);

/// Pages shared with other processes, readable and writable, until dropped.
#[derive(Debug)]
pub struct SharedMapping {
    pages: Pages,
    fd: OwnedFd,
}

impl SharedMapping {
    /// New zeroed memory of `bytes`, a multiple of 8: the first 8 KiB are faulted in, what
    /// is beyond takes memory when it is touched first. `name` is
    /// for `/proc/<pid>/maps` and need not be unique. Whoever gets the descriptor
    /// may write; that cannot be changed later.
    ///
    /// # Errors
    /// [`MapError::Length`], or what the kernel said (`ENOMEM`, `EMFILE`).
    pub fn create(name: &str, bytes: usize) -> Result<SharedMapping, MapError> {
        SharedMapping::create_sealed(name, bytes, SEALS_NEEDED | SealFlags::SEAL)
    }

    /// As [`SharedMapping::create`], for memory that is to have
    /// [`SharedMapping::seal_future_writes`] called on it.
    ///
    /// # Errors
    /// As there.
    pub fn create_to_seal(name: &str, bytes: usize) -> Result<SharedMapping, MapError> {
        SharedMapping::create_sealed(name, bytes, SEALS_NEEDED)
    }

    fn create_sealed(name: &str, bytes: usize, seals: SealFlags) -> Result<Self, MapError> {
        check_length(bytes)?;
        let fd = memfd(name).map_err(OsError::of("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(OsError::of("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(OsError::of("fcntl(F_ADD_SEALS)"))?;
        SharedMapping::map(fd, bytes)
    }

    /// Maps the memory behind `fd`, which another process created.
    ///
    /// # Errors
    /// Refused unless it is a memfd sealed against shrinking and growing, and
    /// exactly `bytes` long. `EACCES` if `fd` is for reading only, `EPERM` if the
    /// file is sealed against writers.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> Result<SharedMapping, MapError> {
        check_length(bytes)?;
        check_file(fd.as_fd(), bytes)?;
        SharedMapping::map(fd, bytes)
    }

    /// The descriptor, to hand to another process, which may write. Closed on exec
    /// unless passed on explicitly ([`crate::process::SpawnOptions::inherit`]).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Another descriptor of the same memory, for reading: with it no page can be
    /// mapped or made writable and no seal added. Closed on exec.
    ///
    /// It does not keep its holder from opening the file again (see the module):
    /// call [`SharedMapping::seal_future_writes`] before it is handed over. Opens
    /// `/proc/self/fd/N`; allocates.
    ///
    /// # Errors
    /// `ENOENT` where `/proc` is not mounted, `EMFILE`.
    pub fn read_only_fd(&self) -> Result<OwnedFd, OsError> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(OsError::of("open(/proc/self/fd)"))
    }

    /// From here on nobody gets write access to the memory who does not have it
    /// mapped already: neither by mmap(2) and mprotect(2) nor by write(2), with
    /// whichever descriptor. Mappings that exist, this one among them, stay as
    /// they are. `F_SEAL_FUTURE_WRITE`, Linux 5.1. Done once or often, it is the same.
    ///
    /// # Errors
    /// `EPERM` if the memory comes from [`SharedMapping::create`], or if someone who
    /// was handed its descriptor has forbidden further seals: then it is not to be
    /// relied on. `EINVAL` before Linux 5.1.
    pub fn seal_future_writes(&self) -> Result<(), OsError> {
        match rustix::fs::fcntl_add_seals(&self.fd, SEALS_FUTURE_WRITE) {
            Ok(()) => Ok(()),
            Err(Errno::PERM) if seals(self.fd())?.contains(SEALS_FUTURE_WRITE) => Ok(()),
            Err(errno) => Err(OsError::of("fcntl(F_SEAL_FUTURE_WRITE)")(errno)),
        }
    }

    /// Keeps the pages in memory until they are unmapped (mlock2(2)): those that were
    /// faulted in when mapped from now on, each other from when it is touched.
    ///
    /// # Errors
    /// `EPERM` or `ENOMEM` if `RLIMIT_MEMLOCK` is 0 or too little, without
    /// `CAP_IPC_LOCK`. The mapping is as good as before: it may be slow.
    pub fn lock(&self) -> Result<(), OsError> {
        self.pages.lock()
    }

    /// Leaves the pages out of children that fork(2) makes from now on: they can
    /// neither read nor write them (`MADV_DONTFORK`, madvise(2)); a touch is SIGSEGV.
    ///
    /// Whoever calls fork, which is unsafe, must see to it that the child neither
    /// uses nor drops this value: something else may lie there by then. Children
    /// that go on to exec do neither.
    ///
    /// # Errors
    /// None that stock Linux is known to return.
    pub fn dont_fork(&self) -> Result<(), OsError> {
        self.pages.dont_fork()
    }

    /// Start of the memory, page aligned, valid as long as `self`.
    pub fn as_ptr(&self) -> *const AtomicU64 {
        self.pages.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// The memory as words. Other processes may change them at any time: copy
    /// a value once, then check it.
    pub fn words(&self) -> &[AtomicU64] {
        self.pages.words()
    }

    /// Maps `fd`, known to be at least `bytes` long for ever.
    fn map(fd: OwnedFd, bytes: usize) -> Result<SharedMapping, MapError> {
        let pages = Pages::map(fd.as_fd(), bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(SharedMapping { pages, fd })
    }
}

impl AsRef<[AtomicU64]> for SharedMapping {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

/// Whether `fd` is a file of `bytes` that will always be so long.
fn check_file(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), MapError> {
    // Seals first: until they are known to be there, the size can change.
    if !seals(fd)?.contains(SEALS_NEEDED) {
        return Err(MapError::Unsealed);
    }
    let found = rustix::fs::fstat(fd).map_err(OsError::of("fstat"))?.st_size;
    if u64::try_from(found) != Ok(bytes as u64) {
        return Err(MapError::Size { found, expected: bytes });
    }
    Ok(())
}

/// The seals of a file; none if it is one that cannot be sealed.
fn seals(fd: BorrowedFd<'_>) -> Result<SealFlags, OsError> {
    match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => Ok(seals),
        Err(Errno::INVAL) => Ok(SealFlags::empty()),
        Err(errno) => Err(OsError::of("fcntl(F_GET_SEALS)")(errno)),
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
#[derive(Clone, Copy, PartialEq, Eq)]
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
                "shared memory is not sealed; expected a memfd with F_SEAL_SHRINK and F_SEAL_GROW",
            ),
            MapError::Size { found, expected } => {
                write!(f, "shared memory has {found} bytes, expected {expected}")
            }
            MapError::Os(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for MapError {
    /// The sentence: `main` prints the `Debug` of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MapError::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for MapError {
    fn from(error: OsError) -> Self {
        MapError::Os(error)
    }
}
