//! Random numbers, repeatable on every machine.
//!
//! Every module of this crate that draws random numbers uses this one. Word `i` of a stream depends
//! only on the stream and `i`. SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
//! number generators", OOPSLA 2014) is a counter with a mixing function. So the cost of a PDU does
//! not depend on when the PDU ran, and two policies with the same seed get the same work. The
//! module uses no floating point, because its last bits differ between machines.

use upcall_core::time::Span;

/// The increment of SplitMix64: the golden ratio in 64 bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The most draws of all parts of a utilization until no part is above a whole CPU.
const TRIES_MAX: u32 = 1_000;

/// Word number `index` of `stream`.
pub(crate) fn word(stream: u64, index: u64) -> u64 {
    let mut word = stream.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Scales `word` to `0..=most`, by the high half of the product (Lemire 2019). The error from
/// uniform is at most `most / 2^64`.
pub(crate) fn scaled(word: u64, most: u64) -> u64 {
    ((u128::from(word) * (u128::from(most) + 1)) >> 64) as u64
}

/// A stream of random words.
#[derive(Clone, Debug)]
pub struct Chance {
    stream: u64,
    drawn: u64,
}

impl Chance {
    /// The stream of `seed` for one `purpose`. Draws for other purposes do not shift it.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Chance { stream: word(word(seed, 0), purpose), drawn: 0 }
    }

    /// The next word. O(1).
    pub fn word(&mut self) -> u64 {
        self.drawn += 1;
        word(self.stream, self.drawn)
    }

    /// A number of `least..=most`; `least` if they are not in order. O(1).
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + scaled(self.word(), most.saturating_sub(least))
    }

    /// `count` parts of `whole`, in billionths of a CPU. Uniform among all parts with this sum (as
    /// by UUniFast: Bini and Buttazzo, Real-Time Systems 30, 2005). Draws again while a part is
    /// above a whole CPU. Allocates; O(n log n) per draw.
    pub fn parts(&mut self, count: u32, whole: u64) -> Vec<u64> {
        for _ in 0..TRIES_MAX {
            let mut cuts: Vec<u64> = (1..count).map(|_| self.between(0, whole)).collect();
            cuts.sort_unstable();
            cuts.push(whole);
            let mut before = 0;
            let parts: Vec<u64> =
                cuts.iter().map(|&cut| cut - core::mem::replace(&mut before, cut)).collect();
            if parts.iter().all(|&part| part <= 1_000_000_000) {
                return parts;
            }
        }
        // Only a `whole` of nearly `count` CPUs reaches this line.
        vec![whole / u64::from(count.max(1)); count as usize]
    }

    /// A time of `0..=most`. Half of the draws are one of the two ends, so the extreme cases occur.
    pub(crate) fn extreme(&mut self, most: Span) -> Span {
        match self.between(0, 3) {
            0 => Span::ZERO,
            1 => most,
            _ => Span::from_nanos(self.between(0, most.as_nanos())),
        }
    }

    /// True once in `n` draws; `n >= 1`.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    /// One of the items, which must not be empty.
    pub(crate) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        let most = items.len() as u64 - 1;
        items[usize::try_from(self.between(0, most)).unwrap_or(0)]
    }

    /// The time between two independent events, `mean` apart on average: exponentially distributed,
    /// rounded down to nanoseconds.
    ///
    /// Uses comparisons alone (von Neumann, "Various techniques used in connection with random
    /// digits", 1951). In uniform draws `u1 >= u2 >= ..`, the run that starts with `u1` has odd
    /// length with probability `exp(-u1)`. Each failure adds a whole `mean`.
    pub(crate) fn exponential(&mut self, mean: Span) -> Span {
        let mut whole = 0;
        loop {
            let first = self.word();
            let (mut last, mut length) = (first, 1u32);
            loop {
                let next = self.word();
                if next > last {
                    break;
                }
                last = next;
                length += 1;
            }
            if length % 2 == 1 {
                let part_ns = scaled(first, mean.as_nanos().saturating_sub(1));
                return mean.saturating_mul(whole) + Span::from_nanos(part_ns);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_splitmix64() {
        // The first outputs for the state 1234567, as published with the
        // reference implementation (Rosetta Code, "Pseudo-random numbers/Splitmix64").
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([0, 1, 2, 3, 4].map(|index| word(1_234_567, index)), expected);
    }

    #[test]
    fn a_draw_stays_within_its_ends_and_reaches_them() {
        let mut chance = Chance::new(1, 0);
        let mut seen = [0u32; 4];
        for _ in 0..4_000 {
            seen[usize::try_from(chance.between(3, 6)).unwrap() - 3] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1_150).contains(&count)), "{seen:?}");
        assert_eq!(scaled(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(scaled(0, u64::MAX), 0);
    }

    #[test]
    fn parts_add_up_and_none_exceeds_a_cpu() {
        let mut chance = Chance::new(3, 0);
        for (count, whole) in [(1, 700_000_000), (2, 1_900_000_000), (8, 1_000_000_000)] {
            let all: Vec<_> = (0..1_000).map(|_| chance.parts(count, whole)).collect();
            assert!(all.iter().all(|parts| parts.len() == count as usize));
            assert!(all.iter().all(|parts| parts.iter().sum::<u64>() == whole));
            assert!(all.iter().flatten().all(|&part| part <= 1_000_000_000));
            // The first part has the same mean as all parts, within 10 %.
            let first: u64 = all.iter().map(|parts| parts[0] / 1_000).sum();
            let mean = whole / u64::from(count);
            assert!((mean * 9 / 10..=mean * 11 / 10).contains(&first), "{first} for {mean}");
        }
    }

    #[test]
    fn exponential_gaps_have_their_mean_and_their_tail() {
        let mut chance = Chance::new(2, 0);
        let mean = Span::from_micros(1_000);
        let gaps: Vec<_> = (0..40_000).map(|_| chance.exponential(mean)).collect();
        let sum: Span = gaps.iter().copied().sum();
        // Five standard errors, 1/200 of the mean each.
        assert!((975..1_025).contains(&(sum.as_nanos() / 40_000_000)), "{sum}");
        // exp(-1) = 0.3679 and exp(-3) = 0.0498 of the gaps are longer than one and three means.
        let longer = |n| gaps.iter().filter(|&&gap| gap > mean.saturating_mul(n)).count();
        assert!((14_200..15_200).contains(&longer(1)), "{}", longer(1));
        assert!((1_770..2_210).contains(&longer(3)), "{}", longer(3));
    }
}
