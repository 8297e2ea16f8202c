//! Where the experiment runs, and what the machine must have for it.

use std::path::Path;

use rustix::process::geteuid;

use crate::exit::Failure;

/// The CPUs of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Of receivers, background program and the kernel's work for packets.
    pub receivers_cpu: u32,
    /// Of the senders.
    pub senders_cpu: u32,
}

impl Place {
    /// The last CPU that a runtime would use for the receivers, and another one.
    ///
    /// # Errors
    /// As one line: this user is not root, a program is missing, or there is no second CPU.
    pub fn find() -> Result<Place, Failure> {
        let failed = |why: String| Failure::new(format_args!("upcall bench livelock: {why}"));
        let user = geteuid();
        if !user.is_root() {
            return Err(failed(format!(
                "found user {}, expected root: it makes network namespaces",
                user.as_raw()
            )));
        }
        for program in ["ip", "taskset"] {
            if !is_in_path(program) {
                return Err(failed(format!("found no program `{program}`, which it needs")));
            }
        }
        let last = upcall::default_cpus().map_err(Failure::of_error)?.last().copied();
        let receivers_cpu = last.ok_or_else(|| failed("found no CPU".to_owned()))?;
        let allowed = upcall::allowed_cpus().map_err(Failure::of_error)?;
        let senders_cpu = allowed.into_iter().find(|&cpu| cpu != receivers_cpu);
        let senders_cpu = senders_cpu
            .ok_or_else(|| failed("found one CPU, expected another one for senders".to_owned()))?;
        Ok(Place { receivers_cpu, senders_cpu })
    }
}

/// Whether the shell would find `program`.
fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}
