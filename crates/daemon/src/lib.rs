//! The kernel-level scheduler of Upcall: one order of handlers over all processes
//! of a machine (split-level-1991 §3; docs/decisions/0008).
//!
//! Started by `upcalld`, or by `upcall run` when none is there. It stays off the
//! path: domains hand the CPU to each other.
//!
//! | module | what |
//! |---|---|
//! | [`registry`] | who is attached and what is reserved; pure |
//! | `group`, `cpu` | the pages of one user on one CPU; the groups of one CPU |
//! | `ranks` | what a domain may show of itself |
//! | `kls` | the thread beneath the domains of a group |
//! | `reaper` | sees out the groups of users who have gone |
//! | `watchdog` | the thread above all |
//! | [`calibrate`] | what a hand-off costs here |
//! | `status` | how things stand, for `upcall top` |
//! | [`server`] | the socket, and the thread that changes all this |

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod registry;
pub mod server;
pub mod watchdog;

mod clock;
mod cpu;
mod group;
mod kls;
mod ranks;
mod reaper;
mod status;

pub use group::DomainGroupError;
