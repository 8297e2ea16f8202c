//! The end of a user area that writes.

use super::{Counters, Mask, NEVER, Pending, Slot, layout, sized};
use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, DomainId, LayoutError, Ordering};
use Ordering::{Relaxed, Release, SeqCst};
use core::fmt;
use layout::{KIND, word};

/// A domain's end of its own area on one CPU. It publishes the state of the domain.
///
/// The owner keeps a copy of what it published and never reads the memory. So a change of the
/// memory by another process does not change the domain's own view. `W` is the memory.
#[derive(Debug)]
pub struct Owner<W> {
    words: Words<W>,
    sequence: u64,
    ready: Option<Pending>,
    slots: Box<[Slot]>,
    /// The slots from this number on were never set.
    slots_used: usize,
    /// The same number, as published.
    slots_used_before: usize,
    /// A bit for each slot: set since the last publication.
    changed: Box<[u64]>,
    preemption_mask: u32,
    interrupt_mask: u32,
}

impl<W: AsRef<[AtomicU64]>> Owner<W> {
    /// Makes `words` ([`super::words_of`] some pages) the area of `domain` with `generation`. The
    /// words must be 0 and not shared yet. Nothing is ready. Allocates a copy of the slots. Touches
    /// only the header and the first page of slots. The owner writes the other pages before it uses
    /// them.
    ///
    /// # Errors
    /// The length is wrong, or a word is not 0.
    pub fn create(words: W, domain: DomainId, generation: u64) -> Result<Self, LayoutError> {
        let (words, slots) = sized(words)?;
        words.check_unused(KIND, |word| word < super::words_of(1))?;
        words.mark(KIND);
        // Relaxed: the hand-over of the memory orders these stores.
        words.store(word::DOMAIN, u64::from(domain.number()), Relaxed);
        words.store(word::GENERATION, generation, Relaxed);
        words.store(word::SLOTS, slots as u64, Relaxed);
        words.store(word::READY_KEY, NEVER, Relaxed);
        words.store(word::READY_EVENT, NEVER, Relaxed);
        let owner = Owner {
            words,
            sequence: 0,
            ready: None,
            slots: vec![Slot::FREE; slots].into(),
            slots_used: 0,
            slots_used_before: 0,
            changed: vec![0; slots.div_ceil(64)].into(),
            preemption_mask: 0,
            interrupt_mask: 0,
        };
        owner.count(&Counters::default());
        Ok(owner)
    }

    /// The memory, to be handed to peers.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Sets the content that the next [`Self::publish`] publishes of slot `index`. Writes nothing
    /// to memory now, and nothing later if the slot has not changed. O(1), except for the first use
    /// of a slot, which frees all slots below it.
    ///
    /// # Errors
    /// The area has no such slot.
    pub fn set(&mut self, index: usize, slot: Slot) -> Result<(), NoSlot> {
        let slots = self.slots.len();
        let known = self.slots.get_mut(index).ok_or(NoSlot { index, slots })?;
        if index >= self.slots_used {
            // Unused slots are 0 in memory, which is not a free slot. So they are written too.
            (self.slots_used..=index).for_each(|slot| mark(&mut self.changed, slot));
            self.slots_used = index + 1;
        }
        if *known != slot {
            *known = slot;
            mark(&mut self.changed, index);
        }
        Ok(())
    }

    /// Publishes `ready`, the best rank of what is ready or runs, and all slots that were set.
    /// `None`: nothing is ready or runs. A key of [`NEVER`] counts as one less.
    ///
    /// `false`: nothing has changed, and nothing was written. Otherwise costs at most 7 stores, and
    /// 4 more for each changed slot. A caller without the turn then calls
    /// [`crate::turn_page::TurnPage::set_need_resched`].
    pub fn publish(&mut self, ready: Option<Pending>) -> bool {
        let bits = self.changed.len().min(self.slots_used.div_ceil(64));
        if ready == self.ready && self.changed[..bits].iter().all(|&bits| bits == 0) {
            return false;
        }
        // Relaxed, before a Release fence. A peer that reads a word stored after the fence also
        // reads this sequence or a later one after its own fence (`Peer::try_read`).
        self.words.store(word::SEQUENCE, self.sequence.wrapping_add(1), Relaxed);
        barrier(Edge::SequenceOdd, Release);
        if ready != self.ready {
            let key = ready.map_or(NEVER, |ready| ready.rank.key.min(NEVER - 1));
            self.words.store(word::READY_KEY, key, Relaxed);
            let orders = |of: Pending| u64::from(of.rank.order) | u64::from(of.first) << 32;
            self.words.store(word::READY_ORDERS, ready.map_or(0, orders), Relaxed);
            let event = ready.map_or(NEVER, |ready| ready.rank.event);
            self.words.store(word::READY_EVENT, event, Relaxed);
            let since_ns = ready.map_or(0, |ready| ready.since_ns);
            self.words.store(word::READY_SINCE_NS, since_ns, Relaxed);
            self.ready = ready;
        }
        for (index, bits) in self.changed[..bits].iter_mut().enumerate() {
            while *bits != 0 {
                let slot = index * 64 + bits.trailing_zeros() as usize;
                *bits &= *bits - 1;
                write(&self.words, slot, &self.slots[slot]);
            }
        }
        if self.slots_used != self.slots_used_before {
            self.words.store(word::SLOTS_USED, self.slots_used as u64, Relaxed);
            self.slots_used_before = self.slots_used;
        }
        self.sequence = self.sequence.wrapping_add(2);
        // Release pairs with the Acquire in `Peer::try_read`.
        self.words.store(word::SEQUENCE, self.sequence, ordering(Edge::SequenceEven, Release));
        true
    }

    /// Publishes what runs: the slot upcalled at `at_ns` (`CLOCK_MONOTONIC`), or nothing since
    /// then. Costs two stores, for each upcall.
    #[inline]
    pub fn set_running(&self, slot: Option<usize>, at_ns: u64) {
        // Relaxed, here and below: it hands nothing over.
        self.words.store(word::RUNNING, slot.map_or(0, |slot| slot as u64 + 1), Relaxed);
        self.words.store(word::UPCALLED_AT_NS, at_ns, Relaxed);
    }

    /// Publishes that the domain asked at `at_ns` whether it may go on. Costs one store, for each
    /// boundary.
    #[inline]
    pub fn set_asked(&self, at_ns: u64) {
        self.words.store(word::ASKED_AT_NS, at_ns, Relaxed);
    }

    /// Publishes whether a wake-up of the domain may leave no sign in its wake word: the domain
    /// also sleeps on words of streams or channels. Costs one store.
    pub fn set_outside_wakes(&self, may_come: bool) {
        self.words.store(word::OUTSIDE_WAKES, u64::from(may_come), Relaxed);
    }

    /// Publishes whether the daemon must wake the domain when the CPU idles. Costs one store.
    pub fn set_awaits_idle(&self, awaits: bool) {
        // Relaxed: the daemon looks when no domain runs. If it reads an old value, the domain
        // learns later that the CPU idled.
        self.words.store(word::AWAITS_IDLE, u64::from(awaits), Relaxed);
    }

    /// Publishes the counters. Costs seven stores to one cache line.
    pub fn count(&self, counters: &Counters) {
        let Counters { upcalls, switches, jobs, misses, pdus, handoffs, slack_ns_min } = *counters;
        for (word, total) in [
            (word::UPCALLS, upcalls),
            (word::SWITCHES, switches),
            (word::JOBS, jobs),
            (word::MISSES, misses),
            (word::PDUS, pdus),
            (word::HANDOFFS, handoffs),
            (word::SLACK_NS_MIN, slack_ns_min.cast_unsigned()),
        ] {
            // Relaxed: each count is used on its own.
            self.words.store(word, total, Relaxed);
        }
    }

    /// Raises the level of `mask` by one. Returns the new level. Costs one store.
    #[inline]
    pub fn mask(&mut self, mask: Mask) -> u32 {
        let level = self.level(mask).saturating_add(1);
        *self.level(mask) = level;
        // Relaxed: a thread that reads the level on this CPU has preempted the domain, and sees it.
        // A thread on another CPU may read the old level for a moment, and then makes a needless
        // request.
        self.words.store(mask.word(), u64::from(level), Relaxed);
        level
    }

    /// Lowers the level of `mask` by one. Returns the new level. A level of 0 stays 0. At 0 the
    /// caller must look for a request in its kernel area (`kernel_area::Reader::yield_requests`,
    /// `interrupts`). Either the caller sees a request that came meanwhile, or the requesting
    /// thread sees that the mask is gone. Costs one store, and at level 0 also a fence (some 10
    /// ns).
    #[inline]
    #[must_use = "at 0 there may be a request"]
    pub fn unmask(&mut self, mask: Mask) -> u32 {
        let level = self.level(mask).saturating_sub(1);
        *self.level(mask) = level;
        self.words.store(mask.word(), u64::from(level), Relaxed);
        if level == 0 {
            // Pairs with the fence in `kernel_area::Writer::request_yield` and `interrupt`. One of
            // the two fences comes first, and what was stored before it is seen after the other.
            barrier(Edge::UnmaskFence, SeqCst);
        }
        level
    }

    fn level(&mut self, mask: Mask) -> &mut u32 {
        match mask {
            Mask::Preemption => &mut self.preemption_mask,
            Mask::Interrupts => &mut self.interrupt_mask,
        }
    }
}

fn mark(changed: &mut [u64], slot: usize) {
    changed[slot / 64] |= 1 << (slot % 64);
}

/// Relaxed: `Owner::publish` has its fences around this.
fn write<W: AsRef<[AtomicU64]>>(words: &Words<W>, index: usize, slot: &Slot) {
    let first = word::slot(index);
    words.store(first + word::NEXT_RELEASE_NS, slot.next_release_ns, Relaxed);
    words.store(first + word::KEY, slot.rank.key, Relaxed);
    words.store(first + word::EVENT, slot.rank.event, Relaxed);
    let order_state = u64::from(slot.rank.order) | (slot.state as u64) << 32;
    words.store(first + word::ORDER_STATE, order_state, Relaxed);
}

/// The area has no such slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSlot {
    /// The number of the slot.
    pub index: usize,
    /// The number of slots there are.
    pub slots: usize,
}

impl fmt::Display for NoSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user area has no slot {}, expected below {}", self.index, self.slots)
    }
}

impl core::error::Error for NoSlot {}
