//! Drives the real scheduler under DWCS in virtual time, and judges it by the recorded jobs alone.

#[path = "../chance/mod.rs"]
#[allow(dead_code, reason = "each driver draws what it needs")]
mod chance;

pub use chance::Chance;
use upcall_core::activity::{ActivityId, ActivityParams, Terms, Window};
use upcall_core::admission::{Platform, Reservations, Share, TestResult};
use upcall_core::discipline::DWCS;
use upcall_core::scheduler::{Command, Counters, EVENTS_MAX, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

/// An activity and its window.
pub type Task = (ActivityParams, Terms);

pub fn task(period_ns: u64, cost_ns: u64, misses: u32, periods: u32) -> Task {
    let params = ActivityParams::new(Span::from_nanos(period_ns), Span::from_nanos(cost_ns));
    (params, Terms { window: Some(Window { misses, periods }), ..Terms::default() })
}

pub fn window(task: &Task) -> Window {
    task.1.window.unwrap_or(Window { misses: 0, periods: 1 })
}

/// The behaviour of the machine, the handlers and the posters of events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// The time spent at every upcall of another activity than the last.
    pub switch_ns: u64,
    /// The longest delay with which a sleeping thread wakes.
    pub wakeup_ns: u64,
    /// Whether jobs may have fewer PDUs, and quanta cost less, than declared.
    pub thrifty: bool,
    /// The number of picks, out of 8, at which an activity gets events.
    pub events: u64,
    /// The share of the event server.
    pub share: Option<Share>,
    pub seed: u64,
}

impl Conditions {
    pub fn platform(&self) -> Platform {
        Platform {
            cpus: vec![0],
            cpu_limit: Share::WHOLE,
            switch_cost: Span::from_nanos(self.switch_ns),
            wakeup_latency: Span::from_nanos(self.wakeup_ns),
            defer_preemption: Span::ZERO,
        }
    }
}

/// Reserves all activities, and returns whether they would have been admitted. Does not ask for
/// hints, which take longer than everything else here.
pub fn admit(set: &[Task], conditions: &Conditions) -> (Reservations, bool) {
    let mut reservations = Reservations::new(conditions.platform(), &DWCS);
    for (params, terms) in set {
        reservations.reserve_unscreened("it", *params, terms);
    }
    let admitted = deciding(&reservations).passed;
    (reservations, admitted)
}

/// The test that decides on CPU 0.
pub fn deciding(reservations: &Reservations) -> TestResult {
    let tests = reservations.tests();
    let mut deciding = tests.iter().filter(|test| test.deciding);
    let test = deciding.next().unwrap();
    assert_eq!(deciding.next(), None);
    *test
}

/// The observations of one activity.
#[derive(Clone, Debug)]
pub struct Seen {
    /// For each period in order, whether its job was done in time.
    pub served: Vec<bool>,
    pub counters: Counters,
    /// The violations that the policy counted.
    pub violations: u64,
    /// Upcalls without a job.
    pub extras: u64,
    /// Upcalls that came while events waited.
    pub events_taken: u64,
}

impl Seen {
    /// Windows with more misses than allowed, counted one after the other from the first period on.
    /// The last window may be cut off.
    pub fn broken(&self, window: Window) -> u64 {
        let misses = |periods: &[bool]| periods.iter().filter(|&&served| !served).count();
        let windows = self.served.chunks(window.periods as usize);
        windows.filter(|periods| misses(periods) > window.misses as usize).count() as u64
    }

    /// The most misses among any `periods` periods in a row.
    pub fn misses_in_any(&self, periods: u32) -> usize {
        let misses = |periods: &[bool]| periods.iter().filter(|&&served| !served).count();
        self.served.windows(periods as usize).map(misses).max().unwrap_or(0)
    }
}

/// Runs the activities, all started at 0, until `until_ns`. Also returns the time and the activity
/// of each upcall.
pub fn drive(set: &[Task], conditions: Conditions, until_ns: u64) -> (Vec<Seen>, Vec<(u64, u32)>) {
    let capacity = u32::try_from(set.len()).unwrap();
    let mut driver = Driver {
        scheduler: Scheduler::new(capacity, &DWCS),
        now: Instant::ZERO,
        set,
        conditions,
        chance: Chance(conditions.seed),
        batch_left: vec![0; set.len()],
        last: None,
        done: vec![Vec::new(); set.len()],
        has_job: vec![false; set.len()],
        extras: vec![0; set.len()],
        waiting: vec![false; set.len()],
        events_taken: vec![0; set.len()],
        upcalls: Vec::new(),
    };
    driver.handle(Input::SwitchCost { cost: Span::from_nanos(conditions.switch_ns) });
    for ((params, terms), id) in set.iter().zip((0..).map(ActivityId)) {
        driver.handle(Input::Create { id, params: *params, terms: *terms });
    }
    driver.handle(Input::EventServer { share: conditions.share });
    for id in (0..capacity).map(ActivityId) {
        driver.handle(Input::Run { id, at: Instant::ZERO });
    }
    while driver.now.as_nanos() < until_ns {
        driver.step();
    }
    driver.take_notices();
    let seen = (0..capacity).map(|number| driver.seen(ActivityId(number))).collect();
    (seen, driver.upcalls)
}

struct Driver<'a> {
    scheduler: Scheduler,
    now: Instant,
    set: &'a [Task],
    conditions: Conditions,
    chance: Chance,
    batch_left: Vec<u32>,
    last: Option<ActivityId>,
    /// For each activity, the numbers of the jobs done in time.
    done: Vec<Vec<u64>>,
    /// For each activity, whether a job of it yielded and has not ended.
    has_job: Vec<bool>,
    extras: Vec<u64>,
    waiting: Vec<bool>,
    events_taken: Vec<u64>,
    upcalls: Vec<(u64, u32)>,
}

impl Driver<'_> {
    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input).unwrap();
    }

    fn seen(&self, id: ActivityId) -> Seen {
        let index = id.0 as usize;
        let counters = self.scheduler.counters(id).unwrap();
        // Jobs whose deadline has passed. Each of them has ended, except those that a running
        // handler keeps from being dropped.
        let (params, _) = self.set[index];
        let first_due = params.offset + params.deadline;
        let past = self.now.since(Instant::ZERO).saturating_sub(first_due);
        let due = match self.now >= Instant::ZERO + first_due {
            true => past.as_nanos() / params.period.as_nanos() + 1,
            false => 0,
        };
        let mut served = vec![false; usize::try_from(due).unwrap()];
        for &job in &self.done[index] {
            if let Some(served) = served.get_mut(usize::try_from(job).unwrap()) {
                *served = true;
            }
        }
        Seen {
            served,
            counters,
            violations: self.scheduler.window_violations(id).unwrap(),
            extras: self.extras[index],
            events_taken: self.events_taken[index],
        }
    }

    fn take_notices(&mut self) {
        while let Some(command) = self.scheduler.poll_notice() {
            self.notice(command);
        }
    }

    fn step(&mut self) {
        self.take_notices();
        if self.chance.below(8) < self.conditions.events {
            let number = self.chance.below(self.set.len() as u64) as usize;
            let id = ActivityId(u32::try_from(number).unwrap());
            let rank = self.chance.below(3);
            let posted = self.scheduler.handle(self.now, Input::Posted { id, rank }).is_ok();
            assert!(posted || self.scheduler.pending(id).0 == EVENTS_MAX);
            self.waiting[number] = true;
        }
        match self.scheduler.poll_command(self.now) {
            Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                self.upcall(id, pdus_max, resumed, check_at);
            }
            Some(command) => self.notice(command),
            None => {
                let next = self.scheduler.next_deadline().expect("all are active");
                assert!(next > self.now, "asleep though something is due");
                let late = up_to(&mut self.chance, self.conditions.wakeup_ns);
                self.now = next + Span::from_nanos(late);
                self.handle(Input::Tick);
            }
        }
    }

    fn notice(&mut self, command: Command) {
        match command {
            Command::JobDone(record) => {
                assert_eq!(record.missed(), !record.completed || record.end > record.deadline);
                if !record.missed() {
                    self.done[record.id.0 as usize].push(record.job);
                }
            }
            other => panic!("{other:?} though nothing asked for it"),
        }
    }

    fn upcall(&mut self, id: ActivityId, pdus_max: u32, resumed: bool, mut check_at: Instant) {
        let index = id.0 as usize;
        let params = self.set[index].0;
        self.upcalls.push((self.now.as_nanos(), id.0));
        self.events_taken[index] += u64::from(core::mem::take(&mut self.waiting[index]));
        // The handler takes all events, some events, or none.
        let (events, _) = self.scheduler.pending(id);
        if events > 0 {
            let events = u32::try_from(up_to(&mut self.chance, u64::from(events))).unwrap();
            self.handle(Input::Taken { id, events });
        }
        if self.last.replace(id) != Some(id) {
            self.now += Span::from_nanos(self.conditions.switch_ns);
        }
        if !resumed {
            self.batch_left[index] = match self.conditions.thrifty {
                true => u32::try_from(up_to(&mut self.chance, u64::from(pdus_max))).unwrap(),
                false => pdus_max,
            };
        }
        let before = self.scheduler.counters(id).unwrap();
        let mut pdus = 0;
        loop {
            let quantum = params.quantum.min(self.batch_left[index]);
            let declared_ns = (params.pdu_cost * quantum).as_nanos();
            let cost_ns = match self.conditions.thrifty {
                true => up_to(&mut self.chance, declared_ns),
                false => declared_ns,
            };
            self.now += Span::from_nanos(cost_ns);
            self.batch_left[index] -= quantum;
            pdus += quantum;
            let outcome = if self.batch_left[index] == 0 {
                Outcome::Done
            } else if self.now < check_at {
                continue;
            } else {
                self.handle(Input::Boundary);
                match self.scheduler.poll_command(self.now) {
                    Some(Command::Proceed { check_at: next }) => {
                        check_at = next;
                        assert_eq!(self.scheduler.poll_command(self.now), None);
                        continue;
                    }
                    Some(Command::Yield) => Outcome::Yielded,
                    other => panic!("a boundary was answered by {other:?}"),
                }
            };
            self.handle(Input::Returned { pdus, outcome });
            let after = self.scheduler.counters(id).unwrap();
            let ended = after.completed > before.completed || after.misses > before.misses;
            let is_job = self.has_job[index] || ended || after.preemptions > before.preemptions;
            self.has_job[index] = is_job && !ended;
            self.extras[index] += u64::from(!is_job);
            return;
        }
    }
}

/// A number in `0 ..= most`; the ends, which provoke the worst cases, come more often. Takes two
/// draws: the sets of these tests depend on it.
pub fn up_to(chance: &mut Chance, most: u64) -> u64 {
    match chance.below(8) {
        0 => 0,
        1..=3 => most,
        _ => chance.below(most + 1),
    }
}
