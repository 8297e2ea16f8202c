//! Why the registry does not attach a domain, or grants no place to an activity.

use core::fmt;

use upcall_core::admission::Refusal;
use upcall_shm::DOMAINS_MAX;

use super::limits::{ACTIVITIES_MAX, CLAIMED_ORDER_MAX};

/// Why a domain cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// It counts on another policy.
    Policy {
        /// That one.
        found: String,
        /// The daemon's.
        expected: &'static str,
    },
    /// All numbers are taken.
    Full,
    /// Its user has as many as it may.
    Quota {
        /// That many.
        domains_max: usize,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Policy { found, expected } => {
                write!(f, "the daemon schedules by `{expected}`, the domain counts on `{found}`")
            }
            AttachError::Full => {
                write!(f, "{DOMAINS_MAX} domains are attached, which is all")
            }
            AttachError::Quota { domains_max } => {
                write!(f, "the user has {domains_max} domains, which is its quota")
            }
        }
    }
}

impl core::error::Error for AttachError {}

/// Why an activity gets no place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlaceError {
    /// No such domain: it was detached meanwhile.
    Gone,
    /// Numbers outside their ranges.
    Need(String),
    /// Admission said no: the reason, and what would fit.
    Refused {
        /// In a line.
        reason: String,
        /// In a line, or empty.
        hint: String,
    },
    /// Its user would have more of the CPUs than it may.
    Quota {
        /// In millionths of a CPU, with this one.
        found_ppm: u64,
        /// And the most.
        share_max_ppm: u64,
    },
    /// The domain's slots on that CPU are taken.
    TooMany,
    /// It claims a place that somebody has, or that nobody can have had.
    Order(u32),
    /// It claims a place on a CPU that is not scheduled here.
    Cpu(u32),
    /// With what it claims, the CPU would have more to do than it can.
    Full {
        /// That one.
        cpu: u32,
        /// With this one, of 1.
        utilization: f64,
    },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Gone => f.write_str("the domain is not attached any more"),
            PlaceError::Need(what) => f.write_str(what),
            PlaceError::Refused { reason, .. } => f.write_str(reason),
            PlaceError::Quota { found_ppm, share_max_ppm } => write!(
                f,
                "the user would have {} % of a CPU, its quota is {} %",
                *found_ppm as f64 / 1e4,
                *share_max_ppm as f64 / 1e4
            ),
            PlaceError::TooMany => {
                write!(f, "the domain has {ACTIVITIES_MAX} activities on the CPU, which is all")
            }
            PlaceError::Order(order) => write!(
                f,
                "place {order} in the order of admission is taken, or above {CLAIMED_ORDER_MAX}"
            ),
            PlaceError::Cpu(cpu) => write!(f, "CPU {cpu} is not among those of the daemon"),
            PlaceError::Full { cpu, utilization } => {
                write!(f, "CPU {cpu} would be used to {:.1} %, expected 100", utilization * 100.0)
            }
        }
    }
}

impl core::error::Error for PlaceError {}

impl From<Refusal> for PlaceError {
    fn from(refusal: Refusal) -> Self {
        let hint = refusal.hint.map(|hint| hint.to_string()).unwrap_or_default();
        PlaceError::Refused { reason: refusal.reason.to_string(), hint }
    }
}

impl PlaceError {
    /// What would fit, in a line, or nothing.
    pub fn hint(&self) -> String {
        match self {
            PlaceError::Refused { hint, .. } => hint.clone(),
            _ => String::new(),
        }
    }
}
