//! Hands messages and events to the scheduler.

use super::control::{Message, Request};
use super::machine::{Machine, count};
use super::state::Cpu;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use std::cmp::Reverse;
use upcall_core::admission::Share;
use upcall_core::scheduler::Input;
use upcall_core::time::Instant;

impl Cpu {
    /// Creates all activities, and starts those that are present from the beginning.
    pub(crate) fn start(
        &mut self,
        spec: &SimSpec,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        for actor in 0..count(self.actors.len()) {
            self.create(actor, observe);
        }
        self.share_out(machine, observe);
        let (number, domains) = (self.number, count(self.domains.len()));
        for &(_, share) in spec.event_servers.iter().filter(|(cpu, _)| *cpu == number) {
            // Each domain has a server of its own.
            let share = Share::from_ppm(share.ppm() / domains);
            for home in 0..self.domains.len() {
                self.inform(home, Input::EventServer { share }, observe);
            }
        }
        for actor in 0..count(self.actors.len()) {
            let place = self.actors[actor as usize].activity as usize;
            let present = &spec.activities[place].present;
            if present.iter().any(|window| window.contains(Instant::ZERO)) {
                self.deliver(Message { actor, request: Request::Join }, machine, observe);
            }
        }
    }

    /// Passes an event to the scheduler, if its owner is present. The scheduler refuses it if there
    /// is no space.
    pub(super) fn accept_event(
        &mut self,
        number: u32,
        rank: u64,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let owner = &self.actors[number as usize];
        if !(owner.alive && owner.delivering) {
            return;
        }
        let (home, id) = self.home_of(number);
        let reading = self.reading();
        let scheduler = &mut self.domains[home].scheduler;
        let accepted = scheduler.handle(reading, Input::Posted { id, rank }).is_ok();
        let actor = &mut self.actors[number as usize];
        actor.events_lost += u64::from(!accepted);
        let activity = actor.activity;
        if accepted {
            self.emit(EventKind::Posted { activity, rank }, observe);
        }
        self.notices(home, observe);
    }

    /// Takes `most` events of an activity, or all if there are fewer.
    pub(super) fn take_events(
        &mut self,
        actor: u32,
        most: u32,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let (home, id) = self.home_of(actor);
        let events = self.domains[home].scheduler.pending(id).0.min(most);
        if events > 0 {
            let activity = self.actors[actor as usize].activity;
            self.emit(EventKind::Taken { activity, events }, observe);
            self.inform(home, Input::Taken { id, events }, observe);
        }
    }

    /// Tells the scheduler which messages came before their logical arrivals, if the activity works
    /// ahead and the policy lets it. The runtime does the same at the end of a job.
    pub(super) fn tell_early(&mut self, number: u32, observe: &mut impl FnMut(&SimEvent)) {
        let (home, id) = self.home_of(number);
        let Some((waiting, critical)) = self.actors[number as usize].early(self.now) else {
            return;
        };
        let unfinished = self.domains[home].scheduler.unfinished(id);
        let next_release = self.actors[number as usize].next_release;
        if let Some(critical) = critical.filter(|&at| unfinished == 0 && at > next_release) {
            self.inform(home, Input::Advance { id, critical }, observe);
            self.actors[number as usize].next_release = critical;
        }
        let known = u32::try_from(unfinished).unwrap_or(u32::MAX);
        let messages = waiting.saturating_sub(known);
        if messages > 0 {
            self.inform(home, Input::Arrived { id, messages }, observe);
        }
        let early = self.domains[home].scheduler.unfinished(id).saturating_sub(unfinished);
        for _ in 0..early {
            let actor = &mut self.actors[number as usize];
            let (release, job) = actor.release();
            let (activity, deadline) = (actor.activity, release + actor.params.deadline);
            let deadline = self.clock.first(deadline);
            self.emit(EventKind::Early { activity, job, release, deadline }, observe);
        }
        let moved = self.actors[number as usize].next_release;
        if moved != next_release {
            self.releases.push(Reverse((moved, number)));
            self.drop_stale();
        }
    }

    /// Executes a message.
    pub(super) fn deliver(
        &mut self,
        message: Message,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let (home, id) = self.home_of(message.actor);
        match message.request {
            Request::Join | Request::Reweigh(_) => _ = self.inform(home, Input::Tick, observe),
            Request::Leave => self.release_all(home, observe),
            Request::Event(rank) => return self.accept_event(message.actor, rank, observe),
            Request::Arrival => return self.announce(message.actor, observe),
        }
        let actor = &mut self.actors[message.actor as usize];
        match message.request {
            Request::Join => actor.wanted = true,
            Request::Leave => actor.wanted = false,
            Request::Reweigh(claim) => actor.reweigh(claim),
            Request::Event(_) | Request::Arrival => {}
        }
        if !actor.alive {
            return;
        }
        match message.request {
            Request::Join => self.run(message.actor, observe),
            Request::Leave => {
                actor.delivering = false;
                self.take_events(message.actor, u32::MAX, observe);
                self.inform(home, Input::Suspend { id }, observe);
            }
            Request::Reweigh(claim) => {
                self.inform(home, Input::Reweigh { id, claim }, observe);
                self.share_out(machine, observe);
            }
            Request::Event(_) | Request::Arrival => {}
        }
    }

    /// Releases all jobs that are due, before anything of `home` is dropped.
    pub(super) fn release_all(&mut self, home: usize, observe: &mut impl FnMut(&SimEvent)) {
        self.drop_stale();
        while self.release_at() <= self.now {
            self.release(observe);
        }
        self.inform(home, Input::Tick, observe);
    }

    pub(super) fn create(&mut self, number: u32, observe: &mut impl FnMut(&SimEvent)) {
        let (home, id) = self.home_of(number);
        let actor = &mut self.actors[number as usize];
        (actor.alive, actor.released) = (true, 0);
        actor.order = self.order;
        self.order += 1;
        let (params, terms) = (actor.params, actor.terms());
        self.inform(home, Input::Create { id, params, terms }, observe);
    }

    pub(super) fn run(&mut self, number: u32, observe: &mut impl FnMut(&SimEvent)) {
        let (home, id) = self.home_of(number);
        // The start is not before the last input of the scheduler. Otherwise the activity would be
        // late from the start.
        let scheduler = &self.domains[home].scheduler;
        let (at, is_active) = (self.reading().max(scheduler.clock()), scheduler.is_active(id));
        let first = scheduler.first_release(id, at, at);
        let actor = &mut self.actors[number as usize];
        actor.join(self.now);
        // An activity that has not left yet continues unchanged.
        if !is_active {
            actor.next_release = first + actor.params.offset;
        }
        self.releases.push(Reverse((actor.next_release, number)));
        let activity = actor.activity;
        self.emit(EventKind::Join { activity }, observe);
        self.inform(home, Input::Run { id, at }, observe);
    }
}
