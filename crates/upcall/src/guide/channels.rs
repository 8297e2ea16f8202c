//! Chapter 6: channels, a service and its clients.
//!
//! A channel carries events: five words each, from a service to its clients and back. Use a stream
//! for data and a channel for control: parameters, alarms, requests. The service is registered by
//! name, for processes of the same user. To raise an event is a store in shared memory. It takes a
//! system call only if the other side sleeps.
//!
//! ```
//! use upcall::channel::{Client, Form, Forms, Raise, Route, ServiceTerms};
//! use upcall::time::Span;
//! use upcall::{Config, Runtime, clock};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let cpu = upcall.config().cpus[0];
//!
//! // The service: invoked in the scheduling thread of `cpu` for what clients raise.
//! let ring = Form::Ring { slots: 64 };
//! let doubler = Route::to(|events| {
//!     while let Some(event) = events.take() {
//!         let answer = Raise::row(0).words(event.words.map(|word| 2 * word));
//!         let _ = events.raise(event.peer, &answer); // a client that has left needs none
//!     }
//! });
//! let name = format!("doubler-{}", std::process::id());
//! let terms = ServiceTerms::new(Forms { to_service: ring, to_client: ring }, doubler);
//! let _service = upcall.service(cpu, &name, terms)?; // ends when it is dropped
//!
//! // A client, here in the same process.
//! let mut client = Client::polled(&name)?;
//! client.raise(&Raise::row(0).words([21, 0, 0, 0, 0]))?;
//! let answer = loop {
//!     match client.take()? {
//!         Some(event) => break event,
//!         // Sleeps until it is told; `false` at the deadline.
//!         None => assert!(client.wait(Some(clock::after(Span::from_secs(10))))),
//!     }
//! };
//! assert_eq!(answer.words[0], 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What becomes of events that nobody took yet is said by the [`Form`](crate::channel::Form) of
//! each direction:
//!
//! | form | keeps | good for |
//! |---|---|---|
//! | `Counter` | how many | "there is work" |
//! | `Typed` | the latest of each type | parameters |
//! | `Slots` | a queue for each level of urgency | alarms |
//! | `Ring` | the oldest first, and loses what finds it full | requests |
//!
//! Who is told, and how:
//!
//! | | service | client |
//! |---|---|---|
//! | a handler in a scheduling thread, which must not block | [`Runtime::service`](crate::Runtime::service) | [`Runtime::client`](crate::Runtime::client) |
//! | a handler in a thread of its own, which may block | [`Service::in_thread`](crate::channel::Service::in_thread) | [`Client::in_thread`](crate::channel::Client::in_thread) |
//! | nobody: it looks, or sleeps | | [`Client::polled`](crate::channel::Client::polled) |
//! | a real-time signal | | [`Client::signalled`](crate::channel::Client::signalled) |
//!
//! These handlers are not admitted: their time is that of whatever runs, so they should be short.
//! Work that takes time belongs into an admitted handler.
//! [`Runtime::poster`](crate::Runtime::poster) posts events to one from any thread of the process,
//! and [`Route::to_handler`](crate::channel::Route::to_handler) from a channel.
//!
//! [`channel::call`](crate::channel::call) asks a service by name and blocks for the answer.
//! `cargo run --release -p upcall --example service_client` shows both as a whole program.
//!
//! Next: [processes](super::processes).
