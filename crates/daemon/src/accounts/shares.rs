//! The part of the CPU that each domain of a group has under PS. Plain data: the server writes it,
//! and the KLS thread reads it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use upcall_shm::{DOMAINS_MAX, DomainId};

/// The daemon, which stands for ordinary programs, and the domains.
const CLIENTS: usize = DOMAINS_MAX as usize + 1;

/// The part of the CPU that each domain of a group has, in millionths; 0: none. The first is that
/// of ordinary programs. Relaxed everywhere: each number is used on its own.
#[derive(Debug)]
pub(crate) struct SharesOfDomains([AtomicU32; CLIENTS]);

impl SharesOfDomains {
    /// No client has a part.
    pub(crate) fn none() -> Self {
        SharesOfDomains([const { AtomicU32::new(0) }; CLIENTS])
    }

    /// The part of a client.
    pub(crate) fn ppm(&self, domain: DomainId) -> u32 {
        self.0[domain.number() as usize].load(Relaxed)
    }

    /// Sets the part of a client. For the server.
    pub(crate) fn set(&self, domain: DomainId, ppm: u32) {
        self.0[domain.number() as usize].store(ppm, Relaxed);
    }
}
