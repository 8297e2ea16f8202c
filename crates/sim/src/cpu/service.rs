//! Chooses the next handler, runs it, and sleeps when no activity is ready.

use super::machine::{Machine, NANOSECOND};
use super::state::{Cpu, Running, State};
use crate::event::{EventKind, SimEvent};
use crate::execution::Position;
use crate::fault::Fault;
use upcall_core::activity::ActivityId;
use upcall_core::scheduler::{Command, Input, Outcome};
use upcall_core::time::{Instant, Span};

impl Cpu {
    /// (1) Wakes the CPU: the scheduler releases all due jobs, and the next handler is chosen.
    pub(super) fn wake(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        self.become_awake(observe);
        self.inform(Input::Tick, observe);
        self.decide(machine, observe);
    }

    /// Marks the CPU awake, and delivers the messages that did not wake it.
    pub(super) fn become_awake(&mut self, observe: &mut impl FnMut(&SimEvent)) {
        self.awake_since = self.now;
        self.emit(EventKind::Wake, observe);
        if !self.mailbox.is_empty() {
            for message in core::mem::take(&mut self.mailbox) {
                self.deliver(message, observe);
            }
            self.drop_stale();
        }
    }

    /// Asks the core what to do next, and begins it: (2) or (3).
    pub(super) fn decide(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        loop {
            match self.scheduler.poll_command(self.reading()) {
                Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                    return self.upcall(id, (pdus_max, resumed, check_at), machine, observe);
                }
                Some(notice) => self.pass_on(notice, observe),
                None => return self.sleep(machine, observe),
            }
        }
    }

    /// (2) Sleeps until the scheduler wants a tick.
    pub(super) fn sleep(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        self.busy += self.now.since(self.awake_since);
        if self.scheduler.is_in_debt() {
            self.inform(Input::Idle, observe);
        }
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
        self.emit(EventKind::Idle, observe);
    }

    /// (3) Calls a handler.
    pub(super) fn upcall(
        &mut self,
        id: ActivityId,
        (pdus_max, resumed, check_at): (u32, bool, Instant),
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        self.emit_lag(id, observe);
        let actor = &mut self.actors[id.0 as usize];
        let stale = if resumed { 0 } else { actor.begin_job(self.now, pdus_max) };
        let (activity, pdus_before) = (actor.activity, actor.position.pdu);
        let last = self.last.replace((id.0, actor.domain));
        self.domain_switches += u64::from(last.is_none_or(|(_, domain)| domain != actor.domain));
        let switched = last.is_none_or(|(last, _)| last != id.0);
        self.emit(EventKind::Upcall { activity, pdus_max, resumed, switched }, observe);
        if !resumed {
            let total = self.actors[id.0 as usize].total;
            if stale > 0 {
                self.emit(EventKind::Stale { activity, pdus: stale }, observe);
            }
            self.take_events(id, total.saturating_add(stale), observe);
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

    /// Plans `running` up to the first point where it must act.
    pub(super) fn planned(&self, mut running: Running, machine: &Machine) -> Running {
        let actor = &self.actors[running.actor as usize];
        let from = running.from;
        let step = if machine.preemptive { 1 } else { actor.params.quantum };
        let spins_until = actor.spins_until(from);
        running.spins = spins_until.is_some();
        // A spinning handler gets no further than its present step.
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

    /// The position that the running job has reached by now.
    pub(super) fn position(&self, running: &Running, machine: &Machine) -> Position {
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

    /// (4) Ends the upcall, or lets it continue.
    pub(super) fn act(
        &mut self,
        mut running: Running,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let position = self.position(&running, machine);
        let actor = &mut self.actors[running.actor as usize];
        actor.position = position;
        let has_work = position.pdu < actor.total;
        if !has_work {
            self.returned(running, position, Outcome::Done, observe);
            return self.decide(machine, observe);
        }
        running.from = self.now;
        if self.now >= running.check_at {
            self.scheduler.handle(self.reading(), Input::Boundary).expect("a handler is running");
            match self.scheduler.poll_notice() {
                // Asking again at the same instant would loop for ever.
                Some(Command::Proceed { check_at }) => {
                    running.check_at = self.clock.first(check_at).max(self.now + NANOSECOND);
                }
                _ => {
                    self.returned(running, position, Outcome::Yielded, observe);
                    return self.decide(machine, observe);
                }
            }
        }
        self.state = State::Running(self.planned(running, machine));
    }

    /// The handler returns. The caller sets the new state.
    pub(super) fn returned(
        &mut self,
        running: Running,
        position: Position,
        outcome: Outcome,
        observe: &mut impl FnMut(&SimEvent),
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
            self.pass_on(notice, observe);
        }
        if !ended {
            self.emit(EventKind::Yield { activity, pdus }, observe);
        }
        self.emit_lag(id, observe);
    }
}
