//! What no record of a trace tells, and the core does when it is asked again: lag,
//! and how late each CPU woke.
//!
//! The trace is replayed, as `upcall sim --replay` does it.

use std::collections::BTreeMap;

use upcall::activity::ActivityId;
use upcall::scheduler::{Command, Input, Scheduler};
use upcall::time::{Instant, Span};
use upcall_sim::trace::{Crossing, Record, Trace};

#[cfg(test)]
mod tests;

/// What a replay showed.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Of each CPU's activity by its number there, in the order of time: its lag in
    /// nanoseconds whenever it was upcalled and whenever it returned. Empty under a
    /// policy that knows none.
    pub lags_ns: BTreeMap<(u32, u32), Vec<i64>>,
    /// What the policy hands out at a time, if it knows lag.
    pub time_quantum: Option<Span>,
    /// By CPU: for each sleep that lasted until its end was due, how much longer it
    /// took to wake, in nanoseconds.
    pub wakeups_ns: BTreeMap<u32, Vec<u64>>,
}

impl Replayed {
    /// O(log n) a record.
    ///
    /// # Errors
    /// Records are missing, or the core says something else today: nobody knows the
    /// lags behind that.
    pub fn of(trace: &Trace) -> Result<Replayed, String> {
        let header = &trace.header;
        let mut replayed = Replayed {
            time_quantum: header.time_quantum.or(header.discipline.time_quantum),
            ..Replayed::default()
        };
        // By CPU: who runs, and when its sleep is to end.
        let (mut running, mut due) = (BTreeMap::new(), BTreeMap::new());
        let outcomes = trace.replay_seen(|cpu, scheduler, record| {
            if let Some(id) = looked_at(&mut running, cpu, record)
                && let Some(lag_ns) = scheduler.lag_ns(id, record.now)
            {
                replayed.lags_ns.entry((cpu, id.0)).or_default().push(lag_ns);
            }
            if let Some(late) = woken(&mut due, cpu, scheduler, record) {
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

/// Whose lag is of interest behind `record`: who is upcalled, or has returned.
fn looked_at(
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

/// How late the CPU woke with `record`, if it slept until it was due. It sleeps when
/// it has nothing to do, and no longer than the core says; a tick ends it. One
/// that comes before is a doorbell's.
fn woken(
    due: &mut BTreeMap<u32, Instant>,
    cpu: u32,
    scheduler: &Scheduler,
    record: &Record,
) -> Option<Span> {
    match record.crossing {
        Crossing::Command(None) => {
            // What is due by now is no sleep.
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
