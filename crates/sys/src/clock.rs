//! Reads clocks, and sleeps until a point in time.
//!
//! Every hot path of the runtime calls this module. Deadlines are points in time, never durations.
//! So a delay does not shift later deadlines.

use crate::OsError;
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds since a moment near boot.
///
/// The vDSO answers without entering the kernel, in about 20 ns.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// `CLOCK_REALTIME` in nanoseconds since 1970. It can jump. Use it only to compare with arrival
/// times of datagrams and for printing. vDSO.
#[inline]
pub fn realtime_ns() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` now, in nanoseconds and modulo 2^64. Subtract it from
/// an arrival time to get a `CLOCK_MONOTONIC` time. It changes only when the clock is set.
///
/// The error is at most half the time between two readings of one clock: below 1 us, unless the
/// thread was interrupted in each of three tries. At most nine clock reads. vDSO.
pub fn realtime_ahead_ns() -> u64 {
    const GAP_NS_MAX: u64 = 1_000;
    let mut best = (u64::MAX, 0);
    for _ in 0..3 {
        let before = monotonic_ns();
        let realtime = realtime_ns();
        let gap = monotonic_ns() - before;
        if gap < best.0 {
            best = (gap, realtime.wrapping_sub(before + gap / 2));
        }
        if gap <= GAP_NS_MAX {
            break;
        }
    }
    best.1
}

/// CPU time that the calling thread has used, in nanoseconds (`CLOCK_THREAD_CPUTIME_ID`). A system
/// call.
///
/// If the kernel lacks `IRQ_TIME_ACCOUNTING`, it charges interrupts on the thread's CPU to the
/// thread.
#[inline]
pub fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time that process `pid` has used with all its threads, in nanoseconds, without children. Two
/// system calls. See clock_getcpuclockid(3).
///
/// # Errors
/// `ESRCH` if there is no such process, `EPERM` if this process may not read its clock.
pub fn process_cpu_ns(pid: u32) -> Result<u64, OsError> {
    const GET_CLOCK: &str = "clock_getcpuclockid";
    let pid = i32::try_from(pid).map_err(|_| OsError::new(GET_CLOCK, libc::ESRCH))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is valid for one write of a clockid_t.
    let errno = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if errno != 0 {
        return Err(OsError::new(GET_CLOCK, errno));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for one write of a timespec.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(OsError::last("clock_gettime"));
    }
    Ok(nanos(Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec }))
}

/// The kernel's tick period in ns: 4,000,000 at 250 Hz. Its accounting of a running thread is out
/// of date by at most one period. The period is the resolution of `CLOCK_MONOTONIC_COARSE`
/// (clock_getres(2)). vDSO.
pub fn kernel_tick_ns() -> u64 {
    nanos(clock_getres(ClockId::MonotonicCoarse))
}

/// Blocks the calling thread until `monotonic_ns() >= deadline_ns`. Returns at once if the deadline
/// has passed. Signals do not end the sleep early.
///
/// The thread never wakes early. How late it wakes depends on scheduling class and timer slack
/// ([`crate::schedule`]). Does not allocate.
pub fn sleep_until_ns(deadline_ns: u64) {
    let deadline = timespec(deadline_ns);
    // The deadline is absolute, so a retry after a signal needs no arithmetic. No other error is
    // possible: the clock exists and the time is valid.
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &deadline)
        == Err(Errno::INTR)
    {}
}

/// A non-negative time, in nanoseconds. 584 years fit.
pub(crate) const fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64) * NS_PER_S + time.tv_nsec as u64
}

/// Converts nanoseconds to the kernel's format.
pub(crate) const fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / NS_PER_S) as i64, tv_nsec: (ns % NS_PER_S) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_and_a_sleep_does_not_end_early() {
        let start_ns = monotonic_ns();
        let deadline_ns = start_ns + 2_000_000;
        sleep_until_ns(deadline_ns);
        assert!(monotonic_ns() >= deadline_ns);
        sleep_until_ns(start_ns); // in the past: returns at once
        sleep_until_ns(0);
    }

    #[test]
    fn the_clock_difference_lies_within_readings_around_it() {
        let (monotonic_before, realtime_before) = (monotonic_ns(), realtime_ns());
        let ahead = realtime_ahead_ns();
        let (monotonic_after, realtime_after) = (monotonic_ns(), realtime_ns());
        assert!(ahead >= realtime_before - monotonic_after);
        assert!(ahead <= realtime_after - monotonic_before);
    }

    #[test]
    fn nanoseconds_survive_conversion_to_timespec_and_back() {
        for ns in [0, 1, 999_999_999, NS_PER_S, u64::MAX] {
            assert_eq!(nanos(timespec(ns)), ns);
        }
    }

    #[test]
    fn work_is_charged_to_thread_and_process() {
        let process_ns = process_cpu_ns(std::process::id()).unwrap();
        let thread_ns = thread_cpu_ns();
        let until_ns = thread_ns + 1_000_000;
        while thread_cpu_ns() < until_ns {}
        assert!(process_cpu_ns(std::process::id()).unwrap() >= process_ns + 1_000_000);
    }

    #[test]
    fn a_sleep_costs_time_but_little_cpu() {
        let (start_ns, cpu_ns) = (monotonic_ns(), thread_cpu_ns());
        sleep_until_ns(start_ns + 20_000_000);
        assert!(thread_cpu_ns() - cpu_ns < monotonic_ns() - start_ns);
    }

    #[test]
    fn a_number_without_a_process_has_no_clock() {
        // Beyond pid_max (4194304 on 64 bits), so it cannot exist.
        for pid in [5_000_000, u32::MAX] {
            assert_eq!(process_cpu_ns(pid).unwrap_err().raw_os_error(), libc::ESRCH);
        }
    }

    #[test]
    fn the_kernel_ticks_between_24_and_1200_times_a_second() {
        // The range of CONFIG_HZ.
        assert!((NS_PER_S / 1_200..=NS_PER_S / 24).contains(&kernel_tick_ns()));
    }

    #[test]
    fn real_time_is_after_november_2023() {
        assert!(realtime_ns() > 1_700_000_000 * NS_PER_S);
    }
}
