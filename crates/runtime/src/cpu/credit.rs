//! How much of the idle time work beyond its budget may use (docs/decisions/0016).
//!
//! Work beyond its budget may use time that no other activity needs. If it used all of that time,
//! the executor would never sleep. Then its FIFO thread would keep ordinary programs from the CPU.
//! The watchdog would put the thread into the ordinary class, and the kernel would stop it for
//! 50 ms in each second. Both would cost the other activities their deadlines.
//!
//! So such work pays with [`Credit`], which the executor earns by sleeping: it uses at most half of
//! the time that the budgets leave. Without credit the executor sleeps although such work is ready,
//! until it has credit again or anything else happens. Work within its budget never waits for that.
//!
//! The core keeps the budgets under RMDP, RM and DWS. A [`Meter`] keeps them for the activities of
//! PS and DWCS, and for the work of DWS without a reservation. All types here are functions of
//! their arguments. The executor uses them.

use upcall_core::activity::ActivityParams;
use upcall_core::time::{Instant, Span};

/// The most credit. It is below the time that the watchdog lets an upcall run beyond its budget.
const CREDIT_MAX: Span = Span::from_millis(20);
/// A sleep for credit lasts until there is this much: a hand-off and a wake-up are small beside it.
const CREDIT_TO_RUN: Span = Span::from_millis(1);

fn signed(span: Span) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// The idle time that work beyond its budget may use. All methods take constant time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// Negative after work that used more.
    left_ns: i64,
    /// Whether the work waits until there is `CREDIT_TO_RUN`.
    is_used: bool,
}

impl Credit {
    /// The full credit.
    pub(super) fn new() -> Self {
        Credit { left_ns: signed(CREDIT_MAX), is_used: false }
    }

    /// The executor slept.
    pub(super) fn slept(&mut self, length: Span) {
        self.left_ns = self.left_ns.saturating_add(signed(length)).min(signed(CREDIT_MAX));
        self.is_used &= self.left_ns < signed(CREDIT_TO_RUN);
    }

    /// An activity ran for this long beyond its budget.
    pub(super) fn spend(&mut self, beyond: Span) {
        self.left_ns = self.left_ns.saturating_sub(signed(beyond));
        self.is_used |= self.left_ns <= 0;
    }

    /// Whether work beyond its budget must wait.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// How long such work may run now.
    #[inline]
    pub(super) fn left(&self) -> Span {
        Span::from_nanos(self.left_ns.max(0).unsigned_abs())
    }

    /// The sleep after which such work may run again.
    pub(super) fn wait(&self) -> Span {
        Span::from_nanos((signed(CREDIT_TO_RUN) - self.left_ns).max(0).unsigned_abs())
    }
}

/// What an activity has used of its declared rate: `C` in each period, and at most `2 C` at once,
/// because a job may end late and the next begin early. All methods take constant time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    left_ns: i64,
    /// The moment of `left_ns`: the last start. `Instant::ZERO`: never used.
    at: Instant,
}

impl Meter {
    /// What is left at `now`, negative if it used more. At most a period is owed.
    fn left_ns(&self, params: &ActivityParams, now: Instant) -> i64 {
        let (full, period) = (params.compute(), params.period);
        let full_ns = signed(full.saturating_mul(2));
        if self.at == Instant::ZERO {
            return full_ns;
        }
        let length = now.since(self.at);
        let refill_ns = u128::from(length.as_nanos()) * u128::from(full.as_nanos())
            / u128::from(period.as_nanos().max(1));
        let refill_ns = i64::try_from(refill_ns).unwrap_or(i64::MAX);
        self.left_ns.saturating_add(refill_ns).min(full_ns)
    }

    /// What is left at `now`; 0 if the activity is over its budget.
    pub(super) fn left(&self, params: &ActivityParams, now: Instant) -> Span {
        Span::from_nanos(self.left_ns(params, now).max(0).unsigned_abs())
    }

    /// The activity ran from `start` to `end`.
    pub(super) fn charge(&mut self, params: &ActivityParams, start: Instant, end: Instant) {
        let left_ns = self.left_ns(params, start).saturating_sub(signed(end.since(start)));
        self.left_ns = left_ns.max(-signed(params.period));
        self.at = start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    /// For 10 s, honest work takes `percent` of each 10 ms, and the other work all that it may.
    /// Returns the time of the other work, and the longest time without a sleep.
    fn share(percent: u64, quantum: Span) -> (Span, Span) {
        let mut credit = Credit::new();
        let (mut now, end) = (Instant::ZERO, Instant::ZERO + Span::from_secs(10));
        let (mut next, mut last_sleep) = (now, now);
        let (mut beyond, mut longest) = (Span::ZERO, Span::ZERO);
        while now < end {
            if next <= now {
                now += Span::from_micros(100) * u32::try_from(percent).unwrap();
                next += ms(10);
            } else if credit.is_used() {
                longest = longest.max(now.since(last_sleep));
                let until = next.min(now + credit.wait());
                credit.slept(until.since(now));
                (now, last_sleep) = (until, until);
            } else {
                now += quantum;
                credit.spend(quantum);
                beyond += quantum;
            }
        }
        (beyond, longest)
    }

    /// Linux lets FIFO threads run for 950 ms in each second.
    #[test]
    fn work_beyond_its_budget_uses_at_most_half_of_what_the_budgets_leave() {
        for (percent, quantum) in [(0, ms(1)), (20, ms(1)), (50, ms(5)), (90, Span::from_micros(9))]
        {
            let (beyond, longest) = share(percent, quantum);
            let half = ms(50) * u32::try_from(100 - percent).unwrap();
            assert!(beyond <= half + CREDIT_MAX, "{percent} %: {beyond} of {half}");
            assert!(beyond + ms(30) >= half, "{percent} %: {beyond} of {half}");
            assert!(longest < ms(300), "{percent} %: {longest} without a sleep");
        }
    }

    #[test]
    fn a_long_quantum_is_paid_before_the_next_one() {
        let mut credit = Credit::new();
        credit.spend(ms(120));
        assert_eq!((credit.left(), credit.wait()), (Span::ZERO, ms(101)));
        credit.slept(ms(100));
        assert!(credit.is_used());
        credit.slept(ms(1));
        assert_eq!((credit.is_used(), credit.left()), (false, ms(1)));
        credit.slept(Span::from_secs(1));
        assert_eq!(credit.left(), CREDIT_MAX);
    }

    /// A job ends at its deadline and the next one begins at once.
    #[test]
    fn an_activity_that_keeps_its_declaration_is_never_over_its_meter() {
        let params = ActivityParams::new(ms(10), ms(1)).batch(3);
        let (mut meter, at) = (Meter::default(), |at| Instant::ZERO + ms(at));
        for job in 1..100 {
            let start = at(10 * job) + ms(if job % 2 == 0 { 0 } else { 7 });
            assert!(meter.left(&params, start) >= ms(3), "job {job}");
            meter.charge(&params, start, start + ms(3));
        }
    }

    #[test]
    fn an_activity_that_takes_more_is_over_its_meter_until_its_rate_has_paid_for_it() {
        let params = ActivityParams::new(ms(10), ms(1)).batch(2);
        let (mut meter, at) = (Meter::default(), |at| Instant::ZERO + ms(at));
        meter.charge(&params, at(10), at(20));
        assert_eq!(meter.left(&params, at(20)), Span::ZERO);
        assert_eq!(meter.left(&params, at(40)), Span::ZERO);
        assert_eq!(meter.left(&params, at(45)), ms(1));
        assert_eq!(meter.left(&params, at(90)), ms(4));
    }
}
