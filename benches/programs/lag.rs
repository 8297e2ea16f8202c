//! The lag of programs against a reference, from the switches of a CPU.
//!
//! The reference is a fluid EEVDF: of the CPU time that the fair class gets, a program is owed its
//! part for as long as it is ready. The lag is what it was owed less what it got. More than its
//! part is no credit. A debt stays while the program sleeps.

use std::collections::BTreeMap;

use crate::trace::{At, Event};

const SECOND_NS: u64 = 1_000_000_000;

/// A program of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    pub(crate) pid: u32,
    /// Its part of the time of the fair class.
    pub(crate) part: f64,
}

/// What a program missed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lags {
    /// At each switch while the program was ready, in ns.
    pub(crate) samples_ns: Vec<u64>,
    /// The greatest of each second.
    pub(crate) of_seconds_ns: Vec<u64>,
    /// From a wake-up to the run.
    pub(crate) wakes_ns: Vec<u64>,
    /// What ran while the program was ready and did not run: threads by CPU time in ns.
    pub(crate) beside_ns: BTreeMap<u32, u64>,
}

#[derive(Default)]
struct State {
    ready: bool,
    woken_at_ns: Option<u64>,
    owed_ns: f64,
    lags: Lags,
}

/// The lags of programs on a CPU.
pub(crate) fn lags(events: &[At], cpu: u32, programs: &[Owed]) -> Vec<Lags> {
    let mut states: Vec<State> = programs.iter().map(|_| State::default()).collect();
    let begun_ns = events.first().map_or(0, |(ns, _)| *ns);
    // The thread that runs, and since when it was counted.
    let mut running: Option<(u32, bool, u64)> = None;
    for &(at_ns, event) in events {
        if let Some((pid, is_fair, since_ns)) = running.as_mut() {
            let ran_ns = at_ns.saturating_sub(*since_ns);
            *since_ns = (*since_ns).max(at_ns);
            for (state, program) in states.iter_mut().zip(programs) {
                state.count(program, (*pid, *is_fair), ran_ns);
            }
        }
        match event {
            Event::Wake { pid } => {
                for (state, program) in states.iter_mut().zip(programs) {
                    if program.pid == pid && !state.ready {
                        (state.ready, state.woken_at_ns) = (true, Some(at_ns));
                    }
                }
            }
            Event::Switch { cpu: on, prev, stays_ready, next, next_is_fair } if on == cpu => {
                running = Some((next, next_is_fair, at_ns));
                let second = usize::try_from((at_ns - begun_ns) / SECOND_NS).unwrap_or_default();
                for (state, program) in states.iter_mut().zip(programs) {
                    state.sample(second);
                    if program.pid == prev {
                        state.ready = stays_ready;
                    }
                    if program.pid == next {
                        state.ready = true;
                        let woken_at_ns = state.woken_at_ns.take();
                        state.lags.wakes_ns.extend(woken_at_ns.map(|woken| at_ns - woken));
                    }
                }
            }
            Event::Switch { .. } => {}
        }
    }
    states.into_iter().map(|state| state.lags).collect()
}

impl State {
    fn count(&mut self, program: &Owed, (pid, is_fair): (u32, bool), ran_ns: u64) {
        if !is_fair || !self.ready {
            return;
        }
        self.owed_ns += program.part * ran_ns as f64;
        if pid == program.pid {
            self.owed_ns = (self.owed_ns - ran_ns as f64).max(0.0);
        } else {
            *self.lags.beside_ns.entry(pid).or_default() += ran_ns;
        }
    }

    fn sample(&mut self, second: usize) {
        if !self.ready {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not below 0")]
        let lag_ns = self.owed_ns as u64;
        let Lags { samples_ns, of_seconds_ns, .. } = &mut self.lags;
        samples_ns.push(lag_ns);
        if of_seconds_ns.len() <= second {
            of_seconds_ns.resize(second + 1, 0);
        }
        of_seconds_ns[second] = of_seconds_ns[second].max(lag_ns);
    }
}
