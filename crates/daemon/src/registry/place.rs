//! Places of activities, as a domain claims them and as the registry grants and lists them. Plain
//! data.

use upcall_core::activity::ActivityParams;
use upcall_core::admission::Share;
use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;

/// An activity with a place, as an inspector sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'r> {
    /// Its place in the order of admission.
    pub order: u32,
    /// The CPU where it runs.
    pub cpu: u32,
    /// Its name, as its domain gave it.
    pub name: &'r str,
    /// Its parameters.
    pub params: &'r ActivityParams,
    /// Its reserved share, in millionths of the CPU; 0 if admission refused it.
    pub reserved_ppm: u64,
    /// The worst response under the present admission; `None` if nothing is promised.
    pub response_max: Option<Span>,
    /// Whether the activity runs although admission refused it.
    pub unscreened: bool,
}

/// The limits that admission sets for a domain on a CPU. They count activities with reservations.
/// For a domain that has none there, the share and the time of a job count what its activities
/// declare: they run below all reservations. Hand-offs count for activities with reservations only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The longest time that it may run on after a yield request.
    pub quantum_max: Span,
    /// Its reserved share, in millionths of the CPU.
    pub share_ppm: u64,
    /// Whether any of its activities has a reservation, or its event server.
    pub reserves: bool,
    /// The sum over its activities of the time of one job.
    pub compute: Span,
    /// What admission counts beside that for hand-offs to one job of each activity and back.
    pub hand_offs: Span,
    /// The share that these hand-offs take, in millionths of the CPU.
    pub hand_offs_ppm: u64,
}

/// The parts of a CPU under PS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The part of each domain that has activities there.
    pub of_domains: Vec<(DomainId, Share)>,
    /// The part of a group that a domain has, by the number of the group in that domain.
    pub of_groups: Vec<(DomainId, usize, Share)>,
    /// The part of ordinary programs: what is above the limit of the CPU. `None`: nothing is.
    pub ordinary: Option<Share>,
}

/// A granted place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The CPU of the place.
    pub cpu: u32,
    /// The place in the order of admission, which also identifies the activity.
    pub order: u32,
    /// The worst response under the present admission; `None` if nothing is promised.
    pub response_max: Option<Span>,
    /// The first release must not come before: the windows of activities that have left the CPU are
    /// over then (DWCS).
    pub not_before: Instant,
}

/// A place that a domain says it got from a former daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The CPU of the place.
    pub cpu: u32,
    /// The place in the order of admission, as the former daemon granted it.
    pub order: u32,
    /// Whether the activity asked to run even if admission refuses it.
    pub unscreened: bool,
    /// Whether the daemon still takes claims ([`Config::claims_within`]).
    ///
    /// [`Config::claims_within`]: crate::server::Config::claims_within
    pub in_time: bool,
}
