//! One simulated CPU: drives the scheduler of the core as a runtime would, in
//! virtual time.
//!
//! Called by [`crate::Simulation`], one step at a time, so that several CPUs
//! keep one order of events. It decides nothing of policy.
//!
//! ```text
//!             (1) due, a message, a death       (3) next upcall
//!            +---------------------+           +---------------+
//!            |                     v           |               v
//!         Asleep  <----------- deciding ------------------> Running
//!                  (2) nothing     ^                           |
//!                      is ready    +---------------------------+
//!                                    (4) returned, yielded, died
//! ```
//!
//! 1. It wakes when something is due (or late, by a fault), or a message rings.
//! 2. Nothing is ready: it sleeps until the scheduler wants a tick.
//! 3. The hand-off is spent, then the handler runs to the first point where it
//!    must ask: under a preemptive policy the instant `check_at`, in the midst
//!    of a PDU if need be; else the end of the first quantum at or after it.
//!    Told to proceed, it goes on from there.
//! 4. The job is done, or it was told to yield. Work in a PDU that was not
//!    finished is kept here ([`Position`]); the core counts whole PDUs only, so
//!    its states do not differ between the two kinds of policy.
//!
//! What the core hears and says is in readings of the clock, everything here
//! in true time; they differ where a fault says so ([`Clock`]).
//!
//! At one instant the clock is set first; then releases come, then messages and faults, then
//! events, then the choice of what runs next.

use crate::actor::Actor;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::event::{Event, EventKind};
use crate::execution::Position;
use crate::fault::{Fault, Stalls};
use crate::outcome::{ActivityOutcome, CpuOutcome};
use crate::spec::SimSpec;
use control::{Control, Message};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use upcall_core::activity::ActivityId;
use upcall_core::scheduler::{Command, Input, Outcome};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::{Record, Traced};

mod control;

const NANOSECOND: Span = Span::from_nanos(1);

/// What is the same for all CPUs and never changes.
#[derive(Debug)]
pub(crate) struct Machine {
    preemptive: bool,
    switch_cost: Span,
    faults: Vec<Fault>,
    stalls: Stalls,
}

impl Machine {
    pub(crate) fn new(spec: &SimSpec) -> Self {
        Machine {
            preemptive: spec.discipline.preemptive,
            switch_cost: spec.switch_cost,
            faults: spec.faults.clone(),
            stalls: Stalls::of(&spec.faults),
        }
    }
}

/// One CPU and what is on it. Activities are numbered from 0, as the
/// scheduler's [`ActivityId`]; [`Actor::activity`] is their place in the spec.
#[derive(Debug)]
pub(crate) struct Cpu {
    number: u32,
    scheduler: Traced<Vec<Record>>,
    actors: Vec<Actor>,
    state: State,
    /// The last instant at which something happened.
    now: Instant,
    clock: Clock,
    /// The next release of each that delivers, by the clock; stale where the actor says
    /// otherwise, but never on top.
    releases: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The next event of each activity that gets any.
    posts: BinaryHeap<Reverse<(Instant, u32)>>,
    /// What else comes from outside, in the order of time.
    controls: VecDeque<(Instant, Control)>,
    /// Messages that did not wake it; none while it is awake.
    mailbox: Vec<Message>,
    chance: Chance,
    /// Who was upcalled last, and of which domain.
    last: Option<(u32, u32)>,
    awake_since: Instant,
    domain_switches: u64,
    busy: Span,
    switching: Span,
    events: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Asleep { until: Instant },
    Running(Running),
}

/// An upcall that goes on.
#[derive(Clone, Copy, Debug)]
struct Running {
    actor: u32,
    upcalled: Instant,
    /// PDUs of the job that were complete then.
    pdus_before: u32,
    /// From here the actor's position counts: the hand-off's end, or the last
    /// point where it asked.
    from: Instant,
    check_at: Instant,
    /// When it acts: asks, or returns.
    end: Instant,
    /// When PDU `target` of the job would be complete; `end` or later.
    target_at: Instant,
    target: u32,
    /// Whether it spins in the PDU it is in until `target_at`.
    spins: bool,
}

impl Cpu {
    /// The CPU with those activities of `spec` that are on it, asleep until time 0.
    pub(crate) fn new(spec: &SimSpec, machine: &Machine, number: u32) -> Self {
        let actors: Vec<_> = (0u32..)
            .zip(&spec.activities)
            .filter(|(_, activity)| activity.cpu == number)
            .map(|(place, _)| Actor::new(spec, place))
            .collect();
        Cpu {
            number,
            scheduler: match spec.checked {
                true => Traced::new(count(actors.len()), &spec.discipline.checked()),
                false => Traced::new(count(actors.len()), spec.discipline),
            },
            state: State::Asleep { until: machine.stalls.clear(Instant::ZERO) },
            now: Instant::ZERO,
            clock: Clock::of(&spec.faults),
            releases: BinaryHeap::with_capacity(actors.len() + 1),
            posts: control::posts(&actors),
            controls: control::of(spec, &actors),
            mailbox: Vec::new(),
            chance: Chance::new(spec.seed, u64::from(number)),
            last: None,
            awake_since: Instant::ZERO,
            domain_switches: 0,
            busy: Span::ZERO,
            switching: Span::ZERO,
            events: 0,
            actors,
        }
    }

    /// From now on every crossing of the core's interface is kept until it is
    /// taken out.
    pub(crate) fn trace(&mut self) {
        self.scheduler.set_sink(Vec::new());
    }

    /// Takes out what was kept.
    pub(crate) fn take_records(&mut self, record: &mut impl FnMut(u32, &Record)) {
        if let Some(kept) = self.scheduler.sink_mut() {
            kept.drain(..).for_each(|kept| record(self.number, &kept));
        }
    }

    /// When the next thing happens; [`Instant::FAR`] if nothing ever will. O(1).
    pub(crate) fn next_at(&self) -> Instant {
        self.release_at().min(self.control_at()).min(self.post_at()).min(match self.state {
            State::Asleep { until } => until,
            State::Running(running) => running.end,
        })
    }

    fn release_at(&self) -> Instant {
        self.releases.peek().map_or(Instant::FAR, |Reverse((at, _))| self.clock.first(*at))
    }

    fn control_at(&self) -> Instant {
        self.controls.front().map_or(Instant::FAR, |(at, _)| *at)
    }

    fn post_at(&self) -> Instant {
        self.posts.peek().map_or(Instant::FAR, |Reverse((at, _))| *at)
    }

    /// Does the next thing, due at `at`, and only that. O(log n), a domain's
    /// death and birth O(log n) for each of its activities.
    pub(crate) fn step(&mut self, at: Instant, machine: &Machine, told: &mut impl FnMut(&Event)) {
        // One that was kept waiting by a suspend may be overdue.
        self.now = self.now.max(at);
        if self.clock_steps_at(at) {
            self.control(machine, told);
        } else if self.release_at() == at {
            self.release(told);
        } else if self.control_at() == at {
            self.control(machine, told);
            self.drop_stale();
        } else if self.post_at() == at {
            self.post(machine, told);
        } else {
            match self.state {
                State::Asleep { .. } => self.wake(machine, told),
                State::Running(running) => self.act(running, machine, told),
            }
        }
    }

    /// Takes in what ends at `end`, the end of the run, and begins nothing. Gives
    /// what the CPU and its activities came to, and how many events it told.
    pub(crate) fn conclude(
        mut self,
        end: Instant,
        machine: &Machine,
        told: &mut impl FnMut(&Event),
        record: &mut impl FnMut(u32, &Record),
    ) -> (CpuOutcome, Vec<ActivityOutcome>, u64) {
        if end > Instant::ZERO {
            // What is due before the end counts, though nobody took it in yet.
            self.now = end - NANOSECOND;
            self.inform(Input::Tick, told);
        }
        self.now = end;
        if let State::Running(running) = self.state {
            let actor = &self.actors[running.actor as usize];
            if running.end == end && running.target_at == end && running.target == actor.total {
                self.returned(running, self.position(&running, machine), Outcome::Done, told);
            } else {
                self.actors[running.actor as usize].busy += end.since(running.upcalled);
            }
            self.busy += end.since(self.awake_since);
        }
        self.take_records(record);
        let cpu = CpuOutcome {
            cpu: self.number,
            switches: self.scheduler.switches(),
            domain_switches: self.domain_switches,
            busy: self.busy,
            switching: self.switching,
        };
        let (scheduler, events, reading) = (&self.scheduler, self.events, self.reading());
        let outcomes = (0..).map(ActivityId).zip(self.actors).map(|(id, actor)| {
            let counters = scheduler.counters_at(reading, id);
            actor.outcome(end, counters, scheduler.window_violations(id))
        });
        (cpu, outcomes.collect(), events)
    }

    /// The places of its activities in the spec.
    pub(crate) fn activities(&self) -> impl Iterator<Item = u32> + '_ {
        self.actors.iter().map(|actor| actor.activity)
    }

    /// What its clock reads now.
    fn reading(&self) -> Instant {
        self.clock.reads(self.now)
    }

    fn tell(&mut self, kind: EventKind, told: &mut impl FnMut(&Event)) {
        self.events += 1;
        told(&Event { at: self.now, cpu: self.number, kind });
    }

    /// Hands in an input, and passes on what the core says of it.
    fn inform(&mut self, input: Input, told: &mut impl FnMut(&Event)) {
        self.inform_at(self.reading(), input, told);
    }

    /// The same, at another reading than the present one.
    fn inform_at(&mut self, reading: Instant, input: Input, told: &mut impl FnMut(&Event)) {
        self.scheduler.handle(reading, input).expect("the driver keeps to the protocol");
        while let Some(notice) = self.scheduler.poll_notice() {
            self.pass_on(notice, told);
        }
    }

    fn pass_on(&mut self, notice: Command, told: &mut impl FnMut(&Event)) {
        match notice {
            Command::JobDone(mut record) => {
                let actor = &mut self.actors[record.id.0 as usize];
                if record.completed {
                    actor.responses.note(record.response());
                }
                record.id = ActivityId(actor.activity);
                self.tell(EventKind::JobDone(record), told);
            }
            Command::Inactive { id } => {
                let activity = self.actors[id.0 as usize].activity;
                self.tell(EventKind::Leave { activity }, told);
            }
            // Answers are taken where they are asked for; a number is free
            // again without anyone being told.
            _ => {}
        }
    }

    /// The next release is told. The core sees it for itself.
    fn release(&mut self, told: &mut impl FnMut(&Event)) {
        let Some(mut top) = self.releases.peek_mut() else { return };
        let Reverse((_, number)) = *top;
        let actor = &mut self.actors[number as usize];
        let (release, job) = actor.release();
        *top = Reverse((actor.next_release, number));
        drop(top);
        let (activity, deadline) = (actor.activity, release + actor.params.deadline);
        let deadline = self.clock.first(deadline);
        self.drop_stale();
        self.tell(EventKind::Release { activity, job, deadline }, told);
    }

    /// Brings a release that will be to the top of the heap.
    fn drop_stale(&mut self) {
        while let Some(top) = self.releases.peek_mut() {
            let Reverse((at, number)) = *top;
            let actor = &self.actors[number as usize];
            if actor.delivering && actor.next_release == at {
                break;
            }
            PeekMut::pop(top);
        }
    }

    /// (1) What is due is taken in, and something is chosen.
    fn wake(&mut self, machine: &Machine, told: &mut impl FnMut(&Event)) {
        self.awake(told);
        self.inform(Input::Tick, told);
        self.decide(machine, told);
    }

    /// It is awake from now on, and finds the messages that did not wake it.
    fn awake(&mut self, told: &mut impl FnMut(&Event)) {
        self.awake_since = self.now;
        self.tell(EventKind::Wake, told);
        if !self.mailbox.is_empty() {
            for message in core::mem::take(&mut self.mailbox) {
                self.deliver(message, told);
            }
            self.drop_stale();
        }
    }

    /// Asks the core what to do next, and begins it: (2) or (3).
    fn decide(&mut self, machine: &Machine, told: &mut impl FnMut(&Event)) {
        loop {
            match self.scheduler.poll_command(self.reading()) {
                Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                    return self.upcall(id, (pdus_max, resumed, check_at), machine, told);
                }
                Some(notice) => self.pass_on(notice, told),
                None => return self.sleep(machine, told),
            }
        }
    }

    /// (2)
    fn sleep(&mut self, machine: &Machine, told: &mut impl FnMut(&Event)) {
        self.busy += self.now.since(self.awake_since);
        // A timer cannot be set in the past.
        let due = self.scheduler.next_deadline().unwrap_or(Instant::FAR);
        let due = self.clock.first(due).max(self.now + NANOSECOND);
        let mut until = due;
        for fault in &machine.faults {
            if let Fault::LateWakeups { window, by_max } = *fault
                && window.contains(due)
            {
                let late = due + self.chance.extreme(by_max);
                until = until.max(late.min(window.until));
            }
        }
        self.state = State::Asleep { until: machine.stalls.clear(until) };
        self.tell(EventKind::Idle, told);
    }

    /// (3)
    fn upcall(
        &mut self,
        id: ActivityId,
        (pdus_max, resumed, check_at): (u32, bool, Instant),
        machine: &Machine,
        told: &mut impl FnMut(&Event),
    ) {
        self.tell_lag(id, told);
        let actor = &mut self.actors[id.0 as usize];
        let stale = if resumed { 0 } else { actor.begin_job(self.now, pdus_max) };
        let (activity, pdus_before) = (actor.activity, actor.position.pdu);
        let last = self.last.replace((id.0, actor.domain));
        self.domain_switches += u64::from(last.is_none_or(|(_, domain)| domain != actor.domain));
        let switched = last.is_none_or(|(last, _)| last != id.0);
        self.tell(EventKind::Upcall { activity, pdus_max, resumed, switched }, told);
        if !resumed {
            let total = self.actors[id.0 as usize].total;
            if stale > 0 {
                self.tell(EventKind::Stale { activity, pdus: stale }, told);
            }
            self.take_events(id, total.saturating_add(stale), told);
        }
        let mut from = self.now;
        if switched {
            from = machine.stalls.end(from, machine.switch_cost);
            self.switching += machine.switch_cost;
        }
        let running = Running {
            actor: id.0,
            upcalled: self.now,
            pdus_before,
            from,
            check_at: self.clock.first(check_at),
            end: from,
            target_at: from,
            target: pdus_before,
            spins: false,
        };
        self.state = State::Running(self.planned(running, machine));
    }

    /// `running`, to act at the first point where it must.
    fn planned(&self, mut running: Running, machine: &Machine) -> Running {
        let actor = &self.actors[running.actor as usize];
        let from = running.from;
        let step = if machine.preemptive { 1 } else { actor.params.quantum };
        let spins_until = actor.spins_until(from);
        running.spins = spins_until.is_some();
        // What spins gets no further than the step it is in.
        let limit = match running.spins {
            true => Span::ZERO,
            false => machine.stalls.between(from, running.check_at),
        };
        let (target, work) = actor.costs().first_stop(actor.position, step, actor.total, limit);
        running.target = target;
        running.target_at = machine.stalls.end(from, work).max(spins_until.unwrap_or(from));
        running.end = running.target_at;
        if machine.preemptive {
            let check_at = machine.stalls.clear(running.check_at.max(from));
            running.end = running.end.min(check_at);
        }
        running
    }

    /// How far the running job got by now.
    fn position(&self, running: &Running, machine: &Machine) -> Position {
        if self.now >= running.target_at {
            return Position { pdu: running.target, into: Span::ZERO };
        }
        let actor = &self.actors[running.actor as usize];
        let work = machine.stalls.between(running.from, self.now);
        let start = actor.position;
        if running.spins {
            let into = (start.into + work).min(actor.costs().of(start.pdu));
            return Position { pdu: start.pdu, into };
        }
        actor.costs().after(start, work, running.target)
    }

    /// (4), or on.
    fn act(&mut self, mut running: Running, machine: &Machine, told: &mut impl FnMut(&Event)) {
        let position = self.position(&running, machine);
        let actor = &mut self.actors[running.actor as usize];
        actor.position = position;
        let has_work = position.pdu < actor.total;
        if !has_work {
            self.returned(running, position, Outcome::Done, told);
            return self.decide(machine, told);
        }
        running.from = self.now;
        if self.now >= running.check_at {
            self.scheduler.handle(self.reading(), Input::Boundary).expect("a handler is running");
            match self.scheduler.poll_notice() {
                // To be asked again at the same instant would lead nowhere.
                Some(Command::Proceed { check_at }) => {
                    running.check_at = self.clock.first(check_at).max(self.now + NANOSECOND);
                }
                _ => {
                    self.returned(running, position, Outcome::Yielded, told);
                    return self.decide(machine, told);
                }
            }
        }
        self.state = State::Running(self.planned(running, machine));
    }

    /// The handler returned. The state is left for the caller to set.
    fn returned(
        &mut self,
        running: Running,
        position: Position,
        outcome: Outcome,
        told: &mut impl FnMut(&Event),
    ) {
        let id = ActivityId(running.actor);
        let pdus = position.pdu - running.pdus_before;
        let actor = &mut self.actors[running.actor as usize];
        actor.busy += self.now.since(running.upcalled);
        let activity = actor.activity;
        let input = Input::Returned { pdus, outcome };
        self.scheduler.handle(self.reading(), input).expect("the driver keeps to the protocol");
        let mut ended = false;
        while let Some(notice) = self.scheduler.poll_notice() {
            ended |= matches!(notice, Command::JobDone(_));
            self.pass_on(notice, told);
        }
        if !ended {
            self.tell(EventKind::Yield { activity, pdus }, told);
        }
        self.tell_lag(id, told);
    }

    fn tell_lag(&mut self, id: ActivityId, told: &mut impl FnMut(&Event)) {
        if let Some(lag_ns) = self.scheduler.lag_ns(id, self.reading()) {
            let actor = &mut self.actors[id.0 as usize];
            actor.note_lag(lag_ns);
            let activity = actor.activity;
            self.tell(EventKind::Lag { activity, lag_ns }, told);
        }
    }
}

/// No spec has more activities than a `u32` counts.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
