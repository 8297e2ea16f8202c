//! The types of a dispatcher, of its registrants, and of the events that handlers get.
//!
//! They share one file because they refer to each other: a handler gets [`Events`], which borrow
//! the dispatcher, which holds the handlers.

use std::sync::Arc;

use rtrb::{Consumer, Producer};
use upcall_core::events::{
    Counts, Delivery, EventHandlerId, HandlerTerms, QueuedEvent, SourceId, When,
};
use upcall_core::time::Instant;

use super::shared::RegistrationState;
use crate::channel::link::Link;
use crate::channel::peer::{Gone, PeerId};
use crate::channel::pending_events::PendingEvents;

/// Most peers of a dispatcher. Its thread sleeps on one word for each peer.
pub(crate) const PEERS_MAX: usize = 96;
/// How often in a row a peer may notify without an event, or change a segment while it is read.
pub(super) const EMPTY_NOTIFICATIONS_MAX: u32 = 64;
/// How often a dispatcher polls again before it lets other work run.
pub(super) const ROUNDS_MAX: usize = 4;

/// The point at which a thread serves its dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DispatchPoint {
    /// A boundary of the upcall that runs.
    Crossing,
    /// Before the next scheduling decision.
    Scheduling,
}

/// A user's handler or filter. It takes as many events as it likes.
pub(in crate::channel) type Code = Box<dyn FnMut(&mut Events<'_>) + Send>;
/// A user's code that is called when a peer is gone.
pub(in crate::channel) type OnGone = Box<dyn FnMut(PeerId, Gone) + Send>;

/// A service or client that is not yet at its dispatcher.
pub(crate) struct NewRegistrant {
    pub(in crate::channel) steps: Vec<(HandlerTerms, Code)>,
    pub(in crate::channel) on_gone: OnGone,
    pub(in crate::channel) when: When,
    /// Most peers at a time.
    pub(crate) peers_max: usize,
    pub(in crate::channel) end: DispatcherEnd,
}

/// The dispatcher's end of a registration.
pub(in crate::channel) struct DispatcherEnd {
    pub(in crate::channel) requests: Consumer<DispatcherRequest>,
    pub(in crate::channel) retired: Producer<Retired>,
    pub(in crate::channel) state: Arc<RegistrationState>,
}

/// What a registration asks of the dispatcher.
#[expect(clippy::large_enum_variant, reason = "a link is moved, as nothing here may allocate")]
pub(in crate::channel) enum DispatcherRequest {
    /// Serve this peer as well.
    Join(Link),
    /// Hand back everything of the registrant.
    Leave,
}

/// Values that the dispatcher hands back for another thread to drop.
#[derive(Default)]
pub(in crate::channel) struct Retired {
    pub(in crate::channel) link: Option<Link>,
    pub(in crate::channel) _code: Option<Code>,
    pub(in crate::channel) _on_gone: Option<OnGone>,
}

/// Handlers and sources in the core, and the registrant that uses them now.
pub(super) struct RegistrantSlot {
    /// Indexes of `EventDispatcher::handlers`, in the order of the route.
    pub(super) stages: Vec<usize>,
    pub(super) free: Vec<SourceId>,
    pub(super) peers_max: usize,
    /// `None` after the registrant has left. A later one may use the slot.
    pub(super) registrant: Option<Registrant>,
}

/// A service or a client with handlers.
pub(super) struct Registrant {
    pub(super) when: When,
    pub(super) on_gone: Option<OnGone>,
    pub(super) end: DispatcherEnd,
}

pub(super) struct InstalledHandler {
    pub(super) id: EventHandlerId,
    pub(super) terms: HandlerTerms,
    pub(super) slot: usize,
    pub(super) stage: usize,
    /// `None` while the code runs, after it has panicked, and while no registrant has the slot.
    pub(super) code: Option<Code>,
    /// The counts of earlier registrants in this slot.
    pub(super) base: Counts,
    /// Whether the counts changed since they were published.
    pub(super) counts_changed: bool,
}

/// See the head of [`super`].
pub(crate) struct EventDispatcher {
    pub(super) number: u16,
    pub(super) delivery: Delivery,
    pub(super) handlers: Vec<InstalledHandler>,
    pub(super) slots: Vec<RegistrantSlot>,
    pub(super) links: Vec<Link>,
    pub(super) pending_events: PendingEvents,
    /// Whether an event waits for the next scheduling decision.
    pub(super) deferred: bool,
}

impl std::fmt::Debug for EventDispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventDispatcher").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The events that wait for a handler of a [`Route`](crate::channel::Route). The handler takes
/// them one by one.
pub struct Events<'a> {
    pub(super) dispatcher: &'a mut EventDispatcher,
    /// The index of the handler.
    pub(super) at: usize,
    pub(super) now: Instant,
    pub(super) current: Option<QueuedEvent>,
}
