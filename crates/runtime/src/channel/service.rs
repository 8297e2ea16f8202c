//! A service: registered under a name, with handlers for the events of its clients.

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

use super::dispatcher::NewRegistrant;
use super::errors::{ChannelOpenError, RaiseError};
use super::event::Words;
use super::fast::{self, CallHandler, Calls, FastAnswer, FastHandler};
use super::lock::lock;
use super::notifier::DispatcherNotifier;
use super::owner::ServiceOwner;
use super::peer::PeerId;
use super::raise::Raise;
use super::raiser::{OnBehalf, Raiser, RaisingEnd};
use super::registrar::{self, LISTENER};
use super::registration::Registration;
use super::route::{HANDLER_TERMS, Route};
use super::segment::{ChannelMemory, Forms};
use super::service_state::ServiceState;
use super::{handler_thread, name, thread_context};
use crate::notify::Notifier;

/// How many clients a service may have if it sets no number.
const CLIENTS_MAX: usize = 16;

/// The terms of a service: the forms in which events wait, and its handlers. Begin with
/// [`ServiceTerms::new`], and add what the service needs.
pub struct ServiceTerms {
    forms: Forms,
    route: Route,
    clients_max: usize,
    fast: Option<(HandlerTerms, FastHandler)>,
    call: Option<CallHandler>,
    on_behalf: Option<Arc<OnBehalf>>,
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
    /// A service whose clients each get two segments of these forms. The events of clients take
    /// `route`.
    pub fn new(forms: Forms, route: Route) -> Self {
        let clients_max = CLIENTS_MAX;
        ServiceTerms { forms, route, clients_max, fast: None, call: None, on_behalf: None }
    }

    /// Sets how many clients there may be at a time. The default is 16. All services and clients of
    /// one thread may have 96 peers together.
    #[must_use]
    pub fn clients_max(mut self, clients_max: usize) -> Self {
        self.clients_max = clients_max;
        self
    }

    /// Adds a handler for fast calls (§2.3.1). It runs in the calling thread of this process and
    /// must not block. If two threads call at once, one of them gets the
    /// [`call`](ServiceTerms::call) instead.
    #[must_use]
    pub fn fast(self, handler: impl FnMut(&Words) -> FastAnswer + Send + 'static) -> Self {
        let most = HandlerTerms { invocations_max: 1 << 16, ..HANDLER_TERMS };
        self.fast_within(most, handler)
    }

    /// As [`ServiceTerms::fast`], with limits for the handler. Fast calls never wait, so
    /// `pending_max` does not matter.
    #[must_use]
    pub fn fast_within(
        mut self,
        terms: HandlerTerms,
        handler: impl FnMut(&Words) -> FastAnswer + Send + 'static,
    ) -> Self {
        self.fast = Some((terms, Box::new(handler)));
        self
    }

    /// Adds a handler for calls by name. It may block: it runs in a thread of the service, or in
    /// the calling thread if a fast call leads to it.
    #[must_use]
    pub fn call(mut self, handler: impl FnMut(&Words) -> Words + Send + 'static) -> Self {
        self.call = Some(Box::new(handler));
        self
    }

    /// Adds a handler that sees each event on its way to a client (§2.3.2, the *kernel handler
    /// function*). It acts on the client's behalf, in the thread that raises the event. It may drop
    /// the event, pass it on, or [merge](Verdict::Merge) it. A merged event does not notify the
    /// client. The client finds it with the next event that is passed on.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms, Verdict};
    ///
    /// let forms = Forms { to_service: Form::Counter, to_client: Form::Typed { types: 2 } };
    /// // Alarms (type 1) notify the client, which then finds the levels (type 0) as well.
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
        self.on_behalf = Some(Arc::new(handler));
        self
    }
}

/// A registered service. From [`Service::in_thread`] or
/// [`Runtime::service`](crate::Runtime::service).
///
/// Its handlers get the events of its clients. It raises events towards one client
/// ([`Service::raise`]) or all ([`Service::raise_all`]). Dropping it ends it: its clients find
/// [`Gone::Ended`](super::Gone), or [`Gone::Died`](super::Gone) if a panic drops it.
pub struct Service {
    state: Arc<ServiceState>,
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
    /// Registers a service under `name` (letters, digits, `-`, `_` and `.`, at most 64), for
    /// processes of this user. Its handlers are invoked in a thread of its own and may block.
    /// Another thread takes registrations and calls. For handlers in an executor there is
    /// [`Runtime::service`](crate::Runtime::service). Allocates.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms};
    ///
    /// let ring = Form::Ring { slots: 64 };
    /// let forms = Forms { to_service: ring, to_client: ring };
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
    ///         None => client.wait(None), // sleeps until there are events
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
        let notifier = Arc::<Notifier>::default();
        Service::open(name, terms, &DispatcherNotifier::Thread(notifier.clone()), |registrant| {
            handler_thread::start(&notifier, registrant).map(Some)
        })
    }

    /// Opens a service once `admit` has handed its handlers to the dispatcher of `notifier`.
    pub(crate) fn open(
        name: &str,
        terms: ServiceTerms,
        notifier: &DispatcherNotifier,
        admit: impl FnOnce(NewRegistrant) -> Result<Option<JoinHandle<()>>, ChannelOpenError>,
    ) -> Result<Self, ChannelOpenError> {
        let ServiceTerms { forms, route, clients_max, fast, call, on_behalf } = terms;
        route.check()?;
        // Checks the forms before the first client comes.
        drop(ChannelMemory::create(forms)?);
        let path = name::path_of(name)?;
        name::make_folder(&path)?;
        let calls = Arc::new(Calls::new(fast, call)?);
        let listener =
            Listener::bind(&path, Access::Owner).map_err(|error| not_bound(name, &path, error))?;
        let readiness = Arc::new(Readiness::new()?);
        let listens = Watch::new(&readiness, listener.as_fd(), Direction::Readable, LISTENER)?;
        let (registration, registrant) = Registration::new(notifier.clone(), route, clients_max);
        let stop = readiness.clone();
        registration.on_hang_up(move || stop.stop());
        let raising_ends = Mutex::default();
        let says_bye = AtomicBool::new(false);
        let state = Arc::new(ServiceState {
            forms,
            registration,
            raising_ends,
            calls,
            on_behalf,
            readiness,
            clients_max,
            says_bye,
        });
        let server = admit(registrant)?;
        // From here on, dropping the service undoes everything.
        let mut service = Service { state: state.clone(), path, registrar: None, server };
        let named = std::thread::Builder::new().name("upcall-service".to_owned());
        let registrar = named.spawn(move || registrar::run(&state, &listener, listens));
        service.registrar = Some(registrar.map_err(ChannelOpenError::Thread)?);
        fast::register(&service.path, &service.state.calls);
        Ok(service)
    }

    /// The clients that seem to be there.
    pub fn clients(&self) -> Vec<PeerId> {
        lock(&self.state.raising_ends).iter().map(|(peer, _)| *peer).collect()
    }

    /// The raiser towards one client, or `None` if the client is gone.
    pub fn raiser(&self, client: PeerId) -> Option<Raiser> {
        let raising_ends = lock(&self.state.raising_ends);
        let mut ends = raising_ends.iter();
        ends.find(|(peer, _)| *peer == client).map(|(_, end)| Raiser(end.clone()))
    }

    /// Raises an event towards one client, as [`Raiser::raise`] does.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn raise(&self, client: PeerId, raise: &Raise) -> Result<Posted, RaiseError> {
        self.raiser(client).ok_or(RaiseError::NoPeer(client))?.raise(raise)
    }

    /// Raises an event towards all clients. Returns how many got it. If one client cannot be
    /// reached, the others still get the event. O(clients).
    pub fn raise_all(&self, raise: &Raise) -> usize {
        let raising_ends = lock(&self.state.raising_ends);
        let got = |end: &RaisingEnd| end.raise(raise).is_ok_and(|to| to != Posted::Lost);
        raising_ends.iter().filter(|(_, end)| got(end)).count()
    }

    /// The counts of each handler of the route so far, filters first. They include the events that
    /// were refused as recursion, and how often the handler ran away.
    pub fn counts(&self) -> Vec<Counts> {
        self.state.registration.counts()
    }

    /// The counts of the fast handler.
    pub fn fast_counts(&self) -> Option<Counts> {
        self.state.calls.fast_counts()
    }
}

/// Why no socket could be made at `path`, and the owner of the name if it is taken.
fn not_bound(name: &str, path: &Path, error: OsError) -> ChannelOpenError {
    let kind = io::Error::from_raw_os_error(error.raw_os_error()).kind();
    if kind != io::ErrorKind::AddrInUse {
        return error.into();
    }
    let (name, socket) = (name.to_owned(), path.to_owned());
    ChannelOpenError::Taken { name, owner: ServiceOwner::of(&socket), socket }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Removes the file first. No other service can take the path while this one still listens.
        let _ = std::fs::remove_file(&self.path);
        // Relaxed: `stop` comes after the store and orders it for the registrar.
        self.state.says_bye.store(!std::thread::panicking(), Ordering::Relaxed);
        self.state.readiness.stop();
        if let Some(registrar) = self.registrar.take() {
            // A call's handler may drop the service. The registrar cannot join itself: it ends
            // alone.
            if registrar.thread().id() != std::thread::current().id() {
                let _ = registrar.join();
            }
        }
        self.state.registration.leave();
        if let Some(server) = self.server.take().filter(|_| thread_context::may_wait()) {
            let _ = server.join();
        }
    }
}
