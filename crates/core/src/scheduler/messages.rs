//! Activities whose messages are announced one by one: the tasks of the runtime.
//!
//! A lightweight process decides when its next message is due (split-level-1991 §3.1). It advances
//! its critical time, sleeps, or waits for an input. So it has one release at a time instead of a
//! sequence. The input may come before the sleep ends, so a release may be replaced until it has
//! become a job.
//!
//! ```text
//!              Run                    ready from               upcalled
//!   Suspended -----> (a) release set -----------> (b) Ready ----------> (c) Running
//!                      |    ^  |                                           |
//!              Message +----+  |            Message                        | returned
//!            (announced again) +<-------------------- (d) no release <-----+
//! ```
//!
//! (a) and (d) are `Waiting` in the head of [`super`]. `Message` has no effect in (b) and (c): an
//! activity with a job sees any other input when it runs.
//!
//! The declared rate holds, as for [`super::Input::Advance`]: logical arrivals of a real-time
//! activity are at least a period apart, because admission relies on that. A message that comes
//! sooner is ahead of its logical arrival, and counts as work ahead. Messages without a promise may
//! come at any time, in order.

use super::Scheduler;
use super::interface::InputError;
use crate::activity::ActivityId;
use crate::time::Instant;

impl Scheduler {
    /// Processes [`super::Input::Message`]. The caller then makes ready what is due.
    pub(super) fn message(
        &mut self,
        id: ActivityId,
        now: Instant,
        critical: Instant,
        from: Instant,
    ) -> Result<(), InputError> {
        self.slot(id)?;
        self.release_due(now);
        let ahead_max = u64::from(self.policy.workahead_max(id));
        let stopping = self.is_stopping(id);
        let slot = self.slot_mut(id)?;
        if slot.on_demand.is_none() || !slot.active || slot.unfinished > 0 || stopping {
            return Ok(());
        }
        let arrival = critical.max(slot.earliest);
        slot.next_release = arrival;
        // A message that follows at once was pending from its arrival on, behind the one before.
        let late = critical < now && slot.ended != now;
        slot.window_from = if late { now } else { Instant::ZERO };
        let ready = from.max(arrival - slot.params.period.saturating_mul(ahead_max));
        self.releases.set(ready, id.0);
        Ok(())
    }
}
