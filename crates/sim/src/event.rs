//! What happened, one event at a time: the stream that checkers and trace
//! writers read.
//!
//! Events come in the order of time; at one instant, in the order things
//! happened. Plain data. The text form is one line an event with integers
//! only, the same on every machine.

use core::fmt;
use upcall_core::record::JobRecord;
use upcall_core::time::Instant;

/// One thing that happened on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimEvent {
    /// When. Never before the event in front of it.
    pub at: Instant,
    /// On which CPU, by its number.
    pub cpu: u32,
    /// What.
    pub kind: EventKind,
}

/// What happened. `activity` is the place in [`crate::SimSpec::activities`],
/// and so is [`JobRecord::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Someone tells the CPU that an activity is to join, to leave, or to have another
    /// share or weight, or has an event.
    Message {
        /// Which one.
        activity: u32,
    },
    /// The activity is delivered from now on.
    Join {
        /// Which one.
        activity: u32,
    },
    /// The activity is delivered no longer, and what it had not done is dropped.
    Leave {
        /// Which one.
        activity: u32,
    },
    /// A job became due for service.
    Release {
        /// Whose.
        activity: u32,
        /// Its number, from 0 since the activity was created.
        job: u64,
        /// When it must be done: when the clock will say so.
        deadline: Instant,
    },
    /// The CPU goes to a handler. If it was at another's before, the hand-off
    /// comes first and costs what it costs.
    Upcall {
        /// Whose.
        activity: u32,
        /// PDUs left of the batch.
        pdus_max: u32,
        /// Whether the job had yielded.
        resumed: bool,
        /// Whether the CPU was at another's handler last.
        switched: bool,
    },
    /// The CPU has heard of an event for an activity, and keeps it until it is taken. One that
    /// finds no room is lost, and not told.
    Posted {
        /// Whose.
        activity: u32,
        /// The smaller, the more urgent.
        rank: u64,
    },
    /// So many of an activity's events were taken, the most urgent first.
    Taken {
        /// Whose.
        activity: u32,
        /// How many.
        events: u32,
    },
    /// A job that begins finds PDUs that have become too old, and drops them.
    Stale {
        /// Whose.
        activity: u32,
        /// How many.
        pdus: u32,
    },
    /// The handler returned, told to, with work left; or in any way from a service that
    /// was no job.
    Yield {
        /// Whose.
        activity: u32,
        /// Whole PDUs it processed since its upcall.
        pdus: u32,
    },
    /// A job ended.
    JobDone(JobRecord),
    /// How far the activity is behind its ideal share (negative: ahead). Comes
    /// before each upcall and after each return, if the policy knows it.
    Lag {
        /// Whose.
        activity: u32,
        /// In nanoseconds of CPU time.
        lag_ns: i64,
    },
    /// Nothing is to be done: the CPU sleeps.
    Idle,
    /// It woke.
    Wake,
    /// A fault begins, or heals.
    Fault {
        /// Its place in [`crate::SimSpec::faults`].
        index: u32,
        /// Whether it begins.
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
            EventKind::Idle => f.write_str("idle"),
            EventKind::Wake => f.write_str("wake"),
            EventKind::Fault { index, begins } => {
                write!(f, "fault {index} {}", if begins { "begins" } else { "heals" })
            }
        }
    }
}
