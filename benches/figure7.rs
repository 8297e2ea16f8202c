//! Placeholder until written below.
fn main() {}
