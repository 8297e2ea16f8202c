//! The events of a run, in the order that checkers and trace writers read them.
//!
//! Events come in the order of time, and at one instant in the order in which they happened. They
//! are plain data. The text form is one line per event with integers only, the same on every
//! machine.

use core::fmt;
use upcall_core::record::JobRecord;
use upcall_core::time::Instant;

/// One event on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimEvent {
    /// The time of the event. It is never before the time of the previous event.
    pub at: Instant,
    /// The number of its CPU.
    pub cpu: u32,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kinds of events. `activity` is an index into [`crate::SimSpec::activities`], and so is
/// [`JobRecord::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A message tells the CPU that an activity joins or leaves, gets another share or weight, or
    /// has an event.
    Message {
        /// The activity.
        activity: u32,
    },
    /// The activity is delivered from now on.
    Join {
        /// The activity.
        activity: u32,
    },
    /// The activity is no longer delivered, and its unfinished work is dropped.
    Leave {
        /// The activity.
        activity: u32,
    },
    /// A job is released.
    Release {
        /// The activity of the job.
        activity: u32,
        /// Number of the job, from 0 since the activity was created.
        job: u64,
        /// The true time at which the clock will show the job's deadline.
        deadline: Instant,
    },
    /// A job is ready before its release, because its message came early (DWS). It is not released
    /// again.
    Early {
        /// The activity of the job.
        activity: u32,
        /// Number of the job, as of a released one.
        job: u64,
        /// The release: the logical arrival of the message.
        release: Instant,
        /// As of a released job.
        deadline: Instant,
    },
    /// The CPU calls a handler. If it ran another handler before, the hand-off comes first and
    /// costs its time.
    Upcall {
        /// The activity of the handler.
        activity: u32,
        /// PDUs left of the batch.
        pdus_max: u32,
        /// Whether the job had yielded before.
        resumed: bool,
        /// Whether the CPU ran another activity's handler last.
        switched: bool,
    },
    /// The CPU has received an event for an activity, and keeps it until it is taken. An event that
    /// finds no space is lost, without a report.
    Posted {
        /// The activity.
        activity: u32,
        /// The rank; a smaller one is more urgent.
        rank: u64,
    },
    /// Some of an activity's events were taken, the most urgent first.
    Taken {
        /// The activity.
        activity: u32,
        /// The number of events.
        events: u32,
    },
    /// A job that begins finds PDUs that are too old, and drops them.
    Stale {
        /// The activity.
        activity: u32,
        /// The number of PDUs.
        pdus: u32,
    },
    /// The handler returned with work left because the scheduler told it to yield. Every return
    /// from a service without a job emits this event, too.
    Yield {
        /// The activity.
        activity: u32,
        /// Whole PDUs processed since the upcall.
        pdus: u32,
    },
    /// A job ended.
    JobDone(JobRecord),
    /// How far the activity is behind its ideal share (negative: ahead). Comes before each upcall
    /// and after each return, if the policy knows it.
    Lag {
        /// The activity.
        activity: u32,
        /// In nanoseconds of CPU time.
        lag_ns: i64,
    },
    /// How far the domain is behind its part of the CPU (negative: ahead). Comes with the lag of an
    /// activity, which then is relative to what the domain gets, if domains share by accounts.
    DomainLag {
        /// The domain.
        domain: u32,
        /// In nanoseconds of CPU time.
        lag_ns: i64,
    },
    /// The running handler stops in the middle: it blocks, its domain is stopped, or a handler that
    /// has come back goes first.
    Pause {
        /// The activity.
        activity: u32,
    },
    /// A handler continues where it stopped.
    Continue {
        /// The activity.
        activity: u32,
    },
    /// The CPU passes over a domain from now on, because the domain is blocked or stopped.
    DomainAway {
        /// The domain.
        domain: u32,
    },
    /// The CPU hands over to another domain, which takes time.
    HandOff {
        /// The domain.
        domain: u32,
    },
    /// The domain takes part again.
    DomainBack {
        /// The domain.
        domain: u32,
    },
    /// No handler is ready, so the CPU sleeps.
    Idle,
    /// The CPU woke.
    Wake,
    /// A fault begins, or heals.
    Fault {
        /// Index into [`crate::SimSpec::faults`].
        index: u32,
        /// `true`: it begins. `false`: it heals.
        begins: bool,
    },
}

impl fmt::Display for SimEvent {
    /// `40000000 cpu1 upcall 3 pdus 8 resumed false switched true`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cpu{} ", self.at.as_nanos(), self.cpu)?;
        match self.kind {
            EventKind::Message { activity } => write!(f, "message {activity}"),
            EventKind::Join { activity } => write!(f, "join {activity}"),
            EventKind::Leave { activity } => write!(f, "leave {activity}"),
            EventKind::Release { activity, job, deadline } => {
                write!(f, "release {activity} job {job} deadline {}", deadline.as_nanos())
            }
            EventKind::Early { activity, job, release, deadline } => {
                let (release, deadline) = (release.as_nanos(), deadline.as_nanos());
                write!(f, "early {activity} job {job} release {release} deadline {deadline}")
            }
            EventKind::Upcall { activity, pdus_max, resumed, switched } => {
                write!(f, "upcall {activity} pdus {pdus_max} resumed {resumed} switched {switched}")
            }
            EventKind::Posted { activity, rank } => write!(f, "posted {activity} rank {rank}"),
            EventKind::Taken { activity, events } => {
                write!(f, "taken {activity} events {events}")
            }
            EventKind::Stale { activity, pdus } => write!(f, "stale {activity} pdus {pdus}"),
            EventKind::Yield { activity, pdus } => write!(f, "yield {activity} pdus {pdus}"),
            EventKind::JobDone(record) => write!(
                f,
                "done {} job {} release {} deadline {} start {} run {} pdus {} preemptions {} \
                 completed {}",
                record.id.0,
                record.job,
                record.release.as_nanos(),
                record.deadline.as_nanos(),
                record.start.as_nanos(),
                record.run.as_nanos(),
                record.pdus,
                record.preemptions,
                record.completed
            ),
            EventKind::Lag { activity, lag_ns } => write!(f, "lag {activity} {lag_ns}"),
            EventKind::DomainLag { domain, lag_ns } => write!(f, "domain lag {domain} {lag_ns}"),
            EventKind::Pause { activity } => write!(f, "pause {activity}"),
            EventKind::Continue { activity } => write!(f, "continue {activity}"),
            EventKind::DomainAway { domain } => write!(f, "away {domain}"),
            EventKind::HandOff { domain } => write!(f, "hand-off {domain}"),
            EventKind::DomainBack { domain } => write!(f, "back {domain}"),
            EventKind::Idle => f.write_str("idle"),
            EventKind::Wake => f.write_str("wake"),
            EventKind::Fault { index, begins } => {
                write!(f, "fault {index} {}", if begins { "begins" } else { "heals" })
            }
        }
    }
}
