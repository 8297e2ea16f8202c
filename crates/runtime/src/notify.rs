//! How other threads notify an executor.
//!
//! A [`Notifier`] holds a word that is a flag and a futex at once. The executor reads it between
//! two quanta with a plain load, and sleeps on it as a futex. A controller puts a message into a
//! ring of the executor and then notifies it. Only the executor acknowledges.
//!
//! A notifier is one of two kinds:
//!
//! - private: the word belongs to this process, and no daemon takes part;
//! - shared: the word is the wake word of the domain in the turn page of a CPU. Peer domains
//!   notify it too, when they pass the turn on. Threads of this process reach it through a
//!   [`WakeHandle`], the executor itself through its [`SharedNotifier`].

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use upcall_core::time::Instant;
use upcall_shm::DomainId;
use upcall_shm::turn_page::TurnPage;
use upcall_shm::wake_word::{ASLEEP, WakeWord};
use upcall_sys::futex::{self, WaitSet};
use upcall_sys::memfd::SharedMapping;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    /// The wake word of a private notifier.
    word: AtomicU32,
    /// `Some` if the notifier is shared: it is then used instead of the word. The executor
    /// acknowledges at its virtual processor.
    shared: Option<WakeHandle>,
}

impl Notifier {
    /// The notifier of an executor that runs among other domains.
    pub(crate) fn shared(handle: WakeHandle) -> Self {
        Notifier { word: AtomicU32::default(), shared: Some(handle) }
    }

    /// Notifies the executor. From any thread; one system call if the executor sleeps.
    pub(crate) fn notify(&self) {
        match &self.shared {
            Some(handle) => handle.notify(),
            // A message that was put into the ring before is seen by the thread that acknowledges
            // the notification (`WakeWord::notify`).
            None if WakeWord::new(&self.word).notify() => {
                futex::wake(&self.word, 1);
            }
            None => {}
        }
    }

    /// Whether there is a notification. One load; a few more if the notifier is shared. Does not
    /// wait.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        match &self.shared {
            Some(handle) => handle.is_notified(),
            None => WakeWord::new(&self.word).is_notified(),
        }
    }

    /// Takes the notification. Returns whether there was one since the last time. Only for a
    /// private notifier.
    pub(crate) fn acknowledge(&self) -> bool {
        self.is_notified() && WakeWord::new(&self.word).acknowledge()
    }

    /// Sleeps until a notification or `deadline`. Returns at once if there is a notification
    /// already, and may return early. Only for a private notifier.
    pub(crate) fn sleep_until(&self, deadline: Option<Instant>) {
        self.sleep_while(|word| {
            let _ = futex::wait_until(word, ASLEEP, deadline.map(Instant::as_nanos));
        });
    }

    /// Like [`Notifier::sleep_until`], but also wakes when a word of `others` changes. Adds its own
    /// word to `others`.
    pub(crate) fn sleep_among<'a>(&'a self, others: &mut WaitSet<'a>, deadline: Option<Instant>) {
        self.sleep_while(|word| {
            others.add_private(word, ASLEEP);
            let _ = others.wait_until(deadline.map(Instant::as_nanos));
        });
    }

    fn sleep_while<'a>(&'a self, sleep: impl FnOnce(&'a AtomicU32)) {
        let wake_word = WakeWord::new(&self.word);
        if wake_word.prepare_wait() {
            // Whatever ends the wait, the caller checks the clock and the word again. A
            // notification stays in the word until `acknowledge` takes it.
            sleep(&self.word);
            wake_word.cancel_wait();
        }
    }
}

/// The wake word of a domain on a CPU. Notifies and acknowledges the domain there.
#[derive(Clone, Debug)]
pub(crate) struct SharedNotifier {
    page: Arc<TurnPage<SharedMapping>>,
    domain: DomainId,
}

impl SharedNotifier {
    pub(crate) fn new(page: Arc<TurnPage<SharedMapping>>, domain: DomainId) -> Self {
        SharedNotifier { page, domain }
    }

    /// From any thread of this process; a system call if the executor sleeps. The domain that has
    /// the turn lets the woken executor run at its next boundary (docs/decisions/0017).
    pub(crate) fn notify(&self) {
        let wake_word = self.page.wake_word(self.domain);
        if wake_word.notify() {
            // Before the wake-up: this thread may lose its CPU right after it. If no domain has
            // the turn, the woken executor runs at once and tells the daemon.
            let _ = self.page.set_need_resched();
            futex::wake_shared(wake_word.word(), 1);
        }
    }

    /// Whether there is a notification. A load.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        self.page.wake_word(self.domain).is_notified()
    }

    /// Takes the notification. For the executor alone.
    pub(crate) fn acknowledge(&self) -> bool {
        self.page.wake_word(self.domain).acknowledge()
    }
}

/// The handle by which other threads of this process find the wake word of an executor. The word
/// moves to another turn page when the daemon was started again.
///
/// The executor itself does not use the handle in an upcall or a hand-off, and so never waits for
/// its lock. It uses the [`SharedNotifier`] of its virtual processor.
#[derive(Clone, Debug)]
pub(crate) struct WakeHandle(Arc<Target>);

#[derive(Debug)]
struct Target {
    notifier: RwLock<SharedNotifier>,
    /// Whether a message was left for the executor. A peer that passes the turn notifies the same
    /// word, but leaves no message.
    has_message: AtomicBool,
}

impl WakeHandle {
    pub(crate) fn new(notifier: SharedNotifier) -> Self {
        let (notifier, has_message) = (RwLock::new(notifier), AtomicBool::new(false));
        WakeHandle(Arc::new(Target { notifier, has_message }))
    }

    /// Marks that a message was left for the executor. The caller notifies the executor after it.
    pub(crate) fn mark_message(&self) {
        // Release pairs with the Acquire in `take_message`. An exchange: if two threads mark
        // before the executor takes the mark, the executor sees what both did before.
        self.0.has_message.swap(true, Ordering::Release);
    }

    /// Whether a message was left. For the executor, after it acknowledged a notification. A load
    /// if there is none. A mark that this call misses is followed by another notification.
    #[inline]
    pub(crate) fn take_message(&self) -> bool {
        // Relaxed: only spares the swap. The mark of the thread whose notification was
        // acknowledged is seen (`WakeWord::notify`). Acquire pairs with the Release in
        // `mark_message`.
        self.0.has_message.load(Ordering::Relaxed)
            && self.0.has_message.swap(false, Ordering::Acquire)
    }

    /// Marks a message, and then notifies as [`SharedNotifier::notify`] does.
    ///
    /// The executor sees all messages that were left before, even if this call notifies the old
    /// word. This call holds the lock while it notifies. So [`WakeHandle::move_to`] ends after the
    /// notification of the old word, and the executor gets its new virtual processor later still.
    pub(crate) fn notify(&self) {
        self.mark_message();
        self.0.notifier.read().unwrap_or_else(PoisonError::into_inner).notify();
    }

    /// As [`SharedNotifier::is_notified`]. `false` while the handle is being moved: a notification
    /// follows the move. Does not wait.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        self.0.notifier.try_read().is_ok_and(|notifier| notifier.is_notified())
    }

    /// From now on the handle notifies `notifier`. Call it before the new virtual processor is
    /// handed over, and notify the old word after that.
    pub(crate) fn move_to(&self, notifier: SharedNotifier) {
        *self.0.notifier.write().unwrap_or_else(PoisonError::into_inner) = notifier;
    }
}

/// Notifies the executor of `domain`. One system call if it sleeps.
pub(crate) fn notify_domain(page: &TurnPage<SharedMapping>, domain: DomainId) {
    let wake_word = page.wake_word(domain);
    if wake_word.notify() {
        futex::wake_shared(wake_word.word(), 1);
    }
}
