//! DWS: deadline/workahead scheduling (split-level-1991 §2.2, Figure 3).
//!
//! A real-time activity handles a stream of messages; each message is a job. The *logical arrival*
//! of a message is the release that its position in the stream gives it, or a later instant that
//! its timestamp states ([`crate::scheduler::Input::Advance`]). Its deadline is the logical arrival
//! plus the delay bound of the activity. A message may come before its logical arrival
//! ([`crate::scheduler::Input::Arrived`]). There are five levels. Each level goes strictly before
//! the next:
//!
//! | level | members | smaller key first |
//! |---|---|---|
//! | critical | real time, the logical arrival of the oldest message has come | deadline |
//! | interactive | [`WorkClass::Interactive`] with a job | release |
//! | workahead | real time, the logical arrival is still to come | logical arrival |
//! | background | [`WorkClass::Background`] with a job | release |
//! | over budget | real time, the budget is used ([`Ready::is_over_budget`]) | deadline |
//!
//! The last level is not in the paper. It is below background work: an activity that takes more
//! than its reservation takes it from nobody. It has its reservation again with its next budget, so
//! background work does not starve it. The release and the deadline of a real-time activity count
//! from the beginning of its budget, if that is later than the logical arrival of its oldest
//! message.
//!
//! Within a level, activities with equal keys go by their pending events (ecalls-2001 §2.4), the
//! most urgent event first, then by creation. As under [`super::rmdp`], an event counts when the
//! scheduler picks, and preempts no equal. An activity that was picked with an event keeps its
//! place until its job is done. Admission allows any order of messages that are due together. The
//! paper leaves the last three orders open and uses the order of logical arrivals where it needs
//! one (footnote 2). The order by release means first come, first served.
//!
//! ```text
//!          Arrived             l(m) comes
//!   idle ----------> workahead ----------> critical
//!     |                                       ^
//!     +---------------------------------------+
//!                  release at l(m)
//! ```
//!
//! In the diagram, `l(m)` is the logical arrival of message `m`. A workahead activity becomes
//! critical by the passing of time alone, whether it waits or runs. [`Policy::next_event`] is the
//! earliest such moment among the waiting activities; a running activity is checked at its
//! preemption points. Preemption is delayed as under RMDP: ranks are compared only when a quantum
//! is complete. So work ahead delays a critical activity by at most one quantum.
//!
//! The *hard* variant is admission by [`crate::admission::dws`]. The *soft* variant is
//! `reserve_unscreened`; job records and counters then show lateness.

use super::{EventRank, Policy, Rank, Ready, Standing};
use crate::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use crate::heap::IndexedHeap;
use crate::time::{Instant, Span};

/// The queues, best first.
const CRITICAL: usize = 0;
const INTERACTIVE: usize = 1;
const WORKAHEAD: usize = 2;
const BACKGROUND: usize = 3;
const OVER_BUDGET: usize = 4;

/// The three highest bits of a key. Instants of the first 73 years do not reach them.
fn level(queue: usize) -> u64 {
    (queue as u64) << 61
}

/// From the logical arrival of a message to its deadline.
pub(crate) fn delay_bound(params: &ActivityParams, terms: &Terms) -> Span {
    terms.delay_bound.unwrap_or(params.deadline)
}

/// The smallest key that such an activity has in the order of all domains, for a release at 0.
pub(crate) fn key_min(params: &ActivityParams, terms: &Terms) -> u64 {
    match terms.class {
        WorkClass::RealTime => level(CRITICAL) | delay_bound(params, terms).as_nanos(),
        WorkClass::Interactive => level(INTERACTIVE),
        WorkClass::Background => level(BACKGROUND),
    }
}

/// The order of one CPU. Every call is O(log n), or O(k log n) if k activities have become critical
/// since the last call.
#[derive(Debug)]
pub(crate) struct DeadlineWorkahead {
    /// By activity number; meaningful for activities that joined.
    members: Vec<Member>,
    /// Invariant: a ready activity is in exactly one queue. An activity in `WORKAHEAD` was not
    /// critical at the last `tick`.
    queues: [IndexedHeap<Rank>; 5],
    /// The ready activities with an event, by queue and key.
    eager: IndexedHeap<(usize, u64, EventRank)>,
    /// How many activities ever joined, for ties. Wraps after 4 billion.
    created: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    class: WorkClass,
    workahead_max: u32,
    tie: u32,
    /// The last job that became ready.
    job: Ready,
    /// The most urgent waiting event.
    first: Option<EventRank>,
    /// The event with which the job began.
    served: Option<EventRank>,
}

impl Member {
    /// The queue of the activity, and its rank there.
    fn place(&self, now: Instant) -> (usize, Rank) {
        let Ready { release, deadline, is_over_budget } = self.job;
        let (queue, key) = match self.class {
            WorkClass::RealTime if is_over_budget => (OVER_BUDGET, deadline),
            WorkClass::RealTime if release <= now => (CRITICAL, deadline),
            WorkClass::RealTime => (WORKAHEAD, release),
            WorkClass::Interactive => (INTERACTIVE, release),
            WorkClass::Background => (BACKGROUND, release),
        };
        (queue, Rank { key: key.as_nanos(), tie: self.tie })
    }

    /// The event by which the activity goes before others of equal rank.
    fn event(&self) -> Option<EventRank> {
        self.first.into_iter().chain(self.served).min()
    }
}

impl DeadlineWorkahead {
    pub(crate) fn new(capacity: u32) -> Self {
        let job = Ready::new(Instant::ZERO, Instant::ZERO);
        let class = WorkClass::RealTime;
        let empty = Member { class, workahead_max: 0, tie: 0, job, first: None, served: None };
        DeadlineWorkahead {
            members: vec![empty; capacity as usize],
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

    /// The best queue that is not empty, and its first activity.
    fn best_queued(&self) -> Option<(usize, Rank, u32)> {
        self.queues.iter().enumerate().find_map(|(queue, waiting)| {
            let (rank, number) = waiting.peek()?;
            Some((queue, rank, number))
        })
    }

    /// The activity that `pick` would return, its queue and its key.
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
        // The activity is in the queue into which the last `tick` put it.
        let job = member.job;
        for (queue, waiting) in self.queues.iter().enumerate() {
            if waiting.contains(id.0) {
                let by_deadline = matches!(queue, CRITICAL | OVER_BUDGET);
                let key = if by_deadline { job.deadline } else { job.release };
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

    fn rerank(&mut self, id: ActivityId, job: Ready, now: Instant) {
        self.members[id.0 as usize].job = job;
        if self.queues.iter().any(|waiting| waiting.contains(id.0)) {
            self.dequeue(id);
            self.enqueue(id, now);
        }
    }

    fn keeps_budget(&self, id: ActivityId) -> bool {
        self.members[id.0 as usize].class == WorkClass::RealTime
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

    /// The key has the level in its three highest bits.
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

    /// When the first of the activities that wait ahead becomes critical. O(1).
    fn next_event(&self) -> Instant {
        self.queues[WORKAHEAD]
            .peek()
            .map_or(Instant::FAR, |(rank, _)| Instant::from_nanos(rank.key))
    }

    /// Moves the activities that have become critical.
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
