//! An event to be raised, and how a segment holds it.

use upcall_core::events::When;
use upcall_core::time::Span;
use upcall_shm::channel::Payload;

use super::event::Words;
use super::thread_context as here;

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
    pub(super) rank: Option<u16>,
    pub(super) when: Option<When>,
}

impl Default for Raise {
    fn default() -> Self {
        Raise::row(0)
    }
}

impl Raise {
    /// Of this type or level; 0 in a ring and in a counter.
    pub const fn row(row: u32) -> Self {
        Raise { row, words: [0; 5], rank: None, when: None }
    }

    /// With these words, which a counter does not carry.
    #[must_use]
    pub const fn words(mut self, words: Words) -> Self {
        self.words = words;
        self
    }

    /// Smaller ones are handled first; the type or level, if none is given.
    #[must_use]
    pub const fn rank(mut self, rank: u16) -> Self {
        self.rank = Some(rank);
        self
    }

    /// When its handler is to be invoked (§2.3.1), in place of what the taker registered. A delay is rounded
    /// up to microseconds, at most 2^32 - 1 of them, and counted from when the taker finds
    /// the event: at its next crossing, at once if it sleeps.
    #[must_use]
    pub const fn when(mut self, when: When) -> Self {
        self.when = Some(when);
        self
    }

    /// As the segment holds it: the last two words are the channel's.
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
        let rank = self.rank.unwrap_or(u16::try_from(self.row).unwrap_or(u16::MAX));
        let from = here::origin();
        let head = kind | u64::from(from.desk & DESK_MAX) << 4 | u64::from(rank) << 16;
        let [a, b, c, d, e] = self.words;
        [a, b, c, d, e, head | delay_us << 32, from.led_by]
    }
}

/// Desks have numbers up to this; 0 is none.
pub(super) const DESK_MAX: u16 = 0xFFF;

/// What a raiser wrote behind its words. Nothing in it can be wrong: at worst it is
/// another event than its raiser meant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) when: Option<When>,
    pub(super) rank: u64,
    /// The desk whose handlers led to it, 0: none; and which.
    pub(super) desk: u16,
    pub(super) led_by: u64,
}

impl Label {
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub(super) const fn of(payload: &Payload) -> Self {
        let [.., head, led_by] = *payload;
        let when = match head & 0xF {
            1 => Some(When::Now),
            2 => Some(When::NextCrossing),
            3 => Some(When::BeforeScheduling),
            4 => Some(When::After(Span::from_micros(head >> 32))),
            _ => None,
        };
        Label { when, rank: head >> 16 & 0xFFFF, desk: (head >> 4) as u16 & DESK_MAX, led_by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_raiser_says_of_its_event_is_read_again() {
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
            assert_eq!((label.when, label.rank, label.desk), (Some(read), 3, 0));
            assert_eq!(payload[..5], [1, 2, 3, 4, u64::MAX]);
        }
        here::set_origin(here::Origin { desk: DESK_MAX, led_by: 5 });
        let label = Label::of(&Raise::row(70_000).rank(u16::MAX).payload());
        here::set_origin(here::Origin::default());
        assert_eq!((label.when, label.rank), (None, u64::from(u16::MAX)));
        assert_eq!((label.desk, label.led_by), (DESK_MAX, 5));
        // Anything can be read, and means something.
        assert_eq!(Label::of(&[u64::MAX; 7]).when, None);
    }
}
