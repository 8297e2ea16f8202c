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
//! Within a level equals go by creation. The paper leaves the last three orders
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

use super::heap::IndexedHeap;
use super::{Discipline, Policy, Rank, Ready, Standing};
use crate::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use crate::admission::dws;
use crate::time::{Instant, Span};

/// Deadline/workahead with delayed preemption.
pub static DWS: Discipline = Discipline {
    name: "dws",
    preemptive: false,
    time_quantum: None,
    across_domains: true,
    groups: Vec::new(),
    policy: |_, capacity| Box::new(DeadlineWorkahead::new(capacity)),
    // Ranks change from message to message: the order means nothing to `verdict`.
    order: |params| params.deadline.as_nanos(),
    verdict: |_, cpu, set, platform, steps| dws::verdict(cpu, set, platform, steps),
};

/// The queues, best first.
const CRITICAL: usize = 0;
const INTERACTIVE: usize = 1;
const WORKAHEAD: usize = 2;
const BACKGROUND: usize = 3;

/// Above every instant of 73 years.
fn level(queue: usize) -> u64 {
    (queue as u64) << 62
}

/// One CPU's order. Every call is O(log n), or O(k log n) if k activities have
/// become critical since the last.
#[derive(Debug)]
struct DeadlineWorkahead {
    /// By activity number; meaningful for those that joined.
    members: Vec<Member>,
    /// Invariant: a ready activity is in exactly one; who is in `WORKAHEAD` was
    /// not critical at the last `tick`.
    queues: [IndexedHeap<Rank>; 4],
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
}

impl DeadlineWorkahead {
    fn new(capacity: u32) -> Self {
        let job = Ready { release: Instant::ZERO, deadline: Instant::ZERO };
        let nobody = Member { class: WorkClass::RealTime, workahead_max: 0, tie: 0, job };
        DeadlineWorkahead {
            members: vec![nobody; capacity as usize],
            queues: core::array::from_fn(|_| IndexedHeap::with_capacity(capacity)),
            created: 0,
        }
    }

    fn enqueue(&mut self, id: ActivityId, now: Instant) {
        let (queue, rank) = self.members[id.0 as usize].place(now);
        self.queues[queue].set(rank, id.0);
    }

    /// The best queue that is not empty, and its first.
    fn best_queued(&self) -> Option<(usize, Rank, u32)> {
        self.queues.iter().enumerate().find_map(|(queue, waiting)| {
            let (rank, number) = waiting.peek()?;
            Some((queue, rank, number))
        })
    }
}

impl Policy for DeadlineWorkahead {
    fn join(&mut self, id: ActivityId, _: &ActivityParams, terms: &Terms, _: Instant) {
        let member = &mut self.members[id.0 as usize];
        member.class = terms.class;
        member.workahead_max = terms.workahead_max;
        member.tie = self.created;
        self.created = self.created.wrapping_add(1);
    }

    fn leave(&mut self, _: ActivityId, _: Instant) {}

    fn ready(&mut self, id: ActivityId, job: Ready, now: Instant) {
        self.members[id.0 as usize].job = job;
        self.enqueue(id, now);
    }

    fn withdraw(&mut self, id: ActivityId, _: Instant) {
        for queue in &mut self.queues {
            queue.remove(id.0);
        }
    }

    fn pick(&mut self, now: Instant) -> Option<ActivityId> {
        self.tick(now);
        let (queue, _, number) = self.best_queued()?;
        self.queues[queue].remove(number);
        Some(ActivityId(number))
    }

    fn has_ready(&self) -> bool {
        self.best_queued().is_some()
    }

    /// The level in the two highest bits.
    fn best(&self) -> Option<Standing> {
        let (queue, rank, number) = self.best_queued()?;
        Some(Standing { id: ActivityId(number), key: level(queue) | rank.key })
    }

    fn standing(&self, id: ActivityId, job: Ready, at: Instant) -> Option<Standing> {
        let member = Member { job, ..self.members[id.0 as usize] };
        let (queue, rank) = member.place(at);
        Some(Standing { id, key: level(queue) | rank.key })
    }

    fn gives_way(&mut self, running: ActivityId, _: Instant, now: Instant) -> bool {
        self.tick(now);
        let own = self.members[running.0 as usize].place(now);
        self.best_queued().is_some_and(|(queue, rank, _)| (queue, rank) < own)
    }

    fn resume(&mut self, id: ActivityId, now: Instant) {
        self.enqueue(id, now);
    }

    fn relative_deadline(&self, params: &ActivityParams, terms: &Terms) -> Span {
        dws::delay_bound(params, terms)
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
