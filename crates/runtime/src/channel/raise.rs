//! An event to be raised, and how a segment holds it.

use upcall_core::events::When;
use upcall_core::time::Span;
use upcall_shm::channel::Payload;

use super::event::Words;
use super::thread_context;

/// An event to be raised.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::channel::Raise;
/// use upcall::channel::When;
/// let volume = Raise::row(2).words([80, 0, 0, 0, 0]).when(When::BeforeScheduling);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise {
    pub(super) row: u32,
    pub(super) words: Words,
    pub(super) rank: Rank,
    pub(super) when: Option<When>,
}

/// Where the taker finds the rank of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// The type or level.
    Row,
    Stated(u16),
    /// The first word.
    Word,
}

impl Default for Raise {
    fn default() -> Self {
        Raise::row(0)
    }
}

impl Raise {
    /// An event of this type or level. Rings and counters have row 0 only.
    pub const fn row(row: u32) -> Self {
        Raise { row, words: [0; 5], rank: Rank::Row, when: None }
    }

    /// Sets the words that the event carries. A counter does not carry them.
    #[must_use]
    pub const fn words(mut self, words: Words) -> Self {
        self.words = words;
        self
    }

    /// Sets the rank: events of smaller rank are handled first. The default is the type or level.
    #[must_use]
    pub const fn rank(mut self, rank: u16) -> Self {
        self.rank = Rank::Stated(rank);
        self
    }

    /// The first word is the rank, which may be an instant in nanoseconds.
    #[must_use]
    pub(crate) const fn ranked_by_word(mut self) -> Self {
        self.rank = Rank::Word;
        self
    }

    /// Sets when the handler is invoked (§2.3.1), in place of what the taker registered. A delay is
    /// rounded up to microseconds, and is at most 2^32 - 1 us. It begins when the taker finds the
    /// event: at the taker's next crossing, or at once if the taker sleeps.
    #[must_use]
    pub const fn when(mut self, when: When) -> Self {
        self.when = Some(when);
        self
    }

    /// The payload in the segment. The channel itself uses the last two words.
    pub(super) fn payload(&self) -> Payload {
        let (kind, delay_us) = match self.when {
            None => (0, 0),
            Some(When::Now) => (1, 0),
            Some(When::NextCrossing) => (2, 0),
            Some(When::BeforeScheduling) => (3, 0),
            Some(When::After(delay)) => {
                (4, delay.as_nanos().div_ceil(1_000).min(u64::from(u32::MAX)))
            }
        };
        let (by_word, rank) = match self.rank {
            Rank::Row => (0, u16::try_from(self.row).unwrap_or(u16::MAX)),
            Rank::Stated(rank) => (0, rank),
            Rank::Word => (BY_WORD, u16::MAX),
        };
        let from = thread_context::origin();
        let head = kind
            | by_word
            | u64::from(from.dispatcher & DISPATCHER_NUMBER_MAX) << 4
            | u64::from(rank) << 16;
        let [a, b, c, d, e] = self.words;
        [a, b, c, d, e, head | delay_us << 32, from.led_by]
    }
}

/// The bit beside the kind of a delay that says that the first word is the rank.
const BY_WORD: u64 = 8;

/// The greatest number of a dispatcher. 0 stands for no dispatcher.
pub(super) const DISPATCHER_NUMBER_MAX: u16 = 0xFFF;

/// The words that a raiser wrote after those of the event. Every value is valid. A wrong value only
/// yields an event that its raiser did not mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) when: Option<When>,
    pub(super) rank: u64,
    /// The dispatcher whose handlers led to the event, 0 for none, and those handlers.
    pub(super) dispatcher: u16,
    pub(super) led_by: u64,
}

impl Label {
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub(super) const fn of(payload: &Payload) -> Self {
        let [first, .., head, led_by] = *payload;
        let when = match head & (BY_WORD - 1) {
            1 => Some(When::Now),
            2 => Some(When::NextCrossing),
            3 => Some(When::BeforeScheduling),
            4 => Some(When::After(Span::from_micros(head >> 32))),
            _ => None,
        };
        Label {
            when,
            rank: if head & BY_WORD == 0 { head >> 16 & 0xFFFF } else { first },
            dispatcher: (head >> 4) as u16 & DISPATCHER_NUMBER_MAX,
            led_by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_decodes_to_what_was_encoded() {
        let late = Span::from_micros(u64::from(u32::MAX));
        for (when, read) in [
            (When::Now, When::Now),
            (When::NextCrossing, When::NextCrossing),
            (When::BeforeScheduling, When::BeforeScheduling),
            (When::After(Span::from_nanos(1)), When::After(Span::from_micros(1))),
            (When::After(Span::MAX), When::After(late)),
        ] {
            let payload = Raise::row(3).words([1, 2, 3, 4, u64::MAX]).when(when).payload();
            let label = Label::of(&payload);
            assert_eq!((label.when, label.rank, label.dispatcher), (Some(read), 3, 0));
            assert_eq!(payload[..5], [1, 2, 3, 4, u64::MAX]);
        }
        thread_context::set_origin(thread_context::Origin {
            dispatcher: DISPATCHER_NUMBER_MAX,
            led_by: 5,
        });
        let label = Label::of(&Raise::row(70_000).rank(u16::MAX).payload());
        thread_context::set_origin(thread_context::Origin::default());
        assert_eq!((label.when, label.rank), (None, u64::from(u16::MAX)));
        assert_eq!((label.dispatcher, label.led_by), (DISPATCHER_NUMBER_MAX, 5));
        let at = Raise::row(2).words([1 << 40, 0, 0, 0, 0]).when(When::Now).ranked_by_word();
        let label = Label::of(&at.payload());
        assert_eq!((label.when, label.rank, label.dispatcher), (Some(When::Now), 1 << 40, 0));
        // Any payload decodes to a valid label.
        assert_eq!(Label::of(&[u64::MAX; 7]).when, None);
    }
}
