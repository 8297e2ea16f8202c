//! Chapter 6: channels, a service and its clients.
//!
//! A channel carries events of five words each, from a service to its clients and back. Use a
//! stream for data and a channel for control: parameters, alarms, requests. The service is
//! registered by name, for processes of the same user. Raising an event is a store in shared
//! memory. It takes a system call only if the other side sleeps.
//!
//! ```
//! use upcall::channel::{Client, Form, Forms, Raise, Route, ServiceTerms};
//! use upcall::time::Span;
//! use upcall::{Config, Runtime, clock};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let cpu = upcall.config().cpus[0];
//!
//! // The service: the scheduling thread of `cpu` invokes it for events of clients.
//! let ring = Form::Ring { slots: 64 };
//! let doubler = Route::to(|events| {
//!     while let Some(event) = events.take() {
//!         let answer = Raise::row(0).words(event.words.map(|word| 2 * word));
//!         let _ = events.raise(event.peer, &answer); // fails if the client has left
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
//!         // Sleeps until an event comes. Returns `false` at the deadline.
//!         None => assert!(client.wait(Some(clock::after(Span::from_secs(10))))),
//!     }
//! };
//! assert_eq!(answer.words[0], 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The [`Form`](crate::channel::Form) of each direction says what happens to events before they are
//! taken:
//!
//! | form | keeps | good for |
//! |---|---|---|
//! | `Counter` | how many | "there is work" |
//! | `Typed` | the latest of each type | parameters |
//! | `Slots` | a queue for each level of urgency | alarms |
//! | `Ring` | all, the oldest first; a full ring loses new events | requests |
//!
//! The two ends learn of events in these ways:
//!
//! | | service | client |
//! |---|---|---|
//! | a handler in a scheduling thread, which must not block | [`Runtime::service`](crate::Runtime::service) | [`Runtime::client`](crate::Runtime::client) |
//! | a handler in a thread of its own, which may block | [`Service::in_thread`](crate::channel::Service::in_thread) | [`Client::in_thread`](crate::channel::Client::in_thread) |
//! | no handler: the client polls, or sleeps | | [`Client::polled`](crate::channel::Client::polled) |
//! | a real-time signal | | [`Client::signalled`](crate::channel::Client::signalled) |
//!
//! These handlers are not admitted. They use the time of whatever activity runs, so they should be
//! short. Work that takes time belongs in an admitted handler.
//! [`Runtime::poster`](crate::Runtime::poster) posts events to an admitted handler from any thread
//! of the process, and [`Route::to_handler`](crate::channel::Route::to_handler) from a channel.
//!
//! # Events for an admitted handler
//!
//! An event releases nothing: the handler takes its events when its next job runs, the one of the
//! smallest rank first. Under the policy `dwcs`, an *event server* serves events before that, in a
//! share of the CPU that [`Runtime::reserve_events`](crate::Runtime::reserve_events) reserves. Each
//! event counts as a PDU. A taken event cannot be put back, so the handler keeps an event that it
//! may not process any more in this upcall:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::{Config, Runtime};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! // At most 4 events of at most 20 us each, every 2 ms.
//! let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(20)).batch(4);
//! let sum = Arc::new(AtomicU64::new(0));
//! let added = sum.clone();
//! let (mut held, mut left) = (None, 10);
//! let player = upcall.handler("player", need, move |batch| {
//!     while let Some(event) = held.take().or_else(|| batch.take_event()) {
//!         if !batch.proceed() {
//!             held = Some(event); // for the next upcall
//!             break;
//!         }
//!         added.fetch_add(event.rank, Ordering::Relaxed);
//!         left -= 1;
//!     }
//!     if left == 0 {
//!         batch.finish();
//!     }
//! })?;
//! upcall.run(player)?;
//!
//! let poster = upcall.poster(player).ok_or("closed")?;
//! for rank in 1..=10 {
//!     poster.post(rank)?;
//! }
//! upcall.wait(&[player], None);
//! assert_eq!(sum.load(Ordering::Relaxed), 55);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Handlers whose descriptors are ready
//!
//! An [`IoEventService`](crate::io_events::IoEventService) sends one event when a descriptor is
//! ready. It sends the next one after [`IoWatch::arm`](crate::io_events::IoWatch::arm). The event
//! goes to an admitted handler, which then goes before equal ones, or on a channel with any of the
//! notifications above ([`IoTarget`](crate::io_events::IoTarget)). A player states frame rate,
//! counter and time of its first frame. Then the event has the display time of the next frame as
//! its rank, and comes no earlier than one frame period before that:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//! use std::sync::mpsc;
//! use upcall::activity::{ActivityParams, Terms};
//! use upcall::io_events::{FrameRate, Interest, IoTarget, IoWatch, NextFrame, Urgency};
//! use upcall::time::Span;
//! use upcall::{Config, Runtime, clock};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let io = upcall.io_event_service()?;
//! let (mut frames, mut server) = UnixStream::pair()?;
//! frames.set_nonblocking(true)?;
//! let descriptor = frames.try_clone()?;
//!
//! let rate = FrameRate::new(30_000, 1_001).ok_or("a rate of 0")?; // 29.97 per second
//! let mut next = NextFrame { rate, counter: 0, start: clock::after(Span::from_millis(50)) };
//! let first = Urgency::Frame(next);
//! let (sender, receiver) = mpsc::channel::<IoWatch>();
//! let (mut watch, mut bytes) = (None, [0; 4]);
//! let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(200));
//! let terms = Terms { wins_ties: true, ..Terms::default() }; // admission counts it
//! let player = upcall.handler("player", (need, terms), move |batch| {
//!     watch = watch.take().or_else(|| receiver.try_recv().ok());
//!     if batch.take_event().is_some() {
//!         if batch.proceed() && frames.read(&mut bytes).is_ok() {
//!             next.counter += 1; // decoded; a late player may leave frames out
//!         }
//!         if let Some(watch) = &mut watch {
//!             let _ = watch.arm_as(Urgency::Frame(next)); // at once if the frame is there
//!         }
//!     }
//!     if next.counter == 3 {
//!         batch.finish();
//!     }
//! })?;
//! let target = IoTarget::Post(upcall.poster(player).ok_or("closed")?);
//! sender.send(io.watch(&descriptor, Interest::Readable, 0, first, target)?)?;
//! upcall.run(player)?;
//! server.write_all(&[0; 12])?; // three frames at once are shown at the rate
//! assert_eq!(upcall.wait(&[player], None), [player]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Calls
//!
//! [`channel::call`](crate::channel::call) calls a service by name and blocks for the reply. The
//! example `service_client` shows both as a whole program: `cargo run --release -p upcall --example
//! service_client`.
//!
//! Next: [processes](super::processes).
