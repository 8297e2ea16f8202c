//! Where events are handed to handlers: the paper's event dispatcher (ecalls-2001 §2.1), one for each
//! thread that serves channels.
//!
//! Served by an executor, between two upcalls and at the boundaries of what runs, or by a thread of
//! its own ([`super::thread`]). It takes events out of the segments whose bells were rung, and has
//! [`Delivery`] say which handler is invoked next and with which.
//!
//! ```text
//!   segment --(1) bell--> hear --(2)--> drain --(3)--> Delivery --(4)--> handler --(5)--> next of the route
//!                                         |                                       \--> done: the note is free
//!                                         +--(6) the peer is at fault or gone --> handled, told, detached
//! ```
//!
//! 1. A load for each peer, if none was rung.
//! 2. As many as find room; of the rest its raiser finds its segment full.
//! 3. What an event carries stays here, in a note; the core has its number.
//! 4. Not inside a handler, and not while interrupts are masked.
//! 5. Passed on, merged into the one before, or dropped, as the handler says.
//! 6. What it raised before it died is handled first; of one at fault nothing more is believed.
//!
//! Once a party is here nothing allocates or waits. A peer that raises more than handlers may be
//! invoked for is not listened to until they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use upcall_core::events::{
    AddError, Counts, Delivery, EventHandlerId as HandlerId, HANDLERS_MAX, HandlerTerms, ROUTE_MAX,
    SourceId, When,
};
use upcall_core::time::Instant;
use upcall_shm::{channel::wake_line::WakeLine, wake_word::ASLEEP};
use upcall_sys::futex::WaitSet;
use upcall_sys::local::Connection;

use super::line::{DeskEnd, Newcomer, Retired};
use super::notes::Notes;
use super::raise::{DESK_MAX, Out};
use super::route::{Code, OnGone};
use super::segment::{Part, Takes};
use super::{Gone, PeerId};

mod events;
mod handling;

pub use events::Events;

/// Most peers of a desk: each bell is one of the words it sleeps on.
pub(crate) const PEERS_MAX: usize = 96;
/// How often in a row a peer may ring for nothing, or change what is looked at.
const IDLE_MAX: u32 = 64;
/// How often a desk looks again before it lets something else run.
const ROUNDS: usize = 4;

/// Where a desk is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Control comes by: at a boundary of what runs.
    Crossing,
    /// The scheduler decides next.
    Scheduling,
}

/// One peer: its channel's end here.
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) takes: Takes,
    pub(super) wake_line: WakeLine<Part>,
    pub(super) out: Arc<Out>,
    /// Whether it is of this process: what it says of handlers is believed.
    pub(super) is_local: bool,
    pub(super) connection: Arc<Connection>,
    pub(super) at: Place,
}

/// What a desk knows of a link.
#[derive(Debug, Default)]
pub(super) struct Place {
    party: usize,
    source: Option<SourceId>,
    /// Its bell was rung.
    rung: bool,
    /// There may be more that it was told of: its bell says nothing until it was looked at.
    unfinished: bool,
    /// Rings for nothing, in a row.
    idle: u32,
    gone: Option<Gone>,
    /// Notes of its events.
    notes: u32,
    /// The last that came to each handler of the route.
    newest: [Option<u64>; ROUTE_MAX],
}

/// A service, or a client, with its route.
struct Party {
    /// Places in `Desk::handlers`, in the order of the route.
    stages: Vec<usize>,
    free: Vec<SourceId>,
    peers_max: usize,
    /// `None`: it has left, and its place may be taken.
    present: Option<Present>,
}

struct Present {
    when: When,
    on_gone: Option<OnGone>,
    end: DeskEnd,
}

struct Installed {
    id: HandlerId,
    terms: HandlerTerms,
    party: usize,
    stage: usize,
    /// `None` as it runs, once it has panicked, and while nobody has the place.
    code: Option<Code>,
    /// What was counted for others that had the place.
    base: Counts,
    /// Its counts are to be told.
    touched: bool,
}

/// See the module's head.
pub(crate) struct Desk {
    number: u16,
    delivery: Delivery,
    handlers: Vec<Installed>,
    parties: Vec<Party>,
    links: Vec<Link>,
    notes: Notes,
    /// Something waits for the next scheduling decision.
    deferred: bool,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("number", &self.number).finish_non_exhaustive()
    }
}

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

    /// Invokes what is to be invoked at `now`; `true`: something was done, and took time. A load for each peer,
    /// if there is nothing.
    #[inline]
    pub(crate) fn serve(&mut self, now: Instant, moment: Moment) -> bool {
        let heard = self.hear();
        if heard || self.is_due(now) || (self.deferred && moment == Moment::Scheduling) {
            self.act(now, moment);
            return true;
        }
        false
    }

    fn hear(&mut self) -> bool {
        let mut heard = false;
        for link in &mut self.links {
            // One that has more than there is room for is not listened to.
            let rung =
                link.at.rung || (!link.at.unfinished && link.wake_line.wake_word().acknowledge());
            link.at.rung = rung;
            heard |= rung;
        }
        heard
    }

    /// When it is to be served again even if nobody rings.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.delivery.next_deadline()
    }

    /// Whether it is to be served now, without being rung.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.delivery.best().is_some()
            || self.next_deadline().is_some_and(|deadline| deadline <= now)
            || self.is_unfinished()
    }

    fn is_unfinished(&self) -> bool {
        self.links.iter().any(|link| link.at.unfinished && self.has_room(link.at.party))
    }

    /// Adds the bells to what is slept on; `false` if one was rung by now. Either way [`Desk::cancel_wait`] follows.
    pub(crate) fn prepare_wait<'a>(&'a self, set: &mut WaitSet<'a>) -> bool {
        self.links.iter().filter(|link| !link.at.unfinished).all(|link| {
            set.add_shared(link.wake_line.wake_word().word(), ASLEEP);
            !link.at.rung && link.wake_line.wake_word().prepare_wait()
        })
    }

    /// Who serves it is awake.
    pub(crate) fn cancel_wait(&self) {
        self.links.iter().for_each(|link| link.wake_line.wake_word().cancel_wait());
    }

    fn has_room(&self, party: usize) -> bool {
        let Some(&first) = self.parties[party].stages.first() else { return false };
        let first = &self.handlers[first];
        self.delivery.pending(first.id) < first.terms.pending_max as usize
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for present in self.parties.iter().filter_map(|party| party.present.as_ref()) {
            present.end.state.over();
        }
    }
}
