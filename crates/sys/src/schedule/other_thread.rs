//! Scheduling class and CPUs of another thread, of this process or of another process.
//!
//! The daemon applies these functions to threads of the processes that attached to it. They take a
//! thread number ([`crate::process::thread_id`]). The caller must know that the number still
//! belongs to the same thread. [`crate::process::ThreadHandle`] holds a thread without its number.
//!
//! Without `CAP_SYS_NICE`, a process may change only threads of the same user that have no
//! capability that it lacks itself. It may put them into `SCHED_FIFO` only up to *their*
//! `RLIMIT_RTPRIO`. See sched(7).

use super::affinity::{CPUS_MAX, cpu_set};
use super::class::set_class_of;
use crate::OsError;
use core::mem::MaybeUninit;
use rustix::thread::Pid;

/// A scheduling class, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// `SCHED_OTHER`, whatever the nice value.
    Ordinary,
    /// `SCHED_BATCH`: ordinary, and expected to use much CPU.
    Batch,
    /// `SCHED_IDLE`: gets almost no CPU while an ordinary thread runs.
    Idle,
    /// `SCHED_FIFO`.
    Fifo {
        /// 1 lowest to 99.
        priority: u8,
    },
    /// `SCHED_RR`.
    RoundRobin {
        /// 1 lowest to 99.
        priority: u8,
    },
    /// `SCHED_DEADLINE`: preempts every other class.
    Deadline,
    /// An unknown class (`include/uapi/linux/sched.h`).
    Other(u32),
}

/// Puts thread `tid` into `SCHED_FIFO` at `priority` (1 lowest to 99). Threads that it starts
/// inherit the class.
///
/// # Errors
/// `EPERM` without the right (see the module). `ESRCH` if there is no such thread. `EINVAL` for a
/// priority outside the range.
pub fn set_fifo_of(tid: u32, priority: u8) -> Result<(), OsError> {
    set_class_of(thread(tid)?, libc::SCHED_FIFO, priority)
}

/// As [`set_fifo_of`], but threads and processes that it starts from now on are ordinary
/// (`SCHED_RESET_ON_FORK`). Without `CAP_SYS_NICE` the thread cannot undo that.
///
/// # Errors
/// As [`set_fifo_of`].
pub fn set_fifo_not_inherited_of(tid: u32, priority: u8) -> Result<(), OsError> {
    set_class_of(thread(tid)?, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Puts thread `tid` into the ordinary class, `SCHED_OTHER`. After [`set_fifo_not_inherited_of`]
/// new threads do not inherit the class. Without `CAP_SYS_NICE` this call leaves that property as
/// it is. One or two system calls.
///
/// # Errors
/// `EPERM` if the thread belongs to another user, or if it is in `SCHED_IDLE` and its `RLIMIT_NICE`
/// does not allow its nice value; both without `CAP_SYS_NICE`. `ESRCH` if there is no such thread.
pub fn set_ordinary_of(tid: u32) -> Result<(), OsError> {
    let tid = thread(tid)?;
    match set_class_of(tid, libc::SCHED_OTHER, 0) {
        // Clearing the flag needs the capability. Keeping it does not.
        Err(error) if error.raw_os_error() == libc::EPERM => {
            set_class_of(tid, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
        }
        result => result,
    }
}

/// As [`set_ordinary_of`], but the property of [`set_fifo_not_inherited_of`] stays. One system
/// call.
///
/// The kernel changes the property before the class. So without this, what the thread starts at
/// that moment would have the former class, and pass it on.
///
/// # Errors
/// As [`set_ordinary_of`].
pub fn set_ordinary_not_inherited_of(tid: u32) -> Result<(), OsError> {
    set_class_of(thread(tid)?, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
}

/// Puts thread `tid` into `SCHED_IDLE`.
///
/// # Errors
/// `EPERM` if the thread belongs to another user, without `CAP_SYS_NICE`. `ESRCH` if there is no
/// such thread.
pub fn set_idle_of(tid: u32) -> Result<(), OsError> {
    set_class_of(thread(tid)?, libc::SCHED_IDLE, 0)
}

/// The present class of thread `tid` (sched_getattr(2)). One system call.
///
/// # Errors
/// `ESRCH` if there is no such thread.
pub fn class_of(tid: u32) -> Result<Class, OsError> {
    class_of_attributes(&attributes_of(tid)?)
}

/// As [`class_of`], and whether threads and processes that thread `tid` starts are ordinary
/// (`SCHED_RESET_ON_FORK`). Without `CAP_SYS_NICE` a thread can set that property, and cannot undo
/// it. So after [`set_fifo_not_inherited_of`] it stays, whatever class such a thread takes, and
/// also if its process executes another program.
///
/// # Errors
/// `ESRCH` if there is no such thread.
pub fn class_and_reset_of(tid: u32) -> Result<(Class, bool), OsError> {
    let attributes = attributes_of(tid)?;
    let flag = u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs());
    Ok((class_of_attributes(&attributes)?, attributes.sched_flags & flag != 0))
}

const GET_ATTRIBUTES: &str = "sched_getattr";

pub(super) fn attributes_of(tid: u32) -> Result<libc::sched_attr, OsError> {
    // `libc` defines the first version of the structure, which every kernel fills.
    const BYTES: usize = size_of::<libc::sched_attr>();
    let tid = thread(tid)?.as_raw_pid();
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the kernel writes at most `BYTES` bytes to `attributes`.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, tid, attributes.as_mut_ptr(), BYTES, 0) };
    if result != 0 {
        return Err(OsError::last(GET_ATTRIBUTES));
    }
    // SAFETY: zeroed, then written by the kernel. The struct has only integers.
    Ok(unsafe { attributes.assume_init() })
}

pub(super) fn class_of_attributes(attributes: &libc::sched_attr) -> Result<Class, OsError> {
    let priority = u8::try_from(attributes.sched_priority)
        .map_err(|_| OsError::new(GET_ATTRIBUTES, libc::ERANGE))?;
    Ok(match i32::try_from(attributes.sched_policy) {
        Ok(libc::SCHED_OTHER) => Class::Ordinary,
        Ok(libc::SCHED_BATCH) => Class::Batch,
        Ok(libc::SCHED_IDLE) => Class::Idle,
        Ok(libc::SCHED_FIFO) => Class::Fifo { priority },
        Ok(libc::SCHED_RR) => Class::RoundRobin { priority },
        Ok(libc::SCHED_DEADLINE) => Class::Deadline,
        _ => Class::Other(attributes.sched_policy),
    })
}

/// Lets thread `tid` run on these CPUs only.
///
/// # Errors
/// As [`super::pin_thread`]. `EPERM` if the thread belongs to another user, `ESRCH` if there is no
/// such thread, `EBUSY` if it is in `SCHED_DEADLINE`.
pub fn pin_thread_of(tid: u32, cpus: &[u32]) -> Result<(), OsError> {
    let (tid, set) = (thread(tid)?, cpu_set(cpus)?);
    rustix::thread::sched_setaffinity(Some(tid), &set).map_err(OsError::of("sched_setaffinity"))
}

/// The CPUs that thread `tid` may run on, ascending. Allocates.
///
/// # Errors
/// `ESRCH` if there is no such thread. As [`super::allowed_cpus`].
pub fn allowed_cpus_of(tid: u32) -> Result<Vec<u32>, OsError> {
    let set = rustix::thread::sched_getaffinity(Some(thread(tid)?));
    let set = set.map_err(OsError::of("sched_getaffinity"))?;
    Ok((0..CPUS_MAX).filter(|&cpu| set.is_set(cpu as usize)).collect())
}

/// Whether thread `tid` may run on `cpu` alone.
///
/// # Errors
/// As [`allowed_cpus_of`].
pub fn is_pinned_to(tid: u32, cpu: u32) -> Result<bool, OsError> {
    let set = rustix::thread::sched_getaffinity(Some(thread(tid)?));
    Ok(set.map_err(OsError::of("sched_getaffinity"))? == cpu_set(&[cpu])?)
}

/// Converts a thread number for the kernel. Refuses 0, which would be the calling thread.
fn thread(tid: u32) -> Result<Pid, OsError> {
    let tid = i32::try_from(tid).ok().and_then(Pid::from_raw);
    tid.ok_or(OsError::new("sched_setscheduler", libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread_id;
    use crate::schedule::{RealTime, Right, allowed_cpus, pin_thread};
    use rustix::process::{Resource, Rlimit};
    use rustix::thread::CapabilitySet;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    /// Starts a thread that sends its number, waits for a message, and then runs `work`.
    fn started<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> (u32, Sender<()>, JoinHandle<T>) {
        let (tell, told) = channel();
        let (go, gate) = channel();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            gate.recv().unwrap();
            work()
        });
        (told.recv().unwrap(), go, thread)
    }

    #[test]
    fn another_thread_becomes_idle_and_the_calling_thread_does_not() {
        let (tid, go, thread) = started(|| class_of(thread_id()));
        assert_eq!(class_of(tid), Ok(Class::Ordinary));
        set_idle_of(tid).unwrap();
        assert_eq!(class_of(tid), Ok(Class::Idle));
        assert_eq!(class_of(thread_id()), Ok(Class::Ordinary));
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(Class::Idle));
    }

    #[test]
    fn another_thread_is_pinned_and_the_calling_thread_is_not() {
        let (here, before) = (allowed_cpus().unwrap(), class_of(thread_id()));
        let cpu = here[0];
        let (tid, go, thread) = started(allowed_cpus);
        assert_eq!(allowed_cpus_of(tid).as_ref(), Ok(&here));
        pin_thread_of(tid, &[cpu]).unwrap();
        assert_eq!(allowed_cpus_of(tid), Ok(vec![cpu]));
        for cpus in [&[][..], &[CPUS_MAX]] {
            let error = pin_thread_of(tid, cpus).unwrap_err();
            assert_eq!(error.raw_os_error(), libc::EINVAL);
        }
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(vec![cpu]));
        assert_eq!((allowed_cpus(), class_of(thread_id())), (Ok(here), before));
    }

    #[test]
    fn a_missing_thread_is_an_error_and_0_is_not_the_caller() {
        let cpus = allowed_cpus().unwrap();
        // Beyond pid_max (4194304 on 64 bits), so it cannot exist.
        for tid in [0, 5_000_000, u32::MAX] {
            for result in [
                set_fifo_of(tid, 1),
                set_fifo_not_inherited_of(tid, 1),
                set_ordinary_of(tid),
                set_idle_of(tid),
                pin_thread_of(tid, &cpus),
                class_of(tid).map(|_| ()),
                allowed_cpus_of(tid).map(|_| ()),
            ] {
                assert_eq!(result.unwrap_err().raw_os_error(), libc::ESRCH, "{tid}");
            }
        }
        pin_thread(&cpus).unwrap();
    }

    #[test]
    #[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
    fn another_thread_is_raised_and_demoted() {
        let (tid, go, thread) = started(|| class_of(thread_id()));
        set_fifo_of(tid, 7).unwrap();
        assert_eq!(class_of(tid), Ok(Class::Fifo { priority: 7 }));
        set_fifo_of(tid, 8).unwrap();
        assert_eq!(set_fifo_of(tid, 100).unwrap_err().raw_os_error(), libc::EINVAL);
        assert_eq!(class_of(tid), Ok(Class::Fifo { priority: 8 }));
        set_idle_of(tid).unwrap();
        assert_eq!(class_of(tid), Ok(Class::Idle));
        set_ordinary_of(tid).unwrap();
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(Class::Ordinary));
    }

    #[test]
    #[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
    fn what_a_raised_thread_starts_is_raised_only_if_that_was_meant() {
        let heir = || std::thread::spawn(|| class_of(thread_id())).join().unwrap();
        let raised = Class::Fifo { priority: 7 };
        for (raise, expected) in [
            (set_fifo_of as fn(u32, u8) -> Result<(), OsError>, raised),
            (set_fifo_not_inherited_of, Class::Ordinary),
        ] {
            let (tid, go, thread) = started(heir);
            raise(tid, 7).unwrap();
            let is_reset = expected == Class::Ordinary;
            assert_eq!(class_and_reset_of(tid), Ok((raised, is_reset)));
            go.send(()).unwrap();
            assert_eq!(thread.join().unwrap(), Ok(expected));
        }
    }
    /// In a thread of its own, because a dropped capability does not come back.
    fn without_sys_nice(work: impl FnOnce() + Send + 'static) {
        let limited = move || {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SYS_NICE);
            sets.permitted.remove(CapabilitySet::SYS_NICE);
            rustix::thread::set_capabilities(None, sets).unwrap();
            work();
        };
        std::thread::spawn(limited).join().unwrap();
    }

    #[test]
    #[ignore = "needs root and CAP_SYS_RESOURCE: drops a right and lives by a limit"]
    fn under_a_limit_a_thread_is_raised_demoted_and_raised_again_within_it() {
        // The limit applies to the whole process. Threads with the capability are unaffected.
        let set = |limit| rustix::process::setrlimit(Resource::Rtprio, limit).unwrap();
        let limit = |limit| set(Rlimit { current: Some(limit), maximum: Some(limit) });
        let before = rustix::process::getrlimit(Resource::Rtprio);
        limit(20);
        without_sys_nice(|| {
            // A thread with more capabilities cannot be changed.
            let (tid, go, thread) = started(|| ());
            let granted = RealTime::granted().unwrap();
            assert_eq!(granted.right, Right::Limit { priority_max: 20 });
            assert_eq!(granted.band.watchdog(), 20);
            let handlers = granted.band.handlers();
            for _ in 0..2 {
                set_fifo_not_inherited_of(tid, handlers).unwrap();
                assert_eq!(class_of(tid), Ok(Class::Fifo { priority: handlers }));
                set_fifo_not_inherited_of(tid, granted.band.offender()).unwrap();
                set_ordinary_of(tid).unwrap();
                assert_eq!(class_of(tid), Ok(Class::Ordinary));
            }
            assert!(set_fifo_of(tid, 21).unwrap_err().is_permission());
            go.send(()).unwrap();
            thread.join().unwrap();
        });
        limit(4);
        without_sys_nice(|| assert_eq!(RealTime::granted().unwrap_err().priority_limit, 4));
        set(before);
    }
}
