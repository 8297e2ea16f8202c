//! Between a desk and who registered something with it: peers that come, what is to be dropped, counts.
//!
//! The desk's end neither waits nor allocates: what goes is handed back, to be dropped elsewhere.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use upcall_core::events::{Counts, HandlerTerms, ROUTE_MAX, When};

use super::desk::Link;
use super::here;
use super::raise::lock;
use super::route::{Code, OnGone, Route};
use crate::mailbox::Shared;
use crate::notify::Notifier;

/// How who serves a desk is called.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    Executor(Arc<Shared>),
    Thread(Arc<Notifier>),
}

impl Caller {
    /// Has it look at its lines, and at what has become of its peers.
    pub(super) fn ring(&self) {
        match self {
            Caller::Executor(shared) => shared.notifier.notify(),
            Caller::Thread(notifier) => notifier.notify(),
        }
    }
}

/// What the desk is told: who joins; `None`: all is to be handed back.
pub(super) type News = Option<Link>;

/// What the desk hands back, only to be dropped.
#[derive(Default)]
pub(super) struct Retired {
    pub(super) link: Option<Link>,
    pub(super) _code: Option<Code>,
    pub(super) _on_gone: Option<OnGone>,
}

/// Of each handler of a route, what [`Counts`] says.
#[derive(Debug, Default)]
pub(super) struct Tally([[AtomicU64; 6]; ROUTE_MAX]);

impl Tally {
    // Relaxed, both: numbers for themselves.

    pub(super) fn store(&self, stage: usize, counts: &Counts) {
        let Counts { invocations, lost, dropped, merged, recursions, run_aways } = *counts;
        let values = [invocations, lost, dropped, merged, recursions, run_aways];
        for (word, value) in self.0[stage].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn load(&self, stage: usize) -> Counts {
        let word = |at: usize| self.0[stage][at].load(Ordering::Relaxed);
        Counts {
            invocations: word(0),
            lost: word(1),
            dropped: word(2),
            merged: word(3),
            recursions: word(4),
            run_aways: word(5),
        }
    }
}

/// What a party is, before it is at its desk.
pub(crate) struct Newcomer {
    pub(super) steps: Vec<(HandlerTerms, Code)>,
    pub(super) on_gone: OnGone,
    pub(super) when: When,
    /// Most peers at a time.
    pub(crate) peers_max: usize,
    pub(super) end: DeskEnd,
}

/// The desk's end.
pub(super) struct DeskEnd {
    pub(super) news: Consumer<News>,
    pub(super) retired: Producer<Retired>,
    pub(super) state: Arc<State>,
}

/// What both ends see.
#[derive(Default)]
pub(super) struct State {
    pub(super) tally: Tally,
    /// The desk has handed everything back.
    has_left: AtomicBool,
    /// What hangs up, once a handler panicked or the desk is gone.
    on_over: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("tally", &self.tally).finish_non_exhaustive()
    }
}

impl State {
    pub(super) fn set_left(&self) {
        // Release pairs with the Acquire in `Line::leave`: what was handed back is there.
        self.has_left.store(true, Ordering::Release);
    }

    /// Nothing is handled any more: its peers are to find that it died. A system call.
    pub(super) fn over(&self) {
        if let Some(on_over) = self.on_over.get() {
            on_over();
        }
    }
}

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
