//! Hands events to handlers: the paper's event dispatcher (ecalls-2001 §2.1). Each thread that
//! serves channels has one.
//!
//! An executor serves its dispatcher between two upcalls and at the boundaries of the running
//! upcall. A handler thread ([`super::handler_thread`]) serves its own. The dispatcher takes events
//! out of the segments whose peers have notified. [`Delivery`](upcall_core::events::Delivery)
//! decides which handler is invoked next, and with which event.
//!
//! ```text
//!   segment --(1)--> poll --(2)--> drain --(3)--> Delivery --(4)--> handler --(5)--> next handler
//!          notified                  |                                     \--> done: slot is free
//!                                    +--(6) peer at fault or gone --> handled, reported, detached
//! ```
//!
//! 1. Polling costs one load per peer if no peer has notified.
//! 2. The dispatcher takes as many events as it has free slots. The others stay in the segment. If
//!    the segment gets full, its raiser is told.
//! 3. The dispatcher keeps the contents of an event as a pending event. The core knows the event by
//!    its number.
//! 4. The dispatcher invokes no handler inside another one, and none while interrupts are masked.
//! 5. The handler passes the event on, merges it into the one before, or drops it.
//! 6. Events that a peer raised before it died are handled first. Events of a peer at fault are
//!    not.
//!
//! After a registrant is admitted, the dispatcher neither allocates nor waits. If a peer raises
//! more events than its handlers may be invoked for, the dispatcher does not poll the peer until
//! they may be invoked again.

mod events;
mod handling;
mod polling;
mod registrants;
mod shared;
mod state;

pub(super) use shared::RegistrationState;
pub use state::Events;
pub(super) use state::{Code, DispatcherEnd, DispatcherRequest, OnGone, Retired};
pub(crate) use state::{DispatchPoint, EventDispatcher, NewRegistrant};
