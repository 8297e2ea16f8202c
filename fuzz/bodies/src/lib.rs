//! The bodies of the fuzz targets: plain functions of bytes that panic if something is wrong.
//!
//! libFuzzer calls them through `fuzz/fuzz_targets`, and `tests/smoke.rs` calls them on every
//! build. The bytes of most become operations of a model in `crates/core/tests/models`. The model
//! applies them to the real code as well and compares. Others are files, messages, frames, or the
//! stores of a hostile peer into shared pages (`pages`). No body uses a clock, a file or
//! randomness, so the same bytes always do the same.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a model may panic")]

mod arrivals_file;
mod bytes;
mod host;
mod operations;
mod packet;
mod pages;
mod spec_file;
mod trace_file;
mod wire;

#[path = "../../../crates/core/tests/models/dwcs.rs"]
mod dwcs_model;
#[path = "../../../crates/core/tests/models/dws.rs"]
mod dws_model;
#[path = "../../../crates/core/tests/models/ps.rs"]
mod ps_model;
// The models of PS import it by this name.
#[path = "../../../crates/core/tests/models/ps_instance.rs"]
mod ps_instance;
#[path = "../../../crates/core/tests/models/rate_monotonic.rs"]
mod rate_monotonic_model;

pub use arrivals_file::arrivals;
pub use host::host;
pub use operations::{dwcs, dws, ps, ps_account, ps_groups, rm, rmdp};
pub use packet::{packet, packet_schedule};
pub use pages::{event_channel, kernel_area, stream, turn_page, user_area};
pub use spec_file::spec;
pub use trace_file::trace;
pub use wire::{registry, wire};

/// A target: its name in `fuzz/fuzz_targets` and `fuzz/seeds`, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
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
    ("wire", wire),
    ("registry", registry),
    ("user_area", user_area),
    ("turn_page", turn_page),
    ("kernel_area", kernel_area),
    ("stream", stream),
    ("event_channel", event_channel),
    ("packet", packet),
    ("packet_schedule", packet_schedule),
    ("host", host),
];
