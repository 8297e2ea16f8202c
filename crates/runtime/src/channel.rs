//! Event channels: services that are registered by name, their clients, and the events between
//! them.
//!
//! An event is five words and a type or level. A [`Service`] sets the [`Forms`] in which events
//! wait, and the handlers of events that clients raise. A [`Client`] names the service, and chooses
//! how it is notified of the service's events. A service may have many clients, and a program may
//! be a client of many services.
//!
//! ```
//! # extern crate upcall_runtime as upcall;
//! use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms};
//!
//! // Clients get the latest of each of 3 types of event. The service only counts events.
//! let forms = Forms { to_service: Form::Counter, to_client: Form::Typed { types: 3 } };
//! let name = format!("weather-{}", std::process::id());
//! let service = Service::in_thread(&name, ServiceTerms::new(forms, Route::to(|_| {})))?;
//!
//! let mut client = Client::polled(&name)?;
//! service.raise_all(&Raise::row(2).words([31, 0, 0, 0, 0]));
//! client.wait(None); // sleeps until it is notified
//! assert_eq!(client.take()?.map(|event| (event.row, event.words[0])), Some((2, 31)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Notifications
//!
//! A client and its service may be in two processes of the same user (ecalls-2001 §2, decision
//! 0011).
//!
//! | client to service (§2.3.1) | |
//! |---|---|
//! | *fast* | [`Client::fast`]: the service's code, in the caller's thread, within one process |
//! | *deferred* | [`Client::raise`], with [`When`]: a store; one invocation handles many events |
//! | by name | [`call`]: blocks, and runs in a thread of the service |
//!
//! | notified | service | client (§2.3.2) |
//! |---|---|---|
//! | a handler in an executor | [`Runtime::service`] | [`Runtime::client`] |
//! | a handler in a thread, which may block | [`Service::in_thread`] | [`Client::in_thread`] |
//! | a real-time signal | | [`Client::signalled`] |
//! | nothing: the program polls, or sleeps on the wake word | | [`Client::polled`] |
//! | a handler of the service, on the client's behalf | | [`ServiceTerms::on_behalf`] |
//!
//! Handlers get an event one after the other, in the order of a [`Route`]. The first ones are
//! filters.
//!
//! [`Runtime::service`]: crate::Runtime::service
//! [`Runtime::client`]: crate::Runtime::client
//!
//! # How it works
//!
//! ```text
//!   Client                     the channel's memory             the thread at the other end
//!   raise: event (1) -------->  segment
//!          must notify? (2) ->  wake word: notified ---------->  polls, at a crossing (3)
//!          futex, only if the wake word is asleep ------------>  wakes: it slept on all wake words
//!                                                                its dispatcher: which handler,
//!                                                                with which event (4)
//! ```
//!
//! 1. The client makes a store. The event then waits in the segment.
//! 2. The client notifies only if the taker has taken all events that it was notified of before. It
//!    makes no system call if the thread at the other end is awake.
//! 3. An executor polls between two upcalls, and at each boundary of the running handler, as it
//!    does for user interrupts. The handler uses the time of the upcall that runs, so it should be
//!    short. It is not admitted: [`Route::terms`] limits it. Longer work belongs in an admitted
//!    handler: [`Route::to_handler`]. Among the domains of a daemon, the handler is invoked as soon
//!    as the executor runs, whichever domain has the turn.
//! 4. The module `events` of the crate `upcall-core` decides by rank. The core refuses recursion,
//!    and delays a handler that runs away. Both are counted ([`Service::counts`]). Recursion is
//!    detected among the handlers of one dispatcher.
//!
//! # Death
//!
//! The connection between a client and its service hangs up when either of them ends for any
//! reason. The other end first handles the events of the end that is gone. Then it finds out
//! ([`Route::on_gone`], [`RaiseError::Gone`]), and the memory is freed. A peer that writes an
//! invalid value is at fault ([`Gone::Fault`]), and is detached at once. It has access to no memory
//! but that of its own channel.

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
pub(crate) use thread_context::{set_executor, set_waits_for_none};
