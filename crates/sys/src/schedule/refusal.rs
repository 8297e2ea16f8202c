//! Whether the calling process may use the class `SCHED_FIFO`, and if not, why.

use crate::OsError;
use core::fmt;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::band::Band;
use super::class::set_fifo;

/// Checks whether the calling thread could enter `SCHED_FIFO` at `priority`.
///
/// A short-lived thread tries it. The rules (limits, capabilities, control groups, sandboxes)
/// belong to the kernel, so the function does not predict them. Starts a thread and blocks until it
/// has ended.
///
/// # Errors
/// The missing right.
pub fn fifo_permission(priority: u8) -> Result<(), FifoRefusal> {
    let trial = std::thread::Builder::new()
        .name("upcall-fifo-try".into())
        .spawn(move || set_fifo(priority))
        .map_err(OsError::of_io("pthread_create"))
        .and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    trial.map_err(|error| FifoRefusal::new(priority, error))
}

/// `RLIMIT_RTPRIO`; 99 if there is no limit, which has the same effect.
pub(super) fn priority_limit() -> u64 {
    rustix::process::getrlimit(Resource::Rtprio).current.unwrap_or(99)
}

/// The reason why `SCHED_FIFO` was refused, with the two rights that would have granted it
/// (sched(7), "Privileges and resource limits").
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FifoRefusal {
    /// The requested priority.
    pub priority: u8,
    /// `RLIMIT_RTPRIO`: the highest priority for an unprivileged thread; 0 for none.
    pub priority_limit: u64,
    /// Whether the thread has `CAP_SYS_NICE`. If it has, or if the limit is high enough, a control
    /// group or a sandbox refused.
    pub has_sys_nice: bool,
    /// The kernel's error.
    pub error: OsError,
}

impl FifoRefusal {
    /// Describes `priority`, which was just refused with `error`.
    pub fn new(priority: u8, error: OsError) -> Self {
        FifoRefusal {
            priority,
            priority_limit: priority_limit(),
            has_sys_nice: rustix::thread::capabilities(None)
                .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE)),
            error,
        }
    }
}

impl fmt::Debug for FifoRefusal {
    /// Same text as `Display`, because `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FifoRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FifoRefusal { priority, priority_limit, has_sys_nice, error } = self;
        write!(f, "SCHED_FIFO priority {priority} refused: ")?;
        if !error.is_permission() {
            return write!(f, "{error}");
        }
        if *has_sys_nice || *priority_limit >= u64::from(*priority) {
            write!(
                f,
                "the thread has the right, so a control group or sandbox forbids it ({error})"
            )
        } else {
            // A limit at or above the band's width is enough for a lower band.
            write!(f, "RLIMIT_RTPRIO is {priority_limit}, expected {priority} or more")?;
            if *priority_limit < u64::from(Band::WIDTH) && Band::WIDTH < *priority {
                write!(f, " ({} for lower priorities)", Band::WIDTH)?;
            }
            write!(f, ", and CAP_SYS_NICE is missing ({error})")
        }
    }
}

impl std::error::Error for FifoRefusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_right_is_missing() {
        let refusal = FifoRefusal {
            priority: 50,
            priority_limit: 0,
            has_sys_nice: false,
            error: OsError::new("sched_setscheduler", libc::EPERM),
        };
        assert_eq!(
            refusal.to_string(),
            "SCHED_FIFO priority 50 refused: RLIMIT_RTPRIO is 0, expected 50 or more (5 for \
             lower priorities), and CAP_SYS_NICE is missing (sched_setscheduler: Operation not \
             permitted (EPERM))"
        );
        for (priority, priority_limit, expected) in [(2, 0, 2), (50, 4, 50), (50, 20, 50)] {
            let refusal = FifoRefusal { priority, priority_limit, ..refusal };
            let part = format!("is {priority_limit}, expected {expected} or more");
            assert!(refusal.to_string().contains(&part), "{refusal}");
            let has_band = refusal.to_string().contains("(5 for lower priorities)");
            assert_eq!(has_band, (priority, priority_limit) == (50, 4), "{refusal}");
        }
        let refusal = FifoRefusal { has_sys_nice: true, ..refusal };
        assert!(refusal.to_string().contains("control group"), "{refusal}");
    }
}
