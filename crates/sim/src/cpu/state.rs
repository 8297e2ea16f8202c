//! The state of one CPU, and the events that it emits.

use super::control::{Control, Message, controls_of, first_posts};
use super::domain::Domain;
use super::machine::{Machine, count};
use super::running::{Running, State};
use crate::actor::Actor;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use upcall_core::activity::ActivityId;
use upcall_core::discipline::DomainOrder;
use upcall_core::policy::ps::DomainAccounts;
use upcall_core::scheduler::{Command, Input};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Record;

/// One CPU and its activities, numbered from 0. [`Actor::activity`] is their index in the spec, and
/// [`Actor::id`] their number in their scheduler.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(super) number: u32,
    /// The schedulers; one, or one for each domain.
    pub(super) domains: Vec<Domain>,
    /// The domain that has the turn, if there are several.
    pub(super) holder: Option<usize>,
    /// The accounts of the domains, if these are processes and share by accounts (PS).
    pub(super) accounts: Option<DomainAccounts>,
    /// Until when the domain that runs was charged.
    pub(super) charged_until: Instant,
    /// The upcall of the holder while a handler that came back runs.
    pub(super) interrupted: Option<Running>,
    /// Domains whose handlers came back from the kernel and wait for another such handler.
    pub(super) returners: VecDeque<usize>,
    /// Domains that were stopped in the middle of an upcall and are continued.
    pub(super) continued: VecDeque<usize>,
    /// When the handlers that block come back.
    pub(super) unblocks: BinaryHeap<Reverse<(Instant, usize)>>,
    pub(super) actors: Vec<Actor>,
    pub(super) state: State,
    /// The instant of the last step.
    pub(super) now: Instant,
    pub(super) clock: Clock,
    /// The next release of each delivered activity, by the clock. Entries may be stale (the actor's
    /// own value counts), but never the top one.
    pub(super) releases: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The next event of each activity that gets events.
    pub(super) posts: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The next PDU of each activity that waits for one. An entry may be stale: the actor's own
    /// value counts.
    pub(super) arrivals: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Other inputs from outside, in the order of time.
    pub(super) controls: VecDeque<(Instant, Control)>,
    /// Messages that did not wake the CPU; empty while it is awake.
    pub(super) mailbox: Vec<Message>,
    pub(super) chance: Chance,
    /// The activity of the last upcall, and its domain.
    pub(super) last: Option<(u32, u32)>,
    /// The domain to which the CPU was handed last, even if it only dropped a job.
    pub(super) handed_to: Option<u32>,
    /// The next place in the order of admission.
    pub(super) order: u32,
    pub(super) awake_since: Instant,
    pub(super) switches: u64,
    pub(super) domain_switches: u64,
    pub(super) busy: Span,
    pub(super) switching: Span,
    pub(super) events: u64,
}

impl Cpu {
    /// A CPU with its activities of `spec`, asleep until time 0.
    pub(crate) fn new(spec: &SimSpec, machine: &Machine, number: u32) -> Self {
        let mut actors: Vec<_> = (0u32..)
            .zip(&spec.activities)
            .filter(|(_, activity)| activity.cpu == number)
            .map(|(place, _)| Actor::new(spec, place))
            .collect();
        let domains = Domain::all(spec, &mut actors);
        let by_accounts = spec.discipline.domain_order() == DomainOrder::Accounts;
        let accounts = spec.split_level.filter(|_| by_accounts);
        Cpu {
            number,
            holder: None,
            accounts: accounts.map(|_| DomainAccounts::new(count(domains.len()))),
            domains,
            charged_until: Instant::ZERO,
            interrupted: None,
            returners: VecDeque::new(),
            continued: VecDeque::new(),
            unblocks: BinaryHeap::new(),
            state: State::Asleep { until: machine.stalls.clear(Instant::ZERO) },
            now: Instant::ZERO,
            clock: Clock::of(&spec.faults),
            releases: BinaryHeap::with_capacity(actors.len() + 1),
            posts: first_posts(&actors),
            arrivals: BinaryHeap::new(),
            controls: controls_of(spec, &actors),
            mailbox: Vec::new(),
            chance: Chance::new(spec.seed, u64::from(number)),
            last: None,
            handed_to: None,
            order: 0,
            awake_since: Instant::ZERO,
            switches: 0,
            domain_switches: 0,
            busy: Span::ZERO,
            switching: Span::ZERO,
            events: 0,
            actors,
        }
    }

    /// Records every crossing of the core's interface from now on, until taken out.
    pub(crate) fn trace(&mut self) {
        self.domains.iter_mut().for_each(|domain| domain.scheduler.set_sink(Vec::new()));
    }

    /// Takes out the records, with the number of their process.
    pub(crate) fn take_records(&mut self, record: &mut impl FnMut(u16, u32, &Record)) {
        for domain in &mut self.domains {
            if let Some(kept) = domain.scheduler.sink_mut() {
                kept.drain(..).for_each(|kept| record(domain.process, self.number, &kept));
            }
        }
    }

    /// The time of the next step; [`Instant::FAR`] if there is none. O(1).
    #[inline]
    pub(crate) fn next_at(&self) -> Instant {
        let outside = self.release_at().min(self.control_at()).min(self.post_at());
        let outside = outside.min(self.arrival_at());
        outside.min(self.unblock_at()).min(match self.state {
            State::Asleep { until } | State::HandOff { until } => until,
            State::Running(running) => running.end,
        })
    }

    #[inline]
    pub(super) fn release_at(&self) -> Instant {
        self.releases.peek().map_or(Instant::FAR, |Reverse((at, _))| self.clock.first(*at))
    }

    #[inline]
    pub(super) fn control_at(&self) -> Instant {
        self.controls.front().map_or(Instant::FAR, |(at, _)| *at)
    }

    #[inline]
    pub(super) fn unblock_at(&self) -> Instant {
        self.unblocks.peek().map_or(Instant::FAR, |Reverse((at, _))| *at)
    }

    #[inline]
    pub(super) fn post_at(&self) -> Instant {
        self.posts.peek().map_or(Instant::FAR, |Reverse((at, _))| *at)
    }

    /// The indices of the CPU's activities in the spec.
    pub(crate) fn activities(&self) -> impl Iterator<Item = u32> + '_ {
        self.actors.iter().map(|actor| actor.activity)
    }

    /// The present reading of the CPU's clock.
    #[inline]
    pub(super) fn reading(&self) -> Instant {
        self.clock.reads(self.now)
    }

    pub(super) fn emit(&mut self, kind: EventKind, observe: &mut impl FnMut(&SimEvent)) {
        self.events += 1;
        observe(&SimEvent { at: self.now, cpu: self.number, kind });
    }

    /// The scheduler of an activity, by its place, and the number of the activity there.
    #[inline]
    pub(super) fn home_of(&self, actor: u32) -> (usize, ActivityId) {
        let actor = &self.actors[actor as usize];
        (actor.home, actor.id)
    }

    /// Passes an input to the scheduler of `home`, and emits the events that follow. Returns
    /// whether a job ended.
    pub(super) fn inform(
        &mut self,
        home: usize,
        input: Input,
        observe: &mut impl FnMut(&SimEvent),
    ) -> bool {
        self.inform_at(self.reading(), home, input, observe)
    }

    /// As `inform`, at a given reading of the clock.
    pub(super) fn inform_at(
        &mut self,
        reading: Instant,
        home: usize,
        input: Input,
        observe: &mut impl FnMut(&SimEvent),
    ) -> bool {
        let scheduler = &mut self.domains[home].scheduler;
        scheduler.handle(reading, input).expect("the driver keeps to the protocol");
        self.notices(home, observe)
    }

    /// Shows what the last input released, and passes on all notices. Returns whether a job ended.
    pub(super) fn notices(&mut self, home: usize, observe: &mut impl FnMut(&SimEvent)) -> bool {
        self.follow_messages(home, observe);
        let mut ended = false;
        while let Some(notice) = self.domains[home].scheduler.poll_notice() {
            ended |= matches!(notice, Command::JobDone(_));
            self.pass_on(home, notice, observe);
        }
        ended
    }

    pub(super) fn pass_on(
        &mut self,
        home: usize,
        notice: Command,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let members = &self.domains[home].members;
        match notice {
            Command::JobDone(mut record) => {
                let actor = &mut self.actors[members[record.id.0 as usize] as usize];
                if record.completed {
                    actor.responses.note(record.response());
                }
                record.id = ActivityId(actor.activity);
                self.emit(EventKind::JobDone(record), observe);
            }
            Command::Inactive { id } => {
                let activity = self.actors[members[id.0 as usize] as usize].activity;
                self.emit(EventKind::Leave { activity }, observe);
            }
            // The caller takes the replies to a handler itself. A free number needs no event.
            _ => {}
        }
    }

    /// Emits the next release. The core computes its releases by itself.
    pub(super) fn release(&mut self, observe: &mut impl FnMut(&SimEvent)) {
        let Some(mut top) = self.releases.peek_mut() else { return };
        let Reverse((_, number)) = *top;
        let actor = &mut self.actors[number as usize];
        let released = actor.release();
        match actor.next_release {
            Instant::FAR => _ = PeekMut::pop(top),
            next_release => {
                *top = Reverse((next_release, number));
                drop(top);
            }
        }
        self.drop_stale();
        self.emit_release(number, released, observe);
    }

    /// Emits the release of a job.
    pub(super) fn emit_release(
        &mut self,
        number: u32,
        (release, job): (Instant, u64),
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let actor = &self.actors[number as usize];
        let (activity, deadline) = (actor.activity, release + actor.params.deadline);
        let deadline = self.clock.first(deadline);
        self.emit(EventKind::Release { activity, job, deadline }, observe);
    }

    /// Removes stale entries from the top of the heap.
    pub(super) fn drop_stale(&mut self) {
        while let Some(top) = self.releases.peek_mut() {
            let Reverse((at, number)) = *top;
            let actor = &self.actors[number as usize];
            if actor.delivering && actor.next_release == at {
                break;
            }
            PeekMut::pop(top);
        }
    }

    pub(super) fn emit_lag(&mut self, actor: u32, observe: &mut impl FnMut(&SimEvent)) {
        let (home, id) = self.home_of(actor);
        if let Some(lag_ns) = self.domains[home].scheduler.lag_ns(id, self.reading()) {
            let actor = &mut self.actors[actor as usize];
            actor.note_lag(lag_ns);
            let activity = actor.activity;
            self.emit(EventKind::Lag { activity, lag_ns }, observe);
        }
        let account = self.accounts.as_ref();
        if let Some(lag_ns) = account.and_then(|accounts| accounts.lag_ns(count(home))) {
            let domain = self.domains[home].number;
            self.emit(EventKind::DomainLag { domain, lag_ns }, observe);
        }
    }
}
