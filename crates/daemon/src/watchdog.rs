//! Sees to it that a domain that should yield does.
//!
//! One thread above all domains, on a CPU that has none of them if there is one. Every
//! 5 ms it looks at whoever has the turn on each CPU while somebody else waits for it, and
//! at what each domain has used.
//!
//! ```text
//!   keeps to the rules -- (1) somebody waits --> asked -- (2) sign of life --+
//!     ^           ^                               |                          |
//!     |           +-------------------------------|--------------------------+
//!     |                                           | (3) its quantum and the grace used up
//!     +------- (4) a sign, and nothing owed ---- out-prioritised
//!     |                                           | (5) runs on, or did so too often
//!     |                                           v
//!     +----------------- (4) ----------------- demoted ---- (6) if so configured ---> killed
//! ```
//!
//! 1. A yield request in the kernel area: at its next boundary the domain looks at the others.
//! 2. It asked whether it may go on, made an upcall, or passed the turn.
//! 3. In CPU time of its thread, so that neither a wait nor a stopped process counts, and
//!    less what the host took of it and did not say (`meter`). A domain that runs without
//!    having the turn is not asked first. Its thread sinks beneath the KLS thread and takes
//!    no turns, and the others go on.
//! 4. Its thread is raised again, and it takes turns.
//! 5. In the ordinary class it may run on, without turns, so that the real-time class
//!    stays under what Linux grants it; the way back is (4), but not after too many
//!    offences.
//! 6. The server sends SIGKILL.
//!
//! A domain may lie about signs of life. A rank that it was not admitted with is found at
//! the second look (`ranks`): then it is out-prioritised, and has nothing until it
//! shows the right ones. What it cannot lie about is CPU time: whatever it uses beyond what was reserved for it, it owes; who owes more than two

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use upcall_core::time::Span;
pub use upcall_shm::Measure;
use upcall_sys::process::{thread_id, wait_time_of};
use upcall_sys::{clock, schedule};

use crate::clock::now;
use crate::cpu::CpuState;
use cpu_watch::CpuWatch;
pub(crate) use measures::lower_leader;
use tick::Tick;
pub(crate) use tick::{Offence, Rules};

mod account;
mod cpu_watch;
mod measures;
mod meter;
mod record;
#[cfg(test)]
mod tests;
mod tick;

/// How often it looks.
pub(crate) const TICK: Span = Span::from_millis(5);

/// See the module's head.
pub(crate) struct Watchdog<R> {
    rules: Rules,
    /// Where it may run itself; empty: anywhere.
    cpus: Vec<u32>,
    cpu_states: Vec<CpuWatch>,
    report: R,
    quit: Arc<AtomicBool>,
}

impl<R: FnMut(Offence)> Watchdog<R> {
    pub(crate) fn new(
        (cpu_states, allowed): (&[Arc<CpuState>], &[u32]),
        rules: Rules,
        quit: Arc<AtomicBool>,
        report: R,
    ) -> Self {
        let cpus = cpus_without_domains(cpu_states, allowed);
        Watchdog {
            rules,
            cpus,
            cpu_states: cpu_states.iter().cloned().map(CpuWatch::new).collect(),
            report,
            quit,
        }
    }

    /// Starts the watchdog's thread.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn spawn(self) -> std::io::Result<JoinHandle<()>>
    where
        R: Send + 'static,
    {
        let thread = std::thread::Builder::new().name("upcall-watchdog".into());
        thread.spawn(move || self.run())
    }

    /// Runs until [`Watchdog::quit`] is set.
    fn run(mut self) {
        if !self.cpus.is_empty() {
            // A CPU that went away: then it preempts those it guards.
            let _ = schedule::pin_thread(&self.cpus);
        }
        if let Some(band) = self.rules.band {
            let _ = schedule::set_fifo(band.watchdog());
        }
        let _ = schedule::set_timer_slack_least();
        let kernel_tick = Span::from_nanos(clock::kernel_tick_ns());
        let (mut woke, mut waited) = (now(), own_wait_time());
        // Relaxed: nothing is handed over with it.
        while !self.quit.load(Relaxed) {
            // After a late one too there is a tick between two looks.
            let at = (woke + TICK).max(now());
            clock::sleep_until_ns(at.as_nanos());
            woke = now();
            let before = std::mem::replace(&mut waited, own_wait_time());
            let since = before.zip(waited).map(|(before, now)| now.saturating_sub(before));
            let stalled = meter::stall_time(woke.since(at), since);
            for watch in &mut self.cpu_states {
                let (rules, report) = (&self.rules, &mut self.report);
                watch.check(&mut Tick { now: now(), stalled, kernel_tick, rules, report });
            }
        }
    }
}

/// How long the calling thread waited for others so far, where the kernel counts that.
fn own_wait_time() -> Option<Span> {
    wait_time_of(std::process::id(), thread_id()).ok().map(Span::from_nanos)
}

/// The CPUs of `allowed` that have no domains: there it preempts none at each tick, and
/// none that took a higher priority keeps it from looking. Without such a CPU, none.
fn cpus_without_domains(cpu_states: &[Arc<CpuState>], allowed: &[u32]) -> Vec<u32> {
    let is_free = |cpu: &u32| cpu_states.iter().all(|cpu_state| cpu_state.cpu != *cpu);
    allowed.iter().copied().filter(is_free).collect()
}
