//! Upcall: a user-space real-time endsystem for stock Linux.
//!
//! Say what a piece of periodic work needs; Upcall admits it or refuses it with
//! a reason, and then upcalls it on time, between other work, without locks.
//! This is the facade: what programs import. Start with [`Runtime`].
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod work;

pub use upcall_runtime::{
    ACTIVITIES_MAX, ActivityReport, Batch, Config, CreateError, FIFO_PRIORITY, HandlerId, Job,
    Machine, Mode, Need, Notice, Report, Runtime, StartError, Statistics, activity, admission,
    allowed_cpus, clock, cost, default_cpus, load, policy, qos, record, scheduler, switch_cost,
    thread_cpu_ns, time, udp,
};
