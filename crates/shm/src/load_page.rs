//! The page through which a load-generating child reports to its parent.
//!
//! The parent (the command, running a spec) creates the page, starts a child
//! that sends the streams' datagrams, and reads from the page how many were
//! offered. [`LoadParent`] and [`LoadChild`] are the two ends. Neither waits,
//! allocates or makes a system call; who waits, polls.
//!
//! ```text
//!   parent                                      child
//!   create: (1) identity
//!                                               attach: checks (1)
//!                                               (2) set_ready
//!   (3) start(at)  ---- Release/Acquire ---->   start_at_ns
//!                                               (4) set_running
//!   poll           <---- Relaxed ------------   (5) publish, again and again
//!   (6) stop       ---- Relaxed ------------>   stop_requested
//!   poll           <---- Release/Acquire ----   (7) finish
//! ```
//!
//! 1. Magic, version and stream count, before the child is started.
//! 2. The child has opened its sockets.
//! 3. All children are ready: they begin at one moment. What the parent stored
//!    before, the child sees after.
//! 4. The first datagram is about to go out. States only ever move downwards in
//!    this list, and may be skipped.
//! 5. Counters may be looked at meanwhile. They only grow, but those of one
//!    stream need not be of the same moment.
//! 6. The run is over early.
//! 7. The counters are final: whoever sees [`State::Done`] sees all of them.
//!
//! Each cache line has one writer ([`layout`](self#layout) is fixed, and has a
//! version of its own):
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, stream count, 5 reserved | parent, before sharing |
//! | 64..128 | start at (ns), stop, 6 reserved | parent |
//! | 128..192 | state, 7 reserved | child |
//! | 192..4096 | a line a stream: offered, bytes, slips, errors, 4 reserved | child |
//!
//! Reserved words, and the lines of streams there are not, are 0.

use crate::{AtomicU64, Ordering};
use Ordering::{Acquire, Relaxed, Release};
use core::fmt;
use layout::{MAGIC, word};

mod layout;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use layout::{LAYOUT_VERSION, PAGE_BYTES, STREAMS_MAX};

/// Words of a page: what both ends are given.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// How far the child has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has not said anything yet.
    #[default]
    Starting = 0,
    /// It waits for the start.
    Ready = 1,
    /// It sends.
    Running = 2,
    /// It has sent all it will, and its counters are final.
    Done = 3,
}

/// What the child has done for one stream, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Datagrams handed to the kernel.
    pub offered: u64,
    /// Their payload bytes.
    pub offered_bytes: u64,
    /// Sends that were so late that the schedule moved.
    pub slips: u64,
    /// Sends that failed.
    pub errors: u64,
}

/// The parent's end: it starts and stops, and reads what the child reports.
///
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct LoadParent<W> {
    page: Page<W>,
    streams: usize,
    state: State,
    counters: [StreamCounters; STREAMS_MAX],
}

impl<W: AsRef<[AtomicU64]>> LoadParent<W> {
    /// Makes `words`, all zero and shared with nobody yet, a page for
    /// `streams` (1 to [`STREAMS_MAX`]).
    ///
    /// # Errors
    /// Wrong length, wrong number of streams, or a word that is not 0.
    pub fn create(words: W, streams: usize) -> Result<Self, LayoutError> {
        let page = Page::new(words)?;
        if streams == 0 || streams > STREAMS_MAX {
            return Err(LayoutError::Streams { found: streams as u64 });
        }
        page.check_unused(|_| true)?;
        // Relaxed: starting the child orders these before all it does.
        page.store(word::MAGIC, MAGIC, Relaxed);
        page.store(word::VERSION, u64::from(LAYOUT_VERSION), Relaxed);
        page.store(word::STREAMS, streams as u64, Relaxed);
        let counters = [StreamCounters::default(); STREAMS_MAX];
        Ok(LoadParent { page, streams, state: State::Starting, counters })
    }

    /// The memory, to be handed to the child.
    pub fn memory(&self) -> &W {
        &self.page.0
    }

    /// Lets the child begin at `at_ns` (`CLOCK_MONOTONIC`; 0 counts as 1).
    /// What this process stored before is seen by a child that sees the start.
    pub fn start(&self, at_ns: u64) {
        // Pairs with the Acquire in `LoadChild::start_at_ns`.
        let order = ordering(Edge::StartStore, Release);
        self.page.store(word::START_AT_NS, at_ns.max(1), order);
    }

    /// Asks the child to finish early.
    pub fn stop(&self) {
        // Relaxed: nothing is handed over with it.
        self.page.store(word::STOP, 1, Relaxed);
    }

    /// Takes in what the child has reported since, and says how far it is.
    ///
    /// With [`State::Done`] the counters are final. O([`PAGE_WORDS`]) loads, a
    /// few microseconds: for reporting, not for a hot path.
    ///
    /// # Errors
    /// What a child that keeps to the protocol does not do. Counters and state
    /// stay as they were; the child is not to be trusted any further.
    pub fn poll(&mut self) -> Result<State, PeerFault> {
        // Before the counters, and Acquire: pairs with the Release in
        // `LoadChild::finish`, so that those of a child that is done are final.
        let state = self.page.load(word::STATE, ordering(Edge::StateLoad, Acquire));
        let state = self.check_state(state)?;
        self.check_reserved()?;
        let mut counters = self.counters;
        for (stream, known) in counters[..self.streams].iter_mut().enumerate() {
            let found = self.page.counters(stream);
            self.check_counters(stream, known, &found)?;
            *known = found;
        }
        self.state = state;
        self.counters = counters;
        Ok(state)
    }

    /// Each stream's counters as of the last [`Self::poll`] without a fault.
    pub fn streams(&self) -> &[StreamCounters] {
        &self.counters[..self.streams]
    }

    /// How far the child was at the last [`Self::poll`] without a fault.
    pub fn state(&self) -> State {
        self.state
    }

    fn check_state(&self, found: u64) -> Result<State, PeerFault> {
        let states = [State::Starting, State::Ready, State::Running, State::Done];
        let known = states.into_iter().find(|&state| state as u64 == found);
        let state = known.ok_or(PeerFault::State { found })?;
        if state < self.state {
            return Err(PeerFault::StateBack { from: self.state, to: state });
        }
        Ok(state)
    }

    /// The child's lines only: nobody but the parent writes the others.
    fn check_reserved(&self) -> Result<(), PeerFault> {
        let offset = self.page.first_used(word::STATE, self.streams);
        offset.map_or(Ok(()), |offset| Err(PeerFault::Reserved { offset }))
    }

    fn check_counters(
        &self,
        stream: usize,
        known: &StreamCounters,
        found: &StreamCounters,
    ) -> Result<(), PeerFault> {
        if self.state == State::Done && known != found {
            return Err(PeerFault::AfterDone { stream });
        }
        for (counter, from, to) in [
            ("offered", known.offered, found.offered),
            ("offered_bytes", known.offered_bytes, found.offered_bytes),
            ("slips", known.slips, found.slips),
            ("errors", known.errors, found.errors),
        ] {
            if to < from {
                return Err(PeerFault::CounterBack { stream, counter, from, to });
            }
        }
        Ok(())
    }
}

/// The child's end: it learns when to start, and reports.
///
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct LoadChild<W> {
    page: Page<W>,
    streams: usize,
}

impl<W: AsRef<[AtomicU64]>> LoadChild<W> {
    /// Takes up the page that a parent created in `words`.
    ///
    /// # Errors
    /// It is no such page, of another version, or not as the parent leaves it.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let page = Page::new(words)?;
        let found = page.load(word::MAGIC, Relaxed);
        if found != MAGIC {
            return Err(LayoutError::Magic { found });
        }
        let found = page.load(word::VERSION, Relaxed);
        if found != u64::from(LAYOUT_VERSION) {
            return Err(LayoutError::Version { found });
        }
        let found = page.load(word::STREAMS, Relaxed);
        let streams = usize::try_from(found).unwrap_or(usize::MAX);
        if streams == 0 || streams > STREAMS_MAX {
            return Err(LayoutError::Streams { found });
        }
        // The parent may be ahead: started, stopped, or both.
        page.check_unused(|word| {
            word > word::STREAMS && word != word::START_AT_NS && word != word::STOP
        })?;
        Ok(LoadChild { page, streams })
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Says that the child waits for the start.
    pub fn set_ready(&mut self) {
        self.store_state(State::Ready);
    }

    /// When to begin (`CLOCK_MONOTONIC`); `None`: not known yet, ask again.
    pub fn start_at_ns(&self) -> Option<u64> {
        // Pairs with the Release in `LoadParent::start`.
        let at_ns = self.page.load(word::START_AT_NS, ordering(Edge::StartLoad, Acquire));
        (at_ns != 0).then_some(at_ns)
    }

    /// Whether the parent wants the child to finish early.
    pub fn stop_requested(&self) -> bool {
        // Relaxed: nothing is handed over with it.
        self.page.load(word::STOP, Relaxed) != 0
    }

    /// Says that the child sends.
    pub fn set_running(&mut self) {
        self.store_state(State::Running);
    }

    /// The line of stream `index`, for whichever thread sends it; `None` if
    /// there are not so many.
    pub fn stream(&self, index: usize) -> Option<StreamLine<'_>> {
        let page = Page(self.page.0.as_ref());
        (index < self.streams).then_some(StreamLine { page, stream: index })
    }

    /// Says that all is sent and the counters are final. Every
    /// [`StreamLine`] is gone by then, so that they stay so.
    pub fn finish(self) {
        self.store_state(State::Done);
    }

    fn store_state(&self, state: State) {
        // Release, after the counters: pairs with the Acquire in
        // `LoadParent::poll`.
        self.page.store(word::STATE, state as u64, ordering(Edge::StateStore, Release));
    }
}

/// Where the child reports on one stream. One thread at a time should.
#[derive(Debug)]
pub struct StreamLine<'child> {
    page: Page<&'child [AtomicU64]>,
    stream: usize,
}

impl StreamLine<'_> {
    /// Reports the totals so far; none may be less than before. Four stores to
    /// one cache line: cheap enough for each batch.
    pub fn publish(&self, counters: &StreamCounters) {
        let line = word::line(self.stream);
        // Relaxed: `LoadChild::finish` hands the final ones over.
        self.page.store(line + word::OFFERED, counters.offered, Relaxed);
        self.page.store(line + word::OFFERED_BYTES, counters.offered_bytes, Relaxed);
        self.page.store(line + word::SLIPS, counters.slips, Relaxed);
        self.page.store(line + word::ERRORS, counters.errors, Relaxed);
    }
}

/// The words of a page, found to be [`PAGE_WORDS`].
#[derive(Debug)]
struct Page<W>(W);

impl<W: AsRef<[AtomicU64]>> Page<W> {
    fn new(words: W) -> Result<Self, LayoutError> {
        match words.as_ref().len() {
            PAGE_WORDS => Ok(Page(words)),
            found => Err(LayoutError::Length { found }),
        }
    }

    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.0.as_ref()[word].load(order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.0.as_ref()[word].store(value, order);
    }

    /// A copy of a stream's counters. Relaxed: they are of no one moment until
    /// the child is done, and then `LoadParent::poll` has acquired them.
    fn counters(&self, stream: usize) -> StreamCounters {
        let line = word::line(stream);
        StreamCounters {
            offered: self.load(line + word::OFFERED, Relaxed),
            offered_bytes: self.load(line + word::OFFERED_BYTES, Relaxed),
            slips: self.load(line + word::SLIPS, Relaxed),
            errors: self.load(line + word::ERRORS, Relaxed),
        }
    }

    /// That nothing has been written to the words `which` picks.
    fn check_unused(&self, which: impl Fn(usize) -> bool) -> Result<(), LayoutError> {
        match (0..PAGE_WORDS).find(|&word| which(word) && self.load(word, Relaxed) != 0) {
            Some(word) => Err(LayoutError::Used { offset: word * 8 }),
            None => Ok(()),
        }
    }

    /// Byte offset of the first reserved word from `first` on that is not 0.
    fn first_used(&self, first: usize, streams: usize) -> Option<usize> {
        (first..PAGE_WORDS)
            .find(|&word| word::is_reserved(word, streams) && self.load(word, Relaxed) != 0)
            .map(|word| word * 8)
    }
}

/// The stores and loads that hand something over. Named so that the loom tests
/// can weaken each in turn and see the protocol break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    StartStore,
    StartLoad,
    StateStore,
    StateLoad,
}

/// The ordering of an edge: the one that is right.
#[cfg(not(all(test, loom)))]
const fn ordering(_: Edge, right: Ordering) -> Ordering {
    right
}

/// The ordering of an edge: the one that is right, unless a test weakens it.
#[cfg(all(test, loom))]
fn ordering(edge: Edge, right: Ordering) -> Ordering {
    if loom_tests::WEAKENED.get() == Some(edge) { Relaxed } else { right }
}

/// Why memory cannot serve as a load page.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// Not [`PAGE_WORDS`] words.
    Length {
        /// Words there are.
        found: usize,
    },
    /// Not created by a parent.
    Magic {
        /// Where the magic number should be.
        found: u64,
    },
    /// Created by another version of Upcall.
    Version {
        /// Its version.
        found: u64,
    },
    /// No streams, or more than [`STREAMS_MAX`].
    Streams {
        /// How many.
        found: u64,
    },
    /// Something stands where nothing has been written yet.
    Used {
        /// In bytes from the start of the page.
        offset: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LayoutError::Length { found } => {
                write!(f, "load page has {found} words, expected {PAGE_WORDS}")
            }
            LayoutError::Magic { found } => {
                write!(f, "load page has magic {found:#018x}, expected {MAGIC:#018x}")
            }
            LayoutError::Version { found } => {
                write!(f, "load page has version {found}, expected {LAYOUT_VERSION}")
            }
            LayoutError::Streams { found } => {
                write!(f, "load page has {found} streams, expected 1 to {STREAMS_MAX}")
            }
            LayoutError::Used { offset } => {
                write!(f, "load page is not new: the word at byte {offset} is not 0")
            }
        }
    }
}

crate::fault::debug_as_display!(LayoutError);

impl core::error::Error for LayoutError {}

/// What the child did that a child does not do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerFault {
    /// A state there is not.
    State {
        /// As found.
        found: u64,
    },
    /// A state that lay behind it.
    StateBack {
        /// As it was.
        from: State,
        /// As found.
        to: State,
    },
    /// A total that became less.
    CounterBack {
        /// Which stream.
        stream: usize,
        /// Which counter: a field of [`StreamCounters`].
        counter: &'static str,
        /// As it was.
        from: u64,
        /// As found.
        to: u64,
    },
    /// Final counters that changed.
    AfterDone {
        /// Which stream.
        stream: usize,
    },
    /// A reserved word was written.
    Reserved {
        /// In bytes from the start of the page.
        offset: usize,
    },
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PeerFault::State { found } => {
                write!(f, "load child is in state {found}, expected 0 to {}", State::Done as u64)
            }
            PeerFault::StateBack { from, to } => {
                write!(f, "load child went back from {from:?} to {to:?}")
            }
            PeerFault::CounterBack { stream, counter, from, to } => {
                write!(f, "load child's {counter} of stream {stream} fell from {from} to {to}")
            }
            PeerFault::AfterDone { stream } => {
                write!(f, "load child's counters of stream {stream} changed after it was done")
            }
            PeerFault::Reserved { offset } => {
                write!(f, "load child wrote the reserved word at byte {offset}")
            }
        }
    }
}

crate::fault::debug_as_display!(PeerFault);

impl core::error::Error for PeerFault {}
