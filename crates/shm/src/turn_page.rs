//! The turn page: which of one user's domains has the turn on one CPU.
//!
//! The daemon creates one turn page for each user and CPU. Each domain of that user attaches to it.
//! At any moment one of them, the *holder*, has the CPU. The others sleep, each on its [wake
//! word](crate::wake_word). No function here waits, allocates or makes a system call. Every call is
//! wait-free.
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
//! 1. A stores all that the next holder must see, above all A's user area.
//! 2. `pass` fails if the turn is no longer the one that A saw, because the daemon took it from A.
//!    So a domain that was stopped between its look and this call cannot give away the turn of
//!    another domain.
//! 3. A notifies B after it passed the turn. So B sees the turn once it has acknowledged the
//!    notification.
//! 4. A domain that sees its turn also sees what (1) stored.
//! 5. `prepare_wait` fails if a notification is pending. A notification after it changes the word
//!    from `ASLEEP`, and the kernel does not let B sleep.
//! 6. `finish_wait` acknowledges, after a notification or a deadline. B then sees all that was
//!    stored before the notification, above all the turn.
//!
//! # `need_resched`
//!
//! A domain C may become ready without having the turn, because a datagram came or an activity was
//! resumed. C then asks the holder H to look at all user areas again.
//!
//! ```text
//!   C                                          the holder H
//!   (7) publishes in its user area
//!   (8) set_need_resched -- Release/Acquire -> (9) take_need_resched, at a boundary
//!       daemon holds? notify the daemon            reads all user areas
//! ```
//!
//! 8. C sets the flag, then checks which domain has the turn. A holder checks the flag at its next
//!    boundary. The daemon has no boundaries, so C must notify it. If C is about to sleep, C calls
//!    `prepare_wait` before this step. The reason: the daemon may have passed over C as blocked. H
//!    then counts C as back only if C's wake word is `ASLEEP`. H may look only once, so it must
//!    find `ASLEEP` then.
//! 9. Before the daemon sleeps with the turn, it takes the flag with
//!    [`TurnPage::take_need_resched_idle`]. Either the daemon finds the flag, or C finds that the
//!    daemon has the turn. A fence on each side ensures this.
//!
//! A thread W of C's process may wake C while C sleeps without the turn. C's thread then stands
//! behind the thread of H in the kernel's queue. So W asks H to let it run
//! (docs/decisions/0017):
//!
//! ```text
//!   W                                          the holder H
//!   (10) notify C: it slept
//!   (11) set_need_resched - Release/Acquire -> (12) take_need_resched, at a boundary
//!        wakes C                                    C's wake word NOTIFIED? yields the CPU
//! ```
//!
//! 10. C's wake word is `NOTIFIED` until C runs.
//! 11. If no domain has the turn, C runs at once, and asks by itself. So W ignores the result.
//! 12. H looks at the wake words again until C has run: the wake-up may still be on its way.
//!
//! # Accounts
//!
//! Under PS the domains have accounts (docs/decisions/0022). The holder of the turn, or the daemon
//! while it has the turn, loads and stores them. The stores are Relaxed, and `pass` hands them over
//! with the turn. A daemon that takes the turn from a blocked holder may find the accounts of its
//! last boundary. An account counts for the generation of the domain that it names, so a new domain
//! of an old number begins with an account of its own.
//!
//! # Trust
//!
//! Every domain of the user may write the whole page. Domains of one user trust each other in this.
//! An impossible holder is a [`PeerFault`]. The daemon then repairs the turn with
//! [`TurnPage::reset`]. The head of [`crate::wake_word`] tells how each call treats an invalid
//! value.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, CPU, most domains, 4 reserved | daemon, before sharing |
//! | 64..128 | turn (low half: holder; high half: how often the turn was passed or reset), 7 reserved | the holder; the daemon |
//! | 128..192 | need_resched (0 or 1), 7 reserved | any domain; the daemon |
//! | 192..256 | PS: until when service is charged (ns), client that is served plus 1 (0: none), allowance of ordinary programs (signed ns), 5 reserved | the holder; the daemon |
//! | 256..512 | reserved | |
//! | 512..2624 | a line for each of 33 domains, the daemon first: wake word (0 idle, 1 notified, 2 asleep), 7 reserved | any domain; the daemon |
//! | 2624..3152 | PS: for each of 33 domains, the daemon first: generation, lag (signed) | the holder; the daemon |
//! | 3152..4096 | reserved | |

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

/// The holder of the turn and its serial number. The two change together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    holder: DomainId,
    serial: u32,
}

impl Turn {
    /// The domain that has the turn.
    pub const fn holder(self) -> DomainId {
        self.holder
    }

    /// How often the turn was passed or reset, modulo 2^32. If two looks find the same number, the
    /// holder kept the turn in between.
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

    /// The next turn, of `to`.
    const fn next(self, to: DomainId) -> Self {
        Turn { holder: to, serial: self.serial.wrapping_add(1) }
    }
}

/// PS: what the accounts of all domains have in common. Plain numbers: the reader checks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The time until which all service is charged, in ns.
    pub charged_ns: u64,
    /// The client that is served, plus 1; 0: none.
    pub served: u64,
    /// What ordinary programs are owed, in ns.
    pub allowance_ns: i64,
}

/// One end of a turn page. All ends are alike.
///
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct TurnPage<W> {
    words: Words<W>,
    cpu: u32,
}

impl<W: AsRef<[AtomicU64]>> TurnPage<W> {
    /// Makes `words` the turn page of `cpu`. The words must be 0 and not shared yet. The daemon has
    /// the turn. O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// The length is wrong, or a word is not 0.
    pub fn create(words: W, cpu: u32) -> Result<Self, LayoutError> {
        let words = Words::create_of_cpu(KIND, words, PAGE_WORDS, cpu)?;
        Ok(TurnPage { words, cpu })
    }

    /// Attaches to the page that a daemon created in `words`. The page may be in use.
    /// O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// The memory is no turn page, has another version, or its reserved words are used.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let (words, cpu) = Words::attach_of_cpu(KIND, words, PAGE_WORDS, word::is_reserved)?;
        Ok(TurnPage { words, cpu })
    }

    /// The memory, to be handed to other processes.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// The CPU of this page.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// The current turn. Costs one load. A holder that finds its own number sees all that the
    /// previous holder stored before it passed the turn.
    ///
    /// # Errors
    /// The holder's number belongs to no domain.
    #[inline]
    pub fn turn(&self) -> Result<Turn, PeerFault> {
        // Pairs with the Release in `pass` and `reset`.
        Turn::of_word(self.words.load(word::TURN, ordering(Edge::Holder, Acquire)))
    }

    /// The holder: [`Self::turn`] without the serial number.
    ///
    /// # Errors
    /// As [`Self::turn`].
    #[inline]
    pub fn holder(&self) -> Result<DomainId, PeerFault> {
        self.turn().map(Turn::holder)
    }

    /// Passes the turn to `to`, if the turn is still the one that was `seen`. The caller must then
    /// notify `to`. `false` if the turn was passed meanwhile: nothing has changed.
    ///
    /// Only the holder and the daemon call this. The daemon takes the turn from a holder that is
    /// blocked, stopped or gone.
    #[inline]
    pub fn pass(&self, seen: Turn, to: DomainId) -> bool {
        // Release pairs with the Acquire in `turn`. A failed exchange hands over nothing.
        let next = seen.next(to).to_word();
        let release = ordering(Edge::Pass, Release);
        let turn = self.words.at(word::TURN);
        turn.compare_exchange(seen.to_word(), next, release, Relaxed).is_ok()
    }

    /// Gives the turn to `to`, even if the word holds an impossible value. For the daemon alone,
    /// after [`Self::turn`] returned a fault. With a valid turn the daemon uses [`Self::pass`],
    /// which never leaves two domains that both believe they have the turn.
    pub fn reset(&self, to: DomainId) {
        let (serial, _) = halves(self.words.load(word::TURN, Relaxed));
        let turn = Turn { holder: to, serial: serial.wrapping_add(1) };
        // Release pairs with the Acquire in `turn`, as in `pass`.
        self.words.store(word::TURN, turn.to_word(), ordering(Edge::Pass, Release));
    }

    /// The wake word of `domain`. Its futex is shared between processes.
    #[inline]
    pub fn wake_word(&self, domain: DomainId) -> WakeWord<'_> {
        WakeWord::new(self.words.at(word::wake(domain.line())))
    }

    /// Asks the holder to look at all user areas again. The caller has published in its own area
    /// before. Returns `true` if no domain has the turn. The caller must then notify the daemon's
    /// [wake word](Self::wake_word), because the daemon looks only when it is notified.
    ///
    /// For any domain. Costs an exchange and a fence (some 20 ns).
    #[must_use = "the daemon must be notified"]
    pub fn set_need_resched(&self) -> bool {
        // Release pairs with the Acquire in `take_need_resched`. An exchange continues the release
        // sequence: a holder that takes two requests at once sees what both domains published.
        let need_resched = self.words.at(word::NEED_RESCHED);
        need_resched.swap(1, ordering(Edge::NeedReschedSet, Release));
        // Pairs with the fence in `take_need_resched_idle`.
        barrier(Edge::RequestFence, SeqCst);
        // An impossible holder does not look either.
        !self.holder().is_ok_and(|holder| holder != DomainId::DAEMON)
    }

    /// Whether `need_resched` is set. Costs one Relaxed load, for each boundary.
    #[inline]
    pub fn need_resched(&self) -> bool {
        self.words.load(word::NEED_RESCHED, Relaxed) != 0
    }

    /// Takes the request. Returns `true` if there was one: the holder then reads the user areas.
    /// For the holder. Costs one load if there is no request.
    #[inline]
    pub fn take_need_resched(&self) -> bool {
        // Acquire pairs with the Release in `set_need_resched`.
        let acquire = ordering(Edge::NeedReschedTake, Acquire);
        self.need_resched() && self.words.at(word::NEED_RESCHED).swap(0, acquire) != 0
    }

    /// As [`Self::take_need_resched`], for the daemon before it sleeps. The daemon calls this after
    /// it found that it has the turn, and before it computes how long it may sleep. A domain that
    /// sets the flag later finds that the daemon has the turn, and notifies it.
    pub fn take_need_resched_idle(&self) -> bool {
        // Pairs with the fence in `set_need_resched`. One of the two fences comes first, and what
        // was stored before it is seen after the other.
        barrier(Edge::IdleFence, SeqCst);
        self.take_need_resched()
    }

    /// PS: what the accounts have in common. For the holder and the daemon. Three loads.
    #[inline]
    pub fn service(&self) -> Service {
        // Relaxed, here and below: the Acquire in `turn` has handed the words over.
        Service {
            charged_ns: self.words.load(word::CHARGED_NS, Relaxed),
            served: self.words.load(word::SERVED, Relaxed),
            allowance_ns: self.words.load(word::ALLOWANCE_NS, Relaxed).cast_signed(),
        }
    }

    /// PS: stores what [`Self::service`] loads. Three stores.
    #[inline]
    pub fn set_service(&self, service: Service) {
        // Relaxed, here and below: the Release in `pass` hands the words over.
        self.words.store(word::CHARGED_NS, service.charged_ns, Relaxed);
        self.words.store(word::SERVED, service.served, Relaxed);
        self.words.store(word::ALLOWANCE_NS, service.allowance_ns.cast_unsigned(), Relaxed);
    }

    /// PS: the lag of `domain` of this generation; 0 if the account is another's. Two loads.
    #[inline]
    pub fn lag(&self, domain: DomainId, generation: u64) -> i64 {
        let at = word::account(domain.line());
        match self.words.load(at + word::GENERATION, Relaxed) == generation {
            true => self.words.load(at + word::LAG, Relaxed).cast_signed(),
            false => 0,
        }
    }

    /// PS: stores the lag of `domain` of this generation. Two stores.
    #[inline]
    pub fn set_lag(&self, domain: DomainId, generation: u64, lag: i64) {
        let at = word::account(domain.line());
        self.words.store(at + word::GENERATION, generation, Relaxed);
        self.words.store(at + word::LAG, lag.cast_unsigned(), Relaxed);
    }

    /// Writes the identity of the page again, and 0 to all reserved words, after [`Self::audit`]
    /// found them changed. For the daemon. O([`PAGE_WORDS`]).
    pub fn repair(&self) {
        // All stores are Relaxed: these words hand nothing over.
        self.words.mark_of_cpu(KIND, self.cpu);
        (0..PAGE_WORDS)
            .filter(|&word| word::is_reserved(word))
            .for_each(|word| self.words.store(word, 0, Relaxed));
    }

    /// Checks that no domain changed the identity of the page or a reserved word.
    /// O([`PAGE_WORDS`]), so for occasional use.
    ///
    /// # Errors
    /// [`PeerFault::Reserved`]: a domain of the user writes where it must not.
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

/// The high and the low half of a word.
#[expect(clippy::cast_possible_truncation, reason = "each half is wanted")]
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
