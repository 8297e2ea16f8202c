//! One run of one set, idle or loaded.

use std::time::Duration;

use upcall::record::JobRecord;
use upcall::time::{Instant, Span};
use upcall::work::{Work, WorkKind};
use upcall::{Config, HandlerId, Runtime, clock};
use upcall_benches::wakeup_latencies_ns;

use crate::competitors::Competitors;
use crate::evidence::{Host, Rivals};
use crate::set::{Member, PERIODS_MS, Set};

/// Time from the last preparation to the first release, in which competitors start.
const LEAD: Span = Span::from_millis(300);
/// The longest period and some time to record the last job.
const DRAIN: Span = Span::from_millis(120);
/// The interval between two reads of job records, each with a scan for rivals.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

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
    pub record: JobRecord,
    /// Time from the start of the step to its release.
    pub after: Span,
    /// CPU time declared for it.
    pub declared: Span,
}

impl Step {
    /// Runs `set` for `duration`. Starts `competitors` after all other preparations.
    ///
    /// # Errors
    /// A part of the step could not be started.
    pub fn run(
        set: &Set,
        duration: Span,
        competitors: impl FnOnce() -> Result<Option<Competitors>, String>,
    ) -> Result<Step, String> {
        let mut runtime = Runtime::start(Config {
            cpus: vec![set.cpu],
            switch_cost: Some(set.switch_cost),
            unscreened: !set.admitted(),
            ..Config::default()
        })
        .map_err(|error| error.to_string())?;
        let handlers = create(&mut runtime, set)?;
        let notices = runtime.notices().iter().map(ToString::to_string).collect();
        let competitors = competitors()?;
        let start = clock::now() + LEAD;
        let end = start + duration;
        runtime.run_at(&handlers, start).map_err(|error| error.to_string())?;

        let mut records = Vec::with_capacity(16 * 1024);
        let mut take = |_: HandlerId, job: &upcall::Job| records.push(job.record);
        let mut rivals = Rivals::default();
        let before = Host::now(set.cpu);
        while clock::now() < end + DRAIN {
            let left: Duration = (end + DRAIN).since(clock::now()).into();
            std::thread::sleep(left.min(POLL_INTERVAL));
            runtime.poll(&mut take);
            rivals.scan(set.cpu);
        }
        let host = Host::now(set.cpu).since(before);
        let loaded = competitors.is_some();
        let competitors_cpu = competitors.map(Competitors::stop).unwrap_or_default();
        let report = runtime.stop(&mut take);
        if report.jobs_lost > 0 {
            return Err(format!("{} records were lost", report.jobs_lost));
        }
        records.retain(|record| record.release < end);
        Ok(Step {
            loaded,
            host,
            rivals,
            competitors_cpu,
            activity_switches: report.activity_switches,
            kernel_switches: report.kernel_switches,
            notices,
            ..Step::of_records(set, &records, start, duration)
        })
    }

    /// Jobs that ended after their deadline, and jobs that had not ended long after it.
    pub fn misses(&self) -> u64 {
        self.late.len() as u64 + self.unfinished
    }

    pub fn admitted(&self) -> bool {
        self.refusal.is_none()
    }

    /// Whether the host and other threads kept the handlers' thread from running for at least the
    /// least slack that was promised. A shorter loss of the CPU makes no job late by itself.
    pub fn cpu_was_taken(&self) -> bool {
        /// The kernel counts steal time by the tick.
        const TICK_MS: u64 = 10;
        let taken_ms = self.host.steal_ms + TICK_MS + self.host.waited_ns / 1_000_000;
        let promised_ns = self.slack_promised_ns.iter().flatten().min().copied().unwrap_or(0);
        i64::try_from(taken_ms * 1_000_000).is_ok_and(|taken_ns| taken_ns >= promised_ns)
    }

    fn of_records(set: &Set, records: &[JobRecord], start: Instant, duration: Span) -> Step {
        let member = |record: &JobRecord| &set.members[record.id.0 as usize];
        let released =
            |member: &Member| duration.as_nanos().div_ceil(member.params.period.as_nanos());
        let jobs = set.members.iter().map(released).sum();
        let over_ns = |record: &JobRecord| over_cost_ns(record, member(record));
        let late = records.iter().filter(|record| record.missed()).map(|record| LateJob {
            name: member(record).name.clone(),
            record: *record,
            after: record.release.since(start),
            declared: member(record).params.compute(),
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

/// Creates the handlers in the order of the set. Each burns its declared cost.
fn create(runtime: &mut Runtime, set: &Set) -> Result<Vec<HandlerId>, String> {
    let one = |member: &Member| {
        let mut work = Work::new(WorkKind::Spin, 1, member.params.pdu_cost, upcall::thread_cpu_ns);
        let created = runtime.handler(&member.name, member.params, move |batch| {
            while batch.proceed() {
                let _ = work.take(&[]);
                // Spinning cannot fail after it took a PDU.
                let _ = work.process();
            }
        });
        created.map_err(|error| error.to_string())
    };
    set.members.iter().map(one).collect()
}

/// Time inside the handler beyond its declared cost. Either the clock ran on while the thread had
/// lost the CPU, or the handler used more than declared.
fn over_cost_ns(record: &JobRecord, member: &Member) -> u64 {
    record.run.saturating_sub(member.params.compute()).as_nanos()
}
