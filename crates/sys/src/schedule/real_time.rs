//! Which real-time priorities this process may take, and by which right.
//!
//! Asked once at start.

use core::fmt;
use rustix::thread::CapabilitySet;

use super::band::Band;
use super::refusal::{self, FifoRefusal, fifo_permission};

/// The right by which a process has the real-time class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Right {
    /// The capability `CAP_SYS_NICE`, which root has.
    Capability,
    /// `RLIMIT_RTPRIO`.
    Limit {
        /// The limit; 99 stands for no limit.
        priority_max: u64,
    },
}

/// That this process has the real-time class: by which right, at which priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTime {
    /// The right.
    pub right: Right,
    /// The priorities.
    pub band: Band,
}

impl RealTime {
    /// What this process may take: the whole band if the kernel grants its highest
    /// priority, else the highest band that `RLIMIT_RTPRIO` grants. Starts one or two
    /// threads that end at once; blocks until they have ended.
    ///
    /// # Errors
    /// Which right is missing.
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
    fn what_is_granted_is_what_the_kernel_lets_a_thread_do() {
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
