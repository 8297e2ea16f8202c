//! The inputs and commands of a scheduler.
//!
//! Every driver (runtime, simulator) and the trace use these types. The types are plain values;
//! [`super`] describes their effects.

use crate::activity::{ActivityId, ActivityParams, Claim, GroupId, Terms};
use crate::record::JobRecord;
use crate::share::Share;
use crate::time::{Instant, Span};
use core::fmt;

/// An event that the driver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A new activity, which was admitted. It is suspended.
    Create {
        /// A free number.
        id: ActivityId,
        /// Validated parameters.
        params: ActivityParams,
        /// Parameters for particular policies.
        terms: Terms,
    },
    /// Start upcalls. If the activity is active already, this only cancels a suspend that waits for
    /// the next boundary.
    Run {
        /// The activity.
        id: ActivityId,
        /// Its first release is `at + offset`. DWCS with a [`Input::DomainShare`]: `at`, but not
        /// before now, is rounded up to a multiple of the period
        /// ([`super::Scheduler::first_release`]).
        at: Instant,
    },
    /// Stop upcalls.
    Suspend {
        /// The activity.
        id: ActivityId,
    },
    /// Stop upcalls and free the number.
    Close {
        /// The activity.
        id: ActivityId,
    },
    /// The activity claims another part of the CPU from now on. The activity keeps its lag. No
    /// effect under a policy that does not share time, or if the claim is of another kind than the
    /// activity's own. A running handler continues until its present request ends.
    Reweigh {
        /// The activity.
        id: ActivityId,
        /// The new claim, which was admitted.
        claim: Claim,
    },
    /// The next messages of the stream came before their logical arrivals, so their releases are
    /// after now. Under a policy that works ahead, each is a ready job from now on, up to
    /// `Terms::workahead_max`. Further messages, and all messages under other policies, wait for
    /// their releases as if this input had not come. No effect unless the activity is active. A
    /// running handler should send [`Input::Boundary`] at its next boundary, whatever its
    /// `check_at`.
    Arrived {
        /// The activity.
        id: ActivityId,
        /// The number of messages in addition to those reported before.
        messages: u32,
    },
    /// The timestamp of the next message, which has not come yet, says that its logical arrival is
    /// `critical`. The message is released then, and later ones follow by the period. No effect if
    /// `critical` is before the release that the message's position gives it, because the declared
    /// rate holds. No effect while a job is unfinished, if the activity is not active, or if it is
    /// on demand.
    Advance {
        /// The activity.
        id: ActivityId,
        /// The logical arrival.
        critical: Instant,
    },
    /// The next message of an activity on demand. Its logical arrival is `critical`, but not before
    /// the previous one's; for a real-time activity at least a period after it, because the
    /// declared rate holds. The job is ready at `from`, or when the policy lets the activity work
    /// so far ahead, whichever is later. It replaces a message that was announced before and is not
    /// ready yet. No effect while a job is unfinished, or unless the activity is active and on
    /// demand.
    Message {
        /// The activity.
        id: ActivityId,
        /// The logical arrival.
        critical: Instant,
        /// The earliest time at which the job is ready. In the past if the message has come.
        from: Instant,
    },
    /// An event waits for an activity until it is taken or the activity is closed (ecalls-2001
    /// §2.4). Policies that prefer activities with events consider the event at the next pick. A
    /// running handler need not send [`Input::Boundary`] because of the event, except in an extra
    /// service of a work-conserving activity under DWCS. O(log n), and O(log k) for k events of the
    /// activity; does not allocate.
    Posted {
        /// The activity.
        id: ActivityId,
        /// The urgency: smaller ranks first, equal ranks in the order of posting. A priority, or an
        /// instant by which the event should be dealt with.
        rank: u64,
    },
    /// This many events of an activity were taken, the most urgent first; all events if there are
    /// fewer. Report it when the handler takes them, in an upcall or not. An upcall alone takes
    /// none. O(log n), and O(log k) for each.
    Taken {
        /// The activity.
        id: ActivityId,
        /// The number of events.
        events: u32,
    },
    /// DWCS: the share that the event server may spend on events, in addition to what is reserved
    /// for their owners. [`crate::admission::Reservations::reserve_events`] grants it.
    EventServer {
        /// `None`, as at the start: no share.
        share: Option<Share>,
    },
    /// Other domains have schedulers of their own on the CPU. PS: the share is the part that the
    /// activities of this scheduler have together ([`crate::policy::ps::DomainAccounts`]), and a
    /// running handler returns at the end of each request from then on. DWCS: the share has no
    /// meaning. First releases are aligned ([`Input::Run`]). Jobs that no longer fit are dropped at
    /// each input while nothing runs, so that [`super::Scheduler::best`] shows none of them. No
    /// effect under other policies.
    DomainShare {
        /// `None`, as at the start: the whole CPU.
        share: Option<Share>,
    },
    /// PS: other domains have members in the group, and this scheduler has this part of it
    /// ([`crate::policy::ps::Parts`]). No effect if there is no such group.
    GroupPart {
        /// The group.
        group: GroupId,
        /// The whole group at the start.
        part: Share,
    },
    /// A hand-off from one activity to another takes this long from now on. The driver spends it
    /// between an upcall and the handler's first instruction, and admission accounts for it
    /// ([`crate::admission::Platform::switch_cost`]). So budgets are not charged with it.
    SwitchCost {
        /// At the start: zero.
        cost: Span,
    },
    /// The driver could not run for a while although it had work, and others were served on the CPU
    /// meanwhile: the process was stopped, or a handler blocked in the kernel. Every budget is void
    /// until the activity's next release. So the work that waited does not arrive at the others
    /// together with the work of the next period. No effect under a policy without budgets.
    PassedOver,
    /// Handlers of other domains ran for `length` while the running handler stood in the middle of
    /// its upcall: they came back from the kernel (rtu-1995 §6.1.2). The running activity is not
    /// charged for that time. The driver bounds `length` by what those handlers may take. No effect
    /// if nothing runs, or under a policy without budgets.
    Interrupted {
        /// The time of the others, with their hand-offs.
        length: Span,
    },
    /// The CPU has nothing to run, in this scheduler and in all others that share the CPU. So no
    /// work waits for what an activity used. All debts are forgiven, and the next window of each
    /// activity begins with its next release. The driver need not report this unless
    /// [`super::Scheduler::awaits_idle`].
    Idle,
    /// Time passed.
    Tick,
    /// The running handler completed a quantum at or after its `check_at`, and wants to continue.
    /// The reply is [`Command::Proceed`] or [`Command::Yield`].
    Boundary,
    /// The running handler returned.
    Returned {
        /// PDUs that it processed since its upcall, at most `pdus_max` of the upcall.
        pdus: u32,
        /// The reason.
        outcome: Outcome,
    },
}

/// The reason why a handler returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The scheduler made the handler return with work left.
    Yielded,
    /// The batch is done, or the handler has nothing left to do in this period.
    Done,
    /// Like `Done`, and the handler wants no further upcalls: suspend it.
    Finished,
}

/// An action for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Upcall the handler, and report its return with [`Input::Returned`].
    Upcall {
        /// The activity of the handler.
        id: ActivityId,
        /// PDUs left of the job's batch.
        pdus_max: u32,
        /// Whether this continues a job that yielded.
        resumed: bool,
        /// From this moment on, the handler sends [`Input::Boundary`] at each quantum boundary.
        check_at: Instant,
    },
    /// The running handler may begin its next quantum.
    Proceed {
        /// From this moment on, the handler sends [`Input::Boundary`] again.
        check_at: Instant,
    },
    /// The running handler must return.
    Yield,
    /// A job ended.
    JobDone(JobRecord),
    /// The activity is suspended. The driver may notify a thread that waits for this.
    Inactive {
        /// The activity.
        id: ActivityId,
    },
    /// The activity is gone and its number is free: drop its handler.
    Closed {
        /// The activity.
        id: ActivityId,
    },
}

/// An input that does not fit the state: a mistake of the driver or the caller. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputError {
    /// The number is at or above the scheduler's capacity.
    OutOfRange(ActivityId),
    /// `Create` with a number that is in use.
    Taken(ActivityId),
    /// No activity has the number.
    Unknown(ActivityId),
    /// `Boundary` or `Returned` while nothing runs.
    NothingRuns,
    /// The handler reported more PDUs than it was given.
    TooManyPdus {
        /// The reported PDUs.
        pdus: u32,
        /// The given PDUs.
        pdus_max: u32,
    },
    /// `Posted`, while [`super::EVENTS_MAX`] events wait for the activity, or while the pool of the
    /// scheduler is full.
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
