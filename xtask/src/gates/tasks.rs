//! The words that `cargo xtask` accepts as its first argument.
//!
//! The gate `readme` checks the commands in documents against this list. A test in `gates.rs`
//! checks that the list is complete.

/// The names of all gates, and of the other commands.
pub const TASKS: [&str; 22] = [
    "benches",
    "bpf",
    "check",
    "ci",
    "clippy",
    "deb",
    "doc",
    "docs-true",
    "edges",
    "files",
    "fmt",
    "licences",
    "loom",
    "newcomer",
    "packages",
    "publish",
    "quick",
    "readme",
    "results",
    "soak",
    "test",
    "unsafe",
];
