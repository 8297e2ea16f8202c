//! A runtime's calls for event channels whose handlers an executor invokes (ecalls-2001 §2).

use std::time::Duration;

use super::Runtime;
use crate::channel::{
    ChannelOpenError, Client, DispatcherNotifier, EventDispatcher, NewRegistrant, Route, Service,
    ServiceTerms,
};
use crate::config::Mode;
use crate::cpu::link::Control;
use crate::stream::{self, WATCHES_MAX};

impl Runtime {
    /// Registers a service under `name` whose handlers the scheduling thread of `cpu` invokes: between two upcalls and, if its
    /// route says so, at quantum boundaries of what runs, never inside a quantum. They are not
    /// admitted and must not block; [`Route::terms`] holds them back. Allocates; waits for the executor, whose
    /// other events wait meanwhile.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime};
    /// use upcall::channel::{Form, Forms, Route, ServiceTerms, When};
    /// let mut runtime = Runtime::start(Config::default())?;
    /// # let cpu = runtime.config().cpus[0];
    ///
    /// // Of each parameter the latest counts, and before the next decision is soon enough.
    /// let forms = Forms { to_service: Form::Typed { types: 8 }, to_client: Form::Counter };
    /// let route = Route::to(|events| {
    ///     while let Some(event) = events.take() {
    ///         println!("parameter {} is now {}", event.row, event.words[0]);
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
        Service::open(name, terms, &caller, |newcomer| {
            self.seat_party(executor, newcomer).map(|()| None)
        })
    }

    /// Registers a client of the service `name` whose handlers the scheduling thread of `cpu` invokes, as
    /// [`Runtime::service`] has it.
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
        Client::with_handlers(name, route, &caller, |newcomer| {
            self.seat_party(executor, newcomer).map(|()| None)
        })
    }

    /// The executor of `cpu`, and how it is called.
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

    /// Brings a party to the desk of an executor, which lends it meanwhile.
    fn seat_party(
        &mut self,
        executor: usize,
        newcomer: NewRegistrant,
    ) -> Result<(), ChannelOpenError> {
        let here = |known: &&super::Activity| known.has_stream && known.executor == executor;
        let streams = self.activities.iter().flatten().filter(here).count();
        let mut desk = match self.executors[executor].peers_reserved {
            None => Box::new(EventDispatcher::new()),
            Some(_) => self.borrow_desk(executor)?,
        };
        let bells = streams + desk.peers_reserved() + newcomer.peers_max;
        let admitted = match bells <= WATCHES_MAX {
            true => desk.admit(newcomer).map_err(ChannelOpenError::from),
            false => Err(ChannelOpenError::TooManyPeers { peers_max: WATCHES_MAX }),
        };
        self.executors[executor].peers_reserved = Some(desk.peers_reserved());
        self.send(executor, Control::TakeDesk { desk });
        admitted
    }

    fn borrow_desk(&mut self, executor: usize) -> Result<Box<EventDispatcher>, ChannelOpenError> {
        self.send(executor, Control::LendDesk);
        loop {
            let runs = self.executors[executor].runs();
            if let Ok(desk) = self.executors[executor].link.desks.pop() {
                return Ok(desk);
            }
            if !runs {
                return Err(ChannelOpenError::ThreadEnded);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
