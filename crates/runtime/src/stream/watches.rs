//! The bells that an executor watches, one of each stream that a handler of it reads or writes.
//!
//! Used by the executor of one CPU: between two upcalls, at the boundaries of what runs, and around
//! its sleep. A bell in a peer's reach says no more than that its stream should be looked at.

use upcall_core::activity::ActivityId;
use upcall_core::time::Instant;
use upcall_shm::stream::{self as shm, End, WAITING};
use upcall_sys::futex::WaitSet;

use super::memory::Memory;

/// Most ends of streams that one executor has: its own bell is one of the words it sleeps on.
pub(crate) const WATCHES_MAX: usize = WaitSet::WORDS_MAX - 1;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Watches {
    /// Few: each that is open is looked at.
    all: Vec<Watch>,
    /// How many are open.
    open: usize,
}

#[derive(Debug)]
struct Watch {
    id: ActivityId,
    stream: shm::Stream<Memory>,
    /// Which is here.
    end: End,
    /// No message logically arrives before.
    not_before: Instant,
    is_open: bool,
}

impl Watches {
    /// Takes all memory it needs.
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

    /// Its first message does not arrive before `at`.
    pub(crate) fn set_not_before(&mut self, id: ActivityId, at: Instant) {
        if let Some(watch) = self.all.iter_mut().find(|watch| watch.id == id) {
            watch.not_before = at;
        }
    }

    /// When a message that is found at `now` arrives.
    pub(crate) fn arrival(&self, id: ActivityId, now: Instant) -> Instant {
        let watch = self.all.iter().find(|watch| watch.id == id);
        watch.map_or(now, |watch| watch.not_before.max(now))
    }

    /// Watches the bell of `id`, or does not any more.
    pub(crate) fn set_open(&mut self, id: ActivityId, is_open: bool) {
        if let Some(watch) = self.all.iter_mut().find(|watch| watch.id == id) {
            self.open = self.open + usize::from(is_open) - usize::from(watch.is_open);
            watch.is_open = is_open;
        }
    }

    /// Whether any bell is watched.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.open > 0
    }

    /// Tells of each stream whose bell was rung, and when its message arrives if it is found at
    /// `now`; it is not watched any more. A load for each that is open, if none was.
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

    /// Adds the open bells to what is slept on; `false` if one was rung by now. Either way
    /// [`Watches::cancel_wait`] follows.
    pub(crate) fn prepare_wait<'a>(&'a self, set: &mut WaitSet<'a>) -> bool {
        self.all.iter().filter(|watch| watch.is_open).all(|watch| {
            set.add_shared(watch.stream.wait_word(watch.end), WAITING);
            watch.stream.prepare_wait(watch.end)
        })
    }

    /// The executor is awake.
    pub(crate) fn cancel_wait(&self) {
        for watch in self.all.iter().filter(|watch| watch.is_open) {
            // One that was rung is heard next.
            let _ = watch.stream.cancel_wait(watch.end);
        }
    }
}
