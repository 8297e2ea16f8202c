//! Virtual-time upcalls: handlers without a period and without a rank, upcalled
//! whenever the process would run anyway (rtu-1995 §9).
//!
//! The runtime starts one thread, `upcall-virtual`, with the first virtual-time handler. That
//! thread upcalls them all. The thread is of the ordinary class. It runs when the kernel schedules
//! it among all ordinary threads, and nothing is promised to it. It upcalls the handlers in turn,
//! in the order of their creation, each for a quantum.
//!
//! ```text
//!              run (1)               turn comes (2)
//!   suspended ---------> delivered -----------------> runs
//!       ^                 ^   |   <-----------------   |
//!       |                 |   |      returned (3)      |
//!       +-----------------|---+                        |
//!       |   suspend (4)   |                            |
//!       +-----------------|----------------------------+
//!                returned: finished, suspended meanwhile, or panicked (5)
//! ```
//!
//! 1. If `run` is called while the handler runs, a `finish` in that upcall does not undo the `run`.
//! 2. No other virtual handler runs: there is one thread, and no handler is left inside a quantum.
//! 3. The handler goes to the end of the round.
//! 4. If the handler runs, a suspend takes effect at the end of its quantum.
//! 5. Threads that wait for the handler are woken.
//!
//! At the end of the process, handlers with an abort phase are upcalled until they finish
//! ([`Runtime::abort`](crate::Runtime::abort)), so that a protocol closes with its peer.
//!
//! Because of (2), two virtual handlers of a process can share data without a lock. Data that they
//! share with real-time handlers needs a lock, because those preempt this thread as they do any
//! ordinary thread. The lock of this module belongs to the controllers and this thread. No executor
//! takes it, and it is not held while a handler runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use upcall_core::scheduler::Outcome;
use upcall_core::time::{Instant, Span};

use crate::clock;
use crate::id::HandlerId;
use crate::mailbox::Epoch;
use crate::thread_error::ThreadError;
use crate::work::batch::{Authority, Batch, Grant, Use};
use crate::work::handler::{self, Handler};

/// What a virtual-time handler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualStatistics {
    /// Finished upcalls.
    pub upcalls: u64,
    /// PDUs that the handler began in these upcalls.
    pub pdus: u64,
    /// CPU time that these upcalls took.
    pub cpu: Span,
}

/// The report of one virtual-time handler.
#[derive(Clone, Debug)]
pub struct VirtualReport {
    /// Its name.
    pub name: String,
    /// What it did.
    pub statistics: VirtualStatistics,
    /// The handler panicked, and was suspended.
    pub faulted: bool,
    /// The handler did not return at the end, and was left behind.
    pub stuck: bool,
}

/// The controller's end of the module's thread.
pub(crate) struct VirtualTime {
    board: Arc<Board>,
    thread: JoinHandle<()>,
}

/// What the controllers and the thread share.
struct Board {
    table: Mutex<Table>,
    /// Notified when there may be a handler to run, and when the thread is to end.
    changed: Condvar,
    /// The handler that runs must return at the end of its quantum.
    turn_is_over: AtomicBool,
    inactive_epoch: Arc<Epoch>,
}

#[derive(Default)]
struct Table {
    /// In the order of creation.
    handlers: BTreeMap<HandlerId, Entry>,
    running: Option<HandlerId>,
    /// The process ends.
    aborting: bool,
    quit: bool,
}

struct Entry {
    name: String,
    /// `None` while it runs.
    handler: Option<Handler>,
    quantum: u32,
    delivered: bool,
    /// The handler was run since its present upcall began.
    run_again: bool,
    faulted: bool,
    /// Whether the handler has an abort phase.
    abort_phase: bool,
    statistics: VirtualStatistics,
}

/// The upcall that comes next.
struct Turn {
    id: HandlerId,
    handler: Handler,
    quantum: u32,
    aborting: bool,
}

impl VirtualTime {
    /// Starts the thread. Allocates.
    ///
    /// # Errors
    /// The thread did not start.
    pub(crate) fn start(inactive_epoch: Arc<Epoch>) -> Result<Self, ThreadError> {
        let board = Arc::new(Board {
            table: Mutex::default(),
            changed: Condvar::new(),
            turn_is_over: AtomicBool::new(false),
            inactive_epoch,
        });
        let served = board.clone();
        let thread =
            std::thread::Builder::new().name("upcall-virtual".to_owned()).spawn(move || {
                // A thread inherits the class of its creator, which may be a real-time class.
                // Giving up a class needs no right.
                let _ = upcall_sys::schedule::set_ordinary();
                served.serve();
            })?;
        Ok(VirtualTime { board, thread })
    }

    /// Adds a handler, suspended. `quantum` is at least 1.
    pub(crate) fn enter(&self, id: HandlerId, name: &str, quantum: u32, handler: Handler) {
        let entry = Entry {
            name: name.to_owned(),
            handler: Some(handler),
            quantum,
            delivered: false,
            run_again: false,
            faulted: false,
            abort_phase: false,
            statistics: VirtualStatistics::default(),
        };
        self.board.lock().handlers.insert(id, entry);
    }

    pub(crate) fn has(&self, id: HandlerId) -> bool {
        self.board.lock().handlers.contains_key(&id)
    }

    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.board.lock().handlers.values().any(|entry| entry.name == name)
    }

    /// Delivers a handler from now on. No effect if it is closed.
    pub(crate) fn run(&self, id: HandlerId) {
        let mut table = self.board.lock();
        let running = table.running;
        let Some(entry) = table.handlers.get_mut(&id) else { return };
        entry.delivered = true;
        entry.run_again = running == Some(id);
        self.board.show(&table);
        drop(table);
        self.board.changed.notify_one();
    }

    /// Stops delivering a handler; does not wait for it.
    pub(crate) fn suspend(&self, id: HandlerId) {
        let mut table = self.board.lock();
        let running = table.running;
        let Some(entry) = table.handlers.get_mut(&id) else { return };
        entry.delivered = false;
        entry.run_again = false;
        self.board.show(&table);
        drop(table);
        if running != Some(id) {
            self.board.inactive_epoch.advance();
        }
    }

    /// Removes and drops a handler. `None` while the handler runs: the caller has suspended it, and
    /// tries again.
    pub(crate) fn take(&self, id: HandlerId) -> Option<VirtualReport> {
        let mut table = self.board.lock();
        if table.running == Some(id) {
            return None;
        }
        let entry = table.handlers.remove(&id)?;
        drop(table);
        Some(entry.report(false))
    }

    pub(crate) fn give_abort_phase(&self, id: HandlerId) {
        if let Some(entry) = self.board.lock().handlers.get_mut(&id) {
            entry.abort_phase = true;
        }
    }

    /// The process ends: begins the abort phase of the handlers that have one, and suspends the
    /// others.
    pub(crate) fn announce_abort(&self) {
        let mut table = self.board.lock();
        table.aborting = true;
        for entry in table.handlers.values_mut() {
            entry.delivered &= entry.abort_phase;
            entry.run_again &= entry.abort_phase;
        }
        // The handler that runs returns at the end of its quantum, and is called again.
        self.board.turn_is_over.store(true, Ordering::Relaxed);
        drop(table);
        self.board.inactive_epoch.advance();
    }

    /// The names of the handlers whose abort phase is not over.
    pub(crate) fn aborting(&self) -> Vec<String> {
        let table = self.board.lock();
        let left = table.handlers.iter().filter(|&(&id, entry)| {
            entry.abort_phase && (entry.delivered || table.running == Some(id))
        });
        left.map(|(_, entry)| entry.name.clone()).collect()
    }

    /// Whether a handler is delivered, or runs its last upcall.
    pub(crate) fn is_active(&self, id: HandlerId) -> bool {
        let table = self.board.lock();
        table.running == Some(id) || table.handlers.get(&id).is_some_and(|entry| entry.delivered)
    }

    pub(crate) fn statistics(&self, id: HandlerId) -> Option<VirtualStatistics> {
        self.board.lock().handlers.get(&id).map(|entry| entry.statistics)
    }

    /// Tells the thread to end; does not wait for it.
    pub(crate) fn quit(&self) {
        let mut table = self.board.lock();
        table.quit = true;
        self.board.show(&table);
        drop(table);
        self.board.changed.notify_one();
    }

    /// Whether the thread has not ended.
    pub(crate) fn runs(&self) -> bool {
        !self.thread.is_finished()
    }

    /// The reports of all handlers, in the order of creation. A handler that does not return is
    /// left behind.
    pub(crate) fn into_reports(self) -> Vec<VirtualReport> {
        let mut table = self.board.lock();
        let (handlers, running) = (std::mem::take(&mut table.handlers), table.running);
        drop(table);
        handlers.into_iter().map(|(id, entry)| entry.report(running == Some(id))).collect()
    }
}

impl Entry {
    fn report(self, stuck: bool) -> VirtualReport {
        let Entry { name, statistics, faulted, .. } = self;
        VirtualReport { name, statistics, faulted, stuck }
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // A poisoned lock is ignored: no handler runs under it, and the table stays valid across
        // panics.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the handler that runs whether its turn is over.
    fn show(&self, table: &Table) {
        let others = |running| {
            let mut handlers = table.handlers.iter();
            // Another handler is delivered, or the running one is no longer delivered.
            handlers.any(|(&id, entry)| entry.delivered == (id != running))
        };
        let over = table.quit || table.running.is_some_and(others);
        // Relaxed: only decides whether to look; what changed is read under the lock.
        self.turn_is_over.store(over, Ordering::Relaxed);
    }

    /// The thread's loop: upcalls handlers until `quit`.
    fn serve(&self) {
        let mut last = None;
        while let Some(Turn { id, mut handler, quantum, aborting }) = self.next(last) {
            let cpu_before_ns = upcall_sys::clock::thread_cpu_ns();
            let grant = Grant {
                pdus_max: u32::MAX,
                quantum,
                // No cost was declared.
                quantum_cost: Span::MAX,
                check_at: Instant::FAR,
                start: clock::now(),
                resumed: false,
                jobs_skipped: 0,
                aborting,
            };
            let batch = Batch::new(Authority::VirtualTime(&self.turn_is_over), grant);
            let (used, panicked) = handler::upcall(&mut handler, batch);
            let cpu_ns = upcall_sys::clock::thread_cpu_ns() - cpu_before_ns;
            self.returned(id, handler, &used, panicked, Span::from_nanos(cpu_ns));
            last = Some(id);
        }
    }

    /// The turn after that of `last`. Blocks until a handler is delivered. `None` after `quit`.
    fn next(&self, last: Option<HandlerId>) -> Option<Turn> {
        let mut table = self.lock();
        loop {
            if table.quit {
                return None;
            }
            if let Some(turn) = table.begin(last) {
                self.show(&table);
                return Some(turn);
            }
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn returned(&self, id: HandlerId, handler: Handler, used: &Use, panicked: bool, cpu: Span) {
        let mut table = self.lock();
        table.running = None;
        // The final report may have taken the handler out already.
        let Some(entry) = table.handlers.get_mut(&id) else { return };
        entry.handler = Some(handler);
        entry.statistics.upcalls += 1;
        entry.statistics.pdus += u64::from(used.pdus);
        entry.statistics.cpu += cpu;
        entry.faulted |= panicked;
        let finished = used.outcome == Outcome::Finished && !entry.run_again;
        entry.delivered &= !(panicked || finished);
        let inactive = !entry.delivered;
        drop(table);
        if inactive {
            self.inactive_epoch.advance();
        }
    }
}

impl Table {
    /// Begins the turn of the first delivered handler after `last`, in a circle.
    fn begin(&mut self, last: Option<HandlerId>) -> Option<Turn> {
        let mut delivered = self.handlers.iter().filter(|(_, entry)| entry.delivered);
        let first = delivered.clone().find(|&(&id, _)| Some(id) > last);
        let id = *first.or_else(|| delivered.next())?.0;
        let entry = self.handlers.get_mut(&id)?;
        let aborting = self.aborting && entry.abort_phase;
        let turn = Turn { id, handler: entry.handler.take()?, quantum: entry.quantum, aborting };
        entry.run_again = false;
        self.running = Some(id);
        Some(turn)
    }
}
