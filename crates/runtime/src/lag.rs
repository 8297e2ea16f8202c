//! The lags of the activities of one executor: the executor writes them, any thread reads them.
//!
//! Records of jobs do not carry the lag. An adaptive activity may work for minutes on one job, and
//! its lag is of interest meanwhile. So the executor keeps three numbers of each activity in
//! memory, and nothing is lost if no thread reads them.

use std::sync::atomic::{AtomicI64, Ordering};

/// How far the service of an activity is behind its ideal share under PS, in nanoseconds of CPU
/// time; below 0: ahead (proportional-share-1998 §3).
///
/// In [`Statistics::lag`](crate::Statistics::lag). The executor takes the lag at each upcall of the
/// activity, where it is furthest behind, and at each return, where it is furthest ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// At the last upcall or return.
    pub last_ns: i64,
    /// The least so far: the furthest ahead, if it is below 0.
    pub min_ns: i64,
    /// The greatest so far: the furthest behind, if it is above 0.
    pub max_ns: i64,
}

/// No activity is that far ahead: the policy saturates there.
const NONE: i64 = i64::MIN;

/// The lag of one activity. Only its executor writes it, except for [`LagCell::clear`].
#[derive(Debug)]
pub(crate) struct LagCell {
    /// `NONE` before the first value.
    last_ns: AtomicI64,
    min_ns: AtomicI64,
    max_ns: AtomicI64,
}

impl LagCell {
    pub(crate) const fn new() -> Self {
        LagCell {
            last_ns: AtomicI64::new(NONE),
            min_ns: AtomicI64::new(i64::MAX),
            max_ns: AtomicI64::new(NONE),
        }
    }

    /// A new activity begins without a value. The controller calls this before the executor learns
    /// of the activity.
    pub(crate) fn clear(&self) {
        // Relaxed: the executor learns of the activity later, by a notification.
        self.last_ns.store(NONE, Ordering::Relaxed);
        self.min_ns.store(i64::MAX, Ordering::Relaxed);
        self.max_ns.store(NONE, Ordering::Relaxed);
    }

    /// Notes a value. For the executor; a few loads and stores.
    #[inline]
    pub(crate) fn note(&self, lag_ns: i64) {
        // Relaxed: only this thread writes.
        if lag_ns < self.min_ns.load(Ordering::Relaxed) {
            self.min_ns.store(lag_ns, Ordering::Relaxed);
        }
        if lag_ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(lag_ns, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `read`, so that the extremes there include this value.
        self.last_ns.store(lag_ns, Ordering::Release);
    }

    /// The lag; `None` before the first value. From any thread.
    pub(crate) fn read(&self) -> Option<Lag> {
        // Acquire: see `note`.
        let last_ns = self.last_ns.load(Ordering::Acquire);
        // Relaxed: no other data depends on them. A later value may be among them already.
        let min_ns = self.min_ns.load(Ordering::Relaxed);
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        (last_ns != NONE).then_some(Lag { last_ns, min_ns, max_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_the_last_value_between_the_extremes_of_all() {
        let cell = LagCell::new();
        assert_eq!(cell.read(), None);
        for (lag_ns, seen) in [(5, [5, 5, 5]), (-7, [-7, -7, 5]), (0, [0, -7, 5]), (9, [9, -7, 9])]
        {
            cell.note(lag_ns);
            let [last_ns, min_ns, max_ns] = seen;
            assert_eq!(cell.read(), Some(Lag { last_ns, min_ns, max_ns }));
        }
        cell.clear();
        assert_eq!(cell.read(), None);
    }
}
