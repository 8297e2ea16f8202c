//! Budgets: how much CPU time an activity may use at its rank (docs/decisions/0016).
//!
//! Admission assumes that an activity uses at most `C = B * cost` in a period. The scheduler
//! enforces that under the policies that do not charge time themselves ([`Policy::keeps_budget`]).
//! While an activity has budget left, its oldest job has the rank of the activity, whatever the age
//! of the job. An activity without budget is *over budget*: its job goes after the jobs of all
//! activities within their budgets.
//!
//! ```text
//!                 (1) work begins
//!   [no window] -------------------> Within ----------------------> Over
//!                                     ^  |  (2) the budget is used    |
//!                                     |  |  (3) PassedOver            |
//!                 (1), (4) refill     |  +---------------------->     |
//!                                     +-------------------------------+
//!                                             (4) refill
//!   [no window] <-------------------- Within, Over
//!                (5) the CPU idles
//! ```
//!
//! 1. A budget belongs to a *window*. Windows begin at least a period apart. The first begins with
//!    the logical arrival of a job, and so does each later one if no work is pending before it. If
//!    a message is announced late, with a logical arrival in the past, its window begins with the
//!    announcement. So an activity that waited outside the scheduler cannot bring the budgets of
//!    two periods at once.
//! 2. The scheduler charges time at quantum boundaries and when the handler returns. A quantum that
//!    ends over budget leaves a debt. The debt is at most a period.
//! 3. The driver was passed over. What is left of all windows up to now is void, and so is a debt.
//! 4. While work is pending, the windows follow one another by the period, which is the grid of the
//!    nominal releases. Each refill adds `C`, and the budget is never more than `C`. A job that
//!    runs on for more than a period has the budget of each period. A window that is not used by
//!    its deadline, or within a period if that is longer, has expired. So missed periods do not
//!    accumulate.
//! 5. The CPU idles, and the activity has no job. No other work waits for what it used. Its debt is
//!    forgiven, and its next window begins with its next job. So a moment in which the host took
//!    the CPU away has no effect for long. Nor has a grid that `Suspend` and `Run` or `PassedOver`
//!    moved away from the releases.
//!
//! Work ahead (DWS) uses the window that begins with its own logical arrival. Use while over budget
//! is not charged, because the others left that time over. Nor is the cost of a hand-off, which
//! admission charges to the activity that caused it. `super::charging` applies the budgets to the
//! activities.

use crate::activity::ActivityParams;
#[cfg(doc)]
use crate::policy::Policy;
use crate::time::{Instant, Span};

#[cfg(test)]
mod tests;

/// The budget of one activity; the [module](self) describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    period: Span,
    /// `C`.
    full: Span,
    /// How long a window may be used: to its deadline, or for a period if that is longer.
    valid: Span,
    /// The beginning of the window. If not `is_used`, the first window begins no earlier.
    window: Instant,
    /// Whether a window has begun.
    is_used: bool,
    /// What is left of the window in ns; a debt is negative.
    left_ns: i64,
    /// The use of the running activity is charged up to this moment.
    charged: Instant,
}

/// What an activity may still use at its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetState {
    /// The beginning of the window that the budget belongs to.
    pub window: Instant,
    /// What is left; 0 if the activity is over budget.
    pub left: Span,
    /// Until when the activity is over budget if it does not run. `None` if it has budget left.
    pub over_until: Option<Instant>,
}

/// A span in the signed numbers that debts need. Budgets and periods are below an hour.
#[inline]
fn signed(span: Span) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

impl Budget {
    /// `deadline` is the time from a release to the deadline, as the policy defines it.
    pub(super) fn new(params: &ActivityParams, deadline: Span) -> Self {
        let (period, full) = (params.period, params.compute());
        Budget {
            period,
            full,
            valid: period.max(deadline),
            window: Instant::ZERO,
            is_used: false,
            left_ns: signed(full),
            charged: Instant::ZERO,
        }
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.left_ns <= 0
    }

    /// Moves on by whole windows, each of which brings `C`.
    fn next_windows(&mut self, windows: u64) {
        let added = signed(self.full.saturating_mul(windows));
        self.left_ns = self.left_ns.saturating_add(added).min(signed(self.full));
        self.window += self.period.saturating_mul(windows);
    }

    #[inline]
    fn spend(&mut self, used: Span) {
        let left_ns = self.left_ns.saturating_sub(signed(used));
        self.left_ns = left_ns.max(-signed(self.period));
    }

    /// How many windows have expired by `now`.
    #[inline]
    fn expired(&self, now: Instant) -> u64 {
        let expiry = self.window + self.valid;
        if now < expiry { 0 } else { now.since(expiry).whole(self.period) + 1 }
    }

    /// Work that may use the budget from `start` on is the oldest work now. Returns whether the
    /// windows are on the grid of that work.
    #[inline]
    pub(super) fn begin(&mut self, start: Instant) -> bool {
        if !self.is_used {
            (self.is_used, self.window) = (true, start.max(self.window));
        } else if start >= self.window + self.period {
            self.next_windows(start.since(self.window).whole(self.period));
            self.window = start;
        }
        let behind = self.window.since(start).as_nanos();
        start == self.window || (behind > 0 && behind.is_multiple_of(self.period.as_nanos()))
    }

    /// Moves to a window that is valid at `now`, and to one with a budget if such a window has
    /// begun. The activity did not run. Returns whether its rank may be another one now.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let is_unchanged = now < self.window + self.valid && !self.is_over();
        if !is_unchanged && self.is_used {
            self.advance_windows(now);
        }
        !is_unchanged
    }

    fn advance_windows(&mut self, now: Instant) {
        let expired = self.expired(now);
        if expired > 0 {
            self.next_windows(expired);
        }
        if self.is_over() && self.restored_at() <= now {
            self.next_windows(self.restored_at().since(self.window).whole(self.period));
        }
    }

    /// Charges the use since the last charge: the activity ran without a break up to `now`. Returns
    /// whether its rank may be another one now.
    #[inline]
    pub(super) fn charge(&mut self, now: Instant) -> bool {
        let is_within = now < self.window + self.valid && !self.is_over();
        let from = self.charged;
        self.charged = from.max(now);
        if is_within {
            self.spend(now.since(from));
            if !self.is_over() {
                return false;
            }
        } else {
            self.charge_windows(from, now);
        }
        self.advance(now);
        true
    }

    /// Charges the use from `from` up to `now`, in windows that expired or without a budget.
    fn charge_windows(&mut self, from: Instant, now: Instant) {
        let expired = self.expired(now);
        if expired > 0 {
            let (until, began_within) = (self.window + self.valid, !self.is_over());
            if began_within {
                self.spend(until.since(from));
            }
            self.next_windows(1);
            // In each of these windows the activity ran for the whole period.
            let unpaid = self.period.saturating_sub(self.full).saturating_mul(expired - 1);
            self.spend(unpaid);
            self.window += self.period.saturating_mul(expired - 1);
            // A quantum that began with the rank of the activity is charged to its end.
            if began_within || !self.is_over() {
                self.spend(now.since(from.max(self.window + self.valid - self.period)));
            }
        } else if self.restored_at() <= now {
            let at = self.restored_at();
            self.advance(at);
            self.spend(now.since(from.max(at)));
        }
    }

    /// Others ran for `length` since the last charge: the activity does not pay for that. If part
    /// of that time is charged already, as much of the time to come is free instead.
    pub(super) fn excuse(&mut self, length: Span) {
        self.charged += length;
    }

    /// The activity runs from `now` on, and is charged from `from` on. Returns whether its rank may
    /// be another one now.
    #[inline]
    pub(super) fn begin_charge(&mut self, now: Instant, from: Instant) -> bool {
        self.charged = from;
        self.advance(now)
    }

    /// Nothing is left of the windows up to `now`, and no debt. A window that has not begun keeps
    /// its budget: work ahead harms no other work.
    pub(super) fn void(&mut self, has_work: bool, now: Instant) {
        self.charged = now;
        let windows = now.since(self.window).whole(self.period);
        if self.is_used && self.window <= now && (has_work || windows == 0) {
            self.window += self.period.saturating_mul(windows);
            self.left_ns = 0;
        }
    }

    /// When the activity is within its budget again, if it is over budget and does not run.
    #[inline]
    fn restored_at(&self) -> Instant {
        let debt = Span::from_nanos(self.left_ns.min(0).unsigned_abs());
        // The usual case takes no division.
        let windows = if debt < self.full { 0 } else { debt.whole(self.full) };
        self.window + self.period.saturating_mul(windows + 1)
    }

    pub(super) fn state(&self) -> BudgetState {
        BudgetState { window: self.window, left: self.left(), over_until: self.over_until() }
    }

    /// What is left; 0 if it is over budget.
    #[inline]
    fn left(&self) -> Span {
        Span::from_nanos(self.left_ns.max(0).unsigned_abs())
    }

    /// When the rank of the running activity changes, if it runs on: it has used its budget, or its
    /// window expires. [`Instant::FAR`] if it is over budget already.
    #[inline]
    pub(super) fn changes_at(&self) -> Instant {
        match self.is_over() {
            true => Instant::FAR,
            false => (self.charged + self.left()).min(self.window + self.valid),
        }
    }

    /// The budget of work that begins at `start`, at that moment.
    pub(super) fn at_begin(mut self, start: Instant) -> Self {
        self.begin(start);
        self.advance(start);
        self
    }

    /// The release from which the rank of work counts that begins at `start`. The rank is the
    /// activity's from that moment on.
    pub(super) fn ranked_from(self, start: Instant) -> Instant {
        self.at_begin(start).over_until().unwrap_or(start)
    }

    #[inline]
    pub(super) fn is_in_debt(&self) -> bool {
        self.left_ns < 0
    }

    /// The CPU idles at `now`. The next work begins a window, not before `now`, and owes nothing.
    pub(super) fn renew(&mut self, now: Instant) {
        (self.is_used, self.window, self.left_ns) = (false, now, signed(self.full));
    }

    /// The release from which the rank of a job counts that was released at `release`.
    #[inline]
    pub(super) fn rank_from(&self, release: Instant) -> Instant {
        release.max(self.window)
    }

    /// When the activity has its rank again, if it is over budget.
    #[inline]
    pub(super) fn over_until(&self) -> Option<Instant> {
        self.is_over().then(|| self.restored_at())
    }
}
