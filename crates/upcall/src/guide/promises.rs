//! Chapter 10: what is promised, and what is not.
//!
//! # Promised
//!
//! Each job of an admitted handler ends before its deadline, **if** all of this holds:
//!
//! - The handler itself takes no more CPU time for a PDU than it declared. No quantum of another
//!   handler takes longer than declared, and none blocks.
//! - The process has the real-time class and locked memory: no [`Notice`](crate::Notice) says
//!   otherwise.
//! - Nothing more urgent takes the CPU: no real-time thread above priority 60, no host that pauses
//!   a virtual machine, and little time in interrupts.
//!   [`Config::wakeup_latency`](crate::Config::wakeup_latency) is the time that admission allows
//!   for a late wake-up. It is zero by default.
//!
//! Promises are checked during the run: every miss and every quantum that took too long is counted.
//!
//! Also promised: a handler or task that takes more than it declared keeps its own reservation and
//! takes the rest from time that the others leave. In one process without a daemon it takes at most
//! half of that time, and ordinary programs get the other half. Under a daemon it gets what the
//! budgets of its own process leave on the CPU, and 4 %.
//!
//! Also promised: handlers of one CPU never interrupt each other inside a quantum. So they may
//! share data without locks, in atomics. [`Need::same_cpu_as`](crate::Need::same_cpu_as) puts a
//! handler on the CPU of another one. Handlers of two CPUs, or of two processes, have no such
//! promise.
//!
//! # Not promised
//!
//! - Protection from a *quantum* that takes longer than declared. It can delay a job of the others,
//!   by up to two such quanta, and without bound if it takes more than a period. Admission knows
//!   the declared length only. In a process without a daemon: if an upcall uses more CPU time than
//!   its PDUs declare, plus the larger of that and 50 ms, a watchdog puts the thread into the
//!   ordinary class until the handler returns. Then
//!   the other handlers of the CPU may be late too
//!   ([`Runtime::offences`](crate::Runtime::offences)).
//! - Protection from a handler of the *same process under a daemon* whose quantum takes over 1 ms
//!   longer than declared while another process waits. The daemon then lets the others go before
//!   all handlers of the process, and puts its thread into the ordinary class in the end. Other
//!   processes are protected.
//! - Anything for ordinary threads, virtual-time handlers, and tasks that are not real-time.
//! - Deadlines under PS for handlers without a share of their own, or in a group. Under DWCS, a
//!   handler with a [`Window`](crate::activity::Window) `x/y` may miss x jobs in each window of y.
//!   Under a daemon a window that a suspend interrupted does not count, and a new one begins.
//! - Anything in the modes [`Threads` and `Fifo`](crate::Mode), which are for comparison.
//!
//! # What a handler must not do
//!
//! | do not | because | instead |
//! |---|---|---|
//! | block: sleep, lock, `recv` that waits | all handlers of the CPU wait too | non-blocking calls, streams, atomics |
//! | allocate or free | the allocator locks and may ask the kernel for memory | allocate before, and move the memory into the closure |
//! | print or log | the terminal blocks | count, post an event, or write a stream that a thread reads |
//! | keep a lock that an ordinary thread takes | that thread may be preempted while it holds the lock | [`Batch::mask_preemption`](crate::Batch::mask_preemption) among handlers; atomics otherwise |
//! | leave data unprocessed for long | the buffer fills | declare a batch that keeps up |
//!
//! # What the library uses
//!
//! | | |
//! |---|---|
//! | threads | one for each CPU; `upcall-watchdog`, if the process has the real-time class and no daemon; `upcall-panics`, which writes the messages of handlers that panicked; `upcall-io` with tasks; `upcall-ready` with an I/O event service; `upcall-io-pump` with an I/O pump; `upcall-virtual` with virtual-time handlers; `upcall-liveness` for streams to other processes and clients of channels |
//! | memory | all memory of the process is locked in RAM (`mlockall`); [`MemoryLock`](crate::MemoryLock) changes that |
//! | signals | none; the program blocks the signals that it handles before `Runtime::start`, so that none arrives in a scheduling thread |
//! | time | `CLOCK_MONOTONIC`, in nanoseconds: [`clock::now`](crate::clock::now) |
//!
//! # Rights
//!
//! The real-time class needs `CAP_SYS_NICE` or `RLIMIT_RTPRIO`, locked memory `CAP_IPC_LOCK` or
//! `RLIMIT_MEMLOCK`. For a program of your own:
//!
//! ```sh
//! sudo setcap cap_sys_nice,cap_ipc_lock+ep target/release/my-program
//! ```
//!
//! Next: [C and C++](super::c).
