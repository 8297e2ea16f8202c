//! The preemption point: where a handler or task asks at a quantum boundary whether it goes on.
//!
//! The executor makes one for each upcall; [`crate::Batch`] and tasks ask it. It never blocks,
//! allocates or makes a system call.
//!
//! A handler goes on unless one of these outranks it:
//!
//! 1. a controller that notified the executor: the handler returns at once;
//! 2. a stream whose level is reached by now, or an event posted by now;
//! 3. a release of this domain that came due (`check_at`);
//! 4. a peer domain, if there are any;
//! 5. ordinary programs, once the handler is beyond its budget and has used its part of the idle
//!    time (`return_at`), or if it has no reservation and the daemon keeps time for them.
//!
//! User interrupts and the handlers of event channels run here too, on top of the handler that
//! asks.

use upcall_core::activity::ActivityId;
use upcall_core::scheduler::{Command, Input};
use upcall_core::time::Instant;
use upcall_core::trace::Traced;
use upcall_shm::user_area::Mask;

use crate::channel::DispatchPoint;
use crate::domain::virtual_processor::VirtualProcessor;
use crate::events::{Inboxes, PostedEvent};
use crate::notify::Notifier;
use crate::trace::Ring;
use interrupts::{Interrupt, Interrupts};

pub(crate) mod interrupts;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct PreemptionPoint<'a> {
    /// The scheduler of this CPU.
    pub(crate) scheduler: &'a mut Traced<Ring>,
    /// Other threads of the process notify the executor by it.
    pub(crate) notifier: &'a Notifier,
    /// `Some` under a daemon.
    pub(crate) virtual_processor: Option<&'a mut VirtualProcessor>,
    /// Delivers user interrupts and events of channels at each boundary. `None` in a trial run.
    pub(crate) interrupts: Option<&'a mut Interrupts>,
    /// `None` in a trial run.
    pub(crate) inboxes: Option<&'a mut Inboxes>,
    /// From then on the handler returns at its next boundary: it is beyond its budget, and has used
    /// the idle time that it may use. `check_at` is never later.
    pub(crate) return_at: Instant,
}

impl<'a> PreemptionPoint<'a> {
    /// A preemption point for a trial run. It delivers nothing.
    pub(crate) fn on_trial(
        scheduler: &'a mut Traced<Ring>,
        notifier: &'a Notifier,
        virtual_processor: Option<&'a mut VirtualProcessor>,
    ) -> Self {
        PreemptionPoint {
            scheduler,
            notifier,
            virtual_processor,
            interrupts: None,
            inboxes: None,
            return_at: Instant::FAR,
        }
    }
}

impl PreemptionPoint<'_> {
    /// Until when the handler may go on without asking. `None` if it must return now. Before
    /// `check_at` only another thread can have changed anything, and it left a mark. If there is no
    /// mark, the call takes some loads. Otherwise it takes O(log n), with peer domains O(their
    /// slots in use).
    #[inline]
    pub(crate) fn go_on(&mut self, mut now: Instant, check_at: Instant) -> Option<Instant> {
        if self.deliver(now) {
            now = crate::clock::now();
        }
        let is_notified = match &self.virtual_processor {
            Some(virtual_processor) => {
                virtual_processor.respond(now);
                virtual_processor.notifier().is_notified()
            }
            None => self.notifier.is_notified(),
        };
        if is_notified {
            return None;
        }
        let reached = self.poll_streams(now);
        let posted =
            self.inboxes.as_ref().is_some_and(|all| all.interrupt) && self.poll_events(now);
        if !reached
            && !posted
            && now < check_at
            && !self
                .virtual_processor
                .as_ref()
                .is_some_and(|virtual_processor| virtual_processor.must_look())
        {
            return Some(check_at);
        }
        let answer = self.ask(now);
        if let (true, None, Some(interrupts)) = (reached, answer, &mut self.interrupts) {
            interrupts.request(Interrupt::IoReady);
        }
        answer
    }

    /// Makes the handlers eligible whose streams have reached their level by now. Returns whether
    /// there were any.
    #[inline]
    fn poll_streams(&mut self, now: Instant) -> bool {
        let Some(interrupts) = &mut self.interrupts else { return false };
        let mut any = false;
        interrupts.watches.poll_streams(now, |id, at| {
            any = true;
            // While a handler runs, the input causes no command.
            let _ = self.scheduler.handle(now, Input::Message { id, critical: at, from: at });
        });
        any
    }

    /// Hands the core the events that were posted since the last time. Returns whether there were
    /// any.
    fn poll_events(&mut self, now: Instant) -> bool {
        let PreemptionPoint { scheduler, inboxes, .. } = self;
        let Some(inboxes) = inboxes else { return false };
        inboxes.poll(|id, rank| post(scheduler, now, id, rank))
    }

    /// Takes the most urgent event of the handler that runs. O(k) for k waiting events.
    pub(crate) fn take_event(&mut self) -> Option<PostedEvent> {
        let id = self.scheduler.running()?;
        let now = crate::clock::now();
        self.poll_events(now);
        let event = self.inboxes.as_mut()?.take(id)?;
        // While a handler runs, the input causes no command.
        let _ = self.scheduler.handle(now, Input::Taken { id, events: 1 });
        Some(event)
    }

    /// Delivers user interrupts and events of channels. Returns whether it may have run any
    /// handler.
    fn deliver(&mut self, now: Instant) -> bool {
        let virtual_processor = self.virtual_processor.as_deref();
        self.interrupts.as_mut().is_some_and(|interrupts| {
            interrupts.deliver(now, virtual_processor)
                | interrupts.serve(now, DispatchPoint::Crossing)
        })
    }

    /// Notes that `mask` is held once more. Peer domains see it.
    pub(crate) fn raise_mask(&mut self, mask: Mask) {
        if let Some(interrupts) = self.interrupts.as_mut().filter(|_| mask == Mask::Interrupts) {
            interrupts.raise_mask();
        }
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.raise_mask(mask);
        }
    }

    /// Notes that `mask` is held once less. From now on [`Self::go_on`] sees the requests that came
    /// under the mask. When the last mask of interrupts goes, the interrupts are delivered.
    pub(crate) fn lower_mask(&mut self, mask: Mask) {
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.lower_mask(mask);
        }
        let interrupts = self.interrupts.as_mut().filter(|_| mask == Mask::Interrupts);
        if interrupts.is_some_and(|interrupts| interrupts.lower_mask() == 0) {
            self.deliver(crate::clock::now());
        }
    }

    /// Tells the core how long domains that came back from the kernel have interrupted the handler.
    #[inline]
    fn tell_interruption(&mut self, now: Instant) {
        let virtual_processor = self.virtual_processor.as_deref_mut();
        if let Some(length) = virtual_processor.and_then(VirtualProcessor::take_interruption) {
            // While a handler runs, the input causes no command.
            let _ = self.scheduler.handle(now, Input::Interrupted { length });
        }
    }

    /// Whether the handler has no reservation, and the daemon keeps the time for ordinary programs.
    /// Without turns the domain is one of them.
    fn has_no_time(&self, now: Instant) -> bool {
        let running = self.virtual_processor.as_deref().zip(self.scheduler.running());
        running.is_some_and(|(of, id)| !of.is_alone() && of.unreserved_from(id, now).is_some())
    }

    /// Asks the peer domains and the core whether the handler goes on.
    fn ask(&mut self, now: Instant) -> Option<Instant> {
        self.tell_interruption(now);
        if self.virtual_processor.as_deref_mut().is_some_and(VirtualProcessor::take_passed_over) {
            // While a handler runs, the input causes no command.
            let _ = self.scheduler.handle(now, Input::PassedOver);
        }
        let peers = match self
            .virtual_processor
            .as_deref_mut()
            .filter(|virtual_processor| !virtual_processor.is_alone())
        {
            Some(virtual_processor) => virtual_processor.may_go_on(self.scheduler, now)?,
            None => Instant::FAR,
        };
        if now >= self.return_at || self.has_no_time(now) {
            return None;
        }
        self.scheduler.handle(now, Input::Boundary).ok()?;
        match self.scheduler.poll_command(now) {
            Some(Command::Proceed { check_at }) => Some(check_at.min(peers).min(self.return_at)),
            _ => None,
        }
    }
}

/// Hands the core an event of an activity. The core has room for it: an inbox lets in no more.
pub(crate) fn post(scheduler: &mut Traced<Ring>, now: Instant, id: ActivityId, rank: u64) {
    let handled = scheduler.handle(now, Input::Posted { id, rank });
    debug_assert!(handled.is_ok(), "{handled:?}");
}
