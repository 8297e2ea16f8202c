//! Measures the CPU time to decode a frame, before the steps.

use upcall::time::Span;
use upcall_benches::{measured_cpu, percentile, smoke};
use upcall_sys::schedule;

use crate::clip::Clip;
use crate::decoder::Decoder;

/// CPU time to decode a frame.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The median over all frames. Each frame counts with the least of its attempts.
    pub usual: Span,
    /// The declared cost: that of the costliest frame plus a fifth, for the effects of caches and
    /// of other guests of the host.
    pub most: Span,
}

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
        let mut least_ns = vec![u64::MAX; clip.frames.len()];
        let frames = (0..tries).flat_map(|_| clip.frames.iter().enumerate());
        for (turn, (place, frame)) in frames.enumerate() {
            let decoder = &mut decoders[turn % PLAYERS];
            decoder.buffer(frame.len()).copy_from_slice(frame);
            let before_ns = upcall::thread_cpu_ns();
            decoder.decode(frame.len());
            let cost_ns = upcall::thread_cpu_ns() - before_ns;
            least_ns[place] = least_ns[place].min(cost_ns);
        }
        let most_ns = least_ns.iter().copied().max().unwrap_or_default();
        Costs {
            usual: Span::from_nanos(percentile(&mut least_ns, 50.0)),
            most: Span::from_nanos(most_ns + most_ns / 5),
        }
    }
}
