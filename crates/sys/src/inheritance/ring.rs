//! The records of one tracepoint on one CPU, in pages that the kernel fills (perf_event_open(2)).

use crate::OsError;
use core::ffi::{CStr, c_char};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::ioctl::opcode;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Pages of records, a power of two. A record here has 24 bytes.
const PAGES: usize = 1;
/// The places in the first page (`struct perf_event_mmap_page`): where the kernel writes next, and
/// where this process reads next.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// The beginning of a record: type (4 bytes), misc (2), size (2).
const HEADER_BYTES: usize = 8;
/// A sample: a header, the process, the thread, the time.
const SAMPLE_BYTES: usize = 24;

/// `struct perf_event_attr`, as long as it was in Linux 4.1.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    bytes: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint: [u64; 2],
    branch_sample_type: u64,
    sample_user_registers: u64,
    sample_user_stack: u32,
    clock: i32,
}

/// A boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boost {
    /// The thread that ran then: see the head of the module [`inheritance`](crate::inheritance).
    pub by: u32,
    /// When, in ns of the monotonic clock.
    pub at_ns: u64,
}

/// The records of one CPU. Unmapped when dropped.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    page_bytes: usize,
    tail: u64,
    event: OwnedFd,
}

// SAFETY: the pages belong to the mapping and not to a thread. `take` needs `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens the tracepoint with number `event` on a CPU, for the events that `filter` accepts.
    pub(super) fn open(event: u64, cpu: u32, filter: &CStr) -> Result<Ring, OsError> {
        const TRACEPOINT: u32 = 2;
        const DISABLED: u32 = 0;
        const USE_CLOCK: u32 = 25;
        const WITH_THREAD: u64 = 1 << 1;
        const WITH_TIME: u64 = 1 << 2;
        const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
        const BYTES: u32 = 96;
        const { assert!(size_of::<Attributes>() == BYTES as usize) };
        let attributes = Attributes {
            kind: TRACEPOINT,
            bytes: BYTES,
            config: event,
            sample_period: 1,
            sample_type: WITH_THREAD | WITH_TIME,
            flags: flag(DISABLED) | flag(USE_CLOCK),
            clock: libc::CLOCK_MONOTONIC,
            wakeup_events: 1,
            ..Attributes::default()
        };
        let cpu = cpu.cast_signed();
        // SAFETY: the kernel reads `BYTES` bytes of the structure. All threads, one CPU, no group.
        let fd = unsafe {
            let attributes = &raw const attributes;
            libc::syscall(libc::SYS_perf_event_open, attributes, -1, cpu, -1, CLOSE_ON_EXEC)
        };
        let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0);
        let fd = fd.ok_or_else(|| OsError::last("perf_event_open"))?;
        // SAFETY: the kernel has just made this descriptor, and nothing else closes it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let ring = Ring::map(event)?;
        let set_filter = opcode::write::<*const c_char>(b'$', 6);
        // SAFETY: the kernel reads a text that ends with a zero byte.
        unsafe { ring.control("ioctl(PERF_EVENT_IOC_SET_FILTER)", set_filter, filter.as_ptr())? };
        let enable = opcode::none(b'$', 0);
        // SAFETY: the kernel reads no memory: the argument is a number, and 0 means this event.
        unsafe { ring.control("ioctl(PERF_EVENT_IOC_ENABLE)", enable, core::ptr::null())? };
        Ok(ring)
    }

    fn map(event: OwnedFd) -> Result<Ring, OsError> {
        let page_bytes = rustix::param::page_size();
        let (bytes, access) = ((PAGES + 1) * page_bytes, ProtFlags::READ | ProtFlags::WRITE);
        let null = core::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let start = unsafe { rustix::mm::mmap(null, bytes, access, MapFlags::SHARED, &event, 0) };
        let start = start.map_err(OsError::of("mmap(perf_event_open)"))?;
        let start = NonNull::new(start.cast()).ok_or(OsError::new("mmap", libc::ENOMEM))?;
        Ok(Ring { start, page_bytes, tail: 0, event })
    }

    /// # Safety
    /// `argument` is what ioctl(2) expects for `request`.
    unsafe fn control(
        &self,
        operation: &'static str,
        request: rustix::ioctl::Opcode,
        argument: *const c_char,
    ) -> Result<(), OsError> {
        let (fd, request) = (self.event.as_raw_fd(), libc::c_ulong::from(request));
        // The system call and not the C library's function, whose type of `request` differs.
        // SAFETY: the caller promises it.
        let result = unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) };
        if result == 0 { Ok(()) } else { Err(OsError::last(operation)) }
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Appends the samples since the last call. Ends even if new ones come
    /// meanwhile.
    pub(super) fn take(&mut self, boosts: &mut Vec<Boost>) {
        // Acquire: the records before `head` are complete.
        let head = self.word(HEAD).load(Ordering::Acquire);
        while self.tail < head {
            let mut record = [0; SAMPLE_BYTES];
            self.copy(self.tail, &mut record[..HEADER_BYTES]);
            let bytes = usize::from(u16::from_ne_bytes([record[6], record[7]]));
            if bytes < HEADER_BYTES || bytes as u64 > head - self.tail {
                // The kernel writes no such record. There is no way to find the next one.
                self.tail = head;
                break;
            }
            self.copy(self.tail, &mut record[..bytes.min(SAMPLE_BYTES)]);
            boosts.extend(boost_in(&record));
            self.tail += bytes as u64;
        }
        // Release: the kernel overwrites the records only after they were read.
        self.word(TAIL).store(self.tail, Ordering::Release);
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        // SAFETY: a word of the first page, which is mapped as long as `self` is. It is aligned.
        // The kernel accesses it as one word, like one more thread.
        unsafe { &*self.start.as_ptr().add(place).cast::<AtomicU64>() }
    }

    /// Copies from place `at` of the stream of records, which begins again after the last page.
    fn copy(&self, at: u64, to: &mut [u8]) {
        let size = PAGES * self.page_bytes;
        for (number, byte) in (at..).zip(to) {
            // Less than `size`, so it fits.
            let place = usize::try_from(number % size as u64).unwrap_or(0);
            // SAFETY: a byte of the pages after the first one. The kernel wrote it before `head`,
            // and does not overwrite it before `TAIL` changes.
            *byte = unsafe { self.start.as_ptr().add(self.page_bytes + place).read() };
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let bytes = (PAGES + 1) * self.page_bytes;
        // SAFETY: exactly the range that `map` mapped. References from `word` borrow `self` and are
        // gone. The call cannot fail for an existing mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), bytes) };
    }
}

/// Bit `number` of the bit fields of [`Attributes`].
const fn flag(number: u32) -> u64 {
    if cfg!(target_endian = "little") { 1 << number } else { 1 << (63 - number) }
}

/// What a sample says. `None` for another kind of record.
fn boost_in(record: &[u8; SAMPLE_BYTES]) -> Option<Boost> {
    const SAMPLE: u32 = 9;
    let [kind, _, _, tid, ..] = *record.as_chunks::<4>().0 else { return None };
    let [.., time] = *record.as_chunks::<8>().0 else { return None };
    let boost = Boost { by: u32::from_ne_bytes(tid), at_ns: u64::from_ne_bytes(time) };
    (u32::from_ne_bytes(kind) == SAMPLE).then_some(boost)
}
