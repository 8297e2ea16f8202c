//! What goes into a [`Delivery`](super::Delivery) and what comes out of it.

use crate::time::{Instant, Span};
use core::fmt;

/// Most handlers of a delivery.
pub const HANDLERS_MAX: u32 = 64;

/// Most handlers of a route.
pub const ROUTE_MAX: usize = 4;

/// Most events that may wait for a handler.
pub const PENDING_MAX: u32 = 1 << 16;

/// Most invocations in a span that a handler may declare.
pub const INVOCATIONS_MAX: u32 = 1 << 16;

/// Rank, then order of coming: smaller first.
pub(super) type Key = (u64, u64);

/// Names a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventHandlerId(pub(super) u32);

/// Names a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub(super) u32);

/// What a handler of events is held to: what comes beyond waits or is lost, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerTerms {
    /// Most events that wait for it, deferred ones included. 1 to [`PENDING_MAX`].
    pub pending_max: u32,
    /// Most invocations in any `span`. 1 to [`INVOCATIONS_MAX`].
    pub invocations_max: u32,
    /// Above 0.
    pub span: Span,
}

/// When the handler of an event is invoked (ecalls-2001 §2.3.1).
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
    pub const fn contains(self, handler: EventHandlerId) -> bool {
        self.0 >> handler.0 & 1 != 0
    }

    pub(super) const fn with(self, handler: EventHandlerId) -> Self {
        Ancestry(self.0 | 1 << handler.0)
    }
}

/// An event, as it is raised and as it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedEvent {
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
    pub(super) stage: u8,
    pub(super) serial: u64,
}

impl QueuedEvent {
    /// An event that no handler led to.
    pub const fn new(source: SourceId, rank: u64, token: u64) -> Self {
        let ancestry = Ancestry::NONE;
        QueuedEvent { source, rank, token, merged: 0, ancestry, stage: 0, serial: 0 }
    }

    /// The same, raised by handlers in `ancestry` ([`Self::led_by`]).
    #[must_use]
    pub const fn because(mut self, ancestry: Ancestry) -> Self {
        self.ancestry = ancestry;
        self
    }

    /// What `handler` gives to events that it raises because of this one.
    #[must_use]
    pub const fn led_by(&self, handler: EventHandlerId) -> Ancestry {
        self.ancestry.with(handler)
    }

    pub(super) const fn key(&self) -> Key {
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
    /// Invoke the handler, and have it [`take`](super::Delivery::take).
    Invoke(EventHandlerId),
    /// The handler has run away; said once. It is held until then.
    RunAway {
        /// Which.
        handler: EventHandlerId,
        /// When it may be invoked again.
        until: Instant,
    },
}

/// Why an event was not accepted, or a handler not called.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such source.
    Source(SourceId),
    /// There is no such handler.
    Handler(EventHandlerId),
    /// As many wait for the handler as it declared; counted.
    Full(EventHandlerId),
    /// It would lead back to a handler that led to it; counted.
    Recursion(EventHandlerId),
    /// The handler has been called as often in its span as it declared; counted.
    RunAway {
        /// Which.
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
