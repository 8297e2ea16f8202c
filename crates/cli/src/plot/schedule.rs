//! The schedule of a trace: when each activity ran, and how its jobs ended.

use std::collections::BTreeMap;

use upcall::activity::ActivityId;
use upcall::record::JobRecord;
use upcall::scheduler::{Command, Input};
use upcall_sim::trace::{Crossing, Trace};

/// One activity's row.
#[derive(Clone, Debug)]
pub struct Row {
    pub cpu: u32,
    pub id: ActivityId,
    pub domain: String,
    pub name: String,
    /// Each from upcall to return, in nanoseconds of the trace's clock.
    pub runs: Vec<Run>,
    pub jobs: Vec<JobRecord>,
    period_ns: u64,
}

/// One continuous run on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub from_ns: u64,
    pub until_ns: u64,
    /// Whether it continues a job that yielded.
    pub resumed: bool,
}

/// All rows, and the time that they cover.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub policy: &'static str,
    pub rows: Vec<Row>,
    pub from_ns: u64,
    pub until_ns: u64,
}

impl Schedule {
    /// Rows in the order of the processes and their CPUs; on each CPU in the order of the header.
    /// O(n log n).
    pub fn of(traces: &[Trace]) -> Schedule {
        let mut rows = Vec::new();
        let starts = traces.iter().map(|trace| trace.header.start.as_nanos());
        let from_ns = starts.min().unwrap_or(0);
        let mut until_ns = from_ns;
        for trace in traces {
            until_ns = until_ns.max(add_rows(&mut rows, trace));
        }
        let policy = traces.first().map_or("", |trace| trace.header.discipline.name);
        Schedule { policy, rows, from_ns, until_ns }
    }

    /// Time of the first release or upcall, in nanoseconds from the start. A live trace begins with
    /// the program, well before its handlers.
    pub fn first_event_ns(&self) -> u64 {
        let runs = self.rows.iter().flat_map(|row| &row.runs).map(|run| run.from_ns);
        let jobs = self.rows.iter().flat_map(|row| &row.jobs).map(|job| job.release.as_nanos());
        runs.chain(jobs).min().map_or(0, |first_ns| first_ns.saturating_sub(self.from_ns))
    }

    /// The length of time that a page shows well: a few of the longest periods.
    pub fn first_page_ns(&self) -> u64 {
        let longest = self.rows.iter().map(|row| row.period_ns).max().unwrap_or(0);
        let whole = self.until_ns - self.from_ns;
        if longest == 0 { whole } else { whole.min(longest.saturating_mul(4)) }
    }
}

/// Adds the rows of one process. Returns the time of its last record.
fn add_rows(rows: &mut Vec<Row>, trace: &Trace) -> u64 {
    let mut until_ns = trace.header.start.as_nanos();
    for (&(cpu, _), records) in trace.header.cpus.iter().zip(&trace.records) {
        let mut of_cpu: BTreeMap<u32, Row> = BTreeMap::new();
        let mut order = Vec::new();
        for named in trace.header.activities.iter().filter(|named| named.cpu == cpu) {
            order.push(named.id.0);
            let (domain, name) = (named.domain.clone(), named.name.clone());
            let (id, runs, jobs) = (named.id, Vec::new(), Vec::new());
            of_cpu.insert(id.0, Row { cpu, id, domain, name, runs, jobs, period_ns: 0 });
        }
        let mut running = None;
        for record in records {
            let now_ns = record.now.as_nanos();
            until_ns = until_ns.max(now_ns);
            match record.crossing {
                Crossing::Input { input: Input::Create { id, params, .. }, refused: false } => {
                    if let Some(row) = of_cpu.get_mut(&id.0) {
                        row.period_ns = params.period.as_nanos();
                    }
                }
                Crossing::Input { input: Input::Returned { .. }, refused: false } => {
                    if let Some((id, from_ns, resumed)) = running.take()
                        && let Some(row) = of_cpu.get_mut(&id)
                    {
                        row.runs.push(Run { from_ns, until_ns: now_ns, resumed });
                    }
                }
                Crossing::Command(Some(command)) | Crossing::Notice(Some(command)) => match command
                {
                    Command::Upcall { id, resumed, .. } => {
                        running = Some((id.0, now_ns, resumed));
                    }
                    Command::JobDone(job) => {
                        if let Some(row) = of_cpu.get_mut(&job.id.0) {
                            row.jobs.push(job);
                        }
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        rows.extend(order.iter().filter_map(|id| of_cpu.remove(id)));
    }
    until_ns
}
