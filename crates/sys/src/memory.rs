//! Locks memory and faults it in, so that later accesses cause no page fault.
//!
//! The runtime calls this once, before it guarantees any deadline.

use crate::OsError;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;

/// Locks every present and future page of this process. See mlockall(2). [`lock_on_fault`] says how
/// much memory that is.
///
/// The kernel faults present pages in at once, and pages of future mappings when they are made.
/// From then on growing the heap is slow and using it is fast. The call may take long.
///
/// Use it only if no limit applies. Under a limit, a later thread or allocation would fail, which
/// is worse than a page fault.
///
/// The call goes through the C library, because the sanitizers intercept that function and make it
/// do nothing. They map terabytes of shadow memory that cannot be locked.
///
/// # Errors
/// `EPERM` if a limit applies (`RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`). Otherwise the errors of
/// mlockall(2).
pub fn lock_all() -> Result<(), OsError> {
    lock(libc::MCL_CURRENT | libc::MCL_FUTURE)
}

/// Locks each page once it is used (`MCL_ONFAULT`): the first use of a page faults, later uses do
/// not. Use it only if no limit applies, as with [`lock_all`].
///
/// `VmLck` of /proc/self/status is the same for both calls, since it counts address space. The
/// memory in use differs. For a program with 23 threads of 2 MiB stack both count 1,031,392 KiB.
/// Most of that is malloc arenas that are reserved without access. The memory in use is 48,375 KiB
/// under [`lock_all`] and 955 KiB under this call (`Locked` of /proc/self/smaps, Linux 6.18).
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
    // SAFETY: the call takes flags and changes no memory. It only faults pages in.
    match unsafe { libc::mlockall(flags) } {
        0 => Ok(()),
        _ => Err(OsError::last("mlockall")),
    }
}

/// Undoes [`lock_all`] and [`lock_on_fault`].
///
/// # Errors
/// Stock Linux is not known to return one.
pub fn unlock_all() -> Result<(), OsError> {
    // SAFETY: the call has no arguments and changes no memory.
    match unsafe { libc::munlockall() } {
        0 => Ok(()),
        _ => Err(OsError::last("munlockall")),
    }
}

/// Faults in the next `BYTES` of the calling thread's stack.
///
/// The function uses the stack and does not enlarge it. `BYTES` must fit into the rest of the
/// thread's stack; otherwise the process ends with a stack overflow. O(`BYTES`).
#[inline(never)]
pub fn prefault_stack<const BYTES: usize>() {
    let mut stack = [0u8; BYTES];
    // `black_box` forces the compiler to write every byte of the array.
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

    /// Both tests change whether the process is locked, so they exclude each other.
    static LOCKED: Mutex<()> = Mutex::new(());

    #[test]
    fn the_second_prefault_of_a_stack_faults_less() {
        // Several times the largest page of a stack, 2 MiB. The thread's start may have faulted one
        // such page in.
        const BYTES: usize = 8 << 20;
        let guard = LOCKED.lock();
        // Larger than any stack that the C library may have kept for reuse.
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
            let before = faults();
            prefault_stack::<BYTES>();
            let first = faults() - before;
            prefault_stack::<BYTES>();
            (first, faults() - before - first)
        });
        let (first, second) = thread.unwrap().join().unwrap();
        drop(guard);
        // Large folios may fault in several pages at once. So the order is certain, the numbers are
        // not.
        assert!(first > 0 && second < first, "{first} faults, then {second}");
    }

    #[test]
    fn locking_raises_vmlck_or_fails_with_the_limit() {
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
