//! The structs of `include/upcall.h`, member by member.
//!
//! Their layout is fixed. This file and the header assert the sizes. In a test a C compiler
//! checks every offset in [`LAYOUT`] (`tests/c.rs`). A struct may grow at its end, see
//! `read_sized`.

use core::ffi::{c_char, c_int, c_void};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::{Failed, Failure};

/// The largest number of open descriptors, `RTS_DESCRIPTORS_MAX`.
pub const DESCRIPTORS_MAX: usize = 1024;

/// `RTS_ABORT_PHASE`.
pub const ABORT_PHASE: u32 = 1;

/// `RTS_WORK_CONSERVING`.
pub const WORK_CONSERVING: u32 = 2;

/// `RTS_SAME_CPU`.
pub const SAME_CPU: u32 = 4;

/// `rts_handler_fn`. With `C-unwind` a C++ exception that leaves a handler ends the process
/// in a way that Rust defines.
pub type HandlerFn = unsafe extern "C-unwind" fn(*mut Funargs);

/// `struct rts_shared`. Its members are atomics, because any thread of the program may read
/// them. All accesses are relaxed, because they publish no other memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Shared {
    /// Size of this struct, in bytes.
    pub size: AtomicU32,
    /// The count at which the inline function calls `rts_boundary`.
    pub pdu_granted: AtomicU32,
    /// The most PDUs of this upcall.
    pub pdu_max: AtomicU32,
    /// Not 0: the handler must return although it has work left.
    pub yield_request: AtomicU32,
    /// Not 0: this upcall continues a job.
    pub resumed: AtomicU32,
    /// The descriptor, in two's complement.
    pub descriptor: AtomicU32,
    /// `Batch::check_at`, in nanoseconds of `CLOCK_MONOTONIC`.
    pub check_at_ns: AtomicU64,
    /// Not 0: the process ends.
    pub abort: AtomicU32,
    /// `Batch::jobs_skipped`, at most `u32::MAX`.
    pub jobs_skipped: AtomicU32,
    /// Always 0.
    pub reserved0: [AtomicU32; 6],
    /// PDUs begun in this upcall. C writes this member.
    pub pdu_count: AtomicU32,
    /// Not 0: the handler wants no further upcalls. C writes this member.
    pub finish: AtomicU32,
    /// Logical arrival of the next message, in nanoseconds of `CLOCK_MONOTONIC`; 0: by position. C
    /// writes this member.
    pub next_arrival_ns: AtomicU64,
    /// Messages that wait beyond this job. C writes this member.
    pub messages_waiting: AtomicU32,
    /// Always 0.
    pub reserved1: [AtomicU32; 11],
}

/// `struct rts_funargs`.
#[repr(C)]
#[derive(Debug)]
pub struct Funargs {
    /// Size of this struct, in bytes.
    pub size: u32,
    /// Descriptor of the handler.
    pub descriptor: c_int,
    /// The protocol control block that the program gave to `rts_create`.
    pub pcb: *mut c_void,
    /// The memory that handler and library share.
    pub smstr: *const Shared,
}

/// `struct rts_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    /// Size of the caller's struct, in bytes.
    pub size: u32,
    /// `B`, PDUs per period; 0 means 1.
    pub batch: u32,
    /// `b`, PDUs per quantum; 0 means 1.
    pub quantum: u32,
    /// [`ABORT_PHASE`], [`WORK_CONSERVING`] and [`SAME_CPU`], or 0.
    pub flags: u32,
    /// The period, in nanoseconds.
    pub period_ns: u64,
    /// CPU time per PDU, in nanoseconds; 0: the library measures it.
    pub cost_ns: u64,
    /// From release to the end of a job, in nanoseconds; 0: the period.
    pub deadline_ns: u64,
    /// From `rts_run` to the first release, in nanoseconds.
    pub offset_ns: u64,
    /// The name in UTF-8, or null.
    pub name: *const c_char,
    /// PS: a share in millionths; 0: none.
    pub share_ppm: u32,
    /// PS: a weight; 0: 1.
    pub weight: u32,
    /// DWCS: `x` of a window.
    pub window_misses: u32,
    /// DWCS: `y` of a window; 0: no period may be missed.
    pub window_periods: u32,
    /// DWS: 0 to 2, `RTS_REAL_TIME` to `RTS_BACKGROUND`.
    pub work_class: u32,
    /// DWS: messages ahead of their logical arrivals.
    pub workahead: u32,
    /// DWS: the delay bound in nanoseconds; 0: the deadline.
    pub delay_bound_ns: u64,
    /// What becomes of late jobs: 0 to 3, `RTS_BACKLOG_DEFAULT` to `RTS_LATEST`.
    pub backlog: u32,
    /// With [`SAME_CPU`]: the descriptor of the handler whose CPU is asked for. Else 0.
    pub same_cpu_as: c_int,
}

/// `struct rts_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Size of the caller's struct, in bytes.
    pub size: u32,
    /// Length of `cpus`.
    pub cpu_count: u32,
    /// `cpu_count` CPU numbers, or null if there are none.
    pub cpus: *const u32,
    /// The name of a policy, or null.
    pub policy: *const c_char,
    /// The daemon's socket. Null: the environment decides. Empty: no daemon.
    pub socket: *const c_char,
    /// Name of the domain in UTF-8, or null.
    pub domain: *const c_char,
    /// The name of a setting, or null.
    pub memory_lock: *const c_char,
}

/// `struct rts_mask`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// Size of the caller's struct, in bytes.
    pub size: u32,
    /// Always 0.
    pub reserved: u32,
    /// Descriptor `d` is bit `d % 64` of word `d / 64`.
    pub bits: [u64; DESCRIPTORS_MAX / 64],
}

/// `struct rts_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Size of the caller's struct, in bytes; the library sets it to the filled size.
    pub size: u32,
    /// 1 while the handler is active, else 0.
    pub active: u32,
    /// Calls of the handler.
    pub upcalls: u64,
    /// PDUs begun.
    pub pdus: u64,
    /// Jobs that ended or were dropped.
    pub jobs: u64,
    /// Jobs that ended after their deadline or were dropped.
    pub misses: u64,
    /// Quanta that took longer than declared.
    pub quantum_overruns: u64,
    /// Upcalls that left an impossible `pdu_count`.
    pub count_errors: u64,
    /// Median response time, in nanoseconds.
    pub response_ns_p50: u64,
    /// 99th percentile of response times, in nanoseconds.
    pub response_ns_p99: u64,
    /// Worst response time, in nanoseconds.
    pub response_ns_max: u64,
    /// Worst time from release to first upcall, in nanoseconds.
    pub wakeup_ns_max: u64,
    /// Smoothed CPU time of a PDU, in nanoseconds.
    pub cost_ns_mean: u64,
    /// Least slack, in nanoseconds; `i64::MAX` before the first job.
    pub slack_ns_min: i64,
    /// Jobs that were dropped before they began.
    pub skipped: u64,
}

const _: () = {
    assert!(size_of::<Shared>() == 128 && offset_of!(Shared, pdu_count) == 64);
    assert!(size_of::<Mask>() == 136);
    assert!(size_of::<Statistics>() == 112 && size_of::<Offence>() == 24);
    #[cfg(target_pointer_width = "64")]
    assert!(size_of::<Funargs>() == 24 && size_of::<Attr>() == 96 && size_of::<Config>() == 48);
};

/// `struct rts_offence`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Offence {
    /// Size of the caller's struct, in bytes; the library sets it to the filled size.
    pub size: u32,
    /// The CPU.
    pub cpu: u32,
    /// [`upcall::Measure`], as a number.
    pub measure: u32,
    /// Always 0.
    pub reserved: u32,
    /// CPU time for which the CPU was kept, in nanoseconds.
    pub held_ns: u64,
}

/// Name in C, size in bytes, and name and offset of each member.
pub type StructLayout = (&'static str, usize, &'static [(&'static str, usize)]);

/// The layout of one struct, with every member. The pattern without `..` does not compile
/// if a member is missing.
macro_rules! layout {
    ($c:literal, $name:ident { $($member:ident),* $(,)? }) => {{
        const _: fn($name) = |all| {
            let $name { $($member: _),* } = all;
        };
        ($c, size_of::<$name>(), &[$((stringify!($member), offset_of!($name, $member))),*])
    }};
}

/// Every struct of the header, in the layout that Rust gives it.
pub const LAYOUT: &[StructLayout] = &[
    layout!(
        "rts_shared",
        Shared {
            size,
            pdu_granted,
            pdu_max,
            yield_request,
            resumed,
            descriptor,
            check_at_ns,
            abort,
            jobs_skipped,
            reserved0,
            pdu_count,
            finish,
            next_arrival_ns,
            messages_waiting,
            reserved1,
        }
    ),
    layout!("rts_funargs", Funargs { size, descriptor, pcb, smstr }),
    layout!(
        "rts_attr",
        Attr {
            size,
            batch,
            quantum,
            flags,
            period_ns,
            cost_ns,
            deadline_ns,
            offset_ns,
            name,
            share_ppm,
            weight,
            window_misses,
            window_periods,
            work_class,
            workahead,
            delay_bound_ns,
            backlog,
            same_cpu_as,
        }
    ),
    layout!("rts_config", Config { size, cpu_count, cpus, policy, socket, domain, memory_lock }),
    layout!("rts_mask", Mask { size, reserved, bits }),
    layout!(
        "rts_stats",
        Statistics {
            size,
            active,
            upcalls,
            pdus,
            jobs,
            misses,
            quantum_overruns,
            count_errors,
            response_ns_p50,
            response_ns_p99,
            response_ns_max,
            wakeup_ns_max,
            cost_ns_mean,
            slack_ns_min,
            skipped,
        }
    ),
    layout!("rts_offence", Offence { size, cpu, measure, reserved, held_ns }),
];

/// A struct that begins with its size as a `u32`, and for which every pattern of bytes is a
/// valid value.
///
/// # Safety
/// Both must hold, and the struct must be `repr(C)`.
pub(crate) unsafe trait Sized32: Copy {}

// SAFETY: `repr(C)`, `size: u32` first, then integers and raw pointers only.
unsafe impl Sized32 for Attr {}
// SAFETY: as above.
unsafe impl Sized32 for Config {}
// SAFETY: as above.
unsafe impl Sized32 for Offence {}
// SAFETY: as above.
unsafe impl Sized32 for Mask {}
// SAFETY: as above.
unsafe impl Sized32 for Statistics {}

/// Copies a caller's struct of any size. Members that the caller's version lacks count as 0.
/// Members that this library does not know must be 0, because other values ask for unknown
/// functions. The rule is that of sched_setattr(2) and clone3(2).
///
/// # Errors
/// `EFAULT`: null or not aligned. `EINVAL`: smaller than the first version, `size_min`.
/// `E2BIG`: an unknown member is not 0.
///
/// # Safety
/// `from` is null, or the number of bytes in its first member can be read there.
pub(crate) unsafe fn read_sized<T: Sized32>(
    what: &str,
    from: *const T,
    size_min: usize,
) -> Result<T, Failure> {
    // SAFETY: the caller promises the same of `from`.
    let size = unsafe { size_of_callers(what, from, size_min)? };
    let bytes = from.cast::<u8>();
    for at in size_of::<T>()..size {
        // SAFETY: `at < size`, and the caller promises that `size` bytes can be read.
        if unsafe { bytes.add(at).read() } != 0 {
            let found = format!(
                "{what} has {size} bytes, this library knows {} of them, and byte {at} is not 0",
                size_of::<T>()
            );
            return Err(Failure::new(Failed::Unknown, found));
        }
    }
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both sides hold the smaller of the two sizes. They do not overlap, because
    // `value` is new.
    unsafe {
        core::ptr::copy_nonoverlapping(
            bytes,
            value.as_mut_ptr().cast::<u8>(),
            size.min(size_of::<T>()),
        );
    }
    // SAFETY: every pattern of bytes is a value (`Sized32`), and all bytes are set.
    Ok(unsafe { value.assume_init() })
}

/// Copies as much of `value` into a caller's struct as fits, and sets the rest of it to 0.
/// The first member becomes the size that was filled.
///
/// # Errors
/// `EFAULT` and `EINVAL` as in [`read_sized`].
///
/// # Safety
/// `to` is null, or the number of bytes in its first member can be read and written there.
pub(crate) unsafe fn write_sized<T: Sized32>(
    what: &str,
    to: *mut T,
    value: &T,
    size_min: usize,
) -> Result<(), Failure> {
    // SAFETY: the caller promises the same of `to`.
    let size = unsafe { size_of_callers(what, to, size_min)? };
    let filled = size.min(size_of::<T>());
    // SAFETY: the caller promises that `to` has `size` bytes, and `value` has at least
    // `filled`. The two do not overlap, because `value` belongs to this library.
    unsafe {
        let bytes = to.cast::<u8>();
        core::ptr::copy_nonoverlapping(core::ptr::from_ref(value).cast::<u8>(), bytes, filled);
        core::ptr::write_bytes(bytes.add(filled), 0, size - filled);
        to.cast::<u32>().write(u32::try_from(filled).unwrap_or(0));
    }
    Ok(())
}

/// Reads the first member of a caller's struct.
///
/// # Safety
/// As [`read_sized`].
pub(crate) unsafe fn size_of_callers<T: Sized32>(
    what: &str,
    from: *const T,
    size_min: usize,
) -> Result<usize, Failure> {
    if from.is_null() {
        return Err(Failure::new(Failed::Null, format!("{what} is NULL")));
    }
    if !from.is_aligned() {
        return Err(Failure::new(Failed::Null, format!("{what} is not aligned")));
    }
    // SAFETY: `from` is not null and is aligned, and the caller promises that it is readable.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    // A size above that of any version was never set by the program.
    if !(size_min..=4096).contains(&size) {
        let found = format!("{what} has size {size}, expected its sizeof, {}", size_of::<T>());
        return Err(Failure::new(Failed::Invalid, found));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use core::ptr::null;

    use super::*;

    #[repr(C)]
    struct Newer {
        known: Config,
        more: u64,
    }

    const CONFIG: Config = Config {
        size: 48,
        cpu_count: 3,
        cpus: null(),
        policy: null(),
        socket: null(),
        domain: null(),
        memory_lock: null(),
    };

    #[test]
    fn a_newer_struct_is_read_if_its_unknown_members_are_zero() {
        let mut newer = Newer { known: CONFIG, more: 0 };
        newer.known.size = 56;
        // SAFETY: `newer` has 56 bytes.
        let read = |newer: &Newer| unsafe { read_sized("config", &raw const newer.known, 48) };
        // Here the pointer is to the whole struct, not only to its first member.
        let whole = |newer: &Newer| {
            // SAFETY: `newer` has 56 bytes.
            unsafe { read_sized("config", core::ptr::from_ref(newer).cast::<Config>(), 48) }
        };
        assert_eq!(whole(&newer).map(|config| config.cpu_count).ok(), Some(3));
        newer.more = 7;
        assert_eq!(whole(&newer).err().map(|failure| failure.code()), Some(-libc::E2BIG));
        newer.known.size = 48;
        assert!(read(&newer).is_ok());
    }

    #[test]
    fn an_older_struct_is_filled_up_to_its_own_size() {
        let value = Statistics { upcalls: 1, pdus: 2, jobs: 3, ..Statistics::default() };
        let mut theirs = Statistics { size: 24, jobs: 99, ..Statistics::default() };
        // SAFETY: `theirs` has more than 24 bytes.
        assert!(unsafe { write_sized("statistics", &raw mut theirs, &value, 24) }.is_ok());
        assert_eq!((theirs.size, theirs.upcalls, theirs.pdus, theirs.jobs), (24, 1, 2, 99));
    }

    #[test]
    fn a_size_that_was_not_set_is_refused() {
        for size in [0, 20, 5000] {
            let config = Config { size, ..CONFIG };
            // SAFETY: the size in its first member is refused before anything else is read.
            let read = unsafe { read_sized("config", &raw const config, 40) };
            assert_eq!(read.err().map(|failure| failure.code()), Some(-libc::EINVAL));
        }
    }
}
