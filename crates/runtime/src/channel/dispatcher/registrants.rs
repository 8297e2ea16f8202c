//! How a dispatcher admits registrants and adds peers, and how both leave it.

use std::sync::atomic::{AtomicU16, Ordering};

use upcall_core::events::{AddError, Counts, Delivery, HANDLERS_MAX, HandlerTerms};

use super::state::{
    DispatcherRequest, EventDispatcher, InstalledHandler, NewRegistrant, PEERS_MAX, Registrant,
    RegistrantSlot, Retired,
};
use crate::channel::link::{Link, LinkState};
use crate::channel::pending_events::PendingEvents;
use crate::channel::raise::DISPATCHER_NUMBER_MAX;

impl EventDispatcher {
    /// A dispatcher without registrants. Allocates.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU16 = AtomicU16::new(1);
        // Relaxed: the counter orders nothing else. Dispatchers beyond the last number get 0.
        let next = |number: u16| (number <= DISPATCHER_NUMBER_MAX).then_some(number + 1);
        let number = NUMBER.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(0);
        EventDispatcher {
            number,
            delivery: Delivery::new(),
            handlers: Vec::new(),
            slots: Vec::new(),
            links: Vec::with_capacity(PEERS_MAX),
            pending_events: PendingEvents::default(),
            deferred: false,
        }
    }

    /// Adds a registrant. An ordinary thread calls this, not an executor. Allocates.
    ///
    /// # Errors
    /// Too many peers or handlers, or terms out of range. The dispatcher is then unchanged.
    pub(crate) fn admit(&mut self, registrant: NewRegistrant) -> Result<(), AddError> {
        let NewRegistrant { steps, on_gone, when, peers_max, end } = registrant;
        if self.peers_reserved() + peers_max > PEERS_MAX {
            return Err(AddError::TooMany);
        }
        let terms: Vec<_> = steps.iter().map(|(terms, _)| *terms).collect();
        let vacant = self.slots.iter().position(|slot| {
            let found = slot.stages.iter().map(|&at| &self.handlers[at].terms);
            slot.registrant.is_none() && slot.peers_max == peers_max && found.eq(&terms)
        });
        let at = match vacant {
            Some(at) => at,
            None => self.add_slot(&terms, peers_max)?,
        };
        let slot = &mut self.slots[at];
        slot.registrant = Some(Registrant { when, on_gone: Some(on_gone), end });
        for (&at, (_, code)) in slot.stages.iter().zip(steps) {
            let handler = &mut self.handlers[at];
            handler.base = self.delivery.counts(handler.id).unwrap_or_default();
            handler.code = Some(code);
        }
        Ok(())
    }

    /// Adds handlers and sources for a registrant that fits no vacant slot.
    fn add_slot(&mut self, terms: &[HandlerTerms], peers_max: usize) -> Result<usize, AddError> {
        // A trial first: if the core refuses a handler, the dispatcher stays unchanged.
        let mut trial = Delivery::new();
        let is_full = self.handlers.len() + terms.len() > HANDLERS_MAX as usize;
        terms.iter().try_for_each(|&terms| trial.add_handler(terms).map(drop))?;
        if is_full {
            return Err(AddError::TooMany);
        }
        let slot = self.slots.len();
        let mut stages = Vec::new();
        for (stage, &terms) in terms.iter().enumerate() {
            let id = self.delivery.add_handler(terms)?;
            stages.push(self.handlers.len());
            self.handlers.push(InstalledHandler {
                id,
                terms,
                slot,
                stage,
                code: None,
                base: Counts::default(),
                counts_changed: false,
            });
            self.pending_events.reserve(terms.pending_max as usize);
        }
        let route: Vec<_> = stages.iter().map(|&at| self.handlers[at].id).collect();
        let free = (0..peers_max).map(|_| self.delivery.add_source(&route));
        let free = free.collect::<Result<_, _>>()?;
        self.slots.push(RegistrantSlot { stages, free, peers_max, registrant: None });
        Ok(slot)
    }

    /// Whether no registrant is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.registrant.is_none())
    }

    /// How many peers all registrants together may have. The thread sleeps on one word for each.
    pub(crate) fn peers_reserved(&self) -> usize {
        let taken = self.slots.iter().filter(|slot| slot.registrant.is_some());
        taken.map(|slot| slot.peers_max).sum()
    }

    /// Takes the requests of all registrations: adds peers, removes registrants, and finds the
    /// peers that are gone. The thread calls this after it was notified.
    pub(crate) fn take_requests(&mut self) {
        for at in 0..self.slots.len() {
            while let Some(registrant) = &mut self.slots[at].registrant {
                match registrant.end.requests.pop() {
                    Ok(DispatcherRequest::Join(link)) => self.join(at, link),
                    Ok(DispatcherRequest::Leave) => self.leave(at),
                    Err(_) => break,
                }
            }
        }
        for link in &mut self.links {
            if link.state.gone.is_none() {
                link.state.gone = link.raising_end.exit.gone();
                // The peer may not have notified of its last events.
                link.state.notified |= link.state.gone.is_some();
            }
        }
    }

    fn join(&mut self, slot: usize, mut link: Link) {
        let source = self.slots[slot].free.pop();
        // Each peer that may join has a source and a place among the links.
        debug_assert!(source.is_some() && self.links.len() < PEERS_MAX);
        link.state = LinkState { slot, source, notified: true, ..LinkState::default() };
        self.links.push(link);
    }

    fn leave(&mut self, at: usize) {
        for link in (0..self.links.len()).rev() {
            if self.links[link].state.slot == at {
                self.withdraw(link);
                self.remove(link);
            }
        }
        let slot = &mut self.slots[at];
        let Some(mut registrant) = slot.registrant.take() else { return };
        let retired = &mut registrant.end.retired;
        for &at in &slot.stages {
            if let Some(code) = self.handlers[at].code.take() {
                let _ = retired.push(Retired { _code: Some(code), ..Retired::default() });
            }
        }
        if let Some(code) = registrant.on_gone.take() {
            let _ = retired.push(Retired { _on_gone: Some(code), ..Retired::default() });
        }
        registrant.end.state.set_left();
    }
}

impl Drop for EventDispatcher {
    fn drop(&mut self) {
        for registrant in self.slots.iter().filter_map(|slot| slot.registrant.as_ref()) {
            registrant.end.state.hang_up();
        }
    }
}
