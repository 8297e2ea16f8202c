//! A simulated machine. A thread that never sleeps runs on one CPU, and the watchdog on another. A
//! host takes one or both of them for a while.

use super::*;

const KERNEL_TICK_US: u64 = 4_000;
const KERNEL_TICK: Span = Span::from_micros(KERNEL_TICK_US);
const TICK_US: u64 = 5_000;
/// A quantum of 1 ms, and a grace of 5 ms.
const ENOUGH_US: u64 = 6_000;
const NONE: Stall = Stall { from: 0, to: 0, is_of_both: false, is_reported: false };

/// A time for which the host takes CPUs. Times in us.
#[derive(Clone, Copy, Debug)]
struct Stall {
    from: u64,
    to: u64,
    /// Whether the host takes the watchdog's CPU, too.
    is_of_both: bool,
    /// Whether the host reports it, so that the kernel does not count it.
    is_reported: bool,
}

impl Stall {
    /// The time at which something due at `due` happens on a CPU that the host takes.
    fn put_off(self, due: u64) -> u64 {
        if (self.from..self.to).contains(&due) { self.to } else { due }
    }

    /// How much of the time until `at` the host has taken.
    fn taken_until(self, at: u64) -> u64 {
        at.clamp(self.from, self.to) - self.from
    }

    /// What the kernel has counted of the thread at `at`. It counts every [`KERNEL_TICK_US`] from
    /// `phase` on.
    fn count(self, phase: u64, at: u64) -> u64 {
        let ticks = (0..).map(|tick| self.put_off(phase + tick * KERNEL_TICK_US));
        let counted_at = ticks.take_while(|counted_at| *counted_at <= at).last().unwrap_or(0);
        if self.is_reported { counted_at - self.taken_until(counted_at) } else { counted_at }
    }
}

/// One sample of the watchdog: its time, the time that the thread really used until then, and the
/// watchdog's estimate of it.
#[derive(Clone, Copy, Debug)]
struct Observed {
    at: u64,
    ran: u64,
    used: u64,
}

/// The watchdog's samples of a thread that never sleeps, until some time after the standstill.
fn observed(stall: Stall, phase: u64) -> Vec<Observed> {
    let mut meter = Meter::default();
    meter.begin(stall.count(phase, 0) * 1_000, KERNEL_TICK);
    let (mut all, mut at, mut used) = (Vec::new(), 0, 0);
    while at < stall.to + 20 * TICK_US {
        let due = at + TICK_US;
        let woke = if stall.is_of_both { stall.put_off(due) } else { due };
        let stalled = stall_time(Span::from_micros(woke - due), Some(Span::ZERO));
        let elapsed = Elapsed { time: Span::from_micros(woke - at), stalled };
        used += meter.used_ns(stall.count(phase, woke) * 1_000, elapsed, KERNEL_TICK) / 1_000;
        at = woke;
        all.push(Observed { at, ran: at - stall.taken_until(at), used });
    }
    all
}

/// All positions of a standstill of that length relative to both ticks, for both CPUs or only the
/// thread's.
fn all_stalls(length: u64) -> impl Iterator<Item = (Stall, u64)> {
    let ways = (0..20_000)
        .step_by(500)
        .flat_map(|from| (0..KERNEL_TICK_US).step_by(500).map(move |phase| (from, phase)));
    ways.flat_map(move |(from, phase)| {
        [(true, false), (true, true), (false, false), (false, true)].map(
            |(is_of_both, is_reported)| {
                (Stall { from, to: from + length, is_of_both, is_reported }, phase)
            },
        )
    })
}

#[test]
fn without_a_standstill_the_kernels_count_is_charged() {
    let late = Stall { from: 1_000_000, to: 1_000_000, ..NONE };
    for phase in (0..KERNEL_TICK_US).step_by(125) {
        for observed in observed(late, phase) {
            assert_eq!(observed.used, NONE.count(phase, observed.at), "{phase}");
        }
    }
}

/// The thread asks every 1 ms, so it has used at most 1 ms since a sample at which it was asked to
/// yield. It would offend with 6 ms.
#[test]
fn a_standstill_causes_no_offence() {
    for length in [12_000, 50_000, 200_000] {
        for (stall, phase) in all_stalls(length) {
            for two in observed(stall, phase).windows(2) {
                let said = two[1].ran / 1_000 > two[0].ran / 1_000;
                let used = two[1].used - two[0].used;
                assert!(said || used <= ENOUGH_US, "{stall:?} {phase} {two:?}");
            }
        }
    }
}

#[test]
fn a_thread_that_loops_through_a_standstill_is_found_at_most_two_samples_later() {
    let found = |stall, phase| {
        let observed = observed(stall, phase);
        let asked = observed[0].used;
        observed.iter().find(|observed| observed.used - asked > ENOUGH_US).expect("it is found").at
    };
    for length in [1_000, 5_000, 50_000, 200_000] {
        for (stall, phase) in all_stalls(length) {
            // A standstill shifts the later samples, and half of one does not count.
            let latest = found(NONE, phase) + length + 2 * TICK_US;
            let at = found(stall, phase);
            assert!(at <= latest, "{stall:?} {phase}: {at}, not {latest}");
        }
    }
}

#[test]
fn delaying_the_watchdog_gains_nothing() {
    let late = Span::from_millis(50);
    for waited in [Some(late), None] {
        let mut meter = Meter::default();
        meter.begin(0, KERNEL_TICK);
        let time = late + Span::from_micros(TICK_US);
        let elapsed = Elapsed { time, stalled: stall_time(late, waited) };
        assert_eq!(meter.used_ns(time.as_nanos(), elapsed, KERNEL_TICK), time.as_nanos());
    }
}

#[test]
fn a_thread_that_never_sleeps_is_found_despite_permanent_standstills() {
    let mut meter = Meter::default();
    meter.begin(0, KERNEL_TICK);
    let (time, stalled) = (Span::from_micros(2 * TICK_US), Span::from_micros(TICK_US));
    let used =
        |ticks| meter.used_ns(ticks * time.as_nanos(), Elapsed { time, stalled }, KERNEL_TICK);
    assert_eq!((1..=10).map(used).sum::<u64>(), 10 * TICK_US * 1_000 / 2);
}
