//! An event as the program gets it.

use super::peer::PeerId;

/// The words of an event or call. The two ends agree on their meaning.
pub type Words = [u64; 5];

/// An event from [`Client::take`](super::Client::take) or [`Events::take`](super::Events::take).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelEvent {
    /// The peer that raised it.
    pub peer: PeerId,
    /// Its type or level. 0 in a ring and in a counter.
    pub row: u32,
    /// How many further events are merged into it.
    pub merged: u64,
    /// The words that its raiser set. 0 in a counter.
    pub words: Words,
}
