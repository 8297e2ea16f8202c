//! The page in which one user's domains on one CPU say whose turn it is.
//!
//! Created by the daemon, one for each user and CPU; attached to by each
//! domain of that user. At any moment one of them, the *holder*, has the CPU;
//! the others sleep, each on its [wake word](crate::wake_word). No function here waits, allocates or
//! makes a system call. Every call is wait-free.
//!
//! ```text
//!   A (holder)                                 B
//!   (1) stores its work                        loop
//!   (2) pass(turn, B)   -- Release/Acquire ->    (4) turn: mine? done
//!   (3) notify B: asleep? futex wake             (5) prepare_wait: may sleep?
//!                       -- Release/Acquire ->        futex wait while ASLEEP
//!                                                (6) finish_wait
//! ```
//!
//! 1. All that the next holder must see, above all A's user area.
//! 2. Fails if the turn is no longer the one that A saw, because the daemon took it from A. So a
//!    domain that was stopped at this very place does not give away a turn of another domain.
//! 3. Comes after the turn was passed. A domain that acknowledges this sees the turn.
//! 4. A domain that sees the turn sees (1).
//! 5. Fails if a notification is pending. The wake word is then no longer `ASLEEP`, and the kernel
//!    does not let B sleep.
//! 6. Acknowledges, after a notification or a deadline. B then sees all that was stored before it
//!    was notified, above all the turn.
//!
//! # A new look
//!
//! Who becomes ready without having the turn (a datagram came, an activity was
//! resumed) has whoever has the turn look again:
//!
//! ```text
//!   C                                          the holder H
//!   (7) publishes in its user area
//!   (8) request_recheck  -- Release/Acquire -> (9) take_recheck, at a boundary
//!       nobody looks? notify the daemon            reads all user areas
//! ```
//!
//! 8. Comes after `prepare_wait` where C is about to sleep: one that the daemon passed over
//!    counts as there again by its wake word being `ASLEEP`, and H may look but once.
//!    Sets the flag, then looks who has the turn. A domain looks at the flag at
//!    its next boundary; the daemon must be woken for it.
//! 9. Before it sleeps with the turn, the daemon takes the flag with
//!    [`TurnPage::take_recheck_idle`]: either it finds the flag, or C finds
//!    that the daemon has the turn. A fence on each side sees to that.
//!
//! # Trust
//!
//! All domains of a user may write all of this page, and trust each other with
//! it. A holder there cannot be is [`PeerFault`], and is put right by the daemon
//! with [`TurnPage::reset`]. The head of [`crate::wake_word`] says what becomes of a wake word that
//! holds no state.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, CPU, most domains, 4 reserved | daemon, before sharing |
//! | 64..128 | turn (low half: holder; high half: times it changed hands), 7 reserved | the holder; the daemon |
//! | 128..192 | recheck (0 or 1), 7 reserved | anyone |
//! | 192..512 | reserved | |
//! | 512..2624 | a line for each of 33 domains, the daemon first: wake word (0 idle, 1 notified, 2 asleep), 7 reserved | anyone |
//! | 2624..4096 | reserved | |

use crate::edge::{Edge, barrier, ordering};
use crate::wake_word::WakeWord;
use crate::words::Words;
use crate::{AtomicU64, DOMAINS_MAX, DomainId, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release, SeqCst};
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

/// Who has the turn, and the how manieth it is: the two change together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    holder: DomainId,
    serial: u32,
}

impl Turn {
    /// Whose it is.
    pub const fn holder(self) -> DomainId {
        self.holder
    }

    /// How often the turn had been given or taken, modulo 2^32: equal twice,
    /// the holder had it all the while.
    pub const fn serial(self) -> u32 {
        self.serial
    }

    fn to_word(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.holder.number())
    }

    fn of_word(found: u64) -> Result<Self, PeerFault> {
        let (serial, holder) = halves(found);
        match DomainId::new(holder) {
            Some(holder) => Ok(Turn { holder, serial }),
            None => Err(PeerFault::Value {
                page: KIND.page,
                name: "holder",
                found: u64::from(holder),
                max: u64::from(DOMAINS_MAX),
            }),
        }
    }

    /// The one after, of `to`.
    const fn next(self, to: DomainId) -> Self {
        Turn { holder: to, serial: self.serial.wrapping_add(1) }
    }
}

/// One end of a turn page; all ends are alike.
///
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct TurnPage<W> {
    words: Words<W>,
    cpu: u32,
}

impl<W: AsRef<[AtomicU64]>> TurnPage<W> {
    /// Makes `words`, all zero and shared with nobody yet, the turn page of
    /// `cpu`. The daemon has the turn. O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// Wrong length, or a word that is not 0.
    pub fn create(words: W, cpu: u32) -> Result<Self, LayoutError> {
        let words = Words::create_of_cpu(KIND, words, PAGE_WORDS, cpu)?;
        Ok(TurnPage { words, cpu })
    }

    /// Takes up the page that a daemon created in `words`; it may be in use.
    /// O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// It is no such page, of another version, or its reserved words are used.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let (words, cpu) = Words::attach_of_cpu(KIND, words, PAGE_WORDS, word::is_reserved)?;
        Ok(TurnPage { words, cpu })
    }

    /// The memory, to be handed to others.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// Which CPU's turns these are.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Who has the turn. A load. Who finds that it is his own sees all that
    /// was stored by whoever passed it.
    ///
    /// # Errors
    /// A number that no domain has.
    #[inline]
    pub fn turn(&self) -> Result<Turn, PeerFault> {
        // Pairs with the Release in `pass` and `reset`.
        Turn::of_word(self.words.load(word::TURN, ordering(Edge::Holder, Acquire)))
    }

    /// Who has the turn: [`Self::turn`] without the serial number.
    ///
    /// # Errors
    /// As [`Self::turn`].
    #[inline]
    pub fn holder(&self) -> Result<DomainId, PeerFault> {
        self.turn().map(Turn::holder)
    }

    /// Gives the turn to `to`, if it still is as it was `seen`; then `to` must
    /// be rung for. `false`: it has changed hands meanwhile, and nothing was done.
    ///
    /// By the holder; by the daemon, which has looked after a holder that is
    /// blocked, stopped or gone and takes the turn from it; by nobody else.
    #[inline]
    pub fn pass(&self, seen: Turn, to: DomainId) -> bool {
        // Release pairs with the Acquire in `turn`. A failure hands over nothing.
        let next = seen.next(to).to_word();
        let release = ordering(Edge::Pass, Release);
        let turn = self.words.at(word::TURN);
        turn.compare_exchange(seen.to_word(), next, release, Relaxed).is_ok()
    }

    /// Gives the turn to `to`, whatever stands there: when [`Self::turn`] finds
    /// a fault. By the daemon only; with a sound turn it uses [`Self::pass`],
    /// which cannot make two domains think that they have it.
    pub fn reset(&self, to: DomainId) {
        let (serial, _) = halves(self.words.load(word::TURN, Relaxed));
        let turn = Turn { holder: to, serial: serial.wrapping_add(1) };
        // Pairs with the Acquire in `turn`, as `pass` does.
        self.words.store(word::TURN, turn.to_word(), ordering(Edge::Pass, Release));
    }

    /// The wake word of `domain`. Its futex is shared between processes.
    #[inline]
    pub fn wake_word(&self, domain: DomainId) -> WakeWord<'_> {
        WakeWord::new(self.words.at(word::wake(domain.line())))
    }

    /// Asks whoever has the turn to look at all user areas again, after the
    /// caller has published in its own. `true`: a domain that looks by itself
    /// has it not, and the caller must notify the daemon's [wake word](Self::wake_word).
    ///
    /// From anyone; an exchange and a fence, some 20 ns.
    #[must_use = "the daemon does not look by itself"]
    pub fn request_recheck(&self) -> bool {
        // Release pairs with the Acquire in `take_recheck`. An exchange, so that
        // of two requests taken at once both are seen.
        let recheck = self.words.at(word::RECHECK);
        recheck.swap(1, ordering(Edge::RecheckRequest, Release));
        // Pairs with the fence in `take_recheck_idle`.
        barrier(Edge::RequestFence, SeqCst);
        // A holder there cannot be does not look either.
        !self.holder().is_ok_and(|holder| holder != DomainId::DAEMON)
    }

    /// Whether somebody asked for a new look. A Relaxed load, for each boundary.
    #[inline]
    pub fn is_recheck(&self) -> bool {
        self.words.load(word::RECHECK, Relaxed) != 0
    }

    /// Takes the request, if there is one: `true`, and the user areas are to be
    /// read now. By the holder; a load if there is none.
    #[inline]
    pub fn take_recheck(&self) -> bool {
        // Acquire pairs with the Release in `request_recheck`.
        let acquire = ordering(Edge::RecheckTake, Acquire);
        self.is_recheck() && self.words.at(word::RECHECK).swap(0, acquire) != 0
    }

    /// As [`Self::take_recheck`], for the daemon once it has found the turn to be
    /// its own and before it looks for how long it may sleep: whoever asks
    /// later finds that the daemon has the turn, and rings.
    pub fn take_recheck_idle(&self) -> bool {
        // Pairs with the fence in `request_recheck`: of two fences one comes
        // first, and what was stored before it is seen after the other.
        barrier(Edge::IdleFence, SeqCst);
        self.take_recheck()
    }

    /// Writes once more what identifies the page, and 0 to reserved words: after
    /// [`Self::audit`] found them written. By the daemon. O([`PAGE_WORDS`]).
    pub fn repair(&self) {
        // Relaxed, all of it: nobody has got anything by them.
        self.words.mark_of_cpu(KIND, self.cpu);
        (0..PAGE_WORDS)
            .filter(|&word| word::is_reserved(word))
            .for_each(|word| self.words.store(word, 0, Relaxed));
    }

    /// That no reserved word was written since, nor what identifies the page.
    /// O([`PAGE_WORDS`]): now and then.
    ///
    /// # Errors
    /// [`PeerFault::Reserved`]: some domain of the user scribbles.
    pub fn audit(&self) -> Result<(), PeerFault> {
        if self.words.check_of_cpu(KIND) != Ok(self.cpu) {
            return Err(PeerFault::Reserved { page: KIND.page, offset: 0 });
        }
        match self.words.first_used(word::is_reserved) {
            Some(offset) => Err(PeerFault::Reserved { page: KIND.page, offset }),
            None => Ok(()),
        }
    }
}

/// High and low half of a word.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
