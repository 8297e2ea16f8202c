//! Where events are handed to handlers: the paper's event dispatcher (ecalls-2001 §2.1), one for each
//! thread that serves channels.
//!
//! Served by an executive, between two upcalls and at the boundaries of what runs, or by a thread of
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
//! 6. What it raised before it died is handled first; of one at fault nothing more is believed.
//!
//! Once a party is here nothing allocates or waits. A peer that raises more than handlers may be
//! invoked for is not listened to until they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use upcall_core::events::{
    AddError, Ancestry, Counts, Delivery, Event as CoreEvent, HandlerId, HandlerTerms, Next,
    ROUTE_MAX, SourceId, Verdict, When,
};
use upcall_core::time::Instant;
use upcall_shm::PeerFault;
use upcall_shm::channel::bell::{ASLEEP, Bell};
use upcall_sys::futex::WaitSet;
use upcall_sys::local::Connection;

use super::here::{self, Origin};
use super::line::{DeskEnd, Newcomer, Retired};
use super::notes::{Note, Notes};
use super::raise::{DESK_MAX, Label, Out};
use super::route::{Code, OnGone};
use super::segment::{Part, Takes};
use super::{Event, Gone, PeerId, Raise, RaiseError};

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
    pub(super) bell: Bell<Part>,
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

    fn add_place(&mut self, terms: &[HandlerTerms], peers_max: usize) -> Result<usize, AddError> {
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
            let rung = link.at.rung || (!link.at.unfinished && link.bell.answer());
            link.at.rung = rung;
            heard |= rung;
        }
        heard
    }

    fn act(&mut self, now: Instant, moment: Moment) {
        for _ in 0..ROUNDS {
            for at in 0..self.links.len() {
                if self.links[at].at.rung || self.links[at].at.unfinished {
                    self.drain(now, at);
                }
            }
            self.delivery.crossing();
            if moment == Moment::Scheduling {
                self.deferred = false;
                self.delivery.before_scheduling();
            }
            while let Some(next) = self.delivery.next(now) {
                match next {
                    Next::Invoke(id) => self.invoke(now, id),
                    Next::RunAway { handler, .. } => self.touch(handler),
                }
            }
            self.bury();
            if !self.is_unfinished() {
                break;
            }
        }
        self.tell_counts();
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

    /// Adds the bells to what is slept on; `false` if one was rung by now. Either way [`Desk::stir`] follows.
    pub(crate) fn doze<'a>(&'a self, set: &mut WaitSet<'a>) -> bool {
        self.links.iter().filter(|link| !link.at.unfinished).all(|link| {
            set.add_shared(link.bell.word(), ASLEEP);
            !link.at.rung && link.bell.doze()
        })
    }

    /// Who serves it is awake.
    pub(crate) fn stir(&self) {
        self.links.iter().for_each(|link| link.bell.stir());
    }

    fn has_room(&self, party: usize) -> bool {
        let Some(&first) = self.parties[party].stages.first() else { return false };
        let first = &self.handlers[first];
        self.delivery.pending(first.id) < first.terms.pending_max as usize
    }

    /// Takes what finds room.
    fn drain(&mut self, now: Instant, at: usize) {
        let party = self.links[at].at.party;
        let mut found = false;
        loop {
            if matches!(self.links[at].at.gone, Some(Gone::Fault(_))) {
                break;
            }
            if !self.has_room(party) {
                self.links[at].at.unfinished = true;
                break;
            }
            let link = &mut self.links[at];
            match link.takes.take() {
                Ok(Some(event)) => {
                    found = true;
                    self.raise(now, at, event);
                }
                Ok(None) => {
                    link.at.unfinished = false;
                    link.at.idle = if found { 0 } else { link.at.idle + 1 };
                    break;
                }
                Err(PeerFault::Torn { .. }) if link.at.idle < IDLE_MAX => {
                    link.at.unfinished = true;
                    link.at.idle += 1;
                    break;
                }
                Err(fault) => {
                    link.out.fate.set(Gone::Fault(fault));
                    link.at.gone = Some(Gone::Fault(fault));
                }
            }
        }
        let link = &mut self.links[at];
        link.at.rung = false;
        if link.at.idle >= IDLE_MAX && link.at.gone.is_none() {
            let (found, max) = (u64::from(link.at.idle), u64::from(IDLE_MAX));
            let fault = PeerFault::Value { page: "channel", name: "rings for nothing", found, max };
            link.out.fate.set(Gone::Fault(fault));
            link.at.gone = Some(Gone::Fault(fault));
        }
        if matches!(link.at.gone, Some(Gone::Fault(_))) {
            self.withdraw(at);
        }
    }

    fn raise(&mut self, now: Instant, at: usize, event: upcall_shm::channel::Event) {
        let link = &mut self.links[at];
        let Some(source) = link.at.source else { return };
        let party = &self.parties[link.at.party];
        let (Some(&first), Some(present)) = (party.stages.first(), &party.present) else { return };
        let label = Label::of(&event.payload);
        let when = label.when.unwrap_or(present.when);
        let [a, b, c, d, e, ..] = event.payload;
        let note =
            Note { peer: link.peer, row: event.row, merged: event.merged, words: [a, b, c, d, e] };
        let Some(token) = self.notes.put(note) else { return };
        link.at.notes += 1;
        let ancestry = if link.is_local && label.desk == self.number && self.number != 0 {
            self.ancestry(source, label.led_by)
        } else {
            Ancestry::NONE
        };
        let raised = CoreEvent::new(source, label.rank, token).because(ancestry);
        match self.delivery.raise(now, raised, when) {
            Ok(()) => {
                self.links[at].at.newest[0] = Some(token);
                self.deferred |= when == When::BeforeScheduling;
            }
            Err(_) => {
                // Recursion: it is counted, and told.
                self.handlers[first].touched = true;
                self.free(at, token);
            }
        }
    }

    /// The handlers of this desk that a raiser named, one bit each.
    fn ancestry(&self, source: SourceId, led_by: u64) -> Ancestry {
        let any = CoreEvent::new(source, 0, 0);
        let named = self.handlers.iter().enumerate().filter(|(at, _)| led_by >> at & 1 != 0);
        named.fold(Ancestry::NONE, |all, (_, handler)| all.and(any.led_by(handler.id)))
    }

    /// The other way round.
    fn bits(&self, ancestry: Ancestry) -> u64 {
        let those = self.handlers.iter().enumerate();
        those
            .filter(|(_, handler)| ancestry.contains(handler.id))
            .fold(0, |bits, (at, _)| bits | 1 << at)
    }

    fn invoke(&mut self, now: Instant, id: HandlerId) {
        let Some(at) = self.handlers.iter().position(|handler| handler.id == id) else { return };
        self.handlers[at].touched = true;
        let Some(mut code) = self.handlers[at].code.take() else {
            // Nobody is there any more.
            while let Some(event) = self.delivery.take(id) {
                self.conclude(now, at, event, Verdict::Drop);
            }
            return;
        };
        let mut events = Events { desk: self, at, now, current: None };
        let panicked = here::in_handler(|| code(&mut events));
        events.conclude(Verdict::Pass);
        match panicked {
            false => self.handlers[at].code = Some(code),
            true => self.fail(at, code),
        }
    }

    /// Ends a party whose handler panicked: its peers find that it died.
    fn fail(&mut self, at: usize, code: Code) {
        let place = self.handlers[at].party;
        if let Some(present) = &mut self.parties[place].present {
            let _ = present.end.retired.push(Retired { _code: Some(code), ..Retired::default() });
            present.end.state.over();
        }
    }

    /// What a handler made of an event.
    fn conclude(&mut self, now: Instant, at: usize, event: CoreEvent, verdict: Verdict) {
        let Installed { party, stage, .. } = self.handlers[at];
        let next = self.parties[party].stages.get(stage + 1).copied();
        let link = self.links.iter().position(|link| link.at.source == Some(event.source));
        let next = next.map(|next| (next, self.merged(next)));
        let concluded = self.delivery.conclude(now, event, verdict);
        let Some(link) = link else { return };
        if let Some((next, _)) = next {
            self.handlers[next].touched = true;
        }
        match (concluded, next) {
            (Ok(Some(_)), Some((next, before))) => {
                let newest = self.links[link].at.newest[stage + 1].replace(event.token);
                // The one that it was merged into has its token now.
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
        if self.notes.free(token) {
            self.links[link].at.notes -= 1;
        }
    }

    /// Nothing that it raised is handled any more.
    fn withdraw(&mut self, at: usize) {
        let link = &mut self.links[at];
        if let Some(source) = link.at.source {
            self.delivery.withdraw(source);
            self.notes.free_all(link.peer);
        }
        link.at.notes = 0;
        link.at.unfinished = false;
    }

    /// Detaches peers that are gone and of whom all is handled, and says so.
    fn bury(&mut self) {
        for at in (0..self.links.len()).rev() {
            let Place { gone: Some(gone), notes: 0, unfinished: false, rung: false, party, .. } =
                self.links[at].at
            else {
                continue;
            };
            let peer = self.links[at].peer;
            if matches!(gone, Gone::Fault(_)) {
                // The peer is told no more than that; who watches the connection finds it closed.
                self.links[at].connection.hang_up();
            }
            if let Some(on_gone) =
                self.parties[party].present.as_mut().and_then(|present| present.on_gone.as_mut())
            {
                // If it panics, it is told of others all the same.
                let _ = here::in_handler(|| on_gone(peer, gone));
            }
            self.remove(at);
        }
    }

    /// Hands a link back.
    fn remove(&mut self, at: usize) {
        let mut link = self.links.swap_remove(at);
        let party = &mut self.parties[link.at.party];
        party.free.extend(link.at.source.take());
        link.out.fate.set(Gone::Ended);
        if let Some(present) = &mut party.present {
            // There is room for each.
            let _ = present.end.retired.push(Retired { link: Some(link), ..Retired::default() });
        }
    }

    fn touch(&mut self, id: HandlerId) {
        if let Some(handler) = self.handlers.iter_mut().find(|handler| handler.id == id) {
            handler.touched = true;
        }
    }

    fn tell_counts(&mut self) {
        for handler in &mut self.handlers {
            if !std::mem::take(&mut handler.touched) {
                continue;
            }
            let counts = self.delivery.counts(handler.id);
            if let (Some(now), Some(present)) = (counts, &self.parties[handler.party].present) {
                let before = handler.base;
                let counts = Counts {
                    invocations: now.invocations - before.invocations,
                    lost: now.lost - before.lost,
                    dropped: now.dropped - before.dropped,
                    merged: now.merged - before.merged,
                    recursions: now.recursions - before.recursions,
                    run_aways: now.run_aways - before.run_aways,
                };
                present.end.state.tally.store(handler.stage, &counts);
            }
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for present in self.parties.iter().filter_map(|party| party.present.as_ref()) {
            present.end.state.over();
        }
    }
}

/// What a handler is invoked with: the events that wait for it.
pub struct Events<'a> {
    desk: &'a mut Desk,
    /// Of the handler.
    at: usize,
    now: Instant,
    current: Option<CoreEvent>,
}

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("pending", &self.pending()).finish()
    }
}

impl Events<'_> {
    /// The most urgent event; the one before is passed on, unless something else was said of it. What is
    /// not taken has the handler invoked again. O(log n).
    pub fn take(&mut self) -> Option<Event> {
        self.conclude(Verdict::Pass);
        let id = self.desk.handlers[self.at].id;
        let event = self.desk.delivery.take(id)?;
        let led_by = self.desk.bits(event.led_by(id));
        here::set_origin(Origin { desk: self.desk.number, led_by });
        self.current = Some(event);
        let note = self.desk.notes.at(event.token)?;
        let merged = note.merged + event.merged;
        Some(Event { peer: note.peer, row: note.row, merged, words: note.words })
    }

    /// Drops the event that was taken last: it goes to no other handler.
    pub fn discard(&mut self) {
        self.conclude(Verdict::Drop);
    }

    /// Merges it into the one before of the same peer, if that still waits for the next handler of the
    /// route: this one counts. Else it is passed on.
    pub fn merge(&mut self) {
        self.conclude(Verdict::Merge);
    }

    /// How many wait for the handler, deferred ones included.
    pub fn pending(&self) -> usize {
        self.desk.delivery.pending(self.desk.handlers[self.at].id)
    }

    /// Raises an event towards a peer of the same service or client: an answer.
    ///
    /// # Errors
    /// See [`RaiseError`]; [`RaiseError::NoPeer`] if it is gone.
    pub fn raise(
        &self,
        peer: PeerId,
        raise: &Raise,
    ) -> Result<upcall_shm::channel::Posted, RaiseError> {
        let party = self.desk.handlers[self.at].party;
        let mut links = self.desk.links.iter();
        let link = links.find(|link| link.at.party == party && link.peer == peer);
        link.ok_or(RaiseError::NoPeer(peer))?.out.raise(raise)
    }

    fn conclude(&mut self, verdict: Verdict) {
        if let Some(event) = self.current.take() {
            self.desk.conclude(self.now, self.at, event, verdict);
        }
    }
}
