//! The messages of the soak. The length and the bytes of message `number` follow from the seed and
//! the number alone. So a reader can distinguish it from any other message and compute it again.
//!
//! The first word is the number of the message. The second is a checksum of all the rest and of the
//! length.

/// Least and most bytes of a message.
pub const BYTES_MIN: usize = 16;
/// See [`BYTES_MIN`]. A multiple of 8.
pub const BYTES_MAX: usize = 1_000;
/// Most words of a message.
pub const WORDS_MAX: usize = BYTES_MAX / 8;

/// A pseudo-random number (SplitMix64, Steele and others, 2014).
pub fn mix(number: u64) -> u64 {
    let x = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Pseudo-random numbers, the same for the same seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Self {
        Random(mix(seed))
    }

    /// A number from 0 to below `end`. `end` is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        // The high bits of a product, which needs no division.
        u64::try_from((u128::from(mix(self.0)) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A number from 1 to `max`. Each range between two powers of two is equally likely.
    pub fn batch(&mut self, max: u64) -> u64 {
        let below = 1 << self.below(u64::from(max.ilog2()) + 1);
        (1 + self.below(below)).min(max)
    }
}

/// Bytes of message `number`. Seven messages in eight are short.
#[inline]
pub fn bytes_of(seed: u64, number: u64) -> usize {
    let random = mix(seed ^ number);
    let span = if random & 7 == 0 { BYTES_MAX - BYTES_MIN } else { 64 };
    let part = ((random >> 32) * (span as u64 + 1)) >> 32;
    BYTES_MIN + usize::try_from(part).unwrap_or(0)
}

/// Computes message `number` into the words that its bytes fill. The rest of the last word is 0.
#[inline]
pub fn compose(number: u64, bytes: usize, words: &mut [u64; WORDS_MAX]) {
    let words = &mut words[..bytes.div_ceil(8)];
    words[0] = number;
    for (at, word) in (1u64..).zip(&mut words[2..]) {
        *word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at.wrapping_mul(0xD1B5_4A32_D192_ED03);
    }
    if let ([_, _, .., last], 1..) = (&mut *words, bytes % 8) {
        *last &= tail_mask(bytes);
    }
    words[1] = words[2..].iter().fold(begin(number, bytes), |sum, word| add(sum, *word));
}

/// The same as bytes, for the forms that copy.
pub fn compose_bytes(number: u64, bytes: usize, into: &mut [u8; BYTES_MAX]) {
    let mut words = [0; WORDS_MAX];
    compose(number, bytes, &mut words);
    for (chunk, word) in into.as_chunks_mut::<8>().0.iter_mut().zip(&words[..bytes.div_ceil(8)]) {
        *chunk = word.to_ne_bytes();
    }
}

/// Checks that the words found are message `number`, undamaged.
///
/// # Errors
/// The difference found.
#[inline]
pub fn check(
    seed: u64,
    number: u64,
    bytes: usize,
    mut words: impl Iterator<Item = u64>,
) -> Result<(), String> {
    let expected = bytes_of(seed, number);
    if bytes != expected {
        return Err(format!("message {number} has {bytes} bytes, expected {expected}"));
    }
    let (found, checksum) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    if found != number {
        return Err(format!("found message {found}, expected {number}"));
    }
    let (mut sum, mut left) = (begin(number, bytes), bytes.div_ceil(8) - 2);
    for word in words {
        left -= 1;
        // Only part of a slot's last word belongs to the message.
        sum = add(sum, if left == 0 { word & tail_mask(bytes) } else { word });
    }
    if sum == checksum { Ok(()) } else { Err(format!("message {number} is damaged")) }
}

/// As [`check`], for bytes.
///
/// # Errors
/// As [`check`].
pub fn check_bytes(seed: u64, number: u64, found: &[u8]) -> Result<(), String> {
    let (whole, rest) = found.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let tail = (!rest.is_empty()).then_some(last);
    let words = whole.iter().copied().chain(tail).map(u64::from_ne_bytes);
    check(seed, number, found.len(), words)
}

fn begin(number: u64, bytes: usize) -> u64 {
    number ^ (bytes as u64) << 48
}

#[inline]
fn add(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD).rotate_left(29)
}

/// The bits of a message's last word that belong to it.
fn tail_mask(bytes: usize) -> u64 {
    let mut mask = [0xFF; 8];
    if !bytes.is_multiple_of(8) {
        mask[bytes % 8..].fill(0);
    }
    u64::from_ne_bytes(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_rejects_other_and_damaged_messages() {
        for number in (0..2_000).chain(u64::MAX - 5..u64::MAX) {
            let bytes = bytes_of(7, number);
            assert!((BYTES_MIN..=BYTES_MAX).contains(&bytes));
            let mut buffer = [0xAA; BYTES_MAX];
            compose_bytes(number, bytes, &mut buffer);
            assert_eq!(check_bytes(7, number, &buffer[..bytes]), Ok(()));
            assert!(check_bytes(7, number + 1, &buffer[..bytes]).is_err());
            assert!(check_bytes(7, number, &buffer[..bytes - 1]).is_err());
            for at in [0, 8, 15, bytes / 2, bytes - 1] {
                buffer[at] ^= 1;
                assert!(check_bytes(7, number, &buffer[..bytes]).is_err(), "{number} {at}");
                buffer[at] ^= 1;
            }
        }
    }

    #[test]
    fn random_numbers_stay_in_range_and_reach_both_ends() {
        let mut random = Random::new(1);
        let batches: Vec<u64> = (0..5_000).map(|_| random.batch(256)).collect();
        assert_eq!((batches.iter().min(), batches.iter().max()), (Some(&1), Some(&256)));
        assert!((0..1_000).all(|_| random.below(3) < 3 && random.batch(1) == 1));
    }
}
