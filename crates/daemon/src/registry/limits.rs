//! The limits of a domain, a user and a claim.

/// Most activities of a domain on one CPU: the slots of its user area.
pub const ACTIVITIES_MAX: usize = upcall_shm::user_area::AREA_SLOTS;

/// The limits of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Most domains at a time.
    pub domains_max: usize,
    /// Most of all CPUs together, in millionths of one CPU. Root is exempt.
    pub share_max_ppm: u64,
}

/// The last place in the order of admission that a domain may claim. Fresh places remain above it.
pub const CLAIMED_ORDER_MAX: u32 = 3 << 30;
