//! Bounds the CPU time that the domains of a user can make their group's KLS thread use.
//!
//! The turn page is shared with the domains. Any thread of theirs, also an ordinary one on another
//! CPU, can write the wake word of the KLS thread or the turn without end. The thread then makes
//! one pass of its loop after the other and finds nothing to do. Nobody is charged for that, and
//! the threads of ordinary class and the KLS threads of other users do not run.
//!
//! ```text
//!   woken at once -- (1) too much CPU time --> slowed -- (2) the span is over --> woken at once
//! ```
//!
//! 1. The CPU time of the thread is above a fifth of the CPU and what admission counts for
//!    hand-offs of the group's domains. The excess is [`EXCESS_MAX`].
//!    The turn page no longer wakes the thread. It makes [`SLOW_PASSES_MAX`] passes, and then
//!    sleeps for [`SLOW_INTERVAL`], until the next release, or until a thread of the daemon wakes
//!    it by a word that no domain can write. The watchdog reports an offence of the group's
//!    domains: it cannot know which of them, or which other process of the user, was the writer.
//! 2. If the thread is slowed again within [`CALM_AFTER`], the next span is twice as long.
//!
//! A slowed thread uses some percent of the CPU at most. Other users wait for it for
//! [`SLOW_INTERVAL`] at most, when a domain of the group returns the CPU or blocks. Releases come
//! in time, but a message or another wake-up of the user's own domains may wait as long. A thread
//! without a flood counts its passes, and reads its CPU clock at each 32nd.
//!
//! The same threads can return each turn of their domains before these work, or keep a domain that
//! has the turn asleep. A slowed thread that has made its passes takes the turn back. While it
//! sleeps, the other KLS threads choose without the domains of its group. So these cannot keep
//! domains of lower rank from running.
//!
//! The KLS thread keeps its priority. In the ordinary class it would wait for ordinary programs
//! while it has the lock of the choice, and other users' KLS threads would wait for that lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use upcall_core::time::{Instant, Span};
use upcall_shm::wake_word::{ASLEEP, WakeWord};
use upcall_sys::futex;

#[cfg(test)]
mod tests;

/// The passes between two readings of the CPU clock.
const PASSES: u32 = 32;
/// This part of a CPU, in millionths, is allowed to a KLS thread beside the hand-offs that
/// admission counts. A pass takes some microseconds, so this allows more than 10,000 hand-offs a
/// second.
const CPU_PPM: u64 = 200_000;
/// CPU time beyond that part from which on the thread is slowed.
const EXCESS_MAX: Span = Span::from_micros(500);
/// The passes that a slowed thread makes before it sleeps. A hand-off takes up to three.
const SLOW_PASSES_MAX: u32 = 4;
/// How long a slowed thread sleeps.
const SLOW_INTERVAL: Span = Span::from_millis(1);
/// The first span for which a thread is slowed, and the longest.
const SLOW_FOR: Span = Span::from_millis(50);
const SLOW_FOR_MAX: Span = Span::from_millis(1_600);
/// After so much time without a flood the next span is a first one again.
const CALM_AFTER: Span = Span::from_secs(2);

/// What the KLS thread shares with the other threads of the daemon. Relaxed everywhere but in the
/// wake word: each number is used on its own, and a thread that misses a flag is
/// [`SLOW_INTERVAL`] late at most.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    is_slow: AtomicBool,
    /// Whether the slowed thread sleeps. Other KLS threads then leave out the domains of its group.
    is_resting: AtomicBool,
    /// The word on which the slowed thread sleeps.
    wake_word: AtomicU32,
    /// What admission counts for hand-offs of the group's domains, in millionths of the CPU.
    hand_offs_ppm: AtomicU64,
    /// How often the thread was slowed.
    floods: AtomicU64,
    /// CPU time of the thread at its last reading.
    cpu_ns: AtomicU64,
}

impl Pacing {
    /// Wakes the KLS thread if it is slowed.
    pub(crate) fn notify(&self) {
        if self.is_slow() && WakeWord::new(&self.wake_word).notify() {
            futex::wake(&self.wake_word, 1);
        }
    }

    /// Whether the KLS thread is slowed.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Relaxed)
    }

    /// Whether the KLS thread is slowed and sleeps.
    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting.load(Relaxed)
    }

    /// Announces that the KLS thread is about to sleep. The caller then wakes the others.
    pub(crate) fn begin_rest(&self) {
        self.is_resting.store(true, Relaxed);
    }

    /// The KLS thread is awake again.
    pub(crate) fn end_rest(&self) {
        self.is_resting.store(false, Relaxed);
    }

    /// How often the thread was slowed.
    pub(crate) fn floods(&self) -> u64 {
        self.floods.load(Relaxed)
    }

    /// CPU time of the KLS thread in ns, some passes ago.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Relaxed)
    }

    /// Records the CPU time of the KLS thread in ns.
    pub(crate) fn set_cpu_ns(&self, cpu_ns: u64) {
        self.cpu_ns.store(cpu_ns, Relaxed);
    }

    /// Sets what admission counts for hand-offs of the group's domains, in millionths of the CPU.
    pub(crate) fn allow_hand_offs(&self, ppm: u64) {
        self.hand_offs_ppm.store(ppm, Relaxed);
    }

    fn sleep_until(&self, deadline: Instant) {
        let wake_word = WakeWord::new(&self.wake_word);
        self.begin_rest();
        if wake_word.prepare_wait() {
            // The result is ignored: the caller checks its condition after every wake-up.
            let _ = futex::wait_until(wake_word.word(), ASLEEP, Some(deadline.as_nanos()));
        }
        wake_word.finish_wait();
        self.end_rest();
    }
}

/// The passes of a KLS thread. The thread itself uses it.
#[derive(Debug)]
pub(crate) struct PassLimit {
    /// Passes since the last reading of the CPU clock, or since the last sleep of a slowed thread.
    passes: u32,
    /// Time and CPU time at the last reading; `None` before the first.
    reading: Option<(Instant, u64)>,
    /// CPU time beyond the thread's part.
    excess: Span,
    /// The end of the span for which the thread is slowed.
    slow_until: Option<Instant>,
    /// The last such span and its end.
    last: Option<(Span, Instant)>,
}

impl PassLimit {
    pub(crate) fn new() -> Self {
        PassLimit { passes: 0, reading: None, excess: Span::ZERO, slow_until: None, last: None }
    }

    /// Called after each pass. `read` returns the time, and the CPU time of the thread in ns.
    /// Returns whether the thread must [`PassLimit::sleep`] now.
    pub(crate) fn after_pass(
        &mut self,
        pacing: &Pacing,
        read: impl FnOnce() -> (Instant, u64),
    ) -> bool {
        self.passes += 1;
        if self.slow_until.is_some() {
            return self.passes >= SLOW_PASSES_MAX;
        }
        if self.passes >= PASSES {
            let now = self.read(pacing, read());
            if self.excess > EXCESS_MAX {
                self.begin_slow(now);
                pacing.is_slow.store(true, Relaxed);
                pacing.floods.fetch_add(1, Relaxed);
            }
        }
        false
    }

    /// Sleeps until `deadline` in place of the sleep on the turn page. Returns `false` if the
    /// thread is not slowed.
    pub(crate) fn sleep(
        &mut self,
        pacing: &Pacing,
        deadline: Option<Instant>,
        read: impl FnOnce() -> (Instant, u64),
    ) -> bool {
        let is_slow = self.slow_until.is_some();
        if is_slow {
            self.sleep_slowly(pacing, deadline, read);
        }
        is_slow
    }

    fn sleep_slowly(
        &mut self,
        pacing: &Pacing,
        deadline: Option<Instant>,
        read: impl FnOnce() -> (Instant, u64),
    ) {
        let now = self.read(pacing, read());
        let latest = now + SLOW_INTERVAL;
        pacing.sleep_until(deadline.map_or(latest, |deadline| deadline.min(latest)));
        if self.slow_until.is_some_and(|until| now >= until) {
            (self.slow_until, self.excess) = (None, Span::ZERO);
            pacing.is_slow.store(false, Relaxed);
        }
    }

    fn begin_slow(&mut self, now: Instant) {
        let again = self.last.filter(|(_, ended)| now.since(*ended) < CALM_AFTER);
        let span = again.map_or(SLOW_FOR, |(span, _)| (span * 2).min(SLOW_FOR_MAX));
        self.slow_until = Some(now + span);
        self.last = Some((span, now + span));
    }

    /// Adds the CPU time since the last reading. Returns the time.
    fn read(&mut self, pacing: &Pacing, (now, cpu_ns): (Instant, u64)) -> Instant {
        pacing.set_cpu_ns(cpu_ns);
        self.passes = 0;
        if let Some((at, before_ns)) = self.reading.replace((now, cpu_ns)) {
            let used = Span::from_nanos(cpu_ns.saturating_sub(before_ns));
            let ppm = CPU_PPM.saturating_add(pacing.hand_offs_ppm.load(Relaxed));
            let due_ns = u128::from(now.since(at).as_nanos()) * u128::from(ppm) / 1_000_000;
            let due = Span::from_nanos(u64::try_from(due_ns).unwrap_or(u64::MAX));
            self.excess = (self.excess + used).saturating_sub(due);
        }
        now
    }
}
