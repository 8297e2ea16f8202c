//! How an executor carries out what its controllers asked.

use upcall_core::activity::ActivityId;
use upcall_core::admission::Share;
use upcall_core::scheduler::{Command, Input};
use upcall_core::time::{Instant, Span};

use super::executor::{Drained, Executor, Slot};
use super::link::{Control, Work};
use crate::domain::virtual_processor::VirtualProcessor;

impl Executor {
    /// After a notification: carries out what controllers asked, unless only the turn was passed to
    /// this domain.
    #[inline]
    pub(super) fn poll_controls(&mut self, now: Instant) -> Drained {
        match &self.virtual_processor {
            Some(virtual_processor) if !virtual_processor.take_message() => Drained::Nothing,
            _ => self.drain_controls(now),
        }
    }

    /// Carries out all that controllers asked.
    fn drain_controls(&mut self, now: Instant) -> Drained {
        let mut drained = Drained::Nothing;
        // Moves to the new virtual processor first. Messages that were left before the old wake
        // word was notified are found below. Later messages notify the new wake word.
        if let Some(virtual_processor) = self.virtual_processor.as_mut()
            && virtual_processor.move_on()
        {
            self.interrupts.moved_to(virtual_processor);
            drained = Drained::Something;
            if virtual_processor.takes_event_server() {
                self.set_event_server(now, None);
            }
        }
        if self.virtual_processor.as_mut().is_some_and(VirtualProcessor::take_in_peers) {
            drained = Drained::Something;
        }
        while let Ok(control) = self.rings.controls.pop() {
            drained = Drained::Something;
            if self.carry_out_control(now, control) == Drained::Quit {
                return Drained::Quit;
            }
        }
        if let Some(dispatcher) = &mut self.interrupts.dispatcher {
            dispatcher.take_requests();
            drained = Drained::Something;
        }
        if self.wake_tasks(now) { Drained::Something } else { drained }
    }

    /// Carries out one control.
    fn carry_out_control(&mut self, now: Instant, control: Control) -> Drained {
        match control {
            Control::Create { id, params, terms, work, order, inbox } => {
                if let Some(virtual_processor) = &mut self.virtual_processor {
                    virtual_processor.set_order(id, order);
                }
                self.watch(id, &work);
                self.slots[id.0 as usize] = Slot::new(work, params);
                self.publish_compute();
                self.handle_input(now, Input::Create { id, params, terms });
                self.inboxes.set(id, inbox);
            }
            Control::Run { id, at } => self.start(now, id, at),
            Control::Suspend { id } => self.handle_input(now, Input::Suspend { id }),
            Control::Reweigh { id, claim } => {
                self.handle_input(now, Input::Reweigh { id, claim });
            }
            Control::EventServer { share } => self.set_event_server(now, share),
            Control::Close { id } => {
                if let Some(Work::Task(task)) = &self.slots[id.0 as usize].work {
                    task.close();
                }
                self.slots[id.0 as usize].last_counters = self.scheduler.counters_at(now, id);
                self.handle_input(now, Input::Close { id });
            }
            Control::OnInterrupt { handler } => self.interrupts.set_handler(handler),
            Control::InterruptAt { at } => self.interrupts.set_timer(at),
            Control::LendDispatcher => {
                if let Some(dispatcher) = self.interrupts.dispatcher.take() {
                    // The ring has room: an executor has one dispatcher.
                    let _ = self.rings.dispatchers.push(dispatcher);
                }
            }
            Control::TakeDispatcher { dispatcher } => {
                self.interrupts.dispatcher = Some(dispatcher);
                self.shared.set_has_watches();
            }
            Control::Quit => {
                if let Some(virtual_processor) = &mut self.virtual_processor {
                    virtual_processor.leave(&self.scheduler);
                }
                return Drained::Quit;
            }
        }
        Drained::Something
    }

    fn set_event_server(&mut self, now: Instant, share: Option<Share>) {
        self.event_share_ppm = share.map_or(0, Share::ppm).into();
        self.publish_compute();
        self.handle_input(now, Input::EventServer { share });
    }

    /// Handles the activities that were woken. Returns whether there were any.
    fn wake_tasks(&mut self, now: Instant) -> bool {
        let mut any = false;
        let shared = self.shared.clone();
        for id in shared.take_woken() {
            any = true;
            let aborting = shared.is_aborting(id);
            match &mut self.slots[id.0 as usize].work {
                Some(Work::Task(task)) => {
                    let next = task.woken(now, aborting);
                    self.handle_message(now, id, next);
                }
                // Wakes the handler for the abort phase even if its stream has no data.
                Some(Work::Stream(_)) if aborting => {
                    self.interrupts.watches.set_open(id, false);
                    self.handle_input(now, Input::Message { id, critical: now, from: now });
                }
                _ => {}
            }
        }
        any
    }

    /// Delivers an activity from `at` on. A task that has ended is not delivered again. The same
    /// holds for a handler whose stream has ended.
    fn start(&mut self, now: Instant, id: ActivityId, at: Instant) {
        if let Some(Work::Stream(stream)) = &self.slots[id.0 as usize].work {
            if stream.has_ended() {
                self.carry_out(Command::Inactive { id });
                return;
            }
            let is_new = !self.scheduler.is_active(id);
            // Only the handler's stream releases it.
            self.handle_input(now, Input::Run { id, at: Instant::FAR });
            if is_new {
                let offset = self.slots[id.0 as usize].params.map_or(Span::ZERO, |of| of.offset);
                self.interrupts.watches.set_not_before(id, at + offset);
                self.wait_for_level(now, id);
            }
            return;
        }
        if let Some(Work::Task(task)) = &mut self.slots[id.0 as usize].work {
            if task.has_ended() {
                self.carry_out(Command::Inactive { id });
                return;
            }
            if !self.scheduler.is_active(id) {
                task.set();
            }
        }
        self.handle_input(now, Input::Run { id, at });
    }
}
