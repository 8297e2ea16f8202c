//! Whom a handler or task asks at a quantum boundary whether it may go on.
//!
//! Made by the executive for each upcall; asked by [`crate::Batch`] and by tasks.
//! It never blocks, allocates or makes a system call.

use upcall_core::scheduler::{Command, Input};
use upcall_core::time::Instant;
use upcall_core::trace::Traced;

use crate::doorbell::Doorbell;
use crate::seat::Seat;
use crate::trace::Ring;

/// The scheduler of this CPU, the doorbell that others ring for it, and the other
/// domains there, if there are any.
#[derive(Debug)]
pub(crate) struct Gate<'a> {
    pub(crate) scheduler: &'a mut Traced<Ring>,
    pub(crate) doorbell: &'a Doorbell,
    pub(crate) seat: Option<&'a mut Seat>,
}

impl Gate<'_> {
    /// From when on it must ask again; `None` if it must return now. Nothing can
    /// have changed before `check_at` unless somebody said so: that is some loads.
    /// Else O(log n), with other domains O(their slots in use).
    #[inline]
    pub(crate) fn go_on(&mut self, now: Instant, check_at: Instant) -> Option<Instant> {
        if self.doorbell.is_rung() {
            return None;
        }
        if now < check_at && !self.seat.as_ref().is_some_and(|seat| seat.wants_a_look()) {
            return Some(check_at);
        }
        self.ask(now)
    }

    fn ask(&mut self, now: Instant) -> Option<Instant> {
        let others = match self.seat.as_deref_mut().filter(|seat| !seat.is_alone()) {
            Some(seat) => seat.may_go_on(self.scheduler, now)?,
            None => Instant::FAR,
        };
        self.scheduler.handle(now, Input::Boundary).ok()?;
        match self.scheduler.poll_command(now) {
            Some(Command::Proceed { check_at }) => Some(check_at.min(others)),
            _ => None,
        }
    }
}
