//! The wake word in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering and each exchange is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release wake_word`

use super::*;
use crate::edge::{check, check_up_to, each_breaks};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};
use std::panic::catch_unwind;
use std::sync::Arc;

/// A wake word, its futex, and what two notifying threads store before they notify.
struct Shared {
    state: AtomicU64,
    /// The waiter compares the word and begins to wait in one step, as in the kernel.
    futex: (Mutex<()>, Condvar),
    data: [AtomicU64; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Shared { state: zero(), futex: Default::default(), data: [zero(), zero()] })
    }

    fn word(&self) -> WakeWord<'_> {
        WakeWord::new(&self.state)
    }

    /// Starts a notifying thread. It stores its data, calls `notify`, and wakes the waiter if
    /// `notify` says so.
    fn notifier(self: &Arc<Self>, at: usize, notify: fn(&Self) -> bool) -> JoinHandle<()> {
        let shared = self.clone();
        thread::spawn(move || {
            shared.data[at].store(1, Relaxed);
            if notify(&shared) {
                let _guard = shared.futex.0.lock().unwrap();
                shared.futex.1.notify_one();
            }
        })
    }

    fn sleep(&self) {
        let guard = self.futex.0.lock().unwrap();
        if self.word().is_asleep() {
            drop(self.futex.1.wait(guard).unwrap());
        }
    }

    fn is_stored(&self, at: usize) -> bool {
        self.data[at].load(Relaxed) == 1
    }
}

fn notify(shared: &Shared) -> bool {
    shared.word().notify()
}

/// The waiter sleeps until it finds the data, and ends each wait with `finish_wait`.
fn sleep_and_finish() {
    let shared = Shared::new();
    let notifier = shared.notifier(0, notify);
    while !shared.is_stored(0) {
        if shared.word().prepare_wait() {
            shared.sleep();
        }
        let is_notified = shared.word().finish_wait();
        assert!(!is_notified || shared.is_stored(0), "acknowledged too early");
    }
    notifier.join().unwrap();
}

/// The same with `cancel_wait` and `acknowledge`. It looks only if it was notified.
fn sleep_and_cancel_with(cancel: fn(&Shared)) {
    let shared = Shared::new();
    let notifier = shared.notifier(0, notify);
    loop {
        if shared.word().prepare_wait() {
            shared.sleep();
        }
        cancel(&shared);
        if shared.word().acknowledge() {
            assert!(shared.is_stored(0), "acknowledged too early");
            break;
        }
    }
    notifier.join().unwrap();
}

fn sleep_and_cancel() {
    sleep_and_cancel_with(|shared| shared.word().cancel_wait());
}

/// An awake waiter acknowledges, and then sees what was stored before the notification.
fn acknowledge_awake() {
    let shared = Shared::new();
    let notifier = shared.notifier(0, notify);
    if shared.word().acknowledge() {
        assert!(shared.is_stored(0), "acknowledged too early");
    }
    notifier.join().unwrap();
}

/// The second notification overwrites the first before the waiter acknowledges both.
fn two_notifiers_with(notify: fn(&Shared) -> bool) {
    let shared = Shared::new();
    let notifiers = [0, 1].map(|at| shared.notifier(at, notify));
    let (mut is_seen, mut looks) = ([false; 2], 0);
    while is_seen != [true; 2] {
        assert!(looks < 2, "a notification was lost");
        if shared.word().prepare_wait() {
            shared.sleep();
        }
        if shared.word().finish_wait() {
            looks += 1;
            is_seen = [0, 1].map(|at| shared.is_stored(at));
        }
    }
    for notifier in notifiers {
        notifier.join().unwrap();
    }
}

fn two_notifiers() {
    two_notifiers_with(notify);
}

/// A mutant: `notify` as a load and a store instead of one exchange.
fn notify_by_store() {
    two_notifiers_with(|shared| {
        let before = shared.state.load(Relaxed);
        shared.state.store(NOTIFIED.into(), Release);
        before == ASLEEP.into()
    });
}

/// A mutant: `cancel_wait` as a store. It overwrites a notification.
fn cancel_by_store() {
    sleep_and_cancel_with(|shared| shared.state.store(IDLE.into(), Relaxed));
}

/// A mutant: `prepare_wait` as a load and a store. It overwrites a notification.
fn prepare_by_store() {
    let shared = Shared::new();
    let notifier = shared.notifier(0, notify);
    while !shared.is_stored(0) {
        if shared.state.load(Relaxed) == IDLE.into() {
            shared.state.store(ASLEEP.into(), Relaxed);
            shared.sleep();
        }
        shared.word().finish_wait();
    }
    notifier.join().unwrap();
}

#[test]
fn no_notification_is_slept_through() {
    check(None, sleep_and_finish);
    check(None, sleep_and_cancel);
}

#[test]
fn an_acknowledged_notification_hands_over_what_was_stored_before() {
    check(None, acknowledge_awake);
    // Without a bound it passes too, in half a minute.
    check_up_to(3, two_notifiers);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::WakeNotify, acknowledge_awake, "acknowledged too early"),
        (Edge::WakeAcknowledge, acknowledge_awake, "acknowledged too early"),
        (Edge::WakeNotify, sleep_and_finish, "acknowledged too early"),
        (Edge::WakeAcknowledge, sleep_and_finish, "acknowledged too early"),
        (Edge::WakeNotify, sleep_and_cancel, "acknowledged too early"),
        (Edge::WakeAcknowledge, sleep_and_cancel, "acknowledged too early"),
    ]);
}

#[test]
fn no_exchange_can_be_a_load_and_a_store() {
    for (mutant, broken) in [
        (notify_by_store as fn(), "deadlock"),
        (cancel_by_store, "deadlock"),
        (prepare_by_store, "deadlock"),
    ] {
        let found = catch_unwind(|| check(None, mutant)).expect_err("loom found nothing");
        let text = found.downcast_ref::<String>().map(String::as_str);
        let text = text.or(found.downcast_ref::<&str>().copied()).unwrap_or("");
        assert!(text.contains(broken), "{text}");
    }
}
