//! The scheduler under DWS without heaps, queues or events: the model examines all messages at each
//! call. The property test and the fuzz target give it operations.
//!
//! The model takes the state of each budget from the scheduler, and checks what follows.
//! `scheduler/budget.rs` tests the budgets themselves.

use std::collections::VecDeque;
use upcall_core::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use upcall_core::discipline::DWS;
use upcall_core::scheduler::{BudgetState, Command, EVENTS_MAX, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

/// The number of activities; operations name one more, which is out of range.
pub const CAPACITY: u32 = 4;

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// The operations. Times are relative to now.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Pass(u64),
    Create(u32, ActivityParams, Terms),
    Run(u32, u64),
    Suspend(u32),
    Close(u32),
    Arrived(u32, u32),
    Advance(u32, u64),
    /// Logical arrival, and how long before it the message comes.
    Message(u32, u64, u64),
    Posted(u32, u64),
    Taken(u32, u32),
    PassedOver,
    Boundary,
    Returned(u32, Outcome),
}

fn input(now: u64, op: Op) -> Input {
    let id = ActivityId;
    match op {
        Op::Pass(_) => Input::Tick,
        Op::Create(number, params, terms) => Input::Create { id: id(number), params, terms },
        Op::Run(number, ahead) => Input::Run { id: id(number), at: at(now + ahead) },
        Op::Suspend(number) => Input::Suspend { id: id(number) },
        Op::Close(number) => Input::Close { id: id(number) },
        Op::Arrived(number, messages) => Input::Arrived { id: id(number), messages },
        Op::Advance(number, ahead) => Input::Advance { id: id(number), critical: at(now + ahead) },
        Op::Message(number, ahead, before) => Input::Message {
            id: id(number),
            critical: at((now + ahead).saturating_sub(10)),
            from: at((now + ahead).saturating_sub(10 + before)),
        },
        Op::Posted(number, rank) => Input::Posted { id: id(number), rank },
        Op::Taken(number, events) => Input::Taken { id: id(number), events },
        Op::PassedOver => Input::PassedOver,
        Op::Boundary => Input::Boundary,
        Op::Returned(pdus, outcome) => Input::Returned { pdus, outcome },
    }
}

/// A message that has not been processed.
#[derive(Clone, Copy, Debug)]
struct Message {
    logical: u64,
    /// Whether it came early, and its logical arrival has not passed.
    early: bool,
}

#[derive(Clone, Debug)]
struct Known {
    params: ActivityParams,
    terms: Terms,
    /// `None` for work without a promise.
    budget: Option<BudgetState>,
    /// How many activities were created before it.
    created: u32,
    /// The logical arrival of the message after the last one that came.
    next: Option<u64>,
    /// On demand: when that message comes. Otherwise the earliest time at which it can arrive.
    from: u64,
    earliest: u64,
    active: bool,
    /// The activity runs and must stop, so no further message comes.
    held: bool,
    /// Rank and number of the waiting events.
    events: Vec<(u64, u64)>,
    /// The event with which its job began.
    served: Option<(u64, u64)>,
    pending: VecDeque<Message>,
    started: Option<u64>,
    pdus: u32,
    jobs: u64,
    completed: u64,
    misses: u64,
    overruns: u64,
}

impl Known {
    fn period(&self) -> u64 {
        self.params.period.as_nanos()
    }

    /// When the next message comes.
    fn ready_at(&self) -> Option<u64> {
        let ahead = match self.terms.class {
            WorkClass::RealTime => self.period() * u64::from(self.terms.workahead_max),
            _ => 0,
        };
        self.next.map(|next| match self.terms.on_demand {
            true => self.from.max(next.saturating_sub(ahead)),
            false => next,
        })
    }

    fn bound(&self) -> u64 {
        self.terms.delay_bound.unwrap_or(self.params.deadline).as_nanos()
    }

    /// The level and the place in it, by the paper's rules.
    fn place(&self, now: u64) -> Option<(u32, u64, u32)> {
        let logical = self.pending.front()?.logical.max(self.window());
        let (level, key) = match self.terms.class {
            WorkClass::RealTime if self.over_until().is_some() => (4, logical + self.bound()),
            WorkClass::RealTime if logical <= now => (0, logical + self.bound()),
            WorkClass::Interactive => (1, logical),
            WorkClass::RealTime => (2, logical),
            WorkClass::Background => (3, logical),
        };
        Some((level, key, self.created))
    }

    /// The beginning of the budget, from which the rank counts if it is later than the message.
    fn window(&self) -> u64 {
        self.budget.map_or(0, |budget| budget.window.as_nanos())
    }

    fn over_until(&self) -> Option<u64> {
        self.budget?.over_until.map(Instant::as_nanos)
    }

    fn event(&self) -> Option<(u64, u64)> {
        self.events.iter().copied().chain(self.served).min()
    }

    /// Counts logical arrivals that pass while the previous message is unfinished.
    fn pass(&mut self, now: u64) {
        for (place, message) in self.pending.iter_mut().enumerate() {
            if message.early && message.logical < now {
                message.early = false;
                self.overruns += u64::from(place > 0);
            }
        }
    }

    fn late(&self, now: u64) -> u64 {
        self.pending.iter().filter(|message| message.logical + self.bound() < now).count() as u64
    }
}

/// Whether a running activity must stop. `Some(true)` closes it, and `Some(false)` suspends it.
type Closing = Option<bool>;

#[derive(Default)]
struct Model {
    known: Vec<Option<Known>>,
    /// The running activity, its PDU limit, and how it must stop.
    running: Option<(u32, u32, Closing)>,
    created: u32,
    /// Logical arrival, deadline, end, and whether it was completed.
    records: Vec<(u64, u64, u64, bool)>,
    posted: u64,
}

impl Model {
    fn of(&mut self, id: u32) -> Option<&mut Known> {
        self.known.get_mut(id as usize)?.as_mut()
    }

    /// Releases messages that logically arrive by `now`.
    fn release(&mut self, now: u64) {
        for known in self.known.iter_mut().flatten() {
            known.pass(now);
            if known.held {
                continue;
            }
            while let Some(logical) = known.next.filter(|_| known.ready_at() <= Some(now)) {
                known.overruns += u64::from(!known.pending.is_empty());
                known.pending.push_back(Message { logical, early: false });
                known.jobs += 1;
                let promised = known.terms.class == WorkClass::RealTime;
                known.earliest = logical + if promised { known.period() } else { 0 };
                known.next = (!known.terms.on_demand).then_some(logical + known.period());
            }
        }
    }

    /// Activities with a message that do not run, and their places.
    fn waiting(&self, now: u64) -> impl Iterator<Item = ((u32, u64, u32), &Known, u32)> {
        let running = self.running.map(|(id, ..)| id);
        self.known.iter().zip(0..).filter_map(move |(known, id)| {
            let known = known.as_ref()?;
            let place = known.place(now)?;
            (running != Some(id)).then_some((place, known, id))
        })
    }

    /// The activity that should run next: of equals, those with events first.
    fn best(&self, now: u64) -> Option<u32> {
        let with_event = |((level, key, created), known, id): (_, &Known, u32)| {
            let event = known.event();
            ((level, key, event.is_none(), event, created), id)
        };
        self.waiting(now).map(with_event).min().map(|(_, id): ((u32, u64, _, _, u32), _)| id)
    }

    /// The next moment at which the order can change without an input.
    fn next_change(&self, now: u64) -> u64 {
        let running = self.running.map(|(id, ..)| id);
        let change = |(known, id): (&Option<Known>, u32)| {
            let known = known.as_ref()?;
            let critical = known.pending.front().map(|message| message.logical);
            let waits = running != Some(id) && known.terms.class == WorkClass::RealTime;
            let waits = waits && known.over_until().is_none();
            let critical = critical.map(|logical| logical.max(known.window()));
            let critical = critical.filter(|&critical| waits && critical > now);
            let refill = known.over_until().filter(|_| !known.pending.is_empty());
            let release = known.ready_at().filter(|_| !known.held);
            critical.into_iter().chain(refill).chain(release).min()
        };
        self.known.iter().zip(0..).filter_map(change).min().unwrap_or(u64::MAX)
    }

    /// When the running handler must ask: also when its budget is used or expires.
    fn check_at(&self, now: u64, id: u32) -> Instant {
        let known = self.known[id as usize].as_ref().unwrap();
        let valid = Span::from_nanos(known.period().max(known.bound()));
        let budget = known.budget.filter(|budget| !budget.left.is_zero());
        let changes = budget.map(|budget| (at(now) + budget.left).min(budget.window + valid));
        at(self.next_change(now)).min(changes.unwrap_or(Instant::FAR))
    }

    /// Takes over the budgets.
    fn look_at(&mut self, scheduler: &Scheduler) {
        for (known, id) in self.known.iter_mut().zip((0..).map(ActivityId)) {
            if let Some(known) = known {
                known.budget = scheduler.budget(id);
            }
        }
    }

    fn end_job(&mut self, id: u32, now: u64, completed: bool) {
        let known = self.of(id).unwrap();
        known.pass(now);
        let logical = known.pending.pop_front().unwrap().logical;
        let deadline = logical + known.bound();
        known.completed += u64::from(completed);
        // A job that is cut short at its deadline was not done when it was due.
        known.misses += u64::from(deadline < now || (!completed && deadline == now));
        (known.started, known.pdus, known.served) = (None, 0, None);
        self.records.push((logical, deadline, now, completed));
    }

    fn drop_jobs(&mut self, id: u32, now: u64, close: bool) {
        if self.of(id).unwrap().started.is_some() {
            self.end_job(id, now, false);
        }
        let known = self.of(id).unwrap();
        known.pass(now);
        known.misses += known.late(now);
        known.pending.clear();
        (known.next, known.held, known.active) = (None, false, false);
        known.served = None;
        if close {
            self.known[id as usize] = None;
        }
    }

    fn stop(&mut self, id: u32, now: u64, close: bool) {
        match &mut self.running {
            Some((running, _, closing)) if *running == id => {
                *closing = Some(close || *closing == Some(true));
                self.of(id).unwrap().held = true;
            }
            _ => self.drop_jobs(id, now, close),
        }
    }

    fn returned(&mut self, now: u64, pdus: u32, outcome: Outcome) {
        let (id, pdus_max, closing) = self.running.take().unwrap();
        self.of(id).unwrap().pdus += pdus;
        if outcome != Outcome::Yielded || pdus == pdus_max {
            self.end_job(id, now, true);
        }
        if let Some(close) = closing.or((outcome == Outcome::Finished).then_some(false)) {
            self.drop_jobs(id, now, close);
        }
    }

    fn upcall(&mut self, now: u64, scheduler: &Scheduler) -> Option<Command> {
        if self.running.is_some() {
            return None;
        }
        let id = self.best(now)?;
        let expected = self.of(id).unwrap().place(now);
        // The beginning of an upcall may move the budget to a later window.
        self.look_at(scheduler);
        let known = self.of(id).unwrap();
        let kept = known.place(now) <= expected;
        known.served = known.event();
        let resumed = known.started.is_some();
        known.started.get_or_insert(now);
        let pdus_max = known.params.batch - known.pdus;
        self.running = Some((id, pdus_max, None));
        // With a worse rank than expected, the handler asks at its first boundary.
        let check_at = if kept { self.check_at(now, id) } else { at(now) };
        Some(Command::Upcall { id: ActivityId(id), pdus_max, resumed, check_at })
    }

    fn arrived(&mut self, id: u32, now: u64, messages: u32) {
        self.release(now);
        let known = self.of(id).unwrap();
        for _ in 0..messages {
            let limit = now + known.period() * u64::from(known.terms.workahead_max);
            let realtime = known.terms.class == WorkClass::RealTime && !known.held;
            let realtime = realtime && !known.terms.on_demand;
            let Some(logical) = known.next.filter(|&next| realtime && next <= limit) else { break };
            known.pending.push_back(Message { logical, early: true });
            known.jobs += 1;
            known.next = Some(logical + known.period());
        }
    }

    /// Applies the operation; returns whether it was valid, and the answer to a boundary.
    fn apply(&mut self, now: u64, op: Op, scheduler: &Scheduler) -> (bool, Option<Command>) {
        let mut answer = None;
        match op {
            Op::Run(id, _)
            | Op::Suspend(id)
            | Op::Close(id)
            | Op::Arrived(id, _)
            | Op::Advance(id, _)
            | Op::Message(id, ..)
            | Op::Posted(id, _)
            | Op::Taken(id, _)
                if self.of(id).is_none() =>
            {
                return (false, None);
            }
            Op::Create(id, ..) if id >= CAPACITY || self.of(id).is_some() => return (false, None),
            Op::Boundary if self.running.is_none() => return (false, None),
            Op::Pass(_) | Op::PassedOver => {}
            Op::Create(id, params, terms) => {
                self.created += 1;
                self.known[id as usize] = Some(Known {
                    params,
                    terms,
                    budget: None,
                    created: self.created,
                    next: None,
                    from: 0,
                    earliest: 0,
                    active: false,
                    held: false,
                    events: Vec::new(),
                    served: None,
                    pending: VecDeque::new(),
                    started: None,
                    pdus: 0,
                    jobs: 0,
                    completed: 0,
                    misses: 0,
                    overruns: 0,
                });
            }
            Op::Run(id, ahead) => {
                let stopping = self.running.as_mut().filter(|(running, ..)| *running == id);
                let closing = stopping.is_some_and(|(_, _, closing)| {
                    *closing = closing.filter(|&close| close);
                    closing.is_some()
                });
                let known = self.of(id).unwrap();
                known.held = closing;
                let first = now + ahead + known.params.offset.as_nanos();
                if !known.active {
                    (known.next, known.from, known.active) = (Some(first), first, true);
                }
            }
            Op::Suspend(id) => self.stop(id, now, false),
            Op::Close(id) => self.stop(id, now, true),
            Op::Arrived(id, messages) => self.arrived(id, now, messages),
            Op::Advance(id, ahead) => {
                self.release(now);
                let known = self.of(id).unwrap();
                if known.pending.is_empty() && !known.terms.on_demand {
                    known.next = known.next.map(|next| next.max(now + ahead));
                }
            }
            Op::Message(id, ahead, before) => {
                self.release(now);
                let known = self.of(id).unwrap();
                if known.terms.on_demand && known.active && !known.held && known.pending.is_empty()
                {
                    let critical = (now + ahead).saturating_sub(10);
                    known.next = Some(critical.max(known.earliest));
                    known.from = (now + ahead).saturating_sub(10 + before);
                }
            }
            Op::Posted(id, rank) => {
                let posted = self.posted;
                let known = self.of(id).unwrap();
                if known.events.len() == EVENTS_MAX as usize {
                    return (false, None);
                }
                known.events.push((rank, posted));
                self.posted += 1;
            }
            Op::Taken(id, events) => {
                let known = self.of(id).unwrap();
                known.events.sort_unstable();
                known.events.drain(..known.events.len().min(events as usize));
            }
            Op::Boundary => {
                self.release(now);
                self.look_at(scheduler);
                let (id, _, closing) = self.running.unwrap();
                let known = self.of(id).unwrap();
                let (own, served) = (known.place(now).unwrap(), known.served.is_some());
                let outranked = self.waiting(now).any(|(place, ..)| match served {
                    true => (place.0, place.1) < (own.0, own.1),
                    false => place < own,
                });
                answer = Some(match closing.is_some() || outranked {
                    true => Command::Yield,
                    false => Command::Proceed { check_at: self.check_at(now, id) },
                });
            }
            Op::Returned(pdus, outcome) => match self.running {
                Some((_, pdus_max, _)) if pdus <= pdus_max => self.returned(now, pdus, outcome),
                _ => return (false, None),
            },
        }
        self.release(now);
        (true, answer)
    }
}

/// Applies the operations to the scheduler and the model. Panics where they differ: whenever
/// nothing runs, the first activity by the paper's rules is upcalled; a boundary is answered
/// correctly; every job is recorded correctly; and all counts are correct.
pub fn compare(ops: &[Op]) {
    let mut scheduler = Scheduler::new(CAPACITY, &DWS.checked());
    let mut model = Model { known: vec![None; CAPACITY as usize], ..Model::default() };
    let mut now = 0;
    for &op in ops {
        if let Op::Pass(span) = op {
            now += span;
        }
        let accepted = scheduler.handle(at(now), input(now, op)).is_ok();
        let (fits, answer) = model.apply(now, op, &scheduler);
        assert_eq!(accepted, fits, "{:?}", op);
        model.look_at(&scheduler);
        let (mut upcalls, mut answers, mut records) = (vec![], vec![], vec![]);
        while let Some(command) = scheduler.poll_command(at(now)) {
            match command {
                Command::Upcall { .. } => upcalls.push(command),
                Command::Yield | Command::Proceed { .. } => answers.push(command),
                Command::JobDone(job) => records.push((
                    job.release.as_nanos(),
                    job.deadline.as_nanos(),
                    job.end.as_nanos(),
                    job.completed,
                )),
                Command::Inactive { .. } | Command::Closed { .. } => {}
            }
        }
        assert_eq!(upcalls, Vec::from_iter(model.upcall(now, &scheduler)), "{:?} at {}", op, now);
        model.look_at(&scheduler);
        assert_eq!(answers, Vec::from_iter(answer));
        assert_eq!(records, core::mem::take(&mut model.records));
        assert_eq!(scheduler.running(), model.running.map(|(id, ..)| ActivityId(id)));
        for (known, id) in model.known.iter().zip((0..).map(ActivityId)) {
            let counted = scheduler
                .counters_at(at(now), id)
                .map(|counted| (counted.jobs, counted.completed, counted.misses, counted.overruns));
            let expected = known.as_ref().map(|known| {
                (known.jobs, known.completed, known.misses + known.late(now), known.overruns)
            });
            assert_eq!(counted, expected, "{:?} at {} after {:?}", id, now, op);
        }
        let next = scheduler.next_deadline().unwrap_or(Instant::FAR);
        assert_eq!(next, at(model.next_change(now)));
    }
}
