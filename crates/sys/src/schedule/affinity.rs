//! The CPUs on which a thread may run.

use crate::OsError;
use rustix::thread::CpuSet;

/// Lets the calling thread run on these CPUs only.
///
/// # Errors
/// `EINVAL` if no CPU of the list exists and is allowed by the cpuset, or if a number is
/// [`CPUS_MAX`] or more.
pub fn pin_thread(cpus: &[u32]) -> Result<(), OsError> {
    let set = cpu_set(cpus)?;
    rustix::thread::sched_setaffinity(None, &set).map_err(OsError::of("sched_setaffinity"))
}

/// CPU numbers are below this value, the size of the C library's `cpu_set_t`.
pub const CPUS_MAX: u32 = 1024;
const _: () = assert!(CPUS_MAX as usize == CpuSet::MAX_CPU);

/// The CPUs the calling thread may run on, ascending. Allocates.
///
/// # Errors
/// `EINVAL` on a kernel configured for more than [`CPUS_MAX`] CPUs.
pub fn allowed_cpus() -> Result<Vec<u32>, OsError> {
    let set = rustix::thread::sched_getaffinity(None).map_err(OsError::of("sched_getaffinity"))?;
    Ok((0..CPUS_MAX).filter(|&cpu| set.is_set(cpu as usize)).collect())
}

/// The CPU on which the calling thread runs now. Unless the thread is pinned to one CPU, the answer
/// may be out of date at once. vDSO or rseq, some nanoseconds.
pub fn current_cpu() -> u32 {
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX)
}

/// Converts `cpus` to the kernel's format.
pub(crate) fn cpu_set(cpus: &[u32]) -> Result<CpuSet, OsError> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CPUS_MAX {
            return Err(OsError::new("sched_setaffinity", libc::EINVAL));
        }
        set.set(cpu as usize);
    }
    Ok(set)
}
