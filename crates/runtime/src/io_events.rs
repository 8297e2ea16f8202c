//! I/O event delivery: an event loop over thousands of descriptors finds a ready one without a
//! system call (ecalls-2001 §3.2).
//!
//! Event loops of programs use it, and so does the I/O pump. A [`Poller`] reports which of its
//! descriptors are ready, in the words of crates such as `polling` and `mio`. Interest and
//! readiness are bits of a page (`io_events` of the crate `upcall-shm`). A feeder connects the page
//! to the kernel.
//!
//! ```text
//!   Feed::Ring                                Feed::RingThread, Feed::EpollThread
//!   the loop's thread                         the loop's thread       a thread of the poller
//!   Poller -> page -> Feeder -> io_uring      Poller -> page   <--->  Feeder -> the kernel
//!             page <- completions in memory        wake word   <---   (futex wake if it sleeps)
//! ```
//!
//! Decision 0012 says when to use which feed.
//!
//! # What an event means
//!
//! An event means that the descriptor has become ready since its last event: events are
//! *edge-triggered*. Read, accept or write until the call would block. Only then another event is
//! promised. [`Poller::modify`] checks the descriptor again, and reports it again if it is still
//! ready. An event may be spurious, so descriptors should be non-blocking. A hang-up or a failure
//! counts as both readable and writable, as far as there is interest in it. The next call returns
//! the reason. A file that is always ready is reported once.
//!
//! Delete a descriptor before you close it. Its file stays open until the next call of
//! [`Poller::try_next`] or [`Poller::wait`]. If a descriptor is closed without being deleted, and
//! another one is added under the same number, only the new one is reported.

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
