//! The I/O pump: carries bytes between streams and files, pipes, sockets and terminals.
//!
//! Started by programs that want it. One ordinary thread, `upcall-io-pump`, which sleeps until a
//! descriptor is ready or a stream has what is waited for, on all of them together. Whatever it
//! carries is bounded by the stream: it reads no more than there is room for.
//!
//! ```text
//!   descriptors --> Poller (its own thread) --bell--\
//!   streams ----------------------------------streams--> upcall-io-pump --> a step of each carry
//!   IoPump's calls --> queue --------------word----/                    wakers
//! ```
//!
//! A *source* reads a descriptor and writes a stream; at the end of its input the stream ends, and if
//! the input fails it dies. If the stream has a `B_start` and there is no room, it rests until the reader
//! starts it; otherwise it goes on whenever there is room. A *sink* reads a stream and writes a
//! descriptor; what it could not write is not taken from the stream.

mod carry;
mod outcome;
mod pump;
mod requests;
mod worker;

pub use outcome::{Carried, CarryEnd, IoPumpError};
pub use pump::{IoPump, Wait};
pub(super) use requests::PumpRequests;
