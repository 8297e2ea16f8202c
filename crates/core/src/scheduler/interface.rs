//! What a driver and the scheduler of a CPU say to each other.
//!
//! Written and read by every driver (runtime, daemon, simulator) and by the
//! trace. Values only: what they do is in [`super`].

use crate::activity::{ActivityId, ActivityParams, Claim, Terms};
use crate::record::JobRecord;
use crate::share::Share;
use crate::time::Instant;
use core::fmt;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// An admitted activity comes in, suspended.
    Create {
        /// A free number.
        id: ActivityId,
        /// Validated parameters.
        params: ActivityParams,
        /// What the policy wants to know beside them.
        terms: Terms,
    },
    /// Start delivering. No effect if it is active already, but that a suspend that
    /// waits for the next boundary is as if it had never come.
    Run {
        /// Which one.
        id: ActivityId,
        /// Its first release is `at + offset`.
        at: Instant,
    },
    /// Stop delivering.
    Suspend {
        /// Which one.
        id: ActivityId,
    },
    /// Stop delivering and free the number.
    Close {
        /// Which one.
        id: ActivityId,
    },
    /// It claims another part of the CPU from now on, whatever it is at, and keeps
    /// what it is behind or ahead; for policies that share time out. No effect if
    /// the claim is of another kind than its own. A running handler goes on until
    /// its present request ends.
    Reweigh {
        /// Which one.
        id: ActivityId,
        /// Admitted.
        claim: Claim,
    },
    /// Messages are there ahead of their logical arrivals: the next ones of the
    /// stream, whose releases are after now. Under a policy that works ahead
    /// each is a ready job from now on, as far as `Terms::workahead_max` goes.
    /// What goes beyond it, and everything under other policies, waits for its
    /// release as if it had not been said. No effect unless the activity is
    /// active. A handler that is running should be asked at its next boundary.
    Arrived {
        /// Whose.
        id: ActivityId,
        /// How many more than were said before.
        messages: u32,
    },
    /// The timestamp of the next message, which is not there yet, says that its
    /// logical arrival is `critical`: it is released then, and those behind it
    /// follow by the period. No effect if that is earlier than its position in
    /// the stream says, for the declared rate holds; nor while a job is
    /// unfinished, unless the activity is active, or if it is on demand.
    Advance {
        /// Whose.
        id: ActivityId,
        /// The logical arrival.
        critical: Instant,
    },
    /// The next message of an activity on demand: its logical arrival is
    /// `critical`, but not before the last one's, and of a real-time activity not
    /// before a period after it, for the declared rate holds. It is there, and its job ready, from `from` on or when the
    /// policy lets it work so far ahead, whichever is later. One that was said
    /// before and is not there yet is taken back. No effect while a job is
    /// unfinished, or unless the activity is active and on demand.
    Message {
        /// Whose.
        id: ActivityId,
        /// The logical arrival.
        critical: Instant,
        /// Not ready before; in the past if it is there.
        from: Instant,
    },
    /// An event waits for an activity, until it is taken or the activity closed
    /// (ecalls-2001 §2.4). Seen when the next choice is made, by policies that prefer who
    /// has events; a running handler need not be asked but for a work-conserving one
    /// under DWCS. O(log n) and O(log k) with k events of the activity; does not allocate.
    Posted {
        /// Whose.
        id: ActivityId,
        /// How urgent: the smaller first, and equal ones in the order in which they were
        /// posted. A priority, or an instant by which it should be dealt with.
        rank: u64,
    },
    /// So many of an activity's events were taken, the most urgent first; all, if there
    /// are not more. To be said when the handler takes them, be it in an upcall or not:
    /// being upcalled alone takes none. O(log n), and O(log k) for each.
    Taken {
        /// Whose.
        id: ActivityId,
        /// How many.
        events: u32,
    },
    /// What the event server may spend on events beyond what is reserved for their
    /// owners, as [`crate::admission::Reservations::reserve_events`] granted. For DWCS.
    EventServer {
        /// `None`, as at the start: nothing.
        share: Option<Share>,
    },
    /// Time passed.
    Tick,
    /// The running handler completed a quantum at or after the moment it was
    /// told to ask, and wants to go on. Answered by [`Command::Proceed`] or
    /// [`Command::Yield`].
    Boundary,
    /// The running handler returned.
    Returned {
        /// PDUs it processed since its upcall, at most what it was given.
        pdus: u32,
        /// Why it returned.
        outcome: Outcome,
    },
}

/// Why a handler returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was told to, with work left.
    Yielded,
    /// Its batch is done, or it has nothing left to do in this period.
    Done,
    /// Done, and it wants no further upcalls: suspend it.
    Finished,
}

/// Something the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Upcall the handler; report back with [`Input::Returned`].
    Upcall {
        /// Whose handler.
        id: ActivityId,
        /// PDUs left of the job's batch.
        pdus_max: u32,
        /// Whether this continues a job that yielded.
        resumed: bool,
        /// From this moment on, ask at each quantum boundary.
        check_at: Instant,
    },
    /// The running handler may begin its next quantum.
    Proceed {
        /// From this moment on, ask again.
        check_at: Instant,
    },
    /// The running handler must return.
    Yield,
    /// A job ended.
    JobDone(JobRecord),
    /// The activity is suspended: whoever waits for it may be told.
    Inactive {
        /// Which one.
        id: ActivityId,
    },
    /// The activity is gone and its number free: drop its handler.
    Closed {
        /// Which one.
        id: ActivityId,
    },
}

/// An input that does not fit the state: the driver's or the caller's mistake.
/// Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputError {
    /// The number is at or above the scheduler's capacity.
    OutOfRange(ActivityId),
    /// `Create` with a number that is taken.
    Taken(ActivityId),
    /// No activity has the number.
    Unknown(ActivityId),
    /// `Boundary` or `Returned` while nothing runs.
    NothingRuns,
    /// More PDUs reported than were given.
    TooManyPdus {
        /// Reported.
        pdus: u32,
        /// Given.
        pdus_max: u32,
    },
    /// `Posted`, and [`super::EVENTS_MAX`] wait for it already, or as many as there is
    /// room for in all.
    TooManyEvents(ActivityId),
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            InputError::OutOfRange(id) => write!(f, "activity {} is out of range", id.0),
            InputError::Taken(id) => write!(f, "activity {} exists already", id.0),
            InputError::Unknown(id) => write!(f, "no activity {}", id.0),
            InputError::NothingRuns => f.write_str("no handler is running"),
            InputError::TooManyPdus { pdus, pdus_max } => {
                write!(f, "{pdus} PDUs reported of {pdus_max} given")
            }
            InputError::TooManyEvents(id) => {
                write!(f, "more events for activity {} than there is room for", id.0)
            }
        }
    }
}

crate::debug_as_display!(InputError);

impl core::error::Error for InputError {}
