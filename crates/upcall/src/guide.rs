//! The handbook: one chapter for each topic, in the order in which a beginner needs them.
//!
//! | chapter | what it shows |
//! |---|---|
//! | [`handlers`] | the smallest program; what to depend on; period, batch, PDU, quantum |
//! | [`refusals`] | what admission refuses, why, and what would fit |
//! | [`udp`] | packets: in a periodic handler, and event-driven |
//! | [`streams`] | data for a handler from a thread, a file, or another process |
//! | [`tasks`] | `async` code that is scheduled by deadline, such as a task on a socket |
//! | [`channels`] | events: a service and its clients; events for a handler; ready descriptors |
//! | [`processes`] | several processes under one daemon |
//! | [`beside_tokio`] | tokio and hyper in the same program |
//! | [`reports`] | errors, notices, counters, statistics, the end of a program |
//! | [`promises`] | what is promised, what is not, and what a handler must not do |
//! | [`flows`] | UDP in user space: flows of the daemon, an interface or an address of your own |
//! | [`c`] | the same from C and C++ |
//!
//! Each chapter has an example that the tests compile. The tests also run it if it needs no other
//! process. Whole programs are in the folder `crates/upcall/examples` of the repository:
//!
//! ```sh
//! cargo run --release -p upcall --example together          # many handlers on one CPU
//! cargo run --release -p upcall --example udp_receiver      # datagrams, event-driven
//! cargo run --release -p upcall --example stream_processes  # two processes and a stream
//! cargo run --release -p upcall --example socket_task       # a task on a UDP socket
//! cargo run --release -p upcall --example tasks             # tasks of each work class
//! cargo run --release -p upcall --example service_client    # a service and a client
//! cargo run --release -p upcall --example beside_tokio      # an HTTP server beside a handler
//! ```
//!
//! Two more need rights or a daemon, and say so: `udp_echo_flow` (a server with UDP in user space)
//! and `own_address` (a host with an address that the kernel lacks).

pub mod beside_tokio;
pub mod c;
pub mod channels;
pub mod flows;
pub mod handlers;
pub mod processes;
pub mod promises;
pub mod refusals;
pub mod reports;
pub mod streams;
pub mod tasks;
pub mod udp;
