//! I/O event delivery: an event loop over thousands of descriptors that makes no system call
//! for a readiness (ecalls-2001 §3.2).
//!
//! Used by event loops, through the facade; by nothing else here. A [`Poller`] says which of its
//! descriptors are ready, in the words of crates such as `polling` and `mio`. Interest and
//! readiness are bits of a page (`io_events` of the crate `upcall-shm`); a feeder sees to the
//! kernel.
//!
//! ```text
//!   Feed::Ring                                Feed::RingThread, Feed::EpollThread
//!   the loop's thread                         the loop's thread       a thread of the poller
//!   Poller -> page -> Feeder -> io_uring      Poller -> page   <--->  Feeder -> the kernel
//!             page <- completions in memory             bell   <---   (futex wake if it sleeps)
//! ```
//!
//! Which one when is decision 0012.
//!
//! # What an event means
//!
//! Something came since the event before: *edge-triggered*. Call (read, accept, write) until it
//! would block; only then is another event promised. [`Poller::modify`] looks anew, and says again what
//! is still ready. An event may be spurious, so descriptors are to be non-blocking. A hang-up or a failure is
//! both readable and writable, as far as there is interest in it: the next call says which. A file
//! that is always ready is said to be so once.
//!
//! A descriptor is to be deleted before it is closed, and its file stays open until the call of
//! [`Poller::try_next`] or [`Poller::wait`] after that. Who closes one without deleting it and adds another of
//! the same number is told of the new one only.

mod errors;
mod event;
mod feeder;
mod feeder_thread;
mod memory;
mod poller;
mod waker;

pub use errors::{InterestError, PollerError};
pub use event::{Feed, Interest, IoEvent};
pub use poller::Poller;
pub use waker::Waker;
