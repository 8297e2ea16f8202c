//! Hands messages and events to the scheduler.

use super::control::{Message, Request};
use super::machine::count;
use super::state::Cpu;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use std::cmp::Reverse;
use upcall_core::activity::ActivityId;
use upcall_core::scheduler::Input;
use upcall_core::time::Instant;

impl Cpu {
    /// Creates all activities, and starts those that are present from the beginning.
    pub(crate) fn start(&mut self, spec: &SimSpec, observe: &mut impl FnMut(&SimEvent)) {
        self.inform(Input::SwitchCost { cost: spec.switch_cost }, observe);
        for actor in 0..count(self.actors.len()) {
            self.create(actor, observe);
        }
        let number = self.number;
        for &(_, share) in spec.event_servers.iter().filter(|(cpu, _)| *cpu == number) {
            self.inform(Input::EventServer { share: Some(share) }, observe);
        }
        for actor in 0..count(self.actors.len()) {
            let place = self.actors[actor as usize].activity as usize;
            let present = &spec.activities[place].present;
            if present.iter().any(|window| window.contains(Instant::ZERO)) {
                self.deliver(Message { actor, request: Request::Join }, observe);
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
        let id = ActivityId(number);
        let owner = &self.actors[number as usize];
        if !(owner.alive && owner.delivering) {
            return;
        }
        let accepted = self.scheduler.handle(self.reading(), Input::Posted { id, rank }).is_ok();
        let actor = &mut self.actors[number as usize];
        actor.events_lost += u64::from(!accepted);
        let activity = actor.activity;
        if accepted {
            self.emit(EventKind::Posted { activity, rank }, observe);
        }
        while let Some(notice) = self.scheduler.poll_notice() {
            self.pass_on(notice, observe);
        }
    }

    /// Takes `most` events of an activity, or all if there are fewer.
    pub(super) fn take_events(
        &mut self,
        id: ActivityId,
        most: u32,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let events = self.scheduler.pending(id).0.min(most);
        if events > 0 {
            let activity = self.actors[id.0 as usize].activity;
            self.emit(EventKind::Taken { activity, events }, observe);
            self.inform(Input::Taken { id, events }, observe);
        }
    }

    /// Executes a message.
    pub(super) fn deliver(&mut self, message: Message, observe: &mut impl FnMut(&SimEvent)) {
        let id = ActivityId(message.actor);
        match message.request {
            Request::Join | Request::Reweigh(_) => self.inform(Input::Tick, observe),
            Request::Leave => self.release_all(observe),
            Request::Event(rank) => return self.accept_event(message.actor, rank, observe),
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
            Request::Join => self.run(message.actor, observe),
            Request::Leave => {
                actor.delivering = false;
                self.take_events(id, u32::MAX, observe);
                self.inform(Input::Suspend { id }, observe);
            }
            Request::Reweigh(claim) => self.inform(Input::Reweigh { id, claim }, observe),
            Request::Event(_) => {}
        }
    }

    /// Releases all jobs that are due, before anything is dropped.
    pub(super) fn release_all(&mut self, observe: &mut impl FnMut(&SimEvent)) {
        self.drop_stale();
        while self.release_at() <= self.now {
            self.release(observe);
        }
        self.inform(Input::Tick, observe);
    }

    pub(super) fn create(&mut self, number: u32, observe: &mut impl FnMut(&SimEvent)) {
        let id = ActivityId(number);
        let actor = &mut self.actors[number as usize];
        (actor.alive, actor.released) = (true, 0);
        let (params, terms) = (actor.params, actor.terms());
        self.inform(Input::Create { id, params, terms }, observe);
    }

    pub(super) fn run(&mut self, number: u32, observe: &mut impl FnMut(&SimEvent)) {
        let id = ActivityId(number);
        // The start is not before the last input of the scheduler. Otherwise the activity would be
        // late from the start.
        let at = self.reading().max(self.scheduler.clock());
        let actor = &mut self.actors[number as usize];
        actor.join(self.now);
        // An activity that has not left yet continues unchanged.
        if !self.scheduler.is_active(id) {
            actor.next_release = at + actor.params.offset;
        }
        self.releases.push(Reverse((actor.next_release, number)));
        let activity = actor.activity;
        self.emit(EventKind::Join { activity }, observe);
        self.inform(Input::Run { id, at }, observe);
    }
}
