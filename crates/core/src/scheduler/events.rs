//! The events that wait for the activities of one scheduler, the most urgent of each activity first
//! (ecalls-2001 §2.1: the *event queue*).
//!
//! Only [`super`] uses this module. The scheduler reports the first event of each activity to the
//! policy; the policy picks the activity. There are two bounds. All activities together have at
//! most [`EVENTS_MAX_IN_ALL`] events. No activity has more than [`EVENTS_MAX`] events, so an
//! activity whose events are never taken cannot use up the common pool.
//!
//! Each activity has a leftist heap (Knuth, *The Art of Computer Programming* 3, §5.2.3). All nodes
//! are in one pool, which is allocated once. Adding and taking an event is O(log k) for k events of
//! the activity, also in the worst case. No operation allocates.

use crate::activity::ActivityId;
use crate::policy::EventRank;

/// The most events that may wait for one activity.
pub const EVENTS_MAX: u32 = 64;

/// The most events that may wait in one scheduler: those of 1,024 activities with `EVENTS_MAX`
/// each.
pub const EVENTS_MAX_IN_ALL: u32 = 1 << 16;

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    rank: EventRank,
    /// `NONE`, or a node of a later rank. In a free node, `left` is the next free node.
    left: u32,
    right: u32,
    /// The number of nodes from here to the nearest missing child. Invariant: the height of `left`
    /// is not below that of `right`, so the path along `right` has at most log2 n nodes.
    height: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    first: u32,
    count: u32,
}

/// The queue of all activities; the [module](self) describes it.
#[derive(Debug)]
pub(super) struct EventQueue {
    pool: Vec<Node>,
    free: u32,
    /// By activity number.
    waiting: Vec<Waiting>,
    /// The number of events ever posted.
    posted: u64,
}

impl EventQueue {
    /// An empty queue for activities numbered `0..capacity`.
    pub(super) fn with_capacity(capacity: u32) -> Self {
        let nodes = capacity.saturating_mul(EVENTS_MAX).min(EVENTS_MAX_IN_ALL);
        EventQueue {
            pool: Vec::with_capacity(nodes as usize),
            free: NONE,
            waiting: vec![Waiting { first: NONE, count: 0 }; capacity as usize],
            posted: 0,
        }
    }

    /// Adds an event and returns the most urgent event of the activity. `None` if a bound is
    /// reached. `id` is below the capacity. O(log k).
    pub(super) fn post(&mut self, id: ActivityId, rank: u64) -> Option<EventRank> {
        let Waiting { first, count } = self.waiting[id.0 as usize];
        if count >= EVENTS_MAX {
            return None;
        }
        let rank = EventRank { rank, posted: self.posted };
        let node = self.node(Node { rank, left: NONE, right: NONE, height: 1 })?;
        self.posted += 1;
        let first = self.merged(first, node);
        self.waiting[id.0 as usize] = Waiting { first, count: count + 1 };
        Some(self.pool[first as usize].rank)
    }

    /// Removes this many events, the most urgent first, or all if there are fewer. Returns how many
    /// it removed. O(log k) for each.
    pub(super) fn take(&mut self, id: ActivityId, events: u32) -> u32 {
        let Waiting { mut first, count } = self.waiting[id.0 as usize];
        let taken = events.min(count);
        for _ in 0..taken {
            let Node { left, right, .. } = self.pool[first as usize];
            self.pool[first as usize].left = self.free;
            self.free = first;
            first = self.merged(left, right);
        }
        self.waiting[id.0 as usize] = Waiting { first, count: count - taken };
        taken
    }

    /// The most urgent event. O(1).
    pub(super) fn first(&self, id: ActivityId) -> Option<EventRank> {
        let waiting = self.waiting.get(id.0 as usize)?;
        self.pool.get(waiting.first as usize).map(|node| node.rank)
    }

    /// The number of events. O(1).
    pub(super) fn count(&self, id: ActivityId) -> u32 {
        self.waiting.get(id.0 as usize).map_or(0, |waiting| waiting.count)
    }

    /// Stores a node, if the pool has a free place.
    fn node(&mut self, node: Node) -> Option<u32> {
        if self.free != NONE {
            let at = self.free;
            self.free = self.pool[at as usize].left;
            self.pool[at as usize] = node;
            return Some(at);
        }
        if self.pool.len() == self.pool.capacity().min(EVENTS_MAX_IN_ALL as usize) {
            return None;
        }
        self.pool.push(node);
        u32::try_from(self.pool.len() - 1).ok()
    }

    /// Merges two heaps and returns the first node. The recursion is as deep as both right paths
    /// together.
    fn merged(&mut self, a: u32, b: u32) -> u32 {
        if a == NONE || b == NONE {
            return a.min(b);
        }
        let before = self.pool[a as usize].rank < self.pool[b as usize].rank;
        let (top, below) = if before { (a, b) } else { (b, a) };
        let right = self.merged(self.pool[top as usize].right, below);
        let left = self.pool[top as usize].left;
        let (left, right) = match self.height(left) < self.height(right) {
            true => (right, left),
            false => (left, right),
        };
        let height = self.height(right) + 1;
        self.pool[top as usize] = Node { left, right, height, ..self.pool[top as usize] };
        top
    }

    fn height(&self, at: u32) -> u32 {
        self.pool.get(at as usize).map_or(0, |node| node.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_activity_cannot_use_up_the_common_pool() {
        let mut queue = EventQueue::with_capacity(2_000);
        let all = |queue: &mut EventQueue, id| {
            (0..u64::from(EVENTS_MAX) + 1).filter(|&rank| queue.post(id, rank).is_some()).count()
        };
        for number in 0..EVENTS_MAX_IN_ALL / EVENTS_MAX {
            assert_eq!(all(&mut queue, ActivityId(number)), EVENTS_MAX as usize);
        }
        let last = ActivityId(1_999);
        assert_eq!(queue.post(last, 0), None);
        assert_eq!(queue.take(ActivityId(7), 3), 3);
        assert_eq!(all(&mut queue, last), 3);
    }

    proptest! {
        /// After any posts and takes the queue holds the same events as sorted lists, and its pool
        /// has not grown.
        #[test]
        fn behaves_like_sorted_lists(
            ops in prop::collection::vec((0u32..3, 0u64..9, 0u32..12), 0..400),
        ) {
            let mut queue = EventQueue::with_capacity(3);
            let (capacity, mut posted) = (queue.pool.capacity(), 0);
            let mut lists = vec![Vec::new(); 3];
            for (number, rank, amount) in ops {
                let (id, list) = (ActivityId(number), &mut lists[number as usize]);
                if amount < 9 {
                    let room = list.len() < EVENTS_MAX as usize;
                    let first = queue.post(id, rank);
                    if room {
                        list.push(EventRank { rank, posted });
                        list.sort();
                        posted += 1;
                    }
                    prop_assert_eq!(first, list.first().copied().filter(|_| room));
                } else {
                    let taken = (amount as usize - 8).min(list.len());
                    prop_assert_eq!(queue.take(id, amount - 8) as usize, taken);
                    list.drain(..taken);
                }
                prop_assert_eq!(queue.first(id), list.first().copied());
                prop_assert_eq!(queue.count(id) as usize, list.len());
                prop_assert_eq!(queue.pool.capacity(), capacity);
            }
        }
    }
}
