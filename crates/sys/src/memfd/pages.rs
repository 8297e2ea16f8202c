//! Pages of a memfd, mapped until dropped: what both kinds of mapping are made of.

use crate::OsError;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// Whole words of a file, mapped shared.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the pages belong to the mapping and not to a thread, and all access
// through it is atomic (`words`).
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps the first `bytes` of `fd`, which the caller knows to be at least that
    /// long for ever ([`super::check_file`]). Readable at least: `protection`
    /// contains `READ`.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        bytes: usize,
        protection: ProtFlags,
    ) -> Result<Pages, OsError> {
        // Populated, so that no page fault comes when it is used.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place the kernel chooses changes no
        // memory that exists.
        let start =
            unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, protection, flags, fd, 0) }
                .map_err(OsError::of("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(OsError::new("mmap", libc::ENOMEM))?;
        Ok(Pages { start, bytes })
    }

    pub(super) fn as_ptr(&self) -> *const AtomicU64 {
        self.start.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `map` made `start` the start of `bytes` readable bytes, page
        // aligned and hence aligned for a word, that stay mapped until `drop`,
        // which needs `self` back. The file cannot be shortened
        // (`super::SEALS_NEEDED`), so no page disappears. Every bit pattern is
        // an AtomicU64. The only access this room gives is through this slice,
        // and another process is to the hardware one more thread: its stores
        // race with atomic loads, which is defined. Where the pages may not be
        // written, see `super::ReadOnlyMapping::words`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }

    pub(super) fn lock(&self) -> Result<(), OsError> {
        // SAFETY: exactly what `map` mapped; where the pages lie changes
        // nothing about what they hold.
        unsafe { rustix::mm::mlock(self.start.as_ptr().cast(), self.bytes) }
            .map_err(OsError::of("mlock"))
    }

    pub(super) fn dont_fork(&self) -> Result<(), OsError> {
        // SAFETY: exactly what `map` mapped. It changes nothing in this
        // process. In a copy of it the references from `words` dangle, which is
        // the business of whoever calls fork (an unsafe function): see
        // `super::SharedMapping::dont_fork`.
        unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxDontFork)
        }
        .map_err(OsError::of("madvise(MADV_DONTFORK)"))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; references from `words` borrow
        // `self` and are gone. It cannot fail for a mapping that exists.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
