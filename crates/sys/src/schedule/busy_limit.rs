//! The kernel's own limit on real-time threads that never sleep (RLIMIT_RTTIME).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::OsError;

/// While it lives, the kernel sends this process SIGXCPU if one of its real-time threads uses a
/// given CPU time without a blocking system call (getrlimit(2), RLIMIT_RTTIME).
///
/// The signal ends a process that does not handle it. New processes inherit the limit. So it is for
/// a program that knows all its threads, as the last line behind a watchdog.
#[derive(Debug)]
pub struct BusyLimit(Rlimit);

impl BusyLimit {
    /// Sets the soft limit to `span_ns`, unless it is lower already. Keeps the hard limit.
    ///
    /// # Errors
    /// `EINVAL`: the hard limit is lower.
    pub fn set(span_ns: u64) -> Result<BusyLimit, OsError> {
        let before = getrlimit(Resource::Rttime);
        let wanted_us = span_ns.div_ceil(1_000);
        let current = Some(before.current.map_or(wanted_us, |known| known.min(wanted_us)));
        setrlimit(Resource::Rttime, Rlimit { current, ..before })
            .map_err(OsError::of("setrlimit(RLIMIT_RTTIME)"))?;
        Ok(BusyLimit(before))
    }
}

impl Drop for BusyLimit {
    fn drop(&mut self) {
        // Raising a soft limit up to the hard limit needs no right.
        let _ = setrlimit(Resource::Rttime, self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_until_the_guard_is_dropped_and_is_never_raised() {
        let before = getrlimit(Resource::Rttime);
        let limit = BusyLimit::set(7_000_000_001).unwrap();
        assert_eq!(getrlimit(Resource::Rttime).current, Some(7_000_001));
        assert_eq!(getrlimit(Resource::Rttime).maximum, before.maximum);
        let looser = BusyLimit::set(9_000_000_000).unwrap();
        assert_eq!(getrlimit(Resource::Rttime).current, Some(7_000_001));
        drop(looser);
        drop(limit);
        assert_eq!(getrlimit(Resource::Rttime), before);
    }
}
