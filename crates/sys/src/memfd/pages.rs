//! Pages of a memfd, mapped until dropped: what both kinds of mapping are made of.

use crate::OsError;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::mm::{Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// What is faulted in when it is mapped; see [`Pages::map`].
const POPULATED_BYTES: usize = 8192;

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
    ///
    /// The first [`POPULATED_BYTES`] are faulted in, so that no page fault comes when
    /// they are used. What is beyond takes memory when it is touched first, also in a
    /// process that has all of its memory locked (mlockall(2)): it is mapped without access,
    /// since nothing else is exempt from being faulted in there, and then opened.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        bytes: usize,
        protection: ProtFlags,
    ) -> Result<Pages, OsError> {
        let populated = MapFlags::SHARED | MapFlags::POPULATE;
        let (first, flags) = match bytes > POPULATED_BYTES {
            true => (ProtFlags::empty(), MapFlags::SHARED),
            false => (protection, populated),
        };
        // SAFETY: a new mapping at a place the kernel chooses changes no
        // memory that exists.
        let start = unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, first, flags, fd, 0) }
            .map_err(OsError::of("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(OsError::new("mmap", libc::ENOMEM))?;
        let pages = Pages { start, bytes };
        if bytes > POPULATED_BYTES {
            pages.open(fd, protection, populated | MapFlags::FIXED)?;
        }
        Ok(pages)
    }

    /// Gives pages that were mapped without access, and more than are faulted in, what
    /// they are for.
    fn open(
        &self,
        fd: BorrowedFd<'_>,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<(), OsError> {
        let start = self.start.as_ptr().cast::<core::ffi::c_void>();
        // SAFETY: replaces the first pages of what `map` has just mapped, which is
        // longer, by the same pages of the same file. Nobody has a reference yet.
        unsafe { rustix::mm::mmap(start, POPULATED_BYTES, protection, flags, fd, 0) }
            .map_err(OsError::of("mmap"))?;
        let rest = MprotectFlags::from_bits_truncate(protection.bits());
        // SAFETY: within the mapping, of which `POPULATED_BYTES` is a part, and all else of
        // it; only what could not be touched changes.
        unsafe {
            let start = start.byte_add(POPULATED_BYTES);
            rustix::mm::mprotect(start, self.bytes - POPULATED_BYTES, rest)
        }
        .map_err(OsError::of("mprotect"))
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
        let start = self.start.as_ptr().cast();
        // SAFETY: exactly what `map` mapped; where the pages lie changes
        // nothing about what they hold.
        unsafe { rustix::mm::mlock_with(start, self.bytes, MlockFlags::ONFAULT) }
            .map_err(OsError::of("mlock2"))
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
