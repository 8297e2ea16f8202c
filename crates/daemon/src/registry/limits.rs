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

/// The steps of one analysis of a CPU. They take some milliseconds, and 400 activities that fill
/// three quarters of a CPU need fewer.
pub(super) const ANALYSIS_STEPS_MAX: u64 = 2_000_000;
