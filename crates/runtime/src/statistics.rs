//! Statistics of an activity while it runs, and the report at its end.
//!
//! Statistics are made from the records that executors send. The thread that calls
//! [`crate::Runtime::poll`] makes them, so they are not on the hot path.

use upcall_core::cost::CostEstimate;
use upcall_core::scheduler::Counters;
use upcall_core::trace::Record;

use crate::lag::Lag;
use crate::latency::Latency;
use crate::mailbox::Job;
use crate::offence::Offence;
use crate::virtual_time::VirtualReport;

/// Distributions of what a handler or task did so far: from
/// [`Runtime::statistics`](crate::Runtime::statistics) and in [`ActivityReport`]. Made from the
/// records of its jobs, which [`Runtime::poll`](crate::Runtime::poll) takes in.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// From release to end, of completed jobs.
    pub response: Latency,
    /// From release to first upcall.
    pub wakeup: Latency,
    /// Observed cost of a PDU.
    pub cost: CostEstimate,
    /// Quanta that took longer than declared.
    pub quantum_overruns: u64,
    /// How many jobs are in these statistics, dropped ones included. The scheduler's own count may
    /// be ahead.
    pub jobs: u64,
    /// How many of these jobs ended after their deadline or were dropped.
    pub misses: u64,
    /// How many of these jobs were dropped before they began
    /// ([`Backlog`](upcall_core::activity::Backlog), DWCS).
    pub skipped: u64,
    /// How many PDUs these jobs processed.
    pub pdus: u64,
    /// Least slack in nanoseconds, `None` before the first job.
    pub slack_ns_min: Option<i64>,
    /// How far the service is behind its ideal share, as of the last
    /// [`Runtime::poll`](crate::Runtime::poll), unfinished jobs included. `None` before the first
    /// upcall, under another policy than PS, and in the baseline modes, where the kernel decides.
    pub lag: Option<Lag>,
}

impl Statistics {
    pub(crate) fn observe(&mut self, job: &Job) {
        let record = &job.record;
        self.jobs += job.ended;
        self.misses += job.missed;
        self.skipped += job.skipped;
        self.pdus += u64::from(record.pdus);
        self.quantum_overruns += u64::from(job.quantum_overruns);
        if record.completed {
            self.response.observe(record.response());
            let slack_ns = record.slack_ns();
            self.slack_ns_min = Some(self.slack_ns_min.map_or(slack_ns, |min| min.min(slack_ns)));
        }
        self.wakeup.observe(record.wakeup_latency());
        self.cost.observe(record.run, record.pdus);
    }
}

/// What one handler or task did, from its creation to its end: in [`Report::activities`] and from
/// [`Runtime::close`](crate::Runtime::close).
#[derive(Clone, Debug)]
pub struct ActivityReport {
    /// Its name.
    pub name: String,
    /// The CPU on which it ran.
    pub cpu: u32,
    /// The parameters with which it was admitted.
    pub params: upcall_core::activity::ActivityParams,
    /// Exact counts, with unfinished late jobs. `None` if its thread did not end, see
    /// [`Report::stuck`].
    pub counters: Option<Counters>,
    /// Distributions.
    pub statistics: Statistics,
    /// The handler panicked and was suspended.
    pub faulted: bool,
    /// The message and location of the panic: `index out of bounds (src/main.rs:5:9)`. `None` if
    /// the handler did not panic, if its thread did not end, or if a panic hook that the program
    /// set after [`Runtime::start`](crate::Runtime::start) took the message.
    pub panic: Option<String>,
}

/// What a runtime did from start to end: from [`Runtime::stop`](crate::Runtime::stop) and
/// [`Runtime::abort`](crate::Runtime::abort).
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Handlers and tasks in the order of creation, without those that
    /// [`Runtime::close`](crate::Runtime::close) has reported.
    pub activities: Vec<ActivityReport>,
    /// The same for virtual-time handlers.
    pub virtual_handlers: Vec<VirtualReport>,
    /// How often a CPU went from one activity to another.
    pub activity_switches: u64,
    /// Turns that this process passed on, over all CPUs: to a peer domain or, with nothing to run,
    /// to the daemon. Zero without [`Config::daemon`](crate::Config::daemon).
    pub domain_switches: u64,
    /// Context switches of the scheduling threads, by the kernel's count.
    pub kernel_switches: u64,
    /// How late the scheduling threads woke, each time a release found one asleep.
    pub wakeup: Latency,
    /// Jobs that are in the counters but not in the statistics, because no thread polled in time.
    pub jobs_lost: u64,
    /// CPUs whose handler did not yield at the end of the run.
    pub stuck: Vec<u32>,
    /// Names of the handlers that did not finish within the abort phase; see
    /// [`Runtime::abort`](crate::Runtime::abort).
    pub unfinished: Vec<String>,
    /// The offences since the last call of [`Runtime::offences`].
    ///
    /// [`Runtime::offences`]: crate::Runtime::offences
    pub offences: Vec<Offence>,
    /// The trace since the last call of [`Runtime::poll_trace`].
    ///
    /// [`Runtime::poll_trace`]: crate::Runtime::poll_trace
    pub trace: Vec<(u32, Record)>,
}
