//! An event, as the program sees it.

use super::peer::PeerId;

/// What an event carries, and a call: words whose meaning the two ends agree on.
pub type Words = [u64; 5];

/// An event as a client or a handler takes it: from [`Client::take`] or [`Events::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelEvent {
    /// Whose it is.
    pub peer: PeerId,
    /// Its type or level; 0 in a ring and in a counter.
    pub row: u32,
    /// How many more it stands for.
    pub merged: u64,
    /// What it carries, as its raiser says; 0 in a counter.
    pub words: Words,
}
