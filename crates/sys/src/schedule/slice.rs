//! The slice of a thread of the fair class: how long it runs before the kernel chooses again.

use super::other_thread::{Class, attributes_of, class_of_attributes};
use crate::OsError;

/// The slices that the kernel takes, 100 us to 100 ms (Linux 6.12).
const SLICE_NS: std::ops::RangeInclusive<u64> = 100_000..=100_000_000;

/// Asks for the slice of thread `tid`, in ns; `None` for the kernel's own. The slice is rounded to
/// 100 us to 100 ms. Class, nice value and the rest stay. Threads and processes that the thread
/// starts from now on have the same slice. Three system calls.
///
/// Returns whether the thread has the slice now: not before Linux 6.12, and not in a real-time
/// class.
///
/// # Errors
/// `EPERM` if the thread belongs to another user, without `CAP_SYS_NICE`. `ESRCH` if there is no
/// such thread.
pub fn set_slice_of(tid: u32, slice_ns: Option<u64>) -> Result<bool, OsError> {
    let mut attributes = attributes_of(tid)?;
    if !matches!(class_of_attributes(&attributes)?, Class::Ordinary | Class::Batch | Class::Idle) {
        return Ok(false);
    }
    let asked_ns = slice_ns.map_or(0, |ns| ns.clamp(*SLICE_NS.start(), *SLICE_NS.end()));
    attributes.size = ATTRIBUTES_BYTES;
    attributes.sched_runtime = asked_ns;
    (attributes.sched_deadline, attributes.sched_period) = (0, 0);
    let tid_of_kernel = i32::try_from(tid).unwrap_or(0);
    // SAFETY: the kernel reads `attributes.size` bytes, the size of the struct. `attributes_of` has
    // found the thread, so its number is positive and fits.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, tid_of_kernel, &raw const attributes, 0) };
    if result != 0 {
        return Err(OsError::last("sched_setattr"));
    }
    // An older kernel ignores the slice and reports 0.
    Ok(slice_ns.is_none() || attributes_of(tid)?.sched_runtime == asked_ns)
}

/// `libc` defines the first version of the structure, which every kernel accepts.
const ATTRIBUTES_BYTES: u32 = 48;
const _: () = assert!(size_of::<libc::sched_attr>() == ATTRIBUTES_BYTES as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread_id;
    use crate::schedule::class_of;

    /// What the kernel reports as the slice of the calling thread; 0 before Linux 6.12.
    fn slice_ns() -> u64 {
        attributes_of(thread_id()).unwrap().sched_runtime
    }

    #[test]
    fn a_slice_is_kept_where_the_kernel_has_slices_and_inherited() {
        let before_ns = slice_ns();
        let is_kept = set_slice_of(thread_id(), Some(1_234_567)).unwrap();
        assert_eq!(is_kept, before_ns != 0);
        let heir_ns = std::thread::spawn(slice_ns).join().unwrap();
        if is_kept {
            assert_eq!((slice_ns(), heir_ns), (1_234_567, 1_234_567));
        }
        assert_eq!(class_of(thread_id()), Ok(Class::Ordinary));
        for (asked_ns, found_ns) in [(1, *SLICE_NS.start()), (u64::MAX, *SLICE_NS.end())] {
            assert_eq!(set_slice_of(thread_id(), Some(asked_ns)), Ok(is_kept));
            assert!(!is_kept || slice_ns() == found_ns);
        }
        assert_eq!(set_slice_of(thread_id(), None), Ok(true));
        assert_eq!(slice_ns(), before_ns);
    }

    #[test]
    fn a_missing_thread_is_an_error() {
        for tid in [0, 5_000_000, u32::MAX] {
            assert_eq!(set_slice_of(tid, Some(1)).unwrap_err().raw_os_error(), libc::ESRCH);
        }
    }
}
