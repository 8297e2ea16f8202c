//! A group of PS as a domain defined it, and as the registry knows it. Plain data.

use upcall_core::policy::ps::Group;

/// A group as a domain defined it.
#[derive(Clone, Debug)]
pub(super) struct DefinedGroup {
    /// Empty: a group of this domain alone.
    pub(super) name: String,
    /// With the parent as the domain numbers it.
    pub(super) group: Group,
}

/// A group that has members, or had some.
#[derive(Clone, Debug)]
pub(super) struct KnownGroup {
    pub(super) key: Key,
    /// With the parent as the registry numbers it.
    pub(super) group: Group,
}

/// What tells groups apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Named {
        uid: u32,
        name: String,
    },
    /// The generation of its domain, and its number there.
    Own {
        generation: u64,
        number: usize,
    },
}
