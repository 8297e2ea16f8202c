//! One run of one set, idle or loaded.

use std::path::Path;
use std::time::Duration;

use upcall::clock;
use upcall::record::JobRecord;
use upcall::time::{Instant, Span};
use upcall_benches::wakeup_latencies_ns;

use crate::competitors::Competitors;
use crate::domain::{DRAIN, Domain, Measured};
use crate::evidence::{Host, HostLog, Recorder, Rivals};
use crate::set::{Member, NAMES, PERIODS_MS, Set};

/// Time from the last preparation to the first release, in which competitors start.
const LEAD: Span = Span::from_millis(300);
/// The interval between two scans for rivals.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// Longer than the longest period: jobs that queue up make later ones late.
const BEFORE_RELEASE: Span = Span::from_millis(100);

/// The measurements of one run.
pub struct Step {
    pub utilization_percent: f64,
    pub loaded: bool,
    /// The reason for the first refusal.
    pub refusal: Option<String>,
    /// The largest analytic response in deadlines, and the name of its handler.
    pub worst: Option<(f64, String)>,
    /// By period, as in [`PERIODS_MS`].
    pub slack_promised_ns: Vec<Option<i64>>,
    pub slack_ns_min: Vec<Option<i64>>,
    /// Jobs released in the step.
    pub jobs: u64,
    /// Jobs that had not ended when the step was over.
    pub unfinished: u64,
    /// Jobs that took longer than the analysis allows.
    pub beyond_bound: u64,
    /// Jobs whose handlers ran longer than declared, and the largest excess.
    pub over_cost: u64,
    pub over_cost_ns_max: u64,
    /// Jobs that ended late.
    pub late: Vec<LateJob>,
    /// Times from a release that found the thread asleep to the first upcall, sorted.
    pub wakeups_ns: Vec<u64>,
    pub host: Host,
    pub rivals: Rivals,
    pub competitors_cpu: Span,
    pub activity_switches: u64,
    pub kernel_switches: u64,
    /// Notices of the runtime about rights that it was not granted.
    pub notices: Vec<String>,
}

/// A job that missed its deadline, with the evidence about the cause.
pub struct LateJob {
    pub name: String,
    /// Its place in [`NAMES`].
    pub domain: usize,
    pub record: JobRecord,
    /// Time from the start of the step to its release.
    pub after: Span,
    /// CPU time declared for it.
    pub declared: Span,
    /// What took the CPU while the job was under way, and before its release.
    pub host: Host,
}

impl LateJob {
    /// Whether the host and threads of no domain took the CPU for at least as long as the job was
    /// late.
    pub fn cpu_was_taken(&self) -> bool {
        self.host.taken_ns(self.domain) >= self.record.slack_ns().unsigned_abs()
    }
}

impl Step {
    /// Runs `set` for `duration`, in two processes under the daemon at `socket`. Starts
    /// `competitors` after all other preparations.
    ///
    /// # Errors
    /// A part of the step could not be started.
    pub fn run(
        set: &Set,
        socket: &Path,
        duration: Span,
        competitors: impl FnOnce() -> Result<Option<Competitors>, String>,
    ) -> Result<Step, String> {
        // One after the other, so that the daemon admits the handlers in the order of the set.
        let mut domains = Vec::new();
        for name in NAMES {
            let percent = set.utilization_percent;
            domains.push(Domain::start(name, socket, percent, !set.admitted())?);
        }
        let ours = [domains[0].process.id(), domains[1].process.id()];
        let competitors = competitors()?;
        let start = clock::now() + LEAD;
        let end = start + duration;
        for domain in &mut domains {
            domain.begin(start, end)?;
        }
        let recorder = Recorder::start(set.cpu, ours);
        let mut rivals = Rivals::default();
        while clock::now() < end + DRAIN {
            let left: Duration = (end + DRAIN).since(clock::now()).into();
            std::thread::sleep(left.min(SCAN_INTERVAL));
            rivals.scan(set.cpu, &ours);
        }
        let log = recorder.stop();
        let loaded = competitors.is_some();
        let competitors_cpu = competitors.map(Competitors::stop).unwrap_or_default();
        let (mut records, mut notices) = (Vec::new(), Vec::new());
        let (mut activity_switches, mut kernel_switches) = (0, 0);
        for (domain, first) in domains.into_iter().zip((0..).step_by(PERIODS_MS.len())) {
            let measured: Measured = domain.finish(first)?;
            if measured.lost > 0 {
                return Err(format!("{} records were lost", measured.lost));
            }
            records.extend(measured.records);
            notices.extend(measured.notices);
            activity_switches += measured.activity_switches;
            kernel_switches += measured.kernel_switches;
        }
        records.retain(|record| record.release < end);
        Ok(Step {
            loaded,
            host: log.whole(),
            rivals,
            competitors_cpu,
            activity_switches,
            kernel_switches,
            notices,
            ..Step::of_records(set, &records, start, duration, &log)
        })
    }

    /// Jobs that ended after their deadline, and jobs that had not ended long after it.
    pub fn misses(&self) -> u64 {
        self.late.len() as u64 + self.unfinished
    }

    pub fn admitted(&self) -> bool {
        self.refusal.is_none()
    }

    fn of_records(
        set: &Set,
        records: &[JobRecord],
        start: Instant,
        duration: Span,
        log: &HostLog,
    ) -> Step {
        let member = |record: &JobRecord| &set.members[record.id.0 as usize];
        let released =
            |member: &Member| duration.as_nanos().div_ceil(member.params.period.as_nanos());
        let jobs = set.members.iter().map(released).sum();
        let over_ns = |record: &JobRecord| over_cost_ns(record, member(record));
        let late = records.iter().filter(|record| record.missed()).map(|record| LateJob {
            name: member(record).name.clone(),
            domain: record.id.0 as usize / PERIODS_MS.len(),
            record: *record,
            after: record.release.since(start),
            declared: member(record).params.compute(),
            host: log.between(cause_begins(record), record.end),
        });
        let slack_of = |period_ms: u64| {
            let of_period = records.iter().filter(|record| member(record).period_ms == period_ms);
            of_period.map(JobRecord::slack_ns).min()
        };
        let beyond = |record: &&JobRecord| {
            member(record).response_max.is_some_and(|max| record.response() > max)
        };
        Step {
            utilization_percent: set.utilization_percent,
            loaded: false,
            refusal: set.refusal.clone(),
            worst: set.worst().map(|(worst, name)| (worst, name.to_owned())),
            slack_promised_ns: PERIODS_MS
                .map(|period_ms| set.slack_promised_ns(period_ms))
                .to_vec(),
            slack_ns_min: PERIODS_MS.map(slack_of).to_vec(),
            jobs,
            unfinished: jobs.saturating_sub(records.len() as u64),
            beyond_bound: records.iter().filter(beyond).count() as u64,
            over_cost: records.iter().filter(|record| over_ns(record) > 0).count() as u64,
            over_cost_ns_max: records.iter().map(over_ns).max().unwrap_or_default(),
            late: late.collect(),
            wakeups_ns: wakeup_latencies_ns(records),
            host: Host::default(),
            rivals: Rivals::default(),
            competitors_cpu: Span::ZERO,
            activity_switches: 0,
            kernel_switches: 0,
            notices: Vec::new(),
        }
    }
}

/// When that may have begun which made a job late: as long before its release as it is late, and a
/// period more, because jobs queue up behind others that are late.
fn cause_begins(record: &JobRecord) -> Instant {
    let before_ns = record.slack_ns().unsigned_abs() + BEFORE_RELEASE.as_nanos();
    Instant::from_nanos(record.release.as_nanos().saturating_sub(before_ns))
}

/// Time inside the handler beyond its declared cost. Either the clock ran on while the thread had
/// lost the CPU, or the handler used more than declared.
fn over_cost_ns(record: &JobRecord, member: &Member) -> u64 {
    record.run.saturating_sub(member.params.compute()).as_nanos()
}
