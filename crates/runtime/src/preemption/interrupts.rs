//! User interrupts of a virtual processor: a timer, a ready descriptor, its own return
//! (split-level-1991 §3.2.1, §3.3).
//!
//! A stream whose level is reached, too, interrupts only where it would outrank what runs: the
//! executor watches its bell ([`Watches`]) at the same places, tells the core, and requests
//! [`Interrupt::IoReady`] if what runs must yield to it.
//!
//! An executor has one [`Interrupts`]; its handler is given by
//! [`Runtime::on_interrupt`](crate::Runtime::on_interrupt). Who raises one sets a bit (the
//! reactor), counts in the kernel area (the daemon), or set a time (a controller). The
//! executor looks between two upcalls, and each handler that it upcalls at its boundaries:
//! the interrupt is delivered there, on top of it, as a signal would be, but never inside a
//! quantum. While the mask is up nothing is taken; the one who lowers it delivers.
//!
//! ```text
//!            raised                      boundary or turn, mask down
//!   nothing --------> requested (1) ----------------------------------> delivered
//!                         |                                                 ^
//!                         +--- boundary or turn, mask up: stays ------------+
//!                                           the last mask goes (2)
//! ```
//!
//! 1. Once for each kind, however often it is raised.
//! 2. No system call, as everywhere here: loads, and a store for a level.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use upcall_shm::kernel_area::Interrupt;

use upcall_core::time::Instant;
use upcall_shm::kernel_area;

use crate::channel::{DispatchPoint, EventDispatcher};
use crate::domain::virtual_processor::VirtualProcessor;
use crate::mailbox::{Shared, bit};
use crate::stream::Watches;

#[cfg(test)]
mod tests;

/// What is called with each interrupt.
pub(crate) type InterruptHandler = Box<dyn FnMut(Interrupt) + Send>;

/// In the order of delivery.
const KINDS: [Interrupt; 3] = [Interrupt::Timer, Interrupt::IoReady, Interrupt::Resume];

/// See the module's head. The executor's end.
pub(crate) struct Interrupts {
    /// `None`: requests wait for one, or it panicked.
    handler: Option<InterruptHandler>,
    shared: Arc<Shared>,
    /// When the timer elapses.
    timer: Instant,
    /// Levels of the mask.
    masks: u32,
    /// Of the kernel area.
    seen: kernel_area::Interrupts,
    /// Requested by the executor itself.
    noted: u32,
    /// The streams that may interrupt what runs.
    pub(crate) watches: Watches,
    /// The event channels whose handlers may, if there are any.
    pub(crate) desk: Option<Box<EventDispatcher>>,
}

impl std::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Interrupts { timer, masks, .. } = self;
        f.debug_struct("Interrupts").field("timer", timer).field("masks", masks).finish()
    }
}

impl Interrupts {
    /// Nothing is requested. What the daemon raised before was for whoever had the
    /// place.
    pub(crate) fn new(shared: Arc<Shared>, virtual_processor: Option<&VirtualProcessor>) -> Self {
        let seen = virtual_processor.map(VirtualProcessor::interrupts).unwrap_or_default();
        let watches = Watches::new();
        Interrupts {
            handler: None,
            shared,
            timer: Instant::FAR,
            masks: 0,
            seen,
            noted: 0,
            watches,
            desk: None,
        }
    }

    pub(crate) fn set_handler(&mut self, handler: InterruptHandler) {
        self.handler = Some(handler);
    }

    /// The executor is among the domains of another daemon: as for a new one.
    pub(crate) fn moved_to(&mut self, virtual_processor: &VirtualProcessor) {
        self.seen = virtual_processor.interrupts();
    }

    /// Asks for [`Interrupt::Timer`] at `at`, and at no other time.
    pub(crate) fn set_timer(&mut self, at: Instant) {
        self.timer = at;
    }

    /// Until when the executor may sleep.
    pub(crate) fn timer(&self) -> Instant {
        self.timer
    }

    /// Requests an interrupt, to be delivered where the next are looked for.
    pub(crate) fn note(&mut self, kind: Interrupt) {
        self.noted |= bit(kind);
    }

    pub(crate) fn raise_mask(&mut self) {
        self.masks += 1;
    }

    /// Says how many levels are left. At 0 the caller delivers.
    pub(crate) fn lower_mask(&mut self) -> u32 {
        self.masks -= 1;
        self.masks
    }

    /// Invokes what handlers of events are to be, unless interrupts are masked; `true`: some may have been.
    #[inline]
    pub(crate) fn serve(&mut self, now: Instant, point: DispatchPoint) -> bool {
        match &mut self.desk {
            Some(desk) if self.masks == 0 => desk.serve(now, point),
            _ => false,
        }
    }

    /// Delivers what was requested, unless it is masked; `true`: something was.
    /// Two loads and a comparison, if there is nothing. A handler that panics is not
    /// called again.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        virtual_processor: Option<&VirtualProcessor>,
    ) -> bool {
        if self.handler.is_none() || self.masks > 0 {
            return false;
        }
        let mut requests = self.shared.take_interrupts() | std::mem::take(&mut self.noted);
        if now >= self.timer {
            self.timer = Instant::FAR;
            requests |= bit(Interrupt::Timer);
        }
        if let Some(virtual_processor) = virtual_processor {
            let raised = virtual_processor.interrupts();
            requests |= raised.since(self.seen).fold(0, |bits, kind| bits | bit(kind));
            self.seen = raised;
        }
        if requests == 0 {
            return false;
        }
        for kind in KINDS.into_iter().filter(|&kind| requests & bit(kind) != 0) {
            let Some(handler) = &mut self.handler else { break };
            // Nothing of ours is borrowed inside.
            if catch_unwind(AssertUnwindSafe(|| handler(kind))).is_err() {
                self.handler = None;
            }
        }
        true
    }
}
