//! Layouts of memory shared between processes; the only place that reads what
//! a peer has written.
//!
//! Called by the runtime and the command, which bring the memory (mapped by
//! the sys room): anything that is a slice of words. A peer is another program and may be
//! wrong or hostile: every value is copied once, then checked, then used.
//! What a peer did wrong comes back as an error; what is done about it is for
//! the caller to say. Uses no other crate of ours and makes no system call.
//!
//! | module | what is shared |
//! |---|---|
//! | [`load_page`] | what a load-generating child reports to its parent |
//! | [`wire`] | messages between a domain and the daemon, over a socket |

#![forbid(unsafe_code)]

pub mod load_page;
pub mod wire;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
