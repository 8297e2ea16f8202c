//! Upcall's user-level scheduler: upcalls handlers on time inside one process.
//!
//! ```text
//!   your threads (ordinary class)              one thread a CPU (SCHED_FIFO)
//!   +---------+   control ring + notifier   +-----------+  handle/poll  +------+
//!   | Runtime | --------------------------> | Executor | <-----------> | core |
//!   |         | <-------------------------- |           |               +------+
//!   +---------+        job records          +-----------+
//!                                             | upcall, in rank order
//!                                             v
//!                                           handler(&mut Batch)
//! ```
//!
//! Beside handlers, under DWS, stand tasks: futures that the executor polls in the
//! same order ([`Task`]), and handlers that are upcalled when a stream's level is reached
//! ([`Runtime::stream_reader_handler`]). And beneath them all, for work that needs no promise, handlers
//! in virtual time ([`Runtime::virtual_handler`]).
//!
//! [`Runtime`] admits and controls, the executor runs, the core decides. Used
//! by the facade `upcall`; in-process mode needs nothing else.

#![forbid(unsafe_code)]

mod calibrate;
pub mod channel;
pub mod clock;
mod config;
mod cpu;
mod domain;
mod events;
mod folder;
mod id;
pub mod io_events;
mod latency;
mod liveness;
pub mod load;
mod mailbox;
mod need;
mod notify;
mod offence;
mod panics;
mod preemption;
mod reactor;
mod rights;
mod runtime;
mod statistics;
pub mod status;
pub mod stream;
mod trace;
pub mod udp;
mod virtual_time;
mod work;

pub use upcall_sys::clock::thread_cpu_ns;
pub use upcall_sys::machine::Machine;
pub use upcall_sys::schedule::{Band, FifoRefusal, RealTime, Right, allowed_cpus};

#[doc(hidden)]
pub use upcall_core::debug_as_display;
/// Records of what crosses the core's interface; see [`Config::trace`].
pub use upcall_core::trace::Record;
pub use upcall_core::{activity, admission, cost, policy, qos, record, scheduler, time};

pub use calibrate::switch_cost;
pub use config::{Attach, Config, FIFO_PRIORITY, MemoryLock, Mode};
pub use domain::{
    AttachError, daemon_answers, daemon_socket, own_daemon_socket, system_daemon_socket,
};
pub use events::{EVENTS_MAX, PostError, PostedEvent, Poster};
pub use folder::FolderError;
pub use id::HandlerId;
pub use latency::Latency;
pub use mailbox::{ACTIVITIES_MAX, Job};
pub use need::{CreateError, Need};
pub use offence::{Measure, Offence};
pub use preemption::interrupts::Interrupt;
pub use rights::Notice;
pub use runtime::interrupts::{InterruptError, IoInterrupt};
pub use runtime::start::{StartError, default_cpus};
pub use runtime::{Endings, Runtime};
pub use statistics::{ActivityReport, Report, Statistics};
pub use upcall_sys::OsError;
pub use virtual_time::{VirtualReport, VirtualStatistics};
pub use work::batch::Batch;
pub use work::mask::MaskedBatch;
pub use work::task::{Checkpoint, IoWait, PreemptionMask, Task, TimeAdvance, TimedSleep};
