//! The I/O pump: carries bytes between streams and files, pipes, sockets and terminals.
//!
//! It runs only if the program starts it. It is one ordinary thread, `upcall-io-pump`. The thread
//! sleeps on all descriptors and streams together, until one of them is ready. The stream bounds
//! each carry: the pump reads no more than the stream has room for.
//!
//! ```text
//!   descriptors --> Poller (its own thread) --wake word--\
//!   streams --------------------------------wait words---> upcall-io-pump --> a step of each carry
//!   IoPump's calls --> requests -------------------word--/                    wakers
//! ```
//!
//! A *source* reads a descriptor and writes a stream. At the end of its input the stream ends. If
//! the input fails, the stream's writer dies. If the stream has a `B_start` and gets full, the
//! source rests until the reader starts it. Without a `B_start` it continues as soon as there is
//! room. A *sink* reads a stream and writes a descriptor. Data that it could not write stays in the
//! stream.

mod carry;
mod outcome;
mod pump;
mod requests;
mod worker;

pub use outcome::{Carried, CarryEnd, IoPumpError};
pub use pump::{IoPump, Wait};
pub(super) use requests::PumpRequests;
