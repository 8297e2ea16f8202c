//! The wait words that an executor watches: one per stream that one of its handlers reads or
//! writes.
//!
//! The executor of one CPU polls them between two upcalls and at the boundaries of the running
//! upcall, and sleeps on them. A peer can write to its stream's wait word. So the word only tells
//! the executor to look at the stream.

use upcall_core::activity::ActivityId;
use upcall_core::time::Instant;
use upcall_shm::stream::{self as shm, End, WAITING};
use upcall_sys::futex::WaitSet;

use super::memory::Memory;

/// How many ends of streams one executor may have. It sleeps on one more word, its notifier.
pub(crate) const WATCHES_MAX: usize = WaitSet::WORDS_MAX - 1;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Watches {
    /// The executor reads each open entry, so there should be few.
    all: Vec<Watch>,
    /// How many entries are open.
    open: usize,
}

#[derive(Debug)]
struct Watch {
    id: ActivityId,
    stream: shm::Stream<Memory>,
    /// The end in this process.
    end: End,
    /// No message logically arrives before this moment.
    not_before: Instant,
    is_open: bool,
}

impl Watches {
    /// Allocates all memory that it needs.
    pub(crate) fn new() -> Self {
        Watches { all: Vec::with_capacity(WATCHES_MAX), open: 0 }
    }

    pub(crate) fn add(&mut self, id: ActivityId, stream: shm::Stream<Memory>, end: End) {
        self.all.push(Watch { id, stream, end, not_before: Instant::ZERO, is_open: false });
    }

    pub(crate) fn remove(&mut self, id: ActivityId) {
        self.all.retain(|watch| watch.id != id);
        self.open = self.all.iter().filter(|watch| watch.is_open).count();
    }

    /// The first message does not arrive before `at`.
    pub(crate) fn set_not_before(&mut self, id: ActivityId, at: Instant) {
        if let Some(watch) = self.all.iter_mut().find(|watch| watch.id == id) {
            watch.not_before = at;
        }
    }

    /// The logical arrival of a message that is found at `now`.
    pub(crate) fn arrival(&self, id: ActivityId, now: Instant) -> Instant {
        let watch = self.all.iter().find(|watch| watch.id == id);
        watch.map_or(now, |watch| watch.not_before.max(now))
    }

    /// Starts or stops watching the wait word of `id`.
    pub(crate) fn set_open(&mut self, id: ActivityId, is_open: bool) {
        if let Some(watch) = self.all.iter_mut().find(|watch| watch.id == id) {
            self.open = self.open + usize::from(is_open) - usize::from(watch.is_open);
            watch.is_open = is_open;
        }
    }

    /// Whether any wait word is watched.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.open > 0
    }

    /// Calls `notified` for each stream whose other end has notified, and stops watching that
    /// stream. Passes the logical arrival of a message that is found at `now`. One load per open
    /// entry if no end has notified.
    #[inline]
    pub(crate) fn poll_streams(
        &mut self,
        now: Instant,
        mut notified: impl FnMut(ActivityId, Instant),
    ) {
        if self.open == 0 {
            return;
        }
        for watch in &mut self.all {
            if watch.is_open && watch.stream.is_notified(watch.end) {
                watch.is_open = false;
                self.open -= 1;
                notified(watch.id, watch.not_before.max(now));
            }
        }
    }

    /// Adds the open wait words to `set`. Returns `false` if an end was notified meanwhile. The
    /// caller calls [`Watches::cancel_wait`] afterwards in both cases.
    pub(crate) fn prepare_wait<'a>(&'a self, set: &mut WaitSet<'a>) -> bool {
        self.all.iter().filter(|watch| watch.is_open).all(|watch| {
            set.add_shared(watch.stream.wait_word(watch.end), WAITING);
            watch.stream.prepare_wait(watch.end)
        })
    }

    /// Ends the wait of all open entries, because the executor is awake again.
    pub(crate) fn cancel_wait(&self) {
        for watch in self.all.iter().filter(|watch| watch.is_open) {
            // A notification that came meanwhile is found by the next poll.
            let _ = watch.stream.cancel_wait(watch.end);
        }
    }
}
