//! The scheduler under RMDP and RM in its simplest form: no heaps and no order; the model examines
//! everything at each call. The property test and the fuzz target give it operations.
//!
//! The model takes from the scheduler which activities are over budget, and checks what follows.
//! `scheduler/budget.rs` tests the budgets themselves.

use std::collections::VecDeque;
use upcall_core::activity::{ActivityId, ActivityParams, Terms};
use upcall_core::discipline::Discipline;
use upcall_core::scheduler::{Command, EVENTS_MAX, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

/// The number of activities; operations name one more, which is out of range.
pub const CAPACITY: u32 = 4;

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// The operations. Both sides decide whether an operation is valid.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Pass(u64),
    Create(u32, ActivityParams),
    Run(u32, u64),
    Suspend(u32),
    Close(u32),
    Posted(u32, u64),
    Taken(u32, u32),
    PassedOver,
    Boundary,
    Returned(u32, Outcome),
}

/// How a running activity must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Suspend,
    Close,
}

/// The state of an activity.
#[derive(Clone, Debug)]
struct Known {
    params: ActivityParams,
    /// Until when it is over budget, if it is.
    over_until: Option<Instant>,
    /// How many activities were created before it.
    created: u32,
    next_release: Option<u64>,
    /// Whether the activity goes before its equals while an event waits for it.
    wins_ties: bool,
    /// Rank and number of the waiting events.
    events: Vec<(u64, u64)>,
    /// The event with which its job began.
    served: Option<(u64, u64)>,
    /// The activity runs and must stop, so none of its jobs is released.
    held: bool,
    /// Releases of the jobs that have not ended.
    pending: VecDeque<u64>,
    started: bool,
    pdus: u32,
    jobs: u64,
    completed: u64,
    misses: u64,
}

impl Known {
    fn event(&self) -> Option<(u64, u64)> {
        self.events.iter().copied().chain(self.served).min().filter(|_| self.wins_ties)
    }

    fn key(&self) -> (bool, Span) {
        (self.over_until.is_some(), self.params.period)
    }
}

/// All activities but one may win ties.
fn wins_ties(number: u32) -> bool {
    number != 0
}

#[derive(Default)]
struct Model {
    known: Vec<Option<Known>>,
    /// The running activity, its PDU limit, and how it must stop.
    running: Option<(u32, u32, Option<Stop>)>,
    created: u32,
    posted: u64,
}

impl Model {
    fn release(&mut self, now: u64) {
        for known in self.known.iter_mut().flatten().filter(|known| !known.held) {
            while let Some(release) = known.next_release.filter(|&release| release <= now) {
                known.pending.push_back(release);
                known.jobs += 1;
                known.next_release = Some(release + known.params.period.as_nanos());
            }
        }
    }

    fn is_known(&self, id: u32) -> bool {
        self.known.get(id as usize).is_some_and(Option::is_some)
    }

    fn of(&mut self, id: u32) -> &mut Known {
        self.known[id as usize].as_mut().unwrap()
    }

    /// Activities with a job that do not run.
    fn ready(&self) -> impl Iterator<Item = (&Known, u32)> {
        let running = self.running.map(|(id, ..)| id);
        let known =
            self.known.iter().zip(0..).filter_map(|(known, id)| Some((known.as_ref()?, id)));
        known.filter(move |(known, id)| running != Some(*id) && !known.pending.is_empty())
    }

    /// The activity that should run next: of equal periods, those with events first.
    fn best_ready(&self) -> Option<u32> {
        let place = |known: &Known| {
            let event = known.event();
            (known.key(), event.is_none(), event, known.created)
        };
        self.ready().map(|(known, id)| (place(known), id)).min().map(|(_, id)| id)
    }

    fn check_at(&self) -> Instant {
        let active = self.known.iter().flatten().filter(|known| !known.held);
        let releases = active.filter_map(|known| known.next_release).map(at);
        let pending = self.known.iter().flatten().filter(|known| !known.pending.is_empty());
        let refills = pending.filter_map(|known| known.over_until);
        releases.chain(refills).min().unwrap_or(Instant::FAR)
    }

    /// When the running handler must ask: also when its budget is used or expires.
    fn running_check_at(&self, now: u64, scheduler: &Scheduler, id: u32) -> Instant {
        let params = self.known[id as usize].as_ref().unwrap().params;
        let budget = Some(scheduler.budget(ActivityId(id)).unwrap());
        let budget = budget.filter(|budget| !budget.left.is_zero());
        let valid = params.period.max(params.deadline);
        let changes = budget.map(|budget| (at(now) + budget.left).min(budget.window + valid));
        self.check_at().min(changes.unwrap_or(Instant::FAR))
    }

    /// Takes over which activities are over budget.
    fn look_at(&mut self, scheduler: &Scheduler) {
        for (known, id) in self.known.iter_mut().zip((0..).map(ActivityId)) {
            if let Some(known) = known {
                known.over_until = scheduler.budget(id).and_then(|budget| budget.over_until);
            }
        }
    }

    fn drop_jobs(&mut self, id: u32, now: u64, stop: Stop) {
        let known = self.of(id);
        let deadline_ns = known.params.deadline.as_nanos();
        // A job that had begun is recorded: it was not done when it was due.
        let cut_short = known.started
            && known.pending.front().is_some_and(|release| release + deadline_ns == now);
        let late = known.pending.drain(..).filter(|release| release + deadline_ns < now).count();
        known.misses += late as u64 + u64::from(cut_short);
        (known.next_release, known.held, known.started, known.pdus) = (None, false, false, 0);
        known.served = None;
        if stop == Stop::Close {
            self.known[id as usize] = None;
        }
    }

    fn stop(&mut self, id: u32, now: u64, stop: Stop) {
        match &mut self.running {
            Some((running, _, pending)) if *running == id => {
                *pending = Some(pending.filter(|&pending| pending == Stop::Close).unwrap_or(stop));
                self.of(id).held = true;
            }
            _ => self.drop_jobs(id, now, stop),
        }
    }

    /// Whether the handler must return. Releases were processed.
    fn must_yield(&self) -> bool {
        let (id, _, stop) = self.running.unwrap();
        let known = self.known[id as usize].as_ref().unwrap();
        let outranks = |(other, _): (&Known, u32)| match known.served {
            Some(_) => other.key() < known.key(),
            None => (other.key(), other.created) < (known.key(), known.created),
        };
        stop.is_some() || self.ready().any(outranks)
    }

    fn returned(&mut self, now: u64, pdus: u32, outcome: Outcome) {
        let (id, pdus_max, stop) = self.running.take().unwrap();
        let known = self.of(id);
        known.pdus += pdus;
        if outcome != Outcome::Yielded || pdus == pdus_max {
            let release = known.pending.pop_front().unwrap();
            known.completed += 1;
            known.misses += u64::from(release + known.params.deadline.as_nanos() < now);
            (known.started, known.pdus, known.served) = (false, 0, None);
        }
        let finished = (outcome == Outcome::Finished).then_some(Stop::Suspend);
        if let Some(stop) = stop.or(finished) {
            self.drop_jobs(id, now, stop);
        }
    }

    /// The upcall that must come, if there must be one.
    fn upcall(&mut self, now: u64, scheduler: &Scheduler) -> Option<Command> {
        if self.running.is_some() {
            return None;
        }
        let id = self.best_ready()?;
        // The beginning of an upcall may move the budget to a later window.
        self.look_at(scheduler);
        let check_at = self.running_check_at(now, scheduler, id);
        let known = self.of(id);
        known.served = known.event();
        let resumed = core::mem::replace(&mut known.started, true);
        let pdus_max = known.params.batch - known.pdus;
        self.running = Some((id, pdus_max, None));
        Some(Command::Upcall { id: ActivityId(id), pdus_max, resumed, check_at })
    }

    /// Applies the operation; returns whether it was valid, and the answer to a boundary.
    fn apply(&mut self, now: u64, op: Op, scheduler: &Scheduler) -> (bool, Option<Command>) {
        let mut answer = None;
        match op {
            Op::Pass(_) | Op::PassedOver => {}
            Op::Create(id, params) => {
                if id >= CAPACITY || self.is_known(id) {
                    return (false, None);
                }
                self.created += 1;
                self.known[id as usize] = Some(Known {
                    params,
                    over_until: None,
                    created: self.created,
                    next_release: None,
                    wins_ties: wins_ties(id),
                    events: Vec::new(),
                    served: None,
                    held: false,
                    pending: VecDeque::new(),
                    started: false,
                    pdus: 0,
                    jobs: 0,
                    completed: 0,
                    misses: 0,
                });
            }
            Op::Run(id, _)
            | Op::Suspend(id)
            | Op::Close(id)
            | Op::Posted(id, _)
            | Op::Taken(id, _)
                if !self.is_known(id) =>
            {
                return (false, None);
            }
            Op::Posted(id, rank) => {
                let posted = self.posted;
                let known = self.of(id);
                if known.events.len() == EVENTS_MAX as usize {
                    return (false, None);
                }
                known.events.push((rank, posted));
                self.posted += 1;
            }
            Op::Taken(id, events) => {
                let known = self.of(id);
                known.events.sort_unstable();
                known.events.drain(..known.events.len().min(events as usize));
            }
            Op::Run(id, ahead) => {
                let stopping = self.running.as_mut().filter(|(running, ..)| *running == id);
                let closing = stopping.is_some_and(|(_, _, stop)| {
                    *stop = stop.filter(|&stop| stop == Stop::Close);
                    stop.is_some()
                });
                let known = self.of(id);
                known.held = closing;
                if known.next_release.is_none() {
                    known.next_release = Some(now + ahead + known.params.offset.as_nanos());
                }
            }
            Op::Suspend(id) => self.stop(id, now, Stop::Suspend),
            Op::Close(id) => self.stop(id, now, Stop::Close),
            Op::Boundary => {
                if self.running.is_none() {
                    return (false, None);
                }
                self.release(now);
                self.look_at(scheduler);
                let (id, ..) = self.running.unwrap();
                let check_at = self.running_check_at(now, scheduler, id);
                answer = Some(match self.must_yield() {
                    true => Command::Yield,
                    false => Command::Proceed { check_at },
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

fn input(now: u64, op: Op) -> Input {
    let id = ActivityId;
    match op {
        Op::Pass(_) => Input::Tick,
        Op::Create(number, params) => {
            let terms = Terms { wins_ties: wins_ties(number), ..Terms::default() };
            Input::Create { id: id(number), params, terms }
        }
        Op::Run(number, ahead) => Input::Run { id: id(number), at: at(now + ahead) },
        Op::Suspend(number) => Input::Suspend { id: id(number) },
        Op::Close(number) => Input::Close { id: id(number) },
        Op::Posted(number, rank) => Input::Posted { id: id(number), rank },
        Op::Taken(number, events) => Input::Taken { id: id(number), events },
        Op::PassedOver => Input::PassedOver,
        Op::Boundary => Input::Boundary,
        Op::Returned(pdus, outcome) => Input::Returned { pdus, outcome },
    }
}

/// Applies the operations to the scheduler and the model. Panics where they differ: whenever
/// nothing runs, the ready activity of the best rank is upcalled; a boundary is answered correctly;
/// and all counts are correct.
pub fn compare(discipline: &Discipline, ops: &[Op]) {
    let mut scheduler = Scheduler::new(CAPACITY, &discipline.checked());
    let mut model = Model { known: vec![None; CAPACITY as usize], ..Model::default() };
    let mut now = 0;
    for &op in ops {
        if let Op::Pass(span) = op {
            now += span;
        }
        let accepted = scheduler.handle(at(now), input(now, op)).is_ok();
        let (fits, answer) = model.apply(now, op, &scheduler);
        assert_eq!(accepted, fits, "{op:?}");
        model.look_at(&scheduler);
        let commands: Vec<_> = core::iter::from_fn(|| scheduler.poll_command(at(now))).collect();
        let (upcalls, notices): (Vec<Command>, Vec<Command>) =
            commands.into_iter().partition(|command| matches!(command, Command::Upcall { .. }));
        assert_eq!(upcalls, Vec::from_iter(model.upcall(now, &scheduler)));
        model.look_at(&scheduler);
        let answers: Vec<_> = notices
            .iter()
            .filter(|command| matches!(command, Command::Yield | Command::Proceed { .. }))
            .copied()
            .collect();
        assert_eq!(answers, Vec::from_iter(answer));
        assert_eq!(scheduler.running(), model.running.map(|(id, ..)| ActivityId(id)));
        let best = scheduler.best().map(|best| (best.id.0, best.event));
        let expected = model.best_ready();
        assert_eq!(best, expected.map(|id| (id, model.of(id).event().map(|(rank, _)| rank))));
        for (known, id) in model.known.iter().zip((0..).map(ActivityId)) {
            let counted = scheduler
                .counters(id)
                .map(|counted| (counted.jobs, counted.completed, counted.misses));
            let expected = known.as_ref().map(|known| (known.jobs, known.completed, known.misses));
            assert_eq!(counted, expected, "{id:?} at {now} after {op:?}");
            let events = known.as_ref().map_or(&[][..], |known| &known.events);
            let first = events.iter().min().map(|(rank, _)| *rank);
            assert_eq!(scheduler.pending(id), (u32::try_from(events.len()).unwrap(), first));
        }
        assert_eq!(scheduler.next_deadline().unwrap_or(Instant::FAR), model.check_at());
    }
}
