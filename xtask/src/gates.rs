//! Every gate, in the order in which CI runs them: quick ones first.

use crate::gate::Gate;

mod ahead;
mod benches;
mod bpf;
mod cargo;
mod deb;
mod docs_true;
mod edges;
mod files;
mod licences;
mod loom;
mod newcomer;
mod packages;
mod publish;
mod quick;
mod readme;
mod tasks;
mod test;
mod unsafe_code;

pub use edges::list_circles;
pub use files::count_findings;

/// All gates.
pub const ALL: [Gate; 17] = [
    packages::GATE,
    cargo::FMT,
    cargo::CLIPPY,
    edges::GATE,
    unsafe_code::GATE,
    files::GATE,
    licences::GATE,
    bpf::GATE,
    test::GATE,
    loom::GATE,
    cargo::DOC,
    docs_true::GATE,
    newcomer::GATE,
    publish::GATE,
    deb::GATE,
    // After the benches: the fresh clones reuse the libraries that these compiled.
    benches::GATE,
    readme::GATE,
];

/// The gates that a developer runs for every change: the quick ones, and `quick` in place of
/// `test`.
pub const CHECK: [Gate; 7] = [
    cargo::FMT,
    cargo::CLIPPY,
    edges::GATE,
    unsafe_code::GATE,
    files::GATE,
    docs_true::GATE,
    quick::GATE,
];

/// The gate with this name.
pub fn named(name: &str) -> Option<Gate> {
    ALL.into_iter().chain(CHECK).find(|gate| gate.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_tasks_are_the_gates_and_four_commands() {
        let gates = ALL.iter().chain(&CHECK).map(|gate| gate.name);
        let tasks: BTreeSet<&str> = gates.chain(["check", "ci", "results", "soak"]).collect();
        assert!(tasks.into_iter().eq(tasks::TASKS));
    }
}
