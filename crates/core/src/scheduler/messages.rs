//! Activities whose messages are said one by one: the tasks of the runtime.
//!
//! A lightweight process says itself when its next message is due
//! (split-level-1991 §3.1): it advances its critical time, sleeps, or waits for
//! what will say it for it. So there is no sequence of releases but one release
//! at a time, and since what is waited for may come before the sleep ends, it
//! can be taken back as long as no job has been made of it.
//!
//! ```text
//!              Run                    ready from               upcalled
//!   Suspended -----> (a) release set -----------> (b) Ready ----------> (c) Running
//!                      |    ^  |                                           |
//!              Message +----+  |            Message                        | returned
//!              (said again)    +<-------------------- (d) no release <-----+
//! ```
//!
//! (a) and (d) are `Waiting` in the head of [`super`]. `Message` has no effect in
//! (b) and (c): who has a job will see what else came when it runs.
//!
//! The declared rate holds, as for [`super::Input::Advance`]: logical arrivals of a
//! real-time activity are a period apart at least, or admission would have promised
//! too much. A message that comes sooner is ahead of its logical arrival, and work
//! ahead. Those that are promised nothing come when they like, in order.

use super::Scheduler;
use super::interface::InputError;
use crate::activity::ActivityId;
use crate::time::Instant;

impl Scheduler {
    /// [`super::Input::Message`]. The caller makes ready what is due.
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
        let stopping =
            self.running.is_some_and(|running| running.id == id && running.stop.is_some());
        let slot = self.slot_mut(id)?;
        if slot.on_demand.is_none() || !slot.active || slot.unfinished > 0 || stopping {
            return Ok(());
        }
        let arrival = critical.max(slot.earliest);
        slot.next_release = arrival;
        let ready = from.max(arrival - slot.params.period.saturating_mul(ahead_max));
        self.releases.set(ready, id.0);
        Ok(())
    }
}
