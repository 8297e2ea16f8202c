//! Virtual-time upcalls: handlers without a period and without a rank, upcalled
//! whenever the process would run anyway (rtu-1995 §9).
//!
//! Made by the runtime with the first of them, together with the one thread that upcalls
//! them all, `upcall-virtual`. That thread is of the ordinary class: it runs when the
//! kernel runs the process as one of many, and nothing is promised to it. It takes
//! the handlers in turn, in the order in which they were created, each for a quantum.
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
//! 1. A run that comes while it runs outlives a finish of that upcall.
//! 2. Nobody else runs: there is one thread, and no handler is left inside a quantum.
//! 3. To the end of the round.
//! 4. While it runs, at the end of its quantum.
//! 5. Who waits for it is told.
//!
//! At the end of the process those that were given an abort phase are upcalled on until
//! they finish ([`Runtime::abort`](crate::Runtime::abort)): a protocol closes with its peer.
//!
//! So two virtual handlers of a process share data without a lock. With real-time
//! handlers they do not: those preempt this thread as they do any of the process.
//! The lock in here is the controllers' and this thread's; no executor takes it, and
//! it is not held while a handler runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use upcall_core::scheduler::Outcome;
use upcall_core::time::{Instant, Span};

use crate::clock;
use crate::id::HandlerId;
use crate::mailbox::Epoch;
use crate::work::batch::{Authority, Batch, Grant, Use};
use crate::work::handler::{self, Handler};

/// What a virtual-time handler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualStatistics {
    /// Times it was upcalled, the present one not counted.
    pub upcalls: u64,
    /// PDUs that it began in these.
    pub pdus: u64,
    /// CPU time that these took.
    pub cpu: Span,
}

/// The end of one virtual-time handler, for reports.
#[derive(Clone, Debug)]
pub struct VirtualReport {
    /// Its name.
    pub name: String,
    /// What it did.
    pub statistics: VirtualStatistics,
    /// It panicked, and was suspended.
    pub faulted: bool,
    /// It did not return when all was to end, and was left behind.
    pub stuck: bool,
}

/// See the module's head. The controller's end.
pub(crate) struct VirtualTime {
    board: Arc<Board>,
    thread: JoinHandle<()>,
}

/// What the controllers and the thread share.
struct Board {
    table: Mutex<Table>,
    /// There may be something to run, or it is over.
    changed: Condvar,
    /// Whoever runs is to return at the end of its quantum.
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
    /// It was run since its present upcall began.
    run_again: bool,
    faulted: bool,
    /// It goes on when the process ends, until it finishes.
    abort_phase: bool,
    statistics: VirtualStatistics,
}

/// What the thread is to do next.
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
    /// What the system said.
    pub(crate) fn start(inactive_epoch: Arc<Epoch>) -> Result<Self, String> {
        let board = Arc::new(Board {
            table: Mutex::default(),
            changed: Condvar::new(),
            turn_is_over: AtomicBool::new(false),
            inactive_epoch,
        });
        let served = board.clone();
        let thread = std::thread::Builder::new()
            .name("upcall-virtual".to_owned())
            .spawn(move || {
                // Whoever made it may be of another class, which a thread inherits. To
                // give up a class needs no right.
                let _ = upcall_sys::schedule::set_ordinary();
                served.serve();
            })
            .map_err(|error| error.to_string())?;
        Ok(VirtualTime { board, thread })
    }

    /// Takes up a handler, suspended. `quantum` is at least 1.
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

    /// Delivers it from now on; nothing if it is closed.
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

    /// Delivers it no more; does not wait for it.
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

    /// Takes it out, if it does not run just now: the caller suspended it, and asks
    /// again. The handler is dropped here.
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

    /// The process ends: those that have an abort phase are upcalled on with the news,
    /// the others suspended.
    pub(crate) fn announce_abort(&self) {
        let mut table = self.board.lock();
        table.aborting = true;
        for entry in table.handlers.values_mut() {
            entry.delivered &= entry.abort_phase;
            entry.run_again &= entry.abort_phase;
        }
        // Whoever runs returns at the end of its quantum, to be called again.
        self.board.turn_is_over.store(true, Ordering::Relaxed);
        drop(table);
        self.board.inactive_epoch.advance();
    }

    /// The names of those whose abort phase is not over.
    pub(crate) fn aborting(&self) -> Vec<String> {
        let table = self.board.lock();
        let left = table.handlers.iter().filter(|&(&id, entry)| {
            entry.abort_phase && (entry.delivered || table.running == Some(id))
        });
        left.map(|(_, entry)| entry.name.clone()).collect()
    }

    /// Whether it is delivered, or has not returned yet since.
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

    /// The thread is not at its end.
    pub(crate) fn runs(&self) -> bool {
        !self.thread.is_finished()
    }

    /// How all of them did, in the order of creation. Whoever does not return is left
    /// to itself.
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
        // No handler runs under the lock, and the table is whole between statements.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever runs whether somebody waits for its turn.
    fn show(&self, table: &Table) {
        let others = |running| {
            let mut handlers = table.handlers.iter();
            // Another is delivered, or it itself is not any more.
            handlers.any(|(&id, entry)| entry.delivered == (id != running))
        };
        let over = table.quit || table.running.is_some_and(others);
        // Relaxed: only decides whether to look; what changed is read under the lock.
        self.turn_is_over.store(over, Ordering::Relaxed);
    }

    /// The thread: upcalls until it is over.
    fn serve(&self) {
        let mut last = None;
        while let Some(Turn { id, mut handler, quantum, aborting }) = self.next(last) {
            let cpu_before_ns = upcall_sys::clock::thread_cpu_ns();
            let grant = Grant {
                pdus_max: u32::MAX,
                quantum,
                // Nothing was declared.
                quantum_cost: Span::MAX,
                check_at: Instant::FAR,
                start: clock::now(),
                resumed: false,
                aborting,
            };
            let batch = Batch::new(Authority::VirtualTime(&self.turn_is_over), grant);
            let (used, panicked) = handler::upcall(&mut handler, batch);
            let cpu_ns = upcall_sys::clock::thread_cpu_ns() - cpu_before_ns;
            self.returned(id, handler, &used, panicked, Span::from_nanos(cpu_ns));
            last = Some(id);
        }
    }

    /// Whose turn it is after `last`; waits until it is somebody's. `None`: it is over.
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
        // What was taken for the last report is not there any more.
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
    /// Begins the turn of the first that is delivered after `last`, in a circle.
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
