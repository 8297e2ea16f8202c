//! Calls of a service: fast, by its code in the caller's process, and generic, by its name.
//!
//! A *fast* call (ecalls-2001 §2.3.1) runs the service's handler in the calling thread, at once and without
//! system call. It must not block, and says what else is to be done before the call returns:
//! by default nothing.
//!
//! ```text
//!   Client::fast --> (1) --> the handler --> then?  (2) the blocking call, in the same thread
//!                     |                             (3) the scheduler decides anew
//!                     |                             (4) the caller looks at its events
//!                     +--> in use: (2)
//! ```
//!
//! 1. Refused if it would be recursion, or if it has run away.
//! 2. Not in a scheduling thread, which must not block. The handler was only optimistic: also if another
//!    thread is in it.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use upcall_core::events::{
    Ancestry, Counts, Delivery, Event as CoreEvent, HandlerId, HandlerTerms, Refused, SourceId,
};
use upcall_core::time::Instant;
use upcall_sys::local::{Connection, ReceiveError, Received};
use upcall_sys::readiness::{self, Direction};

use super::errors::{CallError, ChannelOpenError, FastError};
use super::event::Words;
use super::lock::lock;
use super::message::{BYTES_MAX, ToClient, ToService};
use super::{name, thread_context as here};
use crate::clock;

/// What a fast handler answers, and what is to be done before the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastAnswer {
    /// The answer, unless the blocking call gives another.
    pub words: Words,
    call: bool,
    schedule: bool,
    events: bool,
}

impl FastAnswer {
    /// This, and nothing else is to be done.
    pub const fn done(words: Words) -> Self {
        FastAnswer { words, call: false, schedule: false, events: false }
    }

    /// It cannot do it without blocking: the service's call ([`ServiceTerms::call`](super::ServiceTerms::call)) is to.
    #[must_use]
    pub const fn and_call(mut self) -> Self {
        self.call = true;
        self
    }

    /// Who schedules the caller is to decide anew: the executor at the next boundary, of another thread the
    /// kernel, now.
    #[must_use]
    pub const fn and_schedule(mut self) -> Self {
        self.schedule = true;
        self
    }

    /// There are events for the caller, who is to look at them ([`FastDone::events`]).
    #[must_use]
    pub const fn and_events(mut self) -> Self {
        self.events = true;
        self
    }
}

/// What came of a fast call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastDone {
    /// The answer.
    pub words: Words,
    /// Whether the blocking call gave it.
    pub blocked: bool,
    /// The caller is to look at its events.
    pub events: bool,
}

/// A user's code.
pub(super) type FastHandler = Box<dyn FnMut(&Words) -> FastAnswer + Send>;
/// A user's code; may block.
pub(super) type CallHandler = Box<dyn FnMut(&Words) -> Words + Send>;

/// What can be called of a service.
pub(super) struct Calls {
    fast: Option<Fast>,
    call: Option<Mutex<CallHandler>>,
}

struct Fast {
    virtual_processor: Mutex<VirtualProcessor>,
    /// The thread that is in the handler; 0: none.
    holder: AtomicUsize,
}

/// Locked for some instructions, and not while the handler runs.
struct VirtualProcessor {
    delivery: Delivery,
    id: HandlerId,
    source: SourceId,
    /// `None` while a thread is in it, and once it has panicked.
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
                let virtual_processor =
                    VirtualProcessor { delivery, id, source, handler: Some(handler) };
                Some(Fast {
                    virtual_processor: Mutex::new(virtual_processor),
                    holder: AtomicUsize::new(0),
                })
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
        let mut done = FastDone { words: answer.words, blocked: false, events: answer.events };
        if answer.call {
            let call = self.call.as_ref().ok_or(FastError::NoCall)?;
            if here::is_executor() {
                return Err(FastError::WouldBlock);
            }
            (done.words, done.blocked) = (lock(call)(words), true);
        }
        if answer.schedule {
            here::invoke_scheduler();
        }
        Ok(done)
    }

    /// The generic call; `None`: there is none. Blocks as the handler does.
    pub(super) fn call(&self, words: &Words) -> Option<Words> {
        Some(lock(self.call.as_ref()?)(words))
    }

    pub(super) fn fast_counts(&self) -> Option<Counts> {
        let virtual_processor = lock(&self.fast.as_ref()?.virtual_processor);
        virtual_processor.delivery.counts(virtual_processor.id)
    }
}

impl Fast {
    /// `None`: another thread is in it.
    fn call(&self, words: &Words) -> Result<Option<FastAnswer>, FastError> {
        let now = clock::now();
        let me = me();
        // Relaxed, all of `holder`: only this thread stores its own number.
        let recursion = self.holder.load(Ordering::Relaxed) == me;
        let mut handler = match self.enter(now, recursion)? {
            Some(handler) => handler,
            None => return Ok(None),
        };
        self.holder.store(me, Ordering::Relaxed);
        // A panic is the handler's fault and ends only the handler.
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler(words)));
        self.holder.store(0, Ordering::Relaxed);
        match called {
            Ok(answer) => {
                // Held for some instructions by others, if at all.
                lock(&self.virtual_processor).handler = Some(handler);
                Ok(Some(answer))
            }
            Err(_) => Err(FastError::Panicked),
        }
    }

    fn enter(&self, now: Instant, recursion: bool) -> Result<Option<FastHandler>, FastError> {
        let mut virtual_processor = match self.virtual_processor.try_lock() {
            Ok(virtual_processor) => virtual_processor,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let VirtualProcessor { id, source, .. } = *virtual_processor;
        let ancestry = match recursion {
            true => CoreEvent::new(source, 0, 0).led_by(id),
            false if virtual_processor.handler.is_none() => return Ok(None),
            false => Ancestry::NONE,
        };
        virtual_processor.delivery.call(now, id, ancestry).map_err(FastError::Refused)?;
        Ok(virtual_processor.handler.take())
    }
}

impl From<Refused> for FastError {
    fn from(refused: Refused) -> Self {
        FastError::Refused(refused)
    }
}

/// A number of this thread, not 0.
fn me() -> usize {
    thread_local!(static ME: u8 = const { 0 });
    ME.with(|me| std::ptr::from_ref(me).addr())
}

/// The services of this process, by their sockets.
static SERVICES: Mutex<Vec<(PathBuf, Weak<Calls>)>> = Mutex::new(Vec::new());

/// Makes a service known to clients in this process.
pub(super) fn enter(path: &Path, calls: &Arc<Calls>) {
    let mut services = lock(&SERVICES);
    services.retain(|(_, calls)| calls.strong_count() > 0);
    services.push((path.to_owned(), Arc::downgrade(calls)));
}

/// The service that has its socket at `path`, if it is of this process.
pub(super) fn find(path: &Path) -> Option<Arc<Calls>> {
    let services = lock(&SERVICES);
    services.iter().rev().find(|(at, _)| at == path).and_then(|(_, calls)| calls.upgrade())
}

/// Calls a service by its name, in this process or another: its handler runs in a thread of the service, one call
/// after the other. The paper's generic system call. Blocks until it answers or `deadline` has come;
/// a connection, two messages and two switches.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::channel::{self, Form, Forms, Route, Service, ServiceTerms};
///
/// let forms = Forms { to_service: Form::Counter, to_client: Form::Counter };
/// let terms = ServiceTerms::new(forms, Route::to(|_| {})).call(|words| words.map(|word| 2 * word));
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
        Some(ToClient::Answer(words)) => Ok(words),
        Some(ToClient::Refused(refusal)) => Err(CallError::Refused(refusal)),
        _ => Err(CallError::NoAnswer),
    }
}
