//! The registrant's end of a registration at a dispatcher: hands peers over, drops what the
//! dispatcher hands back, and reads counts.
//!
//! The dispatcher's end neither waits nor allocates. It hands values back, and this end drops them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use upcall_core::events::{Counts, ROUTE_MAX};

use super::dispatcher::{
    DispatcherEnd, DispatcherRequest, NewRegistrant, RegistrationState, Retired,
};
use super::link::Link;
use super::lock::lock;
use super::notifier::DispatcherNotifier;
use super::route::Route;
use super::thread_context;

/// How long [`Registration::leave`] sleeps before it looks again.
const LEAVE_POLL: Duration = Duration::from_micros(200);

/// See the module's head.
pub(super) struct Registration {
    notifier: DispatcherNotifier,
    state: Arc<RegistrationState>,
    ends: Mutex<Ends>,
    stages: usize,
}

struct Ends {
    requests: Producer<DispatcherRequest>,
    retired: Consumer<Retired>,
    /// Peers at the dispatcher, including those that are handed back and not yet dropped.
    peers: usize,
    peers_max: usize,
}

impl Registration {
    /// A registration at the dispatcher of `notifier`, and the registrant to admit there.
    /// Allocates.
    pub(super) fn new(
        notifier: DispatcherNotifier,
        route: Route,
        peers_max: usize,
    ) -> (Registration, NewRegistrant) {
        let (steps, on_gone, when) = route.into_steps();
        let steps: Vec<_> = steps.into_iter().map(|step| (step.terms, step.code)).collect();
        let (requests, taken) = RingBuffer::new(peers_max + 1);
        // One place per peer, one per handler, and one for the code that reports gone peers.
        let (handed_back, retired) = RingBuffer::new(peers_max + ROUTE_MAX + 1);
        let state = Arc::new(RegistrationState::default());
        let ends = Mutex::new(Ends { requests, retired, peers: 0, peers_max });
        let end = DispatcherEnd { requests: taken, retired: handed_back, state: state.clone() };
        let registration = Registration { notifier, state, ends, stages: steps.len() };
        (registration, NewRegistrant { steps, on_gone, when, peers_max, end })
    }

    pub(super) fn notifier(&self) -> DispatcherNotifier {
        self.notifier.clone()
    }

    /// Hands a peer to the dispatcher. Returns `false` if the registrant has as many peers as it
    /// may have, or the dispatcher is gone.
    pub(super) fn join(&self, link: Link) -> bool {
        let mut ends = lock(&self.ends);
        ends.drop_retired();
        if ends.peers >= ends.peers_max || ends.requests.is_abandoned() {
            return false;
        }
        let is_in = ends.requests.push(DispatcherRequest::Join(link)).is_ok();
        ends.peers += usize::from(is_in);
        drop(ends);
        self.notifier.notify();
        is_in
    }

    /// Asks the dispatcher to look which peers are gone. Drops nothing, so that it runs no
    /// destructor of a user's handler.
    pub(super) fn request_check(&self) {
        self.notifier.notify();
    }

    /// As [`Registration::request_check`], and drops what the dispatcher handed back.
    pub(super) fn check_peers(&self) {
        self.request_check();
        lock(&self.ends).drop_retired();
    }

    /// The counts of each handler, filters first.
    pub(super) fn counts(&self) -> Vec<Counts> {
        (0..self.stages).map(|stage| self.state.counts.load(stage)).collect()
    }

    /// Calls `hang_up` after a handler has panicked, or the dispatcher is gone. To be set once.
    pub(super) fn on_hang_up(&self, hang_up: impl Fn() + Send + Sync + 'static) {
        self.state.set_on_hang_up(Box::new(hang_up));
    }

    /// Takes everything back. Waits until the dispatcher has handed it back, except in a handler or
    /// a scheduling thread.
    pub(super) fn leave(&self) {
        // The queue has one place more than there are peers.
        let _ = lock(&self.ends).requests.push(DispatcherRequest::Leave);
        self.notifier.notify();
        while thread_context::may_wait()
            && !self.state.has_left()
            && !lock(&self.ends).requests.is_abandoned()
        {
            std::thread::sleep(LEAVE_POLL);
        }
        lock(&self.ends).drop_retired();
    }
}

impl Ends {
    fn drop_retired(&mut self) {
        while let Ok(retired) = self.retired.pop() {
            self.peers -= usize::from(retired.link.is_some());
        }
    }
}
