//! Which packet the protocol activity processes next.
//!
//! The paper compares three ways (proportional-share-1998 §5, Tables 3 to 5), each a [`Service`].
//! The last one is the scheduler inside the activity that §4.5 asks for:
//!
//! ```text
//! turn          = max(arrival, turn of the packet before + interval)
//! eligible time = max(arrival, turn - (packets at once - 1) * interval)
//! deadline      = turn + interval
//! ```
//!
//! and the destination is served whose first packet is eligible and has the earliest deadline. The
//! paper has one packet at once, so that turn and eligible time are the same. A burst that was
//! declared ([`Quota::at_once`]) is eligible when it comes, but its deadlines stay an interval
//! apart, so it does not go before packets of others that are as urgent.
//! These are times of the clock, and not of service. A packet that is not eligible waits even if
//! the activity has nothing else to do: its receiver would not take it, so it would be dropped at
//! the socket after it was processed. Therefore this is not one more [account of
//! PS](upcall_core::policy::ps::Instance), which never withholds service.
//!
//! The activity calls [`PacketSchedule::begin`] when it gets the CPU, then
//! [`PacketSchedule::next`] until `None`. The number of packets at a time is bounded, so the
//! activity gives way at the end of a quantum (§4.2).

use crate::queues::{Counts, DropReason, Dropped, Queues};
use crate::quota::Quota;
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use upcall_core::time::{Instant, Span};

/// How packets wait and are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// In one queue with as many `entries`, first come, first served (Table 3).
    OneQueue {
        /// The places that all destinations share.
        entries: u32,
    },
    /// In a queue for each destination. A queue is served until it is empty (Table 4).
    Exhaustion,
    /// In a queue for each destination, by eligible times and deadlines (Table 5).
    Eligible,
}

/// A heap with the earliest instant on top. A slot is at most once in it.
type Earliest = BinaryHeap<Reverse<(Instant, u32)>>;

/// The packets that wait for the protocol activity.
#[derive(Clone, Debug)]
pub struct PacketSchedule<T> {
    service: Service,
    /// The packets with the times of their arrivals. Under [`Service::OneQueue`] these are empty,
    /// and count.
    queues: Queues<(Instant, T)>,
    intervals: Vec<Span>,
    /// How long before its turn a packet is eligible.
    ahead: Vec<Span>,
    /// The earliest turn of the next packet of a slot.
    next_turn: Vec<Instant>,
    /// [`Service::Eligible`]: slots by the eligible times of their first packets.
    waiting: Earliest,
    /// [`Service::Eligible`]: slots with an eligible packet, by deadline.
    eligible: Earliest,
    /// [`Service::Exhaustion`]: slots with packets, in the order of their first ones.
    filled: VecDeque<u32>,
    /// [`Service::OneQueue`].
    one: VecDeque<(u32, T)>,
    /// How many more packets this activation may take.
    left: u32,
}

impl<T> PacketSchedule<T> {
    /// A schedule for slots numbered `0..slots`, none bound.
    pub fn new(service: Service, slots: u32) -> Self {
        let capacity = slots as usize;
        PacketSchedule {
            service,
            queues: Queues::new(slots),
            intervals: vec![Span::ZERO; capacity],
            ahead: vec![Span::ZERO; capacity],
            next_turn: vec![Instant::ZERO; capacity],
            waiting: BinaryHeap::with_capacity(capacity),
            eligible: BinaryHeap::with_capacity(capacity),
            filled: VecDeque::with_capacity(capacity),
            one: VecDeque::new(),
            left: 0,
        }
    }

    /// Binds `slot`: its queue has the depth of the quota, and its packets have turns an interval
    /// apart. Of a bound slot, this changes both from the next packet on. O(1).
    pub fn bind(&mut self, slot: u32, quota: Quota) {
        let Some(interval) = self.intervals.get_mut(slot as usize) else { return };
        *interval = Span::from_nanos(quota.interval_ns);
        let others = u64::from(quota.at_once.max(1) - 1);
        self.ahead[slot as usize] = Span::from_nanos(quota.interval_ns.saturating_mul(others));
        self.queues.bind(slot, quota.depth.max(1));
    }

    /// Unbinds `slot`, and returns its packets, which count as dropped. O(n). Allocates.
    #[must_use = "the packets may be frames that somebody must free"]
    pub fn unbind(&mut self, slot: u32) -> Vec<T> {
        let mut dropped: Vec<T> = self.queues.unbind(slot).map(|(_, item)| item).collect();
        for _ in 0..self.one.len() {
            match self.one.pop_front() {
                Some((of, item)) if of == slot => {
                    self.queues.count_drop(slot, DropReason::Unbound);
                    dropped.push(item);
                }
                Some(other) => self.one.push_back(other),
                None => break,
            }
        }
        self.filled.retain(|of| *of != slot);
        self.waiting.retain(|Reverse((_, of))| *of != slot);
        self.eligible.retain(|Reverse((_, of))| *of != slot);
        if let Some(next) = self.next_turn.get_mut(slot as usize) {
            *next = Instant::ZERO;
        }
        dropped
    }

    /// A packet for `slot` came at `now`. O(log n).
    ///
    /// # Errors
    /// If no receiver is bound there, or if the queue is full. The packet counts as dropped.
    pub fn push(&mut self, slot: u32, item: T, now: Instant) -> Result<(), Dropped<T>> {
        if let Service::OneQueue { entries } = self.service {
            let reason = if !self.queues.is_bound(slot) {
                DropReason::NoDestination
            } else if self.one.len() >= entries as usize {
                DropReason::QueueFull
            } else {
                self.one.push_back((slot, item));
                return Ok(());
            };
            self.queues.count_drop(slot, reason);
            return Err(Dropped { item, reason });
        }
        let pushed = self.queues.push(slot, (now, item));
        pushed.map_err(|Dropped { item: (_, item), reason }| Dropped { item, reason })?;
        if self.queues.waiting(slot) == 1 {
            self.enter(slot);
        }
        Ok(())
    }

    /// The activity has the CPU, for at most `batch` packets.
    pub fn begin(&mut self, batch: u32) {
        self.left = batch;
    }

    /// The packet to process at `now`, and its slot. `None` if the batch is done, or if no packet
    /// may be processed now. O(log n).
    pub fn next(&mut self, now: Instant) -> Option<(u32, T)> {
        self.left = self.left.checked_sub(1)?;
        let taken = match self.service {
            Service::OneQueue { .. } => {
                let first = self.one.pop_front();
                if let Some((slot, _)) = &first {
                    self.queues.count_pass(*slot);
                }
                first
            }
            Service::Exhaustion => self.next_of_filled(),
            Service::Eligible => self.next_eligible_at(now),
        };
        if taken.is_none() {
            self.left = 0;
        }
        taken
    }

    /// When the activity has something to do: not after now if a packet may be processed at once,
    /// `None` without packets. O(1).
    pub fn next_at(&self) -> Option<Instant> {
        let first = |heap: &Earliest| heap.peek().map(|Reverse((at, _))| *at);
        match self.service {
            Service::OneQueue { .. } => (!self.one.is_empty()).then_some(Instant::ZERO),
            Service::Exhaustion => (!self.filled.is_empty()).then_some(Instant::ZERO),
            Service::Eligible if !self.eligible.is_empty() => Some(Instant::ZERO),
            Service::Eligible => first(&self.waiting),
        }
    }

    /// Counts a packet of `slot` that was dropped before it came here, as by a quota.
    pub fn count_drop(&mut self, slot: u32, reason: DropReason) {
        self.queues.count_drop(slot, reason);
    }

    /// How many packets of `slot` wait.
    pub fn waiting(&self, slot: u32) -> usize {
        self.queues.waiting(slot)
    }

    /// Makes the counts of `slot` 0, for another destination ([`Queues::clear_counts`]).
    pub fn clear_counts(&mut self, slot: u32) {
        self.queues.clear_counts(slot);
    }

    /// What happened to the packets of `slot` ([`Queues::counts`]).
    pub fn counts(&self, slot: u32) -> Counts {
        self.queues.counts(slot)
    }

    /// The slot has a new first packet.
    fn enter(&mut self, slot: u32) {
        match self.service {
            Service::OneQueue { .. } => {}
            Service::Exhaustion => self.filled.push_back(slot),
            Service::Eligible => {
                let Some((arrival, _)) = self.queues.head(slot) else { return };
                let turn = self.next_turn[slot as usize].max(*arrival);
                let at = (turn - self.ahead[slot as usize]).max(*arrival);
                self.next_turn[slot as usize] = turn + self.intervals[slot as usize];
                self.waiting.push(Reverse((at, slot)));
            }
        }
    }

    fn next_of_filled(&mut self) -> Option<(u32, T)> {
        let slot = *self.filled.front()?;
        let (_, item) = self.queues.pop(slot)?;
        if self.queues.waiting(slot) == 0 {
            self.filled.pop_front();
        }
        Some((slot, item))
    }

    fn next_eligible_at(&mut self, now: Instant) -> Option<(u32, T)> {
        while let Some(&Reverse((at, slot))) = self.waiting.peek() {
            if at > now {
                break;
            }
            self.waiting.pop();
            // Its deadline: an interval after its turn.
            self.eligible.push(Reverse((self.next_turn[slot as usize], slot)));
        }
        let Reverse((_, slot)) = self.eligible.pop()?;
        let (_, item) = self.queues.pop(slot)?;
        if self.queues.waiting(slot) > 0 {
            self.enter(slot);
        }
        Some((slot, item))
    }
}

#[cfg(test)]
mod tests;
