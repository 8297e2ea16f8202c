//! What came of frames, as the owner of a host sees it.

use super::path_error::PathError;
use crate::packet::ChecksumError;

/// What a frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The host did what it asks for. [`super::Host::output`] may have something to send.
    Handled,
    /// It is about a packet that the host may have sent.
    Error(PathError),
    /// Nothing came of it.
    Ignored(IgnoreReason),
}

/// Why nothing came of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// It has a VLAN tag.
    Tagged,
    /// It goes to another device, or asks for one.
    OtherReceiver,
    /// The sender cannot be one other device.
    BadSource,
    /// Another device has an address of the host.
    Conflict,
    /// It is a fragment.
    Fragment,
    /// A checksum is wrong.
    Damaged(ChecksumError),
    /// The message is not a valid one, or quotes a packet that the host did not send.
    Invalid,
    /// The host does not answer to such messages or protocols.
    Unsupported,
}

/// What a host did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Frames with [`Input::Handled`] or [`Input::Error`].
    pub handled: u64,
    /// Frames with [`Input::Ignored`], and datagrams that got no error for such a reason.
    pub ignored: u64,
    /// Frames by which another device claimed an address of the host.
    pub conflicts: u64,
    /// Frames that [`super::Host::output`] wrote.
    pub sent: u64,
    /// Frames that did not fit into the buffer of [`super::Host::output`].
    pub too_long: u64,
    /// Answers for which there was no room.
    pub answers_dropped: u64,
    /// Errors that were not sent because of their limit.
    pub errors_limited: u64,
    /// Neighbors for which there was no room.
    pub neighbors_refused: u64,
    /// Neighbors that did not answer to three requests.
    pub neighbors_failed: u64,
    /// How often an error lowered the path MTU of a destination.
    pub paths_lowered: u64,
}
