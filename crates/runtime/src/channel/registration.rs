//! Between a desk and who registered something with it: peers that come, what is to be dropped, counts.
//!
//! The desk's end neither waits nor allocates: what goes is handed back, to be dropped elsewhere.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use upcall_core::events::{Counts, ROUTE_MAX};

use super::dispatcher::{DeskEnd, Newcomer, News, Retired, State};
use super::link::Link;
use super::lock::lock;
use super::notifier::Caller;
use super::route::Route;
use super::thread_context as here;

/// The registrant's end.
pub(super) struct Line {
    caller: Caller,
    state: Arc<State>,
    ends: Mutex<Ends>,
    stages: usize,
}

struct Ends {
    news: Producer<News>,
    retired: Consumer<Retired>,
    /// Peers at the desk, those included that wait to be dropped.
    peers: usize,
    peers_max: usize,
}

impl Line {
    /// A line to the desk that `caller` calls, and what is to be brought to it. Allocates.
    pub(super) fn new(caller: Caller, route: Route, peers_max: usize) -> (Line, Newcomer) {
        let (steps, on_gone, when) = route.into_steps();
        let steps: Vec<_> = steps.into_iter().map(|step| (step.terms, step.code)).collect();
        let (news_in, news) = RingBuffer::new(peers_max + 1);
        // Each peer, each handler, and one for the peers that are gone.
        let (retired, retired_out) = RingBuffer::new(peers_max + ROUTE_MAX + 1);
        let state = Arc::new(State::default());
        let ends = Ends { news: news_in, retired: retired_out, peers: 0, peers_max };
        let line =
            Line { caller, state: state.clone(), ends: Mutex::new(ends), stages: steps.len() };
        let end = DeskEnd { news, retired, state };
        (line, Newcomer { steps, on_gone, when, peers_max, end })
    }

    pub(super) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Hands a peer to the desk; `false`: it has as many as it can, or is closed.
    pub(super) fn join(&self, link: Link) -> bool {
        let mut ends = lock(&self.ends);
        ends.sweep();
        if ends.peers >= ends.peers_max || ends.news.is_abandoned() {
            return false;
        }
        let is_in = ends.news.push(Some(link)).is_ok();
        ends.peers += usize::from(is_in);
        drop(ends);
        self.caller.ring();
        is_in
    }

    /// Has the desk look at what became of its peers, and drops what it handed back.
    pub(super) fn look(&self) {
        self.caller.ring();
        lock(&self.ends).sweep();
    }

    /// Of each handler, filters first.
    pub(super) fn counts(&self) -> Vec<Counts> {
        (0..self.stages).map(|stage| self.state.tally.load(stage)).collect()
    }

    /// Has `hang_up` called once nothing is handled any more. Once.
    pub(super) fn on_over(&self, hang_up: impl Fn() + Send + Sync + 'static) {
        let _ = self.state.on_over.set(Box::new(hang_up));
    }

    /// Takes everything back; waits until the desk has given it, but not in a handler or a scheduling thread.
    pub(super) fn leave(&self) {
        // There is room: a place more than peers.
        let _ = lock(&self.ends).news.push(None);
        self.caller.ring();
        // Acquire pairs with the Release in `set_left`.
        while here::may_wait()
            && !self.state.has_left.load(Ordering::Acquire)
            && !lock(&self.ends).news.is_abandoned()
        {
            std::thread::sleep(Duration::from_micros(200));
        }
        lock(&self.ends).sweep();
    }
}

impl Ends {
    fn sweep(&mut self) {
        while let Ok(retired) = self.retired.pop() {
            self.peers -= usize::from(retired.link.is_some());
        }
    }
}
