//! The `upcall` command.

#[allow(dead_code, unused_imports, reason = "its callers, plan, run and sim, are being written")]
mod spec;

fn main() {}
