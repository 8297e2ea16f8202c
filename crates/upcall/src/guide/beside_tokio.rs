//! Chapter 8: beside tokio, hyper or any other executor in one program.
//!
//! Upcall has its own threads and needs none of other executors. tokio runs the work that may wait,
//! such as HTTP. Handlers run the work that has deadlines.
//!
//! | thread | class | CPU |
//! |---|---|---|
//! | `upcall-cpuN` | `SCHED_FIFO`, where granted | each of [`Config::cpus`](crate::Config::cpus) |
//! | `upcall-io-pump`, if there is one | ordinary | any |
//! | tokio's, and all others | ordinary | any |
//!
//! - A handler runs before every ordinary thread of its CPU. By default admission leaves at least
//!   10 % of each CPU, and the kernel moves ordinary threads to CPUs with more free time.
//! - By default no handler is on CPU 0, unless it is the only CPU.
//! - Never call a runtime's blocking methods (`wait`, `close`, `stop`) in an `async` function. Call
//!   them in `tokio::task::spawn_blocking`, or in the main thread.
//! - A handler must not call into tokio: tokio's locks would make the handler wait for an ordinary
//!   thread.
//!
//! # How data moves between tokio and handlers
//!
//! | from | to | by |
//! |---|---|---|
//! | tokio | handler, every byte | a stream: [`AsyncStreamWriter`](crate::stream::AsyncStreamWriter), awaited while the stream is full |
//! | handler | tokio, every byte | a stream: [`AsyncStreamReader`](crate::stream::AsyncStreamReader), awaited while the stream is empty |
//! | tokio | handler, an event | [`Poster::post`](crate::Poster::post): a store, from any thread |
//! | handler | tokio, counters | atomics |
//! | handler | tokio, results of jobs | [`Runtime::poll`](crate::Runtime::poll) in a thread, or [`Runtime::statistics`](crate::Runtime::statistics) |
//!
//! An `AsyncStreamWriter` is a [`futures_io::AsyncWrite`](https://docs.rs/futures-io). An
//! `AsyncStreamReader` is a `futures_core::Stream` of messages and a `futures_io::AsyncRead`. So
//! any executor can await them, with the methods of `futures-util`:
//!
//! ```toml
//! [dependencies]
//! upcall = { path = "../upcall/crates/upcall" }
//! futures-util = { version = "0.3", default-features = false, features = ["io", "std"] }
//! tokio = { version = "1", features = ["rt"] }
//! # For HTTP, also the features "net" and "sync" of tokio, and:
//! hyper = { version = "1", features = ["http1", "server"] }
//! hyper-util = { version = "0.1", features = ["tokio"] }
//! http-body-util = "0.1"
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use futures_util::AsyncWriteExt;
//! use upcall::activity::ActivityParams;
//! use upcall::stream::{IoPump, Stream, StreamForm};
//! use upcall::time::Span;
//! use upcall::{Config, Runtime};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
//! // The I/O pump's thread wakes tokio's task when there is room. Keep `pump` until then.
//! let pump = IoPump::start()?;
//! let mut writer = pump.writer(stream.writer()?)?;
//!
//! let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(20)).batch(16);
//! let bytes = Arc::new(AtomicU64::new(0));
//! let counted = bytes.clone();
//! let reader = stream.reader()?;
//! let samples = upcall.stream_reader_handler("samples", need, reader, 1, move |reader, batch| {
//!     while let Some(message) = reader.next(batch) {
//!         counted.fetch_add(message.len() as u64, Ordering::Relaxed);
//!         message.done();
//!     }
//! })?;
//! upcall.run(samples)?;
//!
//! let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! tokio.block_on(async {
//!     for _ in 0..100 {
//!         writer.write_all(&[1; 2000]).await?; // two messages; waits while the stream is full
//!     }
//!     writer.close().await // ends the stream
//! })?;
//! upcall.wait(&[samples], None);
//! assert_eq!(bytes.load(Ordering::Relaxed), 200_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - A stream has one writer. Connections that write into the same stream share it in an
//!   `Arc<tokio::sync::Mutex<AsyncStreamWriter>>`.
//! - tokio's own sockets have the methods of `tokio::io::AsyncWriteExt`. In a file that needs both
//!   traits of that name, write `use futures_util::AsyncWriteExt as _` and the same for tokio's.
//!
//! The example `beside_tokio` is a whole program: an HTTP server by hyper feeds a handler and shows
//! its counters. Run it with `cargo run --release -p upcall --example beside_tokio`.
//!
//! Next: [errors and reports](super::reports).
