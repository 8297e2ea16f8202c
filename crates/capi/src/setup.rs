//! What the runtime behind the C calls is set up with: the program's wish, or the
//! environment's.
//!
//! Called by `calls` for `rts_init`, and by `library` when a call comes before it.
//! A process takes part under a daemon if the program names its socket, or if whoever
//! started the program did, by `UPCALL_SOCKET`; so a program need not be written
//! for a daemon to run under one.

use std::path::PathBuf;

use upcall::discipline;
use upcall::{Attach, Config, MemoryLock};

use crate::error::{Failed, Failure};

/// Names the daemon's socket, as for the `upcall` command.
const SOCKET_VARIABLE: &str = "UPCALL_SOCKET";

/// What `rts_config` says, checked and copied.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    /// Empty: those there are.
    pub(crate) cpus: Vec<u32>,
    pub(crate) policy: Option<String>,
    /// The daemon's; `None`: as the environment says; empty: no daemon.
    pub(crate) socket: Option<PathBuf>,
    /// The name among the daemon's domains.
    pub(crate) domain: Option<String>,
    /// Which memory is locked.
    pub(crate) memory_lock: Option<String>,
}

impl Wish {
    /// The setup that is wished for.
    ///
    /// # Errors
    /// There is no such policy or memory lock.
    pub(crate) fn config(self) -> Result<Config, Failure> {
        let mut config = Config { cpus: self.cpus, ..Config::default() };
        if let Some(name) = self.policy {
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
        let socket = self.socket.or_else(from_environment);
        config.daemon = socket.filter(|path| !path.as_os_str().is_empty()).map(|socket| {
            let name = self.domain.unwrap_or_else(program);
            Attach { socket, name }
        });
        Ok(config)
    }
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = discipline::DISCIPLINES.iter().map(|known| known.name).collect();
    let found = format!("policy `{name}`, expected one of {}", names.join(", "));
    Failure::new(Failed::Invalid, found)
}

/// The socket that whoever started the program named.
fn from_environment() -> Option<PathBuf> {
    // SAFETY: takes a number and reads what the kernel gave the process; no pointer.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // Of a set-user-ID program the caller must not choose whom it listens to
    // (secure_getenv(3)).
    if privileged { None } else { std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from) }
}

/// The name of the program's file.
fn program() -> String {
    let file = std::env::current_exe().ok();
    let name = file.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| std::process::id().to_string(), |name| name.to_string_lossy().into_owned())
}
