//! Scheduling class, CPU affinity and timer slack of a thread.
//!
//! Called by the runtime when it starts a thread, by the command to find
//! out which promises it may make, and by the daemon for threads of others (the
//! functions that end in `_of`). Everything here concerns one thread, never
//! the whole process; a new thread inherits all of it but `SCHED_DEADLINE`.

use crate::OsError;
use core::num::NonZeroU64;

mod affinity;
mod band;
mod class;
mod deadline;
mod other_thread;
mod real_time;
mod refusal;

pub(crate) use affinity::cpu_set;
pub use affinity::{CPUS_MAX, allowed_cpus, current_cpu, pin_thread};
pub use band::Band;
pub(crate) use class::set_class;
pub use class::{set_fifo, set_ordinary};
pub use deadline::{DeadlineRefusal, set_deadline};
pub use other_thread::{
    Class, class_of, pin_thread_of, set_fifo_not_inherited_of, set_fifo_of, set_idle_of,
    set_ordinary_of,
};
pub use real_time::{RealTime, Right};
pub use refusal::{FifoRefusal, fifo_permission};

/// Sets the calling thread's timer slack to 1 ns, the least there is.
///
/// Ordinary threads are otherwise woken up to 50 us late, to batch wake-ups;
/// real-time classes have no slack anyway. See PR_SET_TIMERSLACK(2const).
///
/// # Errors
/// None that stock Linux is known to return.
pub fn set_timer_slack_least() -> Result<(), OsError> {
    rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))
        .map_err(OsError::of("prctl(PR_SET_TIMERSLACK)"))
}

/// How often the kernel switched away from the calling thread since it began,
/// because it slept or because something else came first (getrusage(2),
/// `ru_nvcsw` and `ru_nivcsw`). One system call.
pub fn thread_switches() -> u64 {
    // SAFETY: integers only; all zero is a valid value.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is valid for one write; the call cannot fail for
    // RUSAGE_THREAD and a valid pointer (getrusage(2)), and leaves it zero.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw.unsigned_abs() + usage.ru_nivcsw.unsigned_abs()
}

/// How much of each period all real-time threads of a CPU may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtRuntime {
    /// Microseconds of each period; `None`: all of it.
    pub runtime_us: Option<u64>,
    /// Length of the period in microseconds.
    pub period_us: u64,
}

/// The kernel's real-time throttling, from `/proc/sys/kernel/sched_rt_*_us`;
/// `None` where the kernel has none. See sched(7). Allocates.
pub fn rt_runtime() -> Option<RtRuntime> {
    let number = |path| std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    Some(RtRuntime {
        // -1 is how the kernel says "no limit".
        runtime_us: u64::try_from(number("/proc/sys/kernel/sched_rt_runtime_us")?).ok(),
        period_us: u64::try_from(number("/proc/sys/kernel/sched_rt_period_us")?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> i32 {
        // SAFETY: takes no pointer; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_pinned_thread_runs_there_and_nowhere_else() {
        // Affinity is the thread's own, and each test has its own thread.
        for cpu in allowed_cpus().unwrap() {
            pin_thread(&[cpu]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
            assert_eq!(current_cpu(), cpu);
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        for cpus in [&[][..], &[CPUS_MAX - 1], &[CPUS_MAX], &[0, u32::MAX]] {
            assert_eq!(pin_thread(cpus).unwrap_err().raw_os_error(), libc::EINVAL, "{cpus:?}");
        }
    }

    #[test]
    fn a_priority_outside_the_range_is_refused_with_or_without_the_right() {
        for priority in [0, 100, 255] {
            let refusal = fifo_permission(priority).unwrap_err();
            assert_eq!(refusal.error.raw_os_error(), libc::EINVAL);
            assert!(refusal.to_string().contains("EINVAL"), "{refusal}");
        }
    }

    #[test]
    fn the_trial_tells_what_the_kernel_would_do_and_changes_nothing() {
        let granted = fifo_permission(1).is_ok();
        assert_eq!(class(), libc::SCHED_OTHER);
        assert_eq!(set_fifo(1).is_ok(), granted);
        set_ordinary().unwrap();
        assert_eq!(class(), libc::SCHED_OTHER);
    }

    #[test]
    #[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
    fn fifo_is_entered_at_the_priority_asked_for_and_left() {
        assert_eq!(fifo_permission(7), Ok(()));
        set_fifo(7).unwrap();
        assert_eq!(class(), libc::SCHED_FIFO);
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: `param` is valid for one write; 0 is the calling thread.
        assert_eq!(unsafe { libc::sched_getparam(0, &raw mut param) }, 0);
        assert_eq!(param.sched_priority, 7);
        set_ordinary().unwrap();
        assert_eq!(class(), libc::SCHED_OTHER);
    }

    #[test]
    fn slack_is_least_after_it_was_set() {
        set_timer_slack_least().unwrap();
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
    }

    #[test]
    fn throttling_is_less_than_its_period() {
        if let Some(RtRuntime { runtime_us: Some(runtime_us), period_us }) = rt_runtime() {
            assert!(runtime_us <= period_us && period_us > 0);
        }
    }
}
