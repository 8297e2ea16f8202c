//! Choices drawn from a target's bytes. A small change of the bytes is a small change of the
//! choices.

use std::fmt::Debug;

/// Operations that are printed if a comparison panics: the meaning of the bytes. (Under libFuzzer
/// nothing unwinds. Put the file among the seeds and run the tests.)
pub struct Printed<T: Debug>(pub Vec<T>);

impl<T: Debug> Drop for Printed<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("of these {} operations:", self.0.len());
            self.0.iter().for_each(|operation| eprintln!("    {operation:?}"));
        }
    }
}

/// The bytes that are left.
pub struct Bytes<'d>(pub &'d [u8]);

impl Bytes<'_> {
    /// A number in `0..end`, drawn from as many bytes as `end - 1` has. Missing bytes are 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let (mut drawn, mut most) = (0, end.saturating_sub(1));
        while most > 0 {
            drawn = drawn << 8 | u64::from(self.byte());
            most >>= 8;
        }
        drawn % end.max(1)
    }

    /// As `below`, for at most 256: numbers of activities and the like.
    pub fn small(&mut self, end: u32) -> u32 {
        u32::from(self.byte()) % end.max(1)
    }

    /// True or false.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// All items drawn from the rest of the bytes, at most `most`.
    pub fn all<T: Debug>(mut self, most: usize, draw: fn(&mut Self) -> T) -> Printed<T> {
        let mut all = Vec::new();
        while !self.0.is_empty() && all.len() < most {
            all.push(draw(&mut self));
        }
        Printed(all)
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }
}
