//! The in-process runtime: creates, admits, runs and ends handlers.
//!
//! Used by programs through the facade. It lives in the program's own threads
//! of ordinary class; the handlers run in the executors' threads. Semantics of
//! create, run, suspend, close and sleep follow rtu-1995 Table 1 and §6.
//!
//! Here: what a runtime is, delivery, and what is known of it. `start`, `creation`
//! and `ending` are the rest of its life, `abort` what comes before the end of the process.

mod abort;
mod channels;
mod creation;
mod ending;
pub(crate) mod interrupts;
mod remote;
pub(crate) mod start;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use upcall_core::activity::{ActivityId, ActivityParams, Claim};
use upcall_core::admission::{Refusal, ReservationId, Reservations, Share};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Record;
use upcall_sys::schedule::RealTime;

use crate::clock;
use crate::config::Config;
use crate::cpu::executor::{Executor, Outcomes};
use crate::cpu::link::{Control, Link, Retired};
use crate::domain::Domain;
use crate::events::{Poster, Posts};
use crate::id::HandlerId;
use crate::mailbox::{Epoch, Job};
use crate::need::CreateError;
use crate::offence::Offence;
use crate::reactor::Reactor;
use crate::rights::Notice;
use crate::statistics::Statistics;
use crate::virtual_time::{VirtualStatistics, VirtualTime};

/// How often a thread that waits takes in records meanwhile.
const LOOK_EVERY: Span = Span::from_millis(100);

/// The scheduler of a program: creates handlers and tasks, admits them, upcalls them on time, and
/// reports how they did.
///
/// A program has one. [`Runtime::start`] starts a scheduling thread for each CPU of
/// [`Config::cpus`]. The calls below are for the program's other threads, of the ordinary class.
/// Handlers and tasks run in the scheduling threads.
///
/// | to | call |
/// |---|---|
/// | create | [`handler`](Runtime::handler), [`stream_reader_handler`](Runtime::stream_reader_handler), [`stream_writer_handler`](Runtime::stream_writer_handler), [`task`](Runtime::task), [`virtual_handler`](Runtime::virtual_handler) |
/// | deliver, or stop delivery | [`run`](Runtime::run), [`run_at`](Runtime::run_at), [`suspend`](Runtime::suspend), [`close`](Runtime::close) |
/// | wait | [`wait`](Runtime::wait), [`endings`](Runtime::endings) |
/// | tell a handler of an event | [`poster`](Runtime::poster), [`service`](Runtime::service), [`client`](Runtime::client) |
/// | watch | [`poll`](Runtime::poll), [`statistics`](Runtime::statistics), [`notices`](Runtime::notices), [`offences`](Runtime::offences) |
/// | end | [`stop`](Runtime::stop), [`abort`](Runtime::abort) |
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::activity::ActivityParams;
/// use upcall::time::Span;
/// use upcall::{Config, Runtime};
///
/// let mut upcall = Runtime::start(Config::default())?;
/// // Every 5 ms one PDU of at most 50 us.
/// let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50));
/// let mut left = 10;
/// let tick = upcall.handler("tick", need, move |batch| {
///     while batch.proceed() {
///         left -= 1; // process one PDU
///     }
///     if left == 0 {
///         batch.finish(); // no more upcalls, please
///     }
/// })?;
/// upcall.run(tick)?;
/// upcall.wait(&[tick], None);
/// let report = upcall.stop(|_, _| {});
/// assert_eq!(report.activities[0].counters.map(|counters| counters.pdus), Some(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropped, it ends all delivery as [`Runtime::stop`] does, and the report is lost. A handler that
/// panics is suspended, and the others go on.
pub struct Runtime {
    config: Config,
    reservations: Reservations,
    /// Where admission is the daemon's.
    domain: Option<Domain>,
    executors: Vec<ExecutorThread>,
    /// By `HandlerId`; `None` once closed.
    activities: Vec<Option<Activity>>,
    /// Periods of what runs in other processes.
    elsewhere: Vec<Span>,
    inactive_epoch: Arc<Epoch>,
    notices: Vec<Notice>,
    /// What this process may take by itself; `None` too in mode `threads`.
    real_time: Option<RealTime>,
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

/// One executor, launched or not yet.
struct ExecutorThread {
    cpu: u32,
    link: Link,
    /// Present until the thread is launched.
    waiting: Option<Executor>,
    thread: Option<JoinHandle<(Outcomes, u64)>>,
    /// Activity numbers that are taken.
    taken: Vec<bool>,
    /// Numbers that are being closed.
    closing: Vec<ActivityId>,
    /// Closed by the executor, not yet taken note of.
    retired: Vec<Retired>,
    has_interrupt_handler: bool,
    /// Peers of event channels that it serves or may come to; `None`: it has no desk.
    peers_reserved: Option<usize>,
}

impl ExecutorThread {
    /// Launched, and not at its end.
    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

struct Activity {
    name: String,
    params: ActivityParams,
    reserved: Reserved,
    executor: usize,
    id: ActivityId,
    /// Whether it has an end of a stream.
    has_stream: bool,
    statistics: Statistics,
    /// Whether it goes on when the process ends, until it finishes.
    abort_phase: bool,
    /// `None`: a task, which takes no events.
    posts: Option<Posts>,
}

/// Whose reservation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    Here(ReservationId),
    /// The daemon's, by its place in the order of admission.
    There(u32),
}

impl Runtime {
    /// What the system did not grant, one line each; as of the last [`Runtime::poll`] also
    /// what a daemon that was started again did not.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// By which right this process has the real-time class, and at which priorities; `None`
    /// if it has not, in mode `threads`, and under a daemon, which gives domains their class.
    pub fn real_time(&self) -> Option<RealTime> {
        self.real_time.filter(|_| self.domain.is_none())
    }

    /// What is reserved, and what admission says of it.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The setup in force, with what was left open filled in.
    pub fn config(&self) -> &Config {
        &self.config
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
            let (executor, id) = (activity.executor, activity.id);
            self.executors[executor].link.shared.set_active(id, true);
            self.post(executor, Control::Run { id, at });
            started.push(executor);
        }
        // All is posted before the first bell: the executor may take this
        // thread's CPU the moment it hears it, and what is not there by then
        // waits as long as a real-time thread lets an ordinary one wait.
        started.dedup();
        for executor in started {
            self.executors[executor].link.shared.notifier.notify();
            self.launch(executor).map_err(CreateError::Thread)?;
        }
        Ok(())
    }

    /// Stops delivering a handler (`rts_suspend`): a pending upcall is dropped;
    /// a running one is told to return at its next quantum boundary. Does not
    /// wait for it.
    pub fn suspend(&mut self, id: HandlerId) {
        if let Some(activity) = &self.activities[id.0] {
            let (executor, id) = (activity.executor, activity.id);
            self.send(executor, Control::Suspend { id });
        } else if let Some(virtual_time) = &self.virtual_time {
            virtual_time.suspend(id);
        }
    }

    /// Gives a handler another share or weight, if admission grants it (PS): the
    /// kind stays, a share for a share and a weight for a weight. It may run
    /// meanwhile; it keeps what it is behind or ahead, and goes on until its
    /// present request ends. No effect if it is closed, and none on who runs when
    /// in the baseline modes, where the kernel decides. Does not wait for the
    /// executor. Allocates; one analysis of its CPU, a refusal some 20.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Need, Runtime, activity::{ActivityParams, Claim, Terms}};
    /// use upcall::{admission::Share, policy::ps::PS, time::Span};
    /// let mut runtime = Runtime::start(Config { discipline: &PS, ..Config::default() })?;
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
        let (executor, number) = (activity.executor, activity.id);
        // Shares and weights are PS's, which is not across domains.
        let Reserved::Here(reservation) = activity.reserved else { return Ok(()) };
        match self.config.unscreened {
            true => self.reservations.reweigh_unscreened(reservation, claim)?,
            false => self.reservations.reweigh(reservation, claim)?,
        }
        self.send(executor, Control::Reweigh { id: number, claim });
        Ok(())
    }

    /// Gives the event server of `cpu` this share of it in place of what it had, if admission grants it (DWCS):
    /// so much is spent on events ahead of jobs, and every job is done in time all the same. `None` takes it
    /// back: then events are served where nothing is ready, or in order of deadlines.
    /// No effect if there is no such CPU. Does not wait for the executor. Allocates; one analysis.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, policy::dwcs::DWCS};
    /// let mut runtime = Runtime::start(Config { discipline: &DWCS, cpus: vec![1], ..Config::default() })?;
    /// // Once the handlers are created: whatever they leave.
    /// runtime.reserve_events(1, runtime.reservations().event_share(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// It does not fit, or the policy has no event server. Nothing changed.
    pub fn reserve_events(&mut self, cpu: u32, share: Option<Share>) -> Result<(), Box<Refusal>> {
        self.reservations.reserve_events(cpu, share)?;
        if let Some(executor) = self.executors.iter().position(|one| one.cpu == cpu) {
            self.send(executor, Control::EventServer { share });
        }
        Ok(())
    }

    /// What posts events to a handler, from any thread of this process; `None` if it is closed, a task or a
    /// virtual-time handler. An event releases nothing: while it waits, the handler goes before those of equal rank
    /// that have none, or a later one, wherever somebody is chosen to run, among the domains of a
    /// daemon too. Under RMDP and RM only if it has [`activity::Terms::wins_ties`](crate::activity::Terms::wins_ties),
    /// with which admission reckons; under DWS and DWCS any handler; under PS events count for nothing. The handler takes
    /// them by [`Batch::take_event`](crate::Batch::take_event).
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::{ActivityParams, Terms}, clock, time::Span};
    /// let mut runtime = Runtime::start(Config::default())?;
    /// let params = ActivityParams::new(Span::from_millis(33), Span::from_millis(5));
    /// let terms = Terms { wins_ties: true, ..Terms::default() };
    /// let player = runtime.handler("player", (params, terms), |batch| {
    ///     while let Some(frame) = batch.take_event() {
    ///         if !batch.proceed() {
    ///             break;
    ///         }
    ///         println!("to be shown at {} ns", frame.rank);
    ///     }
    /// })?;
    /// let poster = runtime.poster(player).ok_or("closed")?;
    /// std::thread::spawn(move || {
    ///     let display_at = clock::now() + Span::from_millis(40);
    ///     poster.post(display_at.as_nanos())
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poster(&self, id: HandlerId) -> Option<Poster> {
        let activity = self.activities[id.0].as_ref()?;
        let shared = &self.executors[activity.executor].link.shared;
        Some(activity.posts.as_ref()?.poster(shared, activity.id))
    }

    /// What a virtual-time handler has done; `None` if it is closed, or is none.
    pub fn virtual_statistics(&self, id: HandlerId) -> Option<VirtualStatistics> {
        self.virtual_time.as_ref()?.statistics(id)
    }

    /// Blocks until at least one of `ids` is no longer delivered, and returns those
    /// (`rts_sleep`, rtu-1995 §6 item 5). An empty answer means that `deadline` has come;
    /// `None` is no limit. Returns at once if one is inactive already. Allocates.
    pub fn wait(&mut self, ids: &[HandlerId], deadline: Option<Instant>) -> Vec<HandlerId> {
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
        let executor = &self.executors[activity.executor];
        executor.link.shared.is_active(activity.id) && executor.runs()
    }

    /// Takes in the records of jobs that ended since the last call, and shows
    /// each to `on_job`. To be called a few times a second by whoever wants
    /// complete statistics; the counters are complete without it.
    pub fn poll(&mut self, mut on_job: impl FnMut(HandlerId, &Job)) {
        self.notices.extend(self.domain.iter().flat_map(Domain::take_notices));
        for (executor, thread) in self.executors.iter_mut().enumerate() {
            while let Ok(job) = thread.link.jobs.pop() {
                let owner = self.activities.iter_mut().enumerate().find_map(|(index, activity)| {
                    let activity = activity.as_mut()?;
                    (activity.executor == executor && activity.id == job.record.id)
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
        for thread in &mut self.executors {
            let Some(records) = &mut thread.link.records else { continue };
            while let Ok(record) = records.pop() {
                on_record(thread.cpu, &record);
            }
        }
    }

    /// What the daemon's watchdog had to do about this process since the last call, in
    /// order: a handler kept its CPU, and others waited. Told a moment after it was done;
    /// without [`Config::daemon`] there is none. Does not wait. Allocates if there is any.
    pub fn offences(&mut self) -> Vec<Offence> {
        self.domain.as_mut().map(|domain| domain.offences().collect()).unwrap_or_default()
    }

    /// The CPU of a handler and its number there, by which records call it;
    /// `None` if it is closed. The number is used again then.
    pub fn place(&self, id: HandlerId) -> Option<(u32, ActivityId)> {
        let activity = self.activities[id.0].as_ref()?;
        Some((self.executors[activity.executor].cpu, activity.id))
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

    fn send(&mut self, executor: usize, control: Control) {
        self.post(executor, control);
        self.executors[executor].link.shared.notifier.notify();
    }

    /// Leaves a control for an executor, to be rung for later.
    fn post(&mut self, executor: usize, mut control: Control) {
        let link = &mut self.executors[executor].link;
        // The ring is full only if the executor did not get to it for hundreds
        // of controls; then this thread, of ordinary class, waits.
        while let Err(rtrb::PushError::Full(back)) = link.controls.push(control) {
            control = back;
            link.shared.notifier.notify();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
