//! The configuration of the runtime behind the C calls, from the program or the environment.
//!
//! `calls` uses it for `rts_init`, and `library` uses it when another call comes first. A
//! process is a domain of a daemon if the program names the daemon's socket, or if the
//! environment variable `UPCALL_SOCKET` does. So a program runs under a daemon without code
//! for that.

use std::path::{Path, PathBuf};

use upcall::discipline;
use upcall::{Attach, Config, MemoryLock};

use crate::error::{Failed, Failure};

/// The environment variable with the daemon's socket, as for the command `upcall`.
const SOCKET_VARIABLE: &str = "UPCALL_SOCKET";

/// A checked copy of `rts_config`.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    /// The CPUs; empty: the default CPUs.
    pub(crate) cpus: Vec<u32>,
    pub(crate) policy: Option<String>,
    /// The daemon's socket. `None`: the environment decides. Empty: no daemon.
    pub(crate) socket: Option<PathBuf>,
    /// The name among the daemon's domains.
    pub(crate) domain: Option<String>,
    /// The name of the setting for locked memory.
    pub(crate) memory_lock: Option<String>,
}

impl Wish {
    /// The runtime's configuration.
    ///
    /// # Errors
    /// The policy or the setting for locked memory is unknown.
    pub(crate) fn config(self) -> Result<Config, Failure> {
        let mut config = Config { cpus: self.cpus, ..Config::default() };
        let socket = self.socket.or_else(from_environment);
        let socket = socket.filter(|path| !path.as_os_str().is_empty());
        if let Some(name) = self.policy.or_else(|| policy_of_daemon(socket.as_deref()?)) {
            config.discipline = discipline::by_name(&name).ok_or_else(|| unknown(&name))?;
        }
        if let Some(name) = self.memory_lock {
            let known = MemoryLock::EVERY.into_iter().find(|lock| lock.name() == name);
            config.memory_lock = known.ok_or_else(|| {
                let names = MemoryLock::EVERY.map(MemoryLock::name).join(", ");
                let found = format!("memory_lock `{name}`, expected one of {names}");
                Failure::new(Failed::Invalid, found)
            })?;
        }
        config.daemon = socket.map(|socket| {
            let name = self.domain.unwrap_or_else(program);
            Attach { socket, name }
        });
        Ok(config)
    }
}

/// The policy of the daemon at `socket`. `None` if none answers: then the attachment says why.
fn policy_of_daemon(socket: &Path) -> Option<String> {
    upcall::status::status(socket).ok().map(|status| status.policy)
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = discipline::DISCIPLINES.iter().map(|known| known.name).collect();
    let found = format!("policy `{name}`, expected one of {}", names.join(", "));
    Failure::new(Failed::Invalid, found)
}

/// The socket in the environment of the program.
fn from_environment() -> Option<PathBuf> {
    // SAFETY: the call takes a number and reads the process's auxiliary vector. It takes no
    // pointer.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // The user of a set-user-ID program must not choose its daemon (secure_getenv(3)).
    if privileged { None } else { std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from) }
}

/// The file name of the program.
fn program() -> String {
    let file = std::env::current_exe().ok();
    let name = file.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| std::process::id().to_string(), |name| name.to_string_lossy().into_owned())
}
