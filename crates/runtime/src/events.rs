//! Events for a handler: whoever tells it of one says so here, and the scheduler prefers who has the most urgent
//! (ecalls-2001 §2.4, decision 0013).
//!
//! A [`Poster`] is for any thread of the process; behind it is the activity's inbox ([`upcall_shm::inbox`]). The
//! executor takes in what was posted before each choice, tells the core, and the handler takes its events in
//! order of rank ([`crate::Batch::take_event`]).
//!
//! ```text
//!   Poster::post (1)                Executor                              handler
//!     inbox, mark  ---------------> Input::Posted (2)
//!     rung only if (3) ------------> wakes, shows its rank to other domains
//!                                   chooses: of equals who has an event --> take_event (4)
//!                                   Input::Taken <------------------------
//! ```
//!
//! 1. An event releases nothing and preempts no equal: it counts where somebody is chosen.
//! 2. Between two upcalls; under DWCS, where a service beyond what was promised gives way to
//!    events, at the boundaries of what runs, too.
//! 3. The executor sleeps, and what it would do depends on it: it waits for the turn among other domains, or may
//!    serve somebody beyond what was promised (DWCS). Until there is a poster it does not look for events,
//!    nor say that it sleeps: who has none pays a load.
//! 4. Being upcalled takes none.

use std::sync::Arc;

use upcall_core::activity::{ActivityId, Terms};
use upcall_core::policy::dwcs::DWCS;
use upcall_core::policy::dws::DWS;
use upcall_shm::inbox::{Inbox, Taker};

pub use upcall_shm::inbox::{EVENTS_MAX, PostError, PostedEvent};

use crate::mailbox::{ACTIVITIES_MAX, Shared};

// What an inbox lets in the core has room for.
const _: () = {
    assert!(EVENTS_MAX == upcall_core::scheduler::EVENTS_MAX as usize);
    assert!(ACTIVITIES_MAX == upcall_shm::inbox::INBOXES_MAX);
    assert!(
        EVENTS_MAX * ACTIVITIES_MAX as usize <= upcall_core::scheduler::EVENTS_MAX_IN_ALL as usize
    );
};

/// Posts events to one handler: see [`crate::Runtime::poster`]. Cheap to copy; for any thread of the process, and
/// for handlers. Does not keep the handler, nor its runtime.
#[derive(Clone)]
pub struct Poster {
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    id: ActivityId,
    /// Whether its events change whom an executor that sleeps would let run.
    rings: bool,
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Poster {
    /// Posts an event of this rank, the smaller first: a priority, or an instant by which it should
    /// be dealt with. Wait-free but for other posters of the same handler; allocates nothing; a
    /// system call only if the scheduling thread sleeps and the event changes what that thread does
    /// next.
    ///
    /// # Errors
    /// [`EVENTS_MAX`] wait for the handler already, or it is closed.
    pub fn post(&self, rank: u64) -> Result<(), PostError> {
        self.post_event(&PostedEvent { rank, words: [0; 5] })
    }

    /// As [`Poster::post`], with words that the handler gets.
    ///
    /// # Errors
    /// As [`Poster::post`].
    pub fn post_event(&self, event: &PostedEvent) -> Result<(), PostError> {
        self.inbox.post(event)?;
        if self.shared.marks.set(self.id.0) && self.rings {
            self.shared.notifier.notify();
        }
        Ok(())
    }
}

/// An activity's inbox, as its runtime knows it.
#[derive(Debug)]
pub(crate) struct Posts {
    inbox: Arc<Inbox>,
    rings: bool,
}

impl Posts {
    /// And the executor's end. Allocates.
    pub(crate) fn new(policy: &str, terms: &Terms) -> (Self, Taker) {
        let (inbox, taker) = Inbox::new();
        let rings = terms.wins_ties || policy == DWS.name || policy == DWCS.name;
        (Posts { inbox, rings }, taker)
    }

    pub(crate) fn poster(&self, shared: &Arc<Shared>, id: ActivityId) -> Poster {
        shared.expect_events();
        let (inbox, shared) = (self.inbox.clone(), shared.clone());
        Poster { inbox, shared, id, rings: self.rings }
    }

    /// Nothing is posted from now on.
    pub(crate) fn close(&self) {
        self.inbox.close();
    }
}

/// The inboxes of all activities of an executor: its end.
#[derive(Debug)]
pub(crate) struct Inboxes {
    /// By activity number.
    takers: Vec<Option<Taker>>,
    shared: Arc<Shared>,
    /// Whether what runs gives way to events: DWCS.
    pub(crate) interrupt: bool,
}

impl Inboxes {
    pub(crate) fn new(policy: &str, shared: Arc<Shared>) -> Self {
        let mut takers = Vec::new();
        takers.resize_with(ACTIVITIES_MAX as usize, || None);
        Inboxes { takers, shared, interrupt: policy == DWCS.name }
    }

    /// An activity comes, whose events are looked for at once, or goes, and then it is for
    /// another thread to drop what is given back.
    pub(crate) fn set(&mut self, id: ActivityId, taker: Option<Taker>) -> Option<Taker> {
        // The executor itself is awake.
        let _ = self.shared.marks.set(id.0);
        std::mem::replace(self.takers.get_mut(id.0 as usize)?, taker)
    }

    /// Shows `each` what was posted since; whether anything was. Five loads, if nothing; one, if nobody can post.
    #[inline]
    pub(crate) fn poll(&mut self, each: impl FnMut(ActivityId, u64)) -> bool {
        self.shared.expects_events() && self.poll_marked(each)
    }

    /// Not inline: it would keep [`crate::preemption::PreemptionPoint::go_on`] from being so.
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

    /// The most urgent event of an activity, of those taken in.
    pub(crate) fn take(&mut self, id: ActivityId) -> Option<PostedEvent> {
        self.takers.get_mut(id.0 as usize)?.as_mut()?.take()
    }
}
