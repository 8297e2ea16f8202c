//! Evidence of whether the whole machine stood still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use upcall::clock;
use upcall::time::Span;
use upcall_sys::schedule;

/// A thread of the highest priority on another CPU that only sleeps and wakes. If it wakes late,
/// the whole machine stood still. The host does not always count this as steal.
pub struct Witness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Witness {
    const INTERVAL: Span = Span::from_millis(2);
    const PRIORITY: u8 = 98;

    /// Starts the witness on the CPUs other than `cpu`, which is measured.
    pub fn start(cpu: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            let mut others = schedule::allowed_cpus().unwrap_or_default();
            others.retain(|&other| other != cpu);
            let apart = !others.is_empty() && schedule::pin_thread(&others).is_ok();
            if !apart || schedule::set_fifo(Witness::PRIORITY).is_err() {
                return 0;
            }
            let mut late_ns_max = 0;
            while !seen.load(Ordering::Relaxed) {
                let at = clock::now() + Witness::INTERVAL;
                upcall_sys::clock::sleep_until_ns(at.as_nanos());
                late_ns_max = late_ns_max.max(clock::now().since(at).as_nanos());
            }
            late_ns_max
        });
        Witness { over, thread }
    }

    /// The worst wake-up latency in ns, or 0 if it is not known.
    pub fn stop(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
