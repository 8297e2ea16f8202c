//! Uses the declared cost in CPU time, so that a stream has the cost of its spec without a
//! meaningful payload.
//!
//! [`super::Work`] calls this module. It measures the CPU time of the thread: a thread that was
//! preempted in between continues until it has used the cost. It does not read the datagram.

use core::hint::black_box;

use upcall_runtime::time::Span;

use super::clock::CpuClock;
use super::counters::WorkCounters;
use super::outcome::{Taken, WorkError};

/// The percentage of the declared cost that is burnt. The rest is for receiving the datagram and
/// for its accounting, which are part of the cost too.
const BURN_PERCENT: u64 = 98;

/// CPU time between two reads of the clock, as a multiple of the cost of a read. Reading a thread's
/// CPU time is a system call (0.5 us on the VM where this was measured). This factor keeps the
/// reads at 1 % of the time.
const CLOCK_EVERY_READS: u64 = 100;

/// Bounds of the same interval in nanoseconds. The upper bound is also about the largest excess of
/// a PDU on a CPU that became half as fast as at the start.
const CLOCK_EVERY_NS: core::ops::RangeInclusive<u64> = 10_000..=50_000;

/// How long a loop of the self-calibration must run for a usable rate.
const RATE_RUN_NS: u64 = 200_000;

/// The self-calibration stops doubling here if the clock does not advance.
const RATE_TURNS_MAX: u64 = 1 << 22;

/// The least number of turns between two reads of the clock, so that a rate that was measured too
/// low still makes progress.
const TURNS_MIN: u64 = 64;

#[derive(Debug)]
pub(super) struct Spin {
    target_ns: u64,
    cpu_clock: CpuClock,
    /// The cost of a read of the clock.
    read_ns: u64,
    /// Turns of the loop per 1024 ns.
    turns_per_1024_ns: u64,
    pending: bool,
    processed: u64,
}

impl Spin {
    pub(super) fn new(cost: Span, cpu_clock: CpuClock) -> Self {
        Spin {
            target_ns: target_ns(cost),
            cpu_clock,
            read_ns: read_ns(cpu_clock),
            turns_per_1024_ns: turns_per_1024_ns(cpu_clock),
            pending: false,
            processed: 0,
        }
    }

    pub(super) fn take(&mut self) -> Taken {
        self.pending = true;
        Taken::Pdu
    }

    pub(super) fn process(&mut self) -> Result<(), WorkError> {
        if !core::mem::take(&mut self.pending) {
            return Err(WorkError::NoPdu);
        }
        self.burn_target();
        self.processed += 1;
        Ok(())
    }

    /// Two half reads are part of the cost but not of the difference of the values: the first half
    /// of the first read and the second half of the last one.
    fn burn_target(&self) {
        let most_ns = (self.read_ns.saturating_mul(CLOCK_EVERY_READS))
            .clamp(*CLOCK_EVERY_NS.start(), *CLOCK_EVERY_NS.end());
        let target_ns = self.target_ns.saturating_sub(self.read_ns);
        let start_ns = (self.cpu_clock)();
        loop {
            let used_ns = (self.cpu_clock)().saturating_sub(start_ns);
            if used_ns >= target_ns {
                return;
            }
            let stretch_ns = (target_ns - used_ns).saturating_sub(self.read_ns).min(most_ns);
            burn((stretch_ns * self.turns_per_1024_ns / 1024).max(TURNS_MIN));
        }
    }

    pub(super) fn counters(&self) -> WorkCounters {
        WorkCounters { processed: self.processed, ..WorkCounters::default() }
    }
}

/// The CPU time to burn for a PDU of `cost`.
fn target_ns(cost: Span) -> u64 {
    // In two parts, because the longest span times 98 does not fit.
    let (whole, rest) = (cost.as_nanos() / 100, cost.as_nanos() % 100);
    whole * BURN_PERCENT + rest * BURN_PERCENT / 100
}

/// Computes without memory traffic: `turns` steps of a 64-bit xorshift. Each step needs the result
/// of the one before.
fn burn(turns: u64) {
    let mut state: u64 = black_box(0x9e37_79b9_7f4a_7c15);
    for _ in 0..turns {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// The cost of a read of the clock, by that clock: the least of several.
fn read_ns(cpu_clock: CpuClock) -> u64 {
    let one_read = || {
        let start_ns = cpu_clock();
        cpu_clock().saturating_sub(start_ns)
    };
    (0..64).map(|_| one_read()).min().unwrap_or(0)
}

/// The speed of [`burn`], the best of several tries. An interrupt makes a try look slower. No
/// disturbance makes it look faster.
fn turns_per_1024_ns(cpu_clock: CpuClock) -> u64 {
    let one_try = || {
        let mut turns = 1024;
        loop {
            let start_ns = cpu_clock();
            burn(turns);
            let used_ns = cpu_clock().saturating_sub(start_ns);
            if used_ns >= RATE_RUN_NS || turns >= RATE_TURNS_MAX {
                return turns * 1024 / used_ns.max(1);
            }
            turns *= 2;
        }
    };
    (0..5).map(|_| one_try()).max().unwrap_or(TURNS_MIN).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    static PREEMPTIBLE_NS: AtomicU64 = AtomicU64::new(0);
    static READS: AtomicU64 = AtomicU64::new(0);

    /// A clock that stands still for two of three reads, then advances by 3 us, as for a thread
    /// that is preempted all the time.
    fn preempted() -> u64 {
        let step = if READS.fetch_add(1, Ordering::Relaxed) % 3 == 2 { 3_000 } else { 0 };
        PREEMPTIBLE_NS.fetch_add(step, Ordering::Relaxed) + step
    }

    #[test]
    fn a_preempted_thread_still_uses_its_cost() {
        let mut spin = Spin {
            target_ns: target_ns(Span::from_micros(300)),
            cpu_clock: preempted,
            read_ns: 0,
            turns_per_1024_ns: 1,
            pending: false,
            processed: 0,
        };
        let before_ns = PREEMPTIBLE_NS.load(Ordering::Relaxed);
        assert_eq!(spin.take(), Taken::Pdu);
        assert_eq!(spin.process(), Ok(()));
        let used_ns = PREEMPTIBLE_NS.load(Ordering::Relaxed) - before_ns;
        assert!((294_000..=300_000).contains(&used_ns), "{used_ns}");
    }

    #[test]
    fn a_stopped_clock_does_not_hang_the_calibration() {
        assert!(turns_per_1024_ns(|| 0) > 0);
    }

    #[test]
    fn the_target_is_98_percent_of_any_cost() {
        for (cost_ns, burnt_ns) in [(0, 0), (99, 97), (1_000, 980), (5_000_000, 4_900_000)] {
            assert_eq!(target_ns(Span::from_nanos(cost_ns)), burnt_ns);
        }
        assert!(target_ns(Span::MAX) > u64::MAX / 100 * 97);
    }
}
