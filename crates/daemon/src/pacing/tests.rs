//! Floods in virtual time, and a KLS thread that is flooded.

use super::*;

/// A simulated KLS thread: passes that take `pass_ns` of CPU time, each followed by a rest.
struct Thread {
    limit: PassLimit,
    pacing: Pacing,
    now_ns: u64,
    cpu_ns: u64,
}

impl Thread {
    fn new() -> Self {
        // The passes are simulated, the sleeps are not: so deadlines are in the past.
        let (limit, pacing) = (PassLimit::new(), Pacing::default());
        Thread { limit, pacing, now_ns: 1, cpu_ns: 0 }
    }

    /// Makes passes for a while. Returns the part of the CPU that they took, and whether the
    /// thread was slowed in that time.
    fn pass_for(&mut self, span: Span, (pass_ns, rest_ns): (u64, u64)) -> (f64, bool) {
        let (begin_ns, begin_cpu, floods) = (self.now_ns, self.cpu_ns, self.pacing.floods());
        let end_ns = begin_ns + span.as_nanos();
        while self.now_ns < end_ns {
            (self.cpu_ns, self.now_ns) = (self.cpu_ns + pass_ns, self.now_ns + pass_ns + rest_ns);
            let reading = (Instant::from_nanos(self.now_ns), self.cpu_ns);
            if self.limit.after_pass(&self.pacing, || reading) {
                assert!(self.limit.sleep(&self.pacing, None, || reading));
                self.now_ns += SLOW_INTERVAL.as_nanos();
            }
        }
        let used = (self.cpu_ns - begin_cpu) as f64 / (self.now_ns - begin_ns) as f64;
        (used, self.pacing.floods() > floods)
    }
}

#[test]
fn ten_thousand_hand_offs_a_second_are_no_flood() {
    let mut thread = Thread::new();
    for (pass_ns, rest_ns) in [(5_000, 45_000), (10_000, 50_000), (1_000, 9_000)] {
        let (used, slowed) = thread.pass_for(Span::from_secs(1), (pass_ns, rest_ns));
        assert!(!slowed && used < 0.2, "{used}");
    }
}

/// Found by a bench: a domain with a job each 25 us was accused of a flood. Each job takes two
/// passes.
#[test]
fn hand_offs_that_admission_counts_are_no_flood() {
    let passes = (4_000, 8_500);
    assert!(Thread::new().pass_for(Span::from_secs(1), passes).1);
    let mut thread = Thread::new();
    thread.pacing.allow_hand_offs(150_000);
    assert!(!thread.pass_for(Span::from_secs(1), passes).1);
    // Twice as many are.
    assert!(thread.pass_for(Span::from_secs(1), (4_000, 2_250)).1);
}

#[test]
fn a_flood_takes_less_and_less_of_the_cpu() {
    let mut thread = Thread::new();
    let flood = (3_000, 0);
    let (first, slowed) = thread.pass_for(Span::from_millis(50), flood);
    assert!(slowed && first < 0.05, "{first}");
    thread.pass_for(Span::from_secs(4), flood);
    let (later, _) = thread.pass_for(Span::from_secs(10), flood);
    assert!(later < 0.02, "{later}");
}

#[test]
fn the_thread_is_woken_at_once_again_after_the_flood() {
    let mut thread = Thread::new();
    let (flood, honest) = ((3_000, 0), (5_000, 95_000));
    for _ in 0..3 {
        assert!(thread.pass_for(Span::from_millis(10), flood).1);
        assert!(thread.pacing.is_slow());
        thread.pass_for(SLOW_FOR + SLOW_INTERVAL * 2, honest);
        assert!(!thread.pacing.is_slow());
        // A flood after a calm time is a first one again.
        assert!(!thread.pass_for(CALM_AFTER, honest).1);
    }
}
