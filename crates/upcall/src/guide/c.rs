//! Chapter 12: C and C++.
//!
//! The library `libupcall_c` has the calls of the paper that Upcall follows ("Real-Time Upcalls",
//! 1995): `rts_create`, `rts_run`, `rts_proceed`, `rts_sleep` and so on. The header `upcall.h`
//! documents each. From a checkout of the repository:
//!
//! ```sh
//! cargo build --release -p upcall-capi && crates/capi/install.sh "$HOME/.local"
//! export PKG_CONFIG_PATH="$HOME/.local/lib/pkgconfig" LD_LIBRARY_PATH="$HOME/.local/lib"
//! cc crates/capi/examples/periodic.c -o periodic $(pkg-config --cflags --libs upcall)
//! ./periodic
//! ```
//!
//! ```c
//! static void handler(struct rts_funargs *args)
//! {
//!     struct my_pcb *pcb = args->pcb;
//!     while (work_is_left(pcb) && rts_proceed(args->smstr))
//!         process_one_pdu(pcb);
//! }
//! ```
//!
//! Calls return a negative `errno` on failure, and `rts_refusal` gives the reason in words. If
//! `UPCALL_SOCKET` names the socket of a daemon, the same program is a domain of that daemon.
//! Streams, tasks, channels, virtual-time handlers, user interrupts, preemption masks and `reweigh`
//! are for Rust only.
