//! How other threads get the attention of an executor.
//!
//! A word that is both a flag the executor looks at between quanta (a plain
//! load) and a futex it sleeps on. Rung by controllers after they put a message
//! into the executor's ring; answered by the executor only. Among the domains
//! of a daemon the word is the bell in the turn page, which is also rung by who
//! passes the turn on.

use core::sync::atomic::AtomicU32;
use upcall_core::time::Instant;
use upcall_shm::wake_word::{ASLEEP, WakeWord};
use upcall_sys::futex::{self, WaitSet};

use crate::virtual_processor::Line;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    /// Within one process.
    word: AtomicU32,
    /// Among domains: rung instead. The executor answers at its virtual processor.
    line: Option<Line>,
}

impl Doorbell {
    /// Of an executor among domains.
    pub(crate) fn among_domains(line: Line) -> Self {
        Doorbell { word: AtomicU32::new(0), line: Some(line) }
    }

    /// Asks for attention. From any thread; one system call if the executor sleeps.
    pub(crate) fn notify(&self) {
        match &self.line {
            Some(line) => line.notify(),
            // What was put into the ring before is seen after `acknowledge`.
            None if WakeWord::new(&self.word).notify() => {
                futex::wake(&self.word, 1);
            }
            None => {}
        }
    }

    /// Whether somebody wants attention. A load, among domains a few more; does not wait.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        match &self.line {
            Some(line) => line.is_notified(),
            None => WakeWord::new(&self.word).is_notified(),
        }
    }

    /// Takes note: `true` if it was rung since the last time. Within one process.
    pub(crate) fn acknowledge(&self) -> bool {
        WakeWord::new(&self.word).acknowledge()
    }

    /// Sleeps until it is rung or `deadline` has come. Returns at once if it is
    /// rung already, and may return early. Within one process.
    pub(crate) fn sleep_until(&self, deadline: Option<Instant>) {
        self.sleep_while(|word| {
            let _ = futex::wait_until(word, ASLEEP, deadline.map(Instant::as_nanos));
        });
    }

    /// As [`Doorbell::sleep_until`], or until a word of `others` changes. Its own is then among them.
    pub(crate) fn sleep_among<'a>(&'a self, others: &mut WaitSet<'a>, deadline: Option<Instant>) {
        self.sleep_while(|word| {
            others.add_private(word, ASLEEP);
            let _ = others.wait_until(deadline.map(Instant::as_nanos));
        });
    }

    fn sleep_while<'a>(&'a self, sleep: impl FnOnce(&'a AtomicU32)) {
        let wake_word = WakeWord::new(&self.word);
        if wake_word.prepare_wait() {
            // Whatever ends the wait, the caller looks at clock and bell again.
            sleep(&self.word);
            wake_word.cancel_wait();
        }
    }
}
