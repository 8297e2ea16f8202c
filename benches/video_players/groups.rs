//! Control groups of equal weight, one for each player. The kernel's fair class (EEVDF) divides the
//! CPU among them.
//!
//! A daemon also gives weights to programs ([`upcall::program`]). But it moves all other processes
//! of the machine into a group of theirs meanwhile. So the bench makes its own groups, and other
//! processes stay where they are:
//!
//! ```text
//!   parent                  as `Hierarchy::writable` finds it
//!     upcall-video-PID      the greatest weight
//!       0, 1 ..             a player each, of one weight
//! ```
//!
//! A child of the bench, the *remover*, removes them when the bench drops them, panics or is
//! killed: it waits for the end of a pipe that only the bench holds open. The players end with the
//! bench.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use upcall_sys::cgroup::{Cgroup, CgroupError, Hierarchy, WEIGHT_MAX_PPM};

use crate::setup::ROLE;

/// The role of the remover, in front of the folder of the groups.
const REMOVER: &str = "remover|";
/// A killed process leaves its group only at its end.
const REMOVE_WITHIN: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// The groups of one step. Dropping it removes them, and blocks: the players have to end.
pub struct Groups {
    players: Vec<Cgroup>,
    remover: Child,
    /// Its end tells the remover to begin. `None` in `drop`.
    pipe: Option<ChildStdin>,
}

/// Whether such groups can be made.
///
/// # Errors
/// See [`CgroupError`]: there is no controller, or no right.
pub fn permission() -> Result<(), CgroupError> {
    Groups::make(1).map(drop)
}

impl Groups {
    /// Makes a group for each of so many players.
    ///
    /// # Errors
    /// See [`CgroupError`]. Nothing is left then.
    pub fn make(players: usize) -> Result<Self, CgroupError> {
        let parent = Hierarchy::find()?.writable()?;
        let name = format!("upcall-video-{}", std::process::id());
        let mut groups = Groups::with_remover(&parent.child(&name));
        // In version 2 the groups have no weights before.
        parent.divide()?;
        let top = parent.create(&name)?;
        top.set_weight(WEIGHT_MAX_PPM)?;
        top.divide()?;
        for player in 0..players {
            let group = top.create(&player.to_string())?;
            group.set_weight(WEIGHT_MAX_PPM)?;
            groups.players.push(group);
        }
        Ok(groups)
    }

    /// No groups yet, and the remover of `top`.
    fn with_remover(top: &Cgroup) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.env(ROLE, format!("{REMOVER}{}", top.folder().display())).stdin(Stdio::piped());
        // A signal of the terminal to the bench does not reach it.
        let mut remover = command.process_group(0).spawn().expect("this program can be started");
        let pipe = remover.stdin.take();
        Groups { players: Vec::new(), remover, pipe }
    }

    /// Moves the process of a player into its group.
    ///
    /// # Errors
    /// See [`CgroupError`].
    pub fn add(&self, player: usize, pid: u32) -> Result<(), CgroupError> {
        self.players[player].add(pid)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        drop(self.pipe.take());
        if std::thread::panicking() {
            // The players end with this process, and then the remover goes on.
            return;
        }
        let ended = self.remover.wait();
        if !ended.is_ok_and(|status| status.success()) {
            println!("control groups of the bench are left: see above");
        }
    }
}

/// Plays the remover, if that is this process's role: waits until the bench has dropped its groups
/// or has ended, and then removes them. Returns whether it was.
pub fn remove_if_asked(role: &str) -> bool {
    let Some(folder) = role.strip_prefix(REMOVER) else { return false };
    // An error is an end, too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let begun = Instant::now();
    while let Err(error) = remove(Path::new(folder)) {
        assert!(begun.elapsed() < REMOVE_WITHIN, "{folder} cannot be removed: {error}");
        std::thread::sleep(RETRY_AFTER);
    }
    true
}

/// # Errors
/// A process is in a group yet, or see [`CgroupError`].
fn remove(folder: &Path) -> Result<(), CgroupError> {
    let top = Hierarchy::find()?.group_at(folder).ok_or(CgroupError::NoController)?;
    if !top.exists() {
        return Ok(());
    }
    for name in top.children()? {
        top.child(&name).remove()?;
    }
    top.remove()
}
