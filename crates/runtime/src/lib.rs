//! Upcall's user-level scheduler.
#![forbid(unsafe_code)]

pub use upcall_core::{activity, admission, cost, policy, qos, record, scheduler, time};
