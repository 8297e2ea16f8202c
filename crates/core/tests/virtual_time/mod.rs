//! Drives the real state machine in virtual time, as the runtime drives it in real time.
//!
//! Costs are exact. The conditions state the cost of hand-offs and how late the CPU's thread wakes.
//! The results are the scheduler's own counters.

#[path = "../chance/mod.rs"]
#[allow(dead_code, reason = "each driver draws what it needs")]
mod chance;

use chance::Chance;
use upcall_core::activity::Terms;
use upcall_core::activity::{ActivityId, ActivityParams};
use upcall_core::discipline::RMDP;
use upcall_core::scheduler::{Command, Counters, EVENTS_MAX, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

/// The behaviour of the machine and the handlers.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The time spent at every upcall of another activity than the last, before its first quantum.
    pub switch_cost: Span,
    /// How late the thread wakes from sleep.
    pub wakeup: Wakeup,
    /// Whether jobs may have fewer PDUs, and quanta cost less, than declared.
    pub thrifty: bool,
    /// Which activities win ties, one bit each. Unless it is 0, events come to all activities at
    /// any time.
    pub wins_ties: u64,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// The terms of activity `number`.
pub fn terms(wins_ties: u64, number: usize) -> Terms {
    Terms { wins_ties: wins_ties >> number & 1 == 1, ..Terms::default() }
}

/// How late a sleeping thread wakes.
#[derive(Clone, Copy, Debug)]
pub enum Wakeup {
    /// By exactly this much, every time.
    By(Span),
    /// By a random time up to this.
    UpTo(Span),
}

/// Everything as declared, hand-offs and wake-ups free.
pub const IDEAL: Conditions = Conditions {
    switch_cost: Span::ZERO,
    wakeup: Wakeup::By(Span::ZERO),
    thrifty: false,
    wins_ties: 0,
    seed: 0,
};

/// Runs the activities, numbered as they stand in `set`, from their offsets until `until`; returns
/// the counters of each.
pub fn observe(set: &[ActivityParams], conditions: Conditions, until: Instant) -> Vec<Counters> {
    let capacity = u32::try_from(set.len()).unwrap();
    let mut driver = Driver {
        scheduler: Scheduler::new(capacity, &RMDP),
        now: Instant::ZERO,
        set,
        conditions,
        chance: Chance(conditions.seed),
        batch_left: vec![0; set.len()],
        last: None,
    };
    driver.handle(Input::SwitchCost { cost: conditions.switch_cost });
    let ids = || (0..capacity).map(ActivityId);
    for id in ids() {
        let index = id.0 as usize;
        let terms = terms(conditions.wins_ties, index);
        driver.handle(Input::Create { id, params: set[index], terms });
        driver.handle(Input::Run { id, at: Instant::ZERO });
    }
    while driver.now < until {
        driver.step();
    }
    ids().map(|id| driver.scheduler.counters_at(driver.now, id).unwrap()).collect()
}

struct Driver<'a> {
    scheduler: Scheduler,
    now: Instant,
    set: &'a [ActivityParams],
    conditions: Conditions,
    chance: Chance,
    /// PDUs that each activity's current job still has.
    batch_left: Vec<u32>,
    last: Option<ActivityId>,
}

impl Driver<'_> {
    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input).unwrap();
    }

    /// Posts an event now and then.
    fn raise(&mut self) {
        while let Some(notice) = self.scheduler.poll_notice() {
            assert!(
                matches!(notice, Command::JobDone(_)),
                "{notice:?} though nothing asked for it"
            );
        }
        if self.conditions.wins_ties != 0 && self.chance.below(2) == 0 {
            let number = self.chance.below(self.set.len() as u64);
            let id = ActivityId(u32::try_from(number).unwrap());
            let rank = self.chance.below(4);
            let posted = self.scheduler.handle(self.now, Input::Posted { id, rank }).is_ok();
            assert!(posted || self.scheduler.pending(id).0 == EVENTS_MAX);
        }
    }

    /// Executes the next command, or sleeps.
    fn step(&mut self) {
        self.raise();
        match self.scheduler.poll_command(self.now) {
            Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                self.upcall(id, pdus_max, resumed, check_at);
            }
            Some(Command::JobDone(_)) => {}
            Some(other) => panic!("{other:?} though nothing asked for it"),
            None => {
                let next = self.scheduler.next_deadline().expect("all are active");
                let late = match self.conditions.wakeup {
                    Wakeup::By(span) => span,
                    Wakeup::UpTo(span) => Span::from_nanos(self.chance.up_to(span.as_nanos())),
                };
                self.now = self.now.max(next) + late;
                self.handle(Input::Tick);
            }
        }
    }

    /// The handler's part (rtu-1995 Figure 5): quantum by quantum, asking at
    /// each boundary from `check_at` on.
    fn upcall(&mut self, id: ActivityId, pdus_max: u32, resumed: bool, mut check_at: Instant) {
        if self.last.replace(id) != Some(id) {
            self.now += self.conditions.switch_cost;
        }
        let index = id.0 as usize;
        if !resumed {
            self.batch_left[index] = match self.conditions.thrifty {
                true => u32::try_from(self.chance.up_to(u64::from(pdus_max))).unwrap(),
                false => pdus_max,
            };
        }
        let mut pdus = 0;
        if self.conditions.wins_ties != 0 {
            let events = u32::try_from(self.chance.below(4)).unwrap();
            self.handle(Input::Taken { id, events });
        }
        loop {
            self.raise();
            let quantum = self.set[index].quantum.min(self.batch_left[index]);
            let cost = self.cost(index, quantum);
            self.now += cost;
            self.batch_left[index] -= quantum;
            pdus += quantum;
            if self.batch_left[index] == 0 {
                return self.handle(Input::Returned { pdus, outcome: Outcome::Done });
            }
            if self.now < check_at {
                continue;
            }
            self.handle(Input::Boundary);
            match self.scheduler.poll_command(self.now) {
                Some(Command::Proceed { check_at: next }) => check_at = next,
                Some(Command::Yield) => {
                    return self.handle(Input::Returned { pdus, outcome: Outcome::Yielded });
                }
                other => panic!("a boundary was answered by {other:?}"),
            }
            assert_eq!(self.scheduler.poll_command(self.now), None);
        }
    }

    fn cost(&mut self, index: usize, pdus: u32) -> Span {
        let declared = self.set[index].pdu_cost * pdus;
        match self.conditions.thrifty {
            true => Span::from_nanos(self.chance.up_to(declared.as_nanos())),
            false => declared,
        }
    }
}
