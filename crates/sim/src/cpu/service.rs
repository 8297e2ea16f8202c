//! Chooses the next handler, runs it, and sleeps when no activity is ready.

use super::machine::{Machine, NANOSECOND};
use super::running::{Running, State};
use super::state::Cpu;
use crate::event::{EventKind, SimEvent};
use crate::execution::Position;
use crate::fault::Fault;
use upcall_core::scheduler::{Command, Input, Outcome};
use upcall_core::time::{Instant, Span};
use upcall_shm::user_area::order::Next;

impl Cpu {
    /// (1) Wakes the CPU: the scheduler releases all due jobs, and the next handler is chosen.
    pub(super) fn wake(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        self.become_awake(machine, observe);
        if machine.split_level.is_none() {
            self.inform(0, Input::Tick, observe);
        }
        self.decide(machine, observe);
    }

    /// Marks the CPU awake, and delivers the messages that did not wake it.
    pub(super) fn become_awake(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        self.awake_since = self.now;
        self.emit(EventKind::Wake, observe);
        if !self.mailbox.is_empty() {
            for message in core::mem::take(&mut self.mailbox) {
                self.deliver(message, machine, observe);
            }
            self.drop_stale();
        }
    }

    /// Asks the core what to do next, and begins it: (2) or (3).
    pub(super) fn decide(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        let Some(split_level) = machine.split_level else {
            if !self.next_upcall(0, false, machine, observe) {
                self.note_idle(observe);
                self.sleep(machine, observe);
            }
            return;
        };
        // One moment is told once: a domain with a job awaits the next one.
        let mut told = false;
        loop {
            if let Some(home) = self.returners.pop_front() {
                return self.resume(home, machine, observe);
            }
            if let Some(interrupted) = self.interrupted.take() {
                return self.end_interruption(interrupted, machine, observe);
            }
            let next = self.next_domain(split_level, observe);
            let passes_on = next != Next::Own;
            let idles = next == Next::Nothing && self.continued.is_empty() && !told;
            if idles && self.note_idle(observe) {
                told = true;
                continue;
            }
            self.holder = match next {
                Next::Own => self.holder,
                Next::Other(home) => Some(home),
                Next::Nothing => None,
            };
            // The running domain sleeps, so a domain that was continued gets the CPU.
            if let Some(home) = passes_on.then(|| self.continued.pop_front()).flatten() {
                return self.resume(home, machine, observe);
            }
            let Some(holder) = self.holder else { return self.sleep(machine, observe) };
            // The domain may get the turn for a job that is lost, which costs a hand-off, too.
            if self.begin_hand_off(holder, machine, observe) {
                return;
            }
            if passes_on && self.inform(holder, Input::Tick, observe) && machine.drops_late_jobs {
                continue;
            }
            if self.next_upcall(holder, false, machine, observe) {
                return;
            }
        }
    }

    /// Begins the next upcall of a scheduler, after a hand-off to its domain or without. `false` if
    /// there is none, or its handler blocks at once.
    pub(super) fn next_upcall(
        &mut self,
        home: usize,
        handed_over: bool,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) -> bool {
        let cost = if handed_over { Span::ZERO } else { machine.switch_cost };
        if self.domains[home].switch_cost != cost {
            self.domains[home].switch_cost = cost;
            self.inform(home, Input::SwitchCost { cost }, observe);
        }
        loop {
            let reading = self.reading();
            match self.domains[home].scheduler.poll_command(reading) {
                Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                    let actor = self.domains[home].members[id.0 as usize];
                    let grant = (pdus_max, resumed, check_at);
                    return self.upcall(actor, grant, cost, machine, observe);
                }
                Some(notice) => {
                    self.follow_messages(home, observe);
                    self.pass_on(home, notice, observe);
                }
                None => return false,
            }
        }
    }

    /// The CPU has nothing to run. A domain that is away has work. Returns whether any domain may
    /// have another rank now: one with a debt shows a release only when the debt is paid.
    fn note_idle(&mut self, observe: &mut impl FnMut(&SimEvent)) -> bool {
        let mut any = false;
        for home in 0..self.domains.len() {
            if self.domains[home].takes_part() && self.domains[home].scheduler.awaits_idle() {
                self.inform(home, Input::Idle, observe);
                any = true;
            }
        }
        any
    }

    /// (2) Sleeps until the scheduler wants a tick.
    pub(super) fn sleep(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        self.busy += self.now.since(self.awake_since);
        // A timer cannot be set in the past.
        let due = match machine.split_level {
            Some(_) => self.next_shown(),
            None => self.domains[0].scheduler.next_deadline().unwrap_or(Instant::FAR),
        };
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

    /// Notes that `actor` runs next. Returns whether another one ran before.
    #[inline]
    pub(super) fn switch_to(&mut self, actor: u32) -> bool {
        let domain = self.actors[actor as usize].domain;
        self.handed_to = Some(domain);
        let last = self.last.replace((actor, domain));
        let to_another_domain = last.is_none_or(|(_, last)| last != domain);
        self.domain_switches += u64::from(to_another_domain);
        let switches = last.is_none_or(|(last, _)| last != actor);
        self.switches += u64::from(switches);
        switches
    }

    /// (3) Calls a handler. `false` if it blocks at once.
    pub(super) fn upcall(
        &mut self,
        number: u32,
        (pdus_max, resumed, mut check_at): (u32, bool, Instant),
        switch_cost: Span,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) -> bool {
        self.emit_lag(number, observe);
        let actor = &mut self.actors[number as usize];
        let stale = if resumed { 0 } else { actor.begin_job(self.now, pdus_max) };
        let blocks_for = if resumed { Span::ZERO } else { actor.blocks_for(self.now) };
        let (activity, home, pdus_before) = (actor.activity, actor.home, actor.position.pdu);
        let switched = self.switch_to(number);
        self.emit(EventKind::Upcall { activity, pdus_max, resumed, switched }, observe);
        if !resumed {
            let total = self.actors[number as usize].total;
            if stale > 0 {
                self.emit(EventKind::Stale { activity, pdus: stale }, observe);
            }
            self.take_events(number, total.saturating_add(stale), observe);
        }
        if let Some(split_level) = machine.split_level.filter(|_| self.domains.len() > 1) {
            let until = self.may_go_on(home, split_level).unwrap_or(self.now);
            check_at = check_at.min(until);
        }
        let mut from = self.now;
        if switched {
            from = machine.stalls.end(from, switch_cost);
            self.switching += switch_cost;
        }
        if machine.split_level.is_none() {
            from += blocks_for;
        }
        let running = Running {
            actor: number,
            upcalled: self.now,
            pdus_before,
            from,
            check_at: self.clock.first(check_at),
            end: from,
            target_at: from,
            target: pdus_before,
            spins: false,
            lead: Span::ZERO,
        };
        if machine.split_level.is_some() && !blocks_for.is_zero() {
            self.block(running, blocks_for, observe);
            return false;
        }
        self.state = State::Running(self.planned(running, machine));
        true
    }

    /// Plans `running` up to the first point where it must act.
    #[inline]
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
        let home = actor.home;
        let has_work = position.pdu < actor.total;
        if !has_work {
            self.returned(running, position, Outcome::Done, observe);
            self.tell_early(running.actor, observe);
            self.announce(running.actor, observe);
            self.note_back(home, observe);
            return self.decide(machine, observe);
        }
        running.from = self.now;
        if self.now >= running.check_at {
            match self.boundary(home, machine) {
                // Asking again at the same instant would loop for ever.
                Some(check_at) => {
                    running.check_at = self.clock.first(check_at).max(self.now + NANOSECOND);
                }
                None => {
                    self.returned(running, position, Outcome::Yielded, observe);
                    self.note_back(home, observe);
                    return self.decide(machine, observe);
                }
            }
        }
        self.state = State::Running(self.planned(running, machine));
    }

    /// Asks the scheduler, and compares with the other domains. Returns until when the handler may
    /// go on; `None` if it must return.
    #[inline]
    fn boundary(&mut self, home: usize, machine: &Machine) -> Option<Instant> {
        let reading = self.reading();
        let scheduler = &mut self.domains[home].scheduler;
        scheduler.handle(reading, Input::Boundary).expect("a handler is running");
        let Some(Command::Proceed { check_at }) = scheduler.poll_notice() else { return None };
        match machine.split_level {
            Some(split_level) => Some(check_at.min(self.may_go_on(home, split_level)?)),
            None => Some(check_at),
        }
    }

    /// The handler returns. The caller sets the new state.
    pub(super) fn returned(
        &mut self,
        running: Running,
        position: Position,
        outcome: Outcome,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let home = self.actors[running.actor as usize].home;
        let pdus = position.pdu - running.pdus_before;
        let actor = &mut self.actors[running.actor as usize];
        actor.busy += self.now.since(running.upcalled);
        let activity = actor.activity;
        let input = Input::Returned { pdus, outcome };
        let reading = self.reading();
        let scheduler = &mut self.domains[home].scheduler;
        scheduler.handle(reading, input).expect("the driver keeps to the protocol");
        if !self.notices(home, observe) {
            self.emit(EventKind::Yield { activity, pdus }, observe);
        }
        // A handler that ends while it does not run has been charged.
        if matches!(self.state, State::Running(runs) if runs.actor == running.actor) {
            self.charge_domain(home);
        }
        self.emit_lag(running.actor, observe);
    }
}
