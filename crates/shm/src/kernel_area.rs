//! The page in which the daemon says which domains there are, and asks
//! something of them.
//!
//! One for each user and CPU. Its [`Writer`] is in the daemon; [`Reader`]s are in
//! that user's domains, which should map it for reading only. The *ksched* area
//! of split-level scheduling (split-level-1991 §3.2.2) but for the ranks of others: those
//! a domain reads from their user areas itself. Nothing here waits, allocates or
//! makes a system call.
//!
//! ```text
//!   daemon                                     domain
//!   attach: (1) generation 0                   entry: (5) generation: 0? nobody
//!           (2) the rest of the line                  (6) copies
//!           (3) generation     -- Rel/Acq ->          (7) same generation? else again
//!           (4) epoch + 1      -- Rel/Acq ->   epoch: changed? look at all lines
//!   detach: (1), (4)
//! ```
//!
//! What (6) copies of a line is of one domain, that of the generation. Each word by
//! itself may change while the domain is there. Requests to yield and user interrupts are
//! counts, for the domain may write nothing here: it compares with what it saw last
//! ([`Reader::yield_requests`], [`Interrupts::since`]).
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, CPU, most domains, epoch, 3 reserved | daemon |
//! | 64..2176 | a line for each of 33 domains, the daemon first: state (1 attached, 2 blocked, 3 stopped, 4 demoted), generation (0: nobody), longest quantum (ns), yield requests, interrupts (bits 0..21 timer, 21..42 I/O ready, 42..63 resume), offences, process, 1 reserved | daemon |
//! | 2176..4096 | reserved | |

use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, DomainId, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::num::NonZeroU64;
use layout::{KIND, word};

mod layout;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use layout::{LAYOUT_VERSION, PAGE_BYTES};

/// Words of a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// How often a reader begins anew when the daemon was writing.
/// Under loom every try is like the first, and more take minutes.
const TRIES_MAX: usize = if cfg!(loom) { 1 } else { 4 };

/// How the daemon takes a domain to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It takes part.
    Attached = 1,
    /// It is blocked in the kernel in the middle of its turn, and is passed over.
    Blocked = 2,
    /// It was stopped (a signal, a debugger), and is passed over.
    Stopped = 3,
    /// It was put into an ordinary class for an offence, and is passed over.
    Demoted = 4,
}

impl State {
    pub(crate) const ALL: [State; 4] =
        [State::Attached, State::Blocked, State::Stopped, State::Demoted];
}

/// A user interrupt (split-level-1991 §3.2.1): what `Runtime::on_interrupt` has a handler called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// A time that was asked for has come.
    Timer = 0,
    /// A descriptor is ready.
    IoReady = 1,
    /// The domain resumes after it was preempted, for no one knows how long.
    Resume = 2,
}

impl Interrupt {
    const ALL: [Interrupt; 3] = [Interrupt::Timer, Interrupt::IoReady, Interrupt::Resume];

    /// Where its count begins, of [`COUNT_BITS`].
    const fn shift(self) -> u32 {
        self as u32 * COUNT_BITS
    }
}

/// Bits of the count of one kind of interrupt.
const COUNT_BITS: u32 = 21;

/// How often each interrupt has been raised so far: to be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts(u64);

impl Interrupts {
    /// Those raised since it was `seen`, each once however often it was. One may
    /// come that was not raised, each 2^21 times that another was; none gets lost
    /// short of 2^21 at once.
    pub fn since(self, seen: Interrupts) -> impl Iterator<Item = Interrupt> {
        let changed = self.0 ^ seen.0;
        let count = (1 << COUNT_BITS) - 1;
        Interrupt::ALL.into_iter().filter(move |kind| changed >> kind.shift() & count != 0)
    }
}

/// A domain that is there, as the daemon takes it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How it stands.
    pub state: State,
    /// Tells it from those that had the number before.
    pub generation: NonZeroU64,
    /// The longest time, in ns, for which it was admitted to run without asking.
    pub quantum_ns_max: u64,
    /// How often it did not yield when it should have.
    pub offences: u64,
    /// Its process; 0: not said.
    pub pid: u32,
}

/// The daemon's end.
///
/// [`Self::attach`] and [`Self::detach`] are for one thread at a time; the other
/// calls are wait-free and may come from the watchdog's meanwhile.
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Writer<W>(Words<W>);

impl<W: AsRef<[AtomicU64]>> Writer<W> {
    /// Makes `words`, all zero and shared with nobody yet, the kernel area of
    /// `cpu`. There are no domains. O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// Wrong length, or a word that is not 0.
    pub fn create(words: W, cpu: u32) -> Result<Self, LayoutError> {
        Words::create_of_cpu(KIND, words, PAGE_WORDS, cpu).map(Writer)
    }

    /// The memory, to be handed to domains.
    pub fn memory(&self) -> &W {
        &self.0.0
    }

    /// Says that `domain` is there: as process `pid`, a `generation` no one has had,
    /// admitted to run `quantum_ns_max` without asking. No requests, no offences.
    pub fn attach(&self, domain: DomainId, generation: NonZeroU64, quantum_ns_max: u64, pid: u32) {
        let line = word::line(domain.line());
        // Relaxed, with the fence: who reads anything of what follows reads this
        // generation or a later one after its own second fence (`Reader::entry`).
        self.0.store(line + word::GENERATION, 0, Relaxed);
        barrier(Edge::GenerationNone, Release);
        self.0.store(line + word::STATE, State::Attached as u64, Relaxed);
        self.0.store(line + word::QUANTUM_NS_MAX, quantum_ns_max, Relaxed);
        self.0.store(line + word::YIELD_REQUESTS, 0, Relaxed);
        self.0.store(line + word::OFFENCES, 0, Relaxed);
        self.0.store(line + word::PID, u64::from(pid), Relaxed);
        // Release pairs with the Acquire in `Reader::entry`.
        let release = ordering(Edge::GenerationNew, Release);
        self.0.store(line + word::GENERATION, generation.get(), release);
        self.count_epoch();
    }

    /// Says that `domain` is not there any more.
    pub fn detach(&self, domain: DomainId) {
        self.0.store(word::line(domain.line()) + word::GENERATION, 0, Relaxed);
        self.count_epoch();
    }

    /// Says how `domain` stands. A store.
    pub fn set_state(&self, domain: DomainId, state: State) {
        // Relaxed: nothing is handed over with it.
        self.0.store(word::line(domain.line()) + word::STATE, state as u64, Relaxed);
    }

    /// Says for how long `domain` may now run without asking, in ns. A store.
    pub fn set_quantum(&self, domain: DomainId, quantum_ns_max: u64) {
        // Relaxed: nothing is handed over with it.
        self.0.store(word::line(domain.line()) + word::QUANTUM_NS_MAX, quantum_ns_max, Relaxed);
    }

    /// Asks `domain` to yield at its next boundary, or when it unmasks. After it
    /// the mask may be looked at ([`crate::user_area::Peer::is_masked`]).
    pub fn request_yield(&self, domain: DomainId) {
        // Relaxed: nothing is handed over with it, and the watchdog alone counts.
        let word = word::line(domain.line()) + word::YIELD_REQUESTS;
        self.0.store(word, self.0.load(word, Relaxed).wrapping_add(1), Relaxed);
        // Pairs with the fence in `user_area::Owner::unmask`: either the owner
        // sees the request, or who looks at the mask now sees it gone.
        barrier(Edge::YieldFence, SeqCst);
    }

    /// Raises `interrupt` in `domain`. What was stored before is seen by who
    /// finds it; afterwards the mask may be looked at, as with [`Self::request_yield`].
    pub fn interrupt(&self, domain: DomainId, interrupt: Interrupt) {
        let interrupts = self.0.at(word::line(domain.line()) + word::INTERRUPTS);
        // Release pairs with the Acquire in `Reader::interrupts`.
        let release = ordering(Edge::InterruptRaise, Release);
        interrupts.fetch_add(1 << interrupt.shift(), release);
        // As in `request_yield`.
        barrier(Edge::YieldFence, SeqCst);
    }

    /// One offence more of `domain`; says how many now.
    pub fn count_offence(&self, domain: DomainId) -> u64 {
        let offences = self.0.at(word::line(domain.line()) + word::OFFENCES);
        // Relaxed: counts for itself.
        offences.fetch_add(1, Relaxed).wrapping_add(1)
    }

    fn count_epoch(&self) {
        // Release pairs with the Acquire in `Reader::epoch`.
        self.0.at(word::EPOCH).fetch_add(1, ordering(Edge::EpochStore, Release));
    }
}

/// A domain's end.
///
/// The daemon may be another version's or gone wrong: each value is copied once
/// and checked. Every call is bounded. `W` is the memory.
#[derive(Debug)]
pub struct Reader<W> {
    words: Words<W>,
    cpu: u32,
}

impl<W: AsRef<[AtomicU64]>> Reader<W> {
    /// Takes up the page that a daemon created in `words`; it may be in use.
    /// O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// It is no such page, of another version, or its reserved words are used.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let (words, cpu) = Words::attach_of_cpu(KIND, words, PAGE_WORDS, word::is_reserved)?;
        Ok(Reader { words, cpu })
    }

    /// Which CPU's domains these are.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Changes whenever a domain comes or goes. A load: while it stays, so do
    /// the generations of all entries.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // Pairs with the Release in `Writer::attach` and `detach`.
        self.words.load(word::EPOCH, ordering(Edge::EpochLoad, Acquire))
    }

    /// Who has the number `domain`; `None`: nobody. Loads from one cache line.
    ///
    /// # Errors
    /// The daemon changed it at every try, or says what cannot be.
    pub fn entry(&self, domain: DomainId) -> Result<Option<Entry>, PeerFault> {
        let line = word::line(domain.line());
        let load = |word| self.words.load(line + word, Relaxed);
        for _ in 0..TRIES_MAX {
            // Acquire pairs with the Release at the end of `Writer::attach`.
            let first = ordering(Edge::GenerationFirst, Acquire);
            let before = self.words.load(line + word::GENERATION, first);
            let Some(generation) = NonZeroU64::new(before) else {
                return Ok(None);
            };
            let (state, pid) = (load(word::STATE), load(word::PID));
            let (quantum_ns_max, offences) = (load(word::QUANTUM_NS_MAX), load(word::OFFENCES));
            // Pairs with the fence in `Writer::attach`: had anything newer been
            // read, a newer generation is read now.
            barrier(Edge::GenerationSecond, Acquire);
            if load(word::GENERATION) == before {
                let Some(state) = check_state(state)? else { return Ok(None) };
                let pid = check_pid(pid)?;
                return Ok(Some(Entry { state, generation, quantum_ns_max, offences, pid }));
            }
            core::hint::spin_loop();
        }
        Err(PeerFault::Torn { page: KIND.page })
    }

    /// How `domain` stands; `None`: not said. A Relaxed load, for who knows from
    /// [`Self::epoch`] that it is still the same.
    ///
    /// # Errors
    /// A state there is not.
    #[inline]
    pub fn state(&self, domain: DomainId) -> Result<Option<State>, PeerFault> {
        // Relaxed: nothing is handed over with it.
        check_state(self.words.load(word::line(domain.line()) + word::STATE, Relaxed))
    }

    /// How often `domain`, the caller's own, was asked to yield so far: it is to look
    /// whether it may go on when this has changed. A Relaxed load, for each boundary.
    #[inline]
    pub fn yield_requests(&self, domain: DomainId) -> u64 {
        // Relaxed: nothing is handed over with it.
        self.words.load(word::line(domain.line()) + word::YIELD_REQUESTS, Relaxed)
    }

    /// The interrupts raised in `domain` so far. A load.
    #[inline]
    pub fn interrupts(&self, domain: DomainId) -> Interrupts {
        // Acquire pairs with the Release in `Writer::interrupt`.
        let acquire = ordering(Edge::InterruptLoad, Acquire);
        Interrupts(self.words.load(word::line(domain.line()) + word::INTERRUPTS, acquire))
    }
}

#[inline]
fn check_state(found: u64) -> Result<Option<State>, PeerFault> {
    // First of all what it mostly is: this is asked of every domain in each hand-off.
    if found == State::Attached as u64 {
        return Ok(Some(State::Attached));
    }
    check_rare_state(found)
}

#[cold]
fn check_rare_state(found: u64) -> Result<Option<State>, PeerFault> {
    if found == 0 {
        return Ok(None);
    }
    let known = State::ALL.into_iter().find(|&state| state as u64 == found);
    let max = State::Demoted as u64;
    known.map(Some).ok_or(PeerFault::Value { page: KIND.page, name: "state", found, max })
}

fn check_pid(found: u64) -> Result<u32, PeerFault> {
    let max = u64::from(u32::MAX);
    u32::try_from(found).map_err(|_| PeerFault::Value { page: KIND.page, name: "pid", found, max })
}
