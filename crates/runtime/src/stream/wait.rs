//! How a thread waits for the other end of a stream, and wakes it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_shm::stream as shm;
use upcall_shm::stream::{End, WAITING};
use upcall_sys::{OsError, futex};

use super::memory::Memory;

thread_local! {
    /// Whether this thread shares its CPU with other domains, which it lets look by itself.
    static AMONG_DOMAINS: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread is an executor among the domains of a daemon.
pub(crate) fn set_among_domains() {
    AMONG_DOMAINS.set(true);
}

/// Wakes the other end, which sleeps on `bell`. A system call or two.
pub(super) fn wake(bell: &AtomicU64) {
    futex::wake_shared(bell, 1);
    if AMONG_DOMAINS.get() {
        // Its domain may be on this CPU, of the same priority: it shows what it has, and a
        // wish for a look, and sleeps again.
        std::thread::yield_now();
    }
}

/// Sleeps on `bell` while its end waits, or until `deadline_ns`.
pub(super) fn sleep_on(bell: &AtomicU64, deadline_ns: Option<u64>) {
    // Whatever ends the wait, the caller looks again.
    let _ = futex::wait_shared_until(bell, WAITING, deadline_ns);
}

/// Whether the kernel lets an executor sleep on several bells.
pub(crate) fn check_kernel() -> Result<(), OsError> {
    futex::WaitSet::is_known()
}

/// Whether an end still waits on its bell. A load.
pub(super) fn is_waiting(stream: &shm::Stream<Memory>, end: End) -> bool {
    // Relaxed: only decides whether to look; the end's `rouse` synchronises.
    stream.wait_word(end).load(Ordering::Relaxed) == u64::from(WAITING)
}
