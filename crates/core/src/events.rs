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
//! An event knows the handlers that led to it ([`Event::led_by`], which a handler gives to what it
//! raises). Raised towards one of them it leads back to where it came from, and is refused.
//! What goes through a channel to another process and is raised there anew has lost that
//! knowledge; going in circles, it runs away.

use crate::policy::heap::IndexedHeap;
use crate::time::{Instant, Span};
use core::fmt;
use limit::Limit;
use pending::Pending;

mod delayed;
mod limit;
mod pending;
#[cfg(test)]
mod tests;

/// Most handlers of a delivery.
pub const HANDLERS_MAX: u32 = 64;

/// Most handlers of a route.
pub const ROUTE_MAX: usize = 4;

/// Most events that may wait for a handler.
pub const PENDING_MAX: u32 = 1 << 16;

/// Most invocations in a span that a handler may declare.
pub const INVOCATIONS_MAX: u32 = 1 << 16;

/// Rank, then order of coming: smaller first.
type Key = (u64, u64);

/// Names a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerId(u32);

/// Names a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// What a handler declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerTerms {
    /// Most events that wait for it, deferred ones included. 1 to [`PENDING_MAX`].
    pub pending_max: u32,
    /// Most invocations in any `span`. 1 to [`INVOCATIONS_MAX`].
    pub invocations_max: u32,
    /// Above 0.
    pub span: Span,
}

/// When an event becomes ripe (ecalls-2001 §2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As it is raised.
    Now,
    /// At the next crossing between client and service.
    NextCrossing,
    /// So long after it was raised.
    After(Span),
    /// Before the next scheduling decision.
    BeforeScheduling,
}

/// A set of handlers: those that led to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ancestry(u64);

impl Ancestry {
    /// Of what no handler raised.
    pub const NONE: Ancestry = Ancestry(0);

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: Ancestry) -> Self {
        Ancestry(self.0 | other.0)
    }

    /// Whether `handler` is one of them.
    pub const fn contains(self, handler: HandlerId) -> bool {
        self.0 >> handler.0 & 1 != 0
    }

    const fn with(self, handler: HandlerId) -> Self {
        Ancestry(self.0 | 1 << handler.0)
    }
}

/// An event, as it is raised and as it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is.
    pub source: SourceId,
    /// Smaller first; equal ones in the order in which they were raised.
    pub rank: u64,
    /// The driver's own: where the payload is.
    pub token: u64,
    /// How many others it stands for: 0 as it is raised.
    pub merged: u64,
    /// The handlers that led to it.
    pub ancestry: Ancestry,
    /// Which handler of its route it is at.
    stage: u8,
    serial: u64,
}

impl Event {
    /// An event that no handler led to.
    pub const fn new(source: SourceId, rank: u64, token: u64) -> Self {
        let ancestry = Ancestry::NONE;
        Event { source, rank, token, merged: 0, ancestry, stage: 0, serial: 0 }
    }

    /// The same, raised by handlers in `ancestry` ([`Self::led_by`]).
    #[must_use]
    pub const fn because(mut self, ancestry: Ancestry) -> Self {
        self.ancestry = ancestry;
        self
    }

    /// What `handler` gives to events that it raises because of this one.
    #[must_use]
    pub const fn led_by(&self, handler: HandlerId) -> Ancestry {
        self.ancestry.with(handler)
    }

    const fn key(&self) -> Key {
        (self.rank, self.serial)
    }
}

/// What a handler made of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ends here.
    Drop,
    /// It goes to the next handler of its route, and there into the last of its source that
    /// came there if that still waits: the newer token and the more urgent rank count.
    Merge,
    /// It goes to the next handler of its route.
    Pass,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Invoke the handler, and have it [`Delivery::take`].
    Invoke(HandlerId),
    /// The handler has run away; said once. It is held until then.
    RunAway {
        /// Which.
        handler: HandlerId,
        /// When it may be invoked again.
        until: Instant,
    },
}

/// Why an event was not accepted, or a handler not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such source.
    Source(SourceId),
    /// There is no such handler.
    Handler(HandlerId),
    /// As many wait for the handler as it declared; counted.
    Full(HandlerId),
    /// It would lead back to a handler that led to it; counted.
    Recursion(HandlerId),
    /// The handler has been called as often in its span as it declared; counted.
    RunAway {
        /// Which.
        handler: HandlerId,
        /// When it may be called again.
        until: Instant,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refused::Source(SourceId(source)) => write!(f, "there is no source {source}"),
            Refused::Handler(HandlerId(handler)) => write!(f, "there is no handler {handler}"),
            Refused::Full(HandlerId(handler)) => {
                write!(f, "as many events wait for handler {handler} as it declared")
            }
            Refused::Recursion(HandlerId(handler)) => {
                write!(f, "the event leads back to handler {handler}, which led to it")
            }
            Refused::RunAway { handler: HandlerId(handler), until } => {
                write!(f, "handler {handler} has run away, held until {} ns", until.as_nanos())
            }
        }
    }
}

impl core::error::Error for Refused {}

/// Why a handler or a source was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddError {
    /// There are [`HANDLERS_MAX`] handlers, or 2^32 sources.
    TooMany,
    /// A declared value is out of its range.
    Terms {
        /// Which.
        name: &'static str,
        /// As declared.
        found: u64,
        /// Most it may be; the least is 1.
        max: u64,
    },
    /// A route has from 1 to [`ROUTE_MAX`] handlers that exist, each once.
    Route,
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AddError::TooMany => write!(f, "there are as many as there can be"),
            AddError::Terms { name, found, max } => {
                write!(f, "{name} is {found}, expected 1 to {max}")
            }
            AddError::Route => {
                write!(f, "a route needs 1 to {ROUTE_MAX} handlers that exist, each once")
            }
        }
    }
}

impl core::error::Error for AddError {}

/// What happened at a handler so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Invocations and calls.
    pub invocations: u64,
    /// Events that found as many waiting as it declared.
    pub lost: u64,
    /// Events that it dropped.
    pub dropped: u64,
    /// Events merged into one that waited for it.
    pub merged: u64,
    /// Events and calls refused because it led to them.
    pub recursions: u64,
    /// Times it was held, and calls refused for the same reason.
    pub run_aways: u64,
}

#[derive(Debug)]
struct Handler {
    pending: Pending,
    limit: Limit,
    is_held: bool,
    counts: Counts,
}

#[derive(Debug)]
struct Source {
    route: Box<[HandlerId]>,
    /// Where the last event is that came to each handler of the route, if it still waits.
    newest: [Option<u32>; ROUTE_MAX],
}

/// An event that is not ripe: for whom, and in which place.
type Deferred = (HandlerId, u32);

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
    delayed: delayed::Delayed,
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
            delayed: delayed::Delayed::default(),
        }
    }

    /// Adds a handler. Allocates for as many events and invocations as it declares.
    ///
    /// # Errors
    /// Too many handlers, or a value out of its range.
    pub fn add_handler(&mut self, terms: HandlerTerms) -> Result<HandlerId, AddError> {
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
        Ok(HandlerId(number))
    }

    /// Adds a source whose events go along `route`. Allocates.
    ///
    /// # Errors
    /// Too many sources, or no such route.
    pub fn add_source(&mut self, route: &[HandlerId]) -> Result<SourceId, AddError> {
        let exists = |handler: &HandlerId| (handler.0 as usize) < self.handlers.len();
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
    pub fn raise(&mut self, now: Instant, event: Event, when: When) -> Result<(), Refused> {
        self.enter(now, Event { stage: 0, ..event }, when)
    }

    /// Whether `handler` may be called at once, not as an event (the *fast* call of §2.3.1), by
    /// handlers in `ancestry`: then what it raises is led by the result. O(1).
    ///
    /// # Errors
    /// There is no such handler, recursion, or it has run away.
    pub fn call(
        &mut self,
        now: Instant,
        handler: HandlerId,
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
        while let Some((handler, place)) = self.crossing.pop() {
            self.ripen(handler, place);
        }
    }

    /// A scheduling decision is next: what was deferred to this becomes ripe. O(k log n).
    pub fn before_scheduling(&mut self) {
        while let Some((handler, place)) = self.scheduling.pop() {
            self.ripen(handler, place);
        }
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
            self.place(HandlerId(number));
        }
        let (_, number) = self.ready.peek()?;
        let handler = HandlerId(number);
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
    pub fn take(&mut self, handler: HandlerId) -> Option<Event> {
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
        event: Event,
        verdict: Verdict,
    ) -> Result<Option<HandlerId>, Refused> {
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
        let event = Event { stage: event.stage + 1, ancestry: event.led_by(at), ..event };
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
        let Some(found) = self.sources.get(source.0 as usize) else { return };
        let route = found.route.clone();
        for &handler in &*route {
            let is = |event: &Event| event.source == source;
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
    pub fn best(&self) -> Option<(HandlerId, u64)> {
        self.ready.peek().map(|((rank, _), number)| (HandlerId(number), rank))
    }

    /// How many events wait for `handler`, deferred ones included. O(1).
    pub fn pending(&self, handler: HandlerId) -> usize {
        self.handlers.get(handler.0 as usize).map_or(0, |found| found.pending.count())
    }

    /// What happened at `handler` so far; `None`: there is none. O(1).
    pub fn counts(&self, handler: HandlerId) -> Option<Counts> {
        let found = self.handlers.get(handler.0 as usize)?;
        Some(Counts { invocations: found.limit.invocations(), ..found.counts })
    }

    fn source(&self, source: SourceId) -> Result<&Source, Refused> {
        self.sources.get(source.0 as usize).ok_or(Refused::Source(source))
    }

    /// Puts an event before the handler of its stage.
    fn enter(&mut self, now: Instant, event: Event, when: When) -> Result<(), Refused> {
        let stage = event.stage as usize;
        let handler = self.source(event.source)?.route[stage];
        let found = &mut self.handlers[handler.0 as usize];
        if event.ancestry.contains(handler) {
            found.counts.recursions += 1;
            return Err(Refused::Recursion(handler));
        }
        let serial = self.serial;
        let Some(place) = found.pending.put(Event { serial, ..event }) else {
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

    fn ripen(&mut self, handler: HandlerId, place: u32) {
        self.handlers[handler.0 as usize].pending.ripen(place);
        self.place(handler);
    }

    fn remove(&mut self, handler: HandlerId, place: u32) -> Option<Event> {
        let event = self.handlers[handler.0 as usize].pending.remove(place)?;
        let newest = &mut self.sources[event.source.0 as usize].newest[event.stage as usize];
        if *newest == Some(place) {
            *newest = None;
        }
        self.place(handler);
        Some(event)
    }

    /// Puts `handler` among the ready where its most urgent event wants it.
    fn place(&mut self, handler: HandlerId) {
        let found = &self.handlers[handler.0 as usize];
        match found.pending.peek() {
            Some((key, _)) if !found.is_held => self.ready.set(key, handler.0),
            _ => self.ready.remove(handler.0),
        }
    }
}
