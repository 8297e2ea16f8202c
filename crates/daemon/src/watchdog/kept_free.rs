//! Keeps a part of each CPU free of real-time threads.
//!
//! Admission leaves a part of each CPU free, and so do the accounts of domains with reservations.
//! Work without a reservation has no such limit: it uses all that the others leave. Then the
//! real-time threads of a CPU run all the time, and Linux stops all of them for 50 ms of each
//! second (sched(7), `sched_rt_runtime_us`), also those with reservations
//! (docs/decisions/0016-budgets.md, 12).
//!
//! So each tick of the watchdog compares what the domains used in the real-time class with the
//! time. If they leave less than [`FREE_PPM`], work without a reservation waits until they have
//! left it. The kernel area says until when, and the domains follow at their next boundary. The
//! times overlap from tick to tick. A domain that runs on is put into the ordinary class.
//!
//! Pure: the caller brings the time and the CPU time.

use upcall_core::time::{Instant, Span};

use upcall_sys::schedule::RtRuntime;

use super::account::signed;
use crate::enforcement::TICK;

/// The part of the CPU that is kept free at least, in millionths. Linux demands 50,000 of each
/// second, unless it was told otherwise.
const FREE_PPM: u64 = 70_000;
/// What is kept free beyond what Linux demands: the daemon's own threads are not counted, and the
/// ends of a second may lie within a wait.
const BEYOND_PPM: u64 = 20_000;
/// Work without a reservation waits from this debt on, until there is none. So a wait takes a few
/// milliseconds, each 50 ms or so, and a hand-off is small beside it.
const OWED_TO_WAIT: Span = Span::from_millis(3);
/// Greater debts are forgotten: what work with reservations uses, the other work cannot pay.
const OWED_MAX: Span = Span::from_millis(10);
/// So much free time is saved: a tick, and 4 ms. The kernel's count of a thread that runs is up to
/// a tick of the kernel behind, so a tick of the watchdog may seem to have more free time.
const SAVED_MAX: Span = Span::from_millis(9);
/// A wait goes on for so long after the tick that renews it: the next tick may be late.
const WAIT: Span = Span::from_nanos(TICK.as_nanos() + TICK.as_nanos() / 5);

/// See the module's head.
#[derive(Debug)]
pub(super) struct KeptFree {
    free_ppm: u64,
    /// When it was updated last; `Instant::ZERO`: never.
    at: Instant,
    /// What the domains had used in the real-time class by then.
    used_ns: u64,
    /// Negative: saved.
    owed_ns: i64,
    is_waiting: bool,
}

impl KeptFree {
    /// For a kernel that lets real-time threads run for so long in each period.
    pub(super) fn of(runtime: Option<RtRuntime>) -> Self {
        let demanded_ppm = |RtRuntime { runtime_us, period_us }: RtRuntime| {
            let free_us = period_us.saturating_sub(runtime_us.unwrap_or(period_us));
            free_us.saturating_mul(1_000_000) / period_us.max(1)
        };
        let demanded_ppm = runtime.map_or(0, demanded_ppm);
        let free_ppm = FREE_PPM.max(demanded_ppm + BEYOND_PPM);
        KeptFree { free_ppm, at: Instant::ZERO, used_ns: 0, owed_ns: 0, is_waiting: false }
    }

    /// At `now`, the domains of the CPU have used so much CPU time in the real-time class in all.
    /// Returns from when on work without a reservation may run; `None`: at once.
    pub(super) fn update(&mut self, now: Instant, used_ns: u64) -> Option<Instant> {
        let before = std::mem::replace(&mut self.at, now);
        let used_ns = used_ns.saturating_sub(std::mem::replace(&mut self.used_ns, used_ns));
        if before == Instant::ZERO {
            return None;
        }
        let elapsed = now.since(before);
        let due_ns = elapsed.as_nanos().saturating_mul(self.free_ppm) / 1_000_000;
        let taken_ns = due_ns.saturating_add(used_ns);
        let change_ns = signed(taken_ns).saturating_sub(signed(elapsed.as_nanos()));
        let owed_ns = self.owed_ns.saturating_add(change_ns);
        self.owed_ns = owed_ns.clamp(-signed(SAVED_MAX.as_nanos()), signed(OWED_MAX.as_nanos()));
        self.is_waiting = match self.is_waiting {
            true => self.owed_ns > 0,
            false => self.owed_ns >= signed(OWED_TO_WAIT.as_nanos()),
        };
        self.is_waiting.then(|| now + WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What work with reservations takes of each tick, in tenths of a millisecond. The other work
    /// takes the rest, or waits. The kernel's count is up to 4 ms behind. Returns the least free
    /// time of any second, and what the others got in all, within 10 s.
    fn run(reserved: impl Fn(u64) -> u64) -> (u64, u64) {
        let mut kept = KeptFree::of(None);
        let (mut used_ns, mut counted_ns, mut others, mut from) = (0, 0, 0, None);
        let mut free_of_ticks = Vec::new();
        for tick in 1..=2_000 {
            let now = Instant::ZERO + TICK * u32::try_from(tick).unwrap();
            let own = reserved(tick).min(50);
            let other = if from.is_some() { 0 } else { 50 - own };
            others += other;
            used_ns += (own + other) * 100_000;
            free_of_ticks.push(50 - own - other);
            let behind_ns = (tick * 7) % 5 * 1_000_000;
            counted_ns = counted_ns.max(used_ns.saturating_sub(behind_ns));
            from = kept.update(now, counted_ns);
        }
        let seconds = free_of_ticks.windows(200).map(|of| of.iter().sum::<u64>() / 10);
        (seconds.min().unwrap(), others / 10)
    }

    /// In milliseconds.
    const LINUX_DEMANDS: u64 = 50;

    #[test]
    fn each_second_has_more_free_time_than_linux_demands() {
        for reserved in [0, 10, 25, 40, 45] {
            let (free, others) = run(|_| reserved);
            assert!(free >= LINUX_DEMANDS + 10, "{reserved}: {free} ms");
            // All the rest is used.
            let left = 10_000 - reserved * 200 - 10_000 * FREE_PPM / 1_000_000;
            assert!(others + 100 >= left, "{reserved}: {others} of {left} ms");
        }
        let (free, _) = run(|tick| if tick % 7 < 3 { 50 } else { 0 });
        assert!(free >= LINUX_DEMANDS + 10, "{free} ms");
    }

    #[test]
    fn more_is_kept_free_where_linux_demands_more() {
        let free_ppm = |runtime_us| {
            KeptFree::of(Some(RtRuntime { runtime_us, period_us: 1_000_000 })).free_ppm
        };
        assert_eq!([None, Some(950_000), Some(900_000)].map(free_ppm), [70_000, 70_000, 120_000]);
    }
}
