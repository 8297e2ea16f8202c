//! The state of one CPU, and the events that it emits.

use super::control::{Control, Message, controls_of, first_posts};
use super::machine::{Machine, count};
use crate::actor::Actor;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use upcall_core::activity::ActivityId;
use upcall_core::scheduler::{Command, Input};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::{Record, Traced};

/// One CPU and its activities. They are numbered from 0, as the scheduler's [`ActivityId`].
/// [`Actor::activity`] is their index in the spec.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(super) number: u32,
    pub(super) scheduler: Traced<Vec<Record>>,
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
    /// Other inputs from outside, in the order of time.
    pub(super) controls: VecDeque<(Instant, Control)>,
    /// Messages that did not wake the CPU; empty while it is awake.
    pub(super) mailbox: Vec<Message>,
    pub(super) chance: Chance,
    /// The activity of the last upcall, and its domain.
    pub(super) last: Option<(u32, u32)>,
    pub(super) awake_since: Instant,
    pub(super) domain_switches: u64,
    pub(super) busy: Span,
    pub(super) switching: Span,
    pub(super) events: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Asleep { until: Instant },
    Running(Running),
}

/// An upcall that is running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) actor: u32,
    pub(super) upcalled: Instant,
    /// Complete PDUs of the job at the upcall.
    pub(super) pdus_before: u32,
    /// The time from which the actor's position counts: the end of the hand-off, or the last
    /// preemption point.
    pub(super) from: Instant,
    pub(super) check_at: Instant,
    /// The time at which the handler asks the scheduler or returns.
    pub(super) end: Instant,
    /// The time at which PDU `target` of the job would be complete; `end` or later.
    pub(super) target_at: Instant,
    pub(super) target: u32,
    /// Whether the handler spins in its present PDU until `target_at`.
    pub(super) spins: bool,
}

impl Cpu {
    /// A CPU with its activities of `spec`, asleep until time 0.
    pub(crate) fn new(spec: &SimSpec, machine: &Machine, number: u32) -> Self {
        let actors: Vec<_> = (0u32..)
            .zip(&spec.activities)
            .filter(|(_, activity)| activity.cpu == number)
            .map(|(place, _)| Actor::new(spec, place))
            .collect();
        Cpu {
            number,
            scheduler: match spec.checked {
                true => Traced::new(count(actors.len()), &spec.discipline.checked()),
                false => Traced::new(count(actors.len()), spec.discipline),
            },
            state: State::Asleep { until: machine.stalls.clear(Instant::ZERO) },
            now: Instant::ZERO,
            clock: Clock::of(&spec.faults),
            releases: BinaryHeap::with_capacity(actors.len() + 1),
            posts: first_posts(&actors),
            controls: controls_of(spec, &actors),
            mailbox: Vec::new(),
            chance: Chance::new(spec.seed, u64::from(number)),
            last: None,
            awake_since: Instant::ZERO,
            domain_switches: 0,
            busy: Span::ZERO,
            switching: Span::ZERO,
            events: 0,
            actors,
        }
    }

    /// Records every crossing of the core's interface from now on, until taken out.
    pub(crate) fn trace(&mut self) {
        self.scheduler.set_sink(Vec::new());
    }

    /// Takes out the records.
    pub(crate) fn take_records(&mut self, record: &mut impl FnMut(u32, &Record)) {
        if let Some(kept) = self.scheduler.sink_mut() {
            kept.drain(..).for_each(|kept| record(self.number, &kept));
        }
    }

    /// The time of the next step; [`Instant::FAR`] if there is none. O(1).
    pub(crate) fn next_at(&self) -> Instant {
        self.release_at().min(self.control_at()).min(self.post_at()).min(match self.state {
            State::Asleep { until } => until,
            State::Running(running) => running.end,
        })
    }

    pub(super) fn release_at(&self) -> Instant {
        self.releases.peek().map_or(Instant::FAR, |Reverse((at, _))| self.clock.first(*at))
    }

    pub(super) fn control_at(&self) -> Instant {
        self.controls.front().map_or(Instant::FAR, |(at, _)| *at)
    }

    pub(super) fn post_at(&self) -> Instant {
        self.posts.peek().map_or(Instant::FAR, |Reverse((at, _))| *at)
    }

    /// The indices of the CPU's activities in the spec.
    pub(crate) fn activities(&self) -> impl Iterator<Item = u32> + '_ {
        self.actors.iter().map(|actor| actor.activity)
    }

    /// The present reading of the CPU's clock.
    pub(super) fn reading(&self) -> Instant {
        self.clock.reads(self.now)
    }

    pub(super) fn emit(&mut self, kind: EventKind, observe: &mut impl FnMut(&SimEvent)) {
        self.events += 1;
        observe(&SimEvent { at: self.now, cpu: self.number, kind });
    }

    /// Passes an input to the core, and emits the events that follow.
    pub(super) fn inform(&mut self, input: Input, observe: &mut impl FnMut(&SimEvent)) {
        self.inform_at(self.reading(), input, observe);
    }

    /// As `inform`, at a given reading of the clock.
    pub(super) fn inform_at(
        &mut self,
        reading: Instant,
        input: Input,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        self.scheduler.handle(reading, input).expect("the driver keeps to the protocol");
        while let Some(notice) = self.scheduler.poll_notice() {
            self.pass_on(notice, observe);
        }
    }

    pub(super) fn pass_on(&mut self, notice: Command, observe: &mut impl FnMut(&SimEvent)) {
        match notice {
            Command::JobDone(mut record) => {
                let actor = &mut self.actors[record.id.0 as usize];
                if record.completed {
                    actor.responses.note(record.response());
                }
                record.id = ActivityId(actor.activity);
                self.emit(EventKind::JobDone(record), observe);
            }
            Command::Inactive { id } => {
                let activity = self.actors[id.0 as usize].activity;
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
        let (release, job) = actor.release();
        *top = Reverse((actor.next_release, number));
        drop(top);
        let (activity, deadline) = (actor.activity, release + actor.params.deadline);
        let deadline = self.clock.first(deadline);
        self.drop_stale();
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

    pub(super) fn emit_lag(&mut self, id: ActivityId, observe: &mut impl FnMut(&SimEvent)) {
        if let Some(lag_ns) = self.scheduler.lag_ns(id, self.reading()) {
            let actor = &mut self.actors[id.0 as usize];
            actor.note_lag(lag_ns);
            let activity = actor.activity;
            self.emit(EventKind::Lag { activity, lag_ns }, observe);
        }
    }
}
