//! The times of a run: its start, its polls and its drain.

use std::time::Duration;

use upcall::time::Span;

use crate::plan::Plan;

/// Time from the last preparation to the first release.
pub const LEAD: Span = Span::from_millis(100);
/// Longest drain after the senders have stopped.
const DRAIN_MAX: Span = Span::from_secs(2);
/// How often the run takes in job records and draws the live table.
pub const POLL_EVERY: Duration = Duration::from_millis(100);

/// How long arrived PDUs may be processed after the senders have stopped: the longest promised
/// delay. It is the same in every mode.
pub fn drain_time(plan: &Plan<'_>) -> Span {
    let delays = plan.activities.iter().filter_map(|planned| Some(planned.mapping?.delay_max));
    delays.max().unwrap_or_default().min(DRAIN_MAX)
}
