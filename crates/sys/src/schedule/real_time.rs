//! The real-time priorities that this process may use, and the right that grants them.
//!
//! The runtime and the daemon ask once, when they start.

use core::fmt;
use rustix::thread::CapabilitySet;

use super::band::Band;
use super::refusal::{self, FifoRefusal, fifo_permission};

/// The right that grants a process the real-time class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Right {
    /// The capability `CAP_SYS_NICE`, which root has.
    Capability,
    /// `RLIMIT_RTPRIO`.
    Limit {
        /// The limit; 99 if there is no limit.
        priority_max: u64,
    },
}

/// The real-time class as granted to this process: by which right, and at which priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTime {
    /// The right.
    pub right: Right,
    /// The priorities.
    pub band: Band,
}

impl RealTime {
    /// Finds what the kernel grants this process: the whole band if it grants the highest priority,
    /// otherwise the highest band that `RLIMIT_RTPRIO` allows. Starts one or two short-lived
    /// threads and blocks until they have ended.
    ///
    /// # Errors
    /// The missing right.
    pub fn granted() -> Result<RealTime, FifoRefusal> {
        let refused = match fifo_permission(Band::WHOLE.watchdog()) {
            Ok(()) => return Ok(RealTime { right: own_right(), band: Band::WHOLE }),
            Err(refused) => refused,
        };
        let lower = Band::below(refused.priority_limit).filter(|&band| band != Band::WHOLE);
        let Some(band) = lower else { return Err(refused) };
        fifo_permission(band.watchdog())?;
        Ok(RealTime { right: own_right(), band })
    }
}

fn own_right() -> Right {
    let has_sys_nice = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
    match has_sys_nice {
        true => Right::Capability,
        false => Right::Limit { priority_max: refusal::priority_limit() },
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Right::Capability => f.write_str("the capability CAP_SYS_NICE"),
            Right::Limit { priority_max } => write!(f, "RLIMIT_RTPRIO {priority_max}"),
        }
    }
}

impl fmt::Display for RealTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers = self.band.handlers();
        write!(f, "real-time class, handlers at priority {handlers}, by {}", self.right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_granted_band_matches_what_the_kernel_allows() {
        match RealTime::granted() {
            Ok(real_time) => {
                assert_eq!(fifo_permission(real_time.band.watchdog()), Ok(()));
                let is_whole = real_time.band == Band::WHOLE;
                assert_eq!(fifo_permission(Band::WHOLE.watchdog()).is_ok(), is_whole);
            }
            Err(refused) => assert!(fifo_permission(refused.priority).is_err(), "{refused}"),
        }
    }
}
