//! RMDP: rate monotonic with delayed preemption (rtu-1995 §5.1, Figure 5;
//! rtu-1996 §4.1).
//!
//! An activity is eligible from its release, and its rank is its period, which
//! never changes. What makes it *delayed* preemption is not the rank but where
//! it is looked at: only when a quantum of `b` PDUs is complete
//! ([`crate::scheduler::Input::Boundary`]). Between two boundaries nothing
//! else of the same CPU runs, so activities share data without locks.

use super::Rank;
use crate::activity::ActivityParams;

/// The activity's rank: the shorter period first, then the one created before.
pub const fn rank(created: u32, params: &ActivityParams) -> Rank {
    Rank { key: params.period.as_nanos(), tie: created }
}
