//! The mapping of the quota page.

use crate::OsError;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// Bytes of the quota page: 1024 slots of 128 bytes. A test compares it with the program.
const BYTES: usize = 1024 * 128;

/// The quota page of one early drop, readable and writable, until dropped.
#[derive(Debug)]
pub struct QuotaPages {
    start: NonNull<AtomicU64>,
}

// SAFETY: the pages belong to the mapping and not to a thread. All access through the mapping is
// atomic (`words`).
unsafe impl Send for QuotaPages {}
// SAFETY: as above.
unsafe impl Sync for QuotaPages {}

impl QuotaPages {
    /// Maps the whole array `slots`, and faults it in. The kernel refuses a greater length than the
    /// array has.
    pub(super) fn map(slots: BorrowedFd<'_>) -> Result<QuotaPages, OsError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let start =
            unsafe { rustix::mm::mmap(core::ptr::null_mut(), BYTES, protection, flags, slots, 0) }
                .map_err(OsError::of("mmap(quota page)"))?;
        let start = NonNull::new(start.cast());
        Ok(QuotaPages { start: start.ok_or(OsError::new("mmap(quota page)", libc::ENOMEM))? })
    }

    /// The memory as words. The XDP program changes them at any time.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `map` made `start` the start of `BYTES` readable and writable bytes, page
        // aligned. They stay mapped until `drop`, which needs `self` back. The mapping keeps the
        // array alive, and an array map never shrinks. Every bit pattern is a valid AtomicU64. The
        // program acts like one more thread that accesses whole words atomically.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), BYTES / 8) }
    }
}

impl AsRef<[AtomicU64]> for QuotaPages {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl Drop for QuotaPages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped. References from `words` borrow `self` and
        // are gone. The call cannot fail for an existing mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), BYTES) };
    }
}
