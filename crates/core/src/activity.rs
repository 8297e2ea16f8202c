//! The parameters of an activity: anything that the policies schedule.
//!
//! The QoS mapping ([`crate::qos`]) derives the parameters, or a user who knows the numbers states
//! them (`[[task]]` in a spec file). Admission and the policies read the parameters.
//! [`ActivityParams::validated`] checks the values once; after that all code trusts them.

use crate::share::Share;
use crate::time::Span;
use core::fmt;

/// Identifies one activity within a scheduler: an index that is not reused while the activity
/// exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActivityId(pub u32);

/// Parameters that only some policies read. A program passes them together with the
/// [`ActivityParams`], as `(params, terms)`:
///
/// ```
/// # extern crate upcall_core as upcall;
/// use upcall::activity::{ActivityParams, Terms, WorkClass};
/// use upcall::time::Span;
///
/// let params = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));
/// // A task that answers a user, under DWS: `runtime.task("answer", (params, terms), ...)`.
/// let terms = Terms { class: WorkClass::Interactive, ..Terms::default() };
/// # let _ = (params, terms);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    /// PS: the fixed share of the CPU of a real-time activity.
    pub share: Option<Share>,
    /// PS: the weight of an adaptive activity. 0 counts as 1. An activity with neither share nor
    /// weight has weight 1.
    pub weight: Option<u32>,
    /// PS: the group of the activity. The activity gets its part of the group by its weight and has
    /// no share of its own. An unknown group counts as no group.
    pub group: Option<GroupId>,
    /// DWCS: how many periods may be missed.
    pub window: Option<Window>,
    /// DWCS: the activity may be served more than once a period while no other activity needs the
    /// CPU.
    pub work_conserving: bool,
    /// DWS: the time from the logical arrival of a message to its deadline. If absent, the relative
    /// deadline.
    pub delay_bound: Option<Span>,
    /// DWS: the kind of work, which decides before the deadline does.
    pub class: WorkClass,
    /// DWS: the number of messages that a real-time activity may be ahead of their logical
    /// arrivals. Messages that the activity has processed ahead count, too. With 0 the activity
    /// never works ahead.
    pub workahead_max: u32,
    /// Whether the messages come one by one instead of periodically.
    /// [`crate::scheduler::Input::Message`] announces each message. Messages of a real-time
    /// activity are at least a period apart.
    pub on_demand: bool,
    /// RMDP and RM: while an event waits for the activity, it goes before activities of the same
    /// rank. Admission accounts for that. Under DWS and DWCS every activity with an event goes
    /// before others of the same rank, because that breaks no promise to another activity there.
    pub wins_ties: bool,
    /// What becomes of jobs that were not begun in time. DWCS ignores it and always drops jobs that
    /// it cannot run in time.
    pub backlog: Backlog,
}

/// What becomes of jobs that wait longer than they should, because the handler was late or took
/// longer than declared. A job that began is never cut short. A dropped job counts as missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backlog {
    /// Every job runs, in order.
    #[default]
    CatchUp,
    /// A job that was not begun by its deadline is dropped.
    Skip,
    /// A job that was not begun when a newer job is released is dropped.
    Latest,
}

/// Identifies one of the groups of a discipline: its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

/// The part of the CPU that an activity claims under PS, for `Runtime::reweigh`
/// (proportional-share-1998 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// A fixed part, independent of the other activities. The activity is real-time.
    Share(Share),
    /// A weight among the adaptive activities, which divide what the real-time activities leave; 0
    /// counts as 1.
    Weight(u32),
}

impl Terms {
    /// These terms with another claim of the same kind. `None` if a share would replace a weight,
    /// or a weight a share. A share overrides a weight; members of a group have weights.
    pub fn claiming(self, claim: Claim) -> Option<Terms> {
        match (claim, self.share.filter(|_| self.group.is_none())) {
            (Claim::Share(share), Some(_)) => Some(Terms { share: Some(share), ..self }),
            (Claim::Weight(weight), None) => Some(Terms { weight: Some(weight.max(1)), ..self }),
            (Claim::Share(_), None) | (Claim::Weight(_), Some(_)) => None,
        }
    }
}

/// The kind of work of a task or handler under DWS ([`Terms::class`]). It decides which activities
/// go first (split-level-1991 §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WorkClass {
    /// Messages with deadlines.
    #[default]
    RealTime,
    /// No deadline, but a user waits for the response.
    Interactive,
    /// No deadline, and no user waits.
    Background,
}

/// `x/y`: of each `periods` periods, counted from the first release, at most `misses` are missed
/// (ecalls-2001 §2.4). Where two such windows meet, up to `2x` periods in a row may be missed.
/// [`crate::policy::dwcs`] explains why the constraint does not hold for *any* `y` periods in a
/// row. `misses < periods`, `periods >= 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// `x`.
    pub misses: u32,
    /// `y`.
    pub periods: u32,
}

/// The longest accepted period: one hour. It keeps every product of a period and a count well below
/// `u64::MAX` nanoseconds.
pub const PERIOD_MAX: Span = Span::from_secs(3600);

/// The most PDUs in a batch.
pub const BATCH_MAX: u32 = 1_000_000;

/// The parameters of a periodic activity (rtu-1995 §2.1, §5).
///
/// ```
/// # extern crate upcall_core as upcall;
/// use upcall::activity::ActivityParams;
/// use upcall::time::Span;
///
/// // Every 20 ms up to 8 PDUs of at most 100 us each, done within 15 ms. A quantum is 4 PDUs.
/// // Within a quantum no other activity of the CPU runs.
/// let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(100))
///     .batch(8)
///     .quantum(4)
///     .deadline(Span::from_millis(15));
/// assert_eq!(need.compute(), Span::from_micros(800));
/// assert!(need.validated().is_ok());
/// ```
///
/// A job is released every `period`. It processes at most `batch` PDUs, each of which costs at most
/// `pdu_cost`, and must finish within `deadline` of its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivityParams {
    /// Time between two releases. `0 < period <= PERIOD_MAX`.
    pub period: Span,
    /// The time from the release to the moment when the job must be done. `0 < deadline <= period`.
    pub deadline: Span,
    /// The time from the start of the activity to its first release.
    pub offset: Span,
    /// `B`: the most PDUs that a job processes. `1 <= batch <= BATCH_MAX`.
    pub batch: u32,
    /// `b`: the number of PDUs that run without interruption. `1 <= quantum <= batch`.
    pub quantum: u32,
    /// The CPU time of one PDU. `0 < pdu_cost`, and `batch * pdu_cost <= period`.
    pub pdu_cost: Span,
}

impl ActivityParams {
    /// One PDU of `pdu_cost` every `period`, due by the end of the period.
    pub const fn new(period: Span, pdu_cost: Span) -> Self {
        ActivityParams {
            period,
            deadline: period,
            offset: Span::ZERO,
            batch: 1,
            quantum: 1,
            pdu_cost,
        }
    }

    /// Sets the number of PDUs in a period to `batch`.
    #[must_use]
    pub const fn batch(mut self, batch: u32) -> Self {
        self.batch = batch;
        self
    }

    /// Sets the number of PDUs between preemption points to `quantum`.
    #[must_use]
    pub const fn quantum(mut self, quantum: u32) -> Self {
        self.quantum = quantum;
        self
    }

    /// Makes jobs due `deadline` after their release instead of at the end of the period.
    #[must_use]
    pub const fn deadline(mut self, deadline: Span) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the first release to `offset` after the start.
    #[must_use]
    pub const fn offset(mut self, offset: Span) -> Self {
        self.offset = offset;
        self
    }

    /// CPU time of a whole job, `C = B * cost`.
    pub const fn compute(&self) -> Span {
        self.pdu_cost.saturating_mul(self.batch as u64)
    }

    /// CPU time of the longest stretch without a preemption point, `b * cost`.
    pub const fn quantum_cost(&self) -> Span {
        self.pdu_cost.saturating_mul(self.quantum as u64)
    }

    /// PDUs of the job's last quantum: the remainder of `B` after whole quanta.
    pub const fn last_quantum(&self) -> u32 {
        match self.batch % self.quantum {
            0 => self.quantum,
            rest => rest,
        }
    }

    /// Utilization `C / T`.
    pub fn utilization(&self) -> f64 {
        self.compute().as_nanos() as f64 / self.period.as_nanos() as f64
    }

    /// The same parameters, if they are within the ranges that their fields state.
    ///
    /// # Errors
    /// The first parameter out of its range.
    pub fn validated(self) -> Result<Self, ParamError> {
        if self.period.is_zero() || self.period > PERIOD_MAX {
            return Err(ParamError::Period(self.period));
        }
        if self.deadline.is_zero() || self.deadline > self.period {
            return Err(ParamError::Deadline { deadline: self.deadline, period: self.period });
        }
        if self.offset > PERIOD_MAX {
            return Err(ParamError::Offset(self.offset));
        }
        if self.batch == 0 || self.batch > BATCH_MAX {
            return Err(ParamError::Batch(self.batch));
        }
        if self.quantum == 0 || self.quantum > self.batch {
            return Err(ParamError::Quantum { quantum: self.quantum, batch: self.batch });
        }
        if self.pdu_cost.is_zero() {
            return Err(ParamError::CostZero);
        }
        if self.compute() > self.period {
            return Err(ParamError::Cost { compute: self.compute(), period: self.period });
        }
        Ok(self)
    }
}

/// A parameter outside its range: a mistake of the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamError {
    /// The period is zero or longer than [`PERIOD_MAX`].
    Period(Span),
    /// The deadline is zero or later than the end of the period.
    Deadline {
        /// As given.
        deadline: Span,
        /// The upper limit.
        period: Span,
    },
    /// The offset is longer than [`PERIOD_MAX`].
    Offset(Span),
    /// The batch is zero or larger than [`BATCH_MAX`].
    Batch(u32),
    /// The quantum is zero or larger than the batch.
    Quantum {
        /// As given.
        quantum: u32,
        /// The upper limit.
        batch: u32,
    },
    /// A PDU that takes no CPU time.
    CostZero,
    /// A batch takes longer than the period.
    Cost {
        /// `batch * pdu_cost`.
        compute: Span,
        /// The upper limit.
        period: Span,
    },
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ParamError::Period(period) => {
                write!(f, "the period is {period}, expected 1 ns to {PERIOD_MAX}")
            }
            ParamError::Deadline { deadline, period } => {
                write!(f, "the deadline is {deadline}, expected 1 ns to the period, {period}")
            }
            ParamError::Offset(offset) => {
                write!(f, "the offset is {offset}, expected at most {PERIOD_MAX}")
            }
            ParamError::Batch(batch) => {
                write!(f, "the batch is {batch}, expected 1 to {BATCH_MAX}")
            }
            ParamError::Quantum { quantum, batch } => {
                write!(f, "the quantum is {quantum}, expected 1 to the batch, {batch}")
            }
            ParamError::CostZero => f.write_str("the cost of a PDU is 0, expected at least 1 ns"),
            ParamError::Cost { compute, period } => {
                write!(f, "a batch costs {compute}, expected at most the period, {period}")
            }
        }
    }
}

crate::debug_as_display!(ParamError);

impl core::error::Error for ParamError {}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: ActivityParams =
        ActivityParams::new(Span::from_millis(40), Span::from_millis(1)).batch(8).quantum(3);

    #[test]
    fn each_range_is_checked() {
        assert_eq!(GOOD.validated(), Ok(GOOD));
        let ms = Span::from_millis;
        for (bad, error) in [
            (ActivityParams { period: Span::ZERO, ..GOOD }, ParamError::Period(Span::ZERO)),
            (GOOD.deadline(ms(41)), ParamError::Deadline { deadline: ms(41), period: ms(40) }),
            (GOOD.batch(0), ParamError::Batch(0)),
            (GOOD.quantum(9), ParamError::Quantum { quantum: 9, batch: 8 }),
            (GOOD.quantum(0), ParamError::Quantum { quantum: 0, batch: 8 }),
            (ActivityParams { pdu_cost: Span::ZERO, ..GOOD }, ParamError::CostZero),
            (GOOD.batch(41), ParamError::Cost { compute: ms(41), period: ms(40) }),
            (GOOD.offset(Span::MAX), ParamError::Offset(Span::MAX)),
        ] {
            assert_eq!(bad.validated(), Err(error));
        }
    }

    #[test]
    fn the_last_quantum_has_the_pdus_that_whole_quanta_leave() {
        assert_eq!(GOOD.last_quantum(), 2);
        assert_eq!(GOOD.quantum(4).last_quantum(), 4);
        assert_eq!(GOOD.quantum(8).last_quantum(), 8);
    }
}
