//! Waits until a word of memory changes.
//!
//! The runtime parks and wakes threads with it: within a process ([`wait_until`], [`wake`]),
//! between processes ([`wait_shared_until`], [`wake_shared`]), and on several words at once
//! ([`WaitSet`]). Private and shared calls do not mix: `wake` does not wake a thread in
//! `wait_shared_until`. See futex(2).

use crate::OsError;
use crate::clock::timespec;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::io::Errno;
use rustix::thread::{ClockId, futex};

/// The reason why [`wait_until`] or [`wait_shared_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Another thread called [`wake`] or [`wake_shared`]. The word may have any value, so load it.
    Woken,
    /// The word did not hold the expected value, so the thread did not sleep.
    Changed,
    /// The deadline has passed.
    TimedOut,
    /// A signal came, or the wake-up was spurious. Treat it like [`Wake::Woken`].
    Interrupted,
}

/// Sleeps while `word` holds `expected`, until woken or until `deadline_ns` (`CLOCK_MONOTONIC`;
/// `None`: without limit).
///
/// The kernel compares and goes to sleep in one step, so a store followed by [`wake`] is not lost.
/// The caller makes sure that it sees the store after the return: load the word with `Acquire`, to
/// pair with the waker's `Release` store. One system call. Does not allocate.
pub fn wait_until(word: &AtomicU32, expected: u32, deadline_ns: Option<u64>) -> Wake {
    wait(word, futex::Flags::PRIVATE, expected, deadline_ns)
}

/// Wakes at most `threads` of the threads that sleep on `word`, and returns how many. Makes a
/// system call even if no thread sleeps. Does not allocate.
///
/// Store to the word first, with `Release` (see [`wait_until`]).
pub fn wake(word: &AtomicU32, threads: u32) -> usize {
    wake_any(word, futex::Flags::PRIVATE, threads)
}

/// As [`wait_until`], for a word of memory that processes share. Sleeps while the low 32 bits of
/// `word` are `expected_low`, whatever the high bits are.
///
/// The kernel identifies the word by its file and offset. So each process may have mapped it at
/// another address, and a read-only mapping is enough. One system call, in which the kernel looks
/// up the page; it costs more than the private call. Does not allocate.
pub fn wait_shared_until(word: &AtomicU64, expected_low: u32, deadline_ns: Option<u64>) -> Wake {
    wait(low_half(word), futex::Flags::empty(), expected_low, deadline_ns)
}

/// As [`wake`], for threads of any process that sleep in [`wait_shared_until`] on `word`. A
/// read-only mapping is enough here too: a thread that may read a word may wake its sleepers.
pub fn wake_shared(word: &AtomicU64, threads: u32) -> usize {
    wake_any(low_half(word), futex::Flags::empty(), threads)
}

/// Several words on which a thread sleeps together, each with its expected value.
///
/// For memory that changes at several places with different writers, such as the wake words of
/// streams. 3 KiB on the stack. See futex2(2), `futex_waitv`, Linux 5.16.
#[derive(Debug)]
pub struct WaitSet<'a> {
    /// `add` wrote the first `len`. The others stay uninitialized, so that a sleep on two words
    /// need not clear 3 KiB.
    waits: [MaybeUninit<futex::Wait>; WaitSet::WORDS_MAX],
    len: usize,
    words: PhantomData<&'a AtomicU64>,
}

impl Default for WaitSet<'_> {
    fn default() -> Self {
        WaitSet::new()
    }
}

impl<'a> WaitSet<'a> {
    /// The most words: the kernel's `FUTEX_WAITV_MAX`.
    pub const WORDS_MAX: usize = 128;

    /// An empty set.
    pub const fn new() -> Self {
        WaitSet { waits: [MaybeUninit::uninit(); WaitSet::WORDS_MAX], len: 0, words: PhantomData }
    }

    /// Checks that the kernel supports `futex_waitv`.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.16, `EPERM` where a filter forbids it.
    pub fn is_known() -> Result<(), OsError> {
        let word = AtomicU32::new(1);
        let mut set = WaitSet::new();
        set.add_private(&word, 0);
        match set.wait(None) {
            // The word does not hold the expected value, so the kernel knows the call.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(OsError::of("futex_waitv")(errno)),
        }
    }

    /// Adds a word for [`wake`]. A word beyond [`Self::WORDS_MAX`] is ignored, so the caller must
    /// count.
    pub fn add_private(&mut self, word: &'a AtomicU32, expected: u32) {
        self.add(word, expected, futex::WaitFlags::PRIVATE);
    }

    /// Adds a word for [`wake_shared`].
    pub fn add_shared(&mut self, word: &'a AtomicU64, expected_low: u32) {
        self.add(low_half(word), expected_low, futex::WaitFlags::empty());
    }

    /// Sleeps while each word holds its expected value, until woken on any or until `deadline_ns`,
    /// as [`wait_until`] does for one word. One system call, O(words). Does not allocate.
    pub fn wait_until(&self, deadline_ns: Option<u64>) -> Wake {
        match self.wait(deadline_ns) {
            Ok(_) => Wake::Woken,
            Err(Errno::AGAIN) => Wake::Changed,
            Err(Errno::TIMEDOUT) => Wake::TimedOut,
            Err(_) => Wake::Interrupted,
        }
    }

    fn add(&mut self, word: &'a AtomicU32, expected: u32, flags: futex::WaitFlags) {
        if let Some(wait) = self.waits.get_mut(self.len) {
            let wait = wait.write(futex::Wait::new());
            // The kernel only reads through this pointer.
            wait.uaddr = futex::WaitPtr::new(core::ptr::from_ref(word).cast_mut().cast());
            wait.val = u64::from(expected);
            wait.flags = flags | futex::WaitFlags::SIZE_U32;
            self.len += 1;
        }
    }

    fn wait(&self, deadline_ns: Option<u64>) -> Result<usize, Errno> {
        let deadline = deadline_ns.map(timespec);
        // SAFETY: a `MaybeUninit` has the layout of its content. `add` wrote the first `len`
        // entries, at most as many as exist. Only `add` changes `len`, after it has written.
        let waits = unsafe {
            core::slice::from_raw_parts(self.waits.as_ptr().cast::<futex::Wait>(), self.len)
        };
        futex::waitv(waits, futex::WaitvFlags::empty(), deadline.as_ref(), ClockId::Monotonic)
    }
}

/// The half of a word that the kernel compares.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let halves = core::ptr::from_ref(word).cast::<AtomicU32>();
    // SAFETY: the half is inside the word, aligned, and lives as long as the word. Only the kernel
    // uses it. No code of this program loads or stores through it, so there are no atomic accesses
    // of two sizes.
    unsafe { &*halves.add(usize::from(cfg!(target_endian = "big"))) }
}

fn wait(word: &AtomicU32, flags: futex::Flags, expected: u32, deadline_ns: Option<u64>) -> Wake {
    let deadline = deadline_ns.map(timespec);
    // FUTEX_WAIT would take a duration. FUTEX_WAIT_BITSET takes a point in time.
    match futex::wait_bitset(word, flags, expected, deadline.as_ref(), NonZeroU32::MAX) {
        Ok(()) => Wake::Woken,
        Err(Errno::AGAIN) => Wake::Changed,
        Err(Errno::TIMEDOUT) => Wake::TimedOut,
        // EINTR. Other errors (no futexes, a bad address) are impossible: the standard library
        // needs futexes too, and `word` is a reference.
        Err(_) => Wake::Interrupted,
    }
}

fn wake_any(word: &AtomicU32, flags: futex::Flags, threads: u32) -> usize {
    // The kernel takes an int.
    let threads = threads.min(i32::MAX as u32);
    // As in `wait`, no error is possible.
    futex::wake(word, flags, threads).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;
    use crate::forked::forked;
    use crate::memfd::{ReadOnlyMapping, SharedMapping};
    use crate::process::Exit;
    use core::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn a_wait_on_a_changed_word_does_not_sleep() {
        assert_eq!(wait_until(&AtomicU32::new(1), 0, None), Wake::Changed);
    }

    #[test]
    fn a_wait_without_a_wake_ends_at_the_deadline() {
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
    fn wake_counts_the_woken_threads_and_leaves_the_others() {
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

    /// One process's part of a game in which two processes move alternately. It plays the turns of
    /// parity `mine`. Returns false if it found a wrong value.
    fn play_shared(word: &AtomicU64, mine: u64, turns: u64) -> bool {
        // The high half must not matter.
        const HIGH: u64 = 0xABCD << 32;
        let low = |value: u64| (value & 0xFFFF_FFFF) as u32;
        for turn in 0..turns {
            if turn % 2 != mine {
                // Acquire pairs with the other process's Release below.
                while low(word.load(Acquire)) == low(turn) {
                    // The deadline of a minute makes the test report a lost wake.
                    let deadline_ns = Some(monotonic_ns() + 60_000_000_000);
                    if wait_shared_until(word, low(turn), deadline_ns) == Wake::TimedOut {
                        return false;
                    }
                }
            } else if low(word.load(Acquire)) == low(turn) {
                word.store(HIGH * (turn % 3) + turn + 1, Release); // pairs with the Acquire above
                wake_shared(word, 1);
            } else {
                return false;
            }
        }
        true
    }

    #[test]
    fn every_turn_is_seen_when_two_processes_wake_each_other() {
        const TURNS: u64 = 2_000;
        let ours = SharedMapping::create("upcall-test", 4096).unwrap();
        // A second mapping at another address, as in another process.
        let fd = ours.fd().try_clone_to_owned().unwrap();
        let theirs = SharedMapping::from_fd(fd, 4096).unwrap();
        // SAFETY: loads, stores and futex calls only.
        let child = unsafe { forked(|| i32::from(!play_shared(&theirs.words()[7], 1, TURNS))) };
        assert!(play_shared(&ours.words()[7], 0, TURNS));
        assert_eq!(child.wait(), Exit::Code(0));
    }

    #[test]
    fn a_reader_of_a_word_may_wait_on_it_and_wake_others() {
        let owner = SharedMapping::create_to_seal("upcall-test", 4096).unwrap();
        let reader = ReadOnlyMapping::from_fd(owner.read_only_fd().unwrap(), 4096).unwrap();
        owner.seal_future_writes().unwrap();
        for (sleeps, wakes) in [(owner.words(), reader.words()), (reader.words(), owner.words())] {
            std::thread::scope(|threads| {
                let sleeper = threads.spawn(|| wait_shared_until(&sleeps[0], 0, None));
                while wake_shared(&wakes[0], 1) == 0 {
                    std::thread::yield_now();
                }
                assert_eq!(sleeper.join().unwrap(), Wake::Woken);
            });
        }
        assert_eq!(wait_shared_until(&reader.words()[0], 1, None), Wake::Changed);
    }

    #[test]
    fn a_shared_wait_ends_at_its_deadline_and_compares_the_low_half() {
        let word = AtomicU64::new(0xFFFF_FFFF_0000_0003);
        let deadline_ns = monotonic_ns() + 2_000_000;
        loop {
            match wait_shared_until(&word, 3, Some(deadline_ns)) {
                Wake::TimedOut => break,
                wake => assert_ne!(wake, Wake::Changed),
            }
        }
        assert!(monotonic_ns() >= deadline_ns);
        assert_eq!(wait_shared_until(&word, 0xFFFF_FFFF, None), Wake::Changed);
    }

    #[test]
    fn a_wait_on_several_words_ends_when_any_is_woken_or_changed() {
        WaitSet::is_known().unwrap();
        let (private, shared) = (AtomicU32::new(7), AtomicU64::new(0xABCD_0000_0001));
        let sleep = |deadline_ns| {
            let mut set = WaitSet::new();
            set.add_private(&private, 7);
            set.add_shared(&shared, 1);
            set.wait_until(deadline_ns)
        };
        let wakes: [&(dyn Fn() -> usize + Sync); 2] =
            [&|| wake(&private, 1), &|| wake_shared(&shared, 1)];
        std::thread::scope(|threads| {
            for notify in wakes {
                let sleeper = threads.spawn(|| sleep(None));
                while notify() == 0 {
                    std::thread::yield_now();
                }
                assert_eq!(sleeper.join().unwrap(), Wake::Woken);
            }
        });
        assert_eq!(sleep(Some(monotonic_ns() + 1_000_000)), Wake::TimedOut);
        shared.store(2, Release);
        assert_eq!(sleep(None), Wake::Changed);
    }

    #[test]
    fn private_and_shared_sleepers_do_not_wake_each_other() {
        let word = AtomicU64::new(0);
        std::thread::scope(|threads| {
            let sleeper = threads.spawn(|| wait_until(low_half(&word), 0, None));
            let mut privately = 0;
            while privately == 0 {
                assert_eq!(wake_shared(&word, 1), 0);
                privately = wake(low_half(&word), 1);
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), Wake::Woken);
        });
    }
}
