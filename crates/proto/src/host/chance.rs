//! Delays that are drawn from a seed.

use upcall_core::time::Span;

/// `SplitMix64` (Steele and others 2014). The same seed gives the same delays.
#[derive(Debug)]
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// A span from 1 ns to `most`; `most` of zero counts as 1 ns.
    pub(super) fn up_to(&mut self, most: Span) -> Span {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        Span::from_nanos(word % most.as_nanos().max(1) + 1)
    }
}
