//! What the fuzz targets do with their bytes: plain functions that panic if something
//! is wrong.
//!
//! Called by libFuzzer through `fuzz/fuzz_targets` and, without it, by `tests/smoke.rs`
//! on every build. Bytes become operations of a model in `crates/core/tests/models`,
//! which gives them to the real thing as well and compares. No body knows a clock,
//! a file or chance: the same bytes do the same.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a model may panic")]

mod arrivals_file;
mod bytes;
mod operations;
mod spec_file;
mod trace_file;

#[path = "../../../crates/core/tests/models/dwcs.rs"]
mod dwcs_model;
#[path = "../../../crates/core/tests/models/dws.rs"]
mod dws_model;
#[path = "../../../crates/core/tests/models/ps.rs"]
mod ps_model;
// The models of PS name it so.
#[path = "../../../crates/core/tests/models/ps_instance.rs"]
mod ps_instance;
#[path = "../../../crates/core/tests/models/rate_monotonic.rs"]
mod rate_monotonic_model;

pub use arrivals_file::arrivals;
pub use operations::{dwcs, dws, ps, ps_account, ps_groups, rm, rmdp};
pub use spec_file::spec;
pub use trace_file::trace;

/// A target by its name in `fuzz/fuzz_targets` and `fuzz/seeds`.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("spec", spec),
    ("trace", trace),
    ("arrivals", arrivals),
    ("rmdp", rmdp),
    ("rm", rm),
    ("dws", dws),
    ("ps", ps),
    ("ps_account", ps_account),
    ("ps_groups", ps_groups),
    ("dwcs", dwcs),
];
