//! The watchdog of a process without a daemon: lowers executors that do not yield.
//!
//! An executor has the real-time class. A handler that never returns would keep all ordinary
//! programs, and other FIFO threads of the same priority, from the CPU. One thread of the process,
//! `upcall-watchdog`, runs at a priority above the executors. It sleeps, looks at each executor
//! every 20 ms, and compares CPU times. Under a daemon there is no such thread: the daemon's
//! watchdog does this and more.
//!
//! ```text
//!                (1) beyond the budget of the upcall
//!           +-----------------------------------------> runs away --+
//!   real-time class <------- (2) the handler returned --------------+
//!      ^    |                                                        ordinary class
//!      |    +-- (3) no sleep for too long ------------> overloaded -+
//!      +------------- (4) the executor slept -----------------------+
//! ```
//!
//! 1. An upcall may use the CPU time that its PDUs declare ([`Pulse::begin`]), as much again, and
//!    at least 50 ms more. The same limit holds between two upcalls, with a budget of 0.
//! 2. The executor gets its class back at the next look.
//! 3. The executor ran through two jobs of each of its activities and 1 s of CPU time without a
//!    sleep. Activities that take more than they declared, or catch up, are not enough for that: an
//!    executor sleeps for half of the time that the others leave (`crate::cpu`). So its activities
//!    declare the whole CPU and more: admission refused them.
//! 4. As 2.
//!
//! An upcall costs the executor some stores into a cache line of its own, and a quantum nothing.
//! The watchdog allocates nothing once all executors are known. [`crate::Runtime::offences`]
//! reports 1 and 3.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use upcall_core::time::Span;
use upcall_sys::process::{cpu_time_of, thread_id};
use upcall_sys::schedule::{self, Band};

use crate::offence::{Measure, Offence};

#[cfg(test)]
mod tests;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// CPU time that an upcall may use beyond its budget, at least.
pub(crate) const GRACE: Span = Span::from_millis(50);
/// CPU time without a sleep, beyond two jobs of each activity.
const BUSY_MAX: Span = Span::from_secs(1);
/// Offences that may wait for [`crate::Runtime::offences`]. Further ones are lost.
const OFFENCES_MAX: usize = 64;

/// What an executor shows the watchdog. One writer, the executor; in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Pulse {
    /// Begins and ends of upcalls, and sleeps.
    beats: AtomicU64,
    sleeps: AtomicU64,
    /// CPU time that the present upcall may use.
    budget_ns: AtomicU64,
    /// CPU time of one job of each activity.
    compute_ns: AtomicU64,
    /// The executor's thread; 0 before and after its life.
    tid: AtomicU64,
}

impl Pulse {
    /// An upcall begins that may use `budget` of CPU time. Three stores.
    #[inline]
    pub(crate) fn begin(&self, budget: Span) {
        // Relaxed: `count` publishes it.
        self.budget_ns.store(budget.as_nanos(), Ordering::Relaxed);
        count(&self.beats);
    }

    /// An upcall is over.
    #[inline]
    pub(crate) fn end(&self) {
        self.begin(Span::ZERO);
    }

    /// The executor is about to sleep.
    #[inline]
    pub(crate) fn sleep(&self) {
        count(&self.sleeps);
        count(&self.beats);
    }

    /// The CPU time of one job of each activity is `compute` from now on.
    pub(crate) fn set_compute(&self, compute: Span) {
        // Relaxed: used on its own.
        self.compute_ns.store(compute.as_nanos(), Ordering::Relaxed);
    }

    /// The calling thread is the executor's, while the guard lives.
    pub(crate) fn attach_thread(&self) -> impl Drop {
        // Relaxed, also in the guard: the number is used on its own.
        self.tid.store(thread_id().into(), Ordering::Relaxed);
        Attached(self)
    }

    fn sample(&self) -> Option<Sample> {
        let tid = u32::try_from(self.tid.load(Ordering::Relaxed)).ok().filter(|&tid| tid != 0)?;
        // Acquire pairs with the Release in `count`: the budget belongs to this upcall or a later
        // one, and then the next look sees that.
        let (beats, sleeps) =
            (self.beats.load(Ordering::Acquire), self.sleeps.load(Ordering::Acquire));
        let ns = |word: &AtomicU64| Span::from_nanos(word.load(Ordering::Relaxed));
        let (budget, compute) = (ns(&self.budget_ns), ns(&self.compute_ns));
        let cpu = Span::from_nanos(cpu_time_of(std::process::id(), tid).ok()?);
        Some(Sample { beats, sleeps, budget, compute, cpu })
    }

    /// Gives the executor's thread the FIFO priority, or the ordinary class. Threads that it starts
    /// from then on are ordinary: the property stays, because only `CAP_SYS_NICE` may clear it.
    /// Does nothing once the thread has ended.
    fn set_class(&self, priority: Option<u8>) {
        let Ok(tid) = u32::try_from(self.tid.load(Ordering::Relaxed)) else { return };
        if tid == 0 {
            return;
        }
        // A failure is ignored: the right was taken away, or the thread ends now.
        let _ = match priority {
            Some(priority) => schedule::set_fifo_not_inherited_of(tid, priority),
            None => schedule::set_ordinary_not_inherited_of(tid),
        };
    }
}

struct Attached<'a>(&'a Pulse);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.0.tid.store(0, Ordering::Relaxed);
    }
}

/// Adds 1 to a word that only the calling thread writes.
#[inline]
fn count(word: &AtomicU64) {
    // Relaxed: own word. Release pairs with the Acquire in `sample`.
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// What a look found.
#[derive(Clone, Copy, Debug)]
struct Sample {
    beats: u64,
    sleeps: u64,
    budget: Span,
    compute: Span,
    /// CPU time of the thread in all.
    cpu: Span,
}

/// Why an executor is in the ordinary class, with the count at which that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lowered {
    RunsAway { beats: u64 },
    Overloaded { sleeps: u64 },
}

/// What a look changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Into the ordinary class: it kept the CPU that long.
    Lower { held: Span },
    /// Back into the real-time class.
    Raise,
}

/// The watchdog's memory of an executor. A function of samples alone.
#[derive(Debug, Default)]
struct Review {
    /// The last sample before the present upcall, and the last before the present busy time.
    beat: Option<(u64, Span)>,
    sleep: Option<(u64, Span)>,
    lowered: Option<Lowered>,
}

impl Review {
    fn look(&mut self, sample: Sample) -> Option<Change> {
        let since = |known: &mut Option<(u64, Span)>, count: u64| {
            let (_, cpu) =
                *known.take_if(|known| known.0 == count).get_or_insert((count, sample.cpu));
            *known = Some((count, cpu));
            sample.cpu.saturating_sub(cpu)
        };
        let (in_upcall, awake) =
            (since(&mut self.beat, sample.beats), since(&mut self.sleep, sample.sleeps));
        match self.lowered {
            None => {
                let held = if in_upcall > sample.budget + sample.budget.max(GRACE) {
                    self.lowered = Some(Lowered::RunsAway { beats: sample.beats });
                    in_upcall
                } else if awake > BUSY_MAX + sample.compute + sample.compute {
                    self.lowered = Some(Lowered::Overloaded { sleeps: sample.sleeps });
                    awake
                } else {
                    return None;
                };
                Some(Change::Lower { held })
            }
            Some(Lowered::RunsAway { beats }) if beats == sample.beats => None,
            Some(Lowered::Overloaded { sleeps }) if sleeps == sample.sleeps => None,
            Some(_) => {
                self.lowered = None;
                Some(Change::Raise)
            }
        }
    }
}

/// An executor to watch.
struct Watched {
    cpu: u32,
    priority: u8,
    pulse: Arc<Pulse>,
    review: Review,
}

/// See the module's head. When it is dropped, the thread ends, and puts executors that have not
/// ended into the ordinary class.
#[derive(Debug)]
pub(crate) struct Watchdog {
    executors: mpsc::Sender<Watched>,
    offences: mpsc::Receiver<Offence>,
}

impl Watchdog {
    /// Starts the thread, above the handlers of `band`.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn start(band: Band) -> std::io::Result<Watchdog> {
        let (executors, arrivals) = mpsc::channel();
        let (report, offences) = mpsc::sync_channel(OFFENCES_MAX);
        std::thread::Builder::new().name("upcall-watchdog".into()).spawn(move || {
            // A failure is ignored: executors got no priority either then.
            let _ = schedule::set_fifo(band.watchdog());
            run(&arrivals, &report);
        })?;
        Ok(Watchdog { executors, offences })
    }

    /// Watches an executor that runs handlers at FIFO `priority` on `cpu`.
    pub(crate) fn watch(&self, cpu: u32, priority: u8, pulse: Arc<Pulse>) {
        // The thread lives as long as this value.
        let _ = self.executors.send(Watched { cpu, priority, pulse, review: Review::default() });
    }

    /// The offences since the last call.
    pub(crate) fn offences(&self) -> impl Iterator<Item = Offence> {
        self.offences.try_iter()
    }
}

fn run(arrivals: &mpsc::Receiver<Watched>, report: &mpsc::SyncSender<Offence>) {
    let mut all: Vec<Watched> = Vec::new();
    loop {
        match arrivals.recv_timeout(LOOK_EVERY) {
            Ok(watched) => all.push(watched),
            Err(RecvTimeoutError::Timeout) => all.iter_mut().for_each(|one| look_at(one, report)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    all.iter().for_each(|watched| watched.pulse.set_class(None));
}

fn look_at(watched: &mut Watched, report: &mpsc::SyncSender<Offence>) {
    let Some(sample) = watched.pulse.sample() else { return };
    match watched.review.look(sample) {
        Some(Change::Lower { held }) => {
            watched.pulse.set_class(None);
            let offence = Offence { cpu: watched.cpu, measure: Measure::Demoted, held };
            // If the queue is full, the program has not asked for a long time.
            let _ = report.try_send(offence);
        }
        Some(Change::Raise) => watched.pulse.set_class(Some(watched.priority)),
        None => {}
    }
}
