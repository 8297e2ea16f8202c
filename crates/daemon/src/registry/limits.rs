//! What a user, a domain and a claim may have at most.

/// Most activities of a domain on one CPU: the slots of its user area.
pub const ACTIVITIES_MAX: usize = upcall_shm::user_area::AREA_SLOTS;

/// What one user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Domains at a time.
    pub domains_max: usize,
    /// Of the CPUs all together, in millionths of one CPU; root is not bound by it.
    pub share_max_ppm: u64,
}

/// No order above this is claimed: there always are fresh ones beyond.
pub const CLAIMED_ORDER_MAX: u32 = 3 << 30;
