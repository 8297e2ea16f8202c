//! Waits for locks that lend a real-time priority.
//!
//! The owner of a priority-inheritance lock (futex(2), `FUTEX_LOCK_PI`) runs at the priority of a
//! thread that waits for the lock: it is *boosted*. No file lists the threads that are boosted. The
//! kernel's tracepoint `sched:sched_pi_setprio` fires at each change of a priority by inheritance.
//! [`Boosts`] reads it by perf_event_open(2), on all CPUs that are online.
//!
//! A record names the thread that ran then. That is the thread that begins to wait, unless another
//! thread requeued the wait (`FUTEX_CMP_REQUEUE_PI`), changed the class of a thread that waits, or
//! passed a lock on that others wait for. A second thread that waits for the same lock causes no
//! record. [`crate::process::ThreadHandle::lock_wait`] shows whether a thread waits now.
//!
//! Needs `CAP_PERFMON`, or `CAP_SYS_ADMIN` before Linux 5.8, and tracefs. If tracefs is mounted
//! neither at `/sys/kernel/tracing` nor at `/sys/kernel/debug/tracing`, it needs the right to mount
//! it (`CAP_SYS_ADMIN`); the mount is not visible to other processes.

pub use ring::Boost;

use crate::OsError;
use core::ffi::CStr;
use ring::Ring;
use rustix::fs::{Mode, OFlags};
use rustix::mount;
use std::fs::File;
use std::io::Read;

#[cfg(test)]
mod tests;

mod ring;

/// In tracefs.
const NUMBER_FILE: &str = "events/sched/sched_pi_setprio/id";
/// Where tracefs is mounted.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The boosts to a priority or above, on all CPUs. See the module's head. A descriptor and 8 KiB a
/// CPU.
#[derive(Debug)]
pub struct Boosts {
    rings: Vec<Ring>,
    polled: Vec<libc::pollfd>,
}

impl Boosts {
    /// Begins to record the boosts to `SCHED_FIFO` priority `least` (1 to 99) and above. Some
    /// system calls for each CPU. Allocates.
    ///
    /// # Errors
    /// `EOPNOTSUPP` on a kernel with `PREEMPT_RT`: there, locks of the kernel lend priorities, too.
    /// `EACCES` or `EPERM` without the right. `ENOENT` if the kernel has no such tracepoint.
    /// `EMFILE`, `ENOMEM`.
    pub fn record(least: u8) -> Result<Boosts, OsError> {
        let is_preempt_rt = std::fs::read_to_string("/sys/kernel/realtime");
        if is_preempt_rt.is_ok_and(|flag| flag.trim() == "1") {
            return Err(OsError::new("perf_event_open on PREEMPT_RT", libc::EOPNOTSUPP));
        }
        let number = tracepoint()?;
        // The kernel's number of `SCHED_FIFO` priority p is 99 - p, and -1 is `SCHED_DEADLINE`.
        let filter = format!("newprio <= {}\0", 99_u8.saturating_sub(least));
        let invalid = || OsError::new("filter of a tracepoint", libc::EINVAL);
        let filter = CStr::from_bytes_with_nul(filter.as_bytes()).map_err(|_| invalid())?;
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")
            .map_err(OsError::of_io("read(/sys/devices/system/cpu/online)"))?;
        let open = |cpu| match Ring::open(number, cpu, filter) {
            // The CPU has gone offline.
            Err(error) if error.raw_os_error() == libc::ENODEV => None,
            ring => Some(ring),
        };
        let rings: Vec<Ring> = cpus_in(&online).filter_map(open).collect::<Result<_, _>>()?;
        let polled = rings
            .iter()
            .map(|ring| libc::pollfd { fd: ring.raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        Ok(Boosts { rings, polled })
    }

    /// Blocks until there is a new record, or until `deadline_ns` on the monotonic clock. Returns
    /// whether there is one. May also return `false` early, after a signal. Does not allocate.
    pub fn wait_until_ns(&mut self, deadline_ns: u64) -> bool {
        let span_ns = deadline_ns.saturating_sub(crate::clock::monotonic_ns());
        let span = libc::timespec {
            tv_sec: (span_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (span_ns % 1_000_000_000).cast_signed(),
        };
        let (start, count) = (self.polled.as_mut_ptr(), self.polled.len() as libc::nfds_t);
        // SAFETY: `count` elements that `self` owns. The descriptors are open as long as `rings`
        // is. Null: the signal mask stays.
        let ready = unsafe { libc::ppoll(start, count, &raw const span, core::ptr::null()) };
        if ready <= 0 {
            return false;
        }
        let mut any = false;
        for polled in &mut self.polled {
            any |= polled.revents & libc::POLLIN != 0;
            if polled.revents & !libc::POLLIN != 0 {
                // Its CPU has gone offline. ppoll(2) ignores a negative descriptor.
                polled.fd = -1;
            }
        }
        any
    }

    /// Appends the boosts since the last call. A CPU keeps the first 170, and drops the rest. No
    /// system call. Allocates.
    pub fn take(&mut self, boosts: &mut Vec<Boost>) {
        for ring in &mut self.rings {
            ring.take(boosts);
        }
    }
}

/// The number of the tracepoint in this kernel.
fn tracepoint() -> Result<u64, OsError> {
    const OPERATION: &str = "read(tracing/events/sched/sched_pi_setprio/id)";
    let mounted =
        FOLDERS.iter().find_map(|folder| File::open(format!("{folder}/{NUMBER_FILE}")).ok());
    let mut file = match mounted {
        Some(file) => file,
        None => open_unmounted().map_err(OsError::of(OPERATION))?,
    };
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(OsError::of_io(OPERATION))?;
    text.trim().parse().map_err(|_| OsError::new(OPERATION, libc::EINVAL))
}

/// The file in a mount of tracefs that only this function sees.
fn open_unmounted() -> rustix::io::Result<File> {
    let context = mount::fsopen("tracefs", mount::FsOpenFlags::FSOPEN_CLOEXEC)?;
    mount::fsconfig_create(&context)?;
    let (flags, attributes) =
        (mount::FsMountFlags::FSMOUNT_CLOEXEC, mount::MountAttrFlags::MOUNT_ATTR_NOEXEC);
    let root = mount::fsmount(&context, flags, attributes)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(root, NUMBER_FILE, flags, Mode::empty())?))
}

/// The numbers in a list such as `0-2,5`.
fn cpus_in(list: &str) -> impl Iterator<Item = u32> {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse().ok().zip(last.parse().ok());
        range.into_iter().flat_map(|(first, last): (u32, u32)| first..=last)
    })
}
