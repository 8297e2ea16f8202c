//! Handles the inputs from outside: clock steps, messages, events and faults.

use super::control::{Control, Message, Request};
use super::machine::{Machine, NANOSECOND, count};
use super::running::{Running, State};
use super::state::Cpu;
use crate::actor::Actor;
use crate::event::{EventKind, SimEvent};
use crate::fault::Fault;
use std::cmp::Reverse;
use upcall_core::scheduler::{Input, Outcome};
use upcall_core::time::Instant;

impl Cpu {
    /// Whether the clock is set at `at`. The clock step comes before all other inputs of this
    /// instant.
    pub(super) fn clock_steps_at(&self, at: Instant) -> bool {
        matches!(self.controls.front(), Some((when, Control::ClockSteps)) if *when == at)
    }

    /// Handles the next input from outside.
    pub(super) fn control(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        match self.controls.pop_front() {
            Some((_, Control::ClockSteps)) => {
                // With this tick the core handles everything that was due by any reading of the
                // clock so far.
                let before = self.clock.reads(self.now - NANOSECOND);
                for home in 0..self.domains.len() {
                    self.inform_at(before, home, Input::Tick, observe);
                }
            }
            Some((_, Control::Message(message))) => self.message(message, machine, observe),
            Some((_, Control::Fault { index, begins })) => {
                self.emit(EventKind::Fault { index, begins }, observe);
                match machine.faults[index as usize] {
                    Fault::DomainDies { domain, .. } => {
                        self.domain(domain, !begins, machine, observe)
                    }
                    Fault::DomainStops { domain, .. } => {
                        self.stop(domain, begins, machine, observe)
                    }
                    // The lost notification is repeated.
                    Fault::LostNotifications { .. } if !begins && !self.mailbox.is_empty() => {
                        self.wake(machine, observe);
                    }
                    _ => {}
                }
            }
            None => {}
        }
    }

    /// Delivers the next event or burst. An event is lost if its owner is not present.
    pub(super) fn post(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        let Some(Reverse((at, number))) = self.posts.pop() else { return };
        let actor = &mut self.actors[number as usize];
        let accepts = actor.delivering && actor.alive;
        let Some(posts) = &mut actor.posts else { return };
        let ranks: Vec<_> = (0..posts.count()).map(|_| posts.rank(at)).collect();
        if posts.next_at() < Instant::FAR {
            self.posts.push(Reverse((posts.next_at(), number)));
        }
        for rank in ranks.into_iter().filter(|_| accepts) {
            let request = Request::Event(rank);
            self.message(Message { actor: number, request }, machine, observe);
        }
    }

    /// Delivers a message: at once if the CPU is awake, otherwise if the message wakes it.
    pub(super) fn message(
        &mut self,
        message: Message,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let activity = self.actors[message.actor as usize].activity;
        self.emit(EventKind::Message { activity }, observe);
        match self.state {
            State::Running(running) => {
                self.deliver(message, machine, observe);
                self.ask_soon(running, machine);
            }
            State::HandOff { .. } => self.deliver(message, machine, observe),
            State::Asleep { .. } => {
                self.mailbox.push(message);
                let notified = machine.faults.iter().all(|fault| match *fault {
                    Fault::LostNotifications { window, one_in } if window.contains(self.now) => {
                        !self.chance.one_in(u64::from(one_in))
                    }
                    _ => true,
                });
                if notified {
                    self.wake(machine, observe);
                }
            }
        }
    }

    /// Makes the running handler ask the scheduler at its next preemption point.
    pub(super) fn ask_soon(&mut self, mut running: Running, machine: &Machine) {
        running.check_at = running.check_at.min(self.now);
        let mut planned = self.planned(running, machine);
        planned.end = planned.end.max(self.now);
        self.state = State::Running(planned);
    }

    /// Ends all activities of a domain, or creates them again.
    pub(super) fn domain(
        &mut self,
        domain: u32,
        alive: bool,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let was_asleep = matches!(self.state, State::Asleep { .. });
        if was_asleep {
            self.become_awake(machine, observe);
        }
        let is_there = |actor: &&Actor| actor.domain == domain;
        let Some(home) = self.actors.iter().find(is_there).map(|actor| actor.home) else { return };
        self.release_all(home, observe);
        for number in 0..count(self.actors.len()) {
            let actor = &self.actors[number as usize];
            if actor.domain != domain || actor.alive == alive {
                continue;
            }
            if alive {
                let wanted = actor.wanted;
                self.create(number, observe);
                if wanted {
                    self.run(number, observe);
                }
            } else {
                self.kill(number, machine, observe);
            }
        }
        self.share_out(machine, observe);
        if !alive && machine.split_level.is_some() {
            self.domains[home].blocked_until = None;
            self.returners.retain(|&other| other != home);
            self.continued.retain(|&other| other != home);
            self.note_back(home, observe);
        }
        match self.state {
            State::Running(running) => self.ask_soon(running, machine),
            State::HandOff { .. } => {}
            State::Asleep { .. } => self.decide(machine, observe),
        }
    }

    /// Ends an activity, whatever it does now.
    pub(super) fn kill(
        &mut self,
        number: u32,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let (home, id) = self.home_of(number);
        self.inform(home, Input::Suspend { id }, observe);
        if let State::Running(running) = self.state
            && running.actor == number
        {
            let position = self.position(&running, machine);
            self.returned(running, position, Outcome::Yielded, observe);
            self.state = State::Asleep { until: Instant::FAR };
        }
        let is_own = |running: &mut Running| running.actor == number;
        let interrupted = self.interrupted.take_if(is_own);
        let paused = interrupted.or_else(|| self.domains[home].paused.take_if(is_own));
        if let Some(paused) = paused {
            let position = self.actors[number as usize].position;
            let paused = Running { upcalled: self.now, ..paused };
            self.returned(paused, position, Outcome::Yielded, observe);
        }
        let counters = self.domains[home].scheduler.counters(id);
        let actor = &mut self.actors[number as usize];
        (actor.alive, actor.delivering) = (false, false);
        if let Some(counters) = counters {
            actor.note_life(&counters);
        }
        self.inform(home, Input::Close { id }, observe);
    }
}
