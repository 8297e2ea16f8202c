//! The page in which a reader records arrivals. The measuring process maps it too.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use upcall_sys::clock::monotonic_ns;
use upcall_sys::memfd::SharedMapping;

/// The number of samples that are kept: the last ones.
const SAMPLES_MAX: usize = 1 << 15;
/// Words of the page. The count and the state have cache lines of their own.
const COUNT: usize = 0;
const READY: usize = 8;
const SAMPLES: usize = 16;
const BYTES: usize = (SAMPLES + SAMPLES_MAX) * 8;

/// The page, in either process.
pub struct Log(SharedMapping);

impl Log {
    pub fn create() -> Self {
        Log(SharedMapping::create("upcall-bench", BYTES).expect("a page"))
    }

    /// Opens the page that another process created.
    pub fn open(path: &str) -> Self {
        Log(SharedMapping::from_fd(open(path), BYTES).expect("the page"))
    }

    /// The path for [`Log::open`].
    pub fn path(&self) -> String {
        path_of(&self.0.fd())
    }

    /// Records the arrival of a message that was sent at `since_ns`, or of a release that was due
    /// then.
    #[inline]
    pub fn arrived(&self, since_ns: u64) {
        let words = self.0.words();
        let nth = words[COUNT].load(Relaxed);
        words[SAMPLES + place(nth)].store(monotonic_ns().saturating_sub(since_ns), Relaxed);
        // With several readers one may lose a sample, but none loses a count. Pairs with `count`.
        words[COUNT].fetch_add(1, Release);
    }

    /// The number of arrivals.
    #[inline]
    pub fn count(&self) -> u64 {
        // Pairs with the Release in `arrived`.
        self.0.words()[COUNT].load(Acquire)
    }

    /// The lateness in ns of the arrivals after the first `from`, as far as samples are kept.
    pub fn late_ns(&self, from: u64) -> Vec<u64> {
        let count = self.count();
        let words: &[AtomicU64] = self.0.words();
        (from.max(count.saturating_sub(SAMPLES_MAX as u64))..count)
            .map(|nth| words[SAMPLES + place(nth)].load(Relaxed))
            .collect()
    }

    /// Reports that the reader is about to wait.
    pub fn set_ready(&self) {
        // Pairs with `is_ready`.
        self.0.words()[READY].store(1, Release);
    }

    pub fn is_ready(&self) -> bool {
        // Pairs with `set_ready`.
        self.0.words()[READY].load(Acquire) != 0
    }
}

fn place(nth: u64) -> usize {
    usize::try_from(nth).unwrap_or(0) % SAMPLES_MAX
}

/// The path at which another process finds a descriptor of this one.
pub fn path_of(fd: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}

/// Opens the file at `path` to read and write.
pub fn open(path: &str) -> OwnedFd {
    File::options().read(true).write(true).open(path).expect("the other process is there").into()
}
