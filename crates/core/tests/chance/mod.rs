//! Random numbers for tests: a small generator, so that a seed reproduces its failure (Steele, Lea
//! and Flood 2014).

pub struct Chance(pub u64);

impl Chance {
    /// The next word.
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number in `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    /// A number in `0 ..= most`. The ends, which provoke the worst cases, come more often than the
    /// rest.
    pub fn up_to(&mut self, most: u64) -> u64 {
        let word = self.word();
        match word >> 61 {
            0 => 0,
            1..=3 => most,
            _ => word % (most + 1),
        }
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let at = usize::try_from(self.below(choices.len() as u64));
        choices[at.unwrap_or(0)]
    }
}
