//! Waiting until a word of memory changes.
//!
//! Called by the runtime to park a thread and to wake it. Words are private
//! to the process; words in shared pages would need the flag left out.
//! See futex(2).

use crate::clock::timespec;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;
use rustix::io::Errno;
use rustix::thread::futex;

/// Why [`wait_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Someone called [`wake`]. It says nothing about the word: look at it.
    Woken,
    /// The word did not hold the expected value; the thread did not sleep.
    Changed,
    /// The deadline has come.
    TimedOut,
    /// A signal, or for no reason. Treat it like [`Wake::Woken`].
    Interrupted,
}

/// Sleeps while `word` holds `expected`, until woken or until `deadline_ns`
/// (`CLOCK_MONOTONIC`; `None`: for as long as it takes).
///
/// The kernel compares and goes to sleep in one step, so a store followed by
/// [`wake`] is not lost. That the store is seen after the return is up to the
/// caller: load the word with `Acquire`, to pair with the waker's `Release`
/// store. One system call; does not allocate.
pub fn wait_until(word: &AtomicU32, expected: u32, deadline_ns: Option<u64>) -> Wake {
    let deadline = deadline_ns.map(timespec);
    // FUTEX_WAIT would take a length of time; FUTEX_WAIT_BITSET takes a moment.
    match futex::wait_bitset(
        word,
        futex::Flags::PRIVATE,
        expected,
        deadline.as_ref(),
        NonZeroU32::MAX,
    ) {
        Ok(()) => Wake::Woken,
        Err(Errno::AGAIN) => Wake::Changed,
        Err(Errno::TIMEDOUT) => Wake::TimedOut,
        // EINTR. The rest (no futexes, a bad address) cannot be: the standard
        // library needs futexes too, and `word` is a reference.
        Err(_) => Wake::Interrupted,
    }
}

/// Wakes at most `threads` of those that sleep on `word`, and says how many.
/// A system call even if nobody sleeps; does not allocate.
///
/// Store to the word first, with `Release` (see [`wait_until`]).
pub fn wake(word: &AtomicU32, threads: u32) -> usize {
    // The kernel takes an int.
    let threads = threads.min(i32::MAX as u32);
    // As in `wait_until`, nothing that could fail is left.
    futex::wake(word, futex::Flags::PRIVATE, threads).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;
    use core::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn a_word_that_changed_before_does_not_put_to_sleep() {
        assert_eq!(wait_until(&AtomicU32::new(1), 0, None), Wake::Changed);
    }

    #[test]
    fn nobody_wakes_and_the_deadline_comes() {
        let word = AtomicU32::new(0);
        let deadline_ns = monotonic_ns() + 2_000_000;
        while wait_until(&word, 0, Some(deadline_ns)) != Wake::TimedOut {}
        assert!(monotonic_ns() >= deadline_ns);
        assert_eq!(wait_until(&word, 0, Some(0)), Wake::TimedOut);
    }

    #[test]
    fn every_turn_is_seen_when_two_threads_wake_each_other() {
        const TURNS: u32 = 2_000;
        let word = AtomicU32::new(0);
        let play = |mine: u32| {
            for turn in 0..TURNS {
                if turn % 2 != mine {
                    // Acquire pairs with the other thread's Release below.
                    while word.load(Acquire) == turn {
                        wait_until(&word, turn, None);
                    }
                } else {
                    assert_eq!(word.load(Acquire), turn);
                    word.store(turn + 1, Release); // pairs with the Acquire above
                    wake(&word, 1);
                }
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(|| play(0));
            threads.spawn(|| play(1));
        });
        assert_eq!(word.load(Acquire), TURNS);
    }

    #[test]
    fn wake_counts_those_it_woke_and_leaves_the_others() {
        let word = AtomicU32::new(0);
        assert_eq!(wake(&word, 1), 0);
        std::thread::scope(|threads| {
            let sleepers: Vec<_> =
                (0..3).map(|_| threads.spawn(|| wait_until(&word, 0, None))).collect();
            let mut woken = 0u32;
            while woken < 2 {
                woken += u32::try_from(wake(&word, 2 - woken)).unwrap();
                std::thread::yield_now();
            }
            while woken < 3 {
                woken += u32::try_from(wake(&word, u32::MAX)).unwrap();
                std::thread::yield_now();
            }
            assert_eq!(woken, 3);
            for sleeper in sleepers {
                assert_eq!(sleeper.join().unwrap(), Wake::Woken);
            }
        });
    }
}
