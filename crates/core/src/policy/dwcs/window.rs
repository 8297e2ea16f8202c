//! The state of an activity's window, and its place among the ready activities.
//!
//! This module keeps two accounts of the same outcomes. The *current constraint* `x'/y'` is the one
//! that the published rules sort by; after a violation those rules begin a new window at any
//! period. The *count* is for the user who was promised a window: windows of `y` periods follow one
//! another from the first release on, and the count says in how many of them more than `x` periods
//! were missed. Without a violation, both agree on where a window begins.

use crate::activity::Window;
use crate::time::Instant;
use core::cmp::Ordering;

/// How much a violation adds to `y'`, the papers' epsilon.
const VIOLATION: u64 = 1;

/// An activity's windows. Each call is O(1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// `x/y`.
    window: Window,
    /// `x'/y'`, `0 <= x' <= y'`, `1 <= y'`.
    current: Window,
    /// Set by a miss that was not allowed, until the next service.
    violated: bool,
    /// How many periods of the counted window are over. Below `window.periods`.
    over: u32,
    /// How many of these were missed.
    missed: u32,
    violations: u64,
}

impl Progress {
    /// At the start of a window. A window out of its range becomes the nearest valid one: no
    /// periods become one period, and too many misses become one less than the periods.
    pub(super) fn new(window: Window) -> Self {
        let periods = window.periods.max(1);
        let window = Window { misses: window.misses.min(periods - 1), periods };
        Progress { window, current: window, violated: false, over: 0, missed: 0, violations: 0 }
    }

    /// `x/y`, after it was put into its range.
    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// `x'/y'`.
    pub(super) fn current(&self) -> Window {
        self.current
    }

    /// Counted windows with more misses than allowed.
    pub(super) fn violations(&self) -> u64 {
        self.violations
    }

    /// Begins a new window. Violations stay counted.
    pub(super) fn begin_anew(&mut self) {
        self.restart();
        (self.over, self.missed) = (0, 0);
    }

    /// A period's job was done in time.
    pub(super) fn served(&mut self) {
        self.count(1, 0);
        let current = &mut self.current;
        if current.misses == current.periods {
            current.misses -= 1;
        }
        current.periods -= 1;
        if current.periods == 0 || self.violated {
            self.restart();
        }
    }

    /// The activity missed this many periods in a row. `periods >= 1`.
    pub(super) fn missed(&mut self, periods: u64) {
        let mut left = self.miss_counted(periods);
        while left > 0 {
            let allowed = u64::from(self.current.misses).min(left);
            // Fits: at most `misses`, a u32, and `misses <= periods`.
            #[expect(clippy::cast_possible_truncation, reason = "allowed <= misses")]
            let allowed_u32 = allowed as u32;
            self.current.misses -= allowed_u32;
            self.current.periods -= allowed_u32;
            left -= allowed;
            if self.current.periods == 0 {
                // The window is over, and the next one has a period that may not be missed. So this
                // branch runs at most once a call.
                self.restart();
            } else if left > 0 {
                let periods = u64::from(self.current.periods).saturating_add(left * VIOLATION);
                self.current.periods = u32::try_from(periods).unwrap_or(u32::MAX);
                self.violated = true;
                left = 0;
            }
        }
    }

    fn restart(&mut self) {
        self.current = self.window;
        self.violated = false;
    }

    /// Counts missed periods, and returns them for the current constraint.
    fn miss_counted(&mut self, periods: u64) -> u64 {
        let window = self.window;
        let here = u64::from(window.periods - self.over).min(periods);
        #[expect(clippy::cast_possible_truncation, reason = "at most window.periods")]
        self.count(here as u32, here as u32);
        // Whole windows, each with more misses than allowed.
        let rest = periods - here;
        self.violations += rest / u64::from(window.periods);
        #[expect(clippy::cast_possible_truncation, reason = "below window.periods")]
        let last = (rest % u64::from(window.periods)) as u32;
        self.count(last, last);
        periods
    }

    /// Counts periods of the same outcome. At most as many as the window has left.
    fn count(&mut self, over: u32, missed: u32) {
        let Window { misses, periods } = self.window;
        let before = self.missed;
        self.missed += missed;
        self.over += over;
        if before <= misses && self.missed > misses {
            self.violations += 1;
        }
        if self.over == periods {
            (self.over, self.missed) = (0, 0);
        }
    }
}

/// The place among the ready activities: the smaller one runs first.
///
/// The published table (West and Poellabauer 2000; West et al. 2004, Table 1): earliest deadline;
/// then lowest `x'/y'`; if that is 0 for both, highest `y'`; if it is equal and not 0, lowest `x'`;
/// then the earlier creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The deadline of the oldest job.
    pub(super) deadline: Instant,
    /// `x'/y'`.
    pub(super) current: Window,
    /// How many activities were created before it.
    pub(super) tie: u32,
}

impl Order {
    /// The place among the activities of the same deadline as one number; the smaller one goes
    /// first. It is below `u64::MAX`. The fraction has 31 bits, so it is exact for windows of up to
    /// 46,340 periods: two different fractions of such windows differ by more than `2^-31`.
    pub(super) fn tightness(&self) -> u64 {
        let Window { misses, periods } = self.current;
        if misses == 0 {
            return u64::from(u32::MAX - periods);
        }
        let fraction = (u64::from(misses) << 31) / u64::from(periods.max(1));
        (fraction.max(1) << 32) | u64::from(misses)
    }
}

impl Ord for Order {
    fn cmp(&self, other: &Order) -> Ordering {
        let (a, b) = (self.current, other.current);
        let crosswise = |a: Window, b: Window| u64::from(a.misses) * u64::from(b.periods);
        self.deadline
            .cmp(&other.deadline)
            .then_with(|| crosswise(a, b).cmp(&crosswise(b, a)))
            .then_with(|| match a.misses {
                0 => b.periods.cmp(&a.periods),
                _ => a.misses.cmp(&b.misses),
            })
            .then_with(|| self.tie.cmp(&other.tie))
    }
}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Order) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
