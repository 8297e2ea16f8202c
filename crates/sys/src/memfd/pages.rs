//! Pages of a memfd, mapped until dropped. Both kinds of mapping contain them.

use crate::OsError;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::mm::{Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// Bytes that [`Pages::map`] faults in.
const POPULATED_BYTES: usize = 8192;
/// Bytes that [`Pages::populate`] faults in at a time. Other threads may change their mappings in
/// between.
const POPULATE_STEP_BYTES: usize = 1 << 18;
/// The smallest page of any target.
const PAGE_BYTES_MIN: usize = 4096;

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
        if bytes <= POPULATED_BYTES {
            return Pages::map_new(fd, bytes, protection, populated);
        }
        let pages = Pages::map_closed(fd, bytes)?;
        pages.open(fd, protection, populated | MapFlags::FIXED)?;
        Ok(pages)
    }

    /// As [`Pages::map`], without access. Makes no page. [`Pages::words`] must not be used before
    /// [`Pages::allow_all`].
    pub(super) fn map_closed(fd: BorrowedFd<'_>, bytes: usize) -> Result<Pages, OsError> {
        Pages::map_new(fd, bytes, ProtFlags::empty(), MapFlags::SHARED)
    }

    fn map_new(
        fd: BorrowedFd<'_>,
        bytes: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<Pages, OsError> {
        let any = core::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let start = unsafe { rustix::mm::mmap(any, bytes, protection, flags, fd, 0) }
            .map_err(OsError::of("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(OsError::new("mmap", libc::ENOMEM))?;
        Ok(Pages { start, bytes })
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
        self.allow_from(POPULATED_BYTES, protection)
    }

    /// Gives `protection` to all pages of [`Pages::map_closed`]. It must contain `READ`.
    pub(super) fn allow_all(&self, protection: ProtFlags) -> Result<(), OsError> {
        self.allow_from(0, protection)
    }

    fn allow_from(&self, from: usize, protection: ProtFlags) -> Result<(), OsError> {
        let flags = MprotectFlags::from_bits_truncate(protection.bits());
        let start = self.start.as_ptr().cast::<core::ffi::c_void>();
        // SAFETY: the range is the part of the mapping after `from`, which is less than its length
        // and a multiple of a page. Only pages that could not be accessed change.
        unsafe { rustix::mm::mprotect(start.byte_add(from), self.bytes - from, flags) }
            .map_err(OsError::of("mprotect"))
    }

    /// Whether the file has all pages in memory. Makes none. O(pages). Allocates.
    pub(super) fn are_all_made(&self) -> Result<bool, OsError> {
        // With longer pages the kernel leaves the rest as it is.
        let mut made = vec![1u8; self.bytes.div_ceil(PAGE_BYTES_MIN)];
        // SAFETY: exactly the range that `map` mapped, and a byte for each of its pages.
        let result = unsafe {
            libc::mincore(self.start.as_ptr().cast(), self.bytes, made.as_mut_ptr().cast())
        };
        if result != 0 {
            return Err(OsError::last("mincore"));
        }
        Ok(made.iter().all(|page| page & 1 == 1))
    }

    /// Faults all pages in for writing. O(pages).
    pub(super) fn populate(&self) -> Result<(), OsError> {
        for from in (0..self.bytes).step_by(POPULATE_STEP_BYTES) {
            let bytes = POPULATE_STEP_BYTES.min(self.bytes - from);
            // SAFETY: a part of the range that `map` mapped. The call changes no content.
            unsafe {
                let start = self.start.as_ptr().cast::<core::ffi::c_void>().byte_add(from);
                rustix::mm::madvise(start, bytes, Advice::LinuxPopulateWrite)
            }
            .map_err(OsError::of("madvise(MADV_POPULATE_WRITE)"))?;
        }
        Ok(())
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
