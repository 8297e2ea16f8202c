//! Where events are handed to handlers: the paper's event dispatcher (ecalls-2001 §2.1), one for each
//! thread that serves channels.
//!
//! Served by an executor, between two upcalls and at the boundaries of what runs, or by a thread of
//! its own ([`super::thread`]). It takes events out of the segments whose bells were rung, and has
//! [`Delivery`] say which handler is invoked next and with which.
//!
//! ```text
//!   segment --(1) bell--> hear --(2)--> drain --(3)--> Delivery --(4)--> handler --(5)--> next of the route
//!                                         |                                       \--> done: the note is free
//!                                         +--(6) the peer is at fault or gone --> handled, told, detached
//! ```
//!
//! 1. A load for each peer, if none was rung.
//! 2. As many as find room; of the rest its raiser finds its segment full.
//! 3. What an event carries stays here, in a note; the core has its number.
//! 4. Not inside a handler, and not while interrupts are masked.
//! 5. Passed on, merged into the one before, or dropped, as the handler says.
//! 6. What it raised before it died is handled first; of one at fault nothing more is believed.
//!
//! Once a party is here nothing allocates or waits. A peer that raises more than handlers may be
//! invoked for is not listened to until they may.

mod events;
mod handling;
mod polling;
mod registrants;
mod shared;
mod state;

pub(super) use shared::State;
pub use state::Events;
pub(super) use state::{Code, DeskEnd, News, OnGone, Retired};
pub(crate) use state::{Desk, Moment, Newcomer};
