//! The RTP header, and the losses that sequence numbers show.
//!
//! The audio and video processors use this module. The crate `rtp-types` parses the header itself
//! (RFC 3550 §5.1, §5.3.1).

use rtp_types::{RtpPacket, RtpParseError};

use super::counters::WorkCounters;
use super::outcome::Reject;

/// From this forward jump on, the sender has started anew and lost nothing (`MAX_DROPOUT`, RFC 3550
/// appendix A.1).
const DROPOUT_MAX: u16 = 3000;

/// The furthest that a packet may be behind and still belong to this sequence (`MAX_MISORDER`, RFC
/// 3550 appendix A.1).
const MISORDER_MAX: u16 = 100;

/// Parses the header of `datagram`. A packet without payload is rejected.
pub(super) fn parse(datagram: &[u8]) -> Result<RtpPacket<'_>, Reject> {
    let packet = RtpPacket::parse(datagram).map_err(|error| match error {
        RtpParseError::UnsupportedVersion(found) => Reject::RtpVersion { found },
        RtpParseError::Truncated { expected, actual } => {
            Reject::RtpTruncated { found: actual, expected }
        }
        RtpParseError::PaddingInvalid(found) => Reject::RtpPadding { found },
    })?;
    if packet.payload_len() == 0 {
        return Err(Reject::Empty);
    }
    Ok(packet)
}

/// The place of a packet in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// After every packet seen so far, with or without a gap before it.
    Newest,
    /// After a later packet.
    Late,
    /// Seen before.
    Duplicate,
    /// The first of a source, or of a new start of its numbering.
    Start,
}

/// Follows the sequence numbers of one source. A packet of another source starts a new sequence. So
/// packets of two senders on one port count as new starts, not as losses.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    ssrc: Option<u32>,
    newest: u16,
    /// Bit `i` is set if the packet `newest - i` has come.
    seen: u128,
    /// Positions between the start and `newest`. A packet further back was never counted as lost.
    reach: u64,
    lost: u64,
    reordered: u64,
    duplicates: u64,
}

impl Arrivals {
    /// Enters one packet. O(1).
    pub(super) fn note(&mut self, ssrc: u32, sequence: u16) -> Arrival {
        if self.ssrc != Some(ssrc) {
            return self.start(ssrc, sequence);
        }
        let ahead = sequence.wrapping_sub(self.newest);
        let back = self.newest.wrapping_sub(sequence);
        if back <= MISORDER_MAX {
            self.note_earlier(back)
        } else if ahead < DROPOUT_MAX {
            self.seen = self.seen.checked_shl(u32::from(ahead)).unwrap_or(0) | 1;
            self.newest = sequence;
            self.reach += u64::from(ahead);
            self.lost += u64::from(ahead) - 1;
            Arrival::Newest
        } else {
            self.start(ssrc, sequence)
        }
    }

    fn start(&mut self, ssrc: u32, sequence: u16) -> Arrival {
        self.ssrc = Some(ssrc);
        self.newest = sequence;
        self.seen = 1;
        self.reach = 0;
        Arrival::Start
    }

    fn note_earlier(&mut self, back: u16) -> Arrival {
        let bit = 1_u128 << back;
        if self.seen & bit != 0 {
            self.duplicates += 1;
            return Arrival::Duplicate;
        }
        self.seen |= bit;
        self.reordered += 1;
        if u64::from(back) < self.reach {
            self.lost -= 1;
        }
        Arrival::Late
    }

    /// Enters the counts kept here into `counters`.
    pub(super) fn count_into(&self, counters: &mut WorkCounters) {
        counters.lost = self.lost;
        counters.reordered = self.reordered;
        counters.duplicates = self.duplicates;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(arrivals: &Arrivals) -> (u64, u64, u64) {
        (arrivals.lost, arrivals.reordered, arrivals.duplicates)
    }

    #[test]
    fn a_late_packet_is_no_longer_lost() {
        let mut arrivals = Arrivals::default();
        let seen = [65_534, 65_535, 2, 1, 1, 0].map(|sequence| arrivals.note(7, sequence));
        use Arrival::{Duplicate, Late, Newest, Start};
        assert_eq!(seen, [Start, Newest, Newest, Late, Duplicate, Late]);
        assert_eq!(counts(&arrivals), (0, 2, 1));
    }

    #[test]
    fn a_packet_before_the_start_does_not_lower_the_losses() {
        let mut arrivals = Arrivals::default();
        for sequence in [10, 9, 12] {
            arrivals.note(7, sequence);
        }
        assert_eq!(counts(&arrivals), (1, 1, 0));
    }

    #[test]
    fn a_far_jump_or_another_source_is_a_new_start() {
        let mut arrivals = Arrivals::default();
        arrivals.note(7, 10);
        assert_eq!(arrivals.note(7, 10 + DROPOUT_MAX), Arrival::Start);
        assert_eq!(arrivals.note(7, 10), Arrival::Start);
        assert_eq!(arrivals.note(8, 11), Arrival::Start);
        assert_eq!(counts(&arrivals), (0, 0, 0));
        assert_eq!(arrivals.note(8, 10 + DROPOUT_MAX), Arrival::Newest);
        assert_eq!(counts(&arrivals), (u64::from(DROPOUT_MAX) - 2, 0, 0));
    }

    proptest! {
        /// Packets are shuffled within a window, and some are dropped. The count of lost packets is
        /// the number that never came between the first and the newest packet.
        #[test]
        fn lost_counts_the_packets_that_never_came(
            first in any::<u16>(),
            packets in proptest::collection::vec((0_u32..4, 0_usize..40), 2..400),
        ) {
            let mut order: Vec<(usize, usize)> = packets
                .iter()
                .enumerate()
                .filter(|(_, (dropped, _))| *dropped != 0)
                .map(|(place, (_, delay))| (place + delay, place))
                .collect();
            prop_assume!(!order.is_empty());
            order.sort_unstable();
            let places: Vec<usize> = order.iter().map(|(_, place)| *place).collect();
            let mut arrivals = Arrivals::default();
            for place in &places {
                arrivals.note(7, first.wrapping_add(u16::try_from(*place)?));
            }
            let start = places[0];
            let newest = places.iter().copied().max().unwrap_or(0);
            let came = places.iter().filter(|place| **place > start).count();
            prop_assert_eq!(arrivals.lost, u64::try_from(newest - start - came)?);
            prop_assert_eq!(arrivals.duplicates, 0);
        }
    }
}
