//! One step of a CPU, and the end of its run.

use super::machine::{Machine, NANOSECOND};
use super::running::State;
use super::state::Cpu;
use crate::event::SimEvent;
use crate::outcome::{ActivityOutcome, CpuOutcome};
use upcall_core::scheduler::{Input, Outcome};
use upcall_core::time::Instant;
use upcall_core::trace::Record;

impl Cpu {
    /// Makes one step, due at `at`. O(log n). The death or the birth of a domain takes O(log n) for
    /// each of its activities.
    pub(crate) fn step(
        &mut self,
        at: Instant,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        // A step that a suspend delayed may be overdue.
        self.now = self.now.max(at);
        if self.clock_steps_at(at) {
            self.control(machine, observe);
        } else if self.release_at() == at {
            self.release(observe);
        } else if self.control_at() == at {
            self.control(machine, observe);
            self.drop_stale();
        } else if self.post_at() == at {
            self.post(machine, observe);
        } else if self.arrival_at() == at {
            self.arrive(machine, observe);
        } else if self.unblock_at() == at {
            self.unblock(machine, observe);
        } else {
            match self.state {
                State::Asleep { .. } => self.wake(machine, observe),
                State::HandOff { .. } => self.end_hand_off(machine, observe),
                State::Running(running) => self.act(running, machine, observe),
            }
        }
    }

    /// Ends the run at `end`. Handles an upcall that ends exactly then, and begins nothing. Returns
    /// the results of the CPU and its activities, and the number of emitted events.
    pub(crate) fn conclude(
        mut self,
        end: Instant,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
        record: &mut impl FnMut(u16, u32, &Record),
    ) -> (CpuOutcome, Vec<ActivityOutcome>, u64) {
        if end > Instant::ZERO {
            // Every release before the end counts, even if no step has handled it yet.
            self.now = end - NANOSECOND;
            for home in 0..self.domains.len() {
                self.inform(home, Input::Tick, observe);
            }
        }
        self.now = end;
        if let State::Running(running) = self.state {
            let actor = &self.actors[running.actor as usize];
            if running.end == end && running.target_at == end && running.target == actor.total {
                self.returned(running, self.position(&running, machine), Outcome::Done, observe);
            } else {
                self.actors[running.actor as usize].busy += end.since(running.upcalled);
            }
        }
        if !matches!(self.state, State::Asleep { .. }) {
            self.busy += end.since(self.awake_since);
        }
        self.take_records(record);
        let cpu = CpuOutcome {
            cpu: self.number,
            switches: self.switches,
            domain_switches: self.domain_switches,
            busy: self.busy,
            switching: self.switching,
        };
        let (domains, events, reading) = (&self.domains, self.events, self.reading());
        let outcomes = self.actors.into_iter().map(|actor| {
            let (scheduler, id) = (&domains[actor.home].scheduler, actor.id);
            let counters = scheduler.counters_at(reading, id);
            actor.outcome(end, counters, scheduler.window_violations(id))
        });
        (cpu, outcomes.collect(), events)
    }
}
