//! RMDP: rate monotonic with delayed preemption (rtu-1995 §5.1, Figure 5; rtu-1996 §4.1).
//!
//! An activity is eligible from its release. Its rank is its period, which never changes. An
//! activity that has used its budget goes after all others ([`Ready::is_over_budget`]).
//! Preemption is *delayed* because ranks are compared only when a quantum of `b` PDUs is complete
//! ([`crate::scheduler::Input::Boundary`]). Between two boundaries nothing else runs on the same
//! CPU, so activities share data without locks.
//!
//! # Events
//!
//! Among activities with equal periods, the activity with the most urgent pending event goes first
//! (ecalls-2001 §2.4). Only an activity with [`Terms::wins_ties`] does so. It delays the activities
//! that it overtakes, and admission must account for that ([`crate::admission`], `response_time`).
//! Three rules make this safe and limit the number of hand-offs to the number that admission
//! charges:
//!
//! - An event counts when the scheduler picks, and preempts no activity of the same period.
//! - An activity that was picked with an event keeps its place until its job is done, even if the
//!   event was taken meanwhile. An earlier activity of the same period does not preempt it.
//! - Events do not count between different periods.

use super::{EventRank, KEY_OVER_BUDGET, Policy, Rank, Ready, Standing};
use crate::activity::{ActivityId, ActivityParams, Terms};
use crate::heap::IndexedHeap;
use crate::time::Instant;

/// Ranks activities by period. Every call is O(log n).
#[derive(Debug)]
pub(crate) struct RateMonotonic {
    /// By activity number; meaningful for activities that joined.
    members: Vec<Member>,
    ready: IndexedHeap<Rank>,
    /// The ready activities with an event, by period.
    eager: IndexedHeap<(u64, EventRank)>,
    /// How many activities ever joined, for ties. Wraps after 4 billion.
    created: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    rank: Rank,
    /// Whether the activity has used its budget.
    is_over_budget: bool,
    wins_ties: bool,
    /// The most urgent waiting event.
    first: Option<EventRank>,
    /// The event with which the job began.
    served: Option<EventRank>,
}

impl Member {
    /// The place among the ready activities.
    fn rank(&self) -> Rank {
        ranked(self.rank, self.is_over_budget)
    }

    /// The event by which the activity goes before others of the same period.
    fn event(&self) -> Option<EventRank> {
        let events = self.first.into_iter().chain(self.served);
        events.min().filter(|_| self.wins_ties)
    }
}

fn ranked(rank: Rank, is_over_budget: bool) -> Rank {
    Rank { key: if is_over_budget { rank.key | KEY_OVER_BUDGET } else { rank.key }, ..rank }
}

impl RateMonotonic {
    pub(crate) fn new(capacity: u32) -> Self {
        let rank = Rank { key: 0, tie: 0 };
        let empty =
            Member { rank, is_over_budget: false, wins_ties: false, first: None, served: None };
        RateMonotonic {
            members: vec![empty; capacity as usize],
            ready: IndexedHeap::with_capacity(capacity),
            eager: IndexedHeap::with_capacity(capacity),
            created: 0,
        }
    }

    fn enqueue(&mut self, id: ActivityId) {
        let member = &self.members[id.0 as usize];
        let rank = member.rank();
        self.ready.set(rank, id.0);
        match member.event() {
            Some(event) => self.eager.set((rank.key, event), id.0),
            None => self.eager.remove(id.0),
        }
    }

    fn dequeue(&mut self, id: ActivityId) {
        self.ready.remove(id.0);
        self.eager.remove(id.0);
    }

    /// The activity that `pick` would return.
    fn next(&self) -> Option<ActivityId> {
        let (rank, number) = self.ready.peek()?;
        match self.eager.peek() {
            Some(((key, _), eager)) if key == rank.key => Some(ActivityId(eager)),
            _ => Some(ActivityId(number)),
        }
    }

    fn set_first(&mut self, id: ActivityId, first: Option<EventRank>) {
        self.members[id.0 as usize].first = first;
        if self.ready.contains(id.0) {
            self.enqueue(id);
        }
    }
}

impl Policy for RateMonotonic {
    fn join(&mut self, id: ActivityId, params: &ActivityParams, terms: &Terms, _: Instant) {
        let rank = Rank { key: params.period.as_nanos(), tie: self.created };
        let wins_ties = terms.wins_ties;
        let (is_over_budget, first, served) = (false, None, None);
        self.members[id.0 as usize] = Member { rank, is_over_budget, wins_ties, first, served };
        self.created = self.created.wrapping_add(1);
    }

    fn leave(&mut self, _: ActivityId, _: Instant) {}

    fn ready(&mut self, id: ActivityId, job: Ready, _: Instant) {
        self.members[id.0 as usize].is_over_budget = job.is_over_budget;
        self.enqueue(id);
    }

    fn rerank(&mut self, id: ActivityId, job: Ready, _: Instant) {
        self.members[id.0 as usize].is_over_budget = job.is_over_budget;
        if self.ready.contains(id.0) {
            self.enqueue(id);
        }
    }

    fn keeps_budget(&self, _: ActivityId) -> bool {
        true
    }

    fn withdraw(&mut self, id: ActivityId, _: Instant) {
        self.members[id.0 as usize].served = None;
        self.dequeue(id);
    }

    fn pick(&mut self, _: Instant) -> Option<ActivityId> {
        let id = self.next()?;
        self.dequeue(id);
        let member = &mut self.members[id.0 as usize];
        member.served = member.event();
        Some(id)
    }

    fn has_ready(&self) -> bool {
        self.ready.peek().is_some()
    }

    fn best(&self) -> Option<Standing> {
        let (_, first) = self.ready.peek()?;
        let id = self.next()?;
        let member = &self.members[id.0 as usize];
        let event = member.event().map(|event| event.rank);
        Some(Standing { id, key: member.rank().key, event, first: ActivityId(first) })
    }

    fn standing(&self, id: ActivityId, job: Ready, _: Instant) -> Option<Standing> {
        let member = &self.members[id.0 as usize];
        let event = member.event().map(|event| event.rank);
        let key = ranked(member.rank, job.is_over_budget).key;
        Some(Standing { id, key, event, first: id })
    }

    fn served(&self, running: ActivityId) -> Option<u64> {
        self.members[running.0 as usize].served.map(|event| event.rank)
    }

    fn gives_way(&mut self, running: ActivityId, _: Instant, _: Instant) -> bool {
        let member = &self.members[running.0 as usize];
        let own = member.rank();
        self.ready.peek().is_some_and(|(best, _)| match member.served {
            Some(_) => best.key < own.key,
            None => best < own,
        })
    }

    fn resume(&mut self, id: ActivityId, _: Instant) {
        self.enqueue(id);
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
}
