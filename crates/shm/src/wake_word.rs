//! The wake word: one atomic word by which threads notify another thread, awake or asleep.
//!
//! Each wake word has one *waiter* and any number of *notifying threads*. An awake waiter loads the
//! word now and then. A waiter with nothing to do sleeps on the word, which is also a futex. The
//! turn page has a wake word for each domain, a channel one for each taker, and the page of I/O
//! events one for its client. The runtime uses the same word, with 32 bits, between threads of a
//! process. No function here makes a system call. All of them are wait-free.
//!
//! ```text
//!                notify (1)             acknowledge or finish_wait (2)
//!       IDLE -----------------> NOTIFIED -----------------------------> IDLE
//!       |  ^                        ^
//!       |  | cancel_wait or         | notify: the caller wakes
//!       |  | finish_wait (5)        | the waiter (3)
//!       v  |                        |
//!      ASLEEP ----------------------+
//!   prepare_wait (4)
//! ```
//!
//! 1. Release. The waiter is awake, so the notifying thread makes no system call.
//! 2. Acquire, pairs with the Release of (1) and (3). The waiter sees all that the notifying thread
//!    stored before it called `notify`. `notify` is an exchange, and exchanges of one word form a
//!    release sequence. A waiter that sees the second of two notifications therefore also sees what
//!    the first notifying thread stored.
//! 3. Release, as (1). The notifying thread wakes one waiter of the futex.
//! 4. Relaxed. The waiter then sleeps while the word is `ASLEEP`. All changes are exchanges of one
//!    word, so they have one order. Either `notify` comes first and `prepare_wait` fails, or
//!    `notify` finds `ASLEEP` and its caller wakes the waiter. A notification between
//!    `prepare_wait` and the sleep changes the word, so the kernel does not let the waiter sleep.
//! 5. The waiter is awake, notified or not. `cancel_wait` (Relaxed) leaves a notification to be
//!    acknowledged. `finish_wait` (Acquire, as (2)) also acknowledges it, in one exchange.
//!
//! A faulty peer may store any other value. `notify` treats it as `ASLEEP`, and `acknowledge`
//! treats it as `NOTIFIED`. `prepare_wait` fails. `notify`, `acknowledge` and `finish_wait` replace
//! the value by a state.
//!
//! The wait word of a stream has other states. The head of `stream/wake.rs` explains why.

use crate::edge::{Edge, ordering};
use crate::{AtomicU32, AtomicU64, Ordering};
use Ordering::{Acquire, Relaxed, Release};

#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// No notification is pending, and the waiter is awake.
const IDLE: u32 = 0;
/// A notification is pending.
const NOTIFIED: u32 = 1;
/// The waiter sleeps on the word, or is about to. The futex call compares with this value.
pub const ASLEEP: u32 = 2;

/// The atomic integer of a wake word: 64 bits in shared memory, 32 bits within one process.
pub trait AtomicState: sealed::Sealed {
    /// Loads the value, Relaxed.
    fn load_relaxed(&self) -> u64;
    /// Stores `state` and returns the value before it.
    fn exchange(&self, state: u32, order: Ordering) -> u64;
    /// Replaces `from` by `to`, Relaxed. `false` if the value was another one.
    fn replace(&self, from: u32, to: u32) -> bool;
}

mod sealed {
    /// Implemented by the two integers of this module alone.
    pub trait Sealed {}
    impl Sealed for crate::AtomicU32 {}
    impl Sealed for crate::AtomicU64 {}
}

impl AtomicState for AtomicU32 {
    #[inline]
    fn load_relaxed(&self) -> u64 {
        self.load(Relaxed).into()
    }

    #[inline]
    fn exchange(&self, state: u32, order: Ordering) -> u64 {
        self.swap(state, order).into()
    }

    #[inline]
    fn replace(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
    }
}

impl AtomicState for AtomicU64 {
    #[inline]
    fn load_relaxed(&self) -> u64 {
        self.load(Relaxed)
    }

    #[inline]
    fn exchange(&self, state: u32, order: Ordering) -> u64 {
        self.swap(state.into(), order)
    }

    #[inline]
    fn replace(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from.into(), to.into(), Relaxed, Relaxed).is_ok()
    }
}

/// A view of a wake word; see the [module's head](self). The word is 0 at first.
#[derive(Debug)]
pub struct WakeWord<'a, A = AtomicU64>(&'a A);

impl<'a, A: AtomicState> WakeWord<'a, A> {
    /// A view of the wake word in `word`.
    #[inline]
    pub const fn new(word: &'a A) -> Self {
        WakeWord(word)
    }

    /// Notifies the waiter. Returns `true` if it sleeps: the caller must then wake one waiter of
    /// the futex. For any thread. Costs one exchange.
    #[inline]
    #[must_use = "a sleeping waiter must be woken"]
    pub fn notify(&self) -> bool {
        // Release pairs with the Acquire in `take_state`.
        let before = self.0.exchange(NOTIFIED, ordering(Edge::WakeNotify, Release));
        before != IDLE.into() && before != NOTIFIED.into()
    }

    /// Whether a notification is pending. For a waiter that is awake. Costs one load.
    #[inline]
    pub fn is_notified(&self) -> bool {
        // Relaxed: only decides whether to look. `take_state` synchronises.
        self.0.load_relaxed() != IDLE.into()
    }

    /// Whether the waiter sleeps, or is about to. For any thread. Costs one load.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        // Relaxed: the answer may be out of date as soon as it is given.
        self.0.load_relaxed() == ASLEEP.into()
    }

    /// Whether the waiter was notified and has not looked yet. For any thread. Costs one load.
    #[inline]
    pub fn is_pending(&self) -> bool {
        // Relaxed: the answer may be out of date as soon as it is given.
        self.0.load_relaxed() == NOTIFIED.into()
    }

    /// Takes the notification, if one is pending. Returns `true` if one was: the waiter then looks
    /// for its cause. For a waiter that is awake. Costs one load if no notification is pending,
    /// otherwise also an exchange.
    #[inline]
    pub fn acknowledge(&self) -> bool {
        self.is_notified() && self.take_state() != IDLE.into()
    }

    /// Whether the waiter may sleep now. Then it sleeps while the word is [`ASLEEP`]. After this
    /// call the waiter calls [`Self::cancel_wait`] or [`Self::finish_wait`], whether or not it
    /// slept.
    #[inline]
    #[must_use = "the waiter must not sleep while a notification is pending"]
    pub fn prepare_wait(&self) -> bool {
        // Relaxed: a notification stays until `take_state` acquires it.
        self.0.replace(IDLE, ASLEEP)
    }

    /// Ends a wait, after a sleep or instead of it. A notification stays to be acknowledged.
    #[inline]
    pub fn cancel_wait(&self) {
        // Relaxed: as in `prepare_wait`. It fails if the waiter was notified.
        self.0.replace(ASLEEP, IDLE);
    }

    /// Ends a wait, after a sleep or instead of it, and acknowledges. Returns `true` if the waiter
    /// was notified. Costs one exchange.
    #[inline]
    pub fn finish_wait(&self) -> bool {
        self.take_state() == NOTIFIED.into()
    }

    /// The word itself: the futex. Its low half, of 64 bits, is [`ASLEEP`] while the waiter sleeps.
    #[inline]
    pub const fn word(&self) -> &'a A {
        self.0
    }

    #[inline]
    fn take_state(&self) -> u64 {
        // Acquire pairs with the Release in `notify`.
        self.0.exchange(IDLE, ordering(Edge::WakeAcknowledge, Acquire))
    }
}
