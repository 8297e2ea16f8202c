//! The structs of `include/upcall.h`, member by member.
//!
//! Their layout is fixed: sizes are asserted here and in the header, and a test
//! has a C compiler check every offset in [`LAYOUT`] (`tests/header.rs`). A struct may
//! grow at its end; see `read_sized`.

use core::ffi::{c_char, c_int, c_void};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::{Failed, Failure};

/// Most descriptors; `RTS_DESCRIPTORS_MAX`.
pub const DESCRIPTORS_MAX: usize = 1024;

/// `RTS_ABORT_PHASE`.
pub const ABORT_PHASE: u32 = 1;

/// `rts_handler_fn`. `C-unwind`: a C++ exception that comes out of a handler ends
/// the process by what Rust defines, not by chance.
pub type HandlerFn = unsafe extern "C-unwind" fn(*mut Funargs);

/// `struct rts_shared`. Atomics, for any thread of the program may look at it; all
/// accesses are relaxed, nothing else is published by them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Shared {
    /// Of this struct.
    pub size: AtomicU32,
    /// Where the inline count has to ask.
    pub pdu_granted: AtomicU32,
    /// PDUs of this upcall at most.
    pub pdu_max: AtomicU32,
    /// Whether the handler was told to return with work left.
    pub yield_request: AtomicU32,
    /// Whether this upcall continues a job.
    pub resumed: AtomicU32,
    /// The descriptor as its two's complement.
    pub descriptor: AtomicU32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub check_at_ns: AtomicU64,
    /// Whether the process ends.
    pub abort: AtomicU32,
    /// 0.
    pub reserved0: [AtomicU32; 7],
    /// PDUs begun; written by C.
    pub pdu_count: AtomicU32,
    /// Written by C.
    pub finish: AtomicU32,
    /// 0.
    pub reserved1: [AtomicU32; 14],
}

/// `struct rts_funargs`.
#[repr(C)]
#[derive(Debug)]
pub struct Funargs {
    /// Of this struct.
    pub size: u32,
    /// Whose upcall.
    pub descriptor: c_int,
    /// The program's.
    pub pcb: *mut c_void,
    /// What it shares with us.
    pub smstr: *const Shared,
}

/// `struct rts_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    /// Of the caller's struct.
    pub size: u32,
    /// `B`; 0: 1.
    pub batch: u32,
    /// `b`; 0: 1.
    pub quantum: u32,
    /// [`ABORT_PHASE`], or 0.
    pub flags: u32,
    /// Nanoseconds.
    pub period_ns: u64,
    /// Nanoseconds a PDU; 0: measured.
    pub cost_ns: u64,
    /// Nanoseconds; 0: the period.
    pub deadline_ns: u64,
    /// Nanoseconds.
    pub offset_ns: u64,
    /// UTF-8, or null.
    pub name: *const c_char,
}

/// `struct rts_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of the caller's struct.
    pub size: u32,
    /// Of `cpus`.
    pub cpu_count: u32,
    /// So many, or null if none.
    pub cpus: *const u32,
    /// A policy's name, or null.
    pub policy: *const c_char,
    /// The daemon's socket; null: as the environment says; empty: none.
    pub socket: *const c_char,
    /// UTF-8, or null.
    pub domain: *const c_char,
    /// A setting's name, or null.
    pub memory_lock: *const c_char,
}

/// `struct rts_mask`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// Of the caller's struct.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// Descriptor `d` is bit `d % 64` of word `d / 64`.
    pub bits: [u64; DESCRIPTORS_MAX / 64],
}

/// `struct rts_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Of the caller's struct, then of what was filled.
    pub size: u32,
    /// 0 or 1.
    pub active: u32,
    /// Calls of the handler.
    pub upcalls: u64,
    /// Begun.
    pub pdus: u64,
    /// Ended.
    pub jobs: u64,
    /// Of these.
    pub misses: u64,
    /// Quanta.
    pub quantum_overruns: u64,
    /// Upcalls.
    pub count_errors: u64,
    /// Median.
    pub response_ns_p50: u64,
    /// 99th percentile.
    pub response_ns_p99: u64,
    /// Worst.
    pub response_ns_max: u64,
    /// Worst.
    pub wakeup_ns_max: u64,
    /// Of a PDU.
    pub cost_ns_mean: u64,
    /// `i64::MAX` before the first job.
    pub slack_ns_min: i64,
}

const _: () = {
    assert!(size_of::<Shared>() == 128 && offset_of!(Shared, pdu_count) == 64);
    assert!(size_of::<Mask>() == 136);
    assert!(size_of::<Statistics>() == 104);
    #[cfg(target_pointer_width = "64")]
    assert!(size_of::<Funargs>() == 24 && size_of::<Attr>() == 56 && size_of::<Config>() == 48);
};

/// Name in C, size, and name and offset of each member.
pub type StructLayout = (&'static str, usize, &'static [(&'static str, usize)]);

/// The layout of one struct, with every member: a pattern without `..` does not
/// compile if one is left out.
macro_rules! layout {
    ($c:literal, $name:ident { $($member:ident),* $(,)? }) => {{
        const _: fn($name) = |all| {
            let $name { $($member: _),* } = all;
        };
        ($c, size_of::<$name>(), &[$((stringify!($member), offset_of!($name, $member))),*])
    }};
}

/// Every struct of the header as Rust lays it out.
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
            reserved0,
            pdu_count,
            finish,
            reserved1,
        }
    ),
    layout!("rts_funargs", Funargs { size, descriptor, pcb, smstr }),
    layout!(
        "rts_attr",
        Attr { size, batch, quantum, flags, period_ns, cost_ns, deadline_ns, offset_ns, name }
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
        }
    ),
];

/// A struct that begins with its size as a `u32`, and of which every pattern of
/// bytes is a value.
///
/// # Safety
/// Both must be so; the struct is `repr(C)`.
pub(crate) unsafe trait Sized32: Copy {}

// SAFETY: `repr(C)`, `size: u32` first, then integers and raw pointers only.
unsafe impl Sized32 for Attr {}
// SAFETY: as above.
unsafe impl Sized32 for Config {}
// SAFETY: as above.
unsafe impl Sized32 for Mask {}
// SAFETY: as above.
unsafe impl Sized32 for Statistics {}

/// Copies a caller's struct of any size: what it leaves out counts as 0, and what
/// it has beyond ours must be 0, else it asks for something this library does not know.
/// The rule is that of sched_setattr(2) and clone3(2).
///
/// # Errors
/// `EFAULT`: null or not aligned. `EINVAL`: smaller than the first version, which
/// `size_min` is. `E2BIG`: as said.
///
/// # Safety
/// `from` is null, or as many bytes can be read there as its first member says.
pub(crate) unsafe fn read_sized<T: Sized32>(
    what: &str,
    from: *const T,
    size_min: usize,
) -> Result<T, Failure> {
    // SAFETY: the caller's promise, passed on.
    let size = unsafe { size_of_callers(what, from, size_min)? };
    let bytes = from.cast::<u8>();
    for at in size_of::<T>()..size {
        // SAFETY: `at < size`, which the caller says can be read.
        if unsafe { bytes.add(at).read() } != 0 {
            let found = format!(
                "{what} has {size} bytes, this library knows {} of them, and byte {at} is not 0",
                size_of::<T>()
            );
            return Err(Failure::new(Failed::Unknown, found));
        }
    }
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both sides hold the smaller of the two sizes, and do not overlap, as
    // one of them is new.
    unsafe {
        core::ptr::copy_nonoverlapping(
            bytes,
            value.as_mut_ptr().cast::<u8>(),
            size.min(size_of::<T>()),
        );
    }
    // SAFETY: every pattern of bytes is a value (`Sized32`), and all are set.
    Ok(unsafe { value.assume_init() })
}

/// Copies as much of `value` to a caller's struct as fits there, and the rest of it 0.
/// The first member becomes the size that was filled.
///
/// # Errors
/// `EFAULT` and `EINVAL` as in [`read_sized`].
///
/// # Safety
/// `to` is null, or as many bytes can be read and written there as its first
/// member says.
pub(crate) unsafe fn write_sized<T: Sized32>(
    what: &str,
    to: *mut T,
    value: &T,
    size_min: usize,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise, passed on.
    let size = unsafe { size_of_callers(what, to, size_min)? };
    let filled = size.min(size_of::<T>());
    // SAFETY: `to` has `size` bytes by the caller's promise, `value` has at least
    // `filled`; the two do not overlap, as `value` is ours.
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
    // SAFETY: not null, aligned, and readable by the caller's promise.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    // Larger than any version will be: it was not set.
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
    fn a_newer_struct_is_read_if_what_we_do_not_know_is_zero() {
        let mut newer = Newer { known: CONFIG, more: 0 };
        newer.known.size = 56;
        // SAFETY: 56 bytes are there.
        let read = |newer: &Newer| unsafe { read_sized("config", &raw const newer.known, 48) };
        // The whole struct is behind the pointer, not its first member only.
        let whole = |newer: &Newer| {
            // SAFETY: as above.
            unsafe { read_sized("config", core::ptr::from_ref(newer).cast::<Config>(), 48) }
        };
        assert_eq!(whole(&newer).map(|config| config.cpu_count).ok(), Some(3));
        newer.more = 7;
        assert_eq!(whole(&newer).err().map(|failure| failure.code()), Some(-libc::E2BIG));
        newer.known.size = 48;
        assert!(read(&newer).is_ok());
    }

    #[test]
    fn an_older_struct_is_filled_no_further_than_it_goes() {
        let value = Statistics { upcalls: 1, pdus: 2, jobs: 3, ..Statistics::default() };
        let mut theirs = Statistics { size: 24, jobs: 99, ..Statistics::default() };
        // SAFETY: more than 24 bytes are there.
        assert!(unsafe { write_sized("statistics", &raw mut theirs, &value, 24) }.is_ok());
        assert_eq!((theirs.size, theirs.upcalls, theirs.pdus, theirs.jobs), (24, 1, 2, 99));
    }

    #[test]
    fn a_size_that_was_not_set_is_refused() {
        for size in [0, 20, 5000] {
            let config = Config { size, ..CONFIG };
            // SAFETY: it is refused by its first member.
            let read = unsafe { read_sized("config", &raw const config, 40) };
            assert_eq!(read.err().map(|failure| failure.code()), Some(-libc::EINVAL));
        }
    }
}
