//! How far a program was behind its share.

use upcall_core::admission::Share;
use upcall_core::time::{Instant, Span};

use super::usage::ProgramUsage;
use crate::latency::Latency;

/// The lag of a program: how much CPU time it was owed at each sample.
///
/// Between two samples it wants the CPU for as long as it runs or waits, at most all the time:
/// several threads that wait together count as one. It is owed its share of that, less what it got.
/// What it got beyond its share was idle time of others, and is owed to nobody: the lag is never
/// below 0. So the greatest lag is the greatest shortfall in any time between two samples. The
/// kernel counts the time of a running thread at its tick (4 ms at 250 Hz) or when it is preempted,
/// so that a single lag is as uncertain. The uncertainties do not add up.
#[derive(Clone, Debug)]
pub struct ProgramLag {
    at: Instant,
    usage: ProgramUsage,
    owed_ns: u64,
    wanted: Span,
    lags: Latency,
    waits: Latency,
}

impl ProgramLag {
    /// No lag at `at`, when the program had used what `usage` says. Allocates some 100 KB.
    pub fn new(at: Instant, usage: ProgramUsage) -> Self {
        let (lags, waits) = (Latency::default(), Latency::default());
        ProgramLag { at, usage, owed_ns: 0, wanted: Span::ZERO, lags, waits }
    }

    /// Adds a sample: what the program had used at `at`, with `share` since the last sample.
    /// Without a share only [`ProgramLag::wanted`] grows.
    pub fn add(&mut self, at: Instant, usage: ProgramUsage, share: Option<Share>) {
        let used = usage.used.saturating_sub(self.usage.used);
        let waited = usage.waited.saturating_sub(self.usage.waited);
        let slices = usage.slices.saturating_sub(self.usage.slices);
        if slices > 0 && !usage.is_partial {
            self.waits.observe(Span::from_nanos(waited.as_nanos() / slices));
        }
        let wanted = (used + waited).min(at.since(self.at).max(used));
        (self.at, self.usage) = (at, usage);
        self.wanted += wanted;
        let Some(share) = share else { return };
        let part = u128::from(wanted.as_nanos()) * u128::from(share.ppm()) / 1_000_000;
        // Not above `wanted`, which fits.
        let due_ns = self.owed_ns.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        self.owed_ns = due_ns.saturating_sub(used.as_nanos());
        self.lags.observe(Span::from_nanos(self.owed_ns));
    }

    /// How long the program wanted the CPU so far.
    pub fn wanted(&self) -> Span {
        self.wanted
    }

    /// The lag at the last sample with a share.
    pub fn now(&self) -> Span {
        Span::from_nanos(self.owed_ns)
    }

    /// Of each sample in which threads of the program got the CPU, their mean wait before that. The
    /// kernel counts waits in sums only, so a single wait is not known.
    pub fn waits(&self) -> &Latency {
        &self.waits
    }

    /// The lags of all samples with a share.
    pub fn lags(&self) -> &Latency {
        &self.lags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn usage(used_ms: u64, waited_ms: u64) -> ProgramUsage {
        let (used, waited) = (Span::from_millis(used_ms), Span::from_millis(waited_ms));
        ProgramUsage { used, waited, ..ProgramUsage::default() }
    }

    fn lag_of(samples: &[(u64, u64)]) -> ProgramLag {
        let mut lag = ProgramLag::new(Instant::from_nanos(0), usage(0, 0));
        for (number, &(used_ms, waited_ms)) in samples.iter().enumerate() {
            let at = Instant::from_nanos((number as u64 + 1) * 100 * MS);
            lag.add(at, usage(used_ms, waited_ms), Share::from_ppm(400_000));
        }
        lag
    }

    #[test]
    fn a_program_that_gets_its_share_has_no_lag() {
        let lag = lag_of(&[(40, 60), (80, 120)]);
        assert_eq!((lag.lags().max(), lag.wanted()), (Span::ZERO, Span::from_millis(200)));
        // It wants less than its share.
        let lag = lag_of(&[(5, 1), (10, 2)]);
        assert_eq!((lag.lags().max(), lag.wanted()), (Span::ZERO, Span::from_millis(12)));
    }

    #[test]
    fn what_is_missing_in_one_time_is_owed_in_the_next() {
        // 10 ms too little, then 5 ms too little, then 15 ms more.
        let lag = lag_of(&[(30, 70), (65, 135), (120, 180)]);
        assert_eq!(lag.lags().max(), Span::from_millis(15));
        assert_eq!(lag.owed_ns, 0);
    }

    #[test]
    fn the_last_lag_and_the_mean_waits_are_known() {
        let mut lag = lag_of(&[(30, 70), (65, 135)]);
        assert_eq!(lag.now(), Span::from_millis(15));
        assert_eq!(lag.waits().count(), 0, "no thread got the CPU anew");
        let mut next = |at_ms, waited_ms, slices| {
            let usage = ProgramUsage { slices, ..usage(65, waited_ms) };
            lag.add(Instant::from_nanos(at_ms * MS), usage, None);
        };
        // 40 ms before 4 slices, none, and 6 ms before 2.
        next(300, 175, 4);
        next(400, 175, 4);
        next(500, 181, 6);
        assert_eq!((lag.waits().count(), lag.waits().max()), (2, Span::from_millis(10)));
    }

    #[test]
    fn idle_time_of_others_is_no_credit() {
        // All of the CPU first, then 10 ms too little.
        assert_eq!(lag_of(&[(100, 0), (130, 70)]).lags().max(), Span::from_millis(10));
    }

    #[test]
    fn threads_that_wait_together_count_as_one() {
        let lag = lag_of(&[(40, 4 * 60)]);
        assert_eq!((lag.lags().max(), lag.wanted()), (Span::ZERO, Span::from_millis(100)));
    }

    #[test]
    fn a_program_without_a_share_is_owed_nothing() {
        let mut lag = ProgramLag::new(Instant::from_nanos(0), usage(0, 0));
        lag.add(Instant::from_nanos(100 * MS), usage(0, 100), None);
        assert_eq!((lag.lags().count(), lag.wanted()), (0, Span::from_millis(100)));
    }
}
