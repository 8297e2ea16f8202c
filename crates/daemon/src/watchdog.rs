//! The watchdog: makes a domain yield the CPU if it does not yield itself.
//!
//! One thread, with a higher priority than all domains. It runs on a CPU without domains if there
//! is one. It wakes at ticks, every 5 ms, and at looks, for which it arms a timer (`arming`). A
//! tick checks all domains of all CPUs. A look checks one CPU: the domain that has the turn while
//! another one waits, and domains that run without the turn.
//!
//! ```text
//!   keeps to the rules -- (1) its quantum and 1 ms have passed, or it owes; another waits --+
//!     ^     ^      |                                                                        v
//!     |     |      |                                  +----- (2) owes nothing -------- preempted
//!     |     +------|----------------------------------+                                   |  |
//!     |            |          (3) its quantum and the grace used up, in CPU time          |  |
//!     |            |                     +------------------------------------------------+  |
//!     |            |                     v                                                   |
//!     +------------|---- (4) ---- out-prioritised                                            |
//!     |            |                     | (5) runs on, or did so too often                  |
//!     |            |                     v                                                   |
//!     +------------|---- (4) ------- demoted ---- (6) if so configured ---> killed           |
//!     |            |                     ^                                                   |
//!     |            +-- (7) runs away alone                                                   |
//!     |            |                                                                         |
//!     |            +-- (8) owes far too much, even alone ------> lowered <-- (8) runs on ----+
//!     +---------------- (2) owes nothing --------------------------+
//! ```
//!
//! 1. A domain responds: it makes an upcall, ends a quantum, or passes the turn. Its user area
//!    shows when. A domain has its longest quantum and 1 ms to respond. It may owe two jobs of each
//!    of its activities and half the grace. Beyond that its thread gets a priority below the KLS
//!    thread, and loses the turn. This is no offence: the machine may have stood still. Two looks
//!    must show the same silence, the thread must be ready to run and have run between them, and
//!    another domain must wait. A domain that runs without the turn is treated in the same way
//!    while the holder is silent.
//! 2. The domain responds, and owes nothing above its limit (preempted), or nothing at all
//!    (lowered). Its thread gets its priority back and takes turns again. A thread whose CPU time
//!    shows that it did not run has lost the time to the host. It finishes its quantum at once.
//! 3. Now it is an offence. The limit is in CPU time of the domain's thread, so waits and stopped
//!    processes do not count. Time that the host took without reporting it does not count either
//!    (`meter`). Without the real-time class there is no state *preempted*. Then the watchdog
//!    requests a yield in the kernel area, and the offence follows from the CPU time alone.
//! 4. It responds and owes nothing. It returns, but not after too many offences. Below domains that
//!    use the whole CPU it cannot respond. So without CPU time for 50 ms it finishes its quantum at
//!    once, as in (2). A preempted domain finishes it after its own limit already, if all domains
//!    of the CPU are of its user: most such silences are pauses of the host, and 50 ms more would
//!    cost it jobs. If it is silent again, its CPU time adds up to that of an offence.
//! 5. The thread may run on in the ordinary class, without turns. So real-time threads stay below
//!    the share of the CPU that Linux allows them (sched(7), `sched_rt_runtime_us`).
//! 6. The server sends SIGKILL.
//! 7. No other domain waits. The domain has used its quantum and 50 ms of CPU time without a
//!    response. Ordinary programs go on beside a demoted domain.
//! 8. The domain owes 50 ms more than the limit of an offence, or ran for 50 ms while it was
//!    preempted. It responds, so this is no offence. In the ordinary class it may use idle time to
//!    catch up, and does not keep ordinary programs from running.
//!
//! A domain can fake its responses. It can also show a rank that it was not admitted with. The
//! watchdog finds such a rank at the second tick (`ranks`). Then the domain is out-prioritised, and
//! counts as having no work until it shows its own ranks.
//!
//! A response can be false, and CPU time cannot. A domain that ran for its quantum and 1 ms of CPU
//! time without the turn is preempted. So is one that kept the turn for that long while a domain of
//! another user showed a better rank (`kept_turn`). An honest domain passes the turn at a boundary
//! before, and sleeps without it. So the domain takes turns again when it sleeps, or after 50 ms:
//! work without end runs on below the others. The third time, each within a second of the one
//! before, is an offence.
//!
//! A thread that waits for a lock may give its priority to the owner of that lock, which the daemon
//! does not know. Such a thread loses its priority while it waits, at once (`lock_waits`), or when
//! no domain gets the CPU (`away`).
//!
//! The daemon pins the thread of a domain to its CPU, and the thread can change that. A thread that
//! left its CPU is pinned again, and is ordinary for a while. The third time within a short time is
//! an offence (`left_cpu`).
//!
//! CPU time counts from the attachment of a thread on. What it owes when it leaves delays new
//! threads of its user (`departed.rs`).
//!
//! A domain cannot fake its CPU time. CPU time beyond its reservation counts as debt. A domain
//! offends if it owes more than two jobs of each of its activities and the grace, and has the turn
//! while another domain waits. All domains of a group together have one account more
//! (`group_account`). It also makes a domain wait, without an offence, that is more than a job
//! ahead of its reservation while another user waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use upcall_core::time::{Instant, Span};
pub use upcall_shm::Measure;
use upcall_sys::inheritance::Boosts;
use upcall_sys::process::{thread_id, wait_time_of};
use upcall_sys::{clock, schedule};

use crate::clock::now;
use crate::cpu::CpuState;
use crate::enforcement::TICK;
use cpu_watch::CpuWatch;
use lock_waits::LockWaits;
use standstill::Ask;
use steal::Steal;
use tick::Tick;
pub(crate) use tick::{Offence, Report, Rules};

mod account;
mod arming;
mod away;
mod cpu_watch;
mod group_account;
mod kept_free;
mod kept_turn;
mod left_cpu;
mod lock_waits;
mod look;
mod measures;
mod meter;
mod record;
mod standstill;
mod steal;
#[cfg(test)]
mod tests;
mod tick;

/// See the module's head.
pub(crate) struct Watchdog<R> {
    rules: Rules,
    /// The CPUs where the watchdog itself may run; empty: anywhere.
    cpus: Vec<u32>,
    cpu_states: Vec<CpuWatch>,
    /// `None`: the kernel does not show them, or all domains are of one user.
    lock_waits: Option<LockWaits>,
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
            lock_waits: None,
            report,
            quit,
        }
    }

    /// Lets the watchdog put domains away that lend their priority.
    pub(crate) fn watch_lock_waits(&mut self, boosts: Boosts) {
        self.lock_waits = Some(LockWaits::new(boosts));
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
        let (mut tick_at, mut waited) = (now() + TICK, own_wait_time());
        // When the CPUs of the threads are checked within this tick.
        let mut cpus_at = Instant::FAR;
        let mut steal = Steal::of(self.cpu_states.iter().map(|watch| watch.cpu_state.cpu));
        // Relaxed: the flag publishes no other data.
        while !self.quit.load(Relaxed) {
            let looks = self.cpu_states.iter().filter_map(CpuWatch::next_look);
            let looks = looks.chain(self.lock_waits.as_ref().and_then(LockWaits::next_scan));
            let at = looks.fold(tick_at.min(cpus_at), Instant::min).max(now());
            match &mut self.lock_waits {
                Some(lock_waits) => lock_waits.sleep_until(at),
                None => clock::sleep_until_ns(at.as_nanos()),
            }
            let woke = now();
            let (is_tick, late) = (woke >= tick_at, woke.since(at));
            let mut stalled = Span::ZERO;
            if is_tick || late > meter::LATE_MAX {
                let before = std::mem::replace(&mut waited, own_wait_time());
                let since = before.zip(waited).map(|(before, now)| now.saturating_sub(before));
                stalled = meter::stall_time(late, since);
            }
            steal.update(now);
            for watch in &mut self.cpu_states {
                watch.taken = steal.taken(watch.cpu_state.cpu);
                let (now, rules, report) = (now(), &self.rules, &mut self.report);
                let mut tick = Tick { now, stalled, kernel_tick, rules, report };
                if is_tick {
                    watch.check(&mut tick);
                } else if watch.next_look().is_some_and(|look| look <= now) {
                    watch.look(&mut tick);
                }
            }
            if woke >= cpus_at {
                cpus_at = Instant::FAR;
                self.check_cpus(stalled, kernel_tick);
            }
            let several_users = self.has_several_users();
            if let Some(lock_waits) = &mut self.lock_waits {
                let (now, rules, report) = (now(), &self.rules, &mut self.report);
                let mut tick = Tick { now, stalled, kernel_tick, rules, report };
                lock_waits.look(&mut self.cpu_states, (is_tick, several_users), &mut tick);
            } else {
                self.cpu_states.iter_mut().for_each(|watch| watch.raised.clear());
            }
            self.pass_on(several_users, stalled, kernel_tick);
            if is_tick {
                // After a late tick, too, the next one comes a whole tick later.
                tick_at = woke + TICK;
                if self.cpu_states.iter().any(|watch| watch.uids().next().is_some()) {
                    cpus_at = left_cpu::moment_within(woke);
                }
            }
        }
    }
}

impl<R: FnMut(Report)> Watchdog<R> {
    /// Whether the domains of all CPUs are of several users.
    fn has_several_users(&self) -> bool {
        let uids = self.cpu_states.iter().flat_map(CpuWatch::uids);
        let (least, most) = (uids.clone().min(), uids.max());
        least != most
    }

    /// Finds the threads that left their CPUs.
    fn check_cpus(&mut self, stalled: Span, kernel_tick: Span) {
        let (rules, report) = (&self.rules, &mut self.report);
        let mut tick = Tick { now: now(), stalled, kernel_tick, rules, report };
        self.cpu_states.iter_mut().for_each(|watch| watch.answer(Ask::CheckCpus, &mut tick));
    }

    /// Passes what looks ask on to the checks of the other CPUs (`away`).
    fn pass_on(&mut self, several_users: bool, stalled: Span, kernel_tick: Span) {
        for at in 0..self.cpu_states.len() {
            self.cpu_states[at].others_elsewhere = several_users;
            for ask in std::mem::take(&mut self.cpu_states[at].asks) {
                for other in (0..self.cpu_states.len()).filter(|&other| other != at) {
                    let (now, rules, report) = (now(), &self.rules, &mut self.report);
                    let mut tick = Tick { now, stalled, kernel_tick, rules, report };
                    self.cpu_states[other].answer(ask, &mut tick);
                }
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
pub(crate) fn cpus_without_domains(cpu_states: &[Arc<CpuState>], allowed: &[u32]) -> Vec<u32> {
    let is_free = |cpu: &u32| cpu_states.iter().all(|cpu_state| cpu_state.cpu != *cpu);
    allowed.iter().copied().filter(is_free).collect()
}
