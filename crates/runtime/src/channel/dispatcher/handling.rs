//! How a dispatcher takes events out of segments, invokes handlers with them, and detaches peers.

use upcall_core::events::{
    Ancestry, Counts, EventHandlerId, Next, QueuedEvent, SourceId, Verdict, When,
};
use upcall_core::time::Instant;
use upcall_shm::PeerFault;

use super::state::{
    Code, DispatchPoint, EMPTY_NOTIFICATIONS_MAX, EventDispatcher, Events, InstalledHandler,
    ROUNDS_MAX, Retired,
};
use crate::channel::link::LinkState;
use crate::channel::peer::Gone;
use crate::channel::pending_events::PendingEvent;
use crate::channel::raise::Label;
use crate::channel::thread_context;

impl EventDispatcher {
    pub(super) fn handle_events(&mut self, now: Instant, point: DispatchPoint) {
        for _ in 0..ROUNDS_MAX {
            for at in 0..self.links.len() {
                if self.links[at].state.notified || self.links[at].state.more_to_take {
                    self.drain(now, at);
                }
            }
            self.delivery.crossing();
            if point == DispatchPoint::Scheduling {
                self.deferred = false;
                self.delivery.before_scheduling();
            }
            while let Some(next) = self.delivery.next(now) {
                match next {
                    Next::Invoke(id) => self.invoke(now, id),
                    Next::RunAway { handler, .. } => self.mark_counts_changed(handler),
                }
            }
            self.reap();
            if !self.has_more_to_take() {
                break;
            }
        }
        self.publish_counts();
    }

    /// Takes events out of a segment, as long as there are free slots.
    fn drain(&mut self, now: Instant, at: usize) {
        let slot = self.links[at].state.slot;
        let mut found = false;
        loop {
            if matches!(self.links[at].state.gone, Some(Gone::Fault(_))) {
                break;
            }
            if !self.has_room(slot) {
                self.links[at].state.more_to_take = true;
                break;
            }
            let link = &mut self.links[at];
            let state = &mut link.state;
            match link.taker.take() {
                Ok(Some(event)) => {
                    found = true;
                    self.raise(now, at, event);
                }
                Ok(None) => {
                    state.more_to_take = false;
                    state.empty_notifications =
                        if found { 0 } else { state.empty_notifications + 1 };
                    break;
                }
                Err(PeerFault::Torn { .. })
                    if state.empty_notifications < EMPTY_NOTIFICATIONS_MAX =>
                {
                    state.more_to_take = true;
                    state.empty_notifications =
                        if found { 1 } else { state.empty_notifications + 1 };
                    break;
                }
                Err(fault) => {
                    link.raising_end.exit.set(Gone::Fault(fault));
                    state.gone = Some(Gone::Fault(fault));
                }
            }
        }
        self.after_drain(at);
    }

    /// Ends the drain of a segment. Declares a peer at fault that notifies again and again without
    /// an event.
    fn after_drain(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.state.notified = false;
        let empty = link.state.empty_notifications;
        if empty >= EMPTY_NOTIFICATIONS_MAX && link.state.gone.is_none() {
            let (found, max) = (u64::from(empty), u64::from(EMPTY_NOTIFICATIONS_MAX));
            let name = "empty notifications";
            let fault = PeerFault::Value { page: "channel", name, found, max };
            link.raising_end.exit.set(Gone::Fault(fault));
            link.state.gone = Some(Gone::Fault(fault));
        }
        if matches!(link.state.gone, Some(Gone::Fault(_))) {
            self.withdraw(at);
        }
    }

    fn raise(&mut self, now: Instant, at: usize, event: upcall_shm::channel::TakenEvent) {
        let link = &mut self.links[at];
        let Some(source) = link.state.source else { return };
        let slot = &self.slots[link.state.slot];
        let (Some(&first), Some(registrant)) = (slot.stages.first(), &slot.registrant) else {
            return;
        };
        let label = Label::of(&event.payload);
        let when = label.when.unwrap_or(registrant.when);
        let [a, b, c, d, e, ..] = event.payload;
        let (peer, words) = (link.peer, [a, b, c, d, e]);
        let pending = PendingEvent { peer, row: event.row, merged: event.merged, words };
        let Some(token) = self.pending_events.put(pending) else { return };
        link.state.pending += 1;
        let ancestry = if link.is_local && label.dispatcher == self.number && self.number != 0 {
            self.ancestry(source, label.led_by)
        } else {
            Ancestry::NONE
        };
        let raised = QueuedEvent::new(source, label.rank, token).because(ancestry);
        match self.delivery.raise(now, raised, when) {
            Ok(()) => {
                self.links[at].state.newest[0] = Some(token);
                self.deferred |= when == When::BeforeScheduling;
            }
            Err(_) => {
                // The event is refused as recursion, and counted.
                self.handlers[first].counts_changed = true;
                self.free(at, token);
            }
        }
    }

    /// The handlers of this dispatcher that a raiser named, one bit each.
    fn ancestry(&self, source: SourceId, led_by: u64) -> Ancestry {
        let any = QueuedEvent::new(source, 0, 0);
        let named = self.handlers.iter().enumerate().filter(|(at, _)| led_by >> at & 1 != 0);
        named.fold(Ancestry::NONE, |all, (_, handler)| all.and(any.led_by(handler.id)))
    }

    /// The inverse of [`EventDispatcher::ancestry`].
    pub(super) fn bits(&self, ancestry: Ancestry) -> u64 {
        let those = self.handlers.iter().enumerate();
        those
            .filter(|(_, handler)| ancestry.contains(handler.id))
            .fold(0, |bits, (at, _)| bits | 1 << at)
    }

    fn invoke(&mut self, now: Instant, id: EventHandlerId) {
        let Some(at) = self.handlers.iter().position(|handler| handler.id == id) else { return };
        self.handlers[at].counts_changed = true;
        let Some(mut code) = self.handlers[at].code.take() else {
            // The registrant has left, or its handler has panicked.
            while let Some(event) = self.delivery.take(id) {
                self.conclude(now, at, event, Verdict::Drop);
            }
            return;
        };
        let mut events = Events { dispatcher: self, at, now, current: None };
        let panicked = thread_context::in_handler(|| code(&mut events));
        events.conclude(Verdict::Pass);
        match panicked {
            false => self.handlers[at].code = Some(code),
            true => self.fail(at, code),
        }
    }

    /// Ends a registrant whose handler panicked. Its peers find that it died.
    fn fail(&mut self, at: usize, code: Code) {
        let slot = self.handlers[at].slot;
        if let Some(registrant) = &mut self.slots[slot].registrant {
            let retired = Retired { _code: Some(code), ..Retired::default() };
            let _ = registrant.end.retired.push(retired);
            registrant.end.state.hang_up();
        }
    }

    /// Carries out a handler's verdict on an event.
    pub(super) fn conclude(
        &mut self,
        now: Instant,
        at: usize,
        event: QueuedEvent,
        verdict: Verdict,
    ) {
        let InstalledHandler { slot, stage, .. } = self.handlers[at];
        let next = self.slots[slot].stages.get(stage + 1).copied();
        let link = self.links.iter().position(|link| link.state.source == Some(event.source));
        let next = next.map(|next| (next, self.merged(next)));
        let concluded = self.delivery.conclude(now, event, verdict);
        let Some(link) = link else { return };
        if let Some((next, _)) = next {
            self.handlers[next].counts_changed = true;
        }
        match (concluded, next) {
            (Ok(Some(_)), Some((next, before))) => {
                let newest = self.links[link].state.newest[stage + 1].replace(event.token);
                // If the event was merged into an older one, the merged event has the new token.
                if let Some(older) = newest.filter(|_| self.merged(next) != before) {
                    self.free(link, older);
                }
            }
            _ => self.free(link, event.token),
        }
    }

    fn merged(&self, at: usize) -> u64 {
        self.delivery.counts(self.handlers[at].id).map_or(0, |counts| counts.merged)
    }

    fn free(&mut self, link: usize, token: u64) {
        if self.pending_events.free(token) {
            self.links[link].state.pending -= 1;
        }
    }

    /// Discards all pending events of a peer.
    pub(super) fn withdraw(&mut self, at: usize) {
        let link = &mut self.links[at];
        if let Some(source) = link.state.source {
            self.delivery.withdraw(source);
            self.pending_events.free_all(link.peer);
        }
        link.state.pending = 0;
        link.state.more_to_take = false;
    }

    /// Detaches the peers that are gone and whose events are all handled. Reports each one.
    fn reap(&mut self) {
        for at in (0..self.links.len()).rev() {
            let LinkState {
                gone: Some(gone),
                pending: 0,
                more_to_take: false,
                notified: false,
                slot,
                ..
            } = self.links[at].state
            else {
                continue;
            };
            let peer = self.links[at].peer;
            if matches!(gone, Gone::Fault(_)) {
                // The peer gets no message: it finds its connection closed.
                self.links[at].connection.hang_up();
            }
            let registrant = self.slots[slot].registrant.as_mut();
            if let Some(on_gone) = registrant.and_then(|registrant| registrant.on_gone.as_mut()) {
                // If this code panics, it is still called for other peers.
                let _ = thread_context::in_handler(|| on_gone(peer, gone));
            }
            self.remove(at);
        }
    }

    /// Hands a link back.
    pub(super) fn remove(&mut self, at: usize) {
        let mut link = self.links.swap_remove(at);
        let slot = &mut self.slots[link.state.slot];
        slot.free.extend(link.state.source.take());
        link.raising_end.exit.set(Gone::Ended);
        if let Some(registrant) = &mut slot.registrant {
            // The queue has room for each link.
            let retired = Retired { link: Some(link), ..Retired::default() };
            let _ = registrant.end.retired.push(retired);
        }
    }

    fn mark_counts_changed(&mut self, id: EventHandlerId) {
        if let Some(handler) = self.handlers.iter_mut().find(|handler| handler.id == id) {
            handler.counts_changed = true;
        }
    }

    fn publish_counts(&mut self) {
        for handler in &mut self.handlers {
            if !std::mem::take(&mut handler.counts_changed) {
                continue;
            }
            let counts = self.delivery.counts(handler.id);
            if let (Some(now), Some(registrant)) = (counts, &self.slots[handler.slot].registrant) {
                let before = handler.base;
                let counts = Counts {
                    invocations: now.invocations - before.invocations,
                    lost: now.lost - before.lost,
                    dropped: now.dropped - before.dropped,
                    merged: now.merged - before.merged,
                    recursions: now.recursions - before.recursions,
                    run_aways: now.run_aways - before.run_aways,
                };
                registrant.end.state.counts.store(handler.stage, &counts);
            }
        }
    }
}
