//! Pages of a memfd, mapped until dropped. Both kinds of mapping contain them.

use crate::OsError;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::mm::{Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// Bytes that [`Pages::map`] faults in.
const POPULATED_BYTES: usize = 8192;

/// Whole words of a file, in a shared mapping.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the pages belong to the mapping and not to a thread. All access through the mapping is
// atomic (`words`).
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps the first `bytes` of `fd`. The caller has checked that the file is at least that long
    /// for ever ([`super::seals::check_file`]). `protection` must contain `READ`.
    ///
    /// The first [`POPULATED_BYTES`] are faulted in, so that using them causes no page fault. The
    /// rest takes memory when it is first touched, also in a process that has locked all its memory
    /// (mlockall(2)). For that the function maps the rest without access and then opens it: only
    /// mappings without access are exempt from being faulted in.
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
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let start = unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, first, flags, fd, 0) }
            .map_err(OsError::of("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(OsError::new("mmap", libc::ENOMEM))?;
        let pages = Pages { start, bytes };
        if bytes > POPULATED_BYTES {
            pages.open(fd, protection, populated | MapFlags::FIXED)?;
        }
        Ok(pages)
    }

    /// Gives `protection` to pages that were mapped without access. There are more than
    /// [`POPULATED_BYTES`].
    fn open(
        &self,
        fd: BorrowedFd<'_>,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<(), OsError> {
        let start = self.start.as_ptr().cast::<core::ffi::c_void>();
        // SAFETY: replaces the first pages of the mapping that `map` has just made, which is
        // longer, by the same pages of the same file. No reference to them exists yet.
        unsafe { rustix::mm::mmap(start, POPULATED_BYTES, protection, flags, fd, 0) }
            .map_err(OsError::of("mmap"))?;
        let rest = MprotectFlags::from_bits_truncate(protection.bits());
        // SAFETY: the range is the part of the mapping after `POPULATED_BYTES`. Only pages that
        // could not be accessed change.
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
        // SAFETY: `map` made `start` the start of `bytes` readable bytes. They are page aligned,
        // and so aligned for a word. They stay mapped until `drop`, which needs `self` back. The
        // file cannot be shortened (`super::seals::SEALS_NEEDED`), so no page disappears. Every bit
        // pattern is a valid AtomicU64. This crate accesses the pages only through this slice.
        // Another process acts like one more thread: its stores race with atomic loads, which is
        // defined. For pages that may not be written, see `super::ReadOnlyMapping::words`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }

    pub(super) fn lock(&self) -> Result<(), OsError> {
        let start = self.start.as_ptr().cast();
        // SAFETY: exactly the range that `map` mapped. Locking does not change its content.
        unsafe { rustix::mm::mlock_with(start, self.bytes, MlockFlags::ONFAULT) }
            .map_err(OsError::of("mlock2"))
    }

    pub(super) fn dont_fork(&self) -> Result<(), OsError> {
        // SAFETY: exactly the range that `map` mapped. The call changes nothing in this process. In
        // a forked copy the references from `words` dangle. The caller of fork (an unsafe function)
        // must handle that: see `super::SharedMapping::dont_fork`.
        unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxDontFork)
        }
        .map_err(OsError::of("madvise(MADV_DONTFORK)"))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped. References from `words` borrow `self` and
        // are gone. The call cannot fail for an existing mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
