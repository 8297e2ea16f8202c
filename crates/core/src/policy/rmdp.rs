//! RMDP: rate monotonic with delayed preemption (rtu-1995 §5.1, Figure 5;
//! rtu-1996 §4.1).
//!
//! An activity is eligible from its release, and its rank is its period, which
//! never changes. What makes it *delayed* preemption is not the rank but where
//! it is looked at: only when a quantum of `b` PDUs is complete
//! ([`crate::scheduler::Input::Boundary`]). Between two boundaries nothing
//! else of the same CPU runs, so activities share data without locks.

use super::heap::IndexedHeap;
use super::{Discipline, Policy, Rank, Ready, Standing};
use crate::activity::{ActivityId, ActivityParams, Terms};
use crate::admission::Verdict;
use crate::time::Instant;

/// Rate monotonic with delayed preemption.
pub static RMDP: Discipline = Discipline {
    name: "rmdp",
    preemptive: false,
    time_quantum: None,
    across_domains: true,
    groups: Vec::new(),
    policy: |_, capacity| Box::new(RateMonotonic::new(capacity)),
    order: |params| params.period.as_nanos(),
    verdict: |_, cpu, set, platform, steps| {
        Verdict::of_fixed_priority(cpu, set, platform, steps, true)
    },
};

/// Ranks by period. Every call is O(log n).
#[derive(Debug)]
pub(super) struct RateMonotonic {
    /// By activity number; meaningful for those that joined.
    ranks: Vec<Rank>,
    ready: IndexedHeap<Rank>,
    /// Activities that ever joined, for ties. Wraps after 4 billion.
    created: u32,
}

impl RateMonotonic {
    pub(super) fn new(capacity: u32) -> Self {
        RateMonotonic {
            ranks: vec![Rank { key: 0, tie: 0 }; capacity as usize],
            ready: IndexedHeap::with_capacity(capacity),
            created: 0,
        }
    }

    fn enqueue(&mut self, id: ActivityId) {
        self.ready.set(self.ranks[id.0 as usize], id.0);
    }
}

impl Policy for RateMonotonic {
    fn join(&mut self, id: ActivityId, params: &ActivityParams, _: &Terms, _: Instant) {
        self.ranks[id.0 as usize] = Rank { key: params.period.as_nanos(), tie: self.created };
        self.created = self.created.wrapping_add(1);
    }

    fn leave(&mut self, _: ActivityId, _: Instant) {}

    fn ready(&mut self, id: ActivityId, _: Ready, _: Instant) {
        self.enqueue(id);
    }

    fn withdraw(&mut self, id: ActivityId, _: Instant) {
        self.ready.remove(id.0);
    }

    fn pick(&mut self, _: Instant) -> Option<ActivityId> {
        let (_, number) = self.ready.peek()?;
        self.ready.remove(number);
        Some(ActivityId(number))
    }

    fn has_ready(&self) -> bool {
        self.ready.peek().is_some()
    }

    fn best(&self) -> Option<Standing> {
        let (rank, number) = self.ready.peek()?;
        Some(Standing { id: ActivityId(number), key: rank.key })
    }

    fn standing(&self, id: ActivityId, _: Ready, _: Instant) -> Option<Standing> {
        Some(Standing { id, key: self.ranks[id.0 as usize].key })
    }

    fn gives_way(&mut self, running: ActivityId, _: Instant, _: Instant) -> bool {
        self.ready.peek().is_some_and(|(best, _)| best < self.ranks[running.0 as usize])
    }

    fn resume(&mut self, id: ActivityId, _: Instant) {
        self.enqueue(id);
    }
}
