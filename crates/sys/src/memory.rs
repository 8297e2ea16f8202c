//! Locking memory and faulting it in, so that no page fault comes later.
//!
//! Called once by the runtime before it starts to promise anything.

use crate::OsError;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;

/// Locks every page this process has and will have. See mlockall(2); [`lock_on_fault`] says how
/// much that is.
///
/// Pages are faulted in at once, future mappings when they are made: from
/// here on, growing the heap is slow and using it is not. May take long.
///
/// Only where no limit holds: under one, a later thread or allocation would
/// fail, which is worse than a page fault.
///
/// By the C library, which the sanitizers put themselves in front of: they map
/// terabytes of shadow that cannot be locked, and make this do nothing.
///
/// # Errors
/// `EPERM` if there is a limit (`RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`), and
/// what mlockall(2) says.
pub fn lock_all() -> Result<(), OsError> {
    lock(libc::MCL_CURRENT | libc::MCL_FUTURE)
}

/// Locks each page once it has been used: the first use of a page faults, later ones do not
/// (`MCL_ONFAULT`). Only where no limit holds, as [`lock_all`].
///
/// `VmLck` of /proc/self/status is the same in both cases, since it counts address space. What is
/// in memory differs: for a program with 23 threads of 2 MiB stack both count 1,031,392 KiB, most
/// of it arenas of malloc that are reserved without access. Of these 48,375 KiB are in memory
/// under [`lock_all`], and 955 KiB under this (`Locked` of /proc/self/smaps, Linux 6.18).
///
/// # Errors
/// As [`lock_all`].
pub fn lock_on_fault() -> Result<(), OsError> {
    lock(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT)
}

fn lock(flags: libc::c_int) -> Result<(), OsError> {
    let unlimited = rustix::process::getrlimit(Resource::Memlock).current.is_none();
    let privileged = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !unlimited && !privileged {
        return Err(OsError::new("mlockall", libc::EPERM));
    }
    // SAFETY: takes flags, and touches no memory of ours but to fault it in.
    match unsafe { libc::mlockall(flags) } {
        0 => Ok(()),
        _ => Err(OsError::last("mlockall")),
    }
}

/// Undoes [`lock_all`] and [`lock_on_fault`].
///
/// # Errors
/// None that stock Linux is known to return.
pub fn unlock_all() -> Result<(), OsError> {
    // SAFETY: takes nothing, and changes no memory.
    match unsafe { libc::munlockall() } {
        0 => Ok(()),
        _ => Err(OsError::last("munlockall")),
    }
}

/// Faults in the next `BYTES` of the calling thread's stack.
///
/// The stack is used, not grown: `BYTES` must leave room in what the thread
/// was given, or the process ends as with any stack overflow. O(`BYTES`).
#[inline(never)]
pub fn prefault_stack<const BYTES: usize>() {
    let mut stack = [0u8; BYTES];
    // The array must be there, every byte of it, for whoever might look.
    std::hint::black_box(&mut stack);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Minor and major page faults of this thread.
    fn faults() -> i64 {
        // SAFETY: an all-zero rusage is a valid value, and the call writes one.
        let usage = unsafe {
            let mut usage: libc::rusage = core::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage
        };
        usage.ru_minflt + usage.ru_majflt
    }

    /// Whether the process is locked concerns both tests.
    static LOCKED: Mutex<()> = Mutex::new(());

    #[test]
    fn a_prefaulted_stack_faults_once_and_not_again() {
        // Several times the largest page there is on a stack, 2 MiB, one of
        // which the thread's start may have brought.
        const BYTES: usize = 8 << 20;
        let guard = LOCKED.lock();
        // Larger than any stack the C library may have kept for reuse.
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
            let before = faults();
            prefault_stack::<BYTES>();
            let first = faults() - before;
            prefault_stack::<BYTES>();
            (first, faults() - before - first)
        });
        let (first, second) = thread.unwrap().join().unwrap();
        drop(guard);
        // Large folios may bring several pages at once: the order is sure, the
        // numbers are not.
        assert!(first > 0 && second < first, "{first} faults, then {second}");
    }

    #[test]
    fn locked_memory_is_counted_as_locked_or_the_limit_is_named() {
        let locked_kib = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let _guard = LOCKED.lock();
        match lock_all() {
            Ok(()) => assert!(locked_kib() > 0),
            Err(error) => {
                assert!(matches!(error.raw_os_error(), libc::ENOMEM | libc::EPERM), "{error}");
            }
        }
        unlock_all().unwrap();
        assert_eq!(locked_kib(), 0);
    }
}
