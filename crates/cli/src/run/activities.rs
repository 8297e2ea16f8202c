//! The activities of this process: all of a plan, or those of one domain.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use upcall::activity::Window;
use upcall::status::status;
use upcall::time::{Instant, Span};
use upcall::udp::StreamCounters;
use upcall::work::{Work, WorkKind};
use upcall::{CreateError, HandlerId, Job, Mode, Need, Record, Runtime};
use upcall_sim::trace::{Clock, Header, Named};

use crate::exit::Failure;
use crate::measured::{ActivityResults, Progress, StreamCounts};
use crate::output::{Offence, Promise};
use crate::plan::Planned;
use crate::spec::Spec;
use crate::stream::{Endpoint, SharedWorkCounters, flow};
use crate::{outcome, output};

/// A runtime and the activities created in it.
pub struct Activities {
    pub runtime: Runtime,
    /// By name, those that other processes run included.
    known: BTreeMap<String, HandlerId>,
    /// In order of creation.
    created: Vec<Created>,
    /// The socket of the daemon of the flows, if streams have some.
    flows: Option<PathBuf>,
}

struct Created {
    /// Position among the plan's activities.
    activity: usize,
    handler: HandlerId,
    /// The counters of the stream, if the activity is one.
    stream: Option<(Arc<StreamCounters>, Arc<SharedWorkCounters>)>,
    /// The longest response by analysis, if the analysis found one.
    response_max: Option<Span>,
    /// Completed jobs with a longer response than `response_max`.
    above_max: u64,
    /// The windows, if they are promised.
    windows: Option<Windows>,
}

/// The windows of an activity, which follow one another from its first release on.
struct Windows {
    allowed: Window,
    period: Span,
    /// The first release, once a job has ended.
    first: Option<Instant>,
    /// The current window, and its misses so far.
    current: u64,
    misses: u32,
    violations: u64,
}

impl Windows {
    fn of(planned: &Planned<'_>) -> Option<Self> {
        let allowed = planned.terms.window.filter(|_| planned.promise == Promise::Windows)?;
        let period = planned.params.period;
        Some(Windows { allowed, period, first: None, current: 0, misses: 0, violations: 0 })
    }

    /// Counts a job that ended, or was given up. Jobs end in the order of their releases.
    fn count(&mut self, release: Instant, missed: bool) {
        let first = *self.first.get_or_insert(release);
        let periods = release.since(first).as_nanos() / self.period.as_nanos().max(1);
        let window = periods / u64::from(self.allowed.periods.max(1));
        if window != self.current {
            (self.current, self.misses) = (window, 0);
        }
        self.misses += u32::from(missed);
        // Each window counts once.
        self.violations += u64::from(missed && self.misses == self.allowed.misses + 1);
    }
}

/// Binds the socket of a stream, or opens its flow at the daemon with the socket `daemon`; returns
/// `None` for a task.
///
/// # Errors
/// The address is taken or does not belong to this machine, or the daemon refused the flow. The
/// error names its place in the spec.
pub fn bind(
    spec: &Spec,
    planned: &Planned<'_>,
    daemon: Option<&Path>,
) -> Result<Option<Endpoint>, Failure> {
    let Some((stream, mapping)) = planned.stream() else { return Ok(None) };
    Endpoint::open(stream, mapping, daemon).map(Some).map_err(|error| {
        let (key, address) = stream.direction.parts();
        let (place, refusal) = (&stream.place, error.to_string());
        let named = match address.interface {
            None => spec.source.error_in(place, key, &refusal, "a free address of this machine"),
            Some(_) => spec.source.refusal_in(place, key, &refusal, "the flow was not opened"),
        };
        Failure::new(named).because(error)
    })
}

/// A line about socket buffers that are smaller than planned, or `None`.
pub fn shortfall(planned: &Planned<'_>, endpoint: Option<&Endpoint>) -> Option<String> {
    Some(format!("{}: {}", planned.name(), endpoint?.shortfall()?))
}

impl Activities {
    /// `flows`: the socket of the daemon of the flows, if streams have some.
    pub fn new(runtime: Runtime, flows: Option<&Path>) -> Self {
        let flows = flows.map(Path::to_owned);
        Activities { runtime, known: BTreeMap::new(), created: Vec::new(), flows }
    }

    /// Creates the activity at position `activity`, suspended.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(
        &mut self,
        activity: usize,
        planned: &Planned<'_>,
        endpoint: Option<Endpoint>,
    ) -> Result<(), CreateError> {
        let need = self.need(planned)?;
        let stream =
            endpoint.as_ref().map(|endpoint| (endpoint.counters(), endpoint.work_counters()));
        let handler = match endpoint {
            Some(endpoint) => {
                self.runtime.handler(planned.name(), need, endpoint.into_handler())?
            }
            None => {
                let cost = planned.params.pdu_cost;
                let mut spin = Work::new(WorkKind::Spin, 1, cost, upcall::thread_cpu_ns);
                self.runtime.handler(planned.name(), need, move |batch| {
                    while batch.proceed() {
                        // The spin work takes any bytes as a PDU, and it cannot fail.
                        let _ = spin.take(&[]);
                        let _ = spin.process();
                    }
                })?
            }
        };
        let response_max = planned.response_max;
        let windows = Windows::of(planned);
        let created = Created { activity, handler, stream, response_max, above_max: 0, windows };
        self.created.push(created);
        self.known.insert(planned.name().to_owned(), handler);
        Ok(())
    }

    /// Reserves for an activity of another process.
    ///
    /// # Errors
    /// See [`Runtime::reserve_remote`].
    pub fn reserve_remote(&mut self, planned: &Planned<'_>) -> Result<(), CreateError> {
        let need = self.need(planned)?;
        let handler = self.runtime.reserve_remote(planned.name(), need)?;
        self.known.insert(planned.name().to_owned(), handler);
        Ok(())
    }

    fn need(&self, planned: &Planned<'_>) -> Result<Need, CreateError> {
        let need = Need::from((planned.params, planned.terms));
        let Some(other) = planned.activity.same_cpu_as() else { return Ok(need) };
        // The one that is named comes first in a plan.
        let other = self.known.get(other).ok_or(CreateError::NoSuchHandler)?;
        Ok(need.same_cpu_as(*other))
    }

    /// The handlers, in order of creation.
    pub fn handlers(&self) -> Vec<HandlerId> {
        self.created.iter().map(|created| created.handler).collect()
    }

    /// Starts the delivery of PDUs to all activities at `at`.
    ///
    /// # Errors
    /// A scheduling thread did not start.
    pub fn run_at(&mut self, at: Instant) -> Result<(), CreateError> {
        self.runtime.run_at(&self.handlers(), at)
    }

    /// The header of a trace that began at `start`: it names every activity.
    pub fn trace_header(&self, plan: &[Planned<'_>], process: u16, start: Instant) -> Header {
        let named = |created: &Created| {
            let (cpu, id) = self.runtime.place(created.handler)?;
            let planned = &plan[created.activity];
            let (name, domain) = (planned.name().to_owned(), planned.domain().to_owned());
            Some(Named { cpu, id, name, domain })
        };
        let config = self.runtime.config();
        Header {
            process,
            discipline: config.discipline,
            time_quantum: config.discipline.time_quantum,
            groups: config.discipline.groups.clone(),
            clock: Clock::Monotonic,
            start,
            cpus: config.cpus.iter().map(|&cpu| (cpu, upcall::ACTIVITIES_MAX)).collect(),
            activities: self.created.iter().filter_map(named).collect(),
        }
    }

    /// Takes in the jobs that ended, and passes each with its activity's position to `on_job`.
    pub fn poll(&mut self, mut on_job: impl FnMut(usize, &Job)) {
        let created = &mut self.created;
        self.runtime.poll(|id, job| record_job(created, id, job, &mut on_job));
    }

    /// What the watchdog did to this process since the last call.
    pub fn offences(&mut self) -> Vec<Offence> {
        self.runtime.offences().iter().map(Offence::from).collect()
    }

    /// The progress of each activity, in order of creation.
    pub fn rows(&self) -> Vec<Progress> {
        let rows = self.created.iter().filter_map(|created| {
            let statistics = self.runtime.statistics(created.handler)?;
            Some(Progress {
                activity: created.activity,
                jobs: statistics.jobs,
                pdus: statistics.pdus,
                misses: statistics.misses,
                slack_ns_min: statistics.slack_ns_min,
                lag_ns: statistics.lag.map(|lag| lag.last_ns),
                stream: created.stream.as_ref().map(|(counters, _)| StreamCounts::of(counters)),
            })
        });
        rows.collect()
    }

    /// Ends all activities. Returns their results and the rest of the trace.
    pub fn stop(
        self,
        plan: &[Planned<'_>],
        mode: Mode,
        mut on_job: impl FnMut(usize, &Job),
    ) -> (ActivityResults, Vec<(u32, Record)>) {
        let Activities { runtime, mut created, flows, .. } = self;
        // Now, because flows and their counts go with the handlers.
        let status = flows.and_then(|daemon| status(&daemon).ok());
        let report = runtime.stop(|id, job| record_job(&mut created, id, job, &mut on_job));
        let activities = created.iter().zip(&report.activities);
        let activities = activities
            .map(|(created, report)| {
                let activity = output::Activity {
                    responses_above_max: Some(created.above_max),
                    window_violations: created.windows.as_ref().map(|of| of.violations),
                    ..outcome::activity(&plan[created.activity], report)
                };
                (created.activity, activity)
            })
            .collect();
        // The handlers are gone, so the counters are complete.
        let streams = created.iter().filter_map(|created| {
            let (counters, work_counters) = created.stream.as_ref()?;
            let (stream, _) = plan[created.activity].stream()?;
            let work = outcome::work_counts(stream.work, work_counters);
            let counts = StreamCounts::of(counters);
            let drops = status.as_ref().map_or(0, |status| flow::drops(stream, &status.flows));
            let dropped_socket = counts.dropped_socket + drops;
            Some((created.activity, StreamCounts { work, dropped_socket, ..counts }))
        });
        let part = ActivityResults {
            activities,
            streams: streams.collect(),
            switches: outcome::switches(mode, &report),
            wakeup_latency_ns: outcome::wakeup_latency(mode, &report),
            stuck: report.stuck,
            offences: report.offences.iter().map(Offence::from).collect(),
        };
        (part, report.trace)
    }
}

fn record_job(
    created: &mut [Created],
    id: HandlerId,
    job: &Job,
    on_job: &mut impl FnMut(usize, &Job),
) {
    if let Some(created) = created.iter_mut().find(|created| created.handler == id) {
        let record = &job.record;
        let is_above = created.response_max.is_some_and(|bound| record.response() > bound);
        created.above_max += u64::from(record.completed && is_above);
        if let Some(windows) = &mut created.windows {
            windows.count(record.release, record.missed());
        }
        // A dropped job never ran, so the job log has no line for it.
        if record.completed {
            on_job(created.activity, job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_with_more_misses_than_allowed_counts_once() {
        let allowed = Window { misses: 1, periods: 3 };
        let period = Span::from_millis(10);
        let mut windows =
            Windows { allowed, period, first: None, current: 0, misses: 0, violations: 0 };
        let mut count = |missed: &[u64]| {
            for job in 0..9 {
                let release = Instant::ZERO + Span::from_millis(7 + 10 * job);
                windows.count(release, missed.contains(&job));
            }
            windows.first = None;
            (windows.current, windows.misses) = (0, 0);
            std::mem::take(&mut windows.violations)
        };
        // Misses 2 and 3 follow each other, in different windows.
        assert_eq!(count(&[2, 3]), 0);
        assert_eq!(count(&[0, 2]), 1);
        assert_eq!(count(&[0, 1, 2, 7, 8]), 2);
    }
}
