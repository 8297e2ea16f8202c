//! The trace file: what crossed the core's interface, live or simulated, in a
//! form that <https://ui.perfetto.dev> draws and [`Trace::replay`] checks.
//!
//! It is a Perfetto trace (protobuf, `Trace` of `TracePacket`). For people there
//! is a row a CPU with the handler that runs, and a row an activity, below its
//! domain's, with a slice an upcall and instants `release`, `deadline`,
//! `yield request` and `miss`; a flow goes from the release of a job to its first
//! upcall. For the replay there is a row `core` a CPU, with one instant for each
//! [`Record`] in their order, its name the kind and its annotations the
//! arguments. The rows for people are derived from these and never read back.
//!
//! Times are nanoseconds of the driver's clock, [`Clock`]: `CLOCK_MONOTONIC`
//! (which stops while the machine is suspended) or virtual time from 0. The file
//! holds them as they are, without a clock's name that a user interface would
//! convert; what it shows counts from the first event.
//!
//! Release and deadline are known when a job ended, and stand behind it in the
//! file; a job that never ended has none. Readers sort by time.
//!
//! ```text
//! header (policy, capacity, clock) of each CPU, groups, activities  ->  records
//! ```
//!
//! Several processes on the same CPUs, each with a scheduler of its own on each of them,
//! have one file: what each of them wrote, cut between packets and put together in any
//! way that keeps its own order. [`Header::process`] keeps them apart, and
//! [`read_all`] gives a [`Trace`] of each, which replays by itself.

mod fields;
mod header;
mod proto;
mod reader;
mod replay;
mod row;
#[cfg(test)]
mod tests;
mod writer;

pub use header::{Clock, FORMAT, Header, Named};
pub use reader::{CAPACITY_MAX, Cause, PACKET_BYTES_MAX, ReadError, read, read_all};
pub use replay::{CpuReplay, Trace};
pub use upcall_core::trace::{Crossing, Record};
pub use writer::Writer;
