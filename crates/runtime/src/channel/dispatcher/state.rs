//! The types of a dispatcher, of its registrants, and of what handlers are given.
//!
//! They are in one file because they need each other: a handler is given [`Events`], which
//! borrow the dispatcher, which holds the handlers.

use std::sync::Arc;

use rtrb::{Consumer, Producer};
use upcall_core::events::{
    Counts, Delivery, Event as CoreEvent, HandlerId, HandlerTerms, SourceId, When,
};
use upcall_core::time::Instant;

use super::shared::State;
use crate::channel::link::Link;
use crate::channel::peer::{Gone, PeerId};
use crate::channel::pending_events::Notes;

/// Most peers of a desk: each bell is one of the words it sleeps on.
pub(crate) const PEERS_MAX: usize = 96;
/// How often in a row a peer may ring for nothing, or change what is looked at.
pub(super) const IDLE_MAX: u32 = 64;
/// How often a desk looks again before it lets something else run.
pub(super) const ROUNDS: usize = 4;

/// Where a desk is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Control comes by: at a boundary of what runs.
    Crossing,
    /// The scheduler decides next.
    Scheduling,
}

/// A user's code: takes what events it likes.
pub(in crate::channel) type Code = Box<dyn FnMut(&mut Events<'_>) + Send>;
/// A user's code: told that a peer is gone.
pub(in crate::channel) type OnGone = Box<dyn FnMut(PeerId, Gone) + Send>;

/// What a party is, before it is at its desk.
pub(crate) struct Newcomer {
    pub(in crate::channel) steps: Vec<(HandlerTerms, Code)>,
    pub(in crate::channel) on_gone: OnGone,
    pub(in crate::channel) when: When,
    /// Most peers at a time.
    pub(crate) peers_max: usize,
    pub(in crate::channel) end: DeskEnd,
}

/// The desk's end.
pub(in crate::channel) struct DeskEnd {
    pub(in crate::channel) news: Consumer<News>,
    pub(in crate::channel) retired: Producer<Retired>,
    pub(in crate::channel) state: Arc<State>,
}

/// What the desk is told: who joins; `None`: all is to be handed back.
pub(in crate::channel) type News = Option<Link>;

/// What the desk hands back, only to be dropped.
#[derive(Default)]
pub(in crate::channel) struct Retired {
    pub(in crate::channel) link: Option<Link>,
    pub(in crate::channel) _code: Option<Code>,
    pub(in crate::channel) _on_gone: Option<OnGone>,
}

/// A service, or a client, with its route.
pub(super) struct Party {
    /// Places in `Desk::handlers`, in the order of the route.
    pub(super) stages: Vec<usize>,
    pub(super) free: Vec<SourceId>,
    pub(super) peers_max: usize,
    /// `None`: it has left, and its place may be taken.
    pub(super) present: Option<Present>,
}

pub(super) struct Present {
    pub(super) when: When,
    pub(super) on_gone: Option<OnGone>,
    pub(super) end: DeskEnd,
}

pub(super) struct Installed {
    pub(super) id: HandlerId,
    pub(super) terms: HandlerTerms,
    pub(super) party: usize,
    pub(super) stage: usize,
    /// `None` as it runs, once it has panicked, and while nobody has the place.
    pub(super) code: Option<Code>,
    /// What was counted for others that had the place.
    pub(super) base: Counts,
    /// Its counts are to be told.
    pub(super) touched: bool,
}

/// See the module's head.
pub(crate) struct Desk {
    pub(super) number: u16,
    pub(super) delivery: Delivery,
    pub(super) handlers: Vec<Installed>,
    pub(super) parties: Vec<Party>,
    pub(super) links: Vec<Link>,
    pub(super) notes: Notes,
    /// Something waits for the next scheduling decision.
    pub(super) deferred: bool,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What the handler of a [`Route`](crate::channel::Route) is given: the events that wait for it, to
/// be taken one by one.
pub struct Events<'a> {
    pub(super) desk: &'a mut Desk,
    /// Of the handler.
    pub(super) at: usize,
    pub(super) now: Instant,
    pub(super) current: Option<CoreEvent>,
}
