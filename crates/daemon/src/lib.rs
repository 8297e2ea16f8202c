//! The kernel-level scheduler (KLS) of Upcall: one order of handlers over all processes of a
//! machine (split-level-1991 §3; docs/decisions/0008).
//!
//! `upcalld` starts the daemon; `upcall run` starts one if none is running. The daemon is not part
//! of a hand-off: domains pass the CPU to each other directly.
//!
//! | module | content |
//! |---|---|
//! | [`registry`] | the attached domains and their reservations; pure |
//! | `group`, `cpu` | one user's domains on one CPU and their shared pages; the groups of one CPU |
//! | `area_copy` | what the daemon knows of a user area |
//! | `member_thread` | the thread of a domain on a CPU |
//! | `departed` | what the threads that left a CPU still owe |
//! | `ranks` | the ranks that a domain may show |
//! | `kls` | the thread of a group, one priority below its domains |
//! | `pacing` | the bound on the CPU time of a group's KLS thread |
//! | `reaper` | the thread that frees the groups of users without domains |
//! | `watchdog` | the thread that acts against domains that do not yield |
//! | [`programs`] | shares of programs that nobody changed |
//! | `packet_quotas` | how many packets destinations may get, on the interfaces of the daemon |
//! | `network` | flows of UDP on those interfaces, and the threads that own them |
//! | `xdp_programs` | the XDP programs of those interfaces |
//! | [`calibrate`] | the measured cost of a hand-off on this machine |
//! | `status` | the state of the daemon, for `upcall top` and `upcall ps` |
//! | [`server`] | the socket, and the thread that changes all of the above |

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod programs;
pub mod registry;
pub mod server;
pub mod watchdog;

mod accounts;
mod area_copy;
mod clock;
mod cpu;
mod departed;
mod enforcement;
mod group;
mod kls;
mod member_thread;
mod network;
mod pacing;
mod packet_quotas;
mod ranks;
mod reaper;
mod status;
mod xdp_programs;

pub use group::DomainGroupError;
/// The quotas of an interface (decision 0024): the early drop, and the page with quotas and counts.
pub use upcall_shm::quota_page;
pub use upcall_sys::{early_drop, interface, placement};
