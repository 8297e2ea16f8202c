//! Whom a handler or task asks at a quantum boundary whether it may go on.
//!
//! Made by the executor for each upcall; asked by [`crate::Batch`] and by tasks.
//! It never blocks, allocates or makes a system call.

use upcall_core::activity::ActivityId;
use upcall_core::scheduler::{Command, Input};
use upcall_core::time::Instant;
use upcall_core::trace::Traced;
use upcall_shm::user_area::Mask;

use crate::channel::DispatchPoint;
use crate::events::{Inboxes, PostedEvent};
use crate::notify::Notifier;
use interrupts::{Interrupt, Interrupts};

pub(crate) mod interrupts;
use crate::domain::virtual_processor::VirtualProcessor;
use crate::trace::Ring;

/// The scheduler of this CPU, the notifier that others ring for it, and the other
/// domains there, if there are any.
#[derive(Debug)]
pub(crate) struct PreemptionPoint<'a> {
    pub(crate) scheduler: &'a mut Traced<Ring>,
    pub(crate) notifier: &'a Notifier,
    pub(crate) virtual_processor: Option<&'a mut VirtualProcessor>,
    /// Delivered at each boundary; `None`: on trial.
    pub(crate) interrupts: Option<&'a mut Interrupts>,
    /// `None`: on trial.
    pub(crate) inboxes: Option<&'a mut Inboxes>,
}

impl<'a> PreemptionPoint<'a> {
    /// Delivers nothing: on trial.
    pub(crate) fn on_trial(
        scheduler: &'a mut Traced<Ring>,
        notifier: &'a Notifier,
        virtual_processor: Option<&'a mut VirtualProcessor>,
    ) -> Self {
        PreemptionPoint { scheduler, notifier, virtual_processor, interrupts: None, inboxes: None }
    }
}

impl PreemptionPoint<'_> {
    /// From when on it must ask again; `None` if it must return now. Nothing can
    /// have changed before `check_at` unless somebody said so: that is some loads.
    /// Else O(log n), with other domains O(their slots in use).
    #[inline]
    pub(crate) fn go_on(&mut self, mut now: Instant, check_at: Instant) -> Option<Instant> {
        if self.deliver(now) {
            now = crate::clock::now();
        }
        let is_notified = match &self.virtual_processor {
            Some(virtual_processor) => virtual_processor.notifier().is_notified(),
            None => self.notifier.is_notified(),
        };
        if is_notified {
            return None;
        }
        let heard = self.poll_streams(now);
        let posted =
            self.inboxes.as_ref().is_some_and(|all| all.interrupt) && self.poll_events(now);
        if !heard
            && !posted
            && now < check_at
            && !self
                .virtual_processor
                .as_ref()
                .is_some_and(|virtual_processor| virtual_processor.wants_a_look())
        {
            return Some(check_at);
        }
        let answer = self.ask(now);
        if let (true, None, Some(interrupts)) = (heard, answer, &mut self.interrupts) {
            interrupts.note(Interrupt::IoReady);
        }
        answer
    }

    /// Makes eligible what reads a stream whose level is reached by now; whether there was any.
    #[inline]
    fn poll_streams(&mut self, now: Instant) -> bool {
        let Some(interrupts) = &mut self.interrupts else { return false };
        let mut any = false;
        interrupts.watches.poll_streams(now, |id, at| {
            any = true;
            // While something runs, it leaves no command.
            let _ = self.scheduler.handle(now, Input::Message { id, critical: at, from: at });
        });
        any
    }

    /// Tells the core of events that were posted since; whether there are any.
    fn poll_events(&mut self, now: Instant) -> bool {
        let PreemptionPoint { scheduler, inboxes, .. } = self;
        let Some(inboxes) = inboxes else { return false };
        inboxes.poll(|id, rank| post(scheduler, now, id, rank))
    }

    /// The most urgent event of what runs, which is then taken. O(k) for k that wait.
    pub(crate) fn take_event(&mut self) -> Option<PostedEvent> {
        let id = self.scheduler.running()?;
        let now = crate::clock::now();
        self.poll_events(now);
        let event = self.inboxes.as_mut()?.take(id)?;
        // While something runs, it leaves no command.
        let _ = self.scheduler.handle(now, Input::Taken { id, events: 1 });
        Some(event)
    }

    fn deliver(&mut self, now: Instant) -> bool {
        let virtual_processor = self.virtual_processor.as_deref();
        self.interrupts.as_mut().is_some_and(|interrupts| {
            interrupts.deliver(now, virtual_processor)
                | interrupts.serve(now, DispatchPoint::Crossing)
        })
    }

    /// One level more of `mask`, which other domains see.
    pub(crate) fn raise_mask(&mut self, mask: Mask) {
        if let Some(interrupts) = self.interrupts.as_mut().filter(|_| mask == Mask::Interrupts) {
            interrupts.raise_mask();
        }
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.raise_mask(mask);
        }
    }

    /// One level less. What came meanwhile is seen by [`Self::go_on`] from now on;
    /// interrupts are delivered when their last level goes.
    pub(crate) fn lower_mask(&mut self, mask: Mask) {
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.lower_mask(mask);
        }
        let interrupts = self.interrupts.as_mut().filter(|_| mask == Mask::Interrupts);
        if interrupts.is_some_and(|interrupts| interrupts.lower_mask() == 0) {
            self.deliver(crate::clock::now());
        }
    }

    fn ask(&mut self, now: Instant) -> Option<Instant> {
        let others = match self
            .virtual_processor
            .as_deref_mut()
            .filter(|virtual_processor| !virtual_processor.is_alone())
        {
            Some(virtual_processor) => virtual_processor.may_go_on(self.scheduler, now)?,
            None => Instant::FAR,
        };
        self.scheduler.handle(now, Input::Boundary).ok()?;
        match self.scheduler.poll_command(now) {
            Some(Command::Proceed { check_at }) => Some(check_at.min(others)),
            _ => None,
        }
    }
}

/// Hands the core an event of an activity. The core has room for it: an inbox lets in no more.
pub(crate) fn post(scheduler: &mut Traced<Ring>, now: Instant, id: ActivityId, rank: u64) {
    let handled = scheduler.handle(now, Input::Posted { id, rank });
    debug_assert!(handled.is_ok(), "{handled:?}");
}
