//! The numbers of one user's domains on one CPU, as the pages use them.

use core::fmt;

/// The greatest number of domains of one user on one CPU, without the daemon.
pub const DOMAINS_MAX: u32 = 32;

/// One line for the daemon and one for each domain.
pub(crate) const LINES: usize = DOMAINS_MAX as usize + 1;

/// The number of a domain: 0 is the daemon, 1 to [`DOMAINS_MAX`] are the user's own domains.
///
/// It is an index into the turn page and the kernel area. The generation in the kernel area tells
/// which domain has the number now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(u32);

impl DomainId {
    /// The daemon.
    pub const DAEMON: DomainId = DomainId(0);

    /// The domain with `number`. `None` if `number` is above [`DOMAINS_MAX`].
    pub const fn new(number: u32) -> Option<Self> {
        if number <= DOMAINS_MAX { Some(DomainId(number)) } else { None }
    }

    /// Every number except the daemon's: 1 to [`DOMAINS_MAX`].
    pub fn all() -> impl Iterator<Item = DomainId> {
        (1..=DOMAINS_MAX).map(DomainId)
    }

    /// 0 to [`DOMAINS_MAX`].
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The index of the domain's line in a page.
    pub(crate) const fn line(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
