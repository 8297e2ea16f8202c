//! The processes that the bench starts. Each is this program with a role.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use crate::attack::OTHER_USER;

/// The environment variable that gives a process started by this one its role.
pub(crate) const ROLE: &str = "UPCALL_BENCH_ROLE";

pub(crate) fn start(role: &str) -> Child {
    command(role).spawn().expect("this program can be started")
}

/// Starts the process as another user. Only root can.
pub(crate) fn start_as_other(role: &str) -> Child {
    let mut command = command(role);
    command.uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
    command.spawn().expect("other users may start this program")
}

fn command(role: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    // Attackers may print anything.
    let stderr = if role.starts_with("attack|") { Stdio::null() } else { Stdio::inherit() };
    let mut command = Command::new(program);
    // The daemon ends when its standard input ends.
    let stdin = if role.starts_with("daemon|") { Stdio::piped() } else { Stdio::null() };
    command.env(ROLE, role).stdin(stdin).stdout(Stdio::piped()).stderr(stderr);
    command
}
