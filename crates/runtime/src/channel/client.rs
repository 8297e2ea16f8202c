//! A client: registered with a service by its name, with handlers or without.

use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

use upcall_core::events::Counts;
use upcall_core::time::{Instant, Span};
use upcall_shm::PeerFault;
use upcall_shm::channel::Posted;
use upcall_shm::channel::wake_line::WakeLine;
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::OsError;
use upcall_sys::futex;
use upcall_sys::local::{Connection, Received};
use upcall_sys::readiness::{self, Direction};

use super::dispatcher::NewRegistrant;
use super::errors::{ChannelOpenError, FastError, RaiseError, ServiceRefusal, TakeError};
use super::event::{ChannelEvent, Words};
use super::fast::{self, Calls, FastDone};
use super::link::{Link, LinkState};
use super::message::{BYTES_MAX, ToClient, ToService};
use super::notifier::DispatcherNotifier;
use super::peer::{Gone, PeerId};
use super::raise::Raise;
use super::raiser::{Notification, Raiser, RaisingEnd};
use super::registration::Registration;
use super::route::Route;
use super::segment::{ChannelMemory, Part, SegmentTaker, Side};
use super::{handler_thread, name, thread_context};
use crate::clock;
use crate::liveness::{self, WatchEntry};
use crate::notify::Notifier;

/// How long a service may take to reply. It replies in an ordinary thread.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// A client of one service. A program may have many clients, of many services. One thread at a time
/// uses a client. Dropping the client leaves the service, which finds [`Gone::Ended`], or
/// [`Gone::Died`] if a panic drops it.
pub struct Client {
    raising_end: Arc<RaisingEnd>,
    reception: Reception,
    connection: Arc<Connection>,
    watch: Option<WatchEntry>,
    /// The call handlers of the service. `None` if the service is in another process.
    calls: Option<Arc<Calls>>,
}

/// How a client gets its events.
enum Reception {
    /// The program takes the events.
    Polled { taker: SegmentTaker, wake_line: Arc<WakeLine<Part>> },
    /// The client's handlers get the events.
    Handled { registration: Arc<Registration>, server: Option<JoinHandle<()>> },
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("gone", &self.gone()).finish_non_exhaustive()
    }
}

/// What the service gave a new client.
struct Registered {
    connection: Arc<Connection>,
    memory: ChannelMemory,
    calls: Option<Arc<Calls>>,
}

impl Client {
    /// Registers a client with the service `name`. The program takes its events ([`Client::take`]),
    /// and may sleep until there are some ([`Client::wait`]). Allocates. Blocks until the service
    /// has replied, 10 s at most.
    ///
    /// # Errors
    /// See [`ChannelOpenError`]; `ENOENT` or `ECONNREFUSED` if there is no such service, `ENOENT`
    /// if there is no folder for services.
    pub fn polled(name: &str) -> Result<Self, ChannelOpenError> {
        Client::polling(name, 0, 0)
    }

    /// As [`Client::polled`], but the service also sends this process the real-time signal
    /// `number`. The signal carries `value` (`si_value`, sigqueue(3)). The service sends it when
    /// there are events and the client has taken all that it was notified of before.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::channel::{Client, real_time_signals};
    ///
    /// // Install a handler first, or block the signal for sigwaitinfo(2): by default it kills.
    /// let signal = real_time_signals().start() + 3;
    /// let mut client = Client::signalled("camera", signal, 7)?;
    /// // ... once the signal has come:
    /// while let Some(event) = client.take()? {
    ///     println!("{event:?}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Client::polled`], and if `number` is no real-time signal.
    pub fn signalled(name: &str, number: i32, value: i32) -> Result<Self, ChannelOpenError> {
        if number == 0 {
            return Err(ChannelOpenError::Refused(ServiceRefusal::Signal));
        }
        Client::polling(name, number, value)
    }

    /// Registers a client whose events take `route`, in a thread of its own. For handlers in an
    /// executor there is [`Runtime::client`](crate::Runtime::client). Allocates. Blocks as
    /// [`Client::polled`] does.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// # use std::sync::mpsc;
    /// use upcall::channel::{Client, Form, Forms, Raise, Route, Service, ServiceTerms};
    /// # let forms = Forms { to_service: Form::Counter, to_client: Form::Typed { types: 3 } };
    /// # let name = format!("weather-{}", std::process::id());
    /// # let service = Service::in_thread(&name, ServiceTerms::new(forms, Route::to(|_| {})))?;
    /// let (sender, receiver) = mpsc::channel();
    /// let route = Route::to(move |events| {
    ///     while let Some(event) = events.take() {
    ///         let _ = sender.send((event.row, event.words[0]));
    ///     }
    /// });
    /// let client = Client::in_thread(&name, route)?;
    /// service.raise_all(&Raise::row(2).words([31, 0, 0, 0, 0]));
    /// assert_eq!(receiver.recv()?, (2, 31));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`ChannelOpenError`].
    pub fn in_thread(name: &str, route: Route) -> Result<Self, ChannelOpenError> {
        crate::stream::check_kernel().map_err(ChannelOpenError::Kernel)?;
        let notifier = Arc::<Notifier>::default();
        let admit = |registrant| handler_thread::start(&notifier, registrant).map(Some);
        Client::with_handlers(name, route, &DispatcherNotifier::Thread(notifier.clone()), admit)
    }

    /// Registers a client once `admit` has handed its handlers to the dispatcher of `notifier`.
    pub(crate) fn with_handlers(
        name: &str,
        route: Route,
        notifier: &DispatcherNotifier,
        admit: impl FnOnce(NewRegistrant) -> Result<Option<JoinHandle<()>>, ChannelOpenError>,
    ) -> Result<Self, ChannelOpenError> {
        route.check()?;
        let registered = register(name, 0, 0)?;
        let raising_end = registered.raising_end(Some(notifier.clone()))?;
        let Registered { connection, memory, calls } = registered;
        let (registration, registrant) = Registration::new(notifier.clone(), route, 1);
        let registration = Arc::new(registration);
        let hung_up = connection.clone();
        registration.on_hang_up(move || hung_up.hang_up());
        let (exit, weak) = (raising_end.exit.clone(), Arc::downgrade(&registration));
        let link = Link {
            peer: raising_end.peer,
            taker: memory.taker(Side::Client)?,
            wake_line: memory.wake_line(Side::Client)?,
            raising_end: raising_end.clone(),
            is_local: calls.is_some(),
            connection: connection.clone(),
            state: LinkState::default(),
        };
        let server = admit(registrant)?;
        // From here on, dropping the client undoes everything.
        let reception = Reception::Handled { registration: registration.clone(), server };
        let mut client = Client { raising_end, reception, connection, watch: None, calls };
        registration.join(link);
        let on_gone = move |gone| {
            exit.set(gone);
            if let Some(registration) = weak.upgrade() {
                registration.request_check();
            }
        };
        client.watch = Some(watch(&client.connection, on_gone)?);
        Ok(client)
    }

    fn polling(name: &str, signal: i32, value: i32) -> Result<Self, ChannelOpenError> {
        let registered = register(name, signal, value)?;
        let raising_end = registered.raising_end(None)?;
        let Registered { connection, memory, calls } = registered;
        let wake_line = Arc::new(memory.wake_line(Side::Client)?);
        let (exit, notified) = (raising_end.exit.clone(), wake_line.clone());
        let on_gone = move |gone| {
            exit.set(gone);
            if notified.wake_word().notify() {
                futex::wake_shared(notified.wake_word().word(), 1);
            }
        };
        let watch = Some(watch(&connection, on_gone)?);
        let reception = Reception::Polled { taker: memory.taker(Side::Client)?, wake_line };
        Ok(Client { raising_end, reception, connection, watch, calls })
    }

    /// Raises an event towards the service, as [`Raiser::raise`] does. The service's handler is
    /// invoked later (§2.3.1, *deferred*), once for all events that wait by then. Makes no system
    /// call, unless the thread that serves the service sleeps.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn raise(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.raising_end.raise(raise)
    }

    /// The raiser towards the service, for other threads and for handlers.
    pub fn raiser(&self) -> Raiser {
        Raiser(self.raising_end.clone())
    }

    /// Calls the service's fast handler (§2.3.1) in this thread, at once and without a system call.
    /// The service must be in this process. What the handler asks for in its
    /// [`FastAnswer`](super::FastAnswer) is done before this returns.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::channel::{Client, FastAnswer, Form, Forms, Route, Service, ServiceTerms};
    ///
    /// let forms = Forms { to_service: Form::Counter, to_client: Form::Counter };
    /// let mut total = 0;
    /// let terms = ServiceTerms::new(forms, Route::to(|_| {})).fast(move |words| {
    ///     total += words[0];
    ///     FastAnswer::done([total, 0, 0, 0, 0])
    /// });
    /// let name = format!("sum-{}", std::process::id());
    /// let service = Service::in_thread(&name, terms)?;
    /// let client = Client::polled(&name)?;
    /// client.fast(&[40, 0, 0, 0, 0])?;
    /// assert_eq!(client.fast(&[2, 0, 0, 0, 0])?.words[0], 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`FastError`]; [`FastError::OtherProcess`] if the service is in another process.
    pub fn fast(&self, words: &Words) -> Result<FastDone, FastError> {
        self.fast_calls()?.fast(words)
    }

    /// As [`Client::fast`], but returns `None` if another thread runs the handler: no blocking call
    /// runs in its place.
    pub(crate) fn fast_if_free(&self, words: &Words) -> Result<Option<FastDone>, FastError> {
        self.fast_calls()?.fast_if_free(words)
    }

    fn fast_calls(&self) -> Result<&Calls, FastError> {
        if let Some(gone) = self.raising_end.exit.gone() {
            return Err(FastError::Gone(gone));
        }
        self.calls.as_deref().ok_or(FastError::OtherProcess)
    }

    /// The next event of a client without handlers: the most urgent one by the segment's form.
    /// `None` if there is none now, at the cost of one load. Neither blocks nor allocates.
    ///
    /// # Errors
    /// See [`TakeError`]; the service is gone, and all its events are taken.
    pub fn take(&mut self) -> Result<Option<ChannelEvent>, TakeError> {
        let Reception::Polled { taker, .. } = &mut self.reception else {
            return Err(TakeError::Handled);
        };
        // Reads this before the segment, so that no event is missed that the service raised before
        // it went.
        let gone = self.raising_end.exit.gone();
        if let Some(Gone::Fault(fault)) = gone {
            return Err(TakeError::Gone(Gone::Fault(fault)));
        }
        match taker.take() {
            Ok(Some(event)) => {
                let [a, b, c, d, e, ..] = event.payload;
                let (row, merged, words) = (event.row, event.merged, [a, b, c, d, e]);
                Ok(Some(ChannelEvent { peer: self.raising_end.peer, row, merged, words }))
            }
            Ok(None) | Err(PeerFault::Torn { .. }) => match gone {
                None => Ok(None),
                Some(gone) => Err(TakeError::Gone(gone)),
            },
            Err(fault) => {
                self.raising_end.exit.set(Gone::Fault(fault));
                Err(TakeError::Gone(Gone::Fault(fault)))
            }
        }
    }

    /// Sleeps until the service has notified of events, the service is gone, or `deadline` has
    /// come. Returns `false` at the deadline, and at once for a client with handlers. Call it after
    /// [`Client::take`] has returned `None`. A client that gets signals waits for the signal
    /// instead.
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        let Reception::Polled { wake_line, .. } = &self.reception else { return false };
        loop {
            if wake_line.wake_word().acknowledge() || self.raising_end.exit.gone().is_some() {
                return true;
            }
            if wake_line.wake_word().prepare_wait() {
                let _ = futex::wait_shared_until(
                    wake_line.wake_word().word(),
                    ASLEEP,
                    deadline.map(Instant::as_nanos),
                );
            }
            wake_line.wake_word().cancel_wait();
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return wake_line.wake_word().acknowledge();
            }
        }
    }

    /// How the service went. `None` while the service seems to be there. A load.
    pub fn gone(&self) -> Option<Gone> {
        self.raising_end.exit.gone()
    }

    /// The service's number, as in [`ChannelEvent::peer`].
    pub fn service(&self) -> PeerId {
        self.raising_end.peer
    }

    /// The counts of each handler of the route so far, filters first. Empty for a client without
    /// handlers.
    pub fn counts(&self) -> Vec<Counts> {
        match &self.reception {
            Reception::Polled { .. } => Vec::new(),
            Reception::Handled { registration, .. } => registration.counts(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Ends the watch first, so that the client does not find its own exit.
        self.watch = None;
        if !std::thread::panicking() {
            let _ = self.connection.send(ToService::Bye.encode().bytes(), &[]);
        }
        self.connection.hang_up();
        if let Reception::Handled { registration, server } = &mut self.reception {
            registration.leave();
            if let Some(server) = server.take().filter(|_| thread_context::may_wait()) {
                let _ = server.join();
            }
        }
    }
}

impl Registered {
    /// The end that raises towards the service.
    fn raising_end(
        &self,
        own_dispatcher: Option<DispatcherNotifier>,
    ) -> Result<Arc<RaisingEnd>, ChannelOpenError> {
        Ok(Arc::new(RaisingEnd {
            peer: PeerId::next(),
            raiser: self.memory.raiser(Side::Service)?.into(),
            wake_line: self.memory.wake_line(Side::Service)?,
            notification: Notification::WakeWord,
            exit: Arc::default(),
            on_behalf: None,
            system_calls: AtomicU64::new(0),
            signal_owed: AtomicBool::new(false),
            own_dispatcher,
        }))
    }
}

/// Calls `on_gone` once, when the service at the other end of `connection` is gone.
fn watch(
    connection: &Arc<Connection>,
    on_gone: impl FnOnce(Gone) + Send + 'static,
) -> Result<WatchEntry, OsError> {
    let received = connection.clone();
    liveness::watch(connection.as_fd(), move || {
        let mut bytes = [0; BYTES_MAX];
        // The message stays in the socket. The service may have sent a descriptor with it whose
        // close blocks, and this thread serves the streams of other peers too.
        let len = received.peek(&mut bytes).unwrap_or(0);
        // Dropped before the report. The report may make the client drop its connection, and this
        // reference is then not the last one.
        drop(received);
        let message = ToClient::decode(&bytes[..len]);
        on_gone(if message == Some(ToClient::Bye) { Gone::Ended } else { Gone::Died });
    })
}

/// Asks the service for a channel.
fn register(name: &str, signal: i32, value: i32) -> Result<Registered, ChannelOpenError> {
    let path = name::path_of(name)?;
    name::check_folder(&path)?;
    let connection = Connection::connect(&path)?;
    let asks = ToService::Register { signal, value };
    connection.send(asks.encode().bytes(), &[])?;
    let deadline_ns = (clock::now() + ANSWER_WITHIN).as_nanos();
    if !readiness::wait_until(connection.as_fd(), Direction::Readable, Some(deadline_ns))? {
        return Err(ChannelOpenError::NoAnswer);
    }
    let mut bytes = [0; BYTES_MAX];
    let Ok(Received { len, fds }) = connection.receive(&mut bytes) else {
        return Err(ChannelOpenError::NoAnswer);
    };
    match (ToClient::decode(&bytes[..len]), <[_; 1]>::try_from(fds)) {
        (Some(ToClient::Registered(forms)), Ok([fd])) => {
            let calls = calls_in_this_process(&connection, &path)?;
            let memory = ChannelMemory::from_fd(fd, forms)?;
            Ok(Registered { connection: Arc::new(connection), memory, calls })
        }
        (Some(ToClient::Refused(refusal)), _) => Err(ChannelOpenError::Refused(refusal)),
        _ => Err(ChannelOpenError::NoAnswer),
    }
}

/// The call handlers of the service, if the service is in this process.
fn calls_in_this_process(
    connection: &Connection,
    path: &Path,
) -> Result<Option<Arc<Calls>>, ChannelOpenError> {
    let is_local = connection.peer_credentials()?.pid == std::process::id();
    Ok(if is_local { fast::find(path) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use upcall_sys::local::{Access, Listener};

    /// The close of such a descriptor may block, and the liveness monitor serves other peers too.
    #[test]
    fn the_watch_closes_no_descriptor_that_a_service_sent() {
        let path = std::env::temp_dir().join(format!("upcall-watch-{}", std::process::id()));
        let listener = Listener::bind(&path, Access::Owner).unwrap();
        let connection = Arc::new(Connection::connect(&path).unwrap());
        let service = listener.accept().unwrap().unwrap();
        let _ = std::fs::remove_file(&path);
        let (sender, receiver) = mpsc::channel();
        let watch = watch(&connection, move |gone| sender.send(gone).unwrap()).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        service.send(ToClient::Bye.encode().bytes(), &[writer.as_fd()]).unwrap();
        drop((service, writer));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(Gone::Ended));
        drop(watch);
        // The write end is still open, in the connection. It closes with the connection.
        assert!(!readiness::is_ready(reader.as_fd(), Direction::Readable).unwrap());
        drop(connection);
        assert!(readiness::wait_until(reader.as_fd(), Direction::Readable, None).unwrap());
    }
}
