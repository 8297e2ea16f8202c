//! The delivery of events: which handler is invoked next, and with which events.
//!
//! Driven by whoever serves event channels (ecalls-2001 §2.1, the *event dispatcher*); where the
//! events are kept that a client wrote is `upcall-shm`'s `channel`. Like the scheduler it
//! knows no clock and calls nobody: time is an argument, and what a handler made of an
//! event comes back as a [`Verdict`]. All memory is taken as handlers and sources are added.
//!
//! A *handler* is a service's, a client's, a thread of a service or a signal: whatever is
//! invoked. A *source* is one kind of event of one client or service, with its *route*: the
//! handlers that get it one after the other, each of which may drop it, merge it or pass
//! it on (§2.3.2: preprocessing and filtering).
//!
//! ```text
//!   raise --(1)--> deferred --(2)--> ripe --(3) next: Invoke, (4) take--> handled
//!                                     ^                                     |
//!                                     +---(5) conclude: pass on, merge -----+--> dropped, done
//!   handler:  ready --(3) next: RunAway--> held --(6) its span allows--> ready
//! ```
//!
//! 1. Refused if it would be recursion, or if the handler has as many pending as it
//!    declared: lost, and counted.
//! 2. At the next crossing, before the next scheduling decision, or once its delay is over:
//!    many events come to one invocation (§2.3.1). At once if it was not deferred.
//! 3. The handler whose most urgent ripe event is the most urgent of all (§2.1, the
//!    *event queue*).
//! 4. All that it has, in order of rank, or as many as it likes.
//! 5. To the next handler of the route.
//! 6. A handler invoked more often in a span than it declared has run away: it is held
//!    and its events wait, until it may be invoked again without being so.
//!
//! # Recursion
//!
//! An event knows the handlers that led to it ([`QueuedEvent::led_by`], which a handler gives to what it
//! raises). Raised towards one of them it leads back to where it came from, and is refused.
//! What goes through a channel to another process and is raised there anew has lost that
//! knowledge; going in circles, it runs away.

use crate::heap::IndexedHeap;
use crate::time::Instant;
use delayed::Delayed;
use interface::Key;
use limit::Limit;
use pending::Pending;

mod delayed;
mod interface;
mod limit;
mod pending;
#[cfg(test)]
mod tests;

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
    /// Where the last event is that came to each handler of the route, if it still waits.
    newest: [Option<u32>; ROUTE_MAX],
}

/// An event that is not ripe: for whom, and in which place.
type Deferred = (EventHandlerId, u32);

/// See the [module's head](self).
#[derive(Debug)]
pub struct Delivery {
    handlers: Vec<Handler>,
    sources: Vec<Source>,
    serial: u64,
    /// Handlers that are not held, by their most urgent ripe event.
    ready: IndexedHeap<Key>,
    /// Handlers that ran away, by when they may be invoked again.
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
    /// Without handlers and sources. Allocates.
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

    /// Takes in an event for the first handler of its route. O(log n).
    ///
    /// # Errors
    /// There is no such source, recursion, or no room.
    pub fn raise(&mut self, now: Instant, event: QueuedEvent, when: When) -> Result<(), Refused> {
        self.enter(now, QueuedEvent { stage: 0, ..event }, when)
    }

    /// Whether `handler` may be called at once, not as an event (the *fast* call of §2.3.1), by
    /// handlers in `ancestry`: then what it raises is led by the result. O(1).
    ///
    /// # Errors
    /// There is no such handler, recursion, or it has run away.
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

    /// Client and service meet: what was deferred to this becomes ripe. O(k log n).
    pub fn crossing(&mut self) {
        let mut those = std::mem::take(&mut self.crossing);
        self.ripen_all(&mut those);
        self.crossing = those;
    }

    /// A scheduling decision is next: what was deferred to this becomes ripe. O(k log n).
    pub fn before_scheduling(&mut self) {
        let mut those = std::mem::take(&mut self.scheduling);
        self.ripen_all(&mut those);
        self.scheduling = those;
    }

    /// What to do at `now`; `None`: nothing before [`Self::next_deadline`] and what comes
    /// in until then. An invocation is counted. O(log n), and for each delay that is over.
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

    /// When [`Self::next`] is to be asked again even if nothing comes in. O(1).
    pub fn next_deadline(&self) -> Option<Instant> {
        let held = self.held.peek().map(|(until, _)| until);
        self.delayed.next().into_iter().chain(held).min()
    }

    /// The most urgent ripe event of `handler`, which is being invoked. Afterwards
    /// comes [`Self::conclude`]. O(log n).
    pub fn take(&mut self, handler: EventHandlerId) -> Option<QueuedEvent> {
        let pending = &mut self.handlers.get_mut(handler.0 as usize)?.pending;
        let (_, place) = pending.peek()?;
        self.remove(handler, place)
    }

    /// What the handler made of an event that it took: which handler has it now. O(log n).
    ///
    /// # Errors
    /// The next handler has no room, or led to it; it is gone.
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

    /// Whose event is the most urgent of those that are ripe, and its rank: what a
    /// scheduler looks at (§2.1). O(1).
    pub fn best(&self) -> Option<(EventHandlerId, u64)> {
        self.ready.peek().map(|((rank, _), number)| (EventHandlerId(number), rank))
    }

    /// How many events wait for `handler`, deferred ones included. O(1).
    pub fn pending(&self, handler: EventHandlerId) -> usize {
        self.handlers.get(handler.0 as usize).map_or(0, |found| found.pending.count())
    }

    /// What happened at `handler` so far; `None`: there is none. O(1).
    pub fn counts(&self, handler: EventHandlerId) -> Option<Counts> {
        let found = self.handlers.get(handler.0 as usize)?;
        Some(Counts { invocations: found.limit.invocations(), ..found.counts })
    }

    fn source(&self, source: SourceId) -> Result<&Source, Refused> {
        self.sources.get(source.0 as usize).ok_or(Refused::Source(source))
    }

    /// Puts an event before the handler of its stage.
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

    /// In the order in which they came; the memory of `those` is kept.
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

    /// Puts `handler` among the ready where its most urgent event wants it.
    #[inline]
    fn place(&mut self, handler: EventHandlerId) {
        let found = &self.handlers[handler.0 as usize];
        match found.pending.peek() {
            Some((key, _)) if !found.is_held => self.ready.set(key, handler.0),
            _ => self.ready.remove(handler.0),
        }
    }
}
