//! A client: registered with a service by its name, with how it is told of the service's events.

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
use upcall_shm::channel::bell::{ASLEEP, Bell};
use upcall_sys::OsError;
use upcall_sys::futex;
use upcall_sys::local::{Connection, Received};
use upcall_sys::readiness::{self, Direction};

use super::dispatcher::Newcomer;
use super::errors::{ChannelOpenError, FastError, RaiseError, ServiceRefusal, TakeError};
use super::event::{ChannelEvent, Words};
use super::fast::{self, Calls, FastDone};
use super::link::{Link, Place};
use super::message::{BYTES_MAX, ToClient, ToService};
use super::notifier::Caller;
use super::peer::{Gone, PeerId};
use super::raise::Raise;
use super::raiser::{Out, Raiser, Tell};
use super::registration::Line;
use super::route::Route;
use super::segment::{Pair, Part, Side, Takes};
use super::{handler_thread as thread, name, thread_context as here};
use crate::clock;
use crate::liveness::{self, WatchEntry};

/// How long a service may take to answer: it is an ordinary thread.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// A client of one service; a program may have many, of many services. For one thread at a time. Dropped, it
/// leaves: the service finds [`Gone::Ended`], and in a thread that panics [`Gone::Died`].
pub struct Client {
    out: Arc<Out>,
    told: Told,
    connection: Arc<Connection>,
    watched: Option<WatchEntry>,
    /// Of a service in this process.
    calls: Option<Arc<Calls>>,
}

/// How it is told.
enum Told {
    /// It looks itself.
    Polls { takes: Takes, bell: Arc<Bell<Part>> },
    /// Its handlers are invoked.
    Handles { line: Arc<Line>, server: Option<JoinHandle<()>> },
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("gone", &self.gone()).finish_non_exhaustive()
    }
}

/// What registration gave.
struct Registered {
    connection: Arc<Connection>,
    pair: Pair,
    calls: Option<Arc<Calls>>,
}

impl Client {
    /// Registers with the service `name` a client that looks for its events itself ([`Client::take`]), and may
    /// sleep until it is told ([`Client::wait`]). Allocates; blocks until the service has answered,
    /// 10 s at most.
    ///
    /// # Errors
    /// See [`ChannelOpenError`]; `ENOENT` or `ECONNREFUSED` if there is no such service, or not even a folder for it.
    pub fn polled(name: &str) -> Result<Self, ChannelOpenError> {
        Client::that_looks(name, 0, 0)
    }

    /// As [`Client::polled`], but this process is sent the real-time signal `number` with `value` beside
    /// (`si_value`, sigqueue(3)) when there are events and it has taken all it was told of before.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::channel::{Client, real_time_signals};
    ///
    /// // Its handler must be there, or the signal blocked for sigwaitinfo(2): by default it kills.
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
    /// As there, and if it is no real-time signal.
    pub fn signalled(name: &str, number: i32, value: i32) -> Result<Self, ChannelOpenError> {
        if number == 0 {
            return Err(ChannelOpenError::Refused(ServiceRefusal::Signal));
        }
        Client::that_looks(name, number, value)
    }

    /// Registers a client whose events go along `route`, in a thread of its own. In an executor:
    /// [`Runtime::client`](crate::Runtime::client). Allocates; blocks as [`Client::polled`] does.
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
        let caller = thread::caller();
        let admit = |newcomer| thread::start(&caller, newcomer).map(Some);
        Client::that_handles(name, route, &caller, admit)
    }

    /// Registers it once `admit` has given it a desk, which `caller` calls.
    pub(crate) fn that_handles(
        name: &str,
        route: Route,
        caller: &Caller,
        admit: impl FnOnce(Newcomer) -> Result<Option<JoinHandle<()>>, ChannelOpenError>,
    ) -> Result<Self, ChannelOpenError> {
        route.check()?;
        let registered = register(name, 0, 0)?;
        let out = registered.out(Some(caller.clone()))?;
        let Registered { connection, pair, calls } = registered;
        let (line, newcomer) = Line::new(caller.clone(), route, 1);
        let line = Arc::new(line);
        let hangs_up = connection.clone();
        line.on_over(move || hangs_up.hang_up());
        let (fate, looks) = (out.fate.clone(), Arc::downgrade(&line));
        let link = Link {
            peer: out.peer,
            takes: pair.takes(Side::Client)?,
            bell: pair.bell(Side::Client)?,
            out: out.clone(),
            is_local: calls.is_some(),
            connection: connection.clone(),
            at: Place::default(),
        };
        let server = admit(newcomer)?;
        // From here on dropping it undoes all.
        let told = Told::Handles { line: line.clone(), server };
        let mut client = Client { out, told, connection, watched: None, calls };
        line.join(link);
        let told = move |gone| {
            fate.set(gone);
            if let Some(line) = looks.upgrade() {
                line.look();
            }
        };
        client.watched = Some(watch(&client.connection, told)?);
        Ok(client)
    }

    fn that_looks(name: &str, signal: i32, value: i32) -> Result<Self, ChannelOpenError> {
        let registered = register(name, signal, value)?;
        let out = registered.out(None)?;
        let Registered { connection, pair, calls } = registered;
        let bell = Arc::new(pair.bell(Side::Client)?);
        let (fate, rung) = (out.fate.clone(), bell.clone());
        let told = move |gone| {
            fate.set(gone);
            if rung.ring() {
                futex::wake_shared(rung.word(), 1);
            }
        };
        let watched = Some(watch(&connection, told)?);
        let told = Told::Polls { takes: pair.takes(Side::Client)?, bell };
        Ok(Client { out, told, connection, watched, calls })
    }

    /// Raises an event towards the service, as [`Raiser::raise`] does: its handler is invoked later (§2.3.1,
    /// *deferred*), once for all that are there by then. No system call, unless who serves it sleeps.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn raise(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.out.raise(raise)
    }

    /// What raises towards the service, for other threads and for handlers.
    pub fn raiser(&self) -> Raiser {
        Raiser(self.out.clone())
    }

    /// Calls the service's fast handler (§2.3.1), which is code of this process: in this thread, at once, without
    /// system call. What it says is to be done besides is done before this returns.
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
    /// See [`FastError`]; [`FastError::OtherProcess`] if the service is not of this one.
    pub fn fast(&self, words: &Words) -> Result<FastDone, FastError> {
        if let Some(gone) = self.out.fate.gone() {
            return Err(FastError::Gone(gone));
        }
        self.calls.as_ref().ok_or(FastError::OtherProcess)?.fast(words)
    }

    /// The next event, of a client that looks for them itself: the most urgent as the segment's form has it.
    /// `None`: there is none now. A load then; neither blocks nor allocates.
    ///
    /// # Errors
    /// See [`TakeError`]; the service is gone, and all it raised is taken.
    pub fn take(&mut self) -> Result<Option<ChannelEvent>, TakeError> {
        let Told::Polls { takes, .. } = &mut self.told else { return Err(TakeError::Handled) };
        // First: what it raised before it went is seen.
        let gone = self.out.fate.gone();
        if let Some(Gone::Fault(fault)) = gone {
            return Err(TakeError::Gone(Gone::Fault(fault)));
        }
        match takes.take() {
            Ok(Some(event)) => {
                let [a, b, c, d, e, ..] = event.payload;
                let (row, merged, words) = (event.row, event.merged, [a, b, c, d, e]);
                Ok(Some(ChannelEvent { peer: self.out.peer, row, merged, words }))
            }
            Ok(None) | Err(PeerFault::Torn { .. }) => match gone {
                None => Ok(None),
                Some(gone) => Err(TakeError::Gone(gone)),
            },
            Err(fault) => {
                self.out.fate.set(Gone::Fault(fault));
                Err(TakeError::Gone(Gone::Fault(fault)))
            }
        }
    }

    /// Sleeps until it is told that there are events, the service is gone, or `deadline` has come: `false` only
    /// then, and at once of a client with handlers. After [`Client::take`] said `None`; one that is told by a signal waits for that.
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        let Told::Polls { bell, .. } = &self.told else { return false };
        loop {
            if bell.answer() || self.out.fate.gone().is_some() {
                return true;
            }
            if bell.doze() {
                let _ =
                    futex::wait_shared_until(bell.word(), ASLEEP, deadline.map(Instant::as_nanos));
            }
            bell.stir();
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return bell.answer();
            }
        }
    }

    /// What has become of the service; `None`: it is there, as far as is known. A load.
    pub fn gone(&self) -> Option<Gone> {
        self.out.fate.gone()
    }

    /// The service, as [`ChannelEvent::peer`] has it.
    pub fn service(&self) -> PeerId {
        self.out.peer
    }

    /// What happened at each handler of its route so far, filters first; nothing of a client without.
    pub fn counts(&self) -> Vec<Counts> {
        match &self.told {
            Told::Polls { .. } => Vec::new(),
            Told::Handles { line, .. } => line.counts(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It is not told of its own leave.
        self.watched = None;
        if !std::thread::panicking() {
            let _ = self.connection.send(ToService::Bye.encode().bytes(), &[]);
        }
        self.connection.hang_up();
        if let Told::Handles { line, server } = &mut self.told {
            line.leave();
            if let Some(server) = server.take().filter(|_| here::may_wait()) {
                let _ = server.join();
            }
        }
    }
}

impl Registered {
    /// The end that raises towards the service.
    fn out(&self, caller: Option<Caller>) -> Result<Arc<Out>, ChannelOpenError> {
        Ok(Arc::new(Out {
            peer: PeerId::next(),
            raises: self.pair.raises(Side::Service)?.into(),
            bell: self.pair.bell(Side::Service)?,
            tell: Tell::Bell,
            fate: Arc::default(),
            behalf: None,
            system_calls: AtomicU64::new(0),
            owed: AtomicBool::new(false),
            caller,
        }))
    }
}

/// Has `told` called once, when the service at the other end of `connection` is gone.
fn watch(
    connection: &Arc<Connection>,
    told: impl FnOnce(Gone) + Send + 'static,
) -> Result<WatchEntry, OsError> {
    let received = connection.clone();
    liveness::watch(connection.as_fd(), move || {
        let mut bytes = [0; BYTES_MAX];
        let said = received.receive(&mut bytes).ok();
        let bye = said.and_then(|received| ToClient::decode(&bytes[..received.len]));
        told(if bye == Some(ToClient::Bye) { Gone::Ended } else { Gone::Died });
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
            let calls = of_this_process(&connection, &path)?;
            let pair = Pair::from_fd(fd, forms)?;
            Ok(Registered { connection: Arc::new(connection), pair, calls })
        }
        (Some(ToClient::Refused(refusal)), _) => Err(ChannelOpenError::Refused(refusal)),
        _ => Err(ChannelOpenError::NoAnswer),
    }
}

/// The service's code, if it is of this process.
fn of_this_process(
    connection: &Connection,
    path: &Path,
) -> Result<Option<Arc<Calls>>, ChannelOpenError> {
    let is_here = connection.peer_credentials()?.pid == std::process::id();
    Ok(if is_here { fast::find(path) } else { None })
}
