//! The seals of a shared memfd, and the checks before it is mapped.

use super::error::MapError;
use crate::OsError;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Seals that a file needs before it is mapped, so that its size stays the same. A seal cannot be
/// removed, so `F_SEAL_SEAL` is not needed here.
pub(super) const SEALS_NEEDED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// No process gets write access from now on, and no process adds a seal.
pub(super) const SEALS_FUTURE_WRITE: SealFlags = SealFlags::FUTURE_WRITE.union(SealFlags::SEAL);

/// Checks that `fd` is a file of `bytes` whose size can never change.
pub(super) fn check_file(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), MapError> {
    // Seals first, because the size can change until the seals are known to be set.
    if !seals(fd)?.contains(SEALS_NEEDED) {
        return Err(MapError::Unsealed);
    }
    let found = rustix::fs::fstat(fd).map_err(OsError::of("fstat"))?.st_size;
    if u64::try_from(found) != Ok(bytes as u64) {
        return Err(MapError::Size { found, expected: bytes });
    }
    Ok(())
}

/// The seals of a file; empty for a file that cannot be sealed.
pub(super) fn seals(fd: BorrowedFd<'_>) -> Result<SealFlags, OsError> {
    match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => Ok(seals),
        Err(Errno::INVAL) => Ok(SealFlags::empty()),
        Err(errno) => Err(OsError::of("fcntl(F_GET_SEALS)")(errno)),
    }
}

/// A memfd that can be sealed and, since Linux 6.3, never executed. Some systems refuse an
/// executable memfd (`vm.memfd_noexec`).
pub(super) fn memfd(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        result => result,
    }
}

/// Checks for at least one whole word, and for a size that the kernel can express.
pub(super) fn check_length(bytes: usize) -> Result<(), MapError> {
    if bytes == 0 || !bytes.is_multiple_of(8) || i64::try_from(bytes).is_err() {
        return Err(MapError::Length { found: bytes });
    }
    Ok(())
}
