//! Drives the scheduler under DWS in virtual time, with early messages. Before each quantum it
//! checks that the running activity is the one that the paper's rules put first.
//!
//! Costs are exact. The conditions state the cost of hand-offs and how late the CPU's thread wakes.

#[path = "../chance/mod.rs"]
#[allow(dead_code, reason = "each driver draws what it needs")]
mod chance;

use chance::Chance;
use upcall_core::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use upcall_core::discipline::DWS;
use upcall_core::scheduler::{Command, Counters, EVENTS_MAX, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

pub type Activity = (ActivityParams, Terms);

/// The behaviour of the machine, the senders and the handlers.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The time spent at every upcall of another activity than the last, before its first quantum.
    pub switch_cost: Span,
    /// How late the thread may wake from sleep: any time up to this.
    pub wakeup_latency: Span,
    /// Whether jobs may have fewer PDUs, and quanta cost less, than declared.
    pub thrifty: bool,
    /// How early messages come.
    pub lead: Lead,
    /// Whether events come to all activities, at any time.
    pub events: bool,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// How long before its logical arrival a message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    None,
    /// As long as the workahead limit permits.
    Most,
    /// A random time up to that.
    Random,
}

/// Everything as declared; hand-offs and wake-ups free, no early messages.
pub const IDEAL: Conditions = Conditions {
    switch_cost: Span::ZERO,
    wakeup_latency: Span::ZERO,
    thrifty: false,
    lead: Lead::None,
    events: false,
    seed: 0,
};

/// A quantum: its activity, its start and its end.
pub type Quantum = (u32, u64, u64);

/// Runs the activities, numbered as they stand in `set`, from their offsets until `until`; returns
/// the counters of each.
pub fn observe(set: &[Activity], conditions: Conditions, until: u64) -> Vec<Counters> {
    run(set, conditions, until).0
}

/// Like `observe`, with every quantum that ran.
pub fn run(set: &[Activity], conditions: Conditions, until: u64) -> (Vec<Counters>, Vec<Quantum>) {
    let capacity = u32::try_from(set.len()).unwrap();
    let mut driver = Driver {
        scheduler: Scheduler::new(capacity, &DWS),
        now: 0,
        set,
        conditions,
        chance: Chance(conditions.seed),
        batch_left: vec![0; set.len()],
        done: vec![0; set.len()],
        there: vec![0; set.len()],
        arrivals: vec![0; set.len()],
        last: None,
        quanta: Vec::new(),
    };
    driver.handle(Input::SwitchCost { cost: conditions.switch_cost });
    for (index, id) in (0..capacity).map(ActivityId).enumerate() {
        let (params, terms) = set[index];
        driver.handle(Input::Create { id, params, terms });
        driver.handle(Input::Run { id, at: Instant::ZERO });
        driver.draw_arrival(index);
    }
    driver.deliver();
    while driver.now < until {
        driver.step();
    }
    let now = Instant::from_nanos(driver.now);
    let counters =
        (0..capacity).map(|number| driver.scheduler.counters_at(now, ActivityId(number)).unwrap());
    (counters.collect(), driver.quanta)
}

struct Driver<'a> {
    scheduler: Scheduler,
    now: u64,
    set: &'a [Activity],
    conditions: Conditions,
    chance: Chance,
    /// PDUs that each activity's current job still has.
    batch_left: Vec<u32>,
    /// Messages that each activity has processed.
    done: Vec<u64>,
    /// Messages that have come: those that were reported early, and those whose time has come.
    there: Vec<u64>,
    /// When the message after those comes.
    arrivals: Vec<u64>,
    last: Option<ActivityId>,
    quanta: Vec<Quantum>,
}

impl Driver<'_> {
    fn handle(&mut self, input: Input) {
        self.scheduler.handle(Instant::from_nanos(self.now), input).unwrap();
    }

    fn poll(&mut self) -> Option<Command> {
        self.scheduler.poll_command(Instant::from_nanos(self.now))
    }

    /// The logical arrival of a message, by its position.
    fn logical_arrival(&self, index: usize, message: u64) -> u64 {
        let params = &self.set[index].0;
        params.offset.as_nanos() + message * params.period.as_nanos()
    }

    fn draw_arrival(&mut self, index: usize) {
        let (params, terms) = &self.set[index];
        let most = params.period.as_nanos() * u64::from(terms.workahead_max);
        let lead = match self.conditions.lead {
            Lead::None => 0,
            Lead::Most => most,
            Lead::Random => self.chance.up_to(most),
        };
        let logical = self.logical_arrival(index, self.there[index]);
        self.arrivals[index] = logical.saturating_sub(lead).max(self.arrivals[index]);
    }

    /// Reports the messages that have come; returns whether there were any.
    fn deliver(&mut self) -> bool {
        let mut reported = false;
        for index in 0..self.set.len() {
            while self.arrivals[index] <= self.now {
                // A message whose time has come is released without a report.
                if self.logical_arrival(index, self.there[index]) > self.now {
                    let id = ActivityId(u32::try_from(index).unwrap());
                    self.handle(Input::Arrived { id, messages: 1 });
                    reported = true;
                }
                self.there[index] += 1;
                self.draw_arrival(index);
            }
        }
        reported
    }

    /// Posts an event now and then, or takes some.
    fn raise(&mut self) {
        if !self.conditions.events {
            return;
        }
        let number = self.chance.up_to(self.set.len() as u64 - 1);
        let id = ActivityId(u32::try_from(number).unwrap());
        match self.chance.up_to(3) {
            0 => self.handle(Input::Taken { id, events: 2 }),
            rank if self.scheduler.pending(id).0 < EVENTS_MAX => {
                self.handle(Input::Posted { id, rank });
            }
            _ => {}
        }
    }

    /// Executes the next command, or sleeps.
    fn step(&mut self) {
        self.raise();
        match self.poll() {
            Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                self.upcall(id, pdus_max, resumed, check_at);
            }
            Some(other) => panic!("{other:?} though nothing asked for it"),
            None => {
                self.nothing_waits();
                let arrival = *self.arrivals.iter().min().unwrap();
                let next = self.scheduler.next_deadline().expect("all are active");
                let late = self.chance.up_to(self.conditions.wakeup_latency.as_nanos());
                self.now = self.now.max(next.as_nanos().min(arrival)) + late;
                self.deliver();
                self.handle(Input::Tick);
            }
        }
    }

    /// The handler's part (rtu-1995 Figure 5): quantum by quantum, asking at
    /// each boundary from `check_at` on, or where a message has come.
    fn upcall(&mut self, id: ActivityId, pdus_max: u32, resumed: bool, check_at: Instant) {
        let mut check_at = check_at.as_nanos();
        self.is_first(id);
        if self.last.replace(id) != Some(id) {
            self.now += self.conditions.switch_cost.as_nanos();
        }
        let index = id.0 as usize;
        if !resumed {
            self.batch_left[index] = match self.conditions.thrifty {
                true => u32::try_from(self.chance.up_to(u64::from(pdus_max))).unwrap(),
                false => pdus_max,
            };
        }
        let mut pdus = 0;
        loop {
            self.raise();
            let quantum = self.set[index].0.quantum.min(self.batch_left[index]);
            let begin = self.now;
            self.now += self.cost(index, quantum);
            self.quanta.push((id.0, begin, self.now));
            self.batch_left[index] -= quantum;
            pdus += quantum;
            if self.batch_left[index] == 0 {
                self.handle(Input::Returned { pdus, outcome: Outcome::Done });
                self.job_done(index);
                self.deliver();
                return;
            }
            let reported = self.deliver();
            if self.now < check_at && !reported {
                self.is_first(id);
                continue;
            }
            self.handle(Input::Boundary);
            match self.poll() {
                Some(Command::Proceed { check_at: next }) => check_at = next.as_nanos(),
                Some(Command::Yield) => {
                    return self.handle(Input::Returned { pdus, outcome: Outcome::Yielded });
                }
                other => panic!("a boundary was answered by {other:?}"),
            }
            assert_eq!(self.poll(), None);
            self.is_first(id);
        }
    }

    fn job_done(&mut self, index: usize) {
        match self.scheduler.poll_notice() {
            Some(Command::JobDone(record)) => {
                let message = self.done[index];
                let logical = self.logical_arrival(index, message);
                assert_eq!((record.job, record.release.as_nanos()), (message, logical));
                let bound = self.delay_bound(index);
                assert_eq!(record.slack_ns(), (logical + bound) as i64 - self.now as i64);
                assert_eq!(record.response().as_nanos(), self.now.saturating_sub(logical));
            }
            other => panic!("the end of a job was answered by {other:?}"),
        }
        self.done[index] += 1;
    }

    fn delay_bound(&self, index: usize) -> u64 {
        let (params, terms) = &self.set[index];
        terms.delay_bound.unwrap_or(params.deadline).as_nanos()
    }

    /// The place of an activity by the paper's rules; `None` if it has nothing to do.
    fn place(&self, index: usize) -> Option<(u32, u64, usize)> {
        let logical = self.logical_arrival(index, self.done[index]);
        let come = logical <= self.now;
        let early = self.there[index] > self.done[index];
        match self.set[index].1.class {
            WorkClass::RealTime if come => Some((0, logical + self.delay_bound(index), index)),
            WorkClass::Interactive if come => Some((1, logical, index)),
            WorkClass::RealTime if early => Some((2, logical, index)),
            WorkClass::Background if come => Some((3, logical, index)),
            _ => None,
        }
    }

    fn is_first(&self, id: ActivityId) {
        let first = (0..self.set.len()).filter_map(|index| self.place(index)).min();
        let own = self.place(id.0 as usize);
        // Events decide between equals.
        let rank = |place: Option<(u32, u64, usize)>| place.map(|(level, key, _)| (level, key));
        assert_eq!(rank(own), rank(first), "at {}", self.now);
        assert!(self.conditions.events || own == first, "at {}", self.now);
    }

    fn nothing_waits(&self) {
        assert!((0..self.set.len()).all(|index| self.place(index).is_none()), "at {}", self.now);
    }

    fn cost(&mut self, index: usize, pdus: u32) -> u64 {
        let declared = (self.set[index].0.pdu_cost * pdus).as_nanos();
        match self.conditions.thrifty {
            true => self.chance.up_to(declared),
            false => declared,
        }
    }
}
