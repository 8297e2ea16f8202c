//! How urgent the readiness of a descriptor is, and how its watch hands that to the service's
//! thread.
//!
//! A handler states a new urgency in the middle of an upcall, so the hand-over may not wait. It is
//! a channel segment of one type, of which the latest event counts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_core::events::NextFrame;
use upcall_core::time::Instant;
use upcall_shm::channel::{self, Form, Payload, typed};

/// How urgent the readiness of a descriptor is, and from when on it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The readiness has this rank, and is reported at once. The smaller rank goes first.
    Rank(u64),
    /// The descriptor brings this frame (ecalls-2001 §3.3). The rank is the display time of the
    /// frame, in nanoseconds of `CLOCK_MONOTONIC`. The readiness is reported from the beginning of
    /// the frame's slot on, and not before.
    Frame(NextFrame),
}

impl Urgency {
    pub(super) fn rank(self) -> u64 {
        match self {
            Urgency::Rank(rank) => rank,
            Urgency::Frame(frame) => frame.display_time().as_nanos(),
        }
    }

    /// From when on readiness is reported.
    pub(super) fn due(self) -> Instant {
        match self {
            Urgency::Rank(_) => Instant::ZERO,
            Urgency::Frame(frame) => frame.slot(),
        }
    }

    /// The counter of the frame; 0 without a frame.
    pub(super) fn counter(self) -> u64 {
        match self {
            Urgency::Rank(_) => 0,
            Urgency::Frame(frame) => frame.counter,
        }
    }

    /// The first word of a frame is never 0.
    fn to_payload(self) -> Payload {
        let [a, b, c] = match self {
            Urgency::Rank(rank) => [0, rank, 0],
            Urgency::Frame(frame) => frame.to_words(),
        };
        [a, b, c, 0, 0, 0, 0]
    }

    fn of_payload([a, b, c, ..]: Payload) -> Self {
        NextFrame::from_words([a, b, c]).map_or(Urgency::Rank(b), Urgency::Frame)
    }
}

const FORM: Form = Form::Typed { types: 1 };

type Words = Arc<[AtomicU64]>;

/// The end that states an urgency.
#[derive(Debug)]
pub(super) struct UrgencyRaiser(typed::Raiser<Words>);

/// The end that takes the latest one.
#[derive(Debug)]
pub(super) struct UrgencyTaker(typed::Taker<Words>);

/// Both ends of a new segment. Allocates.
pub(super) fn hand_over() -> (UrgencyRaiser, UrgencyTaker) {
    let words: Words = (0..FORM.words()).map(|_| AtomicU64::new(0)).collect();
    channel::create(words.clone(), FORM).expect("the words are 0, and as many as the form has");
    let raiser = typed::Raiser::attach(words.clone(), 1).expect("the segment was just made");
    let taker = typed::Taker::attach(words, 1).expect("the segment was just made");
    (UrgencyRaiser(raiser), UrgencyTaker(taker))
}

impl UrgencyRaiser {
    /// Wait-free.
    pub(super) fn state(&mut self, urgency: Urgency) {
        // Type 0 exists.
        let _ = self.0.post(0, &urgency.to_payload());
    }
}

impl UrgencyTaker {
    /// The urgency that was stated last. `None` if that was taken already.
    pub(super) fn take(&mut self) -> Option<Urgency> {
        // A fault is impossible inside one process, except that the segment is written all the
        // time. Then the next look finds the urgency.
        let event = self.0.take().ok().flatten()?;
        Some(Urgency::of_payload(event.payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall_core::events::FrameRate;

    #[test]
    fn the_latest_urgency_is_taken_once() {
        let (mut raiser, mut taker) = hand_over();
        assert_eq!(taker.take(), None);
        let rate = FrameRate::new(30_000, 1_001).unwrap();
        let frame = NextFrame { rate, counter: 4, start: Instant::from_nanos(9) };
        for last in [Urgency::Rank(u64::MAX), Urgency::Rank(0), Urgency::Frame(frame)] {
            (0..300).for_each(|rank| raiser.state(Urgency::Rank(rank)));
            raiser.state(last);
            assert_eq!(taker.take(), Some(last));
            assert_eq!(taker.take(), None);
        }
    }

    #[test]
    fn a_frame_is_due_from_its_slot_on_with_its_display_time_as_rank() {
        let rate = FrameRate::new(10, 1).unwrap();
        let frame = NextFrame { rate, counter: 3, start: Instant::from_nanos(1_000) };
        let urgency = Urgency::Frame(frame);
        assert_eq!((urgency.rank(), urgency.counter()), (300_001_000, 3));
        assert_eq!(urgency.due(), Instant::from_nanos(200_001_000));
        assert_eq!((Urgency::Rank(7).rank(), Urgency::Rank(7).due()), (7, Instant::ZERO));
    }
}
