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
mod packages;
mod publish;
mod smoke;
mod test;
mod unsafe_code;

/// All gates. Their names are the subcommands.
pub const ALL: [Gate; 15] = [
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
    publish::GATE,
    smoke::GATE,
    deb::GATE,
    benches::GATE,
];
