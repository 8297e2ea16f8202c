//! The load page: how a load-generating child reports to its parent.
//!
//! The parent is the command when it runs a spec. It creates the page and starts a child that sends
//! the streams' datagrams. It reads from the page how many datagrams the child has sent.
//! [`LoadParent`] and [`LoadChild`] are the two ends. Neither waits, allocates or makes a system
//! call. A caller that waits polls.
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
//! 1. The parent stores magic, version and number of streams before it starts the child.
//! 2. The child has opened its sockets.
//! 3. All children are ready and begin at one moment. A child that sees the start sees all that the
//!    parent stored before.
//! 4. The child is about to send the first datagram. The states come in this order, and a child may
//!    skip some.
//! 5. The parent may read the counters meanwhile. They only grow. The counters of one stream need
//!    not be of the same moment.
//! 6. The run ends early.
//! 7. The counters are final. A parent that sees [`State::Done`] sees all of them.
//!
//! Each cache line has one writer. The [layout](self#layout) is fixed and has a version of its own.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, stream count, 5 reserved | parent, before sharing |
//! | 64..128 | start at (ns), stop, 6 reserved | parent |
//! | 128..192 | state, 7 reserved | child |
//! | 192..4096 | a line for each stream: offered, bytes, slips, errors, 4 reserved | child |
//!
//! Reserved words are 0, and so are the lines of streams that do not exist.

use crate::edge::{Edge, ordering};
use crate::{AtomicU64, Ordering};
use Ordering::{Acquire, Relaxed, Release};
use layout::{MAGIC, word};

mod fault;
mod layout;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
mod report;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use fault::{LayoutError, PeerFault};
pub use layout::{LAYOUT_VERSION, PAGE_BYTES, PAGE_WORDS, STREAMS_MAX};
pub use report::{State, StreamCounters};

/// The parent's end. It starts and stops the child, and reads the child's reports.
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
    /// Makes `words` a page for `streams` (1 to [`STREAMS_MAX`]). The words must be 0 and not
    /// shared yet.
    ///
    /// # Errors
    /// The length or the number of streams is wrong, or a word is not 0.
    pub fn create(words: W, streams: usize) -> Result<Self, LayoutError> {
        let page = Page::new(words)?;
        if streams == 0 || streams > STREAMS_MAX {
            return Err(LayoutError::Streams { found: streams as u64 });
        }
        page.check_unused(|_| true)?;
        // Relaxed: the start of the child process orders these stores before everything that the
        // child does.
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

    /// Starts the child at `at_ns` (`CLOCK_MONOTONIC`; 0 counts as 1). A child that sees the start
    /// sees what this process stored before.
    pub fn start(&self, at_ns: u64) {
        // Release pairs with the Acquire in `LoadChild::start_at_ns`.
        let order = ordering(Edge::LoadStartStore, Release);
        self.page.store(word::START_AT_NS, at_ns.max(1), order);
    }

    /// Asks the child to finish early.
    pub fn stop(&self) {
        // Relaxed: this access hands nothing over.
        self.page.store(word::STOP, 1, Relaxed);
    }

    /// Reads what the child has reported since the last call, and returns its state.
    ///
    /// With [`State::Done`] the counters are final. O([`PAGE_WORDS`]) loads, a few microseconds:
    /// for reporting, not for a hot path.
    ///
    /// # Errors
    /// The child broke the protocol. Counters and state keep their old values. The caller should
    /// not trust the child any further.
    pub fn poll(&mut self) -> Result<State, PeerFault> {
        // The state is loaded before the counters. Acquire pairs with the Release in
        // `LoadChild::store_state`, so the counters of a finished child are final.
        let state = self.page.load(word::STATE, ordering(Edge::LoadStateLoad, Acquire));
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

    /// The counters of each stream at the last [`Self::poll`] without a fault.
    pub fn streams(&self) -> &[StreamCounters] {
        &self.counters[..self.streams]
    }

    /// The state of the child at the last [`Self::poll`] without a fault.
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

    /// Checks the child's lines only. The parent alone writes the others.
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

/// The child's end. It learns when to start, and reports.
///
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct LoadChild<W> {
    page: Page<W>,
    streams: usize,
}

impl<W: AsRef<[AtomicU64]>> LoadChild<W> {
    /// Attaches to the page that a parent created in `words`.
    ///
    /// # Errors
    /// The memory is no load page, has another version, or is not as the parent leaves it.
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
        // The parent may already have started or stopped the child.
        page.check_unused(|word| {
            word > word::STREAMS && word != word::START_AT_NS && word != word::STOP
        })?;
        Ok(LoadChild { page, streams })
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Reports that the child waits for the start.
    pub fn set_ready(&mut self) {
        self.store_state(State::Ready);
    }

    /// The time of the start (`CLOCK_MONOTONIC`). `None` if the parent has not stored it yet: call
    /// this again later.
    pub fn start_at_ns(&self) -> Option<u64> {
        // Pairs with the Release in `LoadParent::start`.
        let at_ns = self.page.load(word::START_AT_NS, ordering(Edge::LoadStartLoad, Acquire));
        (at_ns != 0).then_some(at_ns)
    }

    /// Whether the parent asks the child to finish early.
    pub fn stop_requested(&self) -> bool {
        // Relaxed: this access hands nothing over.
        self.page.load(word::STOP, Relaxed) != 0
    }

    /// Reports that the child sends.
    pub fn set_running(&mut self) {
        self.store_state(State::Running);
    }

    /// The line of stream `index`, for the thread that sends it. `None` if the page has no such
    /// stream.
    pub fn stream(&self, index: usize) -> Option<StreamLine<'_>> {
        let page = Page(self.page.0.as_ref());
        (index < self.streams).then_some(StreamLine { page, stream: index })
    }

    /// Reports that everything is sent and the counters are final. Every [`StreamLine`] has been
    /// dropped by now, so the counters do not change any more.
    pub fn finish(self) {
        self.store_state(State::Done);
    }

    fn store_state(&self, state: State) {
        // Release pairs with the Acquire in `LoadParent::poll`, which loads the counters
        // afterwards.
        self.page.store(word::STATE, state as u64, ordering(Edge::LoadStateStore, Release));
    }
}

/// The child's line for one stream. For one thread at a time.
#[derive(Debug)]
pub struct StreamLine<'child> {
    page: Page<&'child [AtomicU64]>,
    stream: usize,
}

impl StreamLine<'_> {
    /// Reports the totals so far. No total may fall. Costs four stores to one cache line, cheap
    /// enough for each batch.
    pub fn publish(&self, counters: &StreamCounters) {
        let line = word::line(self.stream);
        // Relaxed: `LoadChild::finish` hands the final totals over.
        self.page.store(line + word::OFFERED, counters.offered, Relaxed);
        self.page.store(line + word::OFFERED_BYTES, counters.offered_bytes, Relaxed);
        self.page.store(line + word::SLIPS, counters.slips, Relaxed);
        self.page.store(line + word::ERRORS, counters.errors, Relaxed);
    }
}

/// The words of a page, after a check of their number.
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

    /// A copy of a stream's counters. Relaxed: the counters are of one moment only once the child
    /// is done. `LoadParent::poll` has acquired them then.
    fn counters(&self, stream: usize) -> StreamCounters {
        let line = word::line(stream);
        StreamCounters {
            offered: self.load(line + word::OFFERED, Relaxed),
            offered_bytes: self.load(line + word::OFFERED_BYTES, Relaxed),
            slips: self.load(line + word::SLIPS, Relaxed),
            errors: self.load(line + word::ERRORS, Relaxed),
        }
    }

    /// Checks that the words picked by `which` are 0.
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
