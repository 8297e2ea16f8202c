//! The scheduling class of the calling thread or of another one.

use crate::OsError;
use rustix::thread::Pid;

/// Puts the calling thread into `SCHED_FIFO` at `priority` (1 lowest to 99).
/// See sched(7).
///
/// # Errors
/// `EPERM` without the right ([`super::fifo_permission`] names the missing right),
/// `EINVAL` for a priority outside the range.
pub fn set_fifo(priority: u8) -> Result<(), OsError> {
    set_class(libc::SCHED_FIFO, priority)
}

/// Puts the calling thread back into the ordinary class, `SCHED_OTHER`. Its nice value stays.
///
/// # Errors
/// Stock Linux is not known to return one. A sandbox may refuse the call.
pub fn set_ordinary() -> Result<(), OsError> {
    set_class(libc::SCHED_OTHER, 0)
}

/// Async-signal-safe: also called between fork and exec ([`crate::process`]).
pub(crate) fn set_class(class: i32, priority: u8) -> Result<(), OsError> {
    set_class_by_number(0, class, priority)
}

pub(super) fn set_class_of(tid: Pid, class: i32, priority: u8) -> Result<(), OsError> {
    set_class_by_number(tid.as_raw_pid(), class, priority)
}

/// Thread 0 is the calling thread. Async-signal-safe.
fn set_class_by_number(tid: i32, class: i32, priority: u8) -> Result<(), OsError> {
    let param = libc::sched_param { sched_priority: i32::from(priority) };
    // The system call and not the C library's function, because the function of musl refuses.
    // SAFETY: the kernel reads one sched_param.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, class, &raw const param) };
    if result == 0 { Ok(()) } else { Err(OsError::last("sched_setscheduler")) }
}
