//! Messages of a stream that come early, or whose timestamps are later than their position in the
//! stream implies.

use super::Scheduler;
use super::interface::InputError;
use crate::activity::ActivityId;
use crate::time::Instant;

impl Scheduler {
    /// Makes jobs of messages that came before their releases.
    pub(super) fn arrived(
        &mut self,
        id: ActivityId,
        now: Instant,
        messages: u32,
    ) -> Result<(), InputError> {
        self.slot(id)?;
        self.release_due(now);
        let ahead_max = u64::from(self.policy.workahead_max(id));
        let stopping = self.is_stopping(id);
        let slot = self.slot_mut(id)?;
        let furthest = now + slot.params.period.saturating_mul(ahead_max);
        let none = messages == 0 || slot.on_demand.is_some();
        if !slot.active || stopping || none || slot.next_release > furthest {
            return Ok(());
        }
        let room_ns = furthest.since(slot.next_release).as_nanos();
        let room = room_ns / slot.params.period.as_nanos() + 1;
        let count = room.min(u64::from(messages));
        slot.settle(now);
        let idle = slot.add_jobs(count, slot.next_release);
        slot.ahead += count;
        let next_release = slot.next_release;
        self.releases.set(next_release, id.0);
        if idle {
            self.enlist(id, now);
        }
        Ok(())
    }

    /// Moves the next release to the instant that a timestamp states.
    pub(super) fn advance(
        &mut self,
        id: ActivityId,
        now: Instant,
        critical: Instant,
    ) -> Result<(), InputError> {
        self.slot(id)?;
        self.release_due(now);
        let slot = self.slot_mut(id)?;
        let idle = slot.active && slot.unfinished == 0 && slot.on_demand.is_none();
        if idle && critical > slot.next_release {
            slot.next_release = critical;
            self.releases.set(critical, id.0);
        }
        Ok(())
    }

    /// Whether the activity runs, and is to stop when its upcall ends.
    pub(super) fn is_stopping(&self, id: ActivityId) -> bool {
        self.running.is_some_and(|running| running.id == id && running.stop.is_some())
    }
}
