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
//! Under a daemon the idle time is not the domain's: the daemon compares what the domain uses with
//! its reservation and a grace of 5 % of the CPU. Beyond that others go first, before *all* of the
//! domain's activities. So there the credit is an account like the daemon's ([`Income`]): each
//! moment earns the reservation and 4 %, and all upcalls pay. Work beyond its budget gets what the
//! budgets of the domain leave, and 4 %. The daemon counts CPU time, and upcalls pay for the time
//! that passes. So the executor compares both now and then, and gets back what the host took, or
//! what a blocked upcall did not use. The daemon also limits what a domain uses while one of
//! another user waits. Work over budget passes the turn before that, so only its last quantum
//! counts there.
//!
//! The core keeps the budgets under RMDP, RM and DWS. A [`Meter`] keeps them for the activities of
//! PS and DWCS, and for the work of DWS without a reservation. All types here are functions of
//! their arguments. The executor uses them.

use upcall_core::activity::ActivityParams;
use upcall_core::time::{Instant, Span};

use crate::watchdog;

/// The most credit. It is below the time that the watchdog lets an upcall run beyond its budget.
const CREDIT_MAX: Span = Span::from_millis(20);
/// The most credit under a daemon. The daemon lets a domain owe two jobs of each of its activities
/// and 2.5 ms. One job of each may begin when the credit is used.
const INCOME_MAX: Span = Span::from_millis(2);
/// What the domains of a user earn together beyond their reservations, in millionths of the CPU.
/// The daemon's grace is 50,000 for each domain, and for all domains of a user. The rest is for
/// hand-offs, wake-ups and the executor itself.
const INCOME_PPM: u64 = 40_000;
/// The most that one upcall pays under a daemon, if its activity declares no more: the host may
/// have taken the CPU away. The daemon does not count that time.
const UPCALL_MAX: Span = Span::from_millis(10);
/// A sleep for credit lasts until there is this much: a hand-off and a wake-up are small beside it.
const CREDIT_TO_RUN: Span = Span::from_millis(1);
/// How often the thread's CPU clock is read under a daemon: always, and while the credit is used.
/// What the executor itself uses between two readings hides as much of what the host took.
const SETTLE_EVERY: Span = Span::from_millis(100);
const SETTLE_EVERY_USED: Span = Span::from_millis(1);

fn signed(span: Span) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// What a domain earns by the passing of time under a daemon.
#[derive(Clone, Copy, Debug)]
struct Income {
    /// What the domain has reserved, in millionths of the time.
    share_ppm: u64,
    /// Its part of [`INCOME_PPM`].
    grace_ppm: u64,
    /// The time from this moment on has not been earned yet.
    from: Instant,
    /// One job of each activity.
    compute: Span,
    /// What upcalls have paid since the last reading of the thread's CPU clock.
    paid_ns: u64,
    /// When that clock was read last, and what it showed. `None`: never.
    reading: Option<(Instant, u64)>,
}

impl Income {
    #[inline]
    fn ppm(&self) -> u64 {
        self.share_ppm + self.grace_ppm
    }

    /// What the time up to `now` has earned since the last call.
    #[inline]
    fn earned(&mut self, now: Instant) -> Span {
        let length = now.since(self.from).min(Span::from_secs(3_600));
        self.from = self.from.max(now);
        Span::from_nanos(length.as_nanos() * self.ppm() / 1_000_000)
    }
}

/// The idle time that work beyond its budget may use. All methods take constant time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// Negative after work that used more.
    left_ns: i64,
    /// Whether the work waits until there is `CREDIT_TO_RUN`.
    is_used: bool,
    /// `None`: sleeps earn it.
    income: Option<Income>,
}

impl Credit {
    /// The full credit, which sleeps earn.
    pub(super) fn of_sleeps() -> Self {
        Credit { left_ns: signed(CREDIT_MAX), is_used: false, income: None }
    }

    /// The full credit under a daemon, from `now` on. Nothing is reserved yet.
    pub(super) fn of_time(now: Instant) -> Self {
        let (share_ppm, grace_ppm) = (0, INCOME_PPM);
        let compute = Span::ZERO;
        let income = Income { share_ppm, grace_ppm, from: now, compute, paid_ns: 0, reading: None };
        Credit { left_ns: signed(INCOME_MAX), is_used: false, income: Some(income) }
    }

    /// Under a daemon: the domain has reserved `share_ppm` millionths of the CPU, and one job of
    /// each activity takes `compute`.
    pub(super) fn set_reservation(&mut self, share_ppm: u64, compute: Span) {
        if let Some(income) = &mut self.income {
            (income.share_ppm, income.compute) = (share_ppm.min(1_000_000), compute);
        }
    }

    /// Under a daemon: so many domains of the user are on the CPU.
    pub(super) fn set_domains(&mut self, domains: u64) {
        if let Some(income) = &mut self.income {
            income.grace_ppm = INCOME_PPM / domains.max(1);
        }
    }

    /// The executor slept.
    pub(super) fn slept(&mut self, length: Span) {
        if self.income.is_none() {
            self.add(length, CREDIT_MAX);
        }
    }

    /// It is `now`.
    #[inline]
    pub(super) fn earn(&mut self, now: Instant) {
        if let Some(income) = &mut self.income {
            let earned = income.earned(now);
            self.add(earned, INCOME_MAX);
        }
    }

    #[inline]
    fn add(&mut self, earned: Span, most: Span) {
        self.left_ns = self.left_ns.saturating_add(signed(earned)).min(signed(most));
        self.is_used &= self.left_ns < signed(CREDIT_TO_RUN);
    }

    /// An upcall from `start` to `end` was beyond its budget since `from`, which may come after
    /// `end`. One job of its activity takes `compute`.
    ///
    /// An upcall that takes longer than the watchdog lets it run was blocked: only the CPU time
    /// that it may have used counts.
    #[inline]
    pub(super) fn spend(&mut self, (start, from): (Instant, Instant), end: Instant, compute: Span) {
        // What the upcall earns and uses counts at once, so that the cap cuts neither.
        let (used, most, earned, cap) = match &mut self.income {
            None => (end.since(from), watchdog::GRACE, Span::ZERO, CREDIT_MAX),
            Some(income) => (end.since(start), UPCALL_MAX, income.earned(end), INCOME_MAX),
        };
        let used = used.min(compute.max(most));
        if let Some(income) = &mut self.income {
            income.paid_ns = income.paid_ns.saturating_add(used.as_nanos());
        }
        let left_ns = self.left_ns.saturating_add(signed(earned)).saturating_sub(signed(used));
        self.left_ns = left_ns.min(signed(cap));
        self.is_used |= !used.is_zero() && self.left_ns <= 0;
    }

    /// Whether the CPU clock of the thread should be read at `now`, for [`Self::settle`].
    #[inline]
    pub(super) fn is_to_settle(&self, now: Instant) -> bool {
        self.income.as_ref().is_some_and(|income| {
            let every = if self.is_used { SETTLE_EVERY_USED } else { SETTLE_EVERY };
            income.reading.is_none_or(|(at, _)| now.since(at) >= every)
        })
    }

    /// At `now` the thread has used CPU time of `cpu_ns` so far. What upcalls paid beyond the CPU
    /// time since the last call comes back.
    pub(super) fn settle(&mut self, now: Instant, cpu_ns: u64) {
        let Some(income) = &mut self.income else { return };
        let paid_ns = std::mem::take(&mut income.paid_ns);
        let Some((_, before_ns)) = income.reading.replace((now, cpu_ns)) else { return };
        let back_ns = paid_ns.saturating_sub(cpu_ns.saturating_sub(before_ns));
        self.add(Span::from_nanos(back_ns), INCOME_MAX);
    }

    /// Whether work beyond its budget must wait.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether debts may be forgiven when the CPU idles: the domain has not used much more than its
    /// reservation. Otherwise a handler whose job is one quantum of five times its cost would use
    /// five times its budget in each period.
    #[inline]
    pub(super) fn forgives(&self) -> bool {
        // One quantum more, and one job of each activity, are within the account of the daemon.
        let most = self.income.map(|income| (income.compute / 2).max(UPCALL_MAX));
        most.is_none_or(|most| self.left_ns > -signed(most))
    }

    /// How long such work may run now.
    #[inline]
    pub(super) fn left(&self) -> Span {
        Span::from_nanos(self.left_ns.max(0).unsigned_abs())
    }

    /// After how long such work may run again, if nothing else uses the credit.
    pub(super) fn wait(&self) -> Span {
        let short_ns = (signed(CREDIT_TO_RUN) - self.left_ns).max(0).unsigned_abs();
        let ppm = self.income.map_or(1_000_000, |income| income.ppm().max(1));
        Span::from_nanos(short_ns.saturating_mul(1_000_000).div_ceil(ppm))
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

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    /// For 10 s, honest work takes `percent` of each 10 ms, and the other work all that it may.
    /// Returns the time of the other work, and the longest time without a sleep.
    fn share(percent: u64, quantum: Span) -> (Span, Span) {
        let mut credit = Credit::of_sleeps();
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
                credit.spend((now, now), now + quantum, Span::ZERO);
                now += quantum;
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
        let mut credit = Credit::of_sleeps();
        credit.spend((at(0), at(0)), at(120), ms(200));
        assert_eq!((credit.left(), credit.wait()), (Span::ZERO, ms(101)));
        credit.slept(ms(100));
        assert!(credit.is_used());
        credit.slept(ms(1));
        assert_eq!((credit.is_used(), credit.left()), (false, ms(1)));
        credit.slept(Span::from_secs(1));
        assert_eq!(credit.left(), CREDIT_MAX);
    }

    /// The daemon's accounts of a domain that reserved 30 %: what it owes beyond that and 5 %, in
    /// all and of the time that a domain of another user waited.
    #[derive(Default)]
    struct Owed {
        ns: [i64; 2],
        max_ns: [i64; 2],
        sampled: Option<Instant>,
    }

    impl Owed {
        /// An upcall of this length ends `now`. The other domain waited for `contested` of it.
        fn add(&mut self, now: Instant, length: Span, contested: Span) {
            let elapsed = now.since(self.sampled.replace(now).unwrap_or(at(0)));
            let paid_ns = signed(Span::from_nanos(elapsed.as_nanos() * 350 / 1_000));
            for (kind, used) in [length, contested].into_iter().enumerate() {
                self.ns[kind] = (self.ns[kind] + signed(used) - paid_ns).max(0);
                self.max_ns[kind] = self.max_ns[kind].max(self.ns[kind]);
            }
        }
    }

    /// A domain of another user: from each release on it has so much reserved work.
    struct Other {
        next: Instant,
        left: Span,
    }

    impl Other {
        fn release(&mut self, now: Instant) {
            if self.next <= now {
                self.left += ms(5);
                self.next += Span::from_micros(25_300);
            }
        }

        /// For how long of an upcall it waits.
        fn waits(&self, start: Instant, end: Instant) -> Span {
            if self.left.is_zero() { end.since(self.next) } else { end.since(start) }
        }
    }

    /// Under a daemon: for 10 s an honest activity takes 4 ms of each 20 ms (20 %). One that
    /// reserved 1 ms of each 10 ms takes quanta of this length: within its budgets, and on credit
    /// when the other domain has no work. The ranks of both are above that domain's. Returns the
    /// use of the second one, and the most that the daemon's accounts contain.
    fn account(quantum: Span, domains: u64) -> (Span, [Span; 2]) {
        let mut credit = Credit::of_time(at(0));
        credit.set_reservation(300_000, ms(5));
        credit.set_domains(domains);
        let (mut now, mut honest, mut refill, mut budget_ns) = (at(0), at(0), at(0), 0);
        let (mut used, mut owed) = (Span::ZERO, Owed::default());
        let mut other = Other { next: at(3), left: Span::ZERO };
        while now < at(10_000) {
            credit.earn(now);
            other.release(now);
            if refill <= now {
                budget_ns = (budget_ns + signed(ms(1))).min(signed(ms(1)));
                refill += ms(10);
            }
            let (is_honest, is_within) = (honest <= now, budget_ns > 0);
            let length = if is_honest { ms(4) } else { quantum };
            if !is_honest && !is_within && !other.left.is_zero() {
                // It asks each 100 us whether the domain has work.
                now += Span::from_micros(100);
                other.left = other.left.saturating_sub(Span::from_micros(100));
                continue;
            }
            if !is_honest && !is_within && credit.is_used() {
                now = honest.min(refill).min(other.next).min(now + credit.wait());
                continue;
            }
            let end = now + length;
            credit.spend((now, now), end, ms(1));
            owed.add(end, length, other.waits(now, end));
            now = end;
            if is_honest {
                honest += ms(20);
            } else {
                used += quantum;
                budget_ns -= if is_within { signed(quantum) } else { 0 };
            }
        }
        (used, owed.max_ns.map(|ns| Span::from_nanos(ns.unsigned_abs())))
    }

    /// The quanta take up to five times what the activity declared, and 1 ms more at most: the
    /// watchdog acts against longer ones.
    #[test]
    fn under_a_daemon_a_domain_never_owes_more_than_its_accounts_allow() {
        for quantum in [200, 400, 1_000, 1_250].map(Span::from_micros) {
            let (used, [owed, contested]) = account(quantum, 1);
            // Two jobs of each activity, and half the grace.
            assert!(owed <= ms(10) + Span::from_micros(2_500), "{quantum}: {owed}");
            // One job of each activity, the declared quantum and 0.5 ms.
            let most = ms(5) + quantum / 5 + Span::from_micros(500);
            assert!(contested > ms(2) && contested <= most, "{quantum}: {contested}");
            // 10 % are reserved, and 4 % come from the grace.
            assert!(used >= ms(1_380) && used <= ms(1_420), "{quantum}: {used}");
        }
    }

    /// The daemon gives the grace once to all domains of a user.
    #[test]
    fn the_domains_of_a_user_share_the_grace() {
        let (used, _) = account(ms(1), 4);
        assert!(used >= ms(1_080) && used <= ms(1_120), "{used}");
    }

    #[test]
    fn the_wait_ends_when_there_is_enough_to_run() {
        let mut credit = Credit::of_time(at(0));
        credit.set_reservation(210_000, ms(3));
        credit.spend((at(0), at(0)), at(4), ms(3));
        // It was full, and an upcall of 4 ms earned 1 ms.
        assert_eq!((credit.is_used(), credit.left(), credit.wait()), (true, ms(0), ms(8)));
        credit.earn(at(11));
        assert!(credit.is_used());
        credit.earn(at(12));
        assert_eq!((credit.is_used(), credit.left()), (false, ms(1)));
    }

    /// Seen in the row `backlog` of the bench `hostile`: the host took 30 ms, the domains paid for
    /// them, and their late jobs waited for credit: 23 jobs missed, by up to 90 ms.
    #[test]
    fn what_the_host_took_comes_back() {
        let mut credit = Credit::of_time(at(0));
        credit.set_reservation(100_000, ms(1));
        assert!(credit.is_to_settle(at(0)));
        credit.settle(at(0), 0);
        // The upcall took 10 ms, and used 1 ms of CPU time; the executor used 0.1 ms.
        credit.spend((at(0), at(0)), at(10), ms(1));
        assert!(credit.is_used() && credit.is_to_settle(at(10)));
        credit.settle(at(10), 1_100_000);
        assert_eq!((credit.is_used(), credit.left()), (false, INCOME_MAX));
        // An upcall that uses the CPU for as long pays for it.
        credit.spend((at(10), at(10)), at(20), ms(1));
        credit.settle(at(20), 11_200_000);
        assert!(credit.is_used() && !credit.is_to_settle(at(20)));
    }

    /// A domain that used its reservation and one long quantum may begin anew when the CPU idles.
    #[test]
    fn a_debt_is_forgiven_unless_the_domain_is_far_beyond_its_reservation() {
        assert!(Credit::of_sleeps().forgives());
        let mut credit = Credit::of_time(at(0));
        credit.set_reservation(50_000, ms(1));
        let mut now = at(0);
        for found in [true, true, false, false] {
            credit.spend((now, now), now + ms(6), ms(1));
            now += ms(20);
            assert_eq!(credit.forgives(), found, "{now:?}");
        }
        credit.earn(now + ms(300));
        assert!(credit.forgives());
    }

    /// A job ends at its deadline and the next one begins at once.
    #[test]
    fn an_activity_that_keeps_its_declaration_is_never_over_its_meter() {
        let params = ActivityParams::new(ms(10), ms(1)).batch(3);
        let mut meter = Meter::default();
        for job in 1..100 {
            let start = at(10 * job) + ms(if job % 2 == 0 { 0 } else { 7 });
            assert!(meter.left(&params, start) >= ms(3), "job {job}");
            meter.charge(&params, start, start + ms(3));
        }
    }

    #[test]
    fn an_activity_that_takes_more_is_over_its_meter_until_its_rate_has_paid_for_it() {
        let params = ActivityParams::new(ms(10), ms(1)).batch(2);
        let mut meter = Meter::default();
        meter.charge(&params, at(10), at(20));
        assert_eq!(meter.left(&params, at(20)), Span::ZERO);
        assert_eq!(meter.left(&params, at(40)), Span::ZERO);
        assert_eq!(meter.left(&params, at(45)), ms(1));
        assert_eq!(meter.left(&params, at(90)), ms(4));
    }
}
