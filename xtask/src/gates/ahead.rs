//! Compiles what later gates need, while the tests of the gate `test` sleep.
//!
//! The gate `test` calls this. The builds run one after the other, silently, in the scheduling
//! class for idle CPUs (sched(7), `SCHED_IDLE`). A later gate gives the same command again, so it
//! compiles what is left and reports failures. Only gates that this program was asked to run count.

use super::{benches, deb, loom, newcomer};
use crate::workspace::Workspace;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

/// The commands that compile what a gate needs.
type Builds = fn(&Workspace) -> Vec<Command>;

/// Builds that run.
pub struct Ahead(JoinHandle<()>);

impl Ahead {
    /// Waits until all builds have ended.
    pub fn wait(self) {
        // Nothing depends on the builds: the gates report failures.
        let _ = self.0.join();
    }
}

/// Begins the builds of the gates that were chosen.
pub fn begin(workspace: &Workspace) -> Ahead {
    let builds = builds(workspace);
    Ahead(std::thread::spawn(move || {
        for build in builds {
            // Without `chrt` there is no build ahead of its gate.
            let _ = when_idle(&build).status();
        }
    }))
}

/// What the chosen gates compile. The libraries of the benches come first: `deb` uses most of them.
fn builds(workspace: &Workspace) -> Vec<Command> {
    let of_gates: [(&str, Builds); 4] = [
        (benches::GATE.name, benches::builds),
        (deb::GATE.name, deb::builds),
        (newcomer::GATE.name, newcomer::builds),
        (loom::GATE.name, loom::builds),
    ];
    let is_chosen = |gate: &str| workspace.chosen.contains(&gate);
    of_gates
        .into_iter()
        .filter(|(gate, _)| is_chosen(gate))
        .flat_map(|(_, of)| of(workspace))
        .collect()
}

/// `command` without output, in the class for idle CPUs.
fn when_idle(command: &Command) -> Command {
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        idle.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => idle.env(name, value),
            None => idle.env_remove(name),
        };
    }
    idle.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chosen_gates_build_ahead() {
        let mut workspace = Workspace::load().unwrap();
        assert!(builds(&workspace).is_empty(), "{:?}", workspace.chosen);
        workspace.chosen = vec!["fmt", "loom"];
        let builds = builds(&workspace);
        assert_eq!(builds.len(), 1, "{builds:?}");
        assert!(builds[0].get_args().any(|argument| argument == "upcall-shm"), "{builds:?}");
    }

    #[test]
    fn a_build_ahead_keeps_its_folder_and_variables_and_is_idle() {
        let mut command = Command::new("sh");
        command.current_dir("/proc/self").env("WORD", "kept");
        command.args([
            "-c",
            "test \"$WORD\" = kept && test \"$(pwd)\" != / && chrt -p $$ | grep -q IDLE",
        ]);
        let status = when_idle(&command).status().unwrap();
        assert!(status.success(), "{status}");
        assert!(!when_idle(Command::new("sh").args(["-c", "exit 3"])).status().unwrap().success());
    }
}
