//! How the pages number the domains of one user on one CPU.

use core::fmt;

/// Most domains of one user on one CPU, besides the daemon.
pub const DOMAINS_MAX: u32 = 32;

/// A line for the daemon and one for each domain.
pub(crate) const LINES: usize = DOMAINS_MAX as usize + 1;

/// Which domain: 0 is the daemon, 1 to [`DOMAINS_MAX`] are the user's own.
///
/// An index into the turn page and the kernel area. It says nothing of who has
/// that number now: the generation in the kernel area does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(u32);

impl DomainId {
    /// The daemon.
    pub const DAEMON: DomainId = DomainId(0);

    /// Number `number`; `None` if above [`DOMAINS_MAX`].
    pub const fn new(number: u32) -> Option<Self> {
        if number <= DOMAINS_MAX { Some(DomainId(number)) } else { None }
    }

    /// Every number from 1 on: all but the daemon.
    pub fn all() -> impl Iterator<Item = DomainId> {
        (1..=DOMAINS_MAX).map(DomainId)
    }

    /// 0 to [`DOMAINS_MAX`].
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Which line of a page is its own.
    pub(crate) const fn line(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
