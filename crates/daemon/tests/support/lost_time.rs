//! Time that the handlers of a CPU lose to the host of a virtual machine, which the product cannot
//! keep from them. A try with such time proves nothing.
//!
//! The host reports it as `steal`, in steps of 10 ms, and often not at all: a handler that keeps
//! 0.9 of its cost has 1.2 ms to spare in 12 PDUs, and misses its deadline if the host takes 1.5
//! ms. So a probe looks at the clock meanwhile. It is a thread of the class FIFO at the highest
//! priority (sched(7)) on the CPU of the handlers, and sleeps otherwise. If one of its timers comes
//! late, so may those of the handlers.
//!
//! No thread of Upcall has a priority as high as the probe's. The host delays it, and so do
//! sections of the kernel with interrupts or preemption off. One fault of the product could excuse
//! itself: threads that keep the CPU for most of a second. Then the kernel gives ordinary programs
//! 50 ms before all others (sched(7), `sched_rt_runtime_us`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use upcall_sys::{clock, schedule};

/// The distance of two wakes. Each takes some microseconds from the handlers.
const PERIOD_NS: u64 = 250_000;
/// A wake that comes later after its moment is late. The probe sees each delay of more than this
/// and a period. Delays of 0.8 ms, three in a second, made no handler of these tests late. Delays
/// of 1.5 ms did.
const LATE_NS_MAX: u64 = 900_000;
const PRIORITY: u8 = 99;

/// Time for which the host ran something else on any CPU, in steps of 10 ms (proc_stat(5)).
pub fn steal() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.lines().next().unwrap().split_whitespace().nth(8).map_or(0, |steal| steal.parse().unwrap())
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    late: AtomicU64,
}

/// See the module's head. The probe ends when this is dropped.
pub struct LostTime {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LostTime {
    /// Starts the probe on `cpu`. Without the right to the highest priority, only steal counts.
    pub fn of(cpu: u32) -> Self {
        let shared = Arc::<Shared>::default();
        let theirs = shared.clone();
        LostTime { shared, thread: Some(std::thread::spawn(move || watch(cpu, &theirs))) }
    }

    /// The losses so far: the steps of steal, and the late timers. More than before: a loss since.
    pub fn count(&self) -> u64 {
        steal() + self.shared.late.load(Relaxed)
    }
}

impl Drop for LostTime {
    fn drop(&mut self) {
        // Relaxed: pairs with the load in `watch`, and orders no other memory.
        self.shared.ends.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The thread of the probe.
fn watch(cpu: u32, shared: &Shared) {
    if schedule::pin_thread(&[cpu]).is_err() || schedule::set_fifo(PRIORITY).is_err() {
        return;
    }
    let mut moment_ns = clock::monotonic_ns();
    // Relaxed: pairs with the store in `drop`.
    while !shared.ends.load(Relaxed) {
        // The first moment of the grid that is to come: one delay is one late wake.
        moment_ns += ((clock::monotonic_ns() - moment_ns) / PERIOD_NS + 1) * PERIOD_NS;
        clock::sleep_until_ns(moment_ns);
        let late_ns = clock::monotonic_ns() - moment_ns;
        shared.late.fetch_add(u64::from(late_ns > LATE_NS_MAX), Relaxed);
    }
}
