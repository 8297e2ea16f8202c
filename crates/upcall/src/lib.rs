//! Upcall: a user-space real-time endsystem for stock Linux.
#![forbid(unsafe_code)]

pub use upcall_runtime::*;
pub mod work;
