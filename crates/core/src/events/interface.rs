//! The inputs and outputs of a [`Delivery`](super::Delivery).

use crate::time::{Instant, Span};
use core::fmt;

/// The most handlers of a delivery.
pub const HANDLERS_MAX: u32 = 64;

/// The most handlers of a route.
pub const ROUTE_MAX: usize = 4;

/// The most events that may wait for a handler.
pub const PENDING_MAX: u32 = 1 << 16;

/// The most invocations in a span that a handler may declare.
pub const INVOCATIONS_MAX: u32 = 1 << 16;

/// Rank, then order of arrival: smaller first.
pub(super) type Key = (u64, u64);

/// Identifies a handler of a [`Delivery`](super::Delivery).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventHandlerId(pub(super) u32);

/// Identifies a source of a [`Delivery`](super::Delivery).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub(super) u32);

/// The limits of a handler of events. An event beyond `pending_max` is lost and counted. An
/// invocation beyond `invocations_max` waits and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerTerms {
    /// The most events that wait for the handler, including deferred ones. 1 to [`PENDING_MAX`].
    pub pending_max: u32,
    /// The most invocations in any `span`. 1 to [`INVOCATIONS_MAX`].
    pub invocations_max: u32,
    /// The length of time in which `invocations_max` counts. Above 0.
    pub span: Span,
}

/// When the handler of an event is invoked (ecalls-2001 §2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When the event is raised.
    Now,
    /// At the next crossing between client and service ([`super::Delivery::crossing`]).
    NextCrossing,
    /// This long after the event was raised.
    After(Span),
    /// Before the next scheduling decision.
    BeforeScheduling,
}

/// A set of handlers that led to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ancestry(u64);

impl Ancestry {
    /// The ancestry of an event that no handler raised.
    pub const NONE: Ancestry = Ancestry(0);

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Ancestry) -> Self {
        Ancestry(self.0 | other.0)
    }

    /// Whether `handler` is in the set.
    pub const fn contains(self, handler: EventHandlerId) -> bool {
        self.0 >> handler.0 & 1 != 0
    }

    pub(super) const fn with(self, handler: EventHandlerId) -> Self {
        Ancestry(self.0 | 1 << handler.0)
    }
}

/// An event of a [`Delivery`](super::Delivery), from raise to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedEvent {
    /// Its source.
    pub source: SourceId,
    /// Smaller ranks first; equal ranks in the order in which they were raised.
    pub rank: u64,
    /// A value of the driver, such as the place of the payload.
    pub token: u64,
    /// How many other events were merged into this one; 0 when it is raised.
    pub merged: u64,
    /// The handlers that led to the event.
    pub ancestry: Ancestry,
    /// The index of its handler in the route.
    pub(super) stage: u8,
    pub(super) serial: u64,
}

impl QueuedEvent {
    /// An event without ancestry.
    pub const fn new(source: SourceId, rank: u64, token: u64) -> Self {
        let ancestry = Ancestry::NONE;
        QueuedEvent { source, rank, token, merged: 0, ancestry, stage: 0, serial: 0 }
    }

    /// The same event, but raised because of events to the handlers in `ancestry`
    /// ([`Self::led_by`]).
    #[must_use]
    pub const fn because(mut self, ancestry: Ancestry) -> Self {
        self.ancestry = ancestry;
        self
    }

    /// The ancestry of events that `handler` raises because of this one.
    #[must_use]
    pub const fn led_by(&self, handler: EventHandlerId) -> Ancestry {
        self.ancestry.with(handler)
    }

    pub(super) const fn key(&self) -> Key {
        (self.rank, self.serial)
    }
}

/// A handler's decision on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event ends here.
    Drop,
    /// The event goes to the next handler of its route. If the last event of its source that came
    /// there still waits, the two merge: the newer token and the more urgent rank count.
    Merge,
    /// The event goes to the next handler of its route.
    Pass,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Invoke the handler, which then [`take`](super::Delivery::take)s its events.
    Invoke(EventHandlerId),
    /// The handler has run away and is held. Reported once.
    RunAway {
        /// The handler.
        handler: EventHandlerId,
        /// When it may be invoked again.
        until: Instant,
    },
}

/// Why an event was not accepted, or a handler may not be called.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// No such source.
    Source(SourceId),
    /// No such handler.
    Handler(EventHandlerId),
    /// As many events wait for the handler as it declared. Counted.
    Full(EventHandlerId),
    /// The event would lead back to a handler that led to it. Counted.
    Recursion(EventHandlerId),
    /// The handler has been called as often in its span as it declared. Counted.
    RunAway {
        /// The handler.
        handler: EventHandlerId,
        /// When it may be called again.
        until: Instant,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refused::Source(SourceId(source)) => write!(f, "there is no source {source}"),
            Refused::Handler(EventHandlerId(handler)) => write!(f, "there is no handler {handler}"),
            Refused::Full(EventHandlerId(handler)) => {
                write!(f, "as many events wait for handler {handler} as it declared")
            }
            Refused::Recursion(EventHandlerId(handler)) => {
                write!(f, "the event leads back to handler {handler}, which led to it")
            }
            Refused::RunAway { handler: EventHandlerId(handler), until } => {
                write!(f, "handler {handler} has run away, held until {} ns", until.as_nanos())
            }
        }
    }
}

crate::debug_as_display!(Refused);

impl core::error::Error for Refused {}

/// Why a handler or a source was not added.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddError {
    /// There are [`HANDLERS_MAX`] handlers, or 2^32 sources.
    TooMany,
    /// A declared value is out of its range.
    Terms {
        /// The name of the value.
        name: &'static str,
        /// As declared.
        found: u64,
        /// The upper limit; the lower limit is 1.
        max: u64,
    },
    /// A route has from 1 to [`ROUTE_MAX`] existing handlers, each once.
    Route,
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AddError::TooMany => write!(f, "there are as many handlers or sources as there can be"),
            AddError::Terms { name, found, max } => {
                write!(f, "{name} is {found}, expected 1 to {max}")
            }
            AddError::Route => {
                write!(f, "a route needs 1 to {ROUTE_MAX} handlers that exist, each once")
            }
        }
    }
}

crate::debug_as_display!(AddError);

impl core::error::Error for AddError {}

/// The counters of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Invocations and calls.
    pub invocations: u64,
    /// Events that came while as many events waited as the handler declared.
    pub lost: u64,
    /// Events that the handler dropped.
    pub dropped: u64,
    /// Events that were merged into a waiting one.
    pub merged: u64,
    /// Events and calls that were refused because the handler led to them.
    pub recursions: u64,
    /// How often the handler was held, plus the calls refused for the same reason.
    pub run_aways: u64,
}
