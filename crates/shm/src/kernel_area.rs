//! The kernel area: the pages in which the daemon lists the domains and puts its requests to them.
//!
//! There is one area for each user and CPU. Its [`Writer`] is in the daemon. Its [`Reader`]s are in
//! that user's domains, which should map it for reading only. This area is the *ksched* area of
//! split-level scheduling (split-level-1991 §3.2.2), but without the ranks of other domains. A
//! domain reads those from their user areas. No function here waits, allocates or makes a system
//! call.
//!
//! ```text
//!   daemon                                     domain
//!   attach: (1) generation 0                   entry: (5) generation: 0? none
//!           (2) the rest of the line                  (6) copies
//!           (3) generation     -- Rel/Acq ->          (7) same generation? else again
//!           (4) epoch + 1      -- Rel/Acq ->   epoch: changed? look at all lines
//!   detach: (1), (4)
//! ```
//!
//! All words of a line that (6) copies belong to one domain, the domain of that generation. Each
//! single word may change while the domain is attached. Yield requests and user interrupts are
//! counts, because the domain may not write here. The domain compares each count with the one it
//! saw last ([`Reader::yield_requests`], [`Interrupts::since`]).
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, CPU, most domains, epoch, when the CPU last idled (ns), longest interruption of an upcall (ns), from when on work without a reservation may run (ns; 0: it may) | daemon |
//! | 64..2176 | a line for each of 33 domains, the daemon first: state (1 attached, 2 blocked, 3 stopped, 4 demoted), generation (0: no domain), longest quantum (ns), yield requests, interrupts (bits 0..21 timer, 21..42 I/O ready, 42..63 resume), offences, process, PS: part of the CPU (millionths; 0: none) | daemon |
//! | 2176..19072 | for each of 33 domains 64 words, one a group: PS: the domain's part of the group (millionths; 0: none) | daemon |
//! | 19072..20480 | reserved | |

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

pub use layout::{AREA_BYTES, GROUPS_MAX, LAYOUT_VERSION};

/// Words of an area.
pub const AREA_WORDS: usize = AREA_BYTES / 8;

/// How often a reader tries again while the daemon is writing. Under loom every try is like the
/// first, and more tries take minutes.
const TRIES_MAX: usize = if cfg!(loom) { 1 } else { 4 };

/// The state of a domain, as the daemon sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The domain gets turns.
    Attached = 1,
    /// The domain blocked in the kernel during its turn. It gets no turns until it sleeps on its
    /// wake word.
    Blocked = 2,
    /// The domain was stopped (by a signal or a debugger). It gets no turns until it sleeps on its
    /// wake word.
    Stopped = 3,
    /// The watchdog lowered the priority or the class of its thread for an offence. The domain gets
    /// no turns.
    Demoted = 4,
}

impl State {
    pub(crate) const ALL: [State; 4] =
        [State::Attached, State::Blocked, State::Stopped, State::Demoted];
}

/// A user interrupt (split-level-1991 §3.2.1). `Runtime::on_interrupt` registers a handler for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// A requested time has come.
    Timer = 0,
    /// A descriptor is ready.
    IoReady = 1,
    /// The domain resumes after a preemption of unknown length.
    Resume = 2,
}

impl Interrupt {
    const ALL: [Interrupt; 3] = [Interrupt::Timer, Interrupt::IoReady, Interrupt::Resume];

    /// The lowest bit of its count, which has [`COUNT_BITS`].
    const fn shift(self) -> u32 {
        self as u32 * COUNT_BITS
    }
}

/// Bits of the count of one kind of interrupt.
const COUNT_BITS: u32 = 21;

/// How often each interrupt has been raised so far. [`Interrupts::since`] compares two such values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts(u64);

impl Interrupts {
    /// The interrupts raised since the count was `seen`, each at most once. Once in 2^21 raises of
    /// one kind, the next kind may be reported without being raised. No interrupt is lost unless
    /// 2^21 come at once.
    pub fn since(self, seen: Interrupts) -> impl Iterator<Item = Interrupt> {
        let changed = self.0 ^ seen.0;
        let count = (1 << COUNT_BITS) - 1;
        Interrupt::ALL.into_iter().filter(move |kind| changed >> kind.shift() & count != 0)
    }
}

/// An attached domain, as the daemon sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its state.
    pub state: State,
    /// Distinguishes the domain from earlier ones with the same number.
    pub generation: NonZeroU64,
    /// The longest time, in ns, that admission lets the domain run without asking.
    pub quantum_ns_max: u64,
    /// How often the watchdog had to act against the domain.
    pub offences: u64,
    /// The process of the domain. 0: not stated.
    pub pid: u32,
}

/// The daemon's end.
///
/// One thread at a time may call [`Self::attach`] and [`Self::detach`]. The other calls are
/// wait-free, and the watchdog may make them at the same time. `W` is the memory, owned or
/// borrowed.
#[derive(Debug)]
pub struct Writer<W>(Words<W>);

impl<W: AsRef<[AtomicU64]>> Writer<W> {
    /// Makes `words` the kernel area of `cpu`. The words must be 0 and not shared yet. There are no
    /// domains. O([`AREA_WORDS`]).
    ///
    /// # Errors
    /// The length is wrong, or a word is not 0.
    pub fn create(words: W, cpu: u32) -> Result<Self, LayoutError> {
        Words::create_of_cpu(KIND, words, AREA_WORDS, cpu).map(Writer)
    }

    /// The memory, to be handed to domains.
    pub fn memory(&self) -> &W {
        &self.0.0
    }

    /// Attaches `domain`: process `pid`, a new `generation`, admitted to run `quantum_ns_max`
    /// without asking. It has no requests and no offences.
    pub fn attach(&self, domain: DomainId, generation: NonZeroU64, quantum_ns_max: u64, pid: u32) {
        let line = word::line(domain.line());
        // Relaxed, before a Release fence. A reader that reads a word stored after the fence also
        // reads this generation or a later one after its own fence (`Reader::entry`).
        self.0.store(line + word::GENERATION, 0, Relaxed);
        barrier(Edge::GenerationNone, Release);
        self.0.store(line + word::STATE, State::Attached as u64, Relaxed);
        self.0.store(line + word::QUANTUM_NS_MAX, quantum_ns_max, Relaxed);
        self.0.store(line + word::YIELD_REQUESTS, 0, Relaxed);
        self.0.store(line + word::OFFENCES, 0, Relaxed);
        self.0.store(line + word::PID, u64::from(pid), Relaxed);
        self.0.store(line + word::SHARE_PPM, 0, Relaxed);
        (0..GROUPS_MAX).for_each(|group| self.set_group_part(domain, group, 0));
        // Release pairs with the Acquire in `Reader::entry`.
        let release = ordering(Edge::GenerationNew, Release);
        self.0.store(line + word::GENERATION, generation.get(), release);
        self.count_epoch();
    }

    /// Detaches `domain`.
    pub fn detach(&self, domain: DomainId) {
        self.0.store(word::line(domain.line()) + word::GENERATION, 0, Relaxed);
        self.count_epoch();
    }

    /// Sets the state of `domain`. Costs one store.
    pub fn set_state(&self, domain: DomainId, state: State) {
        // Relaxed: this access hands nothing over.
        self.0.store(word::line(domain.line()) + word::STATE, state as u64, Relaxed);
    }

    /// Sets how long `domain` may now run without asking, in ns. Costs one store.
    pub fn set_quantum(&self, domain: DomainId, quantum_ns_max: u64) {
        // Relaxed: this access hands nothing over.
        self.0.store(word::line(domain.line()) + word::QUANTUM_NS_MAX, quantum_ns_max, Relaxed);
    }

    /// PS: sets the part of the CPU that `domain` has, in millionths; 0: none. For the daemon's own
    /// line the part of ordinary programs. Costs one store.
    pub fn set_share(&self, domain: DomainId, share_ppm: u32) {
        // Relaxed: this access hands nothing over.
        let word = word::line(domain.line()) + word::SHARE_PPM;
        self.0.store(word, u64::from(share_ppm), Relaxed);
    }

    /// PS: sets the part that `domain` has of its group with this number, in millionths; 0: none.
    /// No effect from [`GROUPS_MAX`] on. Costs one store.
    pub fn set_group_part(&self, domain: DomainId, group: usize, part_ppm: u32) {
        if group < GROUPS_MAX {
            // Relaxed: this access hands nothing over.
            let word = word::group_parts(domain.line()) + group;
            self.0.store(word, u64::from(part_ppm), Relaxed);
        }
    }

    /// Asks `domain` to yield at its next boundary, or when it unmasks. The caller may then look at
    /// the mask ([`crate::user_area::Peer::is_masked`]).
    pub fn request_yield(&self, domain: DomainId) {
        // Relaxed: the count hands nothing over, and only the watchdog changes it.
        let word = word::line(domain.line()) + word::YIELD_REQUESTS;
        self.0.store(word, self.0.load(word, Relaxed).wrapping_add(1), Relaxed);
        // Pairs with the fence in `user_area::Owner::unmask`. Either the owner sees the request, or
        // a caller that looks at the mask now sees that it is gone.
        barrier(Edge::YieldFence, SeqCst);
    }

    /// Raises `interrupt` in `domain`. A domain that finds it sees what the caller stored before.
    /// The caller may then look at the mask, as after [`Self::request_yield`].
    pub fn interrupt(&self, domain: DomainId, interrupt: Interrupt) {
        let interrupts = self.0.at(word::line(domain.line()) + word::INTERRUPTS);
        // Release pairs with the Acquire in `Reader::interrupts`.
        let release = ordering(Edge::InterruptRaise, Release);
        interrupts.fetch_add(1 << interrupt.shift(), release);
        // As in `request_yield`.
        barrier(Edge::YieldFence, SeqCst);
    }

    /// Counts one more offence of `domain`. Returns how many there are now.
    pub fn count_offence(&self, domain: DomainId) -> u64 {
        let offences = self.0.at(word::line(domain.line()) + word::OFFENCES);
        // Relaxed: the count is used on its own.
        offences.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// No domain has anything to run at `now_ns`. Costs one store.
    pub fn note_idle(&self, now_ns: u64) {
        // Relaxed: the time hands nothing over. A domain that reads an old time only keeps its
        // debts for longer.
        self.0.store(word::IDLED_NS, now_ns, Relaxed);
    }

    /// Domains that are away may interrupt an upcall of a reader for `ns_max` when they come back
    /// from the kernel. 0: no domain is away. Costs one store.
    pub fn set_interruption_max(&self, ns_max: u64) {
        // Relaxed: the number hands nothing over. A domain reads it after it got the turn.
        self.0.store(word::INTERRUPTION_NS_MAX, ns_max, Relaxed);
    }

    /// Work without a reservation may run from `at_ns` on; 0: it may. Costs one store.
    pub fn set_unreserved_from(&self, at_ns: u64) {
        // Relaxed: the time hands nothing over. A domain that reads an old time runs such work for
        // one quantum more, or waits until then.
        self.0.store(word::UNRESERVED_FROM_NS, at_ns, Relaxed);
    }

    fn count_epoch(&self) {
        // Release pairs with the Acquire in `Reader::epoch`.
        self.0.at(word::EPOCH).fetch_add(1, ordering(Edge::EpochStore, Release));
    }
}

/// A domain's end.
///
/// The daemon may be of another version or faulty, so each value is copied once and checked. Every
/// call is bounded. `W` is the memory.
#[derive(Debug)]
pub struct Reader<W> {
    words: Words<W>,
    cpu: u32,
}

impl<W: AsRef<[AtomicU64]>> Reader<W> {
    /// Attaches to the page that a daemon created in `words`. The page may be in use.
    /// O([`AREA_WORDS`]).
    ///
    /// # Errors
    /// The memory is no kernel area, has another version, or its reserved words are used.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let (words, cpu) = Words::attach_of_cpu(KIND, words, AREA_WORDS, word::is_reserved)?;
        Ok(Reader { words, cpu })
    }

    /// The CPU of this page.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// A number that changes whenever a domain attaches or detaches. While it is the same, the
    /// generations of all entries are the same. Costs one load.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // Pairs with the Release in `Writer::attach` and `detach`.
        self.words.load(word::EPOCH, ordering(Edge::EpochLoad, Acquire))
    }

    /// The domain that has the number `domain`. `None` if there is none. Costs loads from one cache
    /// line.
    ///
    /// # Errors
    /// The daemon changed the line at every try, or wrote an impossible value.
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
            // Pairs with the fence in `Writer::attach`. If a newer word was read, a newer
            // generation is read now.
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

    /// The state of `domain`. `None` if it was not stated. Costs one Relaxed load. For a caller
    /// that knows from [`Self::epoch`] that the domain is still the same.
    ///
    /// # Errors
    /// The state does not exist.
    #[inline]
    pub fn state(&self, domain: DomainId) -> Result<Option<State>, PeerFault> {
        // Relaxed: this access hands nothing over.
        check_state(self.words.load(word::line(domain.line()) + word::STATE, Relaxed))
    }

    /// PS: the part of the CPU that `domain` has, in millionths; 0: none. Costs one Relaxed load.
    #[inline]
    pub fn share_ppm(&self, domain: DomainId) -> u32 {
        // Relaxed: this access hands nothing over. A part above the whole counts as the whole where
        // it is used.
        let found = self.words.load(word::line(domain.line()) + word::SHARE_PPM, Relaxed);
        u32::try_from(found).unwrap_or(u32::MAX)
    }

    /// PS: the part that `domain` has of its group with this number, in millionths; 0: none, or
    /// there is no such group. Costs one Relaxed load.
    #[inline]
    pub fn group_part_ppm(&self, domain: DomainId, group: usize) -> u32 {
        if group >= GROUPS_MAX {
            return 0;
        }
        // Relaxed: as `share_ppm`.
        let found = self.words.load(word::group_parts(domain.line()) + group, Relaxed);
        u32::try_from(found).unwrap_or(u32::MAX)
    }

    /// How often `domain`, the caller's own, was asked to yield so far. If the number has changed,
    /// the domain checks whether it may go on. Costs one Relaxed load, for each boundary.
    #[inline]
    pub fn yield_requests(&self, domain: DomainId) -> u64 {
        // Relaxed: this access hands nothing over.
        self.words.load(word::line(domain.line()) + word::YIELD_REQUESTS, Relaxed)
    }

    /// When no domain had anything to run, at the last time; 0: never. Costs one Relaxed load. The
    /// caller checks that the time is not in the future.
    #[inline]
    pub fn idled_ns(&self) -> u64 {
        // Relaxed: this access hands nothing over (`Writer::note_idle`).
        self.words.load(word::IDLED_NS, Relaxed)
    }

    /// How long domains that are away may interrupt an upcall, in ns; 0: no domain is away. The
    /// value may be old: domains may have come back since. Costs one Relaxed load, for each upcall.
    #[inline]
    pub fn interruption_ns_max(&self) -> u64 {
        // Relaxed: this access hands nothing over (`Writer::set_interruption_max`).
        self.words.load(word::INTERRUPTION_NS_MAX, Relaxed)
    }

    /// From when on work without a reservation may run, in ns; 0 or the past: it may. Costs one
    /// Relaxed load.
    #[inline]
    pub fn unreserved_from_ns(&self) -> u64 {
        // Relaxed: this access hands nothing over (`Writer::set_unreserved_from`).
        self.words.load(word::UNRESERVED_FROM_NS, Relaxed)
    }

    /// The interrupts raised in `domain` so far. Costs one load.
    #[inline]
    pub fn interrupts(&self, domain: DomainId) -> Interrupts {
        // Acquire pairs with the Release in `Writer::interrupt`.
        let acquire = ordering(Edge::InterruptLoad, Acquire);
        Interrupts(self.words.load(word::line(domain.line()) + word::INTERRUPTS, acquire))
    }
}

#[inline]
fn check_state(found: u64) -> Result<Option<State>, PeerFault> {
    // The usual state is checked first, because each hand-off checks every domain.
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
