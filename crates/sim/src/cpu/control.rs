//! What comes to a CPU from outside: messages and faults.

use super::{Cpu, Machine, NANOSECOND, Running, State, count};
use crate::actor::Actor;
use crate::event::{Event, EventKind};
use crate::fault::Fault;
use crate::posting::Posts;
use crate::spec::SimSpec;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use upcall_core::activity::{ActivityId, Claim};
use upcall_core::scheduler::{Input, Outcome};
use upcall_core::time::Instant;

/// Something from outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    /// Just before the clock is set: it is read once more.
    ClockSteps,
    Message(Message),
    Fault {
        index: u32,
        begins: bool,
    },
}

/// What an activity is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    actor: u32,
    wish: Wish,
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Join,
    Leave,
    Reweigh(Claim),
    Event(u64),
}

/// The first event of each that gets any.
pub(super) fn posts(actors: &[Actor]) -> BinaryHeap<Reverse<(Instant, u32)>> {
    let next = |actor: &Actor| actor.posts.as_ref().map(Posts::next_at);
    let all = (0u32..).zip(actors).filter_map(|(number, actor)| Some((next(actor)?, number)));
    all.filter(|(at, _)| *at < Instant::FAR).map(Reverse).collect()
}

/// All that will come to the CPU of these actors, in the order of time; at one
/// instant faults come before messages.
pub(super) fn of(spec: &SimSpec, actors: &[Actor]) -> VecDeque<(Instant, Control)> {
    let mut controls = Vec::new();
    for (index, fault) in (0u32..).zip(&spec.faults) {
        let concerns = |actor: &Actor| match *fault {
            Fault::NeverYields { activity, .. } => actor.activity == activity,
            Fault::DomainDies { domain, .. } => actor.domain == domain,
            _ => true,
        };
        if actors.iter().any(concerns) {
            let window = fault.window();
            if let Fault::ClockForward { window, .. } | Fault::ClockBack { window, .. } = *fault {
                controls.push((window.from, Control::ClockSteps));
                controls.push((window.until, Control::ClockSteps));
            }
            controls.push((window.from, Control::Fault { index, begins: true }));
            controls.push((window.until, Control::Fault { index, begins: false }));
        }
    }
    for (number, actor) in (0u32..).zip(actors) {
        let own = &spec.activities[actor.activity as usize];
        let message = |wish| Control::Message(Message { actor: number, wish });
        for window in &own.present {
            if window.from > Instant::ZERO {
                controls.push((window.from, message(Wish::Join)));
            }
            controls.push((window.until, message(Wish::Leave)));
        }
        controls
            .extend(own.reweighs.iter().map(|&(at, claim)| (at, message(Wish::Reweigh(claim)))));
    }
    controls.retain(|(at, _)| *at < Instant::FAR);
    controls.sort_by_key(|(at, control)| (*at, !matches!(control, Control::ClockSteps)));
    controls.into()
}

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
                self.deliver(Message { actor, wish: Wish::Join }, told);
            }
        }
    }

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
            self.message(Message { actor: number, wish: Wish::Event(rank) }, machine, told);
        }
    }

    /// An event is handed in, if its owner is still there, and there is room.
    fn hear(&mut self, number: u32, rank: u64, told: &mut impl FnMut(&Event)) {
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

    /// A message comes: at once if the CPU is awake, else if it wakes it.
    fn message(&mut self, message: Message, machine: &Machine, told: &mut impl FnMut(&Event)) {
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
    fn ask_soon(&mut self, mut running: Running, machine: &Machine) {
        running.check_at = running.check_at.min(self.now);
        let mut planned = self.planned(running, machine);
        planned.end = planned.end.max(self.now);
        self.state = State::Running(planned);
    }

    /// What a message says is done.
    pub(super) fn deliver(&mut self, message: Message, told: &mut impl FnMut(&Event)) {
        let id = ActivityId(message.actor);
        match message.wish {
            Wish::Join | Wish::Reweigh(_) => self.inform(Input::Tick, told),
            Wish::Leave => self.release_all(told),
            Wish::Event(rank) => return self.hear(message.actor, rank, told),
        }
        let actor = &mut self.actors[message.actor as usize];
        match message.wish {
            Wish::Join => actor.wanted = true,
            Wish::Leave => actor.wanted = false,
            Wish::Reweigh(claim) => actor.reweigh(claim),
            Wish::Event(_) => {}
        }
        if !actor.alive {
            return;
        }
        match message.wish {
            Wish::Join => self.run(message.actor, told),
            Wish::Leave => {
                actor.delivering = false;
                self.take_events(id, u32::MAX, told);
                self.inform(Input::Suspend { id }, told);
            }
            Wish::Reweigh(claim) => self.inform(Input::Reweigh { id, claim }, told),
            Wish::Event(_) => {}
        }
    }

    /// What is to be released by now is, before anything is dropped.
    fn release_all(&mut self, told: &mut impl FnMut(&Event)) {
        self.drop_stale();
        while self.release_at() <= self.now {
            self.release(told);
        }
        self.inform(Input::Tick, told);
    }

    fn create(&mut self, number: u32, told: &mut impl FnMut(&Event)) {
        let id = ActivityId(number);
        let actor = &mut self.actors[number as usize];
        (actor.alive, actor.released) = (true, 0);
        let (params, terms) = (actor.params, actor.terms());
        self.inform(Input::Create { id, params, terms }, told);
    }

    fn run(&mut self, number: u32, told: &mut impl FnMut(&Event)) {
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

    /// All activities of a domain die, or are born again.
    fn domain(
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
    fn kill(&mut self, number: u32, machine: &Machine, told: &mut impl FnMut(&Event)) {
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
