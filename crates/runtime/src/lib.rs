//! Upcall's user-level scheduler: upcalls handlers on time inside one process.
//!
//! ```text
//!   your threads (ordinary class)            one thread for each CPU (SCHED_FIFO)
//!   +---------+   control ring + notifier   +----------+  handle/poll  +------+
//!   | Runtime | --------------------------> | Executor | <-----------> | core |
//!   |         | <-------------------------- |          |               +------+
//!   +---------+        job records          +----------+
//!                                             | upcall, in rank order
//!                                             v
//!                                           handler(&mut Batch)
//! ```
//!
//! There are four kinds of work:
//!
//! - handlers, upcalled once a period ([`Runtime::handler`]);
//! - under DWS, PS and DWCS, tasks: futures that the executor polls in the order of the policy
//!   ([`Task`]);
//! - handlers of streams: upcalled when there is enough to read
//!   ([`Runtime::stream_reader_handler`]) or enough room to write
//!   ([`Runtime::stream_writer_handler`]);
//! - for work that needs no promise, handlers in virtual time ([`Runtime::virtual_handler`]).
//!
//! [`Runtime`] admits and controls, the executor runs, the core decides. The facade `upcall`
//! re-exports this crate; in-process mode needs nothing else.
//!
//! The modules, bottom first; a module uses only modules above it in this list:
//!
//! | module | what it holds |
//! |---|---|
//! | `clock`, `config`, `folder`, `id`, `latency`, `offence`, `panics`, `rights`, `trace` | clock, setup, small types, and the hook for panics |
//! | `watchdog` | the thread that lowers executors that do not yield |
//! | `notify`, `mailbox`, `events` | what controllers and executors share |
//! | `liveness` | the thread that notices the end of other processes |
//! | [`load`], [`net`], [`udp`], [`status`], [`program`], [`packet_quota`] | services that no executor uses |
//! | `domain` | a process among the domains of a daemon; its virtual processors |
//! | `daemon_fault` | how a daemon broke the protocol |
//! | `thread_error`, `reactor` | the thread that waits for the descriptors of tasks and user interrupts |
//! | [`channel`], the memory and watches of [`stream`] | event channels and streams |
//! | [`io_events`] | which descriptors are ready, for event loops, channels and handlers |
//! | `preemption` | what a handler asks at a quantum boundary; user interrupts |
//! | `work` | batch, mask, tasks |
//! | [`stream`] | readers, writers, the handlers of streams |
//! | `need`, `virtual_time`, `statistics` | what a handler needs; handlers in virtual time; reports |
//! | `cpu` | the executor of a CPU |
//! | `calibrate` | measures costs that the program did not declare |
//! | `runtime` | [`Runtime`] |

#![forbid(unsafe_code)]

mod calibrate;
pub mod channel;
pub mod clock;
mod config;
mod cpu;
mod daemon_fault;
mod domain;
mod events;
mod folder;
mod id;
pub mod io_events;
mod lag;
mod latency;
mod liveness;
pub mod load;
mod mailbox;
mod need;
pub mod net;
mod notify;
mod offence;
pub mod packet_quota;
mod panics;
mod preemption;
pub mod program;
mod reactor;
mod rights;
mod runtime;
mod statistics;
pub mod status;
pub mod stream;
mod thread_error;
mod trace;
pub mod udp;
mod virtual_time;
mod watchdog;
mod work;

pub use upcall_sys::clock::thread_cpu_ns;
pub use upcall_sys::grant::Remedy;
pub use upcall_sys::machine::Machine;
pub use upcall_sys::schedule::{Band, BusyLimit, FifoRefusal, RealTime, Right, allowed_cpus};

#[doc(hidden)]
pub use upcall_core::debug_as_display;
/// Records of the core's inputs and commands; see [`Config::trace`].
pub use upcall_core::trace::Record;
pub use upcall_core::{
    activity, admission, cost, discipline, policy, qos, record, scheduler, time,
};

pub use calibrate::switch_cost;
pub use config::{Attach, Config, FIFO_PRIORITY, MemoryLock, Mode};
pub use daemon_fault::DaemonFault;
pub use domain::error::AttachError;
pub use domain::socket::{
    daemon_answers, daemon_socket, own_daemon_socket, private_folder, system_daemon_socket,
};
pub use events::{EVENTS_MAX, PostError, PostedEvent, Poster};
pub use folder::FolderError;
pub use id::HandlerId;
pub use lag::Lag;
pub use latency::Latency;
pub use mailbox::{ACTIVITIES_MAX, Job};
pub use need::{CreateError, Need};
pub use offence::{Measure, Offence};
pub use preemption::interrupts::Interrupt;
pub use rights::{Notice, NoticeKind};
pub use runtime::interrupts::{InterruptError, IoInterrupt};
pub use runtime::start::{StartError, default_cpus};
pub use runtime::{Endings, Runtime};
pub use statistics::{ActivityReport, Report, Statistics};
pub use thread_error::ThreadError;
pub use upcall_sys::OsError;
pub use virtual_time::{VirtualReport, VirtualStatistics};
pub use work::batch::Batch;
pub use work::mask::MaskedBatch;
pub use work::task::{Checkpoint, IoWait, PreemptionMask, Task, TimeAdvance, TimedSleep};
