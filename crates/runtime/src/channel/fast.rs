//! Calls of a service: fast ones, which run its code in the caller's thread, and calls by name.
//!
//! A *fast* call (ecalls-2001 §2.3.1) runs the service's handler in the calling thread, at once and
//! without a system call. The handler must not block. Its reply says what else happens before the
//! call returns. By default nothing else happens.
//!
//! ```text
//!   Client::fast --> (1) --> the handler --> then?  (2) the blocking call, in the same thread
//!                     |                             (3) a new scheduling decision
//!                     |                             (4) the caller looks at its events
//!                     +--> in use: (2)
//! ```
//!
//! 1. The call is refused if it would be recursion, or if the handler has run away.
//! 2. A scheduling thread must not block, so there the call fails (`FastError::WouldBlock`). The
//!    blocking call also runs if another thread runs the handler at the time.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use upcall_core::events::{
    Ancestry, Counts, Delivery, EventHandlerId, HandlerTerms, QueuedEvent, Refused, SourceId,
};
use upcall_core::time::Instant;
use upcall_sys::local::{Connection, ReceiveError, Received};
use upcall_sys::readiness::{self, Direction};

use super::errors::{CallError, ChannelOpenError, FastError};
use super::event::Words;
use super::lock::lock;
use super::message::{BYTES_MAX, ToClient, ToService};
use super::{name, thread_context};
use crate::clock;

/// The reply of a fast handler, and what else happens before the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastAnswer {
    /// The reply, unless the blocking call replaces it.
    pub words: Words,
    call: bool,
    schedule: bool,
    events: bool,
}

impl FastAnswer {
    /// Replies with `words`. Nothing else happens.
    pub const fn done(words: Words) -> Self {
        FastAnswer { words, call: false, schedule: false, events: false }
    }

    /// Asks for the blocking call ([`ServiceTerms::call`](super::ServiceTerms::call)), because the
    /// handler cannot serve this one without blocking.
    #[must_use]
    pub const fn and_call(mut self) -> Self {
        self.call = true;
        self
    }

    /// Asks for a new scheduling decision. An executor makes it at its next boundary. In another
    /// thread the kernel makes it at once.
    #[must_use]
    pub const fn and_schedule(mut self) -> Self {
        self.schedule = true;
        self
    }

    /// Tells the caller to look at its events ([`FastDone::events`]).
    #[must_use]
    pub const fn and_events(mut self) -> Self {
        self.events = true;
        self
    }
}

/// The result of a fast call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastDone {
    /// The reply.
    pub words: Words,
    /// Whether the blocking call replied.
    pub blocked: bool,
    /// Whether the caller should look at its events.
    pub events: bool,
}

/// A user's handler for fast calls.
pub(super) type FastHandler = Box<dyn FnMut(&Words) -> FastAnswer + Send>;
/// A user's handler for calls by name. It may block.
pub(super) type CallHandler = Box<dyn FnMut(&Words) -> Words + Send>;

/// The handlers of a service that can be called.
pub(super) struct Calls {
    fast: Option<Fast>,
    call: Option<Mutex<CallHandler>>,
}

struct Fast {
    slot: Mutex<HandlerSlot>,
    /// The number of the thread that runs the handler, 0 for none.
    occupant: AtomicUsize,
    /// The handler panicked, and is not called again.
    panicked: AtomicBool,
}

/// Locked for a few instructions only, and not while the handler runs.
struct HandlerSlot {
    delivery: Delivery,
    id: EventHandlerId,
    source: SourceId,
    /// `None` while a thread is in the handler, and after it has panicked.
    handler: Option<FastHandler>,
}

impl Calls {
    /// Allocates.
    pub(super) fn new(
        fast: Option<(HandlerTerms, FastHandler)>,
        call: Option<CallHandler>,
    ) -> Result<Self, ChannelOpenError> {
        let fast = match fast {
            None => None,
            Some((terms, handler)) => {
                let mut delivery = Delivery::new();
                let id = delivery.add_handler(terms)?;
                let source = delivery.add_source(&[id])?;
                let slot = HandlerSlot { delivery, id, source, handler: Some(handler) };
                let (slot, panicked) = (Mutex::new(slot), AtomicBool::new(false));
                Some(Fast { slot, occupant: AtomicUsize::new(0), panicked })
            }
        };
        Ok(Calls { fast, call: call.map(Mutex::new) })
    }

    pub(super) fn fast(&self, words: &Words) -> Result<FastDone, FastError> {
        let fast = self.fast.as_ref().ok_or(FastError::NoHandler)?;
        let answer = match fast.call(words)? {
            Some(answer) => answer,
            None => FastAnswer::done(*words).and_call(),
        };
        self.follow(answer, words)
    }

    /// As [`Calls::fast`], but returns `None` if another thread runs the handler.
    pub(super) fn fast_if_free(&self, words: &Words) -> Result<Option<FastDone>, FastError> {
        let fast = self.fast.as_ref().ok_or(FastError::NoHandler)?;
        match fast.call(words)? {
            Some(answer) => self.follow(answer, words).map(Some),
            // Relaxed: a call that misses the flag finds it the next time.
            None if fast.panicked.load(Ordering::Relaxed) => Err(FastError::Panicked),
            None => Ok(None),
        }
    }

    /// Does what the handler asked for.
    fn follow(&self, answer: FastAnswer, words: &Words) -> Result<FastDone, FastError> {
        let mut done = FastDone { words: answer.words, blocked: false, events: answer.events };
        if answer.call {
            let call = self.call.as_ref().ok_or(FastError::NoCall)?;
            if thread_context::is_executor() {
                return Err(FastError::WouldBlock);
            }
            (done.words, done.blocked) = (lock(call)(words), true);
        }
        if answer.schedule {
            thread_context::invoke_scheduler();
        }
        Ok(done)
    }

    /// Calls by name. `None` if there is no such handler. Blocks as the handler does.
    pub(super) fn call(&self, words: &Words) -> Option<Words> {
        Some(lock(self.call.as_ref()?)(words))
    }

    pub(super) fn fast_counts(&self) -> Option<Counts> {
        let slot = lock(&self.fast.as_ref()?.slot);
        slot.delivery.counts(slot.id)
    }
}

impl Fast {
    /// Returns `None` if another thread is in the handler.
    fn call(&self, words: &Words) -> Result<Option<FastAnswer>, FastError> {
        let now = clock::now();
        let thread = thread_number();
        // Relaxed, all of `occupant`: only this thread stores its own number.
        let recursion = self.occupant.load(Ordering::Relaxed) == thread;
        let mut handler = match self.take_handler(now, recursion)? {
            Some(handler) => handler,
            None => return Ok(None),
        };
        self.occupant.store(thread, Ordering::Relaxed);
        // A panic ends only the handler.
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler(words)));
        self.occupant.store(0, Ordering::Relaxed);
        match called {
            Ok(answer) => {
                // Other threads hold the lock for a few instructions only.
                lock(&self.slot).handler = Some(handler);
                Ok(Some(answer))
            }
            Err(_) => {
                // Relaxed: see `Calls::fast_if_free`.
                self.panicked.store(true, Ordering::Relaxed);
                Err(FastError::Panicked)
            }
        }
    }

    fn take_handler(
        &self,
        now: Instant,
        recursion: bool,
    ) -> Result<Option<FastHandler>, FastError> {
        let mut slot = match self.slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let HandlerSlot { id, source, .. } = *slot;
        let ancestry = match recursion {
            true => QueuedEvent::new(source, 0, 0).led_by(id),
            false if slot.handler.is_none() => return Ok(None),
            false => Ancestry::NONE,
        };
        slot.delivery.call(now, id, ancestry).map_err(FastError::Refused)?;
        Ok(slot.handler.take())
    }
}

impl From<Refused> for FastError {
    fn from(refused: Refused) -> Self {
        FastError::Refused(refused)
    }
}

/// A number of this thread, other than 0.
fn thread_number() -> usize {
    thread_local!(static NUMBER: u8 = const { 0 });
    NUMBER.with(|number| std::ptr::from_ref(number).addr())
}

/// The services of this process, by their sockets.
static SERVICES: Mutex<Vec<(PathBuf, Weak<Calls>)>> = Mutex::new(Vec::new());

/// Makes a service known to clients in this process.
pub(super) fn register(path: &Path, calls: &Arc<Calls>) {
    let mut services = lock(&SERVICES);
    services.retain(|(_, calls)| calls.strong_count() > 0);
    services.push((path.to_owned(), Arc::downgrade(calls)));
}

/// The service with its socket at `path`, if it is in this process.
pub(super) fn find(path: &Path) -> Option<Arc<Calls>> {
    let services = lock(&SERVICES);
    services.iter().rev().find(|(at, _)| at == path).and_then(|(_, calls)| calls.upgrade())
}

/// Calls a service by its name, in this process or another. The handler runs in a thread of the
/// service, one call after the other. This is the paper's generic system call. Blocks until the
/// service replies or `deadline` has come. Costs a connection, two messages and two context
/// switches.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::channel::{self, Form, Forms, Route, Service, ServiceTerms};
///
/// let forms = Forms { to_service: Form::Counter, to_client: Form::Counter };
/// let terms = ServiceTerms::new(forms, Route::to(|_| {}));
/// let terms = terms.call(|words| words.map(|word| 2 * word));
/// let name = format!("doubler-{}", std::process::id());
/// let service = Service::in_thread(&name, terms)?;
/// assert_eq!(channel::call(&name, &[1, 2, 3, 4, 5], None)?, [2, 4, 6, 8, 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`CallError`].
pub fn call(service: &str, words: &Words, deadline: Option<Instant>) -> Result<Words, CallError> {
    let path = name::path_of(service).map_err(|_| CallError::Name(service.to_owned()))?;
    let connection = Connection::connect(&path)?;
    connection.send(ToService::Call(*words).encode().bytes(), &[])?;
    let deadline_ns = deadline.map(Instant::as_nanos);
    if !readiness::wait_until(connection.as_fd(), Direction::Readable, deadline_ns)? {
        return Err(CallError::Late);
    }
    let mut bytes = [0; BYTES_MAX];
    let received = match connection.receive(&mut bytes) {
        Ok(Received { len, .. }) => ToClient::decode(&bytes[..len]),
        Err(ReceiveError::Os(error)) if !error.is_would_block() => return Err(error.into()),
        Err(_) => None,
    };
    match received {
        Some(ToClient::Reply(words)) => Ok(words),
        Some(ToClient::Refused(refusal)) => Err(CallError::Refused(refusal)),
        _ => Err(CallError::NoAnswer),
    }
}
