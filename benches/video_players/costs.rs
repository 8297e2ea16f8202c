//! Measures the CPU time to decode a frame, before the steps.

use std::hint::black_box;

use upcall::time::Span;
use upcall_benches::{measured_cpu, percentile, smoke};
use upcall_sys::schedule;

use crate::clip::Clip;
use crate::decoder::Decoder;
use crate::setup::{PERIOD, daemon_limit};

/// CPU time to decode a frame.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The median of all decodings.
    pub usual: Span,
    /// The declared cost: what [`DECLARED_PERCENTILE`] % of all decodings do not exceed, with the
    /// caches as a player finds them after the others, and [`MARGIN_PERCENT`] more.
    pub most: Span,
}

/// The percentile of the declared cost.
pub const DECLARED_PERCENTILE: f64 = 99.0;
/// From one minute to the next the host's other guests change the time to decode by so much. A
/// player that takes longer than declared runs below all others for the rest of the frame.
pub const MARGIN_PERCENT: u32 = 20;
/// Bytes that are touched between two decodings: more than the caches of a CPU hold.
const EVICTED_BYTES: usize = 8 << 20;

impl Costs {
    /// Measures on the CPU of the steps. Several decoders take turns, and their pictures push each
    /// other out of the cache.
    pub fn measure(clip: &Clip) -> Costs {
        std::thread::scope(|scope| {
            let measuring = scope.spawn(|| {
                schedule::pin_thread(&[measured_cpu()]).expect("the CPU is allowed");
                Costs::measure_here(clip)
            });
            measuring.join().expect("the decoder does not panic")
        })
    }

    fn measure_here(clip: &Clip) -> Costs {
        const PLAYERS: usize = 12;
        let tries = if smoke() { 1 } else { 8 };
        let pixels = (clip.size.0 * clip.size.1) as usize;
        let mut decoders: Vec<Decoder> =
            (0..PLAYERS).map(|_| Decoder::new(clip.bytes_max(), pixels, None)).collect();
        let mut others = vec![0_u8; EVICTED_BYTES];
        let mut costs_ns = Vec::new();
        let frames = (0..tries).flat_map(|_| &clip.frames);
        for (turn, frame) in frames.enumerate() {
            let decoder = &mut decoders[turn % PLAYERS];
            decoder.buffer(frame.len()).copy_from_slice(frame);
            black_box(&mut others).fill(7);
            let before_ns = upcall::thread_cpu_ns();
            decoder.decode(frame.len());
            costs_ns.push(upcall::thread_cpu_ns() - before_ns);
        }
        let mut percentile_of = |percent| Span::from_nanos(percentile(&mut costs_ns, percent));
        Costs { usual: percentile_of(50.0), most: with_margin(percentile_of(DECLARED_PERCENTILE)) }
    }

    /// The declared cost without its margin.
    pub fn without_margin(&self) -> Span {
        self.most * 100 / (100 + MARGIN_PERCENT)
    }

    /// The number of players whose declared cost admission has room for.
    pub fn admitted(&self) -> usize {
        let room = PERIOD.as_nanos() * u64::from(daemon_limit(self.most).ppm()) / 1_000_000;
        usize::try_from(room / self.most.as_nanos().max(1)).unwrap_or(usize::MAX)
    }
}

fn with_margin(cost: Span) -> Span {
    cost + cost * MARGIN_PERCENT / 100
}
