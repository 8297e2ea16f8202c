//! User interrupts: a timer has elapsed, a descriptor is ready, or a virtual processor that was
//! passed over has its turn again (split-level-1991 §3.2.1, §3.3).
//!
//! An executor has one [`Interrupts`]. [`Runtime::on_interrupt`](crate::Runtime::on_interrupt) sets
//! the interrupt handler. The reactor requests an interrupt by a bit, the daemon by a count in the
//! kernel area, and a controller by a time. The executor looks for requests between two upcalls,
//! and the handler that runs looks at its boundaries. The interrupt is delivered there, on top of
//! that handler as a signal would be, but never inside a quantum. While interrupts are masked, no
//! request is taken. When the last mask goes, the requests are delivered.
//!
//! A stream whose level is reached interrupts only if its handler outranks the one that runs. The
//! executor polls the stream's wait word ([`Watches`]) at the same places and tells the core. It
//! requests [`Interrupt::IoReady`] if the running handler must yield.
//!
//! ```text
//!            raised                      boundary or turn, mask down
//!   nothing --------> requested (1) ----------------------------------> delivered
//!                         |                                                 ^
//!                         +--- boundary or turn, mask up: stays ------------+
//!                                           the last mask goes (2)
//! ```
//!
//! 1. An interrupt of each kind is requested once, however often it is raised.
//! 2. Masks make no system call. They cost loads, and a store for each level.

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

/// The user's code that is called with each interrupt.
pub(crate) type InterruptHandler = Box<dyn FnMut(Interrupt) + Send>;

/// All kinds, in the order of delivery.
const KINDS: [Interrupt; 3] = [Interrupt::Timer, Interrupt::IoReady, Interrupt::Resume];

/// See the module's head. The executor's end.
pub(crate) struct Interrupts {
    /// `None`: requests wait for a handler, or the handler panicked.
    handler: Option<InterruptHandler>,
    shared: Arc<Shared>,
    /// When the timer elapses.
    timer: Instant,
    /// How many masks are held.
    masks: u32,
    /// The counts of the kernel area at the last look.
    seen: kernel_area::Interrupts,
    /// The interrupts that the executor itself has requested, one bit each.
    requested: u32,
    /// The streams that may interrupt the running handler.
    pub(crate) watches: Watches,
    /// The dispatcher of the event channels whose handlers may interrupt the running handler, if
    /// there are any.
    pub(crate) dispatcher: Option<Box<EventDispatcher>>,
}

impl std::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Interrupts { timer, masks, .. } = self;
        f.debug_struct("Interrupts").field("timer", timer).field("masks", masks).finish()
    }
}

impl Interrupts {
    /// Creates the state, with nothing requested. Ignores what the daemon raised before, for an
    /// earlier domain with this number.
    pub(crate) fn new(shared: Arc<Shared>, virtual_processor: Option<&VirtualProcessor>) -> Self {
        let seen = virtual_processor.map(VirtualProcessor::interrupts).unwrap_or_default();
        let watches = Watches::new();
        Interrupts {
            handler: None,
            shared,
            timer: Instant::FAR,
            masks: 0,
            seen,
            requested: 0,
            watches,
            dispatcher: None,
        }
    }

    pub(crate) fn set_handler(&mut self, handler: InterruptHandler) {
        self.handler = Some(handler);
    }

    /// The executor went over to another daemon. Ignores what that daemon raised before, as
    /// [`Interrupts::new`] does.
    pub(crate) fn moved_to(&mut self, virtual_processor: &VirtualProcessor) {
        self.seen = virtual_processor.interrupts();
    }

    /// Requests [`Interrupt::Timer`] at `at`, in place of an earlier request.
    pub(crate) fn set_timer(&mut self, at: Instant) {
        self.timer = at;
    }

    /// When the timer elapses; [`Instant::FAR`] if it is not set.
    pub(crate) fn timer(&self) -> Instant {
        self.timer
    }

    /// Requests an interrupt. It is delivered at the next look.
    pub(crate) fn request(&mut self, kind: Interrupt) {
        self.requested |= bit(kind);
    }

    pub(crate) fn raise_mask(&mut self) {
        self.masks += 1;
    }

    /// Returns how many levels are left. At 0 the caller delivers.
    pub(crate) fn lower_mask(&mut self) -> u32 {
        self.masks -= 1;
        self.masks
    }

    /// Invokes the handlers of event channels that are due, unless interrupts are masked. Returns
    /// whether some may have been invoked.
    #[inline]
    pub(crate) fn serve(&mut self, now: Instant, point: DispatchPoint) -> bool {
        match &mut self.dispatcher {
            Some(dispatcher) if self.masks == 0 => dispatcher.serve(now, point),
            _ => false,
        }
    }

    /// Delivers the requested interrupts, unless they are masked. Returns whether there were any.
    /// Two loads and a comparison if there are none. A handler that panics is not called again.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        virtual_processor: Option<&VirtualProcessor>,
    ) -> bool {
        if self.handler.is_none() || self.masks > 0 {
            return false;
        }
        let mut requests = self.shared.take_interrupts() | std::mem::take(&mut self.requested);
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
            // The closure borrows nothing of the runtime.
            if catch_unwind(AssertUnwindSafe(|| handler(kind))).is_err() {
                self.handler = None;
            }
        }
        true
    }
}
