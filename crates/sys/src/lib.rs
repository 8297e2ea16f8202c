//! Every system call that Upcall makes.
//!
//! The runtime, the daemon and the command call this crate. It depends on no other crate of Upcall.
//! It knows nothing of activities, policies or Upcall's files. It wraps the kernel's calls, retries
//! them where the kernel asks for a retry, and returns an [`OsError`] when one fails. The callers
//! decide how to react to an error.
//!
//! Times are `u64` nanoseconds of `CLOCK_MONOTONIC` unless a name says otherwise.
//!
//! | module | purpose |
//! |---|---|
//! | [`clock`] | reading clocks, sleeping until a moment |
//! | [`futex`] | waiting until a word of memory changes |
//! | [`cgroup`] | control groups with weights |
//! | [`schedule`] | scheduling class, CPU affinity and timer slack of threads |
//! | [`inheritance`] | waits for locks that lend a real-time priority |
//! | [`memory`] | locking memory and faulting it in |
//! | [`memfd`] | sealed memory shared between processes |
//! | [`udp`] | datagrams in batches, and the kernel's count of drops |
//! | [`interface`] | the network interfaces: names, numbers, and what each can do |
//! | [`early_drop`] | dropping packets beyond a quota before the kernel works on them, with the feature `xdp` |
//! | [`placement`] | the CPUs on which the kernel works on received packets |
//! | [`local`] | messages and descriptors between processes of this machine |
//! | [`process`] | child processes; state and signals of other processes and threads |
//! | [`readiness`] | waiting until descriptors are readable or writable |
//! | [`io_uring`], [`io_epoll`] | watching thousands of descriptors, by io_uring or by epoll |
//! | [`select`] | watching descriptors with select(2), for comparison |
//! | [`wake_socket`] | waking a process that may be hostile, by a descriptor |
//! | [`transfer`] | non-blocking reads and writes of bytes |
//! | [`descriptors`] | the limit of open descriptors |
//! | [`machine`] | a description of this machine |
//! | [`af_xdp`] | frames of an interface by rings in shared memory |
//! | [`packet_ring`] | frames of an interface by the rings of a packet socket |
//! | [`frame_file`] | frames by one call each: TAP devices, packet sockets |
//! | [`grant`] | one line of text on how to grant a missing right |

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "upcall-sys supports 64-bit Linux only: it relies on the layout of control messages and times"
);

pub mod af_xdp;
pub mod cgroup;
pub mod clock;
pub mod descriptors;
#[cfg(feature = "xdp")]
pub mod early_drop;
mod error;
mod ethtool;
#[cfg(test)]
mod forked;
pub mod frame_file;
pub mod futex;
pub mod grant;
pub mod inheritance;
pub mod interface;
pub mod io_epoll;
pub mod io_uring;
pub mod local;
pub mod machine;
pub mod memfd;
pub mod memory;
pub mod packet_ring;
mod packet_socket;
pub mod placement;
pub mod process;
pub mod readiness;
mod ring_mapping;
pub mod schedule;
pub mod select;
pub mod transfer;
pub mod udp;
pub mod wake_socket;

pub use error::OsError;
