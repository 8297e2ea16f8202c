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

//!
//! # Events without a loop
//!
//! An [`IoEventService`] has a thread in place of the program's loop. It sends the readiness of a
//! descriptor on: to an admitted handler, which the scheduler then prefers to an equal one, or on a
//! channel, with each way of notification ([`IoTarget`]). For players of frames it computes when
//! the next frame is displayed, and delays the event until the frame's slot ([`Urgency::Frame`]).
//! Decision 0021 says why it does not use the page.
//!
//! ```text
//!   descriptor     thread `upcall-ready`                    target
//!   is ready ----> (1) waits for the slot of the frame
//!                  (2) sends an event with the rank ------> handler, channel or fast call
//!                  (3) nothing more until                   takes the event, reads
//!             <-------------------------------------------- IoWatch::arm, arm_as: next frame
//! ```

pub use upcall_core::events::{FrameRate, NextFrame};

mod errors;
mod event;
mod feeder;
mod feeder_thread;
mod io_watch;
mod memory;
mod poller;
mod ready_table;
mod service;
mod target;
mod urgency;
mod waker;

pub use errors::{InterestError, PollerError};
pub use event::{Feed, Interest, IoEvent};
pub use io_watch::IoWatch;
pub use poller::Poller;
pub use service::IoEventService;
pub use target::IoTarget;
pub use urgency::Urgency;
pub use waker::Waker;
