//! The model of a wire in virtual time: one direction between two devices.
//!
//! Tests and simulations send frames into it. A frame takes its time on the wire, then a delay.
//! Some are lost, doubled, late or damaged. Each draw comes from the caller, so the same words give
//! the same wire.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use upcall_core::time::{Instant, Span};

/// How good the wire is. Faults are in millionths of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Bits per second; 0 is without limit. Preamble and gap between frames do not count.
    pub bandwidth: u64,
    /// From the last bit sent to the arrival.
    pub delay: Span,
    /// Frames that do not arrive.
    pub loss_ppm: u32,
    /// Frames that arrive twice.
    pub duplication_ppm: u32,
    /// Frames that are late by up to [`Self::lateness`], so that others overtake them.
    pub reordering_ppm: u32,
    /// The most that such a frame is late.
    pub lateness: Span,
    /// Frames of which one bit is wrong.
    pub corruption_ppm: u32,
}

impl LinkSpec {
    /// A wire without faults.
    pub const fn new(bandwidth: u64, delay: Span) -> Self {
        LinkSpec {
            bandwidth,
            delay,
            loss_ppm: 0,
            duplication_ppm: 0,
            reordering_ppm: 0,
            lateness: Span::ZERO,
            corruption_ppm: 0,
        }
    }
}

/// What happened to the frames of a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Given to the wire.
    pub sent: u64,
    /// Received, with doubles.
    pub delivered: u64,
    /// Lost.
    pub lost: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Damaged, of those that were not lost.
    pub corrupted: u64,
}

/// A frame on the way: arrival, order of sending, bytes.
type OnTheWay = Reverse<(Instant, u64, Vec<u8>)>;

/// One direction of a wire.
#[derive(Clone, Debug)]
pub struct Link {
    spec: LinkSpec,
    /// When the last frame has left the sender.
    free_at: Instant,
    on_the_way: BinaryHeap<OnTheWay>,
    /// Numbers frames, for those that arrive at one instant.
    numbered: u64,
    counts: LinkCounts,
}

impl Link {
    /// An idle wire.
    pub fn new(spec: LinkSpec) -> Self {
        let (free_at, counts) = (Instant::ZERO, LinkCounts::default());
        Link { spec, free_at, on_the_way: BinaryHeap::new(), numbered: 0, counts }
    }

    /// Sends a frame at `now`, behind those that are being sent. `words` gives random words of 64
    /// bits. O(log n).
    pub fn send(&mut self, mut frame: Vec<u8>, now: Instant, words: &mut impl FnMut() -> u64) {
        self.counts.sent += 1;
        let sent = self.free_at.max(now) + self.time_of(frame.len());
        self.free_at = sent;
        if is_hit(self.spec.loss_ppm, words) {
            self.counts.lost += 1;
            return;
        }
        if !frame.is_empty() && is_hit(self.spec.corruption_ppm, words) {
            self.counts.corrupted += 1;
            let bit = below(words(), frame.len() as u64 * 8);
            if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| frame.get_mut(at)) {
                *byte ^= 1 << (bit % 8);
            }
        }
        let mut arrival = sent + self.spec.delay;
        if is_hit(self.spec.reordering_ppm, words) {
            let most = self.spec.lateness.as_nanos().saturating_add(1);
            arrival += Span::from_nanos(below(words(), most));
        }
        if is_hit(self.spec.duplication_ppm, words) {
            self.counts.duplicated += 1;
            self.enter(arrival, frame.clone());
        }
        self.enter(arrival, frame);
    }

    /// When the next frame arrives. O(1).
    pub fn next_at(&self) -> Option<Instant> {
        self.on_the_way.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next frame that arrived by `now`, and when. O(log n).
    pub fn receive(&mut self, now: Instant) -> Option<(Instant, Vec<u8>)> {
        if self.next_at()? > now {
            return None;
        }
        let Reverse((at, _, frame)) = self.on_the_way.pop()?;
        self.counts.delivered += 1;
        Some((at, frame))
    }

    /// What happened so far.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// How many frames are on the way.
    pub fn on_the_way(&self) -> usize {
        self.on_the_way.len()
    }

    fn enter(&mut self, arrival: Instant, frame: Vec<u8>) {
        self.on_the_way.push(Reverse((arrival, self.numbered, frame)));
        self.numbered += 1;
    }

    /// How long a frame is on the wire, rounded up.
    fn time_of(&self, bytes: usize) -> Span {
        if self.spec.bandwidth == 0 {
            return Span::ZERO;
        }
        let bits = bytes as u128 * 8;
        let ns = (bits * 1_000_000_000).div_ceil(u128::from(self.spec.bandwidth));
        Span::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// True in `ppm` of a million draws. A fault that is off draws nothing.
fn is_hit(ppm: u32, words: &mut impl FnMut() -> u64) -> bool {
    ppm > 0 && below(words(), 1_000_000) < u64::from(ppm)
}

/// Scales `word` to `0..end`, by the high half of the product (Lemire 2019).
fn below(word: u64, end: u64) -> u64 {
    u64::try_from((u128::from(word) * u128::from(end)) >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// SplitMix64.
    fn words(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        }
    }

    fn at_us(us: u64) -> Instant {
        Instant::ZERO + Span::from_micros(us)
    }

    #[test]
    fn frames_take_their_time_on_the_wire_and_keep_their_order() {
        // 10 Mbit/s: 1250 bytes take 1 ms.
        let mut link = Link::new(LinkSpec::new(10_000_000, Span::from_micros(5)));
        let words = &mut words(1);
        link.send(vec![1; 1250], at_us(0), words);
        link.send(vec![2; 125], at_us(10), words);
        assert_eq!(link.next_at(), Some(at_us(1_005)));
        assert_eq!(link.receive(at_us(1_004)), None);
        assert_eq!(link.receive(at_us(9_999)).unwrap(), (at_us(1_005), vec![1; 1250]));
        assert_eq!(link.receive(at_us(9_999)).unwrap(), (at_us(1_105), vec![2; 125]));
        assert_eq!(link.receive(at_us(9_999)), None);
    }

    #[test]
    fn faults_are_as_frequent_as_stated() {
        let spec = LinkSpec {
            loss_ppm: 100_000,
            duplication_ppm: 200_000,
            corruption_ppm: 300_000,
            ..LinkSpec::new(0, Span::ZERO)
        };
        let mut link = Link::new(spec);
        let words = &mut words(2);
        for _ in 0..20_000 {
            link.send(vec![0; 9], Instant::ZERO, words);
        }
        let mut wrong = 0;
        while let Some((_, frame)) = link.receive(Instant::ZERO) {
            let ones: u32 = frame.iter().map(|byte| byte.count_ones()).sum();
            assert!(ones <= 1);
            wrong += ones;
        }
        let LinkCounts { sent, delivered, lost, duplicated, corrupted } = link.counts();
        assert_eq!(sent + duplicated, delivered + lost);
        assert!((1_850..2_150).contains(&lost), "{lost}");
        assert!((3_400..3_800).contains(&duplicated), "{duplicated}");
        assert!((5_200..5_600).contains(&corrupted), "{corrupted}");
        assert!(u64::from(wrong) > corrupted, "a damaged frame may be doubled");
    }

    #[test]
    fn late_frames_are_overtaken() {
        let late = Span::from_micros(100);
        let reordering = LinkSpec { reordering_ppm: 500_000, lateness: late, ..NO_DELAY };
        let mut link = Link::new(reordering);
        let words = &mut words(3);
        for number in 0..100 {
            link.send(vec![number], at_us(number.into()), words);
        }
        let mut order = Vec::new();
        while let Some((at, frame)) = link.receive(Instant::FAR) {
            assert!(at.since(at_us(frame[0].into())) <= late);
            order.push(frame[0]);
        }
        assert_eq!(order.len(), 100);
        assert!(!order.is_sorted());
    }

    const NO_DELAY: LinkSpec = LinkSpec::new(0, Span::ZERO);

    proptest! {
        #[test]
        fn frames_are_delivered_lost_or_on_the_way(
            seed in any::<u64>(),
            faults in prop::array::uniform4(0u32..=1_000_000),
            steps in prop::collection::vec((0u64..50, any::<bool>(), 0usize..64), 0..200),
        ) {
            let [loss_ppm, duplication_ppm, reordering_ppm, corruption_ppm] = faults;
            let spec = LinkSpec {
                bandwidth: 1_000_000,
                delay: Span::from_micros(20),
                loss_ppm,
                duplication_ppm,
                reordering_ppm,
                lateness: Span::from_micros(100),
                corruption_ppm,
            };
            let run = || {
                let (mut link, words) = (Link::new(spec), &mut words(seed));
                let (mut now, mut received) = (0, Vec::new());
                for (later, is_sent, bytes) in &steps {
                    now += later;
                    if *is_sent {
                        link.send(vec![0; *bytes], at_us(now), words);
                    } else {
                        received.extend(link.receive(at_us(now)));
                    }
                    let counts = link.counts();
                    let known = counts.delivered + counts.lost + link.on_the_way() as u64;
                    assert_eq!(counts.sent + counts.duplicated, known);
                }
                received
            };
            let received = run();
            prop_assert_eq!(&received, &run(), "the same words give the same wire");
            if reordering_ppm == 0 {
                prop_assert!(received.is_sorted_by_key(|(at, _)| *at));
            }
        }
    }
}
