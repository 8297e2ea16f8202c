//! Bounded queues, one for each destination, and counts of what passed and what was dropped.
//!
//! A full queue drops the packet that comes, so a flood to one destination takes no place of
//! another one (proportional-share-1998 §4.5). [`crate::quota::entries`] gives the size. An item is
//! the number of a buffer, or anything else.

use std::collections::VecDeque;

/// The most places that a queue takes memory for at once.
const PLACES_AT_ONCE: u32 = 1_024;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// No receiver has bound its destination.
    NoDestination,
    /// It came before the quota of its destination had room.
    OverQuota,
    /// The queue had no place.
    QueueFull,
    /// The receiver went away while the packet waited.
    Unbound,
}

/// How many reasons there are.
const REASONS: usize = 4;

/// A packet that was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped<T> {
    /// The packet.
    pub item: T,
    /// Why.
    pub reason: DropReason,
}

/// What happened to the packets of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken from the queue.
    pub passed: u64,
    dropped: [u64; REASONS],
}

impl Counts {
    /// Packets dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason, packets: u64) {
        self.dropped[reason as usize] += packets;
    }
}

#[derive(Clone, Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    entries: u32,
}

/// Queues of destinations by the number of their slots. Calls are O(1) if nothing else is stated,
/// and allocate only to bind and for queues beyond 1024 places.
#[derive(Clone, Debug)]
pub struct Queues<T> {
    queues: Vec<Option<Queue<T>>>,
    /// The counts of each slot, and at the end those of packets without a slot.
    counts: Vec<Counts>,
}

impl<T> Queues<T> {
    /// Queues for slots numbered `0..slots`, none bound.
    pub fn new(slots: u32) -> Self {
        let queues = (0..slots).map(|_| None).collect();
        Queues { queues, counts: vec![Counts::default(); slots as usize + 1] }
    }

    /// Gives `slot` an empty queue with `entries` places, or changes the places of its queue. Does
    /// nothing if there is no such slot. Packets above a smaller limit stay until they are taken.
    pub fn bind(&mut self, slot: u32, entries: u32) {
        let Some(place) = self.queues.get_mut(slot as usize) else { return };
        match place {
            Some(queue) => queue.entries = entries,
            None => {
                let items = VecDeque::with_capacity(entries.min(PLACES_AT_ONCE) as usize);
                *place = Some(Queue { items, entries });
            }
        }
    }

    /// Takes the queue of `slot` away, and returns its packets, which count as dropped.
    pub fn unbind(&mut self, slot: u32) -> impl Iterator<Item = T> + use<T> {
        let queue = self.queues.get_mut(slot as usize).and_then(Option::take);
        let items = queue.map(|queue| queue.items).unwrap_or_default();
        self.counts_mut(slot).count_drop(DropReason::Unbound, items.len() as u64);
        items.into_iter()
    }

    /// Whether `slot` has a queue.
    pub fn is_bound(&self, slot: u32) -> bool {
        self.queues.get(slot as usize).is_some_and(Option::is_some)
    }

    /// Puts a packet at the end of the queue of `slot`.
    ///
    /// # Errors
    /// If the slot has no queue, or no place in its queue. The packet counts as dropped.
    pub fn push(&mut self, slot: u32, item: T) -> Result<(), Dropped<T>> {
        let queue = self.queues.get_mut(slot as usize).and_then(Option::as_mut);
        let reason = match queue {
            None => DropReason::NoDestination,
            Some(queue) if queue.items.len() >= queue.entries as usize => DropReason::QueueFull,
            Some(queue) => {
                queue.items.push_back(item);
                return Ok(());
            }
        };
        self.count_drop(slot, reason);
        Err(Dropped { item, reason })
    }

    /// Takes the first packet of `slot`, which counts as passed.
    pub fn pop(&mut self, slot: u32) -> Option<T> {
        let queue = self.queues.get_mut(slot as usize)?.as_mut()?;
        let item = queue.items.pop_front()?;
        self.counts_mut(slot).passed += 1;
        Some(item)
    }

    /// The first packet of `slot`.
    pub fn head(&self, slot: u32) -> Option<&T> {
        self.queues.get(slot as usize)?.as_ref()?.items.front()
    }

    /// How many packets wait in `slot`.
    pub fn waiting(&self, slot: u32) -> usize {
        let queue = self.queues.get(slot as usize).and_then(Option::as_ref);
        queue.map_or(0, |queue| queue.items.len())
    }

    /// Counts a packet of `slot` that was dropped before it came to the queue.
    pub fn count_drop(&mut self, slot: u32, reason: DropReason) {
        self.counts_mut(slot).count_drop(reason, 1);
    }

    /// Counts a packet of `slot` that was taken from a queue elsewhere.
    pub(crate) fn count_pass(&mut self, slot: u32) {
        self.counts_mut(slot).passed += 1;
    }

    /// Makes the counts of `slot` 0, for another destination.
    pub fn clear_counts(&mut self, slot: u32) {
        *self.counts_mut(slot) = Counts::default();
    }

    /// What happened to the packets of `slot`, since the beginning. Of a number that is no slot:
    /// what happened to packets without one.
    pub fn counts(&self, slot: u32) -> Counts {
        self.counts[(slot as usize).min(self.queues.len())]
    }

    fn counts_mut(&mut self, slot: u32) -> &mut Counts {
        let last = self.queues.len();
        &mut self.counts[(slot as usize).min(last)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_queue_drops_what_comes_and_keeps_the_order() {
        let mut queues = Queues::new(1);
        queues.bind(0, 2);
        assert_eq!((queues.push(0, 'a'), queues.push(0, 'b')), (Ok(()), Ok(())));
        let full = Dropped { item: 'c', reason: DropReason::QueueFull };
        assert_eq!(queues.push(0, 'c'), Err(full));
        assert_eq!((queues.pop(0), queues.pop(0), queues.pop(0)), (Some('a'), Some('b'), None));
        let counts = queues.counts(0);
        assert_eq!((counts.passed, counts.dropped(DropReason::QueueFull)), (2, 1));
    }

    #[test]
    fn a_packet_without_a_receiver_is_counted() {
        let mut queues = Queues::new(1);
        for slot in [0, 7, u32::MAX] {
            assert_eq!(queues.push(slot, 'a').unwrap_err().reason, DropReason::NoDestination);
        }
        assert_eq!(queues.counts(0).dropped(DropReason::NoDestination), 1);
        assert_eq!(queues.counts(u32::MAX).dropped(DropReason::NoDestination), 2);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(u32),
        Pop(u32),
        Bind(u32, u32),
        Unbind(u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u32..4).prop_map(Step::Push),
            4 => (0u32..4).prop_map(Step::Pop),
            1 => (0u32..4, 0u32..4).prop_map(|(slot, entries)| Step::Bind(slot, entries)),
            1 => (0u32..4).prop_map(Step::Unbind),
        ]
    }

    proptest! {
        #[test]
        fn counts_add_up(steps in prop::collection::vec(any_step(), 0..300)) {
            let mut queues = Queues::new(3);
            let mut offered = [0u64; 4];
            for step in steps {
                match step {
                    Step::Push(slot) => {
                        offered[slot as usize] += 1;
                        let _ = queues.push(slot, ());
                    }
                    Step::Pop(slot) => drop(queues.pop(slot)),
                    Step::Bind(slot, entries) => queues.bind(slot, entries),
                    Step::Unbind(slot) => drop(queues.unbind(slot)),
                }
                for slot in 0..4u32 {
                    let counts = queues.counts(slot);
                    let waiting = queues.waiting(slot) as u64;
                    let sum = counts.passed + counts.dropped_in_all() + waiting;
                    prop_assert_eq!(sum, offered[slot as usize]);
                }
            }
        }

        #[test]
        fn a_flood_to_one_destination_drops_no_packet_of_another(
            entries in 1u32..5,
            flood in 0usize..200,
            others in 0u32..5,
        ) {
            let mut queues = Queues::new(2);
            queues.bind(0, entries);
            queues.bind(1, entries);
            for _ in 0..flood {
                let _ = queues.push(0, ());
            }
            for _ in 0..others.min(entries) {
                prop_assert!(queues.push(1, ()).is_ok());
            }
            prop_assert_eq!(queues.counts(1).dropped_in_all(), 0);
        }
    }
}
