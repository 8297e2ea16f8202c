//! Keeps two runs from promising the time of one CPU.

use upcall_cli::cpu_lock::{CpuLockError, CpuLocks};
use upcall_cli::standard_error::say;

use crate::exit::Failure;
use crate::output::Refusal;
use crate::plan::Plan;

/// Locks `cpus` for the promises of `plan`. `None` if the run promises nothing, because it has no
/// right to the real-time class. A lock that cannot be had for another reason than its holder is
/// only reported: other users can take the name of a folder in `/tmp`.
///
/// # Errors
/// Another process has promised the time of a CPU.
pub fn lock(plan: &Plan<'_>, cpus: &[u32]) -> Result<Option<CpuLocks>, Failure> {
    if upcall::RealTime::granted().is_err() {
        return Ok(None);
    }
    match CpuLocks::take(cpus, "upcall run") {
        Ok(locks) => Ok(Some(locks)),
        Err(error @ CpuLockError::Held { cpu, .. }) => {
            let refused = plan.activities.iter().find(|planned| planned.cpu == cpu);
            let refused = refused.or(plan.activities.first());
            Err(Failure::promised_twice(Refusal {
                name: refused.map(|planned| planned.name().to_owned()).unwrap_or_default(),
                reason: error.to_string(),
                hint: None,
                optional: false,
            }))
        }
        Err(error) => {
            say(format_args!("upcall: another run may promise the same CPUs: {error}"));
            Ok(None)
        }
    }
}
