//! Event channels: services that are registered by name, their clients, and the events between
//! them.
//!
//! An event is five words and a type or level. A [`Service`] says in which [`Forms`] events wait,
//! and which handler is invoked for what clients raise. A [`Client`] names the service, and says
//! how *it* is told of the service's events. A service has many clients, and a program may be a
//! client of many services.
//!
//! ```
//! # extern crate upcall_runtime as upcall;
//! use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms};
//!
//! // Clients learn the latest of each of 3 types of event; the service only counts what they raise.
//! let forms = Forms { to_service: Form::Counter, to_client: Form::Typed { types: 3 } };
//! let name = format!("weather-{}", std::process::id());
//! let service = Service::in_thread(&name, ServiceTerms::new(forms, Route::to(|_| {})))?;
//!
//! let mut client = Client::polled(&name)?;
//! service.raise_all(&Raise::row(2).words([31, 0, 0, 0, 0]));
//! client.wait(None); // sleeps until it is told
//! assert_eq!(client.take()?.map(|event| (event.row, event.words[0])), Some((2, 31)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who is told, and how
//!
//! (ecalls-2001 §2, decision 0011.) A client and its service need not be of one process, but of one
//! user.
//!
//! | client to service (§2.3.1) | |
//! |---|---|
//! | *fast* | [`Client::fast`]: the service's code, in the caller's thread, in one process |
//! | *deferred* | [`Client::raise`], with [`When`]: a store, and many events come to one invocation |
//! | by name | [`call`]: in a thread of the service, blocking |
//!
//! | told by | service | client (§2.3.2) |
//! |---|---|---|
//! | a handler in an executor | [`Runtime::service`](crate::Runtime::service) | [`Runtime::client`](crate::Runtime::client) |
//! | a handler in a thread, which may block | [`Service::in_thread`] | [`Client::in_thread`] |
//! | a real-time signal | | [`Client::signalled`] |
//! | nobody: it looks, or sleeps on its bell | | [`Client::polled`] |
//! | a handler of the service, on the client's behalf | | [`ServiceTerms::on_behalf`] |
//!
//! Handlers come one after the other as a [`Route`] has them; the first ones are filters.
//!
//! # How it works
//!
//! ```text
//!   Client                     the channel's memory                 who serves the other end
//!   raise: event (1) -------->  segment
//!          must tell? (2) --->  bell: rung  ------------------->  hears, at a crossing (3)
//!          futex, only if the bell says that it sleeps --------->  wakes: it slept on all bells
//!                                                                  its desk: which handler, with what (4)
//! ```
//!
//! 2. Only if it has taken all that it was told of before; and no system call if it is awake.
//! 3. An executor: between two upcalls, and at each boundary of the handler that runs, as a user interrupt is
//!    delivered; its time is that of whoever runs, so it should be short. It is not admitted: what it
//!    is held to is [`Route::terms`]. What takes time belongs into an admitted handler: [`Route::to_handler`]. Among the domains of a daemon it is invoked as soon as the executor
//!    runs, whoever has the turn.
//! 4. By rank, as `events` of the crate `upcall-core` decides: recursion is refused and a handler
//!    that runs away held, and both are counted ([`Service::counts`]). Recursion is known among
//!    handlers that one desk serves.
//!
//! # Death
//!
//! The connection by which they met hangs up when either ends, however it does. What it raised is handled, then the
//! other is told ([`Route::on_gone`], [`RaiseError::Gone`]), and the memory goes. A peer that writes what
//! cannot be is at fault ([`Gone::Fault`]): detached at once; it has no memory but its own channel's.

pub use upcall_core::events::{AddError, Counts, HandlerTerms, Refused, Verdict, When};
pub use upcall_shm::channel::{Form, Posted};
pub use upcall_sys::process::real_time_signals;

mod client;
mod dispatcher;
mod errors;
mod event;
mod fast;
mod handler_thread;
mod link;
mod lock;
mod message;
mod name;
mod notifier;
mod owner;
mod peer;
mod pending_events;
mod raise;
mod raiser;
mod registrar;
mod registration;
mod route;
mod segment;
mod service;
mod service_state;
mod thread_context;

pub use client::Client;
pub use dispatcher::Events;
pub use errors::{CallError, ChannelOpenError, FastError, RaiseError, ServiceRefusal, TakeError};
pub use event::{ChannelEvent, Words};
pub use fast::{FastAnswer, FastDone, call};
pub use name::services_folder;
pub use owner::ServiceOwner;
pub use peer::{Gone, PeerId};
pub use raise::Raise;
pub use raiser::Raiser;
pub use route::{HANDLER_TERMS, Route};
pub use segment::Forms;
pub use service::{Service, ServiceTerms};

pub(crate) use dispatcher::{DispatchPoint, EventDispatcher, NewRegistrant};
pub(crate) use notifier::DispatcherNotifier;
pub(crate) use thread_context::set_executor;
