//! Which flow sends next: paced flows by time, the others by their weights.
//!
//! The owner of an interface asks this for each packet (rtu-1996 §6, proportional-share-1998 §4.5).
//! A flow has one packet here, its first one. What it has behind that one waits in its own queue.
//!
//! ```text
//!   idle --(1) ready--> waiting --(2) eligible--> urgent  --(4) next--> idle
//!     |                    ^                                              |
//!     |                    +---------------(5) defer----------------------+
//!     +----(3) ready------------------------------> sharing --(4)--> idle
//! ```
//!
//! 1. A paced flow: its packet is eligible an interval after the one before it.
//! 2. The time has come. Urgent flows are served first, by deadline: eligible time + interval.
//! 3. A flow without pace: it shares what paced flows leave, by weight. Its start tag is the
//!    virtual time, or the end of its last packet if that is later (start-time fair queueing,
//!    Goyal, Vin and Cheng 1996).
//! 4. The packet is sent, and [`TransmitOrder::sent`] charges its bytes.
//! 5. The packet cannot be sent yet, such as for want of a link address. It waits until then.
//!
//! With a rate of the link, packets wait here and not in a queue of the interface, so that the
//! order is decided here.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use upcall_core::time::{Instant, Span};

/// Virtual time of a byte at weight 1. Weights are at most as great.
const BYTE: u64 = 1 << 20;

/// What a flow may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// A packet each `interval`, before all flows that are not paced.
    Paced {
        /// The time between two packets, at least 1 ns.
        interval: Span,
    },
    /// What paced flows leave, in proportion to the weights of those that have packets.
    Weight(u32),
}

/// How the packets of an interface are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The time between two calls of the owner. Packets may be ahead of the link by so much. A
    /// paced packet may leave half of it before its eligible time, but at most half its interval:
    /// otherwise a call that is early by an instant would delay it by a whole period.
    pub period: Span,
    /// The rate of the link in bits a second, if flows without pace are to share it by weight.
    pub link_bits_per_second: Option<u64>,
}

impl Spread {
    /// How long a packet takes on the link.
    fn span(&self, bytes: u32) -> Span {
        let Some(rate) = self.link_bits_per_second else { return Span::ZERO };
        let ns = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        Span::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    share: Share,
    /// The earliest time at which its next packet is eligible (paced).
    next_eligible: Instant,
    /// The virtual end of its last packet (weight).
    virtual_end: u64,
    /// Whether its first packet is here.
    is_ready: bool,
}

/// A heap with the earliest time on top. A slot is at most once in all heaps.
type Earliest<T> = BinaryHeap<Reverse<(T, u32)>>;

/// The flows of an interface that have something to send. Allocates when it is made. If nothing
/// else is stated, a call is O(log n).
#[derive(Clone, Debug)]
pub struct TransmitOrder {
    flows: Vec<Option<Flow>>,
    spread: Spread,
    /// When the link has sent all that it was given.
    link_free: Instant,
    /// The start tag of the packet that was served last.
    virtual_now: u64,
    waiting: Earliest<Instant>,
    urgent: Earliest<Instant>,
    sharing: Earliest<u64>,
}

impl TransmitOrder {
    /// An order for slots numbered `0..slots`, none bound.
    pub fn new(slots: u32, spread: Spread) -> Self {
        let capacity = slots as usize;
        TransmitOrder {
            flows: vec![None; capacity],
            spread,
            link_free: Instant::ZERO,
            virtual_now: 0,
            waiting: BinaryHeap::with_capacity(capacity),
            urgent: BinaryHeap::with_capacity(capacity),
            sharing: BinaryHeap::with_capacity(capacity),
        }
    }

    /// A flow in `slot`, with nothing to send. Nothing happens if there is no such slot.
    pub fn bind(&mut self, slot: u32, share: Share) {
        self.unbind(slot);
        let Some(flow) = self.flows.get_mut(slot as usize) else { return };
        let (next_eligible, virtual_end) = (Instant::ZERO, 0);
        *flow = Some(Flow { share, next_eligible, virtual_end, is_ready: false });
    }

    /// The flow is gone, with its packet. O(n).
    pub fn unbind(&mut self, slot: u32) {
        let Some(flow) = self.flows.get_mut(slot as usize) else { return };
        *flow = None;
        self.waiting.retain(|Reverse((_, of))| *of != slot);
        self.urgent.retain(|Reverse((_, of))| *of != slot);
        self.sharing.retain(|Reverse((_, of))| *of != slot);
    }

    /// Whether the first packet of the flow is here, so that the owner need not look for it. O(1).
    pub fn is_ready(&self, slot: u32) -> bool {
        self.flow(slot).is_some_and(|flow| flow.is_ready)
    }

    /// The flow has a first packet at `now`. Nothing happens if it had one.
    pub fn ready(&mut self, slot: u32, now: Instant) {
        let Some(flow) = self.flow(slot).copied().filter(|flow| !flow.is_ready) else { return };
        match flow.share {
            Share::Paced { interval } => {
                let at = flow.next_eligible.max(now);
                self.change(slot, |flow| {
                    flow.next_eligible = at + interval.max(Span::from_nanos(1));
                });
                let early = (interval / 2).min(self.spread.period / 2);
                self.waiting.push(Reverse((at - early, slot)));
            }
            Share::Weight(_) => {
                let start = flow.virtual_end.max(self.virtual_now);
                self.sharing.push(Reverse((start, slot)));
            }
        }
        self.change(slot, |flow| flow.is_ready = true);
    }

    /// The flow whose first packet is sent now. `None`: no packet is eligible, or the link is full.
    /// The caller says then what it did: [`TransmitOrder::sent`], [`TransmitOrder::dropped`] or
    /// [`TransmitOrder::defer`].
    pub fn next(&mut self, now: Instant) -> Option<u32> {
        if self.link_free > now + self.spread.period {
            return None;
        }
        while let Some(&Reverse((at, slot))) = self.waiting.peek()
            && at <= now
        {
            self.waiting.pop();
            let deadline = match self.flow(slot) {
                Some(Flow { share: Share::Paced { .. }, next_eligible, .. }) => *next_eligible,
                // A flow without pace whose packet was deferred.
                _ => at,
            };
            self.urgent.push(Reverse((deadline, slot)));
        }
        if let Some(Reverse((_, slot))) = self.urgent.pop() {
            return Some(slot);
        }
        let Reverse((start, slot)) = self.sharing.pop()?;
        self.virtual_now = start;
        self.change(slot, |flow| flow.virtual_end = start);
        Some(slot)
    }

    /// The packet of the flow was sent, with `bytes`.
    pub fn sent(&mut self, slot: u32, bytes: u32, now: Instant) {
        self.link_free = self.link_free.max(now) + self.spread.span(bytes);
        self.change(slot, |flow| {
            flow.is_ready = false;
            if let Share::Weight(weight) = flow.share {
                let weight = u64::from(weight).clamp(1, BYTE);
                let length = u64::from(bytes).saturating_mul(BYTE / weight);
                flow.virtual_end = flow.virtual_end.saturating_add(length);
            }
        });
    }

    /// The packet of the flow was dropped instead. It costs nothing.
    pub fn dropped(&mut self, slot: u32) {
        self.change(slot, |flow| flow.is_ready = false);
    }

    /// The packet of the flow waits until `at`.
    pub fn defer(&mut self, slot: u32, at: Instant) {
        if self.is_ready(slot) {
            self.waiting.push(Reverse((at, slot)));
        }
    }

    /// When a packet can be sent next. Not after now: at once. `None`: there is none. O(1).
    pub fn next_at(&self) -> Option<Instant> {
        let first = match () {
            () if !self.urgent.is_empty() || !self.sharing.is_empty() => Instant::ZERO,
            () => self.waiting.peek().map(|Reverse((at, _))| *at)?,
        };
        // The link is free enough a period before it is free.
        Some(first.max(self.link_free - self.spread.period))
    }

    fn flow(&self, slot: u32) -> Option<&Flow> {
        self.flows.get(slot as usize)?.as_ref()
    }

    fn change(&mut self, slot: u32, by: impl FnOnce(&mut Flow)) {
        if let Some(Some(flow)) = self.flows.get_mut(slot as usize) {
            by(flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_micros(us)
    }

    /// Sends for `us`, a look each microsecond, with the flows always ready. Bytes of each.
    fn send(order: &mut TransmitOrder, bytes: &[u32], us: u64) -> Vec<u64> {
        let mut sent = vec![0; bytes.len()];
        for now in (0..us).map(at) {
            (0..).take(bytes.len()).for_each(|slot| order.ready(slot, now));
            while let Some(slot) = order.next(now) {
                order.sent(slot, bytes[slot as usize], now);
                sent[slot as usize] += u64::from(bytes[slot as usize]);
                order.ready(slot, now);
            }
        }
        sent
    }

    /// 100 Mbit/s, 12.5 bytes a microsecond.
    fn link() -> Spread {
        Spread { period: Span::from_micros(200), link_bits_per_second: Some(100_000_000) }
    }

    #[test]
    fn weights_share_the_link_whatever_the_sizes() {
        let mut order = TransmitOrder::new(3, link());
        (0..3).for_each(|slot| order.bind(slot, Share::Weight(slot + 1)));
        let sent = send(&mut order, &[1514, 200, 64], 600_000);
        let all: u64 = sent.iter().sum();
        assert!(all.abs_diff(7_500_000) < 6_000, "{sent:?}");
        for (part, weight) in sent.iter().zip(1..) {
            assert!(part.abs_diff(all * weight / 6) < 3_100, "{sent:?}");
        }
    }

    #[test]
    fn a_paced_flow_keeps_its_times_beside_a_flood() {
        let mut order = TransmitOrder::new(2, link());
        order.bind(0, Share::Paced { interval: Span::from_micros(1_000) });
        order.bind(1, Share::Weight(1));
        let mut times = Vec::new();
        for us in 0..49_800 {
            let now = at(us);
            order.ready(0, now);
            order.ready(1, now);
            while let Some(slot) = order.next(now) {
                order.sent(slot, 1000, now);
                if slot == 0 {
                    times.push(us);
                }
                order.ready(slot, now);
            }
        }
        assert_eq!(times.len(), 50);
        // At most half a period early. A packet of the flood takes 80 us.
        let late = |(time, n): (&u64, u64)| (time + 100).wrapping_sub(n * 1_000);
        assert!(times.iter().zip(0u64..).map(late).all(|late| late <= 181), "{times:?}");
    }

    #[test]
    fn a_flow_that_was_idle_gets_no_credit() {
        let mut order = TransmitOrder::new(2, link());
        (0..2).for_each(|slot| order.bind(slot, Share::Weight(1)));
        order.ready(0, at(0));
        for us in 0..100_000 {
            while let Some(slot) = order.next(at(us)) {
                order.sent(slot, 1000, at(us));
                order.ready(0, at(us));
            }
        }
        let mut sent = [0u32; 2];
        for us in 100_000..110_000 {
            (0..2).for_each(|slot| order.ready(slot, at(us)));
            while let Some(slot) = order.next(at(us)) {
                order.sent(slot, 1000, at(us));
                sent[slot as usize] += 1;
                order.ready(slot, at(us));
            }
        }
        assert!(sent[0].abs_diff(sent[1]) <= 1, "{sent:?}");
    }

    #[test]
    fn a_deferred_packet_comes_back_at_its_time() {
        let spread = Spread { period: Span::from_micros(200), link_bits_per_second: None };
        let mut order = TransmitOrder::new(1, spread);
        order.bind(0, Share::Weight(1));
        assert_eq!(order.next_at(), None);
        order.ready(0, at(0));
        assert_eq!((order.next(at(0)), order.next(at(0))), (Some(0), None));
        order.defer(0, at(50));
        order.ready(0, at(1));
        assert_eq!((order.next_at(), order.next(at(49))), (Some(at(50)), None));
        assert_eq!(order.next(at(50)), Some(0));
        order.dropped(0);
        assert!(!order.is_ready(0));
        order.ready(0, at(51));
        assert_eq!(order.next(at(51)), Some(0));
    }

    proptest! {
        /// Each packet comes out once, and none of a flow that is gone.
        #[test]
        fn no_sequence_loses_or_repeats_a_packet(
            steps in prop::collection::vec((0u8..6, 0u32..4, 0u32..3_000), 0..300),
        ) {
            let mut order = TransmitOrder::new(4, link());
            let (mut here, mut time) = ([false; 4], 0);
            for (step, slot, value) in steps {
                let bound = order.flow(slot).is_some();
                match step {
                    0 => {
                        let share = match value % 2 {
                            0 => Share::Paced { interval: Span::from_micros(value.into()) },
                            _ => Share::Weight(value),
                        };
                        order.bind(slot, share);
                        here[slot as usize] = false;
                    }
                    1 => { order.unbind(slot); here[slot as usize] = false; }
                    2 => { order.ready(slot, at(time)); here[slot as usize] |= bound; }
                    3 => time += u64::from(value),
                    _ => {
                        if let Some(slot) = order.next(at(time)) {
                            prop_assert!(here[slot as usize]);
                            match value % 3 {
                                0 => order.defer(slot, at(time + u64::from(value))),
                                1 => { order.dropped(slot); here[slot as usize] = false; }
                                _ => {
                                    order.sent(slot, value, at(time));
                                    here[slot as usize] = false;
                                }
                            }
                        }
                    }
                }
                let waiting = order.waiting.len() + order.urgent.len() + order.sharing.len();
                prop_assert_eq!(waiting, here.iter().filter(|it| **it).count());
                prop_assert_eq!(order.next_at().is_some(), waiting > 0);
            }
        }
    }
}
