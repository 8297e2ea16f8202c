//! The *supervisor*: a child of the daemon that removes its groups if the daemon is killed.
//!
//! It is the daemon's own program with a flag of its own. It reads its standard input, a pipe from
//! the daemon:
//!
//! ```text
//!   waits --+-- (1) a byte: the daemon has removed its groups ------> ends
//!           +-- (2) end of the pipe: the daemon has died --> removes --> ends
//! ```
//!
//! If the supervisor is killed too, the next start of a daemon removes what is left.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use upcall_sys::cgroup::{Cgroup, CgroupError, Hierarchy};

use super::left_over::{name_of_this_daemon, remove_tree};

/// The flag: `PROGRAM --supervise-programs FOLDER NAME`, with the folder of the group around the
/// daemon's, and the name of the daemon's.
const FLAG: &str = "--supervise-programs";

/// How often the supervisor tries to remove the groups.
const REMOVALS_MAX: usize = 20;

/// A supervisor that runs.
#[derive(Debug)]
pub(super) struct Supervisor(Child);

impl Supervisor {
    /// Starts it for the groups of this process below `parent`.
    ///
    /// # Errors
    /// The program cannot be executed.
    pub(super) fn start(program: &Path, parent: &Cgroup) -> std::io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(FLAG).arg(parent.folder()).arg(name_of_this_daemon());
        // A group of its own: a signal from the terminal does not reach it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Supervisor)
    }
}

impl Drop for Supervisor {
    /// The groups are removed.
    fn drop(&mut self) {
        // Fails only if the supervisor has been killed.
        let _ = self.0.stdin.take().map(|mut pipe| pipe.write_all(b"."));
        let _ = self.0.wait();
    }
}

/// Acts as the supervisor if this process was started as one, until the daemon has ended. `main`
/// calls it first, and then ends with the status. `None`: the process is no supervisor.
pub fn supervise_if_asked() -> Option<ExitCode> {
    supervise_if(std::env::args_os().skip(1))
}

fn supervise_if(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.next()? != FLAG {
        return None;
    }
    let (folder, name) = (PathBuf::from(arguments.next()?), arguments.next()?.into_string().ok()?);
    Some(match supervise(std::io::stdin(), &folder, &name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Reads the daemon's pipe until its end, and then removes the daemon's group `name` in the group
/// with this folder, unless the daemon has written a byte. Blocks as long as the daemon lives.
///
/// # Errors
/// See [`CgroupError`]: groups are left.
pub fn supervise(mut pipe: impl Read, folder: &Path, name: &str) -> Result<(), CgroupError> {
    if pipe.read_exact(&mut [0]).is_ok() {
        return Ok(());
    }
    let group = Hierarchy::find()?.group_at(folder).ok_or(CgroupError::NoController)?;
    let mut left = remove_tree(&group, name);
    // On a busy machine processes may fork faster than they are moved.
    for _ in 1..REMOVALS_MAX {
        if left.is_ok() {
            break;
        }
        left = remove_tree(&group, name);
    }
    left
}
