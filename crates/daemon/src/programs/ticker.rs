//! The *ticker*: a thread that makes the kernel choose again after each quantum.
//!
//! The kernel chooses among the programs of a CPU at its own tick, every 4 ms at 250 Hz. A thread
//! of the lowest real-time priority that wakes for a moment makes it choose at once. So the lag of
//! programs follows the quantum and not the tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use upcall_core::time::Span;
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule;

/// The lowest real-time priority: above all programs, below all handlers.
const PRIORITY: u8 = 1;
/// The CPU time of one wake-up with the switches to and from it: 2.3 to 2.6 % of a CPU at 1 ms on
/// the virtual machine of docs/decisions/0020-programs.md. Hardware needs less.
const WAKE_COST: Span = Span::from_micros(25);

/// Whether this process may have tickers.
pub(super) fn is_permitted() -> bool {
    schedule::fifo_permission(PRIORITY).is_ok()
}

/// The part of a CPU that a ticker takes, in millionths. Rounded up.
pub(super) fn cost_ppm(quantum: Span) -> u32 {
    let ppm = (WAKE_COST.as_nanos() * 1_000_000).div_ceil(quantum.as_nanos().max(1));
    u32::try_from(ppm).unwrap_or(u32::MAX)
}

/// See the module's head. Dropping it blocks for a quantum at most.
#[derive(Debug)]
pub(super) struct Ticker {
    pub(super) cpu: u32,
    /// 0 ends the thread.
    quantum_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread on a CPU.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(cpu: u32, quantum: Span) -> std::io::Result<Self> {
        let quantum_ns = Arc::new(AtomicU64::new(quantum.as_nanos()));
        let shared = quantum_ns.clone();
        let thread = std::thread::Builder::new()
            .name(format!("upcall-tick/{cpu}"))
            .spawn(move || tick(cpu, &shared))?;
        Ok(Ticker { cpu, quantum_ns, thread: Some(thread) })
    }

    /// Another quantum, from the next wake-up on.
    pub(super) fn set_quantum(&self, quantum: Span) {
        // Relaxed: the number guards no other data.
        self.quantum_ns.store(quantum.as_nanos(), Ordering::Relaxed);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.set_quantum(Span::ZERO);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn tick(cpu: u32, quantum_ns: &AtomicU64) {
    // The caller has tried both. Without them the kernel's own tick keeps a longer quantum.
    let _ = schedule::pin_thread(&[cpu]);
    let _ = schedule::set_fifo(PRIORITY);
    let mut next_ns = monotonic_ns();
    loop {
        let quantum_ns = quantum_ns.load(Ordering::Relaxed);
        if quantum_ns == 0 {
            return;
        }
        let now_ns = monotonic_ns();
        next_ns += quantum_ns;
        if next_ns < now_ns {
            // Handlers took longer than a quantum, and the kernel has just chosen again.
            next_ns = now_ns + quantum_ns;
        }
        sleep_until_ns(next_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_ticker_grows_as_its_quantum_shrinks() {
        assert_eq!(cost_ppm(Span::from_millis(1)), 25_000);
        assert_eq!(cost_ppm(Span::from_micros(500)), 50_000);
        assert_eq!(cost_ppm(Span::from_micros(333)), 75_076);
    }

    #[test]
    fn a_ticker_ends_when_it_is_dropped() {
        let cpu = schedule::allowed_cpus().unwrap()[0];
        let ticker = Ticker::start(cpu, Span::from_millis(1)).unwrap();
        ticker.set_quantum(Span::from_micros(500));
        drop(ticker);
    }
}
