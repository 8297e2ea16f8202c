//! Every gate, in the order CI runs them: what is quick to look at first.

use crate::gate::Gate;

mod benches;
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
mod test;
mod unsafe_code;

pub use edges::list_circles;
pub use files::count_findings;

/// All gates. Their names are the subcommands.
pub const ALL: [Gate; 16] = [
    packages::GATE,
    cargo::FMT,
    cargo::CLIPPY,
    edges::GATE,
    unsafe_code::GATE,
    files::GATE,
    licences::GATE,
    test::GATE,
    loom::GATE,
    cargo::DOC,
    docs_true::GATE,
    newcomer::GATE,
    publish::GATE,
    deb::GATE,
    // After the benches: what they compiled of others' crates serves the fresh clones.
    benches::GATE,
    readme::GATE,
];

/// What a developer runs before each commit: quick gates, and in place of `test` a part of it.
pub const CHECK: [Gate; 7] = [
    cargo::FMT,
    cargo::CLIPPY,
    edges::GATE,
    unsafe_code::GATE,
    files::GATE,
    docs_true::GATE,
    quick::GATE,
];

/// Whether `cargo xtask NAME` does something.
pub fn is_task(name: &str) -> bool {
    ["ci", "check", "soak"].contains(&name) || named(name).is_some()
}

/// The gate of this name.
pub fn named(name: &str) -> Option<Gate> {
    ALL.into_iter().chain(CHECK).find(|gate| gate.name == name)
}
