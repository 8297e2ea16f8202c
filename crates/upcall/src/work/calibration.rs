//! Measures the cost of a PDU before admission, for a stream that declares none.
//!
//! Callers use [`Work::calibrate`], before the stream starts.

use upcall_runtime::time::Span;

use super::clock::CpuClock;
use super::kind::WorkKind;
use super::outcome::Taken;
use super::processor::Work;
use super::sample::{sample_bytes_min, sample_datagrams, sample_payload};

/// Runs that are measured, if [`TIME_MAX_NS`] allows.
const RUNS_MAX: usize = 100;
/// Runs that are always measured: the p95 of fewer runs is not reliable.
const RUNS_MIN: usize = 20;
/// CPU time after which no run is added to [`RUNS_MIN`].
const TIME_MAX_NS: u64 = 500_000_000;
/// Runs that are not measured: they bring code and tables into the caches.
const WARM_UP_RUNS: usize = 3;
/// Added to p95, in percent. The quanta of a stream do not follow each other as the runs do here:
/// other activities fill the caches in between.
const MARGIN_PERCENT: u64 = 25;
/// Size of a buffer for the longest datagram.
const DATAGRAM_BYTES: usize = 65_536;

/// The result of [`Work::calibrate`]. All times are CPU time of the caller for a PDU, including
/// [`Work::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calibration {
    /// The cost for admission: the 95th percentile plus a margin of 25 %.
    pub cost: Span,
    /// The median.
    pub p50: Span,
    /// The 95th percentile.
    pub p95: Span,
    /// Runs measured.
    pub runs: u32,
    /// Size of the measured PDUs. It is larger than requested only if the sample has no PDU that
    /// small.
    pub pdu_bytes: u32,
}

impl Work {
    /// Measures the cost of a PDU of `pdu_bytes` on this CPU, for the admission of a stream that
    /// declares no cost. It runs the built-in sample of [`sample_payload`] at the caller's
    /// priority, through [`Work::take`] and [`Work::process`]. Returns `None` for
    /// [`WorkKind::Spin`], whose cost is the declared one.
    ///
    /// Computes for up to half a second, or for 20 runs if these take longer. The sample of
    /// `RtpJpeg` has about 11 pixels per byte. A stream with more pixels per byte costs more per
    /// byte, and one with fewer costs less.
    pub fn calibrate(kind: WorkKind, pdu_bytes: u32, cpu_clock: CpuClock) -> Option<Calibration> {
        calibrate(kind, pdu_bytes, cpu_clock)
    }
}

/// [`Work::calibrate`].
fn calibrate(kind: WorkKind, pdu_bytes: u32, cpu_clock: CpuClock) -> Option<Calibration> {
    if kind == WorkKind::Spin {
        return None;
    }
    let pdu_bytes = pdu_bytes.max(sample_bytes_min(kind));
    let mut work = Work::new(kind, pdu_bytes, Span::ZERO, cpu_clock);
    let mut sender = Sender::new(kind, pdu_bytes);
    let mut costs_ns = Vec::with_capacity(RUNS_MAX);
    let mut total_ns: u64 = 0;
    for run in 0..WARM_UP_RUNS + RUNS_MAX {
        let cost_ns = sender.send_pdu(&mut work, cpu_clock)?;
        total_ns = total_ns.saturating_add(cost_ns);
        if run >= WARM_UP_RUNS {
            costs_ns.push(cost_ns);
        }
        if costs_ns.len() >= RUNS_MIN && total_ns > TIME_MAX_NS {
            break;
        }
    }
    costs_ns.sort_unstable();
    let (p50_ns, p95_ns) = (percentile(&costs_ns, 50)?, percentile(&costs_ns, 95)?);
    Some(Calibration {
        cost: Span::from_nanos(p95_ns.saturating_mul(100 + MARGIN_PERCENT) / 100),
        p50: Span::from_nanos(p50_ns),
        p95: Span::from_nanos(p95_ns),
        runs: u32::try_from(costs_ns.len()).ok()?,
        pdu_bytes,
    })
}

/// The smallest value of `sorted` that at least `percent` of the values do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}

/// Sends the sample to a processor.
struct Sender {
    kind: WorkKind,
    pdu_bytes: u32,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Sender {
    fn new(kind: WorkKind, pdu_bytes: u32) -> Self {
        Sender { kind, pdu_bytes, sequence: 0, datagram: vec![0; DATAGRAM_BYTES] }
    }

    /// Sends a PDU and lets `work` process it. Returns the CPU time of both in nanoseconds, without
    /// the time to make the datagrams. Returns `None` if the processor does not understand the
    /// sample.
    fn send_pdu(&mut self, work: &mut Work, cpu_clock: CpuClock) -> Option<u64> {
        let mut cost_ns = 0;
        for _ in 0..sample_datagrams(self.kind, self.pdu_bytes) {
            let length =
                sample_payload(self.kind, self.pdu_bytes, self.sequence, &mut self.datagram);
            self.sequence = self.sequence.wrapping_add(1);
            let datagram = self.datagram.get(..length)?;
            let start_ns = cpu_clock();
            let taken = work.take(datagram);
            let complete = taken == Taken::Pdu && work.process().is_ok();
            cost_ns += cpu_clock().saturating_sub(start_ns);
            if !complete && taken != Taken::More {
                return None;
            }
        }
        Some(cost_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let sorted: Vec<u64> = (1..=20).collect();
        assert_eq!(percentile(&sorted, 95), Some(19));
        assert_eq!(percentile(&sorted, 50), Some(10));
        assert_eq!(percentile(&sorted[..1], 95), Some(1));
        assert_eq!(percentile(&[], 95), None);
    }

    /// A clock by which each interval between two reads is 1 us longer than the one before.
    fn slower_and_slower() -> u64 {
        static READS: AtomicU64 = AtomicU64::new(0);
        let reads = READS.fetch_add(1, Ordering::Relaxed);
        reads * (reads + 1) / 2 * 500
    }

    #[test]
    fn the_cost_is_a_quarter_above_the_95th_percentile() {
        let found = calibrate(WorkKind::RtpPcmu, 172, slower_and_slower).expect("a sample");
        assert_eq!((found.runs, found.pdu_bytes), (100, 172));
        // Run r, counted from 1, takes r - 0.5 us. The first three runs are not measured.
        assert_eq!(found.p95, Span::from_nanos(98 * 1000 - 500));
        assert_eq!(found.p50, Span::from_nanos(53 * 1000 - 500));
        assert_eq!(found.cost.as_nanos(), found.p95.as_nanos() * 5 / 4);
    }
}
