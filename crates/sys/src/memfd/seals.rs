//! The seals of a memfd that is shared, and the checks before it is mapped.

use super::error::MapError;
use crate::OsError;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};

/// What a file must promise before it is mapped: its size stays. A seal cannot be
/// broken, so nothing need promise that these two stay.
pub(super) const SEALS_NEEDED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Nobody gets write access any more, and nobody adds a seal.
pub(super) const SEALS_FUTURE_WRITE: SealFlags = SealFlags::FUTURE_WRITE.union(SealFlags::SEAL);

/// Whether `fd` is a file of `bytes` that will always be so long.
pub(super) fn check_file(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), MapError> {
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
pub(super) fn seals(fd: BorrowedFd<'_>) -> Result<SealFlags, OsError> {
    match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => Ok(seals),
        Err(Errno::INVAL) => Ok(SealFlags::empty()),
        Err(errno) => Err(OsError::of("fcntl(F_GET_SEALS)")(errno)),
    }
}

/// A memfd that can be sealed and, where the kernel knows how (6.3), never
/// executed: some systems refuse others (`vm.memfd_noexec`).
pub(super) fn memfd(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        result => result,
    }
}

/// Whole words, at least one, and a size the kernel can express.
pub(super) fn check_length(bytes: usize) -> Result<(), MapError> {
    if bytes == 0 || !bytes.is_multiple_of(8) || i64::try_from(bytes).is_err() {
        return Err(MapError::Length { found: bytes });
    }
    Ok(())
}
