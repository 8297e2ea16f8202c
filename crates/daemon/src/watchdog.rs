//! The watchdog: makes a domain yield the CPU if it does not yield itself.
//!
//! One thread, with a higher priority than all domains. It runs on a CPU without domains if there
//! is one. Every 5 ms it looks at each CPU. There it checks the domain that has the turn while
//! another one waits, and the CPU time of each domain.
//!
//! ```text
//!   keeps to the rules -- (1) another waits ---> asked -- (2) it responds ---+
//!     ^           ^                               |                          |
//!     |           +-------------------------------|--------------------------+
//!     |                                           | (3) its quantum and the grace used up
//!     +------- (4) responds, owes nothing ------ out-prioritised
//!     |                                           | (5) runs on, or did so too often
//!     |                                           v
//!     +----------------- (4) ----------------- demoted ---- (6) if so configured ---> killed
//! ```
//!
//! 1. The watchdog requests a yield in the kernel area. The domain compares ranks with the other
//!    domains at its next boundary.
//! 2. The domain asked whether it may go on, made an upcall, or passed the turn.
//! 3. The limit is in CPU time of the domain's thread, so waits and stopped processes do not count.
//!    Time that the host took without reporting it does not count either (`meter`). A domain that
//!    runs without having the turn gets no request first. Its thread gets a priority below the KLS
//!    thread and takes no turns, and the other domains go on.
//! 4. The thread gets its priority back and takes turns again.
//! 5. The thread may run on in the ordinary class, without turns. So real-time threads stay below
//!    the share of the CPU that Linux allows them (sched(7), `sched_rt_runtime_us`). The thread
//!    returns by (4), but not after too many offences.
//! 6. The server sends SIGKILL.
//!
//! A domain can fake its responses. It can also show a rank that it was not admitted with. The
//! watchdog finds such a rank at the second tick (`ranks`). Then the domain is out-prioritised, and
//! counts as having no work until it shows its own ranks.
//!
//! A domain cannot fake its CPU time. CPU time beyond its reservation counts as debt. A domain
//! offends if it owes more than two jobs of each of its activities and the grace, and has the turn
//! while another domain waits. All domains of a group together have one account more
//! (`group_account`).

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
use tick::Tick;
pub(crate) use tick::{Offence, Report, Rules};

mod account;
mod cpu_watch;
mod group_account;
mod measures;
mod meter;
mod record;
#[cfg(test)]
mod tests;
mod tick;

/// The time between two ticks.
pub(crate) const TICK: Span = Span::from_millis(5);

/// See the module's head.
pub(crate) struct Watchdog<R> {
    rules: Rules,
    /// The CPUs where the watchdog itself may run; empty: anywhere.
    cpus: Vec<u32>,
    cpu_states: Vec<CpuWatch>,
    report: R,
    quit: Arc<AtomicBool>,
}

impl<R: FnMut(Report)> Watchdog<R> {
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

    /// Runs until `quit` is set.
    fn run(mut self) {
        if !self.cpus.is_empty() {
            // A failure is ignored: without such a CPU the watchdog preempts the domains that it
            // watches.
            let _ = schedule::pin_thread(&self.cpus);
        }
        if let Some(band) = self.rules.band {
            let _ = schedule::set_fifo(band.watchdog());
        }
        let _ = schedule::set_timer_slack_least();
        let kernel_tick = Span::from_nanos(clock::kernel_tick_ns());
        let (mut woke, mut waited) = (now(), own_wait_time());
        // Relaxed: the flag publishes no other data.
        while !self.quit.load(Relaxed) {
            // After a late tick, too, the next one comes a whole tick later.
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

/// How long the calling thread has waited for other threads so far; `None` if the kernel does not
/// count it.
fn own_wait_time() -> Option<Span> {
    wait_time_of(std::process::id(), thread_id()).ok().map(Span::from_nanos)
}

/// The CPUs of `allowed` without domains. There the watchdog preempts no domain, and no domain with
/// a stolen priority can delay it. Empty if there is no such CPU.
fn cpus_without_domains(cpu_states: &[Arc<CpuState>], allowed: &[u32]) -> Vec<u32> {
    let is_free = |cpu: &u32| cpu_states.iter().all(|cpu_state| cpu_state.cpu != *cpu);
    allowed.iter().copied().filter(is_free).collect()
}
