//! Hands messages and events to the scheduler.

use super::control::{Message, Request};
use super::machine::count;
use super::state::Cpu;
use crate::event::{Event, EventKind};
use crate::spec::SimSpec;
use std::cmp::Reverse;
use upcall_core::activity::ActivityId;
use upcall_core::scheduler::Input;
use upcall_core::time::Instant;

impl Cpu {
    /// Creates all activities, and runs those that are there from the start.
    pub(crate) fn start(&mut self, spec: &SimSpec, told: &mut impl FnMut(&Event)) {
        for actor in 0..count(self.actors.len()) {
            self.create(actor, told);
        }
        let number = self.number;
        for &(_, share) in spec.event_servers.iter().filter(|(cpu, _)| *cpu == number) {
            self.inform(Input::EventServer { share: Some(share) }, told);
        }
        for actor in 0..count(self.actors.len()) {
            let place = self.actors[actor as usize].activity as usize;
            let present = &spec.activities[place].present;
            if present.iter().any(|window| window.contains(Instant::ZERO)) {
                self.deliver(Message { actor, request: Request::Join }, told);
            }
        }
    }

    /// An event is handed in, if its owner is still there, and there is room.
    pub(super) fn hear(&mut self, number: u32, rank: u64, told: &mut impl FnMut(&Event)) {
        let id = ActivityId(number);
        let owner = &self.actors[number as usize];
        if !(owner.alive && owner.delivering) {
            return;
        }
        let heard = self.scheduler.handle(self.reading(), Input::Posted { id, rank }).is_ok();
        let actor = &mut self.actors[number as usize];
        actor.events_lost += u64::from(!heard);
        let activity = actor.activity;
        if heard {
            self.tell(EventKind::Posted { activity, rank }, told);
        }
        while let Some(notice) = self.scheduler.poll_notice() {
            self.pass_on(notice, told);
        }
    }

    /// So many events are taken, as far as there are any.
    pub(super) fn take_events(&mut self, id: ActivityId, most: u32, told: &mut impl FnMut(&Event)) {
        let events = self.scheduler.pending(id).0.min(most);
        if events > 0 {
            let activity = self.actors[id.0 as usize].activity;
            self.tell(EventKind::Taken { activity, events }, told);
            self.inform(Input::Taken { id, events }, told);
        }
    }

    /// What a message says is done.
    pub(super) fn deliver(&mut self, message: Message, told: &mut impl FnMut(&Event)) {
        let id = ActivityId(message.actor);
        match message.request {
            Request::Join | Request::Reweigh(_) => self.inform(Input::Tick, told),
            Request::Leave => self.release_all(told),
            Request::Event(rank) => return self.hear(message.actor, rank, told),
        }
        let actor = &mut self.actors[message.actor as usize];
        match message.request {
            Request::Join => actor.wanted = true,
            Request::Leave => actor.wanted = false,
            Request::Reweigh(claim) => actor.reweigh(claim),
            Request::Event(_) => {}
        }
        if !actor.alive {
            return;
        }
        match message.request {
            Request::Join => self.run(message.actor, told),
            Request::Leave => {
                actor.delivering = false;
                self.take_events(id, u32::MAX, told);
                self.inform(Input::Suspend { id }, told);
            }
            Request::Reweigh(claim) => self.inform(Input::Reweigh { id, claim }, told),
            Request::Event(_) => {}
        }
    }

    /// What is to be released by now is, before anything is dropped.
    pub(super) fn release_all(&mut self, told: &mut impl FnMut(&Event)) {
        self.drop_stale();
        while self.release_at() <= self.now {
            self.release(told);
        }
        self.inform(Input::Tick, told);
    }

    pub(super) fn create(&mut self, number: u32, told: &mut impl FnMut(&Event)) {
        let id = ActivityId(number);
        let actor = &mut self.actors[number as usize];
        (actor.alive, actor.released) = (true, 0);
        let (params, terms) = (actor.params, actor.terms());
        self.inform(Input::Create { id, params, terms }, told);
    }

    pub(super) fn run(&mut self, number: u32, told: &mut impl FnMut(&Event)) {
        let id = ActivityId(number);
        // Not before what it has been told already: that would be late from the start.
        let at = self.reading().max(self.scheduler.clock());
        let actor = &mut self.actors[number as usize];
        actor.join(self.now);
        // One that has not left yet goes on as if nothing had been.
        if !self.scheduler.is_active(id) {
            actor.next_release = at + actor.params.offset;
        }
        self.releases.push(Reverse((actor.next_release, number)));
        let activity = actor.activity;
        self.tell(EventKind::Join { activity }, told);
        self.inform(Input::Run { id, at }, told);
    }
}
