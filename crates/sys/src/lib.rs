//! Every system call Upcall makes.
//!
//! Called by the runtime and the command; uses no other crate of ours. It
//! knows nothing of activities, policies or files of ours: it wraps what the
//! kernel offers, retries what the kernel asks to be retried, and says what
//! failed as an [`OsError`]. Nothing here decides what is to be done about it.
//!
//! Times are `u64` nanoseconds of `CLOCK_MONOTONIC` unless a name says
//! otherwise.
//!
//! | module | what it wraps |
//! |---|---|
//! | [`clock`] | reading clocks, sleeping until a moment |
//! | [`futex`] | waiting for a word of memory to change |
//! | [`schedule`] | scheduling class, CPU affinity, timer slack, of this thread and of others |
//! | [`memory`] | locking and faulting in memory |
//! | [`memfd`] | sealed memory shared between processes |
//! | [`udp`] | datagrams in batches, and what the kernel dropped |
//! | [`local`] | messages and descriptors between processes of this machine |
//! | [`process`] | child processes that leave nothing behind; processes and threads of others |
//! | [`readiness`] | waiting until descriptors are readable or writable |
//! | [`io_uring`], [`io_epoll`] | watching thousands of descriptors: completions read from memory, or by epoll |
//! | [`select`] | the same with select(2), to be compared with |
//! | [`transfer`] | bytes from and to what does not block |
//! | [`descriptors`] | how many descriptors there may be |
//! | [`machine`] | what this machine is |
//! | [`grant`] | how a program gets the rights that it lacks, in a line |

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "upcall-sys is written for 64-bit Linux: control messages and times are laid out so"
);

pub mod clock;
pub mod descriptors;
mod error;
#[cfg(test)]
mod forked;
pub mod futex;
pub mod grant;
pub mod io_epoll;
pub mod io_uring;
pub mod local;
pub mod machine;
pub mod memfd;
pub mod memory;
pub mod process;
pub mod readiness;
pub mod schedule;
pub mod select;
pub mod transfer;
pub mod udp;

pub use error::OsError;
