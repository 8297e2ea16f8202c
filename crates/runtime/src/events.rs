//! Events for handlers: a program posts them, and the scheduler prefers the handler with the most
//! urgent one (ecalls-2001 §2.4, decision 0013).
//!
//! Any thread of the process may use a [`Poster`]; it posts into the activity's inbox
//! ([`upcall_shm::inbox`]). Before each choice the executor takes in the posted events and tells
//! the core. The handler takes its events in order of rank ([`crate::Batch::take_event`]).
//!
//! ```text
//!   Poster::post (1)                Executor                              handler
//!     inbox, mark  ---------------> Input::Posted (2)
//!     notifies only if (3) --------> wakes, shows its rank to other domains
//!                                   chooses: of equals the one with an event --> take_event (4)
//!                                   Input::Taken <------------------------
//! ```
//!
//! 1. An event releases nothing and preempts no handler of equal rank. It counts when the next
//!    handler is chosen.
//! 2. The executor does this between two upcalls. Under DWCS it also does it at the boundaries of
//!    the running handler, because service beyond the promise gives way to events.
//! 3. The poster notifies if the executor sleeps and the event changes what the executor does next.
//!    That is so if the executor waits for the turn under a daemon, or may serve a handler beyond
//!    its promise (DWCS). Until there is a poster, the executor does not look for events and does
//!    not publish that it sleeps. That costs it one load.
//! 4. The upcall itself takes no event.

use std::sync::Arc;

use upcall_core::activity::{ActivityId, Terms};
use upcall_core::discipline::Discipline;
use upcall_shm::inbox::{Inbox, Taker};

pub use upcall_shm::inbox::{EVENTS_MAX, PostError, PostedEvent};

use crate::mailbox::{ACTIVITIES_MAX, Shared};

// The core has room for all events that the inboxes let in.
const _: () = {
    assert!(EVENTS_MAX == upcall_core::scheduler::EVENTS_MAX as usize);
    assert!(ACTIVITIES_MAX == upcall_shm::inbox::INBOXES_MAX);
    assert!(
        EVENTS_MAX * ACTIVITIES_MAX as usize <= upcall_core::scheduler::EVENTS_MAX_IN_ALL as usize
    );
};

/// Posts events to one handler: see [`crate::Runtime::poster`]. Cheap to clone. Any thread of the
/// process and any handler may use it. It keeps neither the handler nor its runtime alive.
#[derive(Clone)]
pub struct Poster {
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    id: ActivityId,
    /// Whether its events change the choice of an executor that sleeps.
    notifies: bool,
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Poster {
    /// Posts an event of this rank. A smaller rank comes first; the rank is a priority, or the
    /// instant by which the event should be handled. Wait-free except for other posters of the same
    /// handler. Allocates nothing. Makes a system call only if the scheduling thread sleeps and the
    /// event changes what that thread does next.
    ///
    /// # Errors
    /// [`EVENTS_MAX`] events wait for the handler already, or the handler is closed, or its runtime
    /// has ended.
    pub fn post(&self, rank: u64) -> Result<(), PostError> {
        self.post_event(&PostedEvent { rank, words: [0; 5] })
    }

    /// As [`Poster::post`], with words for the handler.
    ///
    /// # Errors
    /// As [`Poster::post`].
    pub fn post_event(&self, event: &PostedEvent) -> Result<(), PostError> {
        self.inbox.post(event)?;
        if self.shared.marks.set(self.id.0) && self.notifies {
            self.shared.notifier.notify();
        }
        Ok(())
    }
}

/// The runtime's end of an activity's inbox.
#[derive(Debug)]
pub(crate) struct Posts {
    inbox: Arc<Inbox>,
    notifies: bool,
}

impl Posts {
    /// The runtime's and the executor's end. Allocates.
    pub(crate) fn new(discipline: &Discipline, terms: &Terms) -> (Self, Taker) {
        let (inbox, taker) = Inbox::new();
        let notifies = discipline.prefers_events(terms);
        (Posts { inbox, notifies }, taker)
    }

    pub(crate) fn poster(&self, shared: &Arc<Shared>, id: ActivityId) -> Poster {
        shared.expect_events();
        let (inbox, shared) = (self.inbox.clone(), shared.clone());
        Poster { inbox, shared, id, notifies: self.notifies }
    }

    /// No event is accepted from now on.
    pub(crate) fn close(&self) {
        self.inbox.close();
    }
}

/// The executor's ends of the inboxes of all its activities.
#[derive(Debug)]
pub(crate) struct Inboxes {
    /// By activity number.
    takers: Vec<Option<Taker>>,
    shared: Arc<Shared>,
    /// Whether the running handler gives way to events, as under DWCS.
    pub(crate) interrupt: bool,
}

impl Inboxes {
    pub(crate) fn new(discipline: &Discipline, shared: Arc<Shared>) -> Self {
        let mut takers = Vec::new();
        takers.resize_with(ACTIVITIES_MAX as usize, || None);
        Inboxes { takers, shared, interrupt: discipline.yields_to_events() }
    }

    /// Sets the inbox of an activity that is created, or removes that of one that is closed. The
    /// next poll looks into the inbox of a new activity. Returns the old end, which another thread
    /// must drop.
    pub(crate) fn set(&mut self, id: ActivityId, taker: Option<Taker>) -> Option<Taker> {
        // No notification is needed: the executor calls this, so it is awake.
        let _ = self.shared.marks.set(id.0);
        std::mem::replace(self.takers.get_mut(id.0 as usize)?, taker)
    }

    /// Shows `each` the events posted since the last time. Returns whether there were any. Five
    /// loads if there were none; one if there is no poster.
    #[inline]
    pub(crate) fn poll(&mut self, each: impl FnMut(ActivityId, u64)) -> bool {
        self.shared.expects_events() && self.poll_marked(each)
    }

    /// A function of its own, so that the compiler can inline
    /// [`crate::preemption::PreemptionPoint::go_on`].
    #[inline(never)]
    fn poll_marked(&mut self, mut each: impl FnMut(ActivityId, u64)) -> bool {
        let mut any = false;
        for number in self.shared.marks.take() {
            if let Some(Some(taker)) = self.takers.get_mut(number as usize) {
                taker.find(|rank| {
                    any = true;
                    each(ActivityId(number), rank);
                });
            }
        }
        any
    }

    /// Takes the most urgent event of an activity among those that the executor has taken in.
    pub(crate) fn take(&mut self, id: ActivityId) -> Option<PostedEvent> {
        self.takers.get_mut(id.0 as usize)?.as_mut()?.take()
    }
}
