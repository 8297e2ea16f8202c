//! Layouts of memory shared between processes; the only place that reads what
//! a peer has written.
//!
//! Called by the runtime, the daemon and the command, which bring the memory (mapped by
//! the sys room): anything that is a slice of words. A peer is another program and may be
//! wrong or hostile: every value is copied once, then checked, then used.
//! What a peer did wrong comes back as an error; what is done about it is for
//! the caller to say. Uses no other crate of ours and makes no system call.
//!
//! | module | what is shared |
//! |---|---|
//! | [`io_events`] | which descriptors a loop is interested in, and which are ready |
//! | [`load_page`] | what a load-generating child reports to its parent |
//! | [`turn_page`] | who of one user's domains has the CPU, and how the others are woken |
//! | [`user_area`] | what a domain says of itself: best rank, next releases, what runs |
//! | [`kernel_area`] | what the daemon says of each domain, and asks of it |
//! | [`inbox`] | events for an activity, between threads of one process |
//! | [`channel`] | events between a client and a service, with or without payload |
//! | [`wire`] | the messages between a domain and the daemon |
//! | [`stream`] | data, between the ends of a FIFO |
//!
//! Turn page, user area and kernel area make up split-level scheduling (decision 0008). Their numbers
//! of domains are [`DomainId`], their errors [`LayoutError`] and [`PeerFault`].

#![deny(unsafe_code)]

pub mod channel;
pub mod inbox;
pub mod io_events;
pub mod kernel_area;
pub mod load_page;
pub mod stream;
pub mod turn_page;
pub mod user_area;
pub mod wake_word;
pub mod wire;

mod domain;
mod edge;
mod fault;
mod measure;
mod words;

pub use domain::{DOMAINS_MAX, DomainId};
pub use fault::{LayoutError, PeerFault};
pub use measure::Measure;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
