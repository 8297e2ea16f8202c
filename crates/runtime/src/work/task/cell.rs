//! The state that a task and its executor share.
//!
//! While the task is polled, its code reads here what it was granted, and writes what it waits for.
//! Before and after the poll, the executor writes the grant and reads the request. Both run in one
//! thread, one after the other. Any thread may wake the task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Wake;

use upcall_core::activity::ActivityId;
use upcall_core::time::{Instant, Span};
use upcall_sys::readiness::Readiness;

use crate::mailbox::Shared;
use crate::work::batch::Grant;

/// A number that only the thread that polls the task uses. It is atomic only so that a
/// [`Task`](super::Task) may live in a future that moves to that thread.
#[derive(Debug)]
struct Word(AtomicU64);

impl Word {
    const fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    // Relaxed, both: no other thread uses the word at the same time. The control ring orders the
    // thread that creates the task before the executor.
    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Where the wake-ups of a task go.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ActivityId,
    /// The set that watches descriptors, and the number under which it wakes the task.
    pub(crate) watcher: Option<(Arc<Readiness>, u64)>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct TaskCell {
    clock: fn() -> Instant,
    address: OnceLock<Address>,
    /// Not 0 once another activity may have the number.
    closed: Word,
    polled_at: Word,
    check_at: Word,
    quantum: Word,
    /// Checkpoints that the task may still pass without a check.
    quantum_left: Word,
    quantum_start: Word,
    quantum_cost: Word,
    quantum_overruns: Word,
    pdus: Word,
    jobs_skipped: Word,
    /// How many masks the task holds.
    masks: Word,
    /// The instants that the task named in this poll; `FAR` if none.
    advance: Word,
    sleep: Word,
    io: Word,
    /// Not 0 if the task waits in a checkpoint.
    checkpoint: Word,
}

const FAR: u64 = Instant::FAR.as_nanos();

impl TaskCell {
    pub(crate) fn new(clock: fn() -> Instant) -> Self {
        let zero = || Word::new(0);
        TaskCell {
            clock,
            address: OnceLock::new(),
            closed: zero(),
            polled_at: zero(),
            check_at: zero(),
            quantum: zero(),
            quantum_left: zero(),
            quantum_start: zero(),
            quantum_cost: zero(),
            quantum_overruns: zero(),
            pdus: zero(),
            jobs_skipped: zero(),
            masks: zero(),
            advance: Word::new(FAR),
            sleep: Word::new(FAR),
            io: Word::new(FAR),
            checkpoint: zero(),
        }
    }

    /// Called once, before the first poll.
    pub(crate) fn bind(&self, address: Address) {
        let bound = self.address.set(address);
        debug_assert!(bound.is_ok());
    }

    pub(crate) fn now(&self) -> Instant {
        (self.clock)()
    }

    pub(crate) fn close(&self) {
        self.closed.store(1);
    }

    pub(crate) fn watcher(&self) -> Option<(&Arc<Readiness>, u64)> {
        let (readiness, number) = self.address.get()?.watcher.as_ref()?;
        Some((readiness, *number))
    }

    // The task's side.

    /// Whether the process is ending. A load; once true it stays so.
    pub(crate) fn is_aborting(&self) -> bool {
        self.address.get().is_some_and(|address| address.shared.is_aborting(address.id))
    }

    pub(crate) fn polled_at(&self) -> Instant {
        Instant::from_nanos(self.polled_at.load())
    }

    pub(crate) fn jobs_skipped(&self) -> u64 {
        self.jobs_skipped.load()
    }

    pub(crate) fn request_advance(&self, critical: Instant) {
        earlier(&self.advance, critical);
    }

    pub(crate) fn request_sleep(&self, until: Instant) {
        earlier(&self.sleep, until);
    }

    pub(crate) fn request_io(&self, critical: Instant) {
        earlier(&self.io, critical);
    }

    pub(crate) fn request_checkpoint(&self) {
        self.checkpoint.store(1);
    }

    pub(crate) fn mask(&self, more: bool) {
        let masks = self.masks.load();
        self.masks.store(if more { masks + 1 } else { masks - 1 });
        self.show_mask(self.masks.load());
    }

    /// Shows peer domains that the task holds so many masks.
    fn show_mask(&self, masks: u64) {
        if let Some(mask) = self.address.get().and_then(|address| address.shared.mask.as_ref()) {
            mask.show(u32::try_from(masks).unwrap_or(u32::MAX));
        }
    }

    /// Whether there are peer domains. They ask for the CPU in other ways than by the notifier and
    /// the clock, so the task asks the executor at the end of each quantum.
    fn has_peers(&self) -> bool {
        self.address.get().is_some_and(|address| address.shared.mask.is_some())
    }

    /// Counts a PDU at a checkpoint. Returns whether the task may go on without asking the
    /// executor. Under a mask the quantum stays used up, so the first checkpoint after the mask
    /// asks.
    pub(crate) fn may_go_on(&self) -> bool {
        self.pdus.store(self.pdus.load() + 1);
        let left = self.quantum_left.load();
        if left > 0 {
            self.quantum_left.store(left - 1);
            return true;
        }
        if self.masks.load() > 0 {
            return true;
        }
        let now = self.now();
        self.meter(now);
        if self.is_notified()
            || self.has_peers()
            || self.has_watches()
            || now.as_nanos() >= self.check_at.load()
        {
            return false;
        }
        self.next_quantum();
        true
    }

    /// Whether streams may ask for the CPU. Then the task asks the executor at the end of each
    /// quantum.
    fn has_watches(&self) -> bool {
        self.address.get().is_some_and(|address| address.shared.has_watches())
    }

    fn is_notified(&self) -> bool {
        self.address.get().is_some_and(|address| address.shared.notifier.is_notified())
    }

    fn next_quantum(&self) {
        self.quantum_left.store(self.quantum.load() - 1);
    }

    // The executor's side.

    /// An upcall begins.
    pub(crate) fn grant(&self, grant: &Grant) {
        self.quantum.store(u64::from(grant.quantum));
        self.quantum_start.store(grant.start.as_nanos());
        self.quantum_cost.store(grant.quantum_cost.as_nanos());
        self.quantum_overruns.store(0);
        self.pdus.store(0);
        self.jobs_skipped.store(grant.jobs_skipped);
        self.go_on(grant.check_at);
        // Guards that the task held when it ended a message.
        let masks = self.masks.load();
        if masks > 0 {
            self.show_mask(masks);
        }
    }

    /// An upcall ends. Masks that the task still holds have no effect until the next upcall.
    pub(crate) fn release(&self) {
        if self.masks.load() > 0 {
            self.show_mask(0);
        }
    }

    /// The moment before which nothing outranks the task, as the executor last set it.
    pub(crate) fn check_at(&self) -> Instant {
        Instant::from_nanos(self.check_at.load())
    }

    /// Nothing outranks the task before `check_at`.
    pub(crate) fn go_on(&self, check_at: Instant) {
        self.check_at.store(check_at.as_nanos());
        self.next_quantum();
    }

    /// A poll begins.
    pub(crate) fn listen(&self, now: Instant) {
        self.polled_at.store(now.as_nanos());
        self.advance.store(FAR);
        self.sleep.store(FAR);
        self.io.store(FAR);
        self.checkpoint.store(0);
    }

    /// Counts an overrun if the quantum that ends took longer than declared.
    pub(crate) fn meter(&self, now: Instant) {
        let took = now.since(Instant::from_nanos(self.quantum_start.load()));
        if took > Span::from_nanos(self.quantum_cost.load()) {
            self.quantum_overruns.store(self.quantum_overruns.load() + 1);
        }
        self.quantum_start.store(now.as_nanos());
    }

    pub(crate) fn requested_advance(&self) -> Option<Instant> {
        requested(&self.advance)
    }

    pub(crate) fn requested_sleep(&self) -> Option<Instant> {
        requested(&self.sleep)
    }

    pub(crate) fn requested_io(&self) -> Option<Instant> {
        requested(&self.io)
    }

    pub(crate) fn requested_checkpoint(&self) -> bool {
        self.checkpoint.load() != 0
    }

    /// Checkpoints passed in this upcall, and quanta that took too long.
    pub(crate) fn used(&self) -> (u32, u32) {
        let number = |word: &Word| u32::try_from(word.load()).unwrap_or(u32::MAX);
        (number(&self.pdus), number(&self.quantum_overruns))
    }
}

/// Keeps the earlier of two instants. Stores `FAR` as the moment before it, because `FAR` means
/// that the task named no instant.
fn earlier(word: &Word, at: Instant) {
    word.store(word.load().min(at.as_nanos()).min(FAR - 1));
}

fn requested(word: &Word) -> Option<Instant> {
    Some(Instant::from_nanos(word.load())).filter(|&at| at < Instant::FAR)
}

impl Wake for TaskCell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// From any thread; wait-free. Makes a system call only if the executor sleeps.
    fn wake_by_ref(self: &Arc<Self>) {
        // `closed` only spares the poll of another activity. Before the cell is bound the task does
        // not wait: its first poll is still to come.
        if let Some(address) = self.address.get().filter(|_| self.closed.load() == 0) {
            address.shared.wake(address.id);
        }
    }
}
