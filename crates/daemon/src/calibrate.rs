//! Measures the cost of a hand-off between two domains on this machine.
//!
//! The daemon calls it once at its start, before admission promises anything. Two threads on one
//! CPU pass a turn back and forth, as domains do. The runtime measures the rest of an executor's
//! work.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use upcall_core::time::Span;
use upcall_shm::DomainId;
use upcall_shm::turn_page::{PAGE_BYTES, TurnPage};
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{ThreadHandle, thread_id};
use upcall_sys::schedule::Band;
use upcall_sys::{clock, futex, schedule};

use crate::group::DomainGroupError;

/// Round trips of one measurement. Its cost is the 99th percentile.
const ROUNDS: usize = 400;
/// Measurements; the smallest cost counts. Other threads on the CPU can only raise a cost, never
/// lower it. Admission uses the result as long as the daemon runs.
const MEASUREMENTS: usize = 10;
/// How long the threads may measure with the priority of the domains. A domain of a former daemon
/// may keep the CPU with that priority for ever.
const WITHIN: Duration = Duration::from_millis(500);
/// The time between two looks whether the threads have measured.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Added to the measured cost, in percent.
const MARGIN_PERCENT: u64 = 20;

type Page = TurnPage<SharedMapping>;

/// The cost of a hand-off on `cpu`, with a margin. Takes about 30 ms, and longer on a busy machine.
/// If a thread with the priority of the domains keeps the CPU for half a second, the rest is
/// measured above it, with the watchdog's priority.
///
/// # Errors
/// There is no memory, or the system has no more threads.
pub fn handoff_cost(cpu: u32, band: Option<Band>) -> Result<Span, DomainGroupError> {
    let memory = SharedMapping::create("upcall-trial", PAGE_BYTES)?;
    let page = Arc::new(TurnPage::create(memory, cpu).map_err(|_| DomainGroupError::Layout)?);
    let (first, second) = (DomainId::DAEMON, DomainId::all().next().unwrap_or(DomainId::DAEMON));
    let (tell, tids) = mpsc::channel();
    let prepare = move || {
        let _ = tell.send(thread_id());
        if let Some(band) = band {
            let _ = schedule::set_fifo(band.handlers());
        }
        // Last: an ordinary thread might not run there.
        let _ = schedule::pin_thread(&[cpu]);
    };
    let prepare_other = prepare.clone();
    let answering = page.clone();
    let other = std::thread::spawn(move || {
        prepare_other();
        for _ in 0..ROUNDS * MEASUREMENTS {
            wait_for_turn(&answering, second);
            pass_turn(&answering, first);
        }
    });
    let page = page.clone();
    let measuring = std::thread::spawn(move || {
        prepare();
        let mut costs_ns = Vec::with_capacity(ROUNDS * MEASUREMENTS);
        for _ in 0..ROUNDS * MEASUREMENTS {
            let before = clock::monotonic_ns();
            pass_turn(&page, second);
            wait_for_turn(&page, first);
            costs_ns.push((clock::monotonic_ns() - before) / 2);
        }
        costs_ns
    });
    let (begun, mut known) = (Instant::now(), Vec::new());
    while !measuring.is_finished() {
        std::thread::sleep(LOOK_EVERY);
        known.extend(tids.try_iter());
        if let Some(band) = band.filter(|_| begun.elapsed() > WITHIN) {
            for &tid in &known {
                // Fails only if the thread has ended.
                let _ = ThreadHandle::open(std::process::id(), tid)
                    .and_then(|thread| thread.set_fifo_not_inherited(band.watchdog()));
            }
        }
    }
    let mut costs_ns = measuring.join().unwrap_or_default();
    let _ = other.join();
    let high = |costs_ns: &mut [u64]| {
        costs_ns.sort_unstable();
        costs_ns.get(costs_ns.len() * 99 / 100).copied()
    };
    let p99_ns = costs_ns.chunks_mut(ROUNDS).filter_map(high).min().unwrap_or_default();
    Ok(Span::from_nanos(p99_ns + p99_ns * MARGIN_PERCENT / 100))
}

fn pass_turn(page: &Page, to: DomainId) {
    if let Ok(turn) = page.turn() {
        page.pass(turn, to);
    }
    let wake_word = page.wake_word(to);
    if wake_word.notify() {
        futex::wake_shared(wake_word.word(), 1);
    }
}

fn wait_for_turn(page: &Page, me: DomainId) {
    let wake_word = page.wake_word(me);
    while page.holder() != Ok(me) {
        if wake_word.prepare_wait() {
            let _ = futex::wait_shared_until(wake_word.word(), ASLEEP, None);
        }
        wake_word.finish_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_costs_something() {
        let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
        let cost = handoff_cost(cpu, None).unwrap();
        assert!(cost > Span::ZERO, "{cost}");
    }
}
