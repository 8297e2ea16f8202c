//! How a dispatcher takes registrants and peers in, and lets them go.

use std::sync::atomic::{AtomicU16, Ordering};

use upcall_core::events::{AddError, Counts, Delivery, HANDLERS_MAX, HandlerTerms};

use super::state::{Desk, Installed, Newcomer, PEERS_MAX, Party, Present, Retired};
use crate::channel::link::{Link, Place};
use crate::channel::pending_events::Notes;
use crate::channel::raise::DESK_MAX;

impl Desk {
    /// Without parties. Allocates.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU16 = AtomicU16::new(1);
        // Relaxed: a number for itself. Desks beyond the last do without.
        let next = |number: u16| (number <= DESK_MAX).then_some(number + 1);
        let number = NUMBER.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(0);
        Desk {
            number,
            delivery: Delivery::new(),
            handlers: Vec::new(),
            parties: Vec::new(),
            links: Vec::with_capacity(PEERS_MAX),
            notes: Notes::default(),
            deferred: false,
        }
    }

    /// Brings a party, in an ordinary thread. Allocates.
    ///
    /// # Errors
    /// Too many peers or handlers, or terms out of range; nothing is kept of it.
    pub(crate) fn admit(&mut self, newcomer: Newcomer) -> Result<(), AddError> {
        let Newcomer { steps, on_gone, when, peers_max, end } = newcomer;
        if self.peers_reserved() + peers_max > PEERS_MAX {
            return Err(AddError::TooMany);
        }
        let terms: Vec<_> = steps.iter().map(|(terms, _)| *terms).collect();
        let vacant = self.parties.iter().position(|party| {
            let found = party.stages.iter().map(|&at| &self.handlers[at].terms);
            party.present.is_none() && party.peers_max == peers_max && found.eq(&terms)
        });
        let place = match vacant {
            Some(place) => place,
            None => self.add_place(&terms, peers_max)?,
        };
        let party = &mut self.parties[place];
        party.present = Some(Present { when, on_gone: Some(on_gone), end });
        for (&at, (_, code)) in party.stages.iter().zip(steps) {
            let handler = &mut self.handlers[at];
            handler.base = self.delivery.counts(handler.id).unwrap_or_default();
            handler.code = Some(code);
        }
        Ok(())
    }

    /// Handlers and sources of a party like none before.
    fn add_place(&mut self, terms: &[HandlerTerms], peers_max: usize) -> Result<usize, AddError> {
        // On trial first: of one that is refused nothing is kept.
        let mut trial = Delivery::new();
        let is_full = self.handlers.len() + terms.len() > HANDLERS_MAX as usize;
        terms.iter().try_for_each(|&terms| trial.add_handler(terms).map(drop))?;
        if is_full {
            return Err(AddError::TooMany);
        }
        let party = self.parties.len();
        let mut stages = Vec::new();
        for (stage, &terms) in terms.iter().enumerate() {
            let id = self.delivery.add_handler(terms)?;
            stages.push(self.handlers.len());
            let (code, base) = (None, Counts::default());
            self.handlers.push(Installed { id, terms, party, stage, code, base, touched: false });
            self.notes.make_room(terms.pending_max as usize);
        }
        let route: Vec<_> = stages.iter().map(|&at| self.handlers[at].id).collect();
        let free = (0..peers_max).map(|_| self.delivery.add_source(&route));
        let free = free.collect::<Result<_, _>>()?;
        self.parties.push(Party { stages, free, peers_max, present: None });
        Ok(party)
    }

    /// Whether there is nobody to serve.
    pub(crate) fn is_empty(&self) -> bool {
        self.parties.iter().all(|party| party.present.is_none())
    }

    /// Bells that it may come to sleep on.
    pub(crate) fn peers_reserved(&self) -> usize {
        let present = self.parties.iter().filter(|party| party.present.is_some());
        present.map(|party| party.peers_max).sum()
    }

    /// It was called: takes in who comes, lets go who leaves, and looks what became of peers.
    pub(crate) fn called(&mut self) {
        for place in 0..self.parties.len() {
            while let Some(present) = &mut self.parties[place].present {
                match present.end.news.pop() {
                    Ok(Some(link)) => self.join(place, link),
                    Ok(None) => self.leave(place),
                    Err(_) => break,
                }
            }
        }
        for link in &mut self.links {
            if link.at.gone.is_none() {
                link.at.gone = link.out.fate.gone();
                // What it raised at last it may not have told.
                link.at.rung |= link.at.gone.is_some();
            }
        }
    }

    fn join(&mut self, place: usize, mut link: Link) {
        let source = self.parties[place].free.pop();
        // There is one for each that may come, and room.
        debug_assert!(source.is_some() && self.links.len() < PEERS_MAX);
        link.at = Place { party: place, source, rung: true, ..Place::default() };
        self.links.push(link);
    }

    fn leave(&mut self, place: usize) {
        for at in (0..self.links.len()).rev() {
            if self.links[at].at.party == place {
                self.withdraw(at);
                self.remove(at);
            }
        }
        let party = &mut self.parties[place];
        let Some(mut present) = party.present.take() else { return };
        for &at in &party.stages {
            if let Some(code) = self.handlers[at].code.take() {
                let _ =
                    present.end.retired.push(Retired { _code: Some(code), ..Retired::default() });
            }
        }
        if let Some(code) = present.on_gone.take() {
            let _ =
                present.end.retired.push(Retired { _on_gone: Some(code), ..Retired::default() });
        }
        present.end.state.set_left();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for present in self.parties.iter().filter_map(|party| party.present.as_ref()) {
            present.end.state.over();
        }
    }
}
