//! How a thread waits for the other end of a stream, and wakes it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_shm::stream as shm;
use upcall_shm::stream::{End, WAITING};
use upcall_sys::{OsError, futex};

use super::memory::Memory;

thread_local! {
    /// Whether this thread shares its CPU with peer domains. If so, it yields after it wakes the
    /// other end of a stream.
    static AMONG_DOMAINS: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as an executor that shares its CPU with peer domains.
pub(crate) fn set_among_domains() {
    AMONG_DOMAINS.set(true);
}

/// Wakes the other end, which sleeps on `word`. One or two system calls.
pub(super) fn wake(word: &AtomicU64) {
    futex::wake_shared(word, 1);
    if AMONG_DOMAINS.get() {
        // The other end's domain may be on this CPU, at the same priority. It publishes its
        // state, asks for a scheduling decision, and sleeps again.
        std::thread::yield_now();
    }
}

/// Sleeps while `word` says that its end waits, at most until `deadline_ns`.
pub(super) fn sleep_on(word: &AtomicU64, deadline_ns: Option<u64>) {
    // The caller looks again, whatever ends the wait.
    let _ = futex::wait_shared_until(word, WAITING, deadline_ns);
}

/// Checks that the kernel lets a thread wait on several futexes.
pub(crate) fn check_kernel() -> Result<(), OsError> {
    futex::WaitSet::is_known()
}

/// Whether an end still waits on its word. A load.
pub(super) fn is_waiting(stream: &shm::Stream<Memory>, end: End) -> bool {
    // Relaxed: the value only decides whether to check the end. The end's `finish_wait`
    // synchronises.
    stream.wait_word(end).load(Ordering::Relaxed) == u64::from(WAITING)
}
