//! The end of a user area that reads.

use super::{Counters, Mask, NEVER, NO_RANK, Pending, Rank, Slot, SlotState, layout, sized};
use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, DomainId, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed};
use layout::{KIND, word};

/// How often a reader begins anew when the owner was writing.
/// Under loom every try is like the first, and more take minutes.
const TRIES_MAX: usize = if cfg!(loom) { 1 } else { 4 };

/// What runs in a domain, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Which slot was upcalled last; `None`: nothing runs.
    pub slot: Option<usize>,
    /// When it was upcalled, or ended (`CLOCK_MONOTONIC`).
    pub upcalled_at_ns: u64,
    /// When the domain last asked whether it may go on.
    pub asked_at_ns: u64,
}

/// How a domain stands to what runs in another: see [`Peer::rival`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The earliest release of a slot that preempts it, from then on (`CLOCK_MONOTONIC`, may be past), or since
    /// when something ready does; [`NEVER`]: there is none ([`Rank::preempts`]).
    pub preempts_at_ns: u64,
    /// The best that was there by the moment asked for.
    pub best: Option<Rank>,
}

/// Another's end of a user area: it learns how things stand there.
///
/// Trusts nothing: each value is copied once and checked. Every call is bounded,
/// whatever the owner does, and allocates nothing. `W` is the memory; what maps
/// it should do so for reading only.
#[derive(Debug)]
pub struct Peer<W> {
    words: Words<W>,
    slots: usize,
}

impl<W: AsRef<[AtomicU64]>> Peer<W> {
    /// Takes up the area that `domain` created in `words` as its generation
    /// `generation`; it may be in use. O(1).
    ///
    /// # Errors
    /// It is no such area, of another version, domain or generation, not as
    /// long as it says, or its reserved words are used.
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

    /// The best rank the domain has of what was there by `at_ns` (`CLOCK_MONOTONIC`, now or
    /// before): of what it said is ready, and of every slot whose release had come by then.
    /// `None`: it has nothing to run. O(slots used), about 1 ns each.
    ///
    /// # Errors
    /// It was writing at every try, or says that it uses more slots than it has.
    #[inline]
    pub fn best(&self, at_ns: u64) -> Result<Option<Rank>, PeerFault> {
        let best = self.read(|slots| {
            let released = copies(slots).filter(|slot| slot.next_release_ns <= at_ns);
            let ready = self.ready();
            let first = if ready.since_ns <= at_ns { ready.rank } else { NO_RANK };
            released.map(|slot| slot.rank).fold(first, Rank::min)
        })?;
        Ok((best.key != NEVER).then_some(best))
    }

    /// As [`Self::best`], with who is first of those of that key; since always. To show it to others.
    ///
    /// # Errors
    /// As [`Self::best`].
    pub fn pending(&self, at_ns: u64) -> Result<Option<Pending>, PeerFault> {
        let all = self.read(|slots| {
            let released = copies(slots).filter(|slot| slot.next_release_ns <= at_ns);
            let ready = Some(self.ready()).filter(|ready| ready.since_ns <= at_ns);
            let ready = ready.unwrap_or(Pending::from(NO_RANK));
            released.map(|slot| Pending::from(slot.rank)).fold(ready, Pending::and)
        })?;
        Ok((all.rank.key != NEVER).then_some(Pending { since_ns: 0, ..all }))
    }

    /// How it stands to what runs with this rank: from when on it preempts that, and [`Self::best`]. One look
    /// for both, for whoever gives way. O(slots used).
    ///
    /// # Errors
    /// As [`Self::best`].
    #[inline]
    pub fn rival(&self, running: Rank, at_ns: u64) -> Result<Rival, PeerFault> {
        let rival = self.read(|slots| {
            let ready = self.ready();
            let best = if ready.since_ns <= at_ns { ready.rank } else { NO_RANK };
            let first = Rank { order: ready.first, ..ready.rank };
            let preempts_at_ns = if first.preempts(&running) { ready.since_ns } else { NEVER };
            copies(slots).fold((preempts_at_ns, best), |(preempts_at_ns, best), slot| {
                let at = if slot.rank.preempts(&running) { slot.next_release_ns } else { NEVER };
                let released = if slot.next_release_ns <= at_ns { slot.rank } else { NO_RANK };
                (preempts_at_ns.min(at), best.min(released))
            })
        });
        let (preempts_at_ns, best) = rival?;
        Ok(Rival { preempts_at_ns, best: (best.key != NEVER).then_some(best) })
    }

    /// The earliest release of any slot; [`NEVER`]: there is none. O(slots used).
    ///
    /// # Errors
    /// As [`Self::best`].
    pub fn next_release(&self) -> Result<u64, PeerFault> {
        self.read(|slots| earliest(copies(slots)))
    }

    /// What runs. Three loads, each right by itself.
    ///
    /// # Errors
    /// It says that a slot runs that it has not.
    pub fn running(&self) -> Result<Running, PeerFault> {
        let running = self.below("running", word::RUNNING)?;
        Ok(Running {
            slot: running.checked_sub(1),
            upcalled_at_ns: self.words.load(word::UPCALLED_AT_NS, Relaxed),
            asked_at_ns: self.words.load(word::ASKED_AT_NS, Relaxed),
        })
    }

    /// Whether `mask` is in effect. For who asks the domain to yield or
    /// interrupts it: after that was done in the kernel area. A load.
    pub fn is_masked(&self, mask: Mask) -> bool {
        // Relaxed: the fence in `kernel_area::Writer::request_yield` comes
        // before it, and pairs with the one in `Owner::unmask`.
        self.words.load(mask.word(), Relaxed) != 0
    }

    /// What the domain counted. Not all of one moment; any values at all from a
    /// domain that lies.
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

    /// Slots there are.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// What it says of slot `index`; a free one if it has not so many. For
    /// display: one of several, each of its own moment.
    ///
    /// # Errors
    /// As [`Self::best`], and a state there is not.
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

    /// That no reserved word was written since. O(1), 500 loads: now and then.
    ///
    /// # Errors
    /// [`PeerFault::Reserved`]: the domain scribbles.
    pub fn audit(&self) -> Result<(), PeerFault> {
        match self.words.first_used(word::is_reserved) {
            Some(offset) => Err(PeerFault::Reserved { page: KIND.page, offset }),
            None => Ok(()),
        }
    }

    /// What `look` makes of the slots in use, all of one moment.
    #[inline]
    fn read<T>(&self, look: impl Fn(&[SlotWords]) -> T) -> Result<T, PeerFault> {
        match self.try_read(&look)? {
            Some(found) => Ok(found),
            None => self.read_again(look),
        }
    }

    /// All tries but the first: out of the way of who need not wait for anybody.
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
        // An honest owner never stores one too many, at any moment.
        let used = self.below("slots used", word::SLOTS_USED)?;
        let words = &self.words.0.as_ref()[word::HEADER..word::slot(used)];
        let found = look(words.as_chunks().0);
        // Pairs with the fence in `Owner::publish`: had anything newer
        // been read, a newer sequence is read now.
        barrier(Edge::SequenceSecond, Acquire);
        let after = self.words.load(word::SEQUENCE, Relaxed);
        Ok((after == before).then_some(found))
    }

    /// Of what is ready. Within [`Self::read`] only.
    #[inline]
    fn ready(&self) -> Pending {
        let load = |word| self.words.load(word, Relaxed);
        let (order, first) = halves(load(word::READY_ORDERS));
        let rank = Rank { key: load(word::READY_KEY), event: load(word::READY_EVENT), order };
        Pending { rank, first, since_ns: load(word::READY_SINCE_NS) }
    }

    /// A word that is no more than there are slots.
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

/// What is scanned of a slot, copied.
struct SlotCopy {
    next_release_ns: u64,
    rank: Rank,
    /// A [`SlotState`], if it is one.
    state: u32,
}

impl SlotCopy {
    /// Relaxed: `Peer::read` has its fences around it.
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

/// The low half of a word and the high one.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn earliest(slots: impl Iterator<Item = SlotCopy>) -> u64 {
    slots.map(|slot| slot.next_release_ns).min().unwrap_or(NEVER)
}
