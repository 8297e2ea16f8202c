//! Scheduling class, CPU affinity and timer slack of a thread.
//!
//! The runtime calls this module when it starts a thread. The command finds out with it which
//! guarantees it can give. The daemon applies it to threads of other processes (functions whose
//! names end in `_of`). Each function concerns one thread, never the whole process. A new thread
//! inherits everything except `SCHED_DEADLINE`.

use crate::OsError;
use core::num::NonZeroU64;

mod affinity;
mod at_priority;
mod band;
mod busy_limit;
mod class;
mod deadline;
mod other_thread;
mod real_time;
mod refusal;
mod slice;

pub(crate) use affinity::cpu_set;
pub use affinity::{CPUS_MAX, allowed_cpus, current_cpu, pin_thread};
pub use at_priority::at_priority;
pub use band::{Band, FIFO_LEAST};
pub use busy_limit::BusyLimit;
pub(crate) use class::set_class;
pub use class::{set_fifo, set_ordinary};
pub use deadline::{DeadlineRefusal, set_deadline, set_deadline_not_inherited_of};
pub use other_thread::{
    Class, allowed_cpus_of, class_and_reset_of, class_of, is_pinned_to, pin_thread_of,
    set_fifo_not_inherited_of, set_fifo_of, set_idle_of, set_ordinary_not_inherited_of,
    set_ordinary_of,
};
pub use real_time::{RealTime, Right};
pub use refusal::{FifoRefusal, fifo_permission};
pub use slice::set_slice_of;

/// Sets the calling thread's timer slack to 1 ns, the minimum.
///
/// The kernel wakes ordinary threads up to 50 us late otherwise, to batch wake-ups. Real-time
/// classes have no slack. See PR_SET_TIMERSLACK(2const).
///
/// # Errors
/// Stock Linux is not known to return one.
pub fn set_timer_slack_least() -> Result<(), OsError> {
    rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))
        .map_err(OsError::of("prctl(PR_SET_TIMERSLACK)"))
}

/// The nice value of the calling thread, from -20, the best, to 19.
pub fn nice() -> i32 {
    // Fails for no thread that exists.
    rustix::process::getpriority_process(None).unwrap_or_default()
}

/// Sets the nice value of the calling thread.
///
/// # Errors
/// `EACCES` for a better value than `RLIMIT_NICE` allows, without `CAP_SYS_NICE`.
pub fn set_nice(nice: i32) -> Result<(), OsError> {
    rustix::process::setpriority_process(None, nice).map_err(OsError::of("setpriority"))
}

/// The nice value of the calling process's *autogroup* (sched(7)): with `CONFIG_SCHED_AUTOGROUP`
/// the processes of a session that are in the root control group weigh together as one of them,
/// with this value. Then the nice values of threads count inside the session only. `None` where the
/// kernel has no autogroups, or has switched them off. Allocates.
pub fn autogroup_nice() -> Option<i32> {
    let is_on = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok()?;
    let text = std::fs::read_to_string(AUTOGROUP).ok().filter(|_| is_on.trim() == "1")?;
    autogroup_nice_in(&text)
}

/// A line such as `/autogroup-25 nice 0`.
fn autogroup_nice_in(text: &str) -> Option<i32> {
    text.trim().rsplit_once(" nice ")?.1.parse().ok()
}

/// Sets the nice value of the calling process's autogroup.
///
/// # Errors
/// `EPERM` for a value below 0 without `CAP_SYS_NICE`; `EAGAIN` soon after another change without
/// `CAP_SYS_ADMIN`; `ENOENT` where the kernel has no autogroups.
pub fn set_autogroup_nice(nice: i32) -> Result<(), OsError> {
    std::fs::write(AUTOGROUP, nice.to_string())
        .map_err(OsError::of_io("write(/proc/self/autogroup)"))
}

const AUTOGROUP: &str = "/proc/self/autogroup";

/// How often the kernel has switched away from the calling thread since it started, voluntarily or
/// by preemption (getrusage(2), `ru_nvcsw` and `ru_nivcsw`). One system call.
pub fn thread_switches() -> u64 {
    // SAFETY: the struct has only integers, for which all zero is valid.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is valid for one write. The call cannot fail for RUSAGE_THREAD and a valid
    // pointer (getrusage(2)); if it did, `usage` would stay zero.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw.unsigned_abs() + usage.ru_nivcsw.unsigned_abs()
}

/// The part of each period that all real-time threads of a CPU may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtRuntime {
    /// Microseconds of each period; `None`: all of it.
    pub runtime_us: Option<u64>,
    /// Length of the period in microseconds.
    pub period_us: u64,
}

/// The kernel's real-time throttling, from `/proc/sys/kernel/sched_rt_*_us`; `None` where the
/// kernel has none. See sched(7). Allocates.
pub fn rt_runtime() -> Option<RtRuntime> {
    let number = |path| std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    Some(RtRuntime {
        // The kernel writes -1 for "no limit".
        runtime_us: u64::try_from(number("/proc/sys/kernel/sched_rt_runtime_us")?).ok(),
        period_us: u64::try_from(number("/proc/sys/kernel/sched_rt_period_us")?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nice_value_of_an_autogroup_is_behind_its_name() {
        assert_eq!(autogroup_nice_in("/autogroup-25 nice 0\n"), Some(0));
        assert_eq!(autogroup_nice_in("/autogroup-25 nice -20\n"), Some(-20));
        assert_eq!(autogroup_nice_in(""), None);
    }

    #[test]
    #[ignore = "needs root, and a kernel with autogroups"]
    fn the_nice_value_of_the_own_autogroup_is_what_was_set() {
        let Some(before) = autogroup_nice() else {
            let what = "the_nice_value_of_the_own_autogroup_is_what_was_set";
            // `eprintln` would be captured.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("skipped: {what}: no autogroups\n").as_bytes(),
            );
            return;
        };
        set_autogroup_nice(-3).unwrap();
        assert_eq!(autogroup_nice(), Some(-3));
        set_autogroup_nice(before).unwrap();
        assert!(set_autogroup_nice(100).is_err());
    }

    fn class() -> i32 {
        // SAFETY: the call takes no pointer. 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_pinned_thread_runs_only_on_its_cpu() {
        // Affinity belongs to a thread, and each test has a thread of its own.
        for cpu in allowed_cpus().unwrap() {
            pin_thread(&[cpu]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
            assert_eq!(current_cpu(), cpu);
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
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
    fn the_permission_test_matches_the_kernel_and_changes_nothing() {
        let granted = fifo_permission(1).is_ok();
        assert_eq!(class(), libc::SCHED_OTHER);
        assert_eq!(set_fifo(1).is_ok(), granted);
        set_ordinary().unwrap();
        assert_eq!(class(), libc::SCHED_OTHER);
    }

    #[test]
    #[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
    fn fifo_is_entered_at_the_requested_priority_and_left() {
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
    fn timer_slack_is_one_nanosecond_after_it_was_set() {
        set_timer_slack_least().unwrap();
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
    }

    #[test]
    fn a_nice_value_belongs_to_the_thread() {
        let before = nice();
        let of_other = std::thread::spawn(|| {
            set_nice(19).unwrap();
            nice()
        });
        assert_eq!(of_other.join().unwrap(), 19);
        assert_eq!(nice(), before);
    }

    #[test]
    fn throttling_is_less_than_its_period() {
        if let Some(RtRuntime { runtime_us: Some(runtime_us), period_us }) = rt_runtime() {
            assert!(runtime_us <= period_us && period_us > 0);
        }
    }
}
