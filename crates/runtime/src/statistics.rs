//! What is known of an activity while it runs and when it is over.
//!
//! Made from the records that executives send; read by reports. Not on the hot
//! path: it runs in the thread of whoever calls [`crate::Runtime::poll`].

use hdrhistogram::Histogram;
use upcall_core::cost::CostEstimate;
use upcall_core::scheduler::Counters;
use upcall_core::time::Span;

use crate::executive::Job;

/// Largest time a histogram tells apart from larger ones: an hour.
const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Statistics of one activity. Times carry two significant digits, but for the
/// extremes, which are exact.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// From release to end.
    response: Histogram<u64>,
    /// From release to first upcall.
    wakeup: Histogram<u64>,
    /// Observed cost of a PDU.
    pub cost: CostEstimate,
    /// Quanta that took longer than declared.
    pub quantum_overruns: u64,
    /// Jobs seen so far (lags behind the scheduler's own count).
    pub jobs: u64,
    /// Of these, ended after their deadline.
    pub misses: u64,
    /// PDUs of these.
    pub pdus: u64,
    /// Least slack in nanoseconds, `None` before the first job.
    pub slack_ns_min: Option<i64>,
}

impl Default for Statistics {
    fn default() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, TIME_NS_MAX, 2).expect("bounds and digits are valid");
        Statistics {
            response: histogram(),
            wakeup: histogram(),
            cost: CostEstimate::default(),
            quantum_overruns: 0,
            jobs: 0,
            misses: 0,
            pdus: 0,
            slack_ns_min: None,
        }
    }
}

impl Statistics {
    pub(crate) fn observe(&mut self, job: &Job) {
        let record = &job.record;
        self.jobs += 1;
        self.misses += u64::from(record.missed());
        self.pdus += u64::from(record.pdus);
        self.quantum_overruns += u64::from(job.quantum_overruns);
        if record.completed {
            self.response.saturating_record(record.response().as_nanos());
            let slack_ns = record.slack_ns();
            self.slack_ns_min = Some(self.slack_ns_min.map_or(slack_ns, |min| min.min(slack_ns)));
        }
        self.wakeup.saturating_record(record.wakeup_latency().as_nanos());
        self.cost.observe(record.run, record.pdus);
    }

    /// The response that `percentile` (0 to 100) of the jobs did not exceed.
    pub fn response_percentile(&self, percentile: f64) -> Span {
        Span::from_nanos(self.response.value_at_percentile(percentile))
    }

    /// The wake-up latency that `percentile` of the jobs did not exceed.
    pub fn wakeup_percentile(&self, percentile: f64) -> Span {
        Span::from_nanos(self.wakeup.value_at_percentile(percentile))
    }
}

/// The end of one activity, for reports.
#[derive(Clone, Debug)]
pub struct ActivityReport {
    /// Its name.
    pub name: String,
    /// Where it ran.
    pub cpu: u32,
    /// What it was admitted with.
    pub params: upcall_core::activity::ActivityParams,
    /// Exact counts, unfinished late jobs included; `None` if its thread never
    /// came back, see [`Report::stuck`].
    pub counters: Option<Counters>,
    /// Distributions.
    pub statistics: Statistics,
    /// The handler panicked and was suspended.
    pub faulted: bool,
}

/// The end of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In order of creation; closed ones included.
    pub activities: Vec<ActivityReport>,
    /// Times a CPU went from one activity to another.
    pub activity_switches: u64,
    /// Context switches of the scheduling threads, by the kernel's count.
    pub kernel_switches: u64,
    /// Jobs that are in the counters but not in the statistics, because nobody
    /// polled in time.
    pub jobs_lost: u64,
    /// CPUs whose handler did not yield when the run was to end.
    pub stuck: Vec<u32>,
}
