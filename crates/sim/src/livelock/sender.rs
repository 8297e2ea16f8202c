//! When the packets of a receiver come.

use super::plan::gap;
use super::{Receiver, Senders, Setup};
use crate::chance::Chance;
use upcall_core::time::{Instant, Span};

/// One million, of which errors of clocks are parts.
const PPM: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Sender {
    gap: Span,
    is_bursty: bool,
    jitter: Span,
    chance: Chance,
    /// When the last packet was due.
    due: Instant,
    next: Instant,
}

impl Sender {
    /// The sender of receiver `number`, which begins at a random moment of its first gap.
    pub(super) fn new(setup: &Setup, number: usize, mut chance: Chance) -> Self {
        let Receiver { rate, .. } = setup.receivers[number];
        let is_last = number + 1 == setup.receivers.len();
        let rate = match setup.senders {
            Senders::Misbehaving { rate } if is_last => rate,
            _ => rate,
        };
        let error_ppm = u64::from(setup.clock_error_ppm).min(PPM - 1);
        let ppm = chance.between(PPM - error_ppm, PPM + error_ppm);
        let gap_ns = gap(rate).as_nanos();
        let gap = Span::from_nanos((gap_ns * ppm / PPM).max(1));
        let due = Instant::from_nanos(chance.between(0, gap.as_nanos()));
        let is_bursty = setup.senders == Senders::Bursty;
        // Packets do not overtake each other.
        let jitter = if is_bursty { Span::ZERO } else { setup.jitter.min(gap) };
        Sender { gap, is_bursty, jitter, chance, due, next: due }
    }

    /// When the next packet comes.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// That packet came.
    pub(super) fn sent(&mut self) {
        if self.is_bursty {
            self.due += self.chance.exponential(self.gap);
            self.next = self.due;
        } else {
            self.due += self.gap;
            let late = self.chance.between(0, self.jitter.as_nanos());
            self.next = self.next.max(self.due + Span::from_nanos(late));
        }
    }
}
