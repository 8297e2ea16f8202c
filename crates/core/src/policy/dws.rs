//! DWS: deadline/workahead scheduling (split-level-1991 §2.2, Figure 3).
//!
//! A real-time activity handles a stream of messages, a message a job. The
//! *logical arrival* of a message is the release that its position in the stream
//! gives it, or a later one that its timestamp says
//! ([`crate::scheduler::Input::Advance`]); its deadline is the logical arrival
//! plus the activity's delay bound. A message may be there before
//! ([`crate::scheduler::Input::Arrived`]). So there are four levels, and each is
//! strictly before the next:
//!
//! | level | who | smaller key first |
//! |---|---|---|
//! | critical | real time, the logical arrival of the oldest message has come | deadline |
//! | interactive | [`WorkClass::Interactive`] with a job | release |
//! | workahead | real time, the logical arrival is still to come | logical arrival |
//! | background | [`WorkClass::Background`] with a job | release |
//!
//! Within a level equals go by pending events (ecalls-2001 §2.4), the most urgent first, then
//! by creation. As under [`super::rmdp`], an event wins where somebody is chosen and
//! preempts no equal, and whoever was chosen with one keeps its place until its job is done.
//! Admission reckons with any order of those that are due together. The paper leaves the last three orders
//! open and takes the one of the logical arrivals where it needs one (footnote
//! 2); by release means first come, first served.
//!
//! ```text
//!          Arrived             l(m) comes
//!   idle ----------> workahead ----------> critical
//!     |                                       ^
//!     +---------------------------------------+
//!                  release at l(m)
//! ```
//!
//! A workahead activity becomes critical by the passing of time alone, whether
//! it waits or runs. The earliest such moment among those that wait is
//! [`Policy::next_event`]; a running one is looked at when it asks. Preemption is
//! delayed as under RMDP: it is looked at only when a quantum is complete, so
//! work ahead never holds up a critical activity by more than one quantum.
//!
//! The *hard* variant is admission by [`crate::admission::dws`]; the *soft* one is
//! `reserve_unscreened`, and lateness stands in the job records and counters.

use super::{EventRank, Policy, Rank, Ready, Standing};
use crate::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use crate::heap::IndexedHeap;
use crate::time::{Instant, Span};

/// The queues, best first.
const CRITICAL: usize = 0;
const INTERACTIVE: usize = 1;
const WORKAHEAD: usize = 2;
const BACKGROUND: usize = 3;

/// Above every instant of 73 years.
fn level(queue: usize) -> u64 {
    (queue as u64) << 62
}

/// From the logical arrival of a message to its deadline.
pub(crate) fn delay_bound(params: &ActivityParams, terms: &Terms) -> Span {
    terms.delay_bound.unwrap_or(params.deadline)
}

/// The smallest key of such an activity in the order of all domains, at a release at 0.
pub(crate) fn key_min(params: &ActivityParams, terms: &Terms) -> u64 {
    match terms.class {
        WorkClass::RealTime => level(CRITICAL) | delay_bound(params, terms).as_nanos(),
        WorkClass::Interactive => level(INTERACTIVE),
        WorkClass::Background => level(BACKGROUND),
    }
}

/// One CPU's order. Every call is O(log n), or O(k log n) if k activities have
/// become critical since the last.
#[derive(Debug)]
pub(crate) struct DeadlineWorkahead {
    /// By activity number; meaningful for those that joined.
    members: Vec<Member>,
    /// Invariant: a ready activity is in exactly one; who is in `WORKAHEAD` was
    /// not critical at the last `tick`.
    queues: [IndexedHeap<Rank>; 4],
    /// Those of them with an event, by queue and key.
    eager: IndexedHeap<(usize, u64, EventRank)>,
    /// Activities that ever joined, for ties. Wraps after 4 billion.
    created: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    class: WorkClass,
    workahead_max: u32,
    tie: u32,
    /// The last one that became ready.
    job: Ready,
    /// The most urgent event that waits.
    first: Option<EventRank>,
    /// The event with which its job was begun.
    served: Option<EventRank>,
}

impl Member {
    /// Its queue and its place there.
    fn place(&self, now: Instant) -> (usize, Rank) {
        let Ready { release, deadline } = self.job;
        let (queue, key) = match self.class {
            WorkClass::RealTime if release <= now => (CRITICAL, deadline),
            WorkClass::RealTime => (WORKAHEAD, release),
            WorkClass::Interactive => (INTERACTIVE, release),
            WorkClass::Background => (BACKGROUND, release),
        };
        (queue, Rank { key: key.as_nanos(), tie: self.tie })
    }

    /// The event by which it goes before its equals.
    fn event(&self) -> Option<EventRank> {
        self.first.into_iter().chain(self.served).min()
    }
}

impl DeadlineWorkahead {
    pub(crate) fn new(capacity: u32) -> Self {
        let job = Ready { release: Instant::ZERO, deadline: Instant::ZERO };
        let class = WorkClass::RealTime;
        let nobody = Member { class, workahead_max: 0, tie: 0, job, first: None, served: None };
        DeadlineWorkahead {
            members: vec![nobody; capacity as usize],
            queues: core::array::from_fn(|_| IndexedHeap::with_capacity(capacity)),
            eager: IndexedHeap::with_capacity(capacity),
            created: 0,
        }
    }

    fn enqueue(&mut self, id: ActivityId, now: Instant) {
        let member = &self.members[id.0 as usize];
        let (queue, rank) = member.place(now);
        self.queues[queue].set(rank, id.0);
        match member.event() {
            Some(event) => self.eager.set((queue, rank.key, event), id.0),
            None => self.eager.remove(id.0),
        }
    }

    fn dequeue(&mut self, id: ActivityId) {
        for queue in &mut self.queues {
            queue.remove(id.0);
        }
        self.eager.remove(id.0);
    }

    /// The best queue that is not empty, and its first.
    fn best_queued(&self) -> Option<(usize, Rank, u32)> {
        self.queues.iter().enumerate().find_map(|(queue, waiting)| {
            let (rank, number) = waiting.peek()?;
            Some((queue, rank, number))
        })
    }

    /// Whom `pick` would take, from which queue, by which key.
    fn next(&self) -> Option<(ActivityId, usize, u64)> {
        let (queue, rank, number) = self.best_queued()?;
        let first = match self.eager.peek() {
            Some(((other, key, _), eager)) if (other, key) == (queue, rank.key) => eager,
            _ => number,
        };
        Some((ActivityId(first), queue, rank.key))
    }

    fn set_first(&mut self, id: ActivityId, first: Option<EventRank>) {
        let member = &mut self.members[id.0 as usize];
        member.first = first;
        let event = member.event();
        // Where it stands, which is as of the last `tick`.
        let job = member.job;
        for queue in [CRITICAL, INTERACTIVE, WORKAHEAD, BACKGROUND] {
            if self.queues[queue].contains(id.0) {
                let key = if queue == CRITICAL { job.deadline } else { job.release };
                match event {
                    Some(event) => self.eager.set((queue, key.as_nanos(), event), id.0),
                    None => self.eager.remove(id.0),
                }
            }
        }
    }
}

impl Policy for DeadlineWorkahead {
    fn join(&mut self, id: ActivityId, _: &ActivityParams, terms: &Terms, _: Instant) {
        let member = &mut self.members[id.0 as usize];
        member.class = terms.class;
        member.workahead_max = terms.workahead_max;
        member.tie = self.created;
        (member.first, member.served) = (None, None);
        self.created = self.created.wrapping_add(1);
    }

    fn leave(&mut self, _: ActivityId, _: Instant) {}

    fn ready(&mut self, id: ActivityId, job: Ready, now: Instant) {
        self.members[id.0 as usize].job = job;
        self.enqueue(id, now);
    }

    fn withdraw(&mut self, id: ActivityId, _: Instant) {
        self.members[id.0 as usize].served = None;
        self.dequeue(id);
    }

    fn pick(&mut self, now: Instant) -> Option<ActivityId> {
        self.tick(now);
        let (id, ..) = self.next()?;
        self.dequeue(id);
        let member = &mut self.members[id.0 as usize];
        member.served = member.event();
        Some(id)
    }

    fn has_ready(&self) -> bool {
        self.best_queued().is_some()
    }

    /// The level in the two highest bits.
    fn best(&self) -> Option<Standing> {
        let (_, _, first) = self.best_queued()?;
        let (id, queue, key) = self.next()?;
        let event = self.members[id.0 as usize].event().map(|event| event.rank);
        Some(Standing { id, key: level(queue) | key, event, first: ActivityId(first) })
    }

    fn standing(&self, id: ActivityId, job: Ready, at: Instant) -> Option<Standing> {
        let member = Member { job, ..self.members[id.0 as usize] };
        let (queue, rank) = member.place(at);
        let event = member.event().map(|event| event.rank);
        Some(Standing { id, key: level(queue) | rank.key, event, first: id })
    }

    fn served(&self, running: ActivityId) -> Option<u64> {
        self.members[running.0 as usize].served.map(|event| event.rank)
    }

    fn gives_way(&mut self, running: ActivityId, _: Instant, now: Instant) -> bool {
        self.tick(now);
        let member = &self.members[running.0 as usize];
        let (own_queue, own) = member.place(now);
        self.best_queued().is_some_and(|(queue, rank, _)| match member.served {
            Some(_) => (queue, rank.key) < (own_queue, own.key),
            None => (queue, rank) < (own_queue, own),
        })
    }

    fn resume(&mut self, id: ActivityId, now: Instant) {
        self.enqueue(id, now);
    }

    fn done(&mut self, id: ActivityId, _: Instant, _: Instant) {
        self.members[id.0 as usize].served = None;
    }

    fn posted(&mut self, id: ActivityId, first: EventRank, _: Instant) {
        self.set_first(id, Some(first));
    }

    fn taken(&mut self, id: ActivityId, first: Option<EventRank>, _: Instant) {
        self.set_first(id, first);
    }

    fn relative_deadline(&self, params: &ActivityParams, terms: &Terms) -> Span {
        delay_bound(params, terms)
    }

    fn workahead_max(&self, id: ActivityId) -> u32 {
        let member = self.members[id.0 as usize];
        if member.class == WorkClass::RealTime { member.workahead_max } else { 0 }
    }

    /// When the first of those that wait ahead becomes critical. O(1).
    fn next_event(&self) -> Instant {
        self.queues[WORKAHEAD]
            .peek()
            .map_or(Instant::FAR, |(rank, _)| Instant::from_nanos(rank.key))
    }

    /// Moves those that have become critical.
    fn tick(&mut self, now: Instant) {
        while let Some((rank, number)) = self.queues[WORKAHEAD].peek() {
            if rank.key > now.as_nanos() {
                break;
            }
            self.queues[WORKAHEAD].remove(number);
            self.enqueue(ActivityId(number), now);
        }
    }
}
