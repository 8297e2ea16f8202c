//! The trace file: every crossing of the core's interface, live or simulated, in a form that
//! <https://ui.perfetto.dev> draws and [`Trace::replay`] checks.
//!
//! The file is a Perfetto trace (protobuf, `Trace` of `TracePacket`). For people it has one row per
//! CPU with the running handler. It also has one row per activity, below its domain's row, with a
//! slice per upcall and the instants `release`, `deadline`, `yield request` and `miss`. A flow goes
//! from the release of a job to its first upcall. For the replay it has one row `core` per CPU,
//! with one instant for each [`Record`] in order. The instant's name is the kind, and its
//! annotations are the arguments. The rows for people are derived from these records and never read
//! back.
//!
//! Times are nanoseconds of the driver's clock, [`Clock`]: `CLOCK_MONOTONIC` (which stops while the
//! machine is suspended) or virtual time from 0. The file stores them unchanged. It names no
//! Perfetto clock that a user interface would convert. The user interface counts from the first
//! event.
//!
//! The release and the deadline of a job are known only when the job has ended, so they come after
//! the end in the file. A job that never ended has neither. Readers sort by time.
//!
//! ```text
//! header (policy, capacity, clock) of each CPU, groups, activities  ->  records
//! ```
//!
//! Several processes on the same CPUs, each with its own scheduler per CPU, share one file. Their
//! outputs are cut between packets and combined in any way that keeps the order of each process.
//! [`Header::process`] identifies a process. [`read_all`] returns one [`Trace`] per process, and
//! each replays by itself.

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
