//! Logical arrivals from the timestamps of RTP packets.
//!
//! A handler of a stream that works ahead calls this module for packets that came early, and
//! `upcall sim` for those of a capture. The timestamps are the sender's and are not trusted:
//! whatever they say, a logical arrival is not after the `latest` that the caller allows.

use rtp_types::RtpPacket;
use upcall_runtime::time::{Instant, Span};

use super::kind::WorkKind;

/// A packet that is further behind its timestamp than this begins a new timeline.
const BEHIND_MAX: Span = Span::from_secs(1);

/// From this many ticks on the timeline gets a new origin, long before timestamps wrap.
const TICKS_MAX: u32 = 1 << 28;

/// The timeline of one source of RTP packets (RFC 3550 §5.1): its first packet logically arrives
/// when it comes, and each later one as much later as its timestamp is.
#[derive(Clone, Debug)]
pub struct MediaClock {
    kind: WorkKind,
    origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug)]
struct Origin {
    ssrc: u32,
    timestamp: u32,
    at: Instant,
}

impl MediaClock {
    /// The clock of a stream. `None` if its datagrams have no RTP header.
    pub fn of(kind: WorkKind) -> Option<Self> {
        (kind != WorkKind::Spin).then_some(MediaClock { kind, origin: None })
    }

    /// When a packet that came at `arrival` arrives logically. `None` if it is no RTP packet, or if
    /// the rate of its timestamps is unknown: L16 has one only with payload types 10 and 11 (RFC
    /// 3551 §6). A packet of another source, one whose timestamp is after `latest` or far behind
    /// `arrival` begins a new timeline. The same packet may be asked for again. O(1), does not
    /// allocate.
    pub fn logical_arrival(
        &mut self,
        datagram: &[u8],
        arrival: Instant,
        latest: Instant,
    ) -> Option<Instant> {
        // Not the module `rtp`: a capture may have the header alone.
        let packet = RtpPacket::parse(datagram).ok()?;
        let hertz = self.hertz(packet.payload_type())?;
        let (ssrc, timestamp) = (packet.ssrc(), packet.timestamp());
        let begins = Origin { ssrc, timestamp, at: arrival };
        let known = self.origin.filter(|origin| origin.ssrc == ssrc).map(|origin| {
            let ticks = timestamp.wrapping_sub(origin.timestamp).cast_signed();
            let distance_ns = u64::from(ticks.unsigned_abs()) * 1_000_000_000 / u64::from(hertz);
            let distance = Span::from_nanos(distance_ns);
            let at = if ticks < 0 { origin.at - distance } else { origin.at + distance };
            (at, ticks.unsigned_abs())
        });
        let origin = match known {
            Some((at, ticks)) if at <= latest && arrival <= at + BEHIND_MAX => {
                if ticks >= TICKS_MAX {
                    self.origin = Some(Origin { at, ..begins });
                }
                return Some(at);
            }
            _ => begins,
        };
        self.origin = Some(origin);
        Some(arrival)
    }

    /// The rate of the timestamps.
    fn hertz(&self, payload_type: u8) -> Option<u32> {
        match (self.kind, payload_type) {
            (WorkKind::RtpPcmu | WorkKind::RtpPcma, _) => Some(8_000),
            (WorkKind::RtpJpeg, _) => Some(90_000),
            (WorkKind::RtpL16, 10 | 11) => Some(44_100),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a packet.
    fn packet(payload_type: u8, ssrc: u32, timestamp: u32) -> Vec<u8> {
        let mut bytes = vec![0x80, payload_type, 0, 1];
        bytes.extend(timestamp.to_be_bytes());
        bytes.extend(ssrc.to_be_bytes());
        bytes
    }

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn packets_arrive_logically_by_their_timestamps_and_within_the_limit() {
        let mut clock = MediaClock::of(WorkKind::RtpPcmu).expect("an RTP kind");
        // 160 ticks are 20 ms. The timestamps wrap after the first packet.
        let first = u32::MAX - 99;
        let mut ask = |ssrc, ticks: u32, at| {
            let packet = packet(0, ssrc, first.wrapping_add(ticks));
            clock.logical_arrival(&packet, ms(at), ms(at + 100))
        };
        assert_eq!(ask(7, 0, 5_000), Some(ms(5_000)));
        assert_eq!(ask(7, 160, 5_001), Some(ms(5_020)));
        assert_eq!(ask(7, 160, 5_001), Some(ms(5_020)));
        assert_eq!(ask(7, 320, 5_060), Some(ms(5_040)));
        // 101 ms early: a new timeline, and so is another source.
        assert_eq!(ask(7, 1_288, 5_060), Some(ms(5_060)));
        assert_eq!(ask(8, 0, 5_061), Some(ms(5_061)));
        assert_eq!(ask(8, 160, 7_000), Some(ms(7_000)));
    }

    #[test]
    fn the_rate_is_known_by_the_kind_or_by_the_payload_type() {
        let asked = |kind, payload_type| {
            let mut clock = MediaClock::of(kind)?;
            let packet = packet(payload_type, 1, 0);
            clock.logical_arrival(&packet, ms(1), ms(1))
        };
        assert!(asked(WorkKind::Spin, 0).is_none());
        assert!(asked(WorkKind::RtpL16, 96).is_none());
        assert!(asked(WorkKind::RtpL16, 11).is_some());
        assert!(asked(WorkKind::RtpJpeg, 26).is_some());
        let mut clock = MediaClock::of(WorkKind::RtpL16).expect("an RTP kind");
        let mut ask = |ticks| clock.logical_arrival(&packet(11, 1, ticks), ms(1), ms(100));
        assert_eq!([ask(0), ask(441)], [Some(ms(1)), Some(ms(11))]);
        let mut clock = MediaClock::of(WorkKind::RtpJpeg).expect("an RTP kind");
        assert_eq!(clock.logical_arrival(b"no packet", ms(1), ms(1)), None);
    }
}
