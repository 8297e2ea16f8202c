//! A runtime's calls for event channels with handlers that an executor invokes (ecalls-2001 §2),
//! and for the service that sends events when descriptors are ready (§3.2).

use std::time::Duration;

use super::Runtime;
use crate::channel::{
    ChannelOpenError, Client, DispatcherNotifier, EventDispatcher, NewRegistrant, Route, Service,
    ServiceTerms,
};
use crate::config::Mode;
use crate::cpu::link::Control;
use crate::io_events::IoEventService;
use crate::stream::{self, WATCHES_MAX};
use crate::thread_error::ThreadError;

impl Runtime {
    /// Registers a service under `name`. The scheduling thread of `cpu` invokes its handlers:
    /// between two upcalls and, if the route says so, at quantum boundaries of the handler that
    /// runs, never inside a quantum. The handlers of events are not admitted and must not block;
    /// [`Route::terms`] limits them. Allocates. Waits for the executor; the other events of that
    /// executor wait meanwhile.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use upcall::{Config, Runtime};
    /// use upcall::channel::{Form, Forms, Route, ServiceTerms, When};
    /// let mut runtime = Runtime::start(Config::default())?;
    /// # let cpu = runtime.config().cpus[0];
    ///
    /// // Keep the latest value of each parameter, and deliver it before the next decision.
    /// let forms = Forms { to_service: Form::Typed { types: 8 }, to_client: Form::Counter };
    /// let parameters: Arc<[AtomicU64; 8]> = Arc::default();
    /// let latest = parameters.clone();
    /// let route = Route::to(move |events| {
    ///     while let Some(event) = events.take() {
    ///         latest[event.row as usize].store(event.words[0], Ordering::Relaxed);
    ///     }
    /// });
    /// let terms = ServiceTerms::new(forms, route.when(When::BeforeScheduling));
    /// let service = runtime.service(cpu, "parameters", terms)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`ChannelOpenError`].
    pub fn service(
        &mut self,
        cpu: u32,
        name: &str,
        terms: ServiceTerms,
    ) -> Result<Service, ChannelOpenError> {
        let (executor, caller) = self.events_of(cpu)?;
        Service::open(name, terms, &caller, |registrant| {
            self.add_registrant(executor, registrant).map(|()| None)
        })
    }

    /// Registers a client of the service `name`. The scheduling thread of `cpu` invokes its
    /// handlers, as for [`Runtime::service`].
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime};
    /// use upcall::channel::{Raise, Route};
    /// let mut runtime = Runtime::start(Config::default())?;
    /// # let cpu = runtime.config().cpus[0];
    ///
    /// let route = Route::to(|events| while events.take().is_some() {});
    /// let client = runtime.client(cpu, "parameters", route)?;
    /// client.raise(&Raise::row(3).words([80, 0, 0, 0, 0]))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`ChannelOpenError`].
    pub fn client(
        &mut self,
        cpu: u32,
        name: &str,
        route: Route,
    ) -> Result<Client, ChannelOpenError> {
        let (executor, caller) = self.events_of(cpu)?;
        Client::with_handlers(name, route, &caller, |registrant| {
            self.add_registrant(executor, registrant).map(|()| None)
        })
    }

    /// Starts a service that watches descriptors and sends events when they are ready, to handlers
    /// and on channels. Its thread has a priority above the handlers if that is granted, so the
    /// events come while handlers use the whole CPU. Code that runs in this thread must be short
    /// (fast calls, and handlers on a client's behalf), and may get
    /// [`RaiseError::Busy`](crate::channel::RaiseError::Busy). Two descriptors; allocates.
    ///
    /// # Errors
    /// The thread did not start, or there are no descriptors.
    pub fn io_event_service(&self) -> Result<IoEventService, ThreadError> {
        IoEventService::start_at(self.real_time.map(|real_time| real_time.band.reactor()))
    }

    /// The executor of `cpu`, and how its dispatcher is notified.
    fn events_of(&self, cpu: u32) -> Result<(usize, DispatcherNotifier), ChannelOpenError> {
        if self.config.mode != Mode::Upcall {
            return Err(ChannelOpenError::NotInMode(self.config.mode));
        }
        stream::check_kernel().map_err(ChannelOpenError::Kernel)?;
        let mut executors = self.executors.iter();
        let found = executors.position(|one| one.cpu == cpu);
        let executor = found.ok_or(ChannelOpenError::NoSuchCpu { cpu })?;
        Ok((executor, DispatcherNotifier::Executor(self.executors[executor].link.shared.clone())))
    }

    /// Adds a registrant to the event dispatcher of an executor, which lends the dispatcher
    /// meanwhile.
    fn add_registrant(
        &mut self,
        executor: usize,
        registrant: NewRegistrant,
    ) -> Result<(), ChannelOpenError> {
        let here = |known: &&super::Activity| known.has_stream && known.executor == executor;
        let streams = self.activities.iter().flatten().filter(here).count();
        let mut dispatcher = match self.executors[executor].peers_reserved {
            None => Box::new(EventDispatcher::new()),
            Some(_) => self.borrow_dispatcher(executor)?,
        };
        let wake_words = streams + dispatcher.peers_reserved() + registrant.peers_max;
        let admitted = match wake_words <= WATCHES_MAX {
            true => dispatcher.admit(registrant).map_err(ChannelOpenError::from),
            false => Err(ChannelOpenError::TooManyPeers { peers_max: WATCHES_MAX }),
        };
        self.executors[executor].peers_reserved = Some(dispatcher.peers_reserved());
        self.send(executor, Control::TakeDispatcher { dispatcher });
        admitted
    }

    fn borrow_dispatcher(
        &mut self,
        executor: usize,
    ) -> Result<Box<EventDispatcher>, ChannelOpenError> {
        self.send(executor, Control::LendDispatcher);
        loop {
            let runs = self.executors[executor].runs();
            if let Ok(dispatcher) = self.executors[executor].link.dispatchers.pop() {
                return Ok(dispatcher);
            }
            if !runs {
                return Err(ChannelOpenError::ThreadEnded);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
