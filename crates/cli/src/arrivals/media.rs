//! Logical arrivals of recorded RTP packets, from their timestamps (RFC 3550 §5.1).
//!
//! The first packet arrives logically when it comes, and each later one as much later as its
//! timestamp is. The headers are not trusted: a packet of another source, and one that is far from
//! its timestamp, begins a new timeline.

/// The rate of the timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaRate {
    /// This many ticks a second.
    Hertz(u32),
    /// By the payload type: 44,100 for types 10 and 11 (RFC 3551 §6), otherwise unknown.
    ByType,
}

/// A packet further ahead of its timestamp begins a new timeline.
const AHEAD_MAX_NS: i128 = 60_000_000_000;
/// A packet further behind its timestamp begins a new timeline.
const BEHIND_MAX_NS: i128 = 1_000_000_000;

/// The timeline of one stream.
#[derive(Debug)]
pub(super) struct Media {
    rate: MediaRate,
    /// The source, the timestamp and the logical arrival of the last packet.
    last: Option<(u32, u32, i128)>,
}

impl Media {
    pub(super) fn new(rate: MediaRate) -> Self {
        Media { rate, last: None }
    }

    /// The logical arrival of the packet with this UDP payload, which came at `at_ns`. That is
    /// `at_ns` itself if the payload is no RTP packet or the rate is unknown.
    pub(super) fn logical_ns(&mut self, payload: &[u8], at_ns: i128) -> i128 {
        let Some((ssrc, timestamp, hertz)) = self.header(payload) else { return at_ns };
        let by_timestamp = self.last.filter(|(source, ..)| *source == ssrc).map(|last| {
            let ticks = i128::from(timestamp.wrapping_sub(last.1).cast_signed());
            last.2 + ticks * 1_000_000_000 / i128::from(hertz)
        });
        let is_near = |at: &i128| (at_ns - BEHIND_MAX_NS..=at_ns + AHEAD_MAX_NS).contains(at);
        let logical = by_timestamp.filter(is_near).unwrap_or(at_ns);
        self.last = Some((ssrc, timestamp, logical));
        logical
    }

    /// The source, the timestamp and its rate.
    fn header(&self, payload: &[u8]) -> Option<(u32, u32, u32)> {
        let [first, second, _, _, rest @ ..] = payload.first_chunk::<12>()?;
        let hertz = match (self.rate, second & 0x7f) {
            (MediaRate::Hertz(hertz), _) => hertz,
            (MediaRate::ByType, 10 | 11) => 44_100,
            (MediaRate::ByType, _) => return None,
        };
        let (timestamp, ssrc) = rest.split_first_chunk::<4>()?;
        let ssrc = u32::from_be_bytes(*ssrc.first_chunk()?);
        (first >> 6 == 2).then_some((ssrc, u32::from_be_bytes(*timestamp), hertz))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(payload_type: u8, ssrc: u32, timestamp: u32) -> Vec<u8> {
        let mut bytes = vec![0x80, payload_type, 0, 1];
        bytes.extend(timestamp.to_be_bytes());
        bytes.extend(ssrc.to_be_bytes());
        bytes
    }

    #[test]
    fn packets_arrive_logically_by_their_timestamps() {
        let mut media = Media::new(MediaRate::Hertz(8_000));
        // 160 ticks are 20 ms. The timestamps wrap after the first packet.
        let first = u32::MAX - 99;
        let mut ask = |ssrc, ticks: u32, at_ms: i128| {
            let packet = packet(0, ssrc, first.wrapping_add(ticks));
            media.logical_ns(&packet, at_ms * 1_000_000) / 1_000_000
        };
        assert_eq!(ask(7, 0, 5_000), 5_000);
        assert_eq!(ask(7, 160, 5_001), 5_020);
        assert_eq!(ask(7, 320, 5_060), 5_040);
        // Over a minute ahead, and another source: new timelines.
        assert_eq!(ask(7, 500_000, 5_060), 5_060);
        assert_eq!(ask(8, 0, 5_061), 5_061);
        assert_eq!(ask(8, 160, 7_000), 7_000);
        assert_eq!(media.logical_ns(b"no packet", 9), 9);
        let mut by_type = Media::new(MediaRate::ByType);
        assert_eq!(by_type.logical_ns(&packet(11, 1, 0), 3), 3);
        assert_eq!(by_type.logical_ns(&packet(11, 1, 441), 4), 10_000_003);
        assert_eq!(by_type.logical_ns(&packet(96, 1, 882), 5), 5);
    }
}
