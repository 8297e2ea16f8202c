//! Trees of bits. The [module's head](super) explains them under "Trees".

use super::layout::word;
use crate::edge::{Edge, ordering};
use crate::{AtomicU64, Ordering};
use Ordering::{AcqRel, Relaxed};

/// Descriptors of a leaf.
const PER_LEAF: u32 = 32;

/// The words of one tree.
#[derive(Clone, Copy)]
pub(super) struct Tree<'a> {
    top: &'a AtomicU64,
    summaries: &'a [AtomicU64],
    leaves: &'a [AtomicU64],
}

impl<'a> Tree<'a> {
    /// The tree in `words`, in the order of the layout.
    #[inline]
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        Tree::of_parts(
            &words[0],
            &words[word::TREE_SUMMARIES..word::TREE_LEAVES],
            &words[word::TREE_LEAVES..],
        )
    }

    pub(super) fn of_parts(
        top: &'a AtomicU64,
        summaries: &'a [AtomicU64],
        leaves: &'a [AtomicU64],
    ) -> Self {
        Tree { top, summaries, leaves }
    }

    /// Sets `bits` (1 to 3) of a descriptor that has a leaf. Returns the bits that were set before.
    #[inline]
    pub(super) fn raise(&self, descriptor: u32, bits: u8) -> u8 {
        let (leaf, shift) = place(descriptor);
        // AcqRel pairs with the exchange of the leaf in `Taker::next`, in both directions. The
        // taker sees what was stored before this. If the leaf is 0 here, the taker took the leaf,
        // and its summary before the leaf.
        let before = self.leaves[leaf]
            .fetch_or(u64::from(bits) << shift, ordering(Edge::IoLeafRaise, AcqRel));
        if before == 0 {
            // AcqRel pairs with the exchange of the summary in `Taker::next`, as for the leaf.
            let summary = &self.summaries[leaf / 64];
            if summary.fetch_or(1 << (leaf % 64), AcqRel) == 0 {
                // AcqRel pairs with the exchange of the top in `Taker::next`.
                self.top.fetch_or(1 << (leaf / 64), AcqRel);
            }
        }
        bits_at(before, shift)
    }

    /// Clears the bits of a descriptor that has a leaf. Returns the bits that were set. The levels
    /// above stay as they are, because the taker skips a leaf that is 0.
    pub(super) fn clear(&self, descriptor: u32) -> u8 {
        let (leaf, shift) = place(descriptor);
        // AcqRel, as in the exchange of the whole leaf. If the leaf becomes 0 here, the next
        // `raise` sets the summary again.
        bits_at(self.leaves[leaf].fetch_and(!(3 << shift), AcqRel), shift)
    }
}

/// The bits that were taken from a tree and not returned yet.
#[derive(Debug, Default)]
pub(super) struct Taker {
    /// Summary words to look at.
    top: u64,
    /// Leaves to look at, of the summary word with this number.
    summary: u64,
    summary_number: usize,
    /// Descriptors to return, of the leaf with this number.
    leaf: u64,
    leaf_number: usize,
}

impl Taker {
    /// The next descriptor with a bit, and its bits.
    #[inline]
    pub(super) fn next(&mut self, tree: &Tree<'_>) -> Option<(u32, u8)> {
        while self.leaf == 0 {
            self.next_leaf(tree)?;
        }
        let shift = self.leaf.trailing_zeros() & !1;
        let bits = bits_at(self.leaf, shift);
        self.leaf &= !(3 << shift);
        // The page has fewer than 2^16 descriptors.
        #[expect(clippy::cast_possible_truncation, reason = "a leaf's number is below 2^11")]
        let first = self.leaf_number as u32 * PER_LEAF;
        Some((first + shift / 2, bits))
    }

    /// Drops the bits of `descriptor` that were taken and not returned. Returns whether there were
    /// any.
    pub(super) fn forget(&mut self, descriptor: u32) -> bool {
        let (leaf, shift) = place(descriptor);
        let found = leaf == self.leaf_number && bits_at(self.leaf, shift) != 0;
        if found {
            self.leaf &= !(3 << shift);
        }
        found
    }

    fn next_leaf(&mut self, tree: &Tree<'_>) -> Option<()> {
        while self.summary == 0 {
            self.next_summary(tree)?;
        }
        self.leaf_number = self.summary_number * 64 + lowest(&mut self.summary);
        // A peer may have set bits for leaves that do not exist.
        if let Some(leaf) = tree.leaves.get(self.leaf_number) {
            // AcqRel pairs with `raise` and `clear`.
            self.leaf = leaf.swap(0, ordering(Edge::IoLeafTake, AcqRel));
        }
        Some(())
    }

    fn next_summary(&mut self, tree: &Tree<'_>) -> Option<()> {
        if self.top == 0 {
            // Relaxed: only decides whether to look. The exchange synchronises.
            if tree.top.load(Relaxed) == 0 {
                return None;
            }
            self.top = tree.top.swap(0, AcqRel); // pairs with `raise`
            if self.top == 0 {
                return None;
            }
        }
        self.summary_number = lowest(&mut self.top);
        if let Some(summary) = tree.summaries.get(self.summary_number) {
            self.summary = summary.swap(0, AcqRel); // pairs with `raise`
        }
        Some(())
    }
}

/// Removes the lowest bit of `mask`, which has one, and returns its number.
fn lowest(mask: &mut u64) -> usize {
    let number = mask.trailing_zeros();
    *mask &= *mask - 1;
    number as usize
}

/// The leaf of a descriptor, and the place of its bits there.
const fn place(descriptor: u32) -> (usize, u32) {
    ((descriptor / PER_LEAF) as usize, descriptor % PER_LEAF * 2)
}

const fn bits_at(leaf: u64, shift: u32) -> u8 {
    (leaf >> shift & 3) as u8
}
