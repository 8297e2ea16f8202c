//! When a run begins, polls and drains.

use std::time::Duration;

use upcall::time::Span;

use crate::plan::Plan;

/// From the last preparation to the first release.
pub const LEAD: Span = Span::from_millis(100);
/// Longest drain after the senders stopped.
const DRAIN_MAX: Span = Span::from_secs(2);
/// How often job records are taken in and the live table drawn.
pub const POLL_EVERY: Duration = Duration::from_millis(100);

/// How long what has arrived may be processed after the senders stopped: the longest
/// delay that was promised; in every mode alike.
pub fn drain_time(plan: &Plan<'_>) -> Span {
    let delays = plan.activities.iter().filter_map(|planned| Some(planned.mapping?.delay_max));
    delays.max().unwrap_or_default().min(DRAIN_MAX)
}
