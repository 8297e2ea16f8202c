//! A binary heap of activities with removal by number.
//!
//! The scheduler and the policies use it for their queues. The smallest key is on top. Every
//! activity is in the heap at most once. The heap takes its memory once, at creation; no operation
//! allocates.

/// Marks an activity that is not in the heap.
const ABSENT: u32 = u32::MAX;

/// Min-heap of `(key, activity number)`, numbers below the capacity.
#[derive(Debug)]
pub(crate) struct IndexedHeap<K> {
    entries: Vec<(K, u32)>,
    /// The index of each activity in `entries`. Invariant: for each `i` in range,
    /// `place[entries[i].1] == i`, and every other place is `ABSENT`.
    place: Vec<u32>,
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// An empty heap for activities numbered `0..capacity`.
    pub(crate) fn with_capacity(capacity: u32) -> Self {
        let capacity = capacity as usize;
        IndexedHeap { entries: Vec::with_capacity(capacity), place: vec![ABSENT; capacity] }
    }

    /// The smallest entry. O(1).
    #[inline]
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Whether the heap is empty. O(1).
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether `number` is in the heap. O(1).
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.place[number as usize] != ABSENT
    }

    /// Inserts `number`, or moves it if it is in the heap already. O(log n).
    #[inline]
    pub(crate) fn set(&mut self, key: K, number: u32) {
        let at = match self.place[number as usize] {
            ABSENT => {
                self.entries.push((key, number));
                self.entries.len() - 1
            }
            at => at as usize,
        };
        self.settle(at, (key, number));
    }

    /// Removes `number`, if it is in the heap. O(log n).
    #[inline]
    pub(crate) fn remove(&mut self, number: u32) {
        let at = self.place[number as usize];
        if at == ABSENT {
            return;
        }
        self.place[number as usize] = ABSENT;
        let at = at as usize;
        if let Some(last) = self.entries.pop()
            && at < self.entries.len()
        {
            self.settle(at, last);
        }
    }

    /// Calls `visit` for every number whose key is below `bound`, in no particular order, until
    /// `visit` returns `false`. Returns `true` if every call of `visit` returned `true`. O(k) for k
    /// visited entries.
    pub(crate) fn all_below(&self, bound: K, visit: &mut impl FnMut(u32) -> bool) -> bool {
        self.all_below_from(0, bound, visit)
    }

    /// Like [`Self::all_below`], for the entry at `at` and all entries below it. The recursion is
    /// as deep as the heap: log n.
    fn all_below_from(&self, at: usize, bound: K, visit: &mut impl FnMut(u32) -> bool) -> bool {
        match self.entries.get(at) {
            Some(&(key, number)) if key < bound => {
                visit(number)
                    && self.all_below_from(2 * at + 1, bound, visit)
                    && self.all_below_from(2 * at + 2, bound, visit)
            }
            _ => true,
        }
    }

    /// Puts `entry` to its place in the order. The place at `at` is free.
    fn settle(&mut self, mut at: usize, entry: (K, u32)) {
        while at > 0 {
            let parent = (at - 1) / 2;
            let above = self.entries[parent];
            if above <= entry {
                break;
            }
            self.put(at, above);
            at = parent;
        }
        loop {
            let left = 2 * at + 1;
            let (child, below) = match (self.entries.get(left), self.entries.get(left + 1)) {
                (Some(first), Some(second)) if second < first => (left + 1, *second),
                (Some(first), _) => (left, *first),
                (None, _) => break,
            };
            if entry <= below {
                break;
            }
            self.put(at, below);
            at = child;
        }
        self.put(at, entry);
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at < capacity, a u32")]
    fn put(&mut self, at: usize, entry: (K, u32)) {
        self.entries[at] = entry;
        self.place[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::IndexedHeap;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// After any sequence of `set` and `remove` the heap has the same smallest entry as a
        /// sorted map.
        #[test]
        fn behaves_like_a_sorted_map(
            ops in prop::collection::vec((any::<bool>(), 0u64..50, 0u32..20), 0..200),
        ) {
            let mut heap = IndexedHeap::with_capacity(20);
            let mut model = BTreeMap::new();
            for (insert, key, number) in ops {
                if insert {
                    heap.set(key, number);
                    model.insert(number, key);
                } else {
                    heap.remove(number);
                    model.remove(&number);
                }
                prop_assert_eq!(heap.contains(number), model.contains_key(&number));
                let smallest = model.iter().map(|(&number, &key)| (key, number)).min();
                prop_assert_eq!(heap.peek(), smallest);
                let mut below = Vec::new();
                let whole = heap.all_below(key, &mut |number| {
                    below.push(number);
                    true
                });
                below.sort_unstable();
                let smaller = model.iter().filter(|&(_, &other)| other < key);
                let expected: Vec<u32> = smaller.map(|(&number, _)| number).collect();
                prop_assert!(whole);
                prop_assert_eq!(below, expected);
            }
        }
    }
}
