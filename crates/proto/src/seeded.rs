//! A hasher whose seed is an argument, so that equal calls give equal tables.

use core::hash::{BuildHasher, Hasher};
use std::hash::DefaultHasher;

/// Hashes by SipHash after the seed. With a secret seed, a peer cannot choose keys that collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeded(pub u64);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}
