//! When the next frame of a player is displayed, and when the player is notified of it (ecalls-2001
//! §3.3).
//!
//! The I/O event service of the runtime uses this module. A player states its frame rate, the
//! counter of its next frame, and the time stamp of its first frame. Each display time is computed
//! from the first frame and a rate that is a ratio. So no rounding adds up, and 29.97 frames per
//! second stay exact.
//!
//! ```text
//!   first frame           frame counter - 1           frame counter
//!   ----+---- ... --------------+-----------------------------+------> time
//!       start                   |<--- the frame's slot ------>|
//!                               slot(): notified from here    display_time()
//! ```

#[cfg(test)]
mod tests;

use core::num::NonZeroU32;

use crate::time::{Instant, Span};

/// Nanoseconds in a second.
const SECOND_NS: u128 = 1_000_000_000;

/// A frame rate: so many frames in so many seconds.
///
/// ```
/// # extern crate upcall_core as upcall;
/// use upcall::events::FrameRate;
/// use upcall::time::Span;
///
/// let ntsc = FrameRate::new(30_000, 1_001).ok_or("a number is 0")?; // 29.97 frames per second
/// assert_eq!(ntsc.span(30_000), Span::from_secs(1_001));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRate {
    frames: NonZeroU32,
    seconds: NonZeroU32,
}

impl FrameRate {
    /// `frames` in `seconds`. `None` if one of them is 0.
    pub const fn new(frames: u32, seconds: u32) -> Option<Self> {
        match (NonZeroU32::new(frames), NonZeroU32::new(seconds)) {
            (Some(frames), Some(seconds)) => Some(FrameRate { frames, seconds }),
            _ => None,
        }
    }

    /// The time that `count` frames take, rounded down to a nanosecond. Saturates. O(1).
    pub fn span(self, count: u64) -> Span {
        // Below 2^126: 64 bits of frames, 32 of seconds and 30 of nanoseconds.
        let ns = u128::from(count) * u128::from(self.seconds.get()) * SECOND_NS
            / u128::from(self.frames.get());
        Span::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// The frame that a player shows next. Each of the three values may change with each frame. A
/// player that changes its rate begins to count anew: `counter` 0, and `start` at the display time
/// of that frame. A player that knows only its last frame states `counter` 1, and as `start` when
/// it showed that frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextFrame {
    /// How many frames are displayed per second.
    pub rate: FrameRate,
    /// The number of the frame: how many frames come before it, from the first one on. A player
    /// that is late may leave frames out.
    pub counter: u64,
    /// When the first frame, number 0, is displayed.
    pub start: Instant,
}

impl NextFrame {
    /// When the frame is displayed: `start + counter / rate`, less than a nanosecond early for any
    /// counter. Saturates at [`Instant::FAR`]. O(1).
    pub fn display_time(&self) -> Instant {
        self.start + self.rate.span(self.counter)
    }

    /// When the frame's slot begins, which is when the frame before it is displayed. The player is
    /// notified of the frame from then on. O(1).
    pub fn slot(&self) -> Instant {
        match self.counter.checked_sub(1) {
            Some(before) => self.start + self.rate.span(before),
            None => self.start - self.rate.span(1),
        }
    }

    /// The frame as words of an event, for a service in another process. The first word is never 0.
    pub fn to_words(&self) -> [u64; 3] {
        let FrameRate { frames, seconds } = self.rate;
        let rate = u64::from(frames.get()) << 32 | u64::from(seconds.get());
        [rate, self.counter, self.start.as_nanos()]
    }

    /// The frame of [`NextFrame::to_words`]. `None` if the rate is not valid.
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
    pub fn from_words([rate, counter, start_ns]: [u64; 3]) -> Option<Self> {
        let rate = FrameRate::new((rate >> 32) as u32, rate as u32)?;
        Some(NextFrame { rate, counter, start: Instant::from_nanos(start_ns) })
    }
}
