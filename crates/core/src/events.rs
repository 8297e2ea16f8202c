//! The delivery of events: which handler is invoked next, and with which events.
//!
//! The owner of an event dispatcher drives it (ecalls-2001 §2.1). `upcall-shm`'s `channel` holds
//! the events that a client wrote. Like the scheduler, this module reads no clock and calls no
//! handler. Time is an argument, and the driver passes a handler's decision on an event back as a
//! [`Verdict`]. Memory is allocated when handlers and sources are added.
//!
//! A *handler* is anything that is invoked: a service, a client, a thread of a service or a signal.
//! A *source* is one kind of event of one client or service, with its *route*. The handlers of the
//! route get the event one after the other. Each may drop it, merge it or pass it on (§2.3.2:
//! preprocessing and filtering).
//!
//! ```text
//!   raise --(1)--> deferred --(2)--> ripe --(3) next: Invoke, (4) take--> handled
//!                                     ^                                     |
//!                                     +---(5) conclude: pass on, merge -----+--> dropped, done
//!   handler:  ready --(3) next: RunAway--> held --(6) its span allows--> ready
//! ```
//!
//! 1. The event is refused if it would be recursion, or if the handler has as many pending events
//!    as it declared. A refused event is lost and counted.
//! 2. The event becomes ripe at the next crossing, before the next scheduling decision, or once its
//!    delay is over. So one invocation can take many events (§2.3.1). An event that was not
//!    deferred becomes ripe at once.
//! 3. The handler of the most urgent ripe event is invoked (§2.1, the *event queue*).
//! 4. The handler takes all its events, in order of rank, or as many as it wants.
//! 5. The event goes to the next handler of the route.
//! 6. A handler that is invoked more often in a span than it declared has run away. It is held, and
//!    its events wait, until an invocation is within its limit again.
//!
//! # Recursion
//!
//! An event carries the set of handlers that led to it ([`QueuedEvent::led_by`]; a handler gives
//! this to the events that it raises). An event raised towards one of them would return to its
//! origin, and is refused. An event that crosses a channel to another process and is raised anew
//! there has lost this knowledge. If such events circle, the limit on invocations holds their
//! handler: it has run away.

use crate::heap::IndexedHeap;
use crate::time::Instant;
use delayed::Delayed;
use interface::Key;
use limit::Limit;
use pending::Pending;

mod delayed;
mod frames;
mod interface;
mod limit;
mod pending;
#[cfg(test)]
mod tests;

pub use frames::{FrameRate, NextFrame};
pub use interface::{
    AddError, Ancestry, Counts, EventHandlerId, HANDLERS_MAX, HandlerTerms, INVOCATIONS_MAX, Next,
    PENDING_MAX, QueuedEvent, ROUTE_MAX, Refused, SourceId, Verdict, When,
};

#[derive(Debug)]
struct Handler {
    pending: Pending,
    limit: Limit,
    is_held: bool,
    counts: Counts,
}

#[derive(Debug)]
struct Source {
    route: Box<[EventHandlerId]>,
    /// The place of the last event that came to each handler of the route, if it still waits.
    newest: [Option<u32>; ROUTE_MAX],
}

/// An event that is not ripe: its handler, and its place among the events of the handler.
type Deferred = (EventHandlerId, u32);

/// Delivers events to handlers; the [module](self) describes how.
#[derive(Debug)]
pub struct Delivery {
    handlers: Vec<Handler>,
    sources: Vec<Source>,
    serial: u64,
    /// Handlers that are not held, by their most urgent ripe event.
    ready: IndexedHeap<Key>,
    /// Handlers that ran away, by the time of their next permitted invocation.
    held: IndexedHeap<Instant>,
    crossing: Vec<Deferred>,
    scheduling: Vec<Deferred>,
    delayed: Delayed,
}

impl Default for Delivery {
    fn default() -> Self {
        Self::new()
    }
}

impl Delivery {
    /// A delivery without handlers and sources. Allocates.
    pub fn new() -> Self {
        Delivery {
            handlers: Vec::new(),
            sources: Vec::new(),
            serial: 0,
            ready: IndexedHeap::with_capacity(HANDLERS_MAX),
            held: IndexedHeap::with_capacity(HANDLERS_MAX),
            crossing: Vec::new(),
            scheduling: Vec::new(),
            delayed: Delayed::default(),
        }
    }

    /// Adds a handler. Allocates for as many events and invocations as it declares.
    ///
    /// # Errors
    /// Too many handlers, or a value out of its range.
    pub fn add_handler(&mut self, terms: HandlerTerms) -> Result<EventHandlerId, AddError> {
        let ranges = [
            ("pending_max", u64::from(terms.pending_max), u64::from(PENDING_MAX)),
            ("invocations_max", u64::from(terms.invocations_max), u64::from(INVOCATIONS_MAX)),
            ("span", terms.span.as_nanos(), u64::MAX),
        ];
        for (name, found, max) in ranges {
            if !(1..=max).contains(&found) {
                return Err(AddError::Terms { name, found, max });
            }
        }
        let number = u32::try_from(self.handlers.len()).unwrap_or(u32::MAX);
        if number >= HANDLERS_MAX {
            return Err(AddError::TooMany);
        }
        let room: usize = terms.pending_max as usize
            + self.handlers.iter().map(|handler| handler.pending.room()).sum::<usize>();
        for deferred in [&mut self.crossing, &mut self.scheduling] {
            deferred.reserve(room - deferred.len());
        }
        self.delayed.reserve(room);
        self.handlers.push(Handler {
            pending: Pending::new(terms.pending_max),
            limit: Limit::new(terms.invocations_max, terms.span),
            is_held: false,
            counts: Counts::default(),
        });
        Ok(EventHandlerId(number))
    }

    /// Adds a source whose events go along `route`. Allocates.
    ///
    /// # Errors
    /// Too many sources, or no such route.
    pub fn add_source(&mut self, route: &[EventHandlerId]) -> Result<SourceId, AddError> {
        let exists = |handler: &EventHandlerId| (handler.0 as usize) < self.handlers.len();
        let twice = (1..route.len()).any(|at| route[..at].contains(&route[at]));
        if !(1..=ROUTE_MAX).contains(&route.len()) || !route.iter().all(exists) || twice {
            return Err(AddError::Route);
        }
        let number = u32::try_from(self.sources.len()).map_err(|_| AddError::TooMany)?;
        self.sources.push(Source { route: route.into(), newest: [None; ROUTE_MAX] });
        Ok(SourceId(number))
    }

    /// Accepts an event for the first handler of its route. O(log n).
    ///
    /// # Errors
    /// No such source, recursion, or the handler is full.
    pub fn raise(&mut self, now: Instant, event: QueuedEvent, when: When) -> Result<(), Refused> {
        self.enter(now, QueuedEvent { stage: 0, ..event }, when)
    }

    /// Checks whether handlers in `ancestry` may call `handler` directly, not by an event (the
    /// *fast* call of §2.3.1). Counts an invocation. Events that the called handler raises carry
    /// the returned ancestry. O(1).
    ///
    /// # Errors
    /// No such handler, recursion, or the handler has run away.
    pub fn call(
        &mut self,
        now: Instant,
        handler: EventHandlerId,
        ancestry: Ancestry,
    ) -> Result<Ancestry, Refused> {
        let known = self.handlers.get_mut(handler.0 as usize).ok_or(Refused::Handler(handler))?;
        if ancestry.contains(handler) {
            known.counts.recursions += 1;
            return Err(Refused::Recursion(handler));
        }
        match known.limit.invoke(now) {
            Ok(()) => Ok(ancestry.with(handler)),
            Err(until) => {
                known.counts.run_aways += 1;
                Err(Refused::RunAway { handler, until })
            }
        }
    }

    /// Reports a crossing between client and service. The events that were deferred to it become
    /// ripe. O(k log n).
    pub fn crossing(&mut self) {
        let mut those = std::mem::take(&mut self.crossing);
        self.ripen_all(&mut those);
        self.crossing = those;
    }

    /// Reports that a scheduling decision is next. The events that were deferred to it become ripe.
    /// O(k log n).
    pub fn before_scheduling(&mut self) {
        let mut those = std::mem::take(&mut self.scheduling);
        self.ripen_all(&mut those);
        self.scheduling = those;
    }

    /// The next action at `now`. `None` until [`Self::next_deadline`] or the next event. Counts an
    /// invocation. O(log n), plus O(log n) for each delay that is over.
    pub fn next(&mut self, now: Instant) -> Option<Next> {
        while let Some((handler, place)) = self.delayed.pop(now) {
            self.ripen(handler, place);
        }
        while let Some((_, number)) = self.held.peek().filter(|&(until, _)| until <= now) {
            self.held.remove(number);
            self.handlers[number as usize].is_held = false;
            self.place(EventHandlerId(number));
        }
        let (_, number) = self.ready.peek()?;
        let handler = EventHandlerId(number);
        let found = &mut self.handlers[number as usize];
        match found.limit.invoke(now) {
            Ok(()) => Some(Next::Invoke(handler)),
            Err(until) => {
                found.is_held = true;
                found.counts.run_aways += 1;
                self.ready.remove(number);
                self.held.set(until, number);
                Some(Next::RunAway { handler, until })
            }
        }
    }

    /// When [`Self::next`] must be called again even without a new event. O(1).
    pub fn next_deadline(&self) -> Option<Instant> {
        let held = self.held.peek().map(|(until, _)| until);
        self.delayed.next().into_iter().chain(held).min()
    }

    /// The most urgent ripe event of `handler`, which is being invoked. [`Self::conclude`] follows.
    /// O(log n).
    pub fn take(&mut self, handler: EventHandlerId) -> Option<QueuedEvent> {
        let pending = &mut self.handlers.get_mut(handler.0 as usize)?.pending;
        let (_, place) = pending.peek()?;
        self.remove(handler, place)
    }

    /// Processes the handler's verdict on an event that it took, and returns the handler that has
    /// the event now. O(log n).
    ///
    /// # Errors
    /// The next handler is full, or led to the event. The event is lost.
    pub fn conclude(
        &mut self,
        now: Instant,
        event: QueuedEvent,
        verdict: Verdict,
    ) -> Result<Option<EventHandlerId>, Refused> {
        let source = self.source(event.source)?;
        let (stage, next) = (event.stage as usize, event.stage as usize + 1);
        let at = *source.route.get(stage).ok_or(Refused::Source(event.source))?;
        let to = source.route.get(next).copied();
        let newest = source.newest.get(next).copied().flatten();
        let (to, newest) = match (verdict, to) {
            (Verdict::Drop, _) => {
                self.handlers[at.0 as usize].counts.dropped += 1;
                return Ok(None);
            }
            (_, None) => return Ok(None),
            (Verdict::Merge, Some(to)) => (to, newest),
            (Verdict::Pass, Some(to)) => (to, None),
        };
        let event = QueuedEvent { stage: event.stage + 1, ancestry: event.led_by(at), ..event };
        match newest {
            Some(place) if !event.ancestry.contains(to) => {
                let found = &mut self.handlers[to.0 as usize];
                found.pending.merge(place, event);
                found.counts.merged += 1;
                self.place(to);
            }
            _ => self.enter(now, event, When::Now)?,
        }
        Ok(Some(to))
    }

    /// Removes all events of a source whose client or service is gone. O(n).
    pub fn withdraw(&mut self, source: SourceId) {
        let is = |event: &QueuedEvent| event.source == source;
        for stage in 0..ROUTE_MAX {
            let found = self.sources.get(source.0 as usize);
            let Some(&handler) = found.and_then(|found| found.route.get(stage)) else { return };
            while let Some(place) = self.handlers[handler.0 as usize].pending.find(is) {
                for deferred in [&mut self.crossing, &mut self.scheduling] {
                    deferred.retain(|at| *at != (handler, place));
                }
                self.delayed.remove(handler, place);
                self.remove(handler, place);
            }
        }
    }

    /// The handler of the most urgent ripe event, and the event's rank, for a scheduler (§2.1).
    /// O(1).
    pub fn best(&self) -> Option<(EventHandlerId, u64)> {
        self.ready.peek().map(|((rank, _), number)| (EventHandlerId(number), rank))
    }

    /// The number of events that wait for `handler`, including deferred ones. O(1).
    pub fn pending(&self, handler: EventHandlerId) -> usize {
        self.handlers.get(handler.0 as usize).map_or(0, |found| found.pending.count())
    }

    /// The counters of `handler`; `None` if there is no such handler. O(1).
    pub fn counts(&self, handler: EventHandlerId) -> Option<Counts> {
        let found = self.handlers.get(handler.0 as usize)?;
        Some(Counts { invocations: found.limit.invocations(), ..found.counts })
    }

    fn source(&self, source: SourceId) -> Result<&Source, Refused> {
        self.sources.get(source.0 as usize).ok_or(Refused::Source(source))
    }

    /// Puts an event in the queue of the handler of its stage.
    #[inline]
    fn enter(&mut self, now: Instant, event: QueuedEvent, when: When) -> Result<(), Refused> {
        let stage = event.stage as usize;
        let handler = self.source(event.source)?.route[stage];
        let found = &mut self.handlers[handler.0 as usize];
        if event.ancestry.contains(handler) {
            found.counts.recursions += 1;
            return Err(Refused::Recursion(handler));
        }
        let serial = self.serial;
        let Some(place) = found.pending.put(QueuedEvent { serial, ..event }) else {
            found.counts.lost += 1;
            return Err(Refused::Full(handler));
        };
        self.serial += 1;
        self.sources[event.source.0 as usize].newest[stage] = Some(place);
        match when {
            When::Now => self.ripen(handler, place),
            When::NextCrossing => self.crossing.push((handler, place)),
            When::BeforeScheduling => self.scheduling.push((handler, place)),
            When::After(delay) => self.delayed.push(now + delay, serial, handler, place),
        }
        Ok(())
    }

    /// Makes events ripe in the order in which they came. Keeps the memory of `those`.
    #[inline]
    fn ripen_all(&mut self, those: &mut Vec<Deferred>) {
        for (handler, place) in those.drain(..) {
            self.ripen(handler, place);
        }
    }

    #[inline]
    fn ripen(&mut self, handler: EventHandlerId, place: u32) {
        self.handlers[handler.0 as usize].pending.ripen(place);
        self.place(handler);
    }

    #[inline]
    fn remove(&mut self, handler: EventHandlerId, place: u32) -> Option<QueuedEvent> {
        let event = self.handlers[handler.0 as usize].pending.remove(place)?;
        let newest = &mut self.sources[event.source.0 as usize].newest[event.stage as usize];
        if *newest == Some(place) {
            *newest = None;
        }
        self.place(handler);
        Some(event)
    }

    /// Updates the place of `handler` among the ready handlers.
    #[inline]
    fn place(&mut self, handler: EventHandlerId) {
        let found = &self.handlers[handler.0 as usize];
        match found.pending.peek() {
            Some((key, _)) if !found.is_held => self.ready.set(key, handler.0),
            _ => self.ready.remove(handler.0),
        }
    }
}
