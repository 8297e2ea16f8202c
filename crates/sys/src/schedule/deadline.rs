//! `SCHED_DEADLINE`: the kernel's earliest-deadline-first class, with admission.
//!
//! For a thread that must preempt every real-time thread and must not use more than its share. See
//! sched(7) and Documentation/scheduler/sched-deadline.rst.

use crate::OsError;
use core::fmt;

/// `libc` defines the first version of the structure, which every kernel accepts.
const BYTES: u32 = 48;
const _: () = assert!(size_of::<libc::sched_attr>() == BYTES as usize);
const OPERATION: &str = "sched_setattr";

/// Puts the calling thread into `SCHED_DEADLINE`. In each `period_ns` it gets `runtime_ns` of CPU
/// within `deadline_ns` of its wake-up. Then the kernel stops it until the next period. It preempts
/// every `SCHED_FIFO` thread. [`super::set_ordinary`] undoes it.
///
/// Each value is at least 1,024 ns, and runtime <= deadline <= period. A thread of this class can
/// start no other thread (`EAGAIN`) and cannot be pinned to a CPU. Does not allocate.
///
/// # Errors
/// See [`DeadlineRefusal`].
pub fn set_deadline(
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
) -> Result<(), DeadlineRefusal> {
    set(0, 0, (runtime_ns, deadline_ns, period_ns))
}

/// Puts thread `tid` into `SCHED_DEADLINE`, with a deadline at the end of each period. As
/// [`set_deadline`], but the thread can start others, which are ordinary
/// (`SCHED_RESET_ON_FORK`). The caller must know that the number still belongs to the thread.
///
/// # Errors
/// See [`DeadlineRefusal`]. `ESRCH` in [`DeadlineRefusal::Os`] if there is no such thread.
pub fn set_deadline_not_inherited_of(
    tid: u32,
    runtime_ns: u64,
    period_ns: u64,
) -> Result<(), DeadlineRefusal> {
    // 0 would be the calling thread.
    let tid = i32::try_from(tid).ok().filter(|&tid| tid > 0);
    let tid = tid.ok_or(DeadlineRefusal::Os(OsError::new(OPERATION, libc::ESRCH)))?;
    let flag = u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs());
    set(tid, flag, (runtime_ns, period_ns, period_ns))
}

/// Thread 0 is the calling thread.
fn set(
    tid: i32,
    flags: u64,
    (runtime_ns, deadline_ns, period_ns): (u64, u64, u64),
) -> Result<(), DeadlineRefusal> {
    let attributes = libc::sched_attr {
        size: BYTES,
        sched_policy: libc::SCHED_DEADLINE.unsigned_abs(),
        sched_flags: flags,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: runtime_ns,
        sched_deadline: deadline_ns,
        sched_period: period_ns,
    };
    // SAFETY: the kernel reads `attributes.size` bytes.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) };
    if result == 0 {
        return Ok(());
    }
    let error = OsError::last(OPERATION);
    Err(match error.raw_os_error() {
        libc::EBUSY => DeadlineRefusal::Bandwidth,
        libc::EPERM => DeadlineRefusal::Permission,
        libc::EINVAL => DeadlineRefusal::Times { runtime_ns, deadline_ns, period_ns },
        _ => DeadlineRefusal::Os(error),
    })
}

/// The reason why `SCHED_DEADLINE` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadlineRefusal {
    /// `EBUSY`: together with earlier grants it would exceed what the kernel grants
    /// (`sched_rt_runtime_us` of `sched_rt_period_us`, on each CPU).
    Bandwidth,
    /// `EPERM`: `CAP_SYS_NICE` is missing, or the thread is pinned to fewer CPUs than the kernel
    /// balances over.
    Permission,
    /// `EINVAL`: the times are not in order or out of range.
    Times {
        /// The requested runtime.
        runtime_ns: u64,
        /// The requested deadline.
        deadline_ns: u64,
        /// The requested period.
        period_ns: u64,
    },
    /// Any other error.
    Os(OsError),
}

impl fmt::Display for DeadlineRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SCHED_DEADLINE refused: ")?;
        match self {
            DeadlineRefusal::Bandwidth => {
                f.write_str("more CPU than the kernel has left for real time (EBUSY)")
            }
            DeadlineRefusal::Permission => f.write_str(
                "CAP_SYS_NICE is missing, or the thread is pinned to some of the CPUs (EPERM)",
            ),
            DeadlineRefusal::Times { runtime_ns, deadline_ns, period_ns } => write!(
                f,
                "{runtime_ns} ns within {deadline_ns} ns of each {period_ns} ns; expected \
                 1024 ns <= runtime <= deadline <= period, and a period within \
                 /proc/sys/kernel/sched_deadline_period_{{min,max}}_us (EINVAL)"
            ),
            DeadlineRefusal::Os(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DeadlineRefusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DeadlineRefusal::Os(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread_id;
    use crate::schedule::{Class, allowed_cpus, class_of, pin_thread, set_ordinary};
    use std::sync::mpsc::channel;

    const MS: u64 = 1_000_000;

    #[test]
    fn times_that_are_out_of_order_are_refused_with_or_without_the_right() {
        for (runtime_ns, deadline_ns, period_ns) in
            [(2 * MS, MS, 3 * MS), (MS, 3 * MS, 2 * MS), (1, MS, MS), (MS, 0, MS)]
        {
            let refusal = set_deadline(runtime_ns, deadline_ns, period_ns).unwrap_err();
            assert_eq!(refusal, DeadlineRefusal::Times { runtime_ns, deadline_ns, period_ns });
            assert_eq!(class_of(thread_id()), Ok(Class::Ordinary));
        }
    }

    #[test]
    fn a_refusal_names_the_found_and_the_expected_times() {
        let refusal = DeadlineRefusal::Times { runtime_ns: 2, deadline_ns: 1, period_ns: 3 };
        let text = refusal.to_string();
        assert!(text.contains("2 ns within 1 ns of each 3 ns; expected 1024 ns"), "{text}");
        assert!(text.contains("period_{min,max}_us"), "{text}");
    }

    #[test]
    #[ignore = "needs the right to SCHED_DEADLINE (root): cargo xtask ci runs it if granted"]
    fn the_class_is_entered_and_left_but_refused_to_a_pinned_thread() {
        set_deadline(MS, 10 * MS, 10 * MS).unwrap();
        assert_eq!(class_of(thread_id()), Ok(Class::Deadline));
        set_ordinary().unwrap();
        assert_eq!(class_of(thread_id()), Ok(Class::Ordinary));
        if let cpus @ [cpu, _, ..] = &allowed_cpus().unwrap()[..] {
            pin_thread(&[*cpu]).unwrap();
            assert_eq!(set_deadline(MS, 10 * MS, 10 * MS), Err(DeadlineRefusal::Permission));
            pin_thread(cpus).unwrap();
        }
    }

    #[test]
    #[ignore = "needs the right to SCHED_DEADLINE (root): cargo xtask ci runs it if granted"]
    fn what_another_thread_of_the_class_starts_is_ordinary() {
        let (tell, told) = channel();
        let (go, gate) = channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            gate.recv().unwrap();
            std::thread::spawn(|| class_of(thread_id())).join().unwrap()
        });
        let tid = told.recv().unwrap();
        set_deadline_not_inherited_of(tid, 5 * MS, 10 * MS).unwrap();
        assert_eq!(class_of(tid), Ok(Class::Deadline));
        assert_eq!(class_of(thread_id()), Ok(Class::Ordinary));
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(Class::Ordinary));
    }

    #[test]
    fn a_missing_thread_is_refused_and_0_is_not_the_caller() {
        for tid in [0, 5_000_000, u32::MAX] {
            let refusal = set_deadline_not_inherited_of(tid, MS, 10 * MS).unwrap_err();
            assert!(matches!(refusal, DeadlineRefusal::Os(_)), "{tid}: {refusal}");
        }
        assert_eq!(class_of(thread_id()), Ok(Class::Ordinary));
    }

    #[test]
    #[ignore = "needs the right to SCHED_DEADLINE (root): cargo xtask ci runs it if granted"]
    fn more_than_the_available_bandwidth_is_refused() {
        // Almost a whole CPU for each thread, with one thread more than CPUs. The threads sleep.
        let count = allowed_cpus().unwrap().len() + 1;
        let (tell, told) = channel();
        std::thread::scope(|threads| {
            let releases: Vec<_> = (0..count)
                .map(|_| {
                    let (go, gate) = channel::<()>();
                    let tell = tell.clone();
                    threads.spawn(move || {
                        tell.send(set_deadline(99 * MS, 100 * MS, 100 * MS)).unwrap();
                        let _ = gate.recv(); // until every thread has asked
                    });
                    go
                })
                .collect();
            let answers: Vec<_> = told.iter().take(count).collect();
            drop(releases);
            assert!(answers.contains(&Err(DeadlineRefusal::Bandwidth)), "{answers:?}");
        });
    }
}
