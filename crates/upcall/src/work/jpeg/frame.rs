//! Reassembles the fragments of one frame (RFC 2435 §3.1.2).
//!
//! The M-JPEG processor uses this module. Fragments may come in any order. A frame keeps the bytes
//! that have come as a short sorted list of pieces. It does not write the bytes. It decides whether
//! the caller may write a fragment at its offset.

use super::super::outcome::Reject;
use super::payload::Head;
use super::tables::Tables;

/// The most pieces that are tracked. A network that keeps the order needs one. Each overtaken
/// fragment adds one.
const PIECES_MAX: usize = 8;

/// The identity of a frame: its source, its time and its field (RFC 2435 §3: all packets of a frame
/// have the same timestamp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameKey {
    pub(super) ssrc: u32,
    pub(super) timestamp: u32,
    pub(super) type_specific: u8,
}

/// A contiguous range of bytes that has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    start: usize,
    end: usize,
}

/// A frame that is being reassembled.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) key: FrameKey,
    pub(super) head: Head,
    /// The tables that the fragment at offset 0 brought or named. A Q below 128 needs none.
    pub(super) tables: Option<Tables>,
    /// Sorted, and separate from each other. `count` entries are used.
    pieces: [Piece; PIECES_MAX],
    count: usize,
    /// Length of the scan. The fragment with the marker bit tells it.
    length: Option<usize>,
}

impl Frame {
    pub(super) fn new(key: FrameKey, head: Head) -> Self {
        let pieces = [Piece::default(); PIECES_MAX];
        Frame { key, head, tables: None, pieces, count: 0, length: None }
    }

    /// Enters the fragment `start..end`, which is the last of its frame if `last`. On an error the
    /// frame is unchanged. O(1): at most [`PIECES_MAX`] steps.
    pub(super) fn enter(&mut self, start: usize, end: usize, last: bool) -> Result<(), Reject> {
        let covered = self.pieces().last().map_or(0, |piece| piece.end);
        let contradicts = match self.length {
            Some(length) => end > length || (last && end != length),
            None => last && covered > end,
        };
        if contradicts {
            return Err(Reject::JpegMismatch);
        }
        self.insert(Piece { start, end })?;
        if last {
            self.length = Some(end);
        }
        Ok(())
    }

    /// The length of the scan, once all its bytes have arrived.
    pub(super) fn complete(&self) -> Option<usize> {
        let length = self.length?;
        (self.pieces() == [Piece { start: 0, end: length }]).then_some(length)
    }

    fn pieces(&self) -> &[Piece] {
        self.pieces.get(..self.count).unwrap_or(&self.pieces)
    }

    fn insert(&mut self, new: Piece) -> Result<(), Reject> {
        let place = self.pieces().partition_point(|piece| piece.start < new.start);
        let before = place.checked_sub(1).and_then(|place| self.pieces().get(place)).copied();
        let after = self.pieces().get(place).copied();
        if before.is_some_and(|piece| piece.end > new.start)
            || after.is_some_and(|piece| piece.start < new.end)
        {
            return Err(Reject::JpegOverlap);
        }
        let joins_before = before.is_some_and(|piece| piece.end == new.start);
        let joins_after = after.is_some_and(|piece| piece.start == new.end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.pieces[place - 1].end = self.pieces[place].end;
                self.pieces.copy_within(place + 1..self.count, place);
                self.count -= 1;
            }
            (true, false) => self.pieces[place - 1].end = new.end,
            (false, true) => self.pieces[place].start = new.start,
            (false, false) => {
                if self.count == PIECES_MAX {
                    return Err(Reject::JpegScattered);
                }
                self.pieces.copy_within(place..self.count, place + 1);
                self.pieces[place] = new;
                self.count += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::payload::Sampling;
    use super::*;
    use proptest::prelude::*;

    fn frame() -> Frame {
        let head = Head {
            type_specific: 0,
            sampling: Sampling::Quarter,
            restart: None,
            q: 50,
            width: 320,
            height: 240,
        };
        Frame::new(FrameKey { ssrc: 1, timestamp: 2, type_specific: 0 }, head)
    }

    #[test]
    fn a_frame_is_complete_when_its_last_hole_is_filled() {
        let mut frame = frame();
        for (start, end, last) in [(0, 10, false), (20, 30, true), (15, 20, false)] {
            assert_eq!(frame.enter(start, end, last), Ok(()));
            assert_eq!(frame.complete(), None);
        }
        assert_eq!(frame.enter(10, 15, false), Ok(()));
        assert_eq!(frame.complete(), Some(30));
    }

    #[test]
    fn an_overlap_and_a_second_end_are_refused_and_change_nothing() {
        let mut frame = frame();
        assert_eq!(frame.enter(10, 20, false), Ok(()));
        for (start, end) in [(10, 20), (5, 11), (19, 25), (12, 13), (0, 40)] {
            assert_eq!(frame.enter(start, end, false), Err(Reject::JpegOverlap));
        }
        assert_eq!(frame.enter(0, 10, true), Err(Reject::JpegMismatch));
        assert_eq!(frame.enter(20, 30, true), Ok(()));
        assert_eq!(frame.enter(30, 40, false), Err(Reject::JpegMismatch));
        assert_eq!(frame.enter(0, 10, true), Err(Reject::JpegMismatch));
        assert_eq!(frame.enter(0, 10, false), Ok(()));
        assert_eq!(frame.complete(), Some(30));
    }

    #[test]
    fn a_frame_in_too_many_pieces_is_refused() {
        let mut frame = frame();
        for place in 0..PIECES_MAX {
            assert_eq!(frame.enter(place * 20, place * 20 + 10, false), Ok(()));
        }
        assert_eq!(frame.enter(900, 910, false), Err(Reject::JpegScattered));
        assert_eq!(frame.enter(10, 20, false), Ok(()));
        assert_eq!(frame.enter(900, 910, false), Ok(()));
    }

    proptest! {
        /// Compares with a byte map: a fragment is refused exactly if it covers a covered byte,
        /// needs a ninth piece, or contradicts the end.
        #[test]
        fn the_pieces_cover_the_bytes_that_arrived(
            fragments in proptest::collection::vec((0_usize..48, 1_usize..12, 0_u8..8), 1..40),
        ) {
            let mut frame = frame();
            let mut map = [false; 64];
            let mut length = None;
            for (start, size, last) in fragments {
                let (end, last) = (start + size, last == 0);
                let covered = map.iter().rposition(|byte| *byte).map_or(0, |at| at + 1);
                let contradicts = length.is_some_and(|length| end > length || last && end != length)
                    || length.is_none() && last && covered > end;
                match frame.enter(start, end, last) {
                    Ok(()) => {
                        prop_assert!(!contradicts);
                        prop_assert!(map[start..end].iter().all(|byte| !byte));
                        map[start..end].fill(true);
                        length = if last { Some(end) } else { length };
                    }
                    Err(Reject::JpegMismatch) => prop_assert!(contradicts),
                    Err(Reject::JpegOverlap) => prop_assert!(map[start..end].iter().any(|b| *b)),
                    Err(other) => prop_assert_eq!(other, Reject::JpegScattered),
                }
                let whole = length.filter(|length| map[..*length].iter().all(|byte| *byte));
                prop_assert_eq!(frame.complete(), whole);
            }
        }
    }
}
