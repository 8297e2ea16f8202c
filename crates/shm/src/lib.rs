//! Layouts of memory that processes share. Only this crate reads what a peer has written.
//!
//! The runtime, the daemon and the command call this crate. They bring the memory, which may be any
//! slice of words. The crate `upcall-sys` maps it. A peer is another program and may be faulty or
//! hostile, so each value is copied once, then checked, then used. A fault of a peer is returned as
//! an error, and the caller decides what to do about it. This crate uses no other crate of the
//! project and makes no system call.
//!
//! | module | content |
//! |---|---|
//! | [`io_events`] | which descriptors an event loop is interested in, and which are ready |
//! | [`load_page`] | reports of a load-generating child to its parent |
//! | [`turn_page`] | which of one user's domains has the CPU |
//! | [`user_area`] | what a domain publishes about itself: best rank, next releases, running activity |
//! | [`kernel_area`] | the daemon's view of each domain, and its requests to the domain |
//! | [`quota_page`] | how many packets each destination may get, and what became of them |
//! | [`inbox`] | events for an activity, between threads of one process |
//! | [`channel`] | events between a client and a service, with or without payload |
//! | [`wire`] | the messages between a domain and the daemon |
//! | [`stream`] | data, from one end of a FIFO to the other |
//! | [`frames`] | frames of a network interface: area, queues, the kernel's rings, account |
//! | [`wake_word`] | the word by which a thread notifies another one, awake or asleep |
//!
//! Turn page, user area and kernel area make up split-level scheduling (decision 0008). They number
//! domains by [`DomainId`]. Their errors are [`LayoutError`] and [`PeerFault`].

#![deny(unsafe_code)]

pub mod channel;
pub mod frames;
pub mod inbox;
pub mod io_events;
pub mod kernel_area;
pub mod load_page;
pub mod quota_page;
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
