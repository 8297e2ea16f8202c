//! Arrivals against a server that is as slow as permitted: the adversary of the derivation. It
//! shares no code with the mapping, only its result.
//!
//! Time is counted in fractions of a nanosecond, so nothing is rounded.

use super::*;

/// Units of PDUs and how they may come, computed independently from a specification.
pub(super) struct Source {
    /// The number of parts of a nanosecond in which time is counted.
    pub parts: u128,
    /// The time between two units.
    pub interval: u128,
    /// The PDUs of each unit.
    pub unit_pdus: u32,
    /// The most units at once.
    pub burst: u32,
}

impl Source {
    pub(super) fn of(spec: &StreamSpec) -> Self {
        let pdu_bytes = u64::from(spec.pdu_bytes);
        let pdus = |bytes: u64| u32::try_from(bytes.div_ceil(pdu_bytes)).unwrap();
        let (interval, parts, unit_pdus, burst) = match spec.class {
            Class::ContinuousMedia(flow) | Class::Bulk(flow) => match flow {
                Flow::PduRate(rate) => (1_000_000_000_000_000, rate.as_micro_hertz(), 1, 1),
                Flow::Bandwidth { bits_per_second } => {
                    (pdu_bytes * 8_000_000_000, bits_per_second, 1, 1)
                }
                Flow::Frames { frame_rate, frame_bytes } => {
                    (1_000_000_000_000_000, frame_rate.as_micro_hertz(), pdus(frame_bytes), 1)
                }
                Flow::Transfer { bytes, within } => {
                    (within.as_nanos(), u64::from(pdus(bytes)), 1, 1)
                }
            },
            Class::Transaction { rate, burst } => {
                (1_000_000_000_000_000, rate.as_micro_hertz(), 1, burst)
            }
            Class::MessageStream { message_rate, message_bytes } => {
                (1_000_000_000_000_000, message_rate.as_micro_hertz(), pdus(message_bytes), 1)
            }
        };
        Source { parts: u128::from(parts), interval: u128::from(interval), unit_pdus, burst }
    }

    pub(super) fn parts_of(&self, span: Span) -> u128 {
        u128::from(span.as_nanos()) * self.parts
    }

    /// `units` units from `start` on. Each comes as soon as the bucket permits, plus what `slack`
    /// gives out of 1000 intervals (0: always at once).
    pub(super) fn arrivals(
        &self,
        start: u128,
        units: usize,
        mut slack: impl FnMut() -> u128,
    ) -> Vec<u128> {
        let mut full_at = start;
        let mut last = start;
        let mut arrivals = Vec::new();
        for _ in 0..units {
            let allowed = full_at.saturating_sub(self.interval * u128::from(self.burst - 1));
            let at = allowed.max(last) + slack() * self.interval / 1000;
            full_at = full_at.max(at) + self.interval;
            last = at;
            arrivals.extend((0..self.unit_pdus).map(|_| at));
        }
        arrivals
    }

    /// When each arrival was due at the latest: the arrival itself if it kept to the bucket.
    pub(super) fn logical(&self, arrivals: &[u128]) -> Vec<u128> {
        let mut full_at = 0;
        let mut logical = Vec::new();
        for unit in arrivals.chunks(self.unit_pdus as usize) {
            let last = unit[unit.len() - 1];
            let allowed = u128::saturating_sub(full_at, self.interval * u128::from(self.burst - 1));
            let due = allowed.max(last);
            full_at = full_at.max(due) + self.interval;
            logical.extend(unit.iter().map(|_| due));
        }
        logical
    }
}

/// The behaviour of one job, in thousandths: when it reads its queue, between its release and its
/// end; when it ends, between its release and its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub looks_at: u128,
    pub ends_at: u128,
}

/// Reads its queue at its release, ends at its deadline.
pub(super) const SLOWEST: Service = Service { looks_at: 0, ends_at: 1000 };

/// Serves `arrivals`; returns when each PDU is done. The first release is at 0.
pub(super) fn serve(
    source: &Source,
    mapping: &Mapping,
    arrivals: &[u128],
    mut service: impl FnMut() -> Service,
) -> Vec<u128> {
    let period = source.parts_of(mapping.params.period);
    let deadline = source.parts_of(mapping.params.deadline);
    let mut done = Vec::new();
    // No job before the first arrival has work.
    let mut release = arrivals.first().map_or(0, |first| first / period * period);
    while done.len() < arrivals.len() {
        let job = service();
        let end = release + deadline * job.ends_at / 1000;
        let look = release + (end - release) * job.looks_at / 1000;
        let waiting = arrivals[done.len()..].iter().take_while(|&&at| at <= look);
        let taken = waiting.take(mapping.params.batch as usize).count();
        done.extend((0..taken).map(|_| end));
        release += period;
    }
    done
}

/// The most PDUs present at once. A PDU that is done at the instant at which another arrives still
/// counts.
pub(super) fn present_max(arrivals: &[u128], done: &[u128]) -> usize {
    let mut gone = 0;
    let mut most = 0;
    for (count, at) in arrivals.iter().enumerate() {
        while done[gone] < *at {
            gone += 1;
        }
        most = most.max(count + 1 - gone);
    }
    most
}

/// The longest time from `since` to done.
pub(super) fn wait_max(since: &[u128], done: &[u128]) -> u128 {
    since.iter().zip(done).map(|(since, done)| done.saturating_sub(*since)).max().unwrap_or(0)
}

#[test]
fn the_worst_arrivals_reach_the_bounds_and_no_more() {
    let us = Span::from_micros(10);
    let frames = Flow::Frames { frame_rate: Rate::from_hertz(30), frame_bytes: 20_000 };
    let rate = Rate::from_hertz(20);
    for spec in [
        camera(),
        stream(Class::Bulk(hertz(200)), 1470, 0, ms(1)),
        stream(Class::ContinuousMedia(hertz(50)), 100, 20, ms(1)),
        stream(Class::ContinuousMedia(frames), 1470, 40, us),
        stream(Class::ContinuousMedia(frames), 1470, 300, us),
        stream(Class::Transaction { rate, burst: 7 }, 100, 130, us),
    ] {
        let (source, mapping) = (Source::of(&spec), map(&spec, SWITCH).unwrap());
        // All come just after a release: one part of a nanosecond.
        let arrivals = source.arrivals(1, 500, || 0);
        let done = serve(&source, &mapping, &arrivals, || SLOWEST);
        assert_eq!(wait_max(&arrivals, &done), source.parts_of(mapping.delay_max) - 1, "{spec:?}");
        assert_eq!(present_max(&arrivals, &done), mapping.buffers as usize, "{spec:?}");
    }
}

#[test]
fn a_stream_faster_than_declared_falls_behind() {
    let spec = camera();
    let mapping = map(&spec, SWITCH).unwrap();
    let mut source = Source::of(&spec);
    let declared = source.interval;
    source.interval -= declared / 1000;
    let arrivals = source.arrivals(1, 50_000, || 0);
    let done = serve(&source, &mapping, &arrivals, || SLOWEST);
    assert!(present_max(&arrivals, &done) > mapping.buffers as usize);
    assert!(wait_max(&arrivals, &done) > source.parts_of(ms(50)));
    // Counted from when they were due, they are still on time.
    source.interval = declared;
    let due = source.logical(&arrivals);
    assert!(wait_max(&due, &done) <= source.parts_of(mapping.delay_max));
}
