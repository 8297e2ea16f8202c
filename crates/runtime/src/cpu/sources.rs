//! The sources that an executor polls between two upcalls and waits for while nothing is ready:
//! its notifier, streams, event channels and posted events.

use upcall_core::activity::ActivityId;
use upcall_core::scheduler::Input;
use upcall_core::time::Instant;
use upcall_sys::futex::WaitSet;

use super::executor::Executor;
use super::link::Work;
use crate::clock;
use crate::preemption::post;

impl Executor {
    /// Takes the notification of this executor. Returns whether there was one.
    #[inline]
    pub(super) fn acknowledge(&self) -> bool {
        match &self.virtual_processor {
            Some(virtual_processor) => virtual_processor.notifier().acknowledge(),
            None => self.shared.notifier.acknowledge(),
        }
    }

    /// Makes the handlers eligible whose streams have reached their level by now.
    pub(super) fn poll_streams(&mut self, now: Instant) {
        let mut reached = std::mem::take(&mut self.reached);
        self.interrupts.watches.poll_streams(now, |id, at| reached.push((id, at)));
        for (id, at) in reached.drain(..) {
            self.handle_input(now, Input::Message { id, critical: at, from: at });
        }
        self.reached = reached;
    }

    /// Hands the core the events that were posted since the last time.
    #[inline]
    pub(super) fn poll_events(&mut self, now: Instant) {
        let Executor { inboxes, scheduler, .. } = self;
        inboxes.poll(|id, rank| post(scheduler, now, id, rank));
    }

    /// Watches the wake word of a handler's stream from now on.
    pub(super) fn watch(&mut self, id: ActivityId, work: &Work) {
        let Work::Stream(stream) = work else { return };
        // Attaching succeeded before. If a peer has damaged the header since, the stream is not
        // watched.
        if let Ok((watched, end)) = stream.watched() {
            self.interrupts.watches.add(id, watched, end);
            self.shared.set_has_watches();
        }
    }

    /// Waits for a stream's level. If the level is reached or the stream is closed, hands the core
    /// a message at once.
    pub(super) fn wait_for_level(&mut self, now: Instant, id: ActivityId) {
        let Some(Work::Stream(stream)) = &mut self.slots[id.0 as usize].work else { return };
        let waits = stream.prepare_wait();
        let watches = &mut self.interrupts.watches;
        watches.set_open(id, waits);
        if !waits {
            let at = watches.arrival(id, now);
            self.handle_input(now, Input::Message { id, critical: at, from: at });
        }
    }

    /// Sleeps until a notification or `deadline`; may return early. Returns `true` if it took a
    /// notification.
    pub(super) fn sleep_until(&self, deadline: Option<Instant>) -> bool {
        self.shared.pulse.sleep();
        // A posted event may change what is done next (`crate::events`, 3).
        let may_matter = self.virtual_processor.is_some() || self.inboxes.interrupt;
        if !may_matter || !self.shared.expects_events() {
            return self.sleep(deadline);
        }
        if !self.shared.marks.prepare_wait() {
            return self.acknowledge();
        }
        let notified = self.sleep(deadline);
        self.shared.marks.cancel_wait();
        notified
    }

    fn sleep(&self, deadline: Option<Instant>) -> bool {
        if let Some(dispatcher) = &self.interrupts.dispatcher {
            if dispatcher.is_due(clock::now()) {
                return self.acknowledge();
            }
            return self.sleep_on_all(deadline.into_iter().chain(dispatcher.next_deadline()).min());
        }
        if self.interrupts.watches.any() {
            return self.sleep_on_all(deadline);
        }
        match &self.virtual_processor {
            Some(virtual_processor) => {
                virtual_processor.sleep_until(deadline.map(Instant::as_nanos))
            }
            None => {
                self.shared.notifier.sleep_until(deadline);
                false
            }
        }
    }

    /// As [`Self::sleep_until`], but also wakes when a stream reaches its level or a channel raises
    /// an event.
    fn sleep_on_all(&self, deadline: Option<Instant>) -> bool {
        let mut set = WaitSet::new();
        let watches = &self.interrupts.watches;
        let dispatcher = self.interrupts.dispatcher.as_deref();
        let is_quiet = watches.prepare_wait(&mut set)
            & dispatcher.is_none_or(|dispatcher| dispatcher.prepare_wait(&mut set));
        let notified = match (&self.virtual_processor, is_quiet) {
            (_, false) => false,
            (Some(virtual_processor), true) => {
                virtual_processor.sleep_among(&mut set, deadline.map(Instant::as_nanos))
            }
            (None, true) => {
                self.shared.notifier.sleep_among(&mut set, deadline);
                false
            }
        };
        watches.cancel_wait();
        if let Some(dispatcher) = dispatcher {
            dispatcher.cancel_wait();
        }
        notified
    }
}
