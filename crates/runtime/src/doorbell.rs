//! How other threads get the attention of an executive.
//!
//! A word that is both a flag the executive looks at between quanta (a plain
//! load) and a futex it sleeps on. Rung by controllers after they put a message
//! into the executive's ring; answered by the executive only. Among the domains
//! of a daemon the word is the bell in the turn page, which is also rung by who
//! passes the turn on.

use core::sync::atomic::{AtomicU32, Ordering};
use upcall_core::time::Instant;
use upcall_sys::futex;

use crate::seat::Bell;

const SILENT: u32 = 0;
const RUNG: u32 = 1;
/// Silent, and the executive sleeps on it or is about to.
const ASLEEP: u32 = 2;

/// See the module's head.
#[derive(Debug)]
pub(crate) enum Doorbell {
    /// Within one process.
    Own(AtomicU32),
    /// Among domains.
    Shared(Bell),
}

impl Default for Doorbell {
    fn default() -> Self {
        Doorbell::Own(AtomicU32::new(SILENT))
    }
}

impl Doorbell {
    /// Asks for attention. From any thread; one system call if the executive sleeps.
    pub(crate) fn ring(&self) {
        match self {
            // Release: what was put into the ring before is seen by whoever
            // acquires the word in `answer`.
            Doorbell::Own(word) if word.swap(RUNG, Ordering::Release) == ASLEEP => {
                futex::wake(word, 1);
            }
            Doorbell::Own(_) => {}
            Doorbell::Shared(bell) => bell.ring(),
        }
    }

    /// Whether somebody wants attention. A load; wait-free.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        match self {
            // Relaxed: only decides whether to look; `answer` synchronises.
            Doorbell::Own(word) => word.load(Ordering::Relaxed) == RUNG,
            Doorbell::Shared(bell) => bell.is_rung(),
        }
    }

    /// Takes note: `true` if it was rung since the last time.
    pub(crate) fn answer(&self) -> bool {
        match self {
            // Acquire pairs with the Release in `ring`.
            Doorbell::Own(word) => self.is_rung() && word.swap(SILENT, Ordering::Acquire) == RUNG,
            Doorbell::Shared(bell) => bell.answer(),
        }
    }

    /// Sleeps until it is rung or `deadline` has come. Returns at once if it is
    /// rung already, and may return early. `true`: it was rung and that was taken
    /// note of, as by [`Doorbell::answer`].
    pub(crate) fn sleep_until(&self, deadline: Option<Instant>) -> bool {
        let deadline_ns = deadline.map(Instant::as_nanos);
        match self {
            Doorbell::Own(word) => {
                // Relaxed, both exchanges: a bell that was rung stays so until `answer`
                // acquires it. Who rings between the first and the wait changes the word,
                // and the kernel does not put to sleep.
                let relaxed = Ordering::Relaxed;
                if word.compare_exchange(SILENT, ASLEEP, relaxed, relaxed).is_ok() {
                    // Whatever ends the wait, the caller looks at clock and bell again.
                    let _ = futex::wait_until(word, ASLEEP, deadline_ns);
                    let _ = word.compare_exchange(ASLEEP, SILENT, relaxed, relaxed);
                }
                false
            }
            Doorbell::Shared(bell) => bell.sleep_until(deadline_ns),
        }
    }
}
