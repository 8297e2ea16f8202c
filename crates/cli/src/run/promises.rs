//! Keeps a run off a CPU on which another process schedules real-time work.

use upcall_cli::cpu_lock::{CpuLockError, CpuLocks};
use upcall_cli::standard_error::say;

use crate::exit::Failure;
use crate::output::Refusal;
use crate::plan::Plan;

/// Locks `cpus` for `plan`. `None` if the run has no right to the real-time class: it disturbs
/// nobody. A lock that cannot be had for another reason than its holder is only reported: other
/// users can take the name of a folder in `/tmp`.
///
/// # Errors
/// Another process has the lock of a CPU.
pub fn lock(plan: &Plan<'_>, cpus: &[u32], soft: bool) -> Result<Option<CpuLocks>, Failure> {
    if upcall::RealTime::granted().is_err() {
        return Ok(None);
    }
    let command = if soft { "upcall run --soft" } else { "upcall run" };
    match CpuLocks::take(cpus, command) {
        Ok(locks) => Ok(Some(locks)),
        Err(error @ CpuLockError::Held { cpu, .. }) => {
            let remedy = error.remedy().map(str::to_owned);
            Err(refused(plan, &[cpu], error.to_string(), remedy))
        }
        Err(error) => {
            say(format_args!("upcall: another run may use the same CPUs: {error}"));
            Ok(None)
        }
    }
}

/// The refusal of the first activity on one of `cpus`.
pub fn refused(plan: &Plan<'_>, cpus: &[u32], reason: String, hint: Option<String>) -> Failure {
    let first = plan.activities.iter().find(|planned| cpus.contains(&planned.cpu));
    let first = first.or(plan.activities.first());
    let name = first.map(|planned| planned.name().to_owned()).unwrap_or_default();
    Failure::refused(Refusal { name, reason, hint, optional: false })
}
