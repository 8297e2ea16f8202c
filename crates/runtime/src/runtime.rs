//! The in-process runtime: creates, admits, runs and ends handlers.
//!
//! Used by programs through the facade. It lives in the program's own threads
//! of ordinary class; the handlers run in the executives' threads. Semantics of
//! create, run, suspend, close and sleep follow rtu-1995 Table 1 and §6.

mod abort;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use upcall_core::activity::{ActivityId, ActivityParams, BATCH_MAX, Claim, ParamError, Terms};
use upcall_core::admission::{Platform, Refusal, ReservationId, Reservations};
use upcall_core::policy::dws::DWS;
use upcall_core::policy::rmdp::RMDP;
use upcall_core::scheduler::Counters;
use upcall_core::time::{Instant, Span};
use upcall_core::trace::{Crossing, Record};

use crate::batch::Batch;
use crate::config::{Config, FIFO_PRIORITY, Mode};
use crate::domain::{AttachError, Domain};
use crate::executive::{
    ACTIVITIES_MAX, Control, Epoch, Executive, Handler, Job, Link, Outcomes, Retired, Work,
};
use crate::need::{CreateError, Need};
use crate::offence::Offence;
use crate::reactor::Reactor;
use crate::rights::Notice;
use crate::seat::Seat;
use crate::statistics::{ActivityReport, Report, Statistics};
use crate::task::{Address, Task, TaskCell, TaskWork};
use crate::virtual_time::{VirtualReport, VirtualStatistics, VirtualTime};
use crate::{calibrate, clock};

pub(crate) mod interrupts;

/// How long `stop` waits for a handler to yield.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// Fewest times it looks before it gives up: a virtual machine that was paused
/// finds the grace used up, and nobody has run meanwhile.
const STOP_LOOKS_MIN: u32 = 20;
/// How often a thread that waits takes in records meanwhile.
const LOOK_EVERY: Span = Span::from_millis(100);
/// Stack that a scheduling thread touches before it starts.
const STACK_BYTES: usize = 256 * 1024;

/// Names a handler or task of one runtime. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerId(usize);

/// See the module's head.
pub struct Runtime {
    config: Config,
    reservations: Reservations,
    /// Where admission is the daemon's.
    domain: Option<Domain>,
    executives: Vec<ExecutiveThread>,
    /// By `HandlerId`; `None` once closed.
    activities: Vec<Option<Activity>>,
    inactive_epoch: Arc<Epoch>,
    notices: Vec<Notice>,
    /// From the first task on.
    reactor: Option<Reactor>,
    /// From the first virtual-time handler on. Their places in `activities` are empty.
    virtual_time: Option<VirtualTime>,
}

/// Counts how often a handler of a runtime became inactive. For programs that
/// keep the runtime behind a lock, which [`Runtime::wait`] would hold: note the
/// count, look at [`Runtime::is_active`], and wait until the count has moved.
#[derive(Clone, Debug)]
pub struct Endings(Arc<Epoch>);

impl Endings {
    /// The present count; it wraps.
    pub fn count(&self) -> u32 {
        self.0.now()
    }

    /// Blocks until the count differs from `seen` or `deadline` has come; may
    /// return early. One system call.
    pub fn wait_past(&self, seen: u32, deadline: Option<Instant>) {
        self.0.wait_past(seen, deadline);
    }
}

/// One executive, launched or not yet.
struct ExecutiveThread {
    cpu: u32,
    link: Link,
    /// Present until the thread is launched.
    waiting: Option<Executive>,
    thread: Option<JoinHandle<(Outcomes, u64)>>,
    /// Activity numbers that are taken.
    taken: Vec<bool>,
    /// Numbers that are being closed.
    closing: Vec<ActivityId>,
    /// Closed by the executive, not yet taken note of.
    retired: Vec<Retired>,
    has_interrupt_handler: bool,
}

impl ExecutiveThread {
    /// Launched, and not at its end.
    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Runtime {
    /// Ends all delivery, as [`Runtime::stop`] does. In a thread that panics, handlers
    /// have their abort phase before: see [`Runtime::give_abort_phase`].
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort_phase(abort::WITHIN_AT_PANIC, |_, _| {});
        }
        self.quit();
    }
}

struct Activity {
    name: String,
    params: ActivityParams,
    reserved: Reserved,
    executive: usize,
    id: ActivityId,
    statistics: Statistics,
    /// Whether it goes on when the process ends, until it finishes.
    abort_phase: bool,
}

/// Whose reservation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    Here(ReservationId),
    /// The daemon's, by its place in the order of admission.
    There(u32),
}

/// What admission gave an activity.
struct Admitted {
    reserved: Reserved,
    executive: usize,
    id: ActivityId,
}

/// Why a runtime did not start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A CPU was named that this process may not use.
    CpuNotAllowed {
        /// That one.
        cpu: u32,
        /// The ones it may use.
        allowed: Vec<u32>,
    },
    /// A CPU was named twice.
    CpuTwice(u32),
    /// [`Config::trace`] in a mode in which the kernel decides.
    NothingToTrace(Mode),
    /// A scheduling thread did not start.
    Thread(String),
    /// [`Config::daemon`] in a mode in which the kernel decides, or under a policy
    /// whose ranks mean nothing to other processes (PS, DWCS).
    NotAcrossDomains {
        /// The mode.
        mode: Mode,
        /// The policy.
        policy: &'static str,
    },
    /// The daemon did not attach this process.
    Attach(Arc<AttachError>),
    /// The CPUs this process may use could not be found out.
    Cpus(upcall_sys::OsError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::CpuNotAllowed { cpu, allowed } => {
                write!(f, "CPU {cpu} is not among the CPUs this process may use, {allowed:?}")
            }
            StartError::CpuTwice(cpu) => write!(f, "CPU {cpu} is named twice"),
            StartError::NothingToTrace(mode) => {
                write!(f, "a trace in mode {}, expected mode upcall", mode.name())
            }
            StartError::Thread(error) => write!(f, "a scheduling thread did not start: {error}"),
            StartError::NotAcrossDomains { mode, policy } => write!(
                f,
                "mode {} under `{policy}` across processes, expected mode upcall under rmdp, rm or dws",
                mode.name()
            ),
            StartError::Attach(error) => error.fmt(f),
            StartError::Cpus(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

/// The CPUs handlers use when nobody names any: all that are allowed but CPU 0,
/// or CPU 0 if it is alone (contract, `cpus`).
///
/// # Errors
/// The system does not tell.
pub fn default_cpus() -> Result<Vec<u32>, StartError> {
    let allowed = upcall_sys::schedule::allowed_cpus().map_err(StartError::Cpus)?;
    let rest: Vec<u32> = allowed.iter().copied().filter(|&cpu| cpu != 0).collect();
    Ok(if rest.is_empty() { allowed } else { rest })
}

impl Runtime {
    /// Starts the scheduling threads and takes what rights there are; what was
    /// not granted is in [`Runtime::notices`]. Blocks for a few milliseconds.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(mut config: Config) -> Result<Self, StartError> {
        let mut notices = Vec::new();
        let (domain, seats) = match &config.daemon {
            None => (None, Vec::new()),
            Some(daemon) => {
                let (mode, policy) = (config.mode, config.discipline.name);
                if mode != Mode::Upcall || !config.discipline.across_domains {
                    return Err(StartError::NotAcrossDomains { mode, policy });
                }
                let attached = Domain::attach(&daemon.socket, &daemon.name, policy)
                    .map_err(|error| StartError::Attach(Arc::new(error)))?;
                config.cpus = attached.seats.iter().map(|(cpu, _)| *cpu).collect();
                config.switch_cost = Some(attached.switch_cost);
                if !attached.real_time {
                    notices.push(Notice::NoRealTimeDaemon);
                }
                (Some(attached.domain), attached.seats)
            }
        };
        if config.cpus.is_empty() {
            config.cpus = default_cpus()?;
        }
        if config.trace && config.mode != Mode::Upcall {
            return Err(StartError::NothingToTrace(config.mode));
        }
        let allowed = upcall_sys::schedule::allowed_cpus().map_err(StartError::Cpus)?;
        for (position, &cpu) in config.cpus.iter().enumerate() {
            if config.cpus[..position].contains(&cpu) {
                return Err(StartError::CpuTwice(cpu));
            }
            if !allowed.contains(&cpu) {
                return Err(StartError::CpuNotAllowed { cpu, allowed });
            }
        }
        let switch_cost = *config.switch_cost.get_or_insert_with(calibrate::switch_cost);
        let platform = Platform {
            cpus: config.cpus.clone(),
            cpu_limit: config.cpu_limit,
            switch_cost,
            wakeup_latency: config.wakeup_latency,
        };
        let reservations = Reservations::new(platform, config.discipline);
        let mut runtime = Runtime {
            config,
            reservations,
            domain,
            executives: Vec::new(),
            activities: Vec::new(),
            inactive_epoch: Arc::default(),
            notices,
            reactor: None,
            virtual_time: None,
        };
        if let Err(error) = upcall_sys::memory::lock_all() {
            runtime.notices.push(Notice::NoMemoryLock(error));
        }
        if runtime.config.mode == Mode::Upcall {
            let mut seats: Vec<Option<Seat>> =
                seats.into_iter().map(|(_, seat)| Some(seat)).collect();
            seats.resize_with(runtime.config.cpus.len(), || None);
            for (cpu, seat) in runtime.config.cpus.clone().into_iter().zip(seats) {
                let executive = runtime.add_executive(cpu, seat);
                runtime.launch(executive).map_err(StartError::Thread)?;
            }
        }
        Ok(runtime)
    }

    /// What the system did not grant, one line each; as of the last [`Runtime::poll`] also
    /// what a daemon that was started again did not.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// What is reserved, and what admission says of it.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The setup in force, with what was left open filled in.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Creates a handler, suspended, if admission finds room for it
    /// (`rts_creat`, rtu-1995 §6). May be called while others run.
    ///
    /// A need without a cost is measured first: the handler runs on trial in
    /// this thread, up to half a second, and consumes what it processes.
    /// Allocates; O(n) analyses for n handlers.
    ///
    /// # Errors
    /// See [`CreateError`]; a refusal says what would fit.
    pub fn handler<F>(
        &mut self,
        name: &str,
        need: impl Into<Need>,
        handler: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnMut(&mut Batch<'_>) + Send + 'static,
    {
        self.check_name(name)?;
        let mut handler: Handler = Box::new(handler);
        let mut need = need.into();
        let switch_cost = self.config.switch_cost.unwrap_or_default();
        if need.pdu_cost().is_zero() {
            // Any cost gives the batch: mapping derives it from rate and delay.
            let batch = need.with_cost(Span::from_nanos(1)).params(switch_cost)?.batch;
            let cost =
                calibrate::pdu_cost(&mut handler, batch).ok_or(CreateError::NothingToMeasure)?;
            need = need.with_cost(cost);
        }
        let params = need.params(switch_cost)?;
        let terms = need.terms();
        let admitted = self.admit(name, params, &terms)?;
        Ok(self.enter(name, admitted, params, terms, Work::Handler(handler)))
    }

    /// Creates a task, suspended, if admission finds room for it: a lightweight
    /// process (split-level-1991 §3.1), whose code is the future that `task` makes.
    /// It is run, suspended, closed and waited for as a handler is; it ends when
    /// the future does. The cost of a PDU must be declared; a PDU is what it does
    /// between two checkpoints. May be called while others run. Allocates.
    ///
    /// ```no_run
    /// # use upcall_runtime::{Config, Runtime, activity::ActivityParams, policy::dws::DWS};
    /// # use upcall_runtime::{clock, time::Span};
    /// # let mut runtime = Runtime::start(Config { discipline: &DWS, ..Config::default() })?;
    /// let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));
    /// let blink = runtime.task("blink", need, async move |task| {
    ///     for _ in 0..50 {
    ///         task.timed_sleep(clock::now() + Span::from_millis(20)).await;
    ///     }
    /// })?;
    /// runtime.run(blink)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runtime::handler`], and [`CreateError::NotForTasks`] under another
    /// policy than DWS.
    pub fn task<F, T>(
        &mut self,
        name: &str,
        need: impl Into<Need>,
        task: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnOnce(Task) -> T,
        T: Future<Output = ()> + Send + 'static,
    {
        self.check_name(name)?;
        if self.config.discipline.name != DWS.name {
            return Err(CreateError::NotForTasks { policy: self.config.discipline.name });
        }
        let need = need.into();
        let params = need.params(self.config.switch_cost.unwrap_or_default())?;
        let terms = Terms { on_demand: true, ..need.terms() };
        // Before anything is reserved: it is the caller's code, and may panic.
        let cell = Arc::new(TaskCell::new(clock::now));
        let work = TaskWork::new(cell.clone(), task(Task::new(cell.clone())));
        if self.reactor.is_none() {
            let real_time = self.config.mode != Mode::Threads;
            self.reactor = Some(Reactor::start(real_time).map_err(CreateError::Thread)?);
        }
        let admitted = self.admit(name, params, &terms)?;
        let shared = self.executives[admitted.executive].link.shared.clone();
        let watcher = self.reactor.as_ref().map(|reactor| reactor.watcher(&shared, admitted.id));
        cell.bind(Address { shared, id: admitted.id, watcher });
        Ok(self.enter(name, admitted, params, terms, Work::Task(work)))
    }

    /// Creates a virtual-time handler, suspended: one without a period and without a
    /// real-time rank, for protocols that need no guarantee (rtu-1995 §9). While it is
    /// delivered it is upcalled whenever the kernel runs this process as an ordinary
    /// one, by the thread `upcall-virtual`, which all virtual handlers share. They take turns in
    /// the order of their creation: [`Batch::proceed`] answers `false` at the end of
    /// `quantum` PDUs if another waits, and else goes on. Nothing is promised to it
    /// and nothing reserved for it, so admission has no say.
    ///
    /// Virtual handlers of a process never interleave inside a quantum, and share data
    /// without a lock. Real-time handlers and tasks preempt them anywhere, as they do
    /// every ordinary thread.
    ///
    /// It is run, suspended, waited for and stopped as others are, and closed by
    /// [`Runtime::close_virtual`]. One that finds nothing to do should say
    /// [`Batch::finish`] and be run again when there is: until then it is upcalled
    /// over and over. It may have an abort phase ([`Runtime::give_abort_phase`]).
    /// May be called while others run. Allocates.
    ///
    /// # Errors
    /// [`CreateError::NameTaken`]; [`CreateError::Params`] if `quantum` is 0 or above
    /// [`BATCH_MAX`]; [`CreateError::Thread`].
    pub fn virtual_handler<F>(
        &mut self,
        name: &str,
        quantum: u32,
        handler: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnMut(&mut Batch<'_>) + Send + 'static,
    {
        self.check_name(name)?;
        if !(1..=BATCH_MAX).contains(&quantum) {
            return Err(CreateError::Params(ParamError::Quantum { quantum, batch: BATCH_MAX }));
        }
        let virtual_time = match self.virtual_time.take() {
            Some(started) => started,
            None => VirtualTime::start(self.inactive_epoch.clone()).map_err(CreateError::Thread)?,
        };
        let id = HandlerId(self.activities.len());
        self.activities.push(None);
        virtual_time.enter(id, name, quantum, Box::new(handler));
        self.virtual_time = Some(virtual_time);
        Ok(id)
    }

    fn check_name(&self, name: &str) -> Result<(), CreateError> {
        let virtual_name = self.virtual_time.as_ref().is_some_and(|known| known.has_name(name));
        let mut live = self.activities.iter().flatten();
        if virtual_name || live.any(|activity| activity.name == name) {
            return Err(CreateError::NameTaken(name.to_owned()));
        }
        Ok(())
    }

    /// Reserves, and finds an executive and a number on it.
    fn admit(
        &mut self,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Result<Admitted, CreateError> {
        let (reserved, cpu) = self.reserve(name, params, terms)?;
        let executive = match self.config.mode {
            Mode::Upcall => self
                .executives
                .iter()
                .position(|executive| executive.cpu == cpu)
                .expect("one executive was made for each CPU"),
            Mode::Threads | Mode::Fifo => self.add_executive(cpu, None),
        };
        let Some(number) = self.executives[executive].taken.iter().position(|&taken| !taken) else {
            self.release(reserved);
            return Err(CreateError::TooMany { activities_max: ACTIVITIES_MAX });
        };
        self.executives[executive].taken[number] = true;
        let id = ActivityId(u32::try_from(number).expect("below ACTIVITIES_MAX"));
        Ok(Admitted { reserved, executive, id })
    }

    /// Asks admission, here or in the daemon, for a place: the reservation and its CPU.
    fn reserve(
        &mut self,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Result<(Reserved, u32), CreateError> {
        let unscreened = self.config.unscreened;
        if let Some(domain) = &mut self.domain {
            let asked = domain.create(name, &params, terms, unscreened);
            return match asked.map_err(|error| CreateError::Daemon(error.to_string()))? {
                Ok(place) => Ok((Reserved::There(place.order), place.cpu)),
                Err(no) => Err(CreateError::RefusedThere { reason: no.reason, hint: no.hint }),
            };
        }
        let reservation = match self.reservations.reserve(name, params, terms) {
            Ok(reservation) => reservation,
            Err(_) if unscreened => self.reservations.reserve_unscreened(name, params, terms),
            Err(refusal) => return Err(CreateError::Refused(Box::new(refusal))),
        };
        Ok((Reserved::Here(reservation.id), reservation.cpu))
    }

    /// Gives a place back.
    fn release(&mut self, reserved: Reserved) {
        match (reserved, &self.domain) {
            (Reserved::Here(id), _) => self.reservations.release(id),
            (Reserved::There(order), Some(domain)) => domain.close(order),
            (Reserved::There(_), None) => {}
        }
    }

    /// Hands an admitted activity to its executive.
    fn enter(
        &mut self,
        name: &str,
        admitted: Admitted,
        params: ActivityParams,
        terms: Terms,
        work: Work,
    ) -> HandlerId {
        let Admitted { reserved, executive, id } = admitted;
        let order = match reserved {
            Reserved::There(order) => Some(order),
            Reserved::Here(_) => None,
        };
        self.send(executive, Control::Create { id, params, terms, work, order });
        let statistics = Statistics::default();
        let name = name.to_owned();
        let abort_phase = false;
        let activity = Activity { name, params, reserved, executive, id, statistics, abort_phase };
        self.activities.push(Some(activity));
        HandlerId(self.activities.len() - 1)
    }

    /// Delivers a handler periodically from now on (`rts_run`).
    ///
    /// # Errors
    /// A scheduling thread did not start; only in the baseline modes.
    pub fn run(&mut self, id: HandlerId) -> Result<(), CreateError> {
        self.run_at(&[id], clock::now())
    }

    /// Delivers several handlers, the first release of each at `at` plus its
    /// offset, so that they are in phase. A virtual-time handler has no release: it is
    /// delivered from now on.
    ///
    /// # Errors
    /// As [`Runtime::run`].
    pub fn run_at(&mut self, ids: &[HandlerId], at: Instant) -> Result<(), CreateError> {
        let mut started: Vec<usize> = Vec::new();
        for &HandlerId(index) in ids {
            if let Some(virtual_time) = &self.virtual_time {
                virtual_time.run(HandlerId(index));
            }
            let Some(activity) = &self.activities[index] else { continue };
            let (executive, id) = (activity.executive, activity.id);
            self.executives[executive].link.shared.set_active(id, true);
            self.post(executive, Control::Run { id, at });
            started.push(executive);
        }
        // All is posted before the first bell: the executive may take this
        // thread's CPU the moment it hears it, and what is not there by then
        // waits as long as a real-time thread lets an ordinary one wait.
        started.dedup();
        for executive in started {
            self.executives[executive].link.shared.doorbell.ring();
            self.launch(executive).map_err(CreateError::Thread)?;
        }
        Ok(())
    }

    /// Stops delivering a handler (`rts_suspend`): a pending upcall is dropped;
    /// a running one is told to return at its next quantum boundary. Does not
    /// wait for it.
    pub fn suspend(&mut self, id: HandlerId) {
        if let Some(activity) = &self.activities[id.0] {
            let (executive, id) = (activity.executive, activity.id);
            self.send(executive, Control::Suspend { id });
        } else if let Some(virtual_time) = &self.virtual_time {
            virtual_time.suspend(id);
        }
    }

    /// Gives a handler another share or weight, if admission grants it (PS): the
    /// kind stays, a share for a share and a weight for a weight. It may run
    /// meanwhile; it keeps what it is behind or ahead, and goes on until its
    /// present request ends. No effect if it is closed, and none on who runs when
    /// in the baseline modes, where the kernel decides. Does not wait for the
    /// executive. Allocates; one analysis of its CPU, a refusal some 20.
    ///
    /// ```no_run
    /// # use upcall_runtime::{Config, Need, Runtime, activity::{ActivityParams, Claim, Terms}};
    /// # use upcall_runtime::{admission::Share, policy::ps::PS, time::Span};
    /// # let mut runtime = Runtime::start(Config { discipline: &PS, ..Config::default() })?;
    /// let params = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));
    /// let terms = Terms { share: Share::from_ppm(200_000), ..Terms::default() };
    /// let video = runtime.handler("video", Need::Activity(params, terms), |_| {})?;
    /// if let Some(less) = Share::from_ppm(150_000) {
    ///     runtime.reweigh(video, Claim::Share(less))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Admission refuses, and says why and which share would fit. Nothing changed.
    pub fn reweigh(&mut self, id: HandlerId, claim: Claim) -> Result<(), Box<Refusal>> {
        let Some(activity) = &self.activities[id.0] else { return Ok(()) };
        let (executive, number) = (activity.executive, activity.id);
        // Shares and weights are PS's, which is not across domains.
        let Reserved::Here(reservation) = activity.reserved else { return Ok(()) };
        match self.config.unscreened {
            true => self.reservations.reweigh_unscreened(reservation, claim)?,
            false => self.reservations.reweigh(reservation, claim)?,
        }
        self.send(executive, Control::Reweigh { id: number, claim });
        Ok(())
    }

    /// Suspends a handler, gives back all it held (`rts_close`), and says how it
    /// did. Blocks until the executive let go of it, a quantum normally.
    ///
    /// `None` if it is closed already, or if it did not yield within half a
    /// second: then it still holds what it held, and may be closed again. Also `None`
    /// for a virtual-time handler, which is closed nevertheless: its report is another
    /// one, [`Runtime::close_virtual`].
    pub fn close(&mut self, id: HandlerId) -> Option<ActivityReport> {
        let Some(activity) = &self.activities[id.0] else {
            let _ = self.close_virtual(id);
            return None;
        };
        let (executive, number) = (activity.executive, activity.id);
        // A close that was given up is under way already, or done by now.
        if !self.executives[executive].closing.contains(&number) {
            self.executives[executive].closing.push(number);
            self.send(executive, Control::Close { id: number });
        }
        self.launch(executive).ok()?;
        let give_up = clock::now() + Span::from(STOP_GRACE);
        loop {
            let mut retired = Vec::new();
            while let Ok(one) = self.executives[executive].link.retired.pop() {
                retired.push(one);
            }
            // Their last records were sent before they were retired.
            self.poll(|_, _| {});
            self.executives[executive].retired.extend(retired);
            let kept = &mut self.executives[executive].retired;
            if let Some(at) = kept.iter().position(|retired| retired.id == number) {
                // The handler is dropped here, not in the executive.
                let counters = kept.swap_remove(at).counters;
                let thread = &mut self.executives[executive];
                thread.closing.retain(|&closing| closing != number);
                thread.taken[number.0 as usize] = false;
                let activity = self.activities[id.0].take()?;
                self.release(activity.reserved);
                return Some(self.report_of(activity, counters));
            }
            if clock::now() >= give_up {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Suspends a virtual-time handler, drops it, and says how it did. Blocks until it
    /// returned, a quantum normally.
    ///
    /// `None` if it is closed already, or is none, or if it did not return within half
    /// a second: then it may be closed again.
    pub fn close_virtual(&mut self, id: HandlerId) -> Option<VirtualReport> {
        let virtual_time = self.virtual_time.as_ref().filter(|known| known.has(id))?;
        virtual_time.suspend(id);
        let give_up = clock::now() + Span::from(STOP_GRACE);
        loop {
            let report = virtual_time.take(id);
            if report.is_some() || clock::now() >= give_up {
                return report;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// What a virtual-time handler has done; `None` if it is closed, or is none.
    pub fn virtual_statistics(&self, id: HandlerId) -> Option<VirtualStatistics> {
        self.virtual_time.as_ref()?.statistics(id)
    }

    /// Waits until at least one of `ids` is not delivered any more, and says
    /// which (`rts_sleep`, rtu-1995 §6 item 5); an empty answer means that
    /// `timeout` passed. Returns at once if one is inactive already.
    pub fn wait(&mut self, ids: &[HandlerId], timeout: Option<Span>) -> Vec<HandlerId> {
        let deadline = timeout.map(|timeout| clock::now() + timeout);
        loop {
            let seen = self.inactive_epoch.now();
            let inactive: Vec<HandlerId> =
                ids.iter().copied().filter(|&id| !self.is_active(id)).collect();
            let late = deadline.is_some_and(|deadline| clock::now() >= deadline);
            if !inactive.is_empty() || late || ids.is_empty() {
                return inactive;
            }
            self.poll(|_, _| {});
            // Wakes now and then to keep the records flowing.
            let poll_at = clock::now() + LOOK_EVERY;
            let until = deadline.map_or(poll_at, |deadline| deadline.min(poll_at));
            self.inactive_epoch.wait_past(seen, Some(until));
        }
    }

    /// The count of handlers that became inactive, to be waited for without the
    /// runtime at hand: see [`Endings`].
    pub fn endings(&self) -> Endings {
        Endings(self.inactive_epoch.clone())
    }

    /// Whether a handler is delivered: run, and neither suspended, closed nor
    /// finished since.
    pub fn is_active(&self, id: HandlerId) -> bool {
        let Some(activity) = &self.activities[id.0] else {
            return self.virtual_time.as_ref().is_some_and(|known| known.is_active(id));
        };
        let executive = &self.executives[activity.executive];
        executive.link.shared.is_active(activity.id) && executive.runs()
    }

    /// Takes in the records of jobs that ended since the last call, and shows
    /// each to `on_job`. To be called a few times a second by whoever wants
    /// complete statistics; the counters are complete without it.
    pub fn poll(&mut self, mut on_job: impl FnMut(HandlerId, &Job)) {
        self.notices.extend(self.domain.iter().flat_map(Domain::take_notices));
        for (executive, thread) in self.executives.iter_mut().enumerate() {
            while let Ok(job) = thread.link.jobs.pop() {
                let owner = self.activities.iter_mut().enumerate().find_map(|(index, activity)| {
                    let activity = activity.as_mut()?;
                    (activity.executive == executive && activity.id == job.record.id)
                        .then_some((index, activity))
                });
                if let Some((index, activity)) = owner {
                    activity.statistics.observe(&job);
                    on_job(HandlerId(index), &job);
                }
            }
        }
    }

    /// Takes out what crossed the core's interface since the last call, and shows
    /// each record with its CPU to `on_record`: a CPU's records in their order.
    /// Nothing without [`Config::trace`]. What is not taken out in time is lost,
    /// and a record in its place says how many were; ten times a second is often
    /// enough for 300,000 records a second and CPU.
    pub fn poll_trace(&mut self, mut on_record: impl FnMut(u32, &Record)) {
        for thread in &mut self.executives {
            let Some(records) = &mut thread.link.records else { continue };
            while let Ok(record) = records.pop() {
                on_record(thread.cpu, &record);
            }
        }
    }

    /// What the daemon's guardian had to do about this process since the last call, in
    /// order: a handler kept its CPU, and others waited. Told a moment after it was done;
    /// without [`Config::daemon`] there is none. Does not wait. Allocates if there is any.
    pub fn offences(&mut self) -> Vec<Offence> {
        self.domain.as_mut().map(|domain| domain.offences().collect()).unwrap_or_default()
    }

    /// The CPU of a handler and its number there, by which records call it;
    /// `None` if it is closed. The number is used again then.
    pub fn place(&self, id: HandlerId) -> Option<(u32, ActivityId)> {
        let activity = self.activities[id.0].as_ref()?;
        Some((self.executives[activity.executive].cpu, activity.id))
    }

    /// What is known of a handler by the last [`Runtime::poll`]; `None` if it is
    /// closed.
    pub fn statistics(&self, id: HandlerId) -> Option<&Statistics> {
        self.activities[id.0].as_ref().map(|activity| &activity.statistics)
    }

    /// Parameters a handler was admitted with; `None` if it is closed.
    pub fn params(&self, id: HandlerId) -> Option<ActivityParams> {
        self.activities[id.0].as_ref().map(|activity| activity.params)
    }

    /// The reservation of a handler; `None` if it is closed, or if admission is a
    /// daemon's.
    pub fn reservation(&self, id: HandlerId) -> Option<ReservationId> {
        match self.activities[id.0].as_ref()?.reserved {
            Reserved::Here(id) => Some(id),
            Reserved::There(_) => None,
        }
    }

    /// Ends all delivery and says how it went. Waits half a second for handlers
    /// to yield; one that does not is left behind and named in the report.
    pub fn stop(mut self, on_job: impl FnMut(HandlerId, &Job)) -> Report {
        self.quit();
        self.poll(on_job);
        let mut report = Report { offences: self.offences(), ..Report::default() };
        let virtual_time = self.virtual_time.take();
        report.virtual_handlers = virtual_time.map(VirtualTime::into_reports).unwrap_or_default();
        self.poll_trace(|cpu, record| report.trace.push((cpu, *record)));
        let mut outcomes = Vec::new();
        for executive in &mut self.executives {
            let finished = executive.thread.take_if(|thread| thread.is_finished());
            if executive.thread.is_some() {
                report.stuck.push(executive.cpu);
            }
            // Relaxed: a statistic; the thread was joined or is given up.
            let lost = &executive.link.shared.jobs_lost;
            report.jobs_lost += lost.load(std::sync::atomic::Ordering::Relaxed);
            let outcome = finished.and_then(|thread| thread.join().ok());
            let records = outcome.as_ref().map_or(0, |(outcome, _)| outcome.records_lost);
            if records > 0 {
                let gap = Record { now: clock::now(), crossing: Crossing::Lost { records } };
                report.trace.push((executive.cpu, gap));
            }
            outcomes.push(outcome);
        }
        for (outcome, kernel_switches) in outcomes.iter().flatten() {
            report.activity_switches += outcome.switches;
            report.domain_switches += outcome.handoffs;
            report.kernel_switches += kernel_switches;
            report.wakeup.merge(&outcome.wakeup);
        }
        for activity in std::mem::take(&mut self.activities).into_iter().flatten() {
            let counters = outcomes[activity.executive]
                .as_ref()
                .and_then(|(outcome, _)| outcome.counters[activity.id.0 as usize]);
            report.activities.push(self.report_of(activity, counters));
        }
        report
    }

    /// Tells all executives to quit, and gives them the grace to do so.
    fn quit(&mut self) {
        for executive in 0..self.executives.len() {
            if self.executives[executive].runs() {
                self.send(executive, Control::Quit);
            }
        }
        if let Some(virtual_time) = &self.virtual_time {
            virtual_time.quit();
        }
        let runs = |runtime: &Self| {
            let mut executives = runtime.executives.iter();
            executives.any(ExecutiveThread::runs)
                || runtime.virtual_time.as_ref().is_some_and(VirtualTime::runs)
        };
        let give_up = clock::now() + Span::from(STOP_GRACE);
        let mut looks = 0;
        while (clock::now() < give_up || looks < STOP_LOOKS_MIN) && runs(self) {
            std::thread::sleep(Duration::from_millis(1));
            looks += 1;
        }
    }

    fn report_of(&self, activity: Activity, counters: Option<Counters>) -> ActivityReport {
        let executive = &self.executives[activity.executive];
        ActivityReport {
            name: activity.name,
            cpu: executive.cpu,
            params: activity.params,
            counters,
            statistics: activity.statistics,
            faulted: executive.link.shared.is_faulted(activity.id),
        }
    }

    fn add_executive(&mut self, cpu: u32, seat: Option<Seat>) -> usize {
        // Alone on its thread, a handler needs no policy: the kernel has its own.
        let (meter_cpu, discipline) = match self.config.mode {
            Mode::Upcall => (false, self.config.discipline),
            Mode::Threads | Mode::Fifo => (true, &RMDP),
        };
        let (executive, link) = Executive::new(
            discipline,
            meter_cpu,
            self.config.trace,
            self.inactive_epoch.clone(),
            seat,
        );
        self.executives.push(ExecutiveThread {
            cpu,
            link,
            waiting: Some(executive),
            thread: None,
            taken: vec![false; ACTIVITIES_MAX as usize],
            closing: Vec::new(),
            retired: Vec::new(),
            has_interrupt_handler: false,
        });
        self.executives.len() - 1
    }

    fn send(&mut self, executive: usize, control: Control) {
        self.post(executive, control);
        self.executives[executive].link.shared.doorbell.ring();
    }

    /// Leaves a control for an executive, to be rung for later.
    fn post(&mut self, executive: usize, mut control: Control) {
        let link = &mut self.executives[executive].link;
        // The ring is full only if the executive did not get to it for hundreds
        // of controls; then this thread, of ordinary class, waits.
        while let Err(rtrb::PushError::Full(back)) = link.controls.push(control) {
            control = back;
            link.shared.doorbell.ring();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts the thread of an executive, if it does not run yet.
    fn launch(&mut self, index: usize) -> Result<(), String> {
        let fifo_priority = match self.config.mode {
            // The daemon gives it its class.
            Mode::Upcall if self.domain.is_some() => None,
            Mode::Upcall => Some(FIFO_PRIORITY),
            Mode::Threads => None,
            Mode::Fifo => Some(self.rate_monotonic_priority(index)),
        };
        let executive = &mut self.executives[index];
        let Some(waiting) = executive.waiting.take() else { return Ok(()) };
        let cpu = executive.cpu;
        let (notices_in, notices) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("upcall-cpu{cpu}"))
            .spawn(move || {
                let tid = upcall_sys::process::thread_id();
                let _ = notices_in.send((tid, prepare_thread(cpu, fifo_priority)));
                let outcomes = waiting.run();
                (outcomes, upcall_sys::schedule::thread_switches())
            })
            .map_err(|error| error.to_string())?;
        executive.thread = Some(thread);
        let (tid, found) = notices.recv().map_err(|error| error.to_string())?;
        if let Some(domain) = &self.domain {
            domain.thread(cpu, tid).map_err(|error| error.to_string())?;
        }
        for notice in found {
            let known = self
                .notices
                .iter()
                .any(|old| std::mem::discriminant(old) == std::mem::discriminant(&notice));
            if !known {
                self.notices.push(notice);
            }
        }
        Ok(())
    }

    /// Priority of a handler's own thread: one below the next shorter period.
    fn rate_monotonic_priority(&self, index: usize) -> u8 {
        let live = || self.activities.iter().flatten();
        let Some(own) = live().find(|activity| activity.executive == index) else {
            return FIFO_PRIORITY;
        };
        let mut shorter: Vec<Span> = live()
            .map(|other| other.params.period)
            .filter(|&period| period < own.params.period)
            .collect();
        shorter.sort_unstable();
        shorter.dedup();
        let below = u8::try_from(shorter.len()).unwrap_or(u8::MAX);
        FIFO_PRIORITY.saturating_sub(below).max(1)
    }
}

/// Pins, raises, and pre-faults the calling thread; says what was not granted.
fn prepare_thread(cpu: u32, fifo_priority: Option<u8>) -> Vec<Notice> {
    let mut notices = Vec::new();
    if let Err(error) = upcall_sys::schedule::pin_thread(&[cpu]) {
        notices.push(Notice::NoPinning { cpu, error });
    }
    upcall_sys::memory::prefault_stack::<STACK_BYTES>();
    if let Some(Err(error)) = fifo_priority.map(upcall_sys::schedule::set_fifo) {
        notices.push(Notice::NoRealTimeClass(error));
    }
    notices
}
