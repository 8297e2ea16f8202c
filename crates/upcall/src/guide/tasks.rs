//! Chapter 5: tasks.
//!
//! A task is an `async` function that the scheduling thread polls by deadline, beside handlers and
//! in the same thread. Write a task if the code waits for several things in turn, such as a
//! protocol on a socket. Write a handler if the code is upcalled at a steady rate.
//!
//! Tasks have deadlines of their own under the policy [`DWS`](crate::discipline::DWS)
//! (deadline/workahead scheduling), and also run under [`PS`](crate::discipline::PS) and
//! [`DWCS`](crate::discipline::DWCS):
//!
//! ```
//! use std::net::UdpSocket;
//! use upcall::activity::{ActivityParams, Terms, WorkClass};
//! use upcall::discipline::DWS;
//! use upcall::time::Span;
//! use upcall::{Config, Runtime};
//!
//! let mut upcall = Runtime::start(Config { discipline: &DWS, ..Config::default() })?;
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! socket.set_nonblocking(true)?; // a task must not block its thread
//! let address = socket.local_addr()?;
//!
//! let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50));
//! let terms = Terms { class: WorkClass::Interactive, ..Terms::default() };
//! let echo = upcall.task("echo", (need, terms), async move |task| {
//!     let mut bytes = [0; 1500];
//!     // The task ends on an error: the abort phase, or a socket that failed.
//!     while task.io_wait(&socket).await.is_ok() {
//!         while let Ok((len, sender)) = socket.recv_from(&mut bytes) {
//!             if len == 0 {
//!                 return; // the task has ended
//!             }
//!             let _ = socket.send_to(&bytes[..len], sender);
//!             task.checkpoint().await; // a more urgent activity may run here
//!         }
//!     }
//! })?;
//! upcall.run(echo)?;
//!
//! let client = UdpSocket::bind("127.0.0.1:0")?;
//! client.connect(address)?;
//! client.send(b"hello")?;
//! let mut answer = [0; 16];
//! let len = client.recv(&mut answer)?;
//! assert_eq!(&answer[..len], b"hello");
//! client.send(&[])?;
//! upcall.wait(&[echo], None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The work of a task between two waits is a *message*. Its class ([`Terms::class`]) says which
//! work it precedes:
//!
//! | [`WorkClass`] | promise |
//! |---|---|
//! | `RealTime` (the default) | each message is done within [`Terms::delay_bound`] after its arrival (default: the deadline of its [`ActivityParams`]); at most one a period, unless [`Terms::workahead_max`] allows more |
//! | `Interactive` | none, but it precedes all workahead and all background work; no limit of one a period |
//! | `Background` | none; it comes after all other work |
//!
//! The waits are methods of [`Task`](crate::Task): `io_wait` for a descriptor, `timed_sleep` for a
//! time, `time_advance` for the time of the next frame. A task may await other futures too, such as
//! channels, because any thread may wake it. It may not await futures that need another executor,
//! such as tokio's sockets.
//!
//! The example `socket_task` is this echo as a whole program: `cargo run --release -p upcall
//! --example socket_task`. The example `tasks` has one task of each class.
//!
//! Next: [channels](super::channels).
//!
//! [`ActivityParams`]: crate::activity::ActivityParams
//! [`Terms::class`]: crate::activity::Terms::class
//! [`Terms::delay_bound`]: crate::activity::Terms::delay_bound
//! [`Terms::workahead_max`]: crate::activity::Terms::workahead_max
//! [`WorkClass`]: crate::activity::WorkClass
