//! The C calls. Each call checks the arguments from C and passes them to `library`.
//! `include/upcall.h` documents what each call does and returns.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use upcall::activity::{ActivityParams, BATCH_MAX, Backlog, PERIOD_MAX, Terms, Window, WorkClass};
use upcall::admission::Share;
use upcall::time::Span;

use crate::abi::{
    ABORT_PHASE, Attr, Config, DESCRIPTORS_MAX, HandlerFn, Mask, Offence, SAME_CPU, Shared,
    Statistics, WORK_CONSERVING, read_sized, size_of_callers, write_sized,
};
use crate::error::{Failed, Failure, answer, last_hint, last_reason, line};
use crate::library::{self, Wanted};
use crate::setup::Wish;
use crate::upcall_page;

/// The largest number of CPUs in `cpus`, as in the kernel.
const CPUS_MAX: u32 = 8192;

/// The largest weight, and the longest window, as in a spec.
const WEIGHT_MAX: u32 = 1_000_000;
const WINDOW_PERIODS_MAX: u32 = 65_535;

/// Sizes of the structs in the first version of the header. A caller's struct is never
/// smaller.
mod first {
    use crate::abi::{Attr, Config, Mask, Offence, Statistics};
    /// Up to `name`.
    pub(super) const ATTR: usize = core::mem::offset_of!(Attr, share_ppm);
    pub(super) const CONFIG: usize = size_of::<Config>();
    pub(super) const MASK: usize = size_of::<Mask>();
    /// Up to `slack_ns_min`.
    pub(super) const STATISTICS: usize = core::mem::offset_of!(Statistics, skipped);
    pub(super) const OFFENCE: usize = size_of::<Offence>();
}

/// `rts_init`.
///
/// # Safety
/// `config` is null or valid for the number of bytes in its first member. Its `cpus` is valid
/// for `cpu_count` numbers. Each string in it is null or ends in a 0 byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rts_init(config: *const Config) -> c_int {
    answer(|| {
        if config.is_null() {
            library::init(Wish::default())?;
            return Ok(0);
        }
        // SAFETY: the caller promises it.
        let config = unsafe { read_sized("config", config, first::CONFIG)? };
        // SAFETY: the caller promises it.
        library::init(unsafe { wish(&config)? })?;
        Ok(0)
    })
}

/// The set-up that a program asks for.
///
/// # Safety
/// As [`rts_init`].
unsafe fn wish(config: &Config) -> Result<Wish, Failure> {
    let mut wish = Wish::default();
    if config.cpu_count > CPUS_MAX {
        let found = format!("{} CPUs, expected at most {CPUS_MAX}", config.cpu_count);
        return Err(Failure::new(Failed::Invalid, found));
    }
    if config.cpu_count > 0 {
        if config.cpus.is_null() || !config.cpus.is_aligned() {
            return Err(Failure::new(Failed::Null, "cpus is NULL or not aligned"));
        }
        // SAFETY: `cpus` is not null and is aligned. The caller promises its length.
        let cpus = unsafe { core::slice::from_raw_parts(config.cpus, config.cpu_count as usize) };
        wish.cpus = cpus.to_vec();
    }
    // SAFETY: the caller promises it, here and below.
    wish.policy = unsafe { text("policy", config.policy)? };
    // SAFETY: as above.
    wish.domain = unsafe { text("domain", config.domain)? };
    // SAFETY: as above.
    wish.memory_lock = unsafe { text("memory_lock", config.memory_lock)? };
    if !config.socket.is_null() {
        // SAFETY: the pointer is not null, and the caller promises the 0 byte.
        let path = unsafe { CStr::from_ptr(config.socket) };
        wish.socket = Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())));
    }
    Ok(wish)
}

/// A copy of a caller's string; `None` if it is null.
///
/// # Safety
/// `text` is null or ends in a 0 byte.
unsafe fn text(what: &str, text: *const c_char) -> Result<Option<String>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is not null, and the caller promises the 0 byte.
    match unsafe { CStr::from_ptr(text) }.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(Failure::new(Failed::Invalid, format!("{what} is not UTF-8"))),
    }
}

/// `rts_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_exit() -> c_int {
    answer(|| library::exit().map(|()| 0))
}

/// `rts_abort`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_abort(timeout_ns: i64) -> c_int {
    answer(|| {
        let negative = || {
            let found = format!("timeout_ns is {timeout_ns}, expected 0 or more");
            Failure::new(Failed::Invalid, found)
        };
        let within = u64::try_from(timeout_ns).map_err(|_| negative())?;
        library::abort(Span::from_nanos(within)).map(|()| 0)
    })
}

thread_local! {
    /// The last result of `rts_notice` in this thread.
    static NOTICE: RefCell<CString> = RefCell::default();
}

/// `rts_notice`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_notice(index: u32) -> *const c_char {
    let mut found = null();
    answer(|| {
        if let Some(notice) = library::notice(index)? {
            let notice = CString::new(notice).unwrap_or_default();
            NOTICE.with(|kept| kept.replace(notice));
            found = NOTICE.with(|kept| kept.borrow().as_ptr());
        }
        Ok(0)
    });
    found
}

/// `rts_create`.
///
/// # Safety
/// `timing` is null or valid for the number of bytes in its first member. Its `name` is null or
/// ends in a 0 byte. `handler` may be called with `pcb`, in a thread of the library and in a
/// trial in this thread, until `rts_close` returned 0. `shared` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rts_create(
    timing: *const Attr,
    handler: Option<HandlerFn>,
    pcb: *mut c_void,
    shared: *mut *const Shared,
) -> c_int {
    answer(|| {
        // SAFETY: the caller promises it.
        let attr = unsafe { read_sized("timing", timing, first::ATTR)? };
        let no_handler = || Failure::new(Failed::Null, "handler is NULL");
        let handler = handler.ok_or_else(no_handler)?;
        if !shared.is_aligned() {
            return Err(Failure::new(Failed::Null, "shared is not aligned"));
        }
        // SAFETY: the caller promises it.
        let name = unsafe { text("name", attr.name)? };
        let abort_phase = attr.flags & ABORT_PHASE != 0;
        let (params, terms, same_cpu_as) = (params(&attr)?, terms(&attr)?, same_cpu_as(&attr)?);
        let wanted = Wanted { name, params, terms, same_cpu_as, handler, pcb, abort_phase };
        // SAFETY: the caller promises it.
        let (descriptor, page) = unsafe { library::create(wanted)? };
        if !shared.is_null() {
            // SAFETY: the pointer is not null and is aligned. The caller promises that it can
            // be written.
            unsafe { shared.write(&raw const page.shared) };
        }
        Ok(descriptor)
    })
}

/// The timing attributes, with defaults for members that are 0.
fn params(attr: &Attr) -> Result<ActivityParams, Failure> {
    if attr.flags & !(ABORT_PHASE | WORK_CONSERVING | SAME_CPU) != 0 {
        let found = format!(
            "flags are {:#x}, expected RTS_ABORT_PHASE, RTS_WORK_CONSERVING, RTS_SAME_CPU or 0",
            attr.flags
        );
        return Err(Failure::new(Failed::Invalid, found));
    }
    let period = Span::from_nanos(attr.period_ns);
    let params = ActivityParams::new(period, Span::from_nanos(attr.cost_ns))
        .batch(attr.batch.max(1))
        .quantum(attr.quantum.max(1))
        .offset(Span::from_nanos(attr.offset_ns));
    Ok(match attr.deadline_ns {
        0 => params,
        ns => params.deadline(Span::from_nanos(ns)),
    })
}

/// The handler whose CPU is asked for.
fn same_cpu_as(attr: &Attr) -> Result<Option<c_int>, Failure> {
    match (attr.flags & SAME_CPU != 0, attr.same_cpu_as) {
        (true, descriptor) => Ok(Some(descriptor)),
        (false, 0) => Ok(None),
        (false, descriptor) => {
            let found = format!("same_cpu_as is {descriptor}, expected 0 without RTS_SAME_CPU");
            Err(Failure::new(Failed::Invalid, found))
        }
    }
}

/// The terms of single policies.
fn terms(attr: &Attr) -> Result<Terms, Failure> {
    let above = |what: &str, value: u32, most: u32| {
        let found = format!("{what} is {value}, expected at most {most}");
        Failure::new(Failed::Invalid, found)
    };
    for (what, value, most) in [
        ("share_ppm", attr.share_ppm, 1_000_000),
        ("weight", attr.weight, WEIGHT_MAX),
        ("window_periods", attr.window_periods, WINDOW_PERIODS_MAX),
        ("work_class", attr.work_class, 2),
        ("workahead", attr.workahead, BATCH_MAX),
        ("backlog", attr.backlog, 3),
    ] {
        if value > most {
            return Err(above(what, value, most));
        }
    }
    let (misses, periods) = (attr.window_misses, attr.window_periods);
    if (misses, periods) != (0, 0) && misses >= periods {
        let found = format!("the window is {misses}/{periods}, expected fewer misses than periods");
        return Err(Failure::new(Failed::Invalid, found));
    }
    let delay_bound = Span::from_nanos(attr.delay_bound_ns);
    if delay_bound > PERIOD_MAX {
        let found = format!("delay_bound_ns is {delay_bound}, expected at most {PERIOD_MAX}");
        return Err(Failure::new(Failed::Invalid, found));
    }
    Ok(Terms {
        share: Share::from_ppm(attr.share_ppm),
        weight: (attr.weight > 0).then_some(attr.weight),
        window: (periods > 0).then_some(Window { misses, periods }),
        work_conserving: attr.flags & WORK_CONSERVING != 0,
        delay_bound: (!delay_bound.is_zero()).then_some(delay_bound),
        class: [WorkClass::RealTime, WorkClass::Interactive, WorkClass::Background]
            [attr.work_class as usize],
        workahead_max: attr.workahead,
        // The default is that of a task.
        backlog: [Backlog::CatchUp, Backlog::CatchUp, Backlog::Skip, Backlog::Latest]
            [attr.backlog as usize],
        ..Terms::default()
    })
}

/// `rts_run`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_run(descriptor: c_int) -> c_int {
    answer(|| library::run(descriptor).map(|()| 0))
}

/// `rts_suspend`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_suspend(descriptor: c_int) -> c_int {
    answer(|| {
        if !upcall_page::suspend_self(descriptor) {
            library::suspend(descriptor)?;
        }
        Ok(0)
    })
}

/// `rts_close`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_close(descriptor: c_int) -> c_int {
    answer(|| library::close(descriptor).map(|()| 0))
}

/// `rts_cpu`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_cpu(descriptor: c_int) -> c_int {
    answer(|| library::cpu(descriptor))
}

/// `rts_sleep`.
///
/// # Safety
/// `waited` and `inactive` are valid for the number of bytes in their first members.
/// `inactive` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rts_sleep(
    waited: *const Mask,
    inactive: *mut Mask,
    timeout_ns: i64,
) -> c_int {
    answer(|| {
        // SAFETY: the caller promises it.
        let mask = unsafe { read_sized("waited", waited, first::MASK)? };
        if !inactive.is_null() {
            // Checked before the wait, so that its result cannot be lost.
            // SAFETY: the caller promises it.
            unsafe { size_of_callers("inactive", inactive, first::MASK)? };
        }
        let timeout = u64::try_from(timeout_ns).ok().map(Span::from_nanos);
        let found = library::sleep(&descriptors(&mask), timeout)?;
        if !inactive.is_null() {
            // SAFETY: the caller promises it.
            unsafe { write_sized("inactive", inactive, &mask_of(&found), first::MASK)? };
        }
        Ok(c_int::try_from(found.len()).unwrap_or(c_int::MAX))
    })
}

fn descriptors(mask: &Mask) -> Vec<c_int> {
    let is_set = |&at: &usize| mask.bits[at / 64] >> (at % 64) & 1 == 1;
    (0..DESCRIPTORS_MAX).filter(is_set).filter_map(|at| c_int::try_from(at).ok()).collect()
}

fn mask_of(descriptors: &[c_int]) -> Mask {
    let mut mask = Mask { size: 0, reserved: 0, bits: [0; DESCRIPTORS_MAX / 64] };
    for at in descriptors.iter().filter_map(|&descriptor| usize::try_from(descriptor).ok()) {
        mask.bits[at / 64] |= 1 << (at % 64);
    }
    mask
}

/// `rts_statistics`.
///
/// # Safety
/// `statistics` is valid for the number of bytes in its first member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rts_statistics(descriptor: c_int, statistics: *mut Statistics) -> c_int {
    answer(|| {
        // SAFETY: the caller promises it.
        unsafe { size_of_callers("statistics", statistics, first::STATISTICS)? };
        let found = library::statistics(descriptor)?;
        // SAFETY: the caller promises it.
        unsafe { write_sized("statistics", statistics, &found, first::STATISTICS)? };
        Ok(0)
    })
}

/// `rts_next_offence`.
///
/// # Safety
/// `offence` is valid for the number of bytes in its first member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rts_next_offence(offence: *mut Offence) -> c_int {
    answer(|| {
        // Checked first, so that no offence is lost.
        // SAFETY: the caller promises it.
        unsafe { size_of_callers("offence", offence, first::OFFENCE)? };
        let Some(found) = library::next_offence()? else { return Ok(0) };
        // SAFETY: the caller promises it.
        unsafe { write_sized("offence", offence, &found, first::OFFENCE)? };
        Ok(1)
    })
}

/// `rts_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_strerror(code: c_int) -> *const c_char {
    line(code).as_ptr()
}

/// `rts_refusal`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_refusal() -> *const c_char {
    last_reason()
}

/// `rts_hint`.
#[unsafe(no_mangle)]
pub extern "C" fn rts_hint() -> *const c_char {
    last_hint()
}

/// `rts_boundary`. Returns 1 if the handler may begin one more PDU, else 0. O(log n) at most, no
/// system call. Reads `shared` only if it is the page of the running upcall of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn rts_boundary(shared: *const Shared) -> c_int {
    answer(|| Ok(c_int::from(upcall_page::boundary(shared)))).max(0)
}
