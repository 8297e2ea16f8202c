//! A service: registered under a name, with what is invoked for events of its clients.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use upcall_core::events::{Counts, HandlerTerms, Verdict};
use upcall_shm::channel::Posted;
use upcall_sys::OsError;
use upcall_sys::local::{Access, Listener};
use upcall_sys::readiness::{Direction, Readiness, Watch};

use super::dispatcher::Newcomer;
use super::errors::{ChannelOpenError, RaiseError};
use super::event::Words;
use super::fast::{self, CallHandler, Calls, FastAnswer, FastHandler};
use super::lock::lock;
use super::notifier::Caller;
use super::owner::Holder;
use super::peer::PeerId;
use super::raise::Raise;
use super::raiser::{Behalf, Raiser};
use super::registrar::{self, LISTENER};
use super::registration::Line;
use super::route::{HANDLER_TERMS, Route};
use super::segment::{Forms, Pair};
use super::service_state::Hall;
use super::{handler_thread as thread, name, thread_context as here};

/// Clients of a service, if it does not say how many.
const CLIENTS_MAX: usize = 16;

/// What a service is: the forms in which events wait, and what is invoked for them. A builder:
/// begin with [`ServiceTerms::new`], and add what is needed.
pub struct ServiceTerms {
    forms: Forms,
    route: Route,
    clients_max: usize,
    fast: Option<(HandlerTerms, FastHandler)>,
    call: Option<CallHandler>,
    behalf: Option<Arc<Behalf>>,
}

impl fmt::Debug for ServiceTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceTerms { forms, route, clients_max, .. } = self;
        f.debug_struct("ServiceTerms")
            .field("forms", forms)
            .field("route", route)
            .field("clients_max", clients_max)
            .finish_non_exhaustive()
    }
}

impl ServiceTerms {
    /// Each client has two segments of these forms; what clients raise goes along `route`.
    pub fn new(forms: Forms, route: Route) -> Self {
        let clients_max = CLIENTS_MAX;
        ServiceTerms { forms, route, clients_max, fast: None, call: None, behalf: None }
    }

    /// With so many clients at a time, 16 if it is not said. All that a thread serves may together have 96.
    #[must_use]
    pub fn clients_max(mut self, clients_max: usize) -> Self {
        self.clients_max = clients_max;
        self
    }

    /// With a handler for fast calls (§2.3.1), which runs in the calling thread of this process and must not
    /// block. Of two threads that call at once one is given to the [`call`](ServiceTerms::call).
    #[must_use]
    pub fn fast(self, handler: impl FnMut(&Words) -> FastAnswer + Send + 'static) -> Self {
        let most = HandlerTerms { invocations_max: 1 << 16, ..HANDLER_TERMS };
        self.fast_within(most, handler)
    }

    /// The same, with what it is held to; nothing of it waits.
    #[must_use]
    pub fn fast_within(
        mut self,
        terms: HandlerTerms,
        handler: impl FnMut(&Words) -> FastAnswer + Send + 'static,
    ) -> Self {
        self.fast = Some((terms, Box::new(handler)));
        self
    }

    /// With a handler for calls by name, which may block: in a thread of the service, or, where a fast call
    /// leads to it, in the calling one.
    #[must_use]
    pub fn call(mut self, handler: impl FnMut(&Words) -> Words + Send + 'static) -> Self {
        self.call = Some(Box::new(handler));
        self
    }

    /// With a handler that looks at each event on its way to a client, on the client's behalf and in the thread that
    /// raises it (§2.3.2, the *kernel handler function*): it may drop it, pass it on, or
    /// [merge](Verdict::Merge) it: then the client is not told, and finds it with the next that is passed on.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms, Verdict};
    ///
    /// let forms = Forms { to_service: Form::Counter, to_client: Form::Typed { types: 2 } };
    /// // A client is told of alarms (type 1); levels (type 0) it finds then.
    /// let terms = ServiceTerms::new(forms, Route::to(|_| {})).on_behalf(|_client, raise| {
    ///     if *raise == Raise::row(1) { Verdict::Pass } else { Verdict::Merge }
    /// });
    /// let name = format!("alarm-{}", std::process::id());
    /// let service = Service::in_thread(&name, terms)?;
    /// let mut client = Client::polled(&name)?;
    /// service.raise_all(&Raise::row(0).words([17, 0, 0, 0, 0]));
    /// service.raise_all(&Raise::row(1));
    /// assert!(client.wait(None));
    /// assert_eq!(client.take()?.map(|level| level.words[0]), Some(17));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_behalf(
        mut self,
        handler: impl Fn(PeerId, &Raise) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.behalf = Some(Arc::new(handler));
        self
    }
}

/// A registered service. From [`Service::in_thread`] or
/// [`Runtime::service`](crate::Runtime::service).
///
/// It takes events from its clients by its route, and raises events towards one
/// ([`Service::raise`]) or all ([`Service::raise_all`]). Dropped, it ends: its clients find
/// [`Gone::Ended`](super::Gone), in a thread that panics [`Gone::Died`](super::Gone).
pub struct Service {
    hall: Arc<Hall>,
    path: PathBuf,
    registrar: Option<JoinHandle<()>>,
    server: Option<JoinHandle<()>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Service {
    /// Registers a service under `name` (letters, digits, `-`, `_` and `.`, at most 64), for processes of this user,
    /// whose handlers are invoked in a thread of its own and may block. Another thread takes registrations
    /// and calls. In an executor: [`Runtime::service`](crate::Runtime::service). Allocates.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms};
    ///
    /// let forms = Forms { to_service: Form::Ring { slots: 64 }, to_client: Form::Ring { slots: 64 } };
    /// let echo = Route::to(|events| {
    ///     while let Some(event) = events.take() {
    ///         let _ = events.raise(event.peer, &Raise::row(0).words(event.words));
    ///     }
    /// });
    /// let name = format!("echo-{}", std::process::id());
    /// let service = Service::in_thread(&name, ServiceTerms::new(forms, echo))?;
    ///
    /// let mut client = Client::polled(&name)?;
    /// client.raise(&Raise::row(0).words([7, 0, 0, 0, 0]))?;
    /// let event = loop {
    ///     match client.take()? {
    ///         Some(event) => break event,
    ///         None => client.wait(None), // sleeps until it is told
    ///     };
    /// };
    /// assert_eq!(event.words[0], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`ChannelOpenError`]; [`ChannelOpenError::Taken`] if there is such a service.
    pub fn in_thread(name: &str, terms: ServiceTerms) -> Result<Self, ChannelOpenError> {
        crate::stream::check_kernel().map_err(ChannelOpenError::Kernel)?;
        let caller = thread::caller();
        Service::open(name, terms, &caller, |newcomer| thread::start(&caller, newcomer).map(Some))
    }

    /// Opens it once `admit` has given it a desk, which `caller` calls.
    pub(crate) fn open(
        name: &str,
        terms: ServiceTerms,
        caller: &Caller,
        admit: impl FnOnce(Newcomer) -> Result<Option<JoinHandle<()>>, ChannelOpenError>,
    ) -> Result<Self, ChannelOpenError> {
        let ServiceTerms { forms, route, clients_max, fast, call, behalf } = terms;
        route.check()?;
        // The forms are found to be possible before anybody comes.
        drop(Pair::create(forms)?);
        let path = name::path_of(name)?;
        name::make_folder(&path)?;
        let calls = Arc::new(Calls::new(fast, call)?);
        let listener =
            Listener::bind(&path, Access::Owner).map_err(|error| not_bound(name, &path, error))?;
        let readiness = Arc::new(Readiness::new()?);
        let listens = Watch::new(&readiness, listener.as_fd(), Direction::Readable, LISTENER)?;
        let (line, newcomer) = Line::new(caller.clone(), route, clients_max);
        let stop = readiness.clone();
        line.on_over(move || stop.stop());
        let outs = Mutex::default();
        let ends = AtomicBool::new(false);
        let hall =
            Arc::new(Hall { forms, line, outs, calls, behalf, readiness, clients_max, ends });
        let server = admit(newcomer)?;
        // From here on dropping it undoes all.
        let mut service = Service { hall: hall.clone(), path, registrar: None, server };
        let named = std::thread::Builder::new().name("upcall-service".to_owned());
        let registrar = named.spawn(move || registrar::run(&hall, &listener, listens));
        service.registrar =
            Some(registrar.map_err(|error| ChannelOpenError::Thread(error.to_string()))?);
        fast::enter(&service.path, &service.hall.calls);
        Ok(service)
    }

    /// The clients that are there, as far as is known.
    pub fn clients(&self) -> Vec<PeerId> {
        lock(&self.hall.outs).iter().map(|(peer, _)| *peer).collect()
    }

    /// What raises events towards one client; `None`: it is gone.
    pub fn raiser(&self, client: PeerId) -> Option<Raiser> {
        let outs = lock(&self.hall.outs);
        outs.iter().find(|(peer, _)| *peer == client).map(|(_, out)| Raiser(out.clone()))
    }

    /// Raises an event towards one client, as [`Raiser::raise`] does.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn raise(&self, client: PeerId, raise: &Raise) -> Result<Posted, RaiseError> {
        self.raiser(client).ok_or(RaiseError::NoPeer(client))?.raise(raise)
    }

    /// Raises an event towards all clients; how many got it. One that could not be reached keeps it from nobody
    /// else. O(clients).
    pub fn raise_all(&self, raise: &Raise) -> usize {
        let outs = lock(&self.hall.outs);
        outs.iter().filter(|(_, out)| out.raise(raise).is_ok_and(|to| to != Posted::Lost)).count()
    }

    /// What happened at each handler of its route so far, filters first: among it events refused because the
    /// handler had led to them, and the times it ran away.
    pub fn counts(&self) -> Vec<Counts> {
        self.hall.line.counts()
    }

    /// The same of its fast handler.
    pub fn fast_counts(&self) -> Option<Counts> {
        self.hall.calls.fast_counts()
    }
}

/// Why no socket is at `path`, and whose it is if it is taken.
fn not_bound(name: &str, path: &Path, error: OsError) -> ChannelOpenError {
    let kind = io::Error::from_raw_os_error(error.raw_os_error()).kind();
    if kind != io::ErrorKind::AddrInUse {
        return error.into();
    }
    let (name, socket) = (name.to_owned(), path.to_owned());
    ChannelOpenError::Taken { name, holder: Holder::of(&socket), socket }
}

impl Drop for Service {
    fn drop(&mut self) {
        // First: as long as somebody listens, nobody else can have taken the path.
        let _ = std::fs::remove_file(&self.path);
        // Relaxed: the thread sees it behind the call.
        self.hall.ends.store(!std::thread::panicking(), Ordering::Relaxed);
        self.hall.readiness.stop();
        if let Some(registrar) = self.registrar.take() {
            // It may be in a call's handler, and this within it: then it ends by itself.
            if registrar.thread().id() != std::thread::current().id() {
                let _ = registrar.join();
            }
        }
        self.hall.line.leave();
        if let Some(server) = self.server.take().filter(|_| here::may_wait()) {
            let _ = server.join();
        }
    }
}
