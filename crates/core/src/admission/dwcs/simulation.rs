//! The scheduler itself, run through the cycle of all windows.
//!
//! All activities are released together at 0 and take exactly what is declared. After the least
//! common multiple of all `y T` every window begins anew. Nothing runs across that moment: no job
//! is due after it, and no job begins that cannot be done in time. So if no window was violated
//! until then, the state equals the state at 0, and the cycle repeats for ever.

use super::member::{Member, greatest_common_divisor};
use crate::activity::{ActivityId, Terms};
use crate::admission::response_time::Steps;
use crate::policy::dwcs::WindowConstrained;
use crate::scheduler::{Command, Input, InputError, Outcome, Scheduler};
use crate::time::{Instant, Span};

/// The cost of simulating a job, in terms of the sums of the other analyses.
const STEPS_PER_JOB: u64 = 20;

/// How many windows of each member are violated in a cycle; `None` if the simulation takes too
/// long.
pub(super) fn simulate(set: &[Member], steps: &mut Steps) -> Option<Vec<u64>> {
    let until_ns = cycle_ns(set)?;
    let of_member = |member: &Member| {
        let jobs = until_ns / member.params.period.as_nanos();
        let quanta = u64::from(member.params.batch.div_ceil(member.params.quantum));
        jobs.checked_mul(STEPS_PER_JOB + quanta)
    };
    let needed = set.iter().map(of_member).try_fold(0u64, |sum, steps| sum.checked_add(steps?))?;
    steps.spend(usize::try_from(needed).ok()?)?;
    Run::new(set).and_then(|run| run.until(Instant::from_nanos(until_ns))).ok()
}

/// The least common multiple of all `y T`.
fn cycle_ns(set: &[Member]) -> Option<u64> {
    set.iter().try_fold(1u64, |cycle, member| {
        let period_ns = u128::from(member.params.period.as_nanos());
        let window_ns = period_ns * u128::from(member.window.periods);
        let factor = window_ns / greatest_common_divisor(u128::from(cycle), window_ns);
        u64::try_from(u128::from(cycle).checked_mul(factor)?).ok()
    })
}

struct Run<'a> {
    set: &'a [Member],
    scheduler: Scheduler,
    now: Instant,
}

impl<'a> Run<'a> {
    fn new(set: &'a [Member]) -> Result<Self, InputError> {
        let capacity = u32::try_from(set.len()).unwrap_or(u32::MAX);
        let policy = Box::new(WindowConstrained::new(capacity));
        let mut run =
            Run { set, scheduler: Scheduler::with_policy(capacity, policy), now: Instant::ZERO };
        for (member, id) in set.iter().zip((0..).map(ActivityId)) {
            let terms = Terms { window: Some(member.window), ..Terms::default() };
            let params = member.params.offset(Span::ZERO);
            run.handle(Input::Create { id, params, terms })?;
        }
        for id in (0..capacity).map(ActivityId) {
            run.handle(Input::Run { id, at: Instant::ZERO })?;
        }
        Ok(run)
    }

    fn handle(&mut self, input: Input) -> Result<(), InputError> {
        self.scheduler.handle(self.now, input)
    }

    /// The violations of each member, for jobs due by `end`.
    fn until(mut self, end: Instant) -> Result<Vec<u64>, InputError> {
        while self.now < end {
            match self.scheduler.poll_command(self.now) {
                Some(Command::Upcall { id, pdus_max, check_at, .. }) => {
                    self.upcall(id, pdus_max, check_at)?;
                }
                Some(_) => {}
                None => {
                    self.now = self.scheduler.next_deadline().unwrap_or(Instant::FAR);
                    self.handle(Input::Tick)?;
                }
            }
        }
        let violations = |id| self.scheduler.window_violations(ActivityId(id)).unwrap_or(0);
        Ok((0..).take(self.set.len()).map(violations).collect())
    }

    /// The handler's part, as in rtu-1995 Figure 5.
    fn upcall(
        &mut self,
        id: ActivityId,
        pdus_max: u32,
        mut check_at: Instant,
    ) -> Result<(), InputError> {
        let params = &self.set[id.0 as usize].params;
        let mut pdus = 0;
        loop {
            let quantum = params.quantum.min(pdus_max - pdus);
            self.now += params.pdu_cost * quantum;
            pdus += quantum;
            if pdus == pdus_max {
                return self.handle(Input::Returned { pdus, outcome: Outcome::Done });
            }
            if self.now < check_at {
                continue;
            }
            self.handle(Input::Boundary)?;
            loop {
                match self.scheduler.poll_command(self.now) {
                    Some(Command::Proceed { check_at: next }) => check_at = next,
                    Some(Command::Yield) => {
                        return self.handle(Input::Returned { pdus, outcome: Outcome::Yielded });
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
    }
}
