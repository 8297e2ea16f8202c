//! Activities on demand: when their messages come, and the jobs that these release.
//!
//! A handler of a stream and a task do the same in the runtime. While the activity waits, the next
//! PDU is a message. At the end of a job, PDUs that wait already are the next message, at once.

use super::control::{Message, Request};
use super::machine::Machine;
use super::state::Cpu;
use crate::event::SimEvent;
use std::cmp::Reverse;
use upcall_core::scheduler::Input;
use upcall_core::time::Instant;

impl Cpu {
    /// When the next PDU comes for which an activity waits.
    #[inline]
    pub(super) fn arrival_at(&self) -> Instant {
        self.arrivals.peek().map_or(Instant::FAR, |Reverse((at, _))| *at)
    }

    /// A PDU comes for which an activity waits, or waited when the entry was made.
    pub(super) fn arrive(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        let Some(Reverse((at, number))) = self.arrivals.pop() else { return };
        let actor = &mut self.actors[number as usize];
        if actor.awaited != at {
            return;
        }
        actor.awaited = Instant::FAR;
        if actor.delivering && actor.alive {
            self.message(Message { actor: number, request: Request::Arrival }, machine, observe);
        }
    }

    /// Announces the message that waits, or awaits the next PDU. No effect on other activities.
    pub(super) fn announce(&mut self, number: u32, observe: &mut impl FnMut(&SimEvent)) {
        let actor = &mut self.actors[number as usize];
        if !(actor.is_on_demand() && actor.delivering && actor.alive) {
            return;
        }
        if actor.has_message(self.now) {
            let (home, id) = self.home_of(number);
            let critical = self.reading();
            self.inform(home, Input::Message { id, critical, from: critical }, observe);
        } else if self.actors[number as usize].awaited < Instant::FAR {
            self.arrivals.push(Reverse((self.actors[number as usize].awaited, number)));
        }
    }

    /// Shows the jobs on demand that the scheduler of `home` released, and notes when it will
    /// release the next ones. To be called before the ends of jobs are shown.
    #[inline]
    pub(super) fn follow_messages(&mut self, home: usize, observe: &mut impl FnMut(&SimEvent)) {
        for place in 0..self.domains[home].on_demand.len() {
            self.follow(self.domains[home].on_demand[place], observe);
        }
    }

    fn follow(&mut self, number: u32, observe: &mut impl FnMut(&SimEvent)) {
        let (home, id) = self.home_of(number);
        let scheduler = &self.domains[home].scheduler;
        let Some(counters) = scheduler.counters(id) else { return };
        let (pending, next) = (scheduler.pending_since(id), scheduler.release_of(id));
        let actor = &mut self.actors[number as usize];
        // A release is shown in its moment, and may not have reached the scheduler.
        if !(actor.alive && actor.delivering) || counters.jobs < actor.released {
            return;
        }
        // Of several new jobs all but the last were dropped. They were a period apart.
        let new = counters.jobs - actor.released;
        let period = actor.params.period;
        let last = pending.or(next.map(|next| next - period));
        for before in (0..new).rev() {
            let actor = &mut self.actors[number as usize];
            actor.next_release = last.map_or(self.now, |at| at - period.saturating_mul(before));
            let released = actor.release();
            self.emit_release(number, released, observe);
        }
        let actor = &mut self.actors[number as usize];
        let next = next.unwrap_or(Instant::FAR);
        if actor.next_release != next || new > 0 {
            actor.next_release = next;
            if next < Instant::FAR {
                self.releases.push(Reverse((next, number)));
            }
            self.drop_stale();
        }
    }
}
