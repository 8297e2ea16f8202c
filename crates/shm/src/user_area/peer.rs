//! The end of a user area that reads.

use super::{
    Counters, Mask, NEVER, Pending, Rank, Rival, Slot, SlotState, Summary, layout, order, sized,
};
use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, DomainId, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed};
use layout::{KIND, word};

/// How often a reader tries again while the owner is writing. Under loom every try is like the
/// first, and more tries take minutes.
const TRIES_MAX: usize = if cfg!(loom) { 1 } else { 4 };

/// What runs in a domain, as the domain states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The slot that was upcalled last. `None`: nothing runs.
    pub slot: Option<usize>,
    /// When it was upcalled, or ended (`CLOCK_MONOTONIC`).
    pub upcalled_at_ns: u64,
    /// When the domain last asked whether it may go on.
    pub asked_at_ns: u64,
}

/// The end of another process. It reads the state of the domain.
///
/// The peer does not trust the owner: each value is copied once and checked. Every call is bounded
/// and allocates nothing. `W` is the memory, which should be mapped for reading only.
#[derive(Debug)]
pub struct Peer<W> {
    words: Words<W>,
    slots: usize,
}

impl<W: AsRef<[AtomicU64]>> Peer<W> {
    /// Attaches to the area that `domain` created in `words` with `generation`. The area may be in
    /// use. O(1).
    ///
    /// # Errors
    /// The memory is no user area, has another version, domain or generation, does not have the
    /// length it states, or its reserved words are used.
    pub fn attach(words: W, domain: DomainId, generation: u64) -> Result<Self, LayoutError> {
        let (words, slots) = sized(words)?;
        words.check_kind(KIND)?;
        for (name, word, expected) in [
            ("domain", word::DOMAIN, u64::from(domain.number())),
            ("generation", word::GENERATION, generation),
            ("slots", word::SLOTS, slots as u64),
        ] {
            words.identity(KIND, name, word, (expected, expected))?;
        }
        words.check_unused(KIND, word::is_reserved)?;
        Ok(Peer { words, slots })
    }

    /// The memory, to be handed to others.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// The best rank that the domain had to run at `at_ns` (`CLOCK_MONOTONIC`, now or before). It
    /// considers the published rank and every slot whose release had come by then. `None`: nothing
    /// to run. O(slots used), about 1 ns each.
    ///
    /// # Errors
    /// The owner was writing at every try, or states that it uses more slots than it has.
    #[inline]
    pub fn best(&self, at_ns: u64) -> Result<Option<Rank>, PeerFault> {
        self.read(|slots| order::best(self.ready(), shown(slots), at_ns))
    }

    /// A copy of what is ready and of the releases that matter at `at_ns`, all of one moment. Tries
    /// once. O(slots used times [`super::RELEASES_MAX`]), and O(slots used) if few releases matter.
    ///
    /// # Errors
    /// As [`Self::best`].
    pub fn summary(&self, at_ns: u64) -> Result<Summary, PeerFault> {
        let found = self.try_read(|slots| {
            // Relaxed: `Self::try_read` sees if it changes.
            let sequence = self.words.load(word::SEQUENCE, Relaxed);
            let mut summary = Summary::of(sequence, self.ready(), at_ns);
            shown(slots).for_each(|release| summary.add(release, at_ns));
            summary
        })?;
        found.ok_or(PeerFault::Torn { page: KIND.page })
    }

    /// Whether the domain has published nothing since it had this `summary`, and the summary has
    /// all releases by `at_ns`. Costs one load. A hostile domain may change its slots without a
    /// sign.
    #[inline]
    pub fn is_current(&self, summary: &Summary, at_ns: u64) -> bool {
        // Relaxed: a reader that was notified after a publication sees its number, and
        // `Self::try_read` orders what it then copies.
        summary.is_of(self.words.load(word::SEQUENCE, Relaxed), at_ns)
    }

    /// How the domain compares with an activity of rank `running`: from when on it preempts that,
    /// and its [`Self::best`]. One read for both results, for a thread that may cede the CPU.
    /// O(slots used).
    ///
    /// # Errors
    /// As [`Self::best`].
    #[inline]
    pub fn rival(&self, running: Rank, at_ns: u64) -> Result<Rival, PeerFault> {
        self.read(|slots| order::rival(self.ready(), shown(slots), running, at_ns))
    }

    /// The earliest release of any slot. [`NEVER`]: there is none. O(slots used).
    ///
    /// # Errors
    /// As [`Self::best`].
    pub fn next_release(&self) -> Result<u64, PeerFault> {
        self.read(|slots| earliest(copies(slots)))
    }

    /// The earliest release of a slot after `at_ns`. [`NEVER`]: there is none. O(slots used).
    ///
    /// # Errors
    /// As [`Self::best`].
    #[inline]
    pub fn next_release_after(&self, at_ns: u64) -> Result<u64, PeerFault> {
        self.read(|slots| {
            let releases = shown(slots).map(|(release_ns, _)| release_ns);
            releases.filter(|&release_ns| release_ns > at_ns).min().unwrap_or(NEVER)
        })
    }

    /// What runs. Costs three loads. Each value is valid on its own.
    ///
    /// # Errors
    /// The domain states a running slot that does not exist.
    pub fn running(&self) -> Result<Running, PeerFault> {
        let running = self.below("running", word::RUNNING)?;
        Ok(Running {
            slot: running.checked_sub(1),
            upcalled_at_ns: self.words.load(word::UPCALLED_AT_NS, Relaxed),
            asked_at_ns: self.words.load(word::ASKED_AT_NS, Relaxed),
        })
    }

    /// Whether `mask` is in effect. The caller has asked the domain to yield or has interrupted it
    /// before, in the kernel area. Costs one load.
    pub fn is_masked(&self, mask: Mask) -> bool {
        // Relaxed: the fence in `kernel_area::Writer::request_yield` comes before it, and pairs
        // with the fence in `Owner::unmask`.
        self.words.load(mask.word(), Relaxed) != 0
    }

    /// Whether a wake-up of the domain may leave no sign in its wake word. Costs one load.
    #[inline]
    pub fn has_outside_wakes(&self) -> bool {
        // Relaxed: only decides whether the holder yields for a moment.
        self.words.load(word::OUTSIDE_WAKES, Relaxed) != 0
    }

    /// Whether the domain must be woken when the CPU idles. Costs one load.
    pub fn awaits_idle(&self) -> bool {
        // Relaxed: only decides whether the daemon wakes the domain (`Owner::set_awaits_idle`).
        self.words.load(word::AWAITS_IDLE, Relaxed) != 0
    }

    /// The counters of the domain. They may be of different moments. A faulty domain may state any
    /// values.
    pub fn counters(&self) -> Counters {
        let load = |word| self.words.load(word, Relaxed);
        Counters {
            upcalls: load(word::UPCALLS),
            switches: load(word::SWITCHES),
            jobs: load(word::JOBS),
            misses: load(word::MISSES),
            pdus: load(word::PDUS),
            handoffs: load(word::HANDOFFS),
            slack_ns_min: load(word::SLACK_NS_MIN).cast_signed(),
        }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The content of slot `index`. A free slot if the area has no such slot. For display: two
    /// slots may be of different moments.
    ///
    /// # Errors
    /// As [`Self::best`], and a state that does not exist.
    pub fn slot(&self, index: usize) -> Result<Slot, PeerFault> {
        let found = self.read(|slots| slots.get(index).map(SlotCopy::of))?;
        let Some(SlotCopy { next_release_ns, rank, state }) = found else {
            return Ok(Slot::FREE);
        };
        let known = SlotState::ALL.into_iter().find(|&known| known as u32 == state);
        let state = known.ok_or(PeerFault::Value {
            page: KIND.page,
            name: "slot state",
            found: u64::from(state),
            max: SlotState::Running as u64,
        })?;
        Ok(Slot { next_release_ns, rank, state })
    }

    /// Checks that no reserved word was written. O(1), 500 loads, so for occasional use.
    ///
    /// # Errors
    /// [`PeerFault::Reserved`]: the domain writes where it must not.
    pub fn audit(&self) -> Result<(), PeerFault> {
        match self.words.first_used(word::is_reserved) {
            Some(offset) => Err(PeerFault::Reserved { page: KIND.page, offset }),
            None => Ok(()),
        }
    }

    /// The result of `look` at the slots in use, all of one moment.
    #[inline]
    fn read<T>(&self, look: impl Fn(&[SlotWords]) -> T) -> Result<T, PeerFault> {
        match self.try_read(&look)? {
            Some(found) => Ok(found),
            None => self.read_again(look),
        }
    }

    /// All tries after the first. This function is separate because the first try usually succeeds.
    #[cold]
    fn read_again<T>(&self, look: impl Fn(&[SlotWords]) -> T) -> Result<T, PeerFault> {
        for _ in 1..TRIES_MAX {
            core::hint::spin_loop();
            if let Some(found) = self.try_read(&look)? {
                return Ok(found);
            }
        }
        Err(PeerFault::Torn { page: KIND.page })
    }

    /// `None`: the owner was writing.
    #[inline]
    fn try_read<T>(&self, look: impl Fn(&[SlotWords]) -> T) -> Result<Option<T>, PeerFault> {
        // Acquire pairs with the Release at the end of `Owner::publish`.
        let first = ordering(Edge::SequenceFirst, Acquire);
        let before = self.words.load(word::SEQUENCE, first);
        if !before.is_multiple_of(2) {
            return Ok(None);
        }
        // An honest owner never stores a number that is too large, not even during a publication.
        let used = self.below("slots used", word::SLOTS_USED)?;
        let words = &self.words.0.as_ref()[word::HEADER..word::slot(used)];
        let found = look(words.as_chunks().0);
        // Pairs with the fence in `Owner::publish`. If a newer word was read, a newer sequence is
        // read now.
        barrier(Edge::SequenceSecond, Acquire);
        let after = self.words.load(word::SEQUENCE, Relaxed);
        Ok((after == before).then_some(found))
    }

    /// What is ready. Only within [`Self::read`].
    #[inline]
    fn ready(&self) -> Pending {
        let load = |word| self.words.load(word, Relaxed);
        let (order, first) = halves(load(word::READY_ORDERS));
        let rank = Rank { key: load(word::READY_KEY), event: load(word::READY_EVENT), order };
        Pending { rank, first, since_ns: load(word::READY_SINCE_NS) }
    }

    /// A word that is at most the number of slots.
    #[inline]
    fn below(&self, name: &'static str, word: usize) -> Result<usize, PeerFault> {
        let found = self.words.load(word, Relaxed);
        match usize::try_from(found) {
            Ok(index) if index <= self.slots => Ok(index),
            _ => Err(PeerFault::Value { page: KIND.page, name, found, max: self.slots as u64 }),
        }
    }
}

/// A slot in memory.
type SlotWords = [AtomicU64; word::SLOT];

/// The words of a slot that a scan needs, copied.
struct SlotCopy {
    next_release_ns: u64,
    rank: Rank,
    /// A [`SlotState`], or an impossible value.
    state: u32,
}

impl SlotCopy {
    /// Relaxed: `Peer::try_read` has its fences around this.
    #[inline]
    fn of(slot: &SlotWords) -> Self {
        let [next_release_ns, key, event, order_state] =
            [word::NEXT_RELEASE_NS, word::KEY, word::EVENT, word::ORDER_STATE]
                .map(|word| slot[word].load(Relaxed));
        let (order, state) = halves(order_state);
        SlotCopy { next_release_ns, rank: Rank { key, event, order }, state }
    }
}

#[inline]
fn copies(slots: &[SlotWords]) -> impl Iterator<Item = SlotCopy> {
    slots.iter().map(SlotCopy::of)
}

/// The release and the rank of each slot.
#[inline]
fn shown(slots: &[SlotWords]) -> impl Iterator<Item = (u64, Rank)> {
    copies(slots).map(|slot| (slot.next_release_ns, slot.rank))
}

/// The low and the high half of a word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each half is wanted")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn earliest(slots: impl Iterator<Item = SlotCopy>) -> u64 {
    slots.map(|slot| slot.next_release_ns).min().unwrap_or(NEVER)
}
