//! Values that no record of a trace has and a replay computes: lag, and the wake-up latency of each
//! CPU.
//!
//! The trace is replayed as `upcall sim --replay` does it.

use std::collections::BTreeMap;

use upcall::activity::ActivityId;
use upcall::scheduler::{Command, Input, Scheduler};
use upcall::time::{Instant, Span};
use upcall_sim::trace::{Crossing, Record, Trace};

#[cfg(test)]
mod tests;

/// The values of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// The lags of each activity, by CPU and by the activity's number on that CPU, in order of
    /// time. There is a value at every upcall and at every return. Empty under a policy without
    /// lag.
    pub lags: BTreeMap<(u32, u32), Vec<LagAt>>,
    /// The time quantum of the policy, if it has lag.
    pub time_quantum: Option<Span>,
    /// By CPU: for each sleep that lasted until its deadline, how much later the CPU woke, in
    /// nanoseconds.
    pub wakeups_ns: BTreeMap<u32, Vec<u64>>,
}

/// A lag, and its moment on the clock of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagAt {
    pub at_ns: u64,
    pub lag_ns: i64,
}

impl Replayed {
    /// Replays a trace. O(log n) a record.
    ///
    /// # Errors
    /// Records are missing, or the core decides differently today. Later lags are then unknown.
    pub fn of(trace: &Trace) -> Result<Replayed, String> {
        let header = &trace.header;
        let mut replayed = Replayed {
            time_quantum: header.time_quantum.or(header.discipline.time_quantum),
            ..Replayed::default()
        };
        // By CPU: the running activity, and the end of the CPU's sleep.
        let (mut running, mut due) = (BTreeMap::new(), BTreeMap::new());
        let outcomes = trace.replay_seen(|cpu, scheduler, record| {
            if let Some(id) = lag_subject(&mut running, cpu, record)
                && let Some(lag_ns) = scheduler.lag_ns(id, record.now)
            {
                let at_ns = record.now.as_nanos();
                replayed.lags.entry((cpu, id.0)).or_default().push(LagAt { at_ns, lag_ns });
            }
            if let Some(late) = wakeup_latency(&mut due, cpu, scheduler, record) {
                replayed.wakeups_ns.entry(cpu).or_default().push(late.as_nanos());
            }
        });
        for of_cpu in outcomes {
            let cpu = of_cpu.cpu;
            match of_cpu.outcome {
                Ok(done) if done.lost == 0 => {}
                Ok(done) => return Err(format!("CPU {cpu}: {} records are missing", done.lost)),
                Err(divergence) => return Err(format!("CPU {cpu}: {divergence}")),
            }
        }
        Ok(replayed)
    }
}

/// The activity whose lag is taken after `record`: one that was upcalled or has returned.
fn lag_subject(
    running: &mut BTreeMap<u32, ActivityId>,
    cpu: u32,
    record: &Record,
) -> Option<ActivityId> {
    match record.crossing {
        Crossing::Command(Some(Command::Upcall { id, .. })) => {
            running.insert(cpu, id);
            Some(id)
        }
        Crossing::Input { input: Input::Returned { .. }, refused: false } => running.remove(&cpu),
        _ => None,
    }
}

/// How late the CPU woke with `record`, if it slept until its deadline. A CPU sleeps when it has
/// nothing to do, and no longer than the core says. A tick ends the sleep. A tick before the
/// deadline comes from a notification.
fn wakeup_latency(
    due: &mut BTreeMap<u32, Instant>,
    cpu: u32,
    scheduler: &Scheduler,
    record: &Record,
) -> Option<Span> {
    match record.crossing {
        Crossing::Command(None) => {
            // If something is due already, the CPU does not sleep.
            let next = scheduler.next_deadline().filter(|&next| next > record.now);
            due.remove(&cpu);
            due.extend(next.map(|next| (cpu, next)));
            None
        }
        Crossing::Input { input, .. } => {
            let due = due.remove(&cpu)?;
            (input == Input::Tick && due <= record.now).then(|| record.now.since(due))
        }
        _ => None,
    }
}
