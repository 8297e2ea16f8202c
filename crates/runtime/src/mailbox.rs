//! The state that an executor shares with its controllers: flags, bits and counters.
//!
//! Every module that runs or controls an activity uses this one. It itself uses only the notifier.
//! The messages between both sides are in `cpu::link`, above this module, because a message carries
//! a handler or a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use upcall_core::activity::ActivityId;
use upcall_core::record::JobRecord;
use upcall_core::time::Instant;
use upcall_shm::inbox::Marks;
use upcall_shm::kernel_area::Interrupt;
use upcall_shm::user_area::LentMask;
use upcall_sys::memfd::SharedMapping;

use crate::lag::LagCell;
use crate::notify::Notifier;
use crate::watchdog::Pulse;

/// Most handlers and tasks on one CPU of a runtime.
pub const ACTIVITIES_MAX: u32 = 256;

/// A finished job, as [`Runtime::poll`](crate::Runtime::poll) shows it: the core's record, and what
/// the executor measured.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The core's record.
    pub record: JobRecord,
    /// Quanta that took longer than declared.
    pub quantum_overruns: u32,
    /// Jobs of the activity that ended or were dropped since its last record. Of jobs that are
    /// dropped at once, only the first has a record. That record may come after the job was counted
    /// here; then this is 0.
    pub ended: u64,
    /// How many of them ended after their deadline or were dropped.
    pub missed: u64,
    /// How many of them were dropped before they began.
    pub skipped: u64,
}

/// See the module's head. One for each executor.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) notifier: Notifier,
    /// Shows the watchdog what the executor does.
    pub(crate) pulse: Arc<Pulse>,
    /// How many records of jobs were lost because the ring was full.
    pub(crate) jobs_lost: AtomicU64,
    /// For each activity, 1 while it is delivered or was asked to be. The controller sets it
    /// before it sends `Run`; the executor clears it.
    active: Box<[AtomicU32]>,
    /// For each activity, 1 once its handler panicked.
    faulted: Box<[AtomicU32]>,
    /// For each activity, 1 from the abort phase on. The controller sets it at the end of the
    /// process; the numbers of activities are not used again after that.
    aborting: Box<[AtomicU32]>,
    /// The lag of each activity, under a policy that has one.
    lags: Box<[LagCell]>,
    /// A bit for each activity that was woken since the executor looked.
    woken: [AtomicU64; ACTIVITIES_MAX as usize / 64],
    /// The activities for which events were posted since the executor looked.
    pub(crate) marks: Marks,
    /// 1 once there is a poster.
    expects_events: AtomicU32,
    /// A bit for each user interrupt that was requested since the executor looked.
    interrupts: AtomicU32,
    /// 1 once there is a stream to watch, or an event channel. Only the executor's thread uses it.
    has_watches: AtomicU32,
    /// Counts how often an activity became inactive. Threads wait for that count.
    pub(crate) inactive_epoch: Arc<Epoch>,
    /// Where tasks show their masks to peer domains, if there are any.
    pub(crate) mask: Option<Arc<LentMask<SharedMapping>>>,
}

impl Shared {
    pub(crate) fn new(notifier: Notifier, inactive_epoch: Arc<Epoch>) -> Self {
        let flags = || (0..ACTIVITIES_MAX).map(|_| AtomicU32::new(0)).collect();
        Shared {
            notifier,
            active: flags(),
            faulted: flags(),
            aborting: flags(),
            lags: (0..ACTIVITIES_MAX).map(|_| LagCell::new()).collect(),
            inactive_epoch,
            ..Shared::default()
        }
    }

    /// Sets the place where tasks show their masks to peer domains.
    pub(crate) fn with_mask(self, mask: Option<Arc<LentMask<SharedMapping>>>) -> Self {
        Shared { mask, ..self }
    }

    pub(crate) fn is_active(&self, id: ActivityId) -> bool {
        // Acquire pairs with the Release in `set_active`.
        self.active[id.0 as usize].load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_active(&self, id: ActivityId, active: bool) {
        // Release: a thread that waited for the end sees what the handler wrote before it became
        // inactive.
        self.active[id.0 as usize].store(u32::from(active), Ordering::Release);
    }

    /// Whether the activity is in its abort phase.
    pub(crate) fn is_aborting(&self, id: ActivityId) -> bool {
        // Acquire pairs with the Release in `set_aborting`.
        self.aborting[id.0 as usize].load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_aborting(&self, id: ActivityId) {
        // Release: the handler sees what the program wrote before it aborted.
        self.aborting[id.0 as usize].store(1, Ordering::Release);
    }

    /// Makes the executor handle a wake-up of the activity. From any thread; wait-free.
    pub(crate) fn wake(&self, id: ActivityId) {
        if let Some(word) = self.woken.get(id.0 as usize / 64) {
            // Release pairs with the Acquire in `take_woken`: the poll of the task sees what the
            // waking thread wrote before. The notification comes after the bit, so the executor
            // sees the bit once it has acknowledged (`Notifier::notify`).
            word.fetch_or(1 << (id.0 % 64), Ordering::Release);
            self.notifier.notify();
        }
    }

    /// Takes the bits of the activities that were woken.
    pub(crate) fn take_woken(&self) -> impl Iterator<Item = ActivityId> {
        self.woken.iter().zip(0u32..).flat_map(|(word, place)| {
            // Relaxed: only spares the swap; a bit that is set now is followed by a notification.
            let any = word.load(Ordering::Relaxed) != 0;
            // Acquire pairs with the Release in `wake`.
            let mut bits = if any { word.swap(0, Ordering::Acquire) } else { 0 };
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(ActivityId(place * 64 + bit))
            })
        })
    }

    /// Whether the executor has streams to watch, or event channels. Tasks ask this while the
    /// executor polls them.
    pub(crate) fn has_watches(&self) -> bool {
        // Relaxed: set and read by the same thread.
        self.has_watches.load(Ordering::Relaxed) != 0
    }

    /// From now on the executor has something to watch. For the executor.
    pub(crate) fn set_has_watches(&self) {
        // Relaxed: see `has_watches`.
        self.has_watches.store(1, Ordering::Relaxed);
    }

    /// From now on events can be posted. Notifies the executor: if it slept without expecting
    /// events, a post would not wake it. From any thread; a system call if the executor sleeps.
    pub(crate) fn expect_events(&self) {
        // Relaxed: the executor sees it once it has acknowledged the notification.
        self.expects_events.store(1, Ordering::Relaxed);
        self.notifier.notify();
    }

    /// Whether events may be posted. For the executor; a load.
    #[inline]
    pub(crate) fn expects_events(&self) -> bool {
        // Relaxed: the first post comes after the notification of `expect_events`. An executor that
        // has acknowledged it sees the flag. An executor that has not cannot fall asleep yet.
        self.expects_events.load(Ordering::Relaxed) != 0
    }

    /// Requests a user interrupt. From any thread; a system call if the executor sleeps.
    pub(crate) fn interrupt(&self, kind: Interrupt) {
        // Release pairs with the Acquire in `take_interrupts`. The notification comes after it,
        // as in `wake`.
        self.interrupts.fetch_or(bit(kind), Ordering::Release);
        self.notifier.notify();
    }

    /// Takes the bits of the user interrupts that were requested. One load if there are none.
    #[inline]
    pub(crate) fn take_interrupts(&self) -> u32 {
        // Relaxed: only spares the swap; Acquire pairs with the Release in `interrupt`.
        let any = self.interrupts.load(Ordering::Relaxed) != 0;
        if any { self.interrupts.swap(0, Ordering::Acquire) } else { 0 }
    }

    /// The lag of the activity.
    #[inline]
    pub(crate) fn lag(&self, id: ActivityId) -> &LagCell {
        &self.lags[id.0 as usize]
    }

    /// Notes that the handler panicked. For the executor.
    pub(crate) fn set_faulted(&self, id: ActivityId) {
        // Relaxed: see `is_faulted`.
        self.faulted[id.0 as usize].store(1, Ordering::Relaxed);
    }

    /// A new activity gets the number. Clears what an earlier activity with the number left.
    pub(crate) fn clear(&self, id: ActivityId) {
        self.lags[id.0 as usize].clear();
        // Relaxed: see `is_faulted`. The executor learns of the number later, by a notification.
        self.faulted[id.0 as usize].store(0, Ordering::Relaxed);
    }

    /// Whether the handler panicked.
    pub(crate) fn is_faulted(&self, id: ActivityId) -> bool {
        // Relaxed: a report; no other data depends on it.
        self.faulted[id.0 as usize].load(Ordering::Relaxed) != 0
    }
}

/// The bit of a user interrupt among the requests.
pub(crate) const fn bit(kind: Interrupt) -> u32 {
    1 << kind as u32
}

/// A counter that threads can wait for.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    word: AtomicU32,
    waiters: AtomicU32,
}

impl Epoch {
    pub(crate) fn now(&self) -> u32 {
        // Acquire pairs with the Release in `advance`: a thread that sees the count sees the flags
        // that were stored before it.
        self.word.load(Ordering::Acquire)
    }

    pub(crate) fn advance(&self) {
        // SeqCst pairs with `wait_past`: either the waiter sees the new count, or this call sees
        // the waiter. With weaker orderings both could miss.
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            upcall_sys::futex::wake(&self.word, u32::MAX);
        }
    }

    /// Blocks until the count differs from `seen`, or until `deadline`.
    pub(crate) fn wait_past(&self, seen: u32, deadline: Option<Instant>) {
        // SeqCst pairs with `advance`, which says why.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if self.word.load(Ordering::SeqCst) == seen {
            let _ =
                upcall_sys::futex::wait_until(&self.word, seen, deadline.map(Instant::as_nanos));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}
