//! Handles what comes from outside: clock steps, messages, events and faults.

use super::control::{Control, Message, Request};
use super::machine::{Machine, NANOSECOND, count};
use super::state::{Cpu, Running, State};
use crate::event::{Event, EventKind};
use crate::fault::Fault;
use std::cmp::Reverse;
use upcall_core::activity::ActivityId;
use upcall_core::scheduler::{Input, Outcome};
use upcall_core::time::Instant;

impl Cpu {
    /// Whether the clock is set at `at`, which comes before all else.
    pub(super) fn clock_steps_at(&self, at: Instant) -> bool {
        matches!(self.controls.front(), Some((when, Control::ClockSteps)) if *when == at)
    }

    /// The next thing from outside.
    pub(super) fn control(&mut self, machine: &Machine, told: &mut impl FnMut(&Event)) {
        match self.controls.pop_front() {
            Some((_, Control::ClockSteps)) => {
                // So the core knows of all that was due by any reading there was.
                let before = self.clock.reads(self.now - NANOSECOND);
                self.inform_at(before, Input::Tick, told);
            }
            Some((_, Control::Message(message))) => self.message(message, machine, told),
            Some((_, Control::Fault { index, begins })) => {
                self.tell(EventKind::Fault { index, begins }, told);
                match machine.faults[index as usize] {
                    Fault::DomainDies { domain, .. } => self.domain(domain, !begins, machine, told),
                    // The doorbell is rung again for what was not heard.
                    Fault::LostDoorbells { .. } if !begins && !self.mailbox.is_empty() => {
                        self.wake(machine, told);
                    }
                    _ => {}
                }
            }
            None => {}
        }
    }

    /// The next event comes, or the next burst. Nobody hears of one whose owner is not there.
    pub(super) fn post(&mut self, machine: &Machine, told: &mut impl FnMut(&Event)) {
        let Some(Reverse((at, number))) = self.posts.pop() else { return };
        let actor = &mut self.actors[number as usize];
        let hears = actor.delivering && actor.alive;
        let Some(posts) = &mut actor.posts else { return };
        let ranks: Vec<_> = (0..posts.count()).map(|_| posts.rank(at)).collect();
        if posts.next_at() < Instant::FAR {
            self.posts.push(Reverse((posts.next_at(), number)));
        }
        for rank in ranks.into_iter().filter(|_| hears) {
            self.message(Message { actor: number, request: Request::Event(rank) }, machine, told);
        }
    }

    /// A message comes: at once if the CPU is awake, else if it wakes it.
    pub(super) fn message(
        &mut self,
        message: Message,
        machine: &Machine,
        told: &mut impl FnMut(&Event),
    ) {
        let activity = self.actors[message.actor as usize].activity;
        self.tell(EventKind::Message { activity }, told);
        match self.state {
            State::Running(running) => {
                self.deliver(message, told);
                self.ask_soon(running, machine);
            }
            State::Asleep { .. } => {
                self.mailbox.push(message);
                let heard = machine.faults.iter().all(|fault| match *fault {
                    Fault::LostDoorbells { window, one_in } if window.contains(self.now) => {
                        !self.chance.one_in(u64::from(one_in))
                    }
                    _ => true,
                });
                if heard {
                    self.wake(machine, told);
                }
            }
        }
    }

    /// The running handler asks at the next point where it can.
    pub(super) fn ask_soon(&mut self, mut running: Running, machine: &Machine) {
        running.check_at = running.check_at.min(self.now);
        let mut planned = self.planned(running, machine);
        planned.end = planned.end.max(self.now);
        self.state = State::Running(planned);
    }

    /// All activities of a domain die, or are born again.
    pub(super) fn domain(
        &mut self,
        domain: u32,
        alive: bool,
        machine: &Machine,
        told: &mut impl FnMut(&Event),
    ) {
        let was_asleep = matches!(self.state, State::Asleep { .. });
        if was_asleep {
            self.awake(told);
        }
        self.release_all(told);
        for number in 0..count(self.actors.len()) {
            let actor = &self.actors[number as usize];
            if actor.domain != domain || actor.alive == alive {
                continue;
            }
            if alive {
                let wanted = actor.wanted;
                self.create(number, told);
                if wanted {
                    self.run(number, told);
                }
            } else {
                self.kill(number, machine, told);
            }
        }
        match self.state {
            State::Running(running) if self.scheduler.running().is_some() => {
                self.ask_soon(running, machine);
            }
            _ => self.decide(machine, told),
        }
    }

    /// It is gone, whatever it does.
    pub(super) fn kill(&mut self, number: u32, machine: &Machine, told: &mut impl FnMut(&Event)) {
        let id = ActivityId(number);
        self.inform(Input::Suspend { id }, told);
        if let State::Running(running) = self.state
            && running.actor == number
        {
            let position = self.position(&running, machine);
            self.returned(running, position, Outcome::Yielded, told);
            self.state = State::Asleep { until: Instant::FAR };
        }
        let counters = self.scheduler.counters(id);
        let actor = &mut self.actors[number as usize];
        (actor.alive, actor.delivering) = (false, false);
        if let Some(counters) = counters {
            actor.note_life(&counters);
        }
        self.inform(Input::Close { id }, told);
    }
}
