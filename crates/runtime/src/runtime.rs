//! The in-process runtime: creates, admits, runs and ends handlers.
//!
//! Programs use it through the facade. Its calls run in the program's own threads, of ordinary
//! class; the handlers run in the executors' threads. Create, run, suspend, close and sleep mean
//! what rtu-1995 Table 1 and §6 say.
//!
//! This file holds the runtime's state, delivery and queries. `start` starts a runtime, `creation`
//! creates handlers, and `ending` ends both. `abort` holds the abort phase before the end of a
//! process. `channels`, `interrupts` and `remote` hold the calls for event channels, for user
//! interrupts, and for handlers in other processes.

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
use upcall_core::admission::{Refusal, Reservation, ReservationId, Reservations, Share};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Record;
use upcall_sys::schedule::RealTime;

use crate::clock;
use crate::config::Config;
use crate::cpu::executor::{Executor, Outcomes};
use crate::cpu::link::{Control, Link, Retired};
use crate::domain::{Domain, NoPlace};
use crate::events::{Poster, Posts};
use crate::id::HandlerId;
use crate::mailbox::{Epoch, Job};
use crate::need::CreateError;
use crate::offence::Offence;
use crate::reactor::Reactor;
use crate::rights::Notice;
use crate::statistics::Statistics;
use crate::virtual_time::{VirtualStatistics, VirtualTime};
use crate::watchdog::Watchdog;

/// A thread that waits takes in records at this interval.
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
/// | create | [`handler`](Runtime::handler),
/// [`stream_reader_handler`](Runtime::stream_reader_handler),
/// [`stream_writer_handler`](Runtime::stream_writer_handler), [`task`](Runtime::task),
/// [`virtual_handler`](Runtime::virtual_handler) |
/// | deliver, or stop delivery | [`run`](Runtime::run), [`run_at`](Runtime::run_at),
/// [`suspend`](Runtime::suspend), [`close`](Runtime::close) |
/// | wait | [`wait`](Runtime::wait), [`endings`](Runtime::endings) |
/// | post an event to a handler | [`poster`](Runtime::poster), [`service`](Runtime::service),
/// [`client`](Runtime::client) |
/// | watch | [`poll`](Runtime::poll), [`statistics`](Runtime::statistics),
/// [`notices`](Runtime::notices), [`offences`](Runtime::offences) |
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
/// A runtime that is dropped ends all delivery as [`Runtime::stop`] does, and the report is lost. A
/// handler that panics is suspended, and the others go on.
pub struct Runtime {
    config: Config,
    reservations: Reservations,
    /// `Some`: this process is a domain, and the daemon decides admission.
    domain: Option<Domain>,
    executors: Vec<ExecutorThread>,
    /// By `HandlerId`; `None` once closed.
    activities: Vec<Option<Activity>>,
    /// The handlers that run in other processes. Their places in `activities` are empty.
    remotes: Vec<Remote>,
    inactive_epoch: Arc<Epoch>,
    notices: Vec<Notice>,
    /// The right that this process itself has. `None` also in mode `threads`.
    real_time: Option<RealTime>,
    /// `Some` from the first task or descriptor interrupt on.
    reactor: Option<Reactor>,
    /// `Some` if an executor has the real-time class by this process' own right.
    watchdog: Option<Watchdog>,
    /// `Some` from the first virtual-time handler on. The places of these handlers in `activities`
    /// are empty.
    virtual_time: Option<VirtualTime>,
}

/// Counts how often a handler of a runtime became inactive. It is for programs that keep the
/// runtime behind a lock, which [`Runtime::wait`] would hold. Such a program reads the count, asks
/// [`Runtime::is_active`], and waits until the count has changed.
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
    /// `Some` until the thread is launched.
    waiting: Option<Executor>,
    thread: Option<JoinHandle<(Outcomes, u64)>>,
    /// Whether each activity number is taken.
    taken: Vec<bool>,
    /// Numbers that are being closed.
    closing: Vec<ActivityId>,
    /// Activities that the executor closed and no call has reported yet.
    retired: Vec<Retired>,
    has_interrupt_handler: bool,
    /// How many peers its event dispatcher serves or may get. `None`: it has no event dispatcher.
    peers_reserved: Option<usize>,
}

impl ExecutorThread {
    /// Whether it was launched and has not ended.
    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

struct Activity {
    name: String,
    params: ActivityParams,
    reserved: Reserved,
    /// Its first release must not come before.
    not_before: Instant,
    executor: usize,
    id: ActivityId,
    /// Whether the handler has an end of a stream.
    has_stream: bool,
    statistics: Statistics,
    /// Whether the handler has an abort phase.
    abort_phase: bool,
    /// `None` for a task, which takes no events.
    posts: Option<Posts>,
}

/// A handler that runs in another process, without a daemon.
struct Remote {
    handler: HandlerId,
    name: String,
    period: Span,
    reservation: Reservation,
}

/// The admission that holds the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    /// This runtime's admission.
    Local(ReservationId),
    /// The daemon's admission, with the place in the order of admission.
    Daemon(u32),
}

impl Runtime {
    /// What the system did not grant, one line each. After a daemon was started again,
    /// [`Runtime::poll`] adds what that daemon did not grant.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// By which right this process has the real-time class, and at which priorities. `None` if it
    /// has no right, in mode `threads`, and under a daemon, which gives domains their class.
    pub fn real_time(&self) -> Option<RealTime> {
        self.real_time.filter(|_| self.domain.is_none())
    }

    /// The reservations, and their analysis by admission.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The setup in force, with the open fields filled in.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Delivers a handler periodically from now on (`rts_run`).
    ///
    /// # Errors
    /// A scheduling thread did not start. Only in the baseline modes.
    pub fn run(&mut self, id: HandlerId) -> Result<(), CreateError> {
        self.run_at(&[id], clock::now())
    }

    /// Delivers several handlers. The first release of each is at `at` plus the handler's offset,
    /// so that they are in phase. A virtual-time handler has no release, and is delivered from now
    /// on.
    ///
    /// Under a daemon of `dwcs` first releases are *aligned*: `at`, or now if that is later, is
    /// rounded up to a multiple of the period on the clock ([`clock::now`]), and the offset is
    /// added. So handlers of equal periods and offsets are released together, whatever process they
    /// are in and whenever it started. A handler that was suspended waits until the window in which
    /// that was would have ended. A handler that is admitted while the window of a closed one is
    /// not over waits for its end. Tasks and handlers of streams are not aligned.
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
            let at = at.max(activity.not_before);
            self.executors[executor].link.shared.set_active(id, true);
            self.post(executor, Control::Run { id, at });
            started.push(executor);
        }
        // All controls are posted before the first notification. The executor may take this
        // thread's CPU at the notification. A control that is not posted by then waits until no
        // real-time thread needs this CPU.
        started.dedup();
        for executor in started {
            self.executors[executor].link.shared.notifier.notify();
            self.launch(executor).map_err(CreateError::Thread)?;
        }
        Ok(())
    }

    /// Stops delivering a handler (`rts_suspend`). A pending upcall is dropped. A running one is
    /// told to return at its next quantum boundary. Does not wait for it.
    pub fn suspend(&mut self, id: HandlerId) {
        if let Some(activity) = &self.activities[id.0] {
            let (executor, id) = (activity.executor, activity.id);
            self.send(executor, Control::Suspend { id });
        } else if let Some(virtual_time) = &self.virtual_time {
            virtual_time.suspend(id);
        }
    }

    /// Gives a handler another share or weight, if admission grants it (PS). The kind stays: a
    /// share for a share, a weight for a weight. A member of a group claims a weight in it. The
    /// share or weight of the group itself cannot change while it has members. The handler may run
    /// meanwhile. The change holds at once, and the handler keeps its lag. A handler that runs goes
    /// on until its present request ends. No effect on a handler that is closed. In the baseline
    /// modes the call does not change the order of execution, which the kernel decides. Does not
    /// wait for the executor. Allocates; one analysis of the CPU, about 20 for a refusal. Under a
    /// daemon the call blocks until the daemon has answered.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::{ActivityParams, Claim, Terms}};
    /// use upcall::{admission::Share, discipline::PS, time::Span};
    /// let mut runtime = Runtime::start(Config { discipline: &PS, ..Config::default() })?;
    /// let params = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));
    /// let terms = Terms { share: Share::from_ppm(200_000), ..Terms::default() };
    /// let video = runtime.handler("video", (params, terms), |_| {})?;
    /// if let Some(less) = Share::from_ppm(150_000) {
    ///     runtime.reweigh(video, Claim::Share(less))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Admission refuses, and says why and which share would fit. It refuses every claim under a
    /// policy without shares and weights ([`Reason::NotShared`](crate::admission::Reason)). A
    /// daemon that refuses, or does not answer, is [`Reason::ByDaemon`](crate::admission::Reason).
    /// Then nothing has changed.
    pub fn reweigh(&mut self, id: HandlerId, claim: Claim) -> Result<(), Box<Refusal>> {
        let Some(activity) = &self.activities[id.0] else { return Ok(()) };
        let (executor, number) = (activity.executor, activity.id);
        let unscreened = self.config.unscreened;
        match (activity.reserved, &mut self.domain) {
            (Reserved::Local(reservation), _) if unscreened => {
                self.reservations.reweigh_unscreened(reservation, claim)?;
            }
            (Reserved::Local(reservation), _) => self.reservations.reweigh(reservation, claim)?,
            (Reserved::Daemon(order), Some(domain)) => {
                let refused = |told: String| {
                    Err(Box::new(self.reservations.refused_elsewhere(&activity.name, told)))
                };
                match domain.reweigh(order, claim) {
                    Ok(Ok(_)) => {}
                    Ok(Err(NoPlace { reason, hint })) if hint.is_empty() => return refused(reason),
                    Ok(Err(NoPlace { reason, hint })) => {
                        return refused(format!("{reason}; {hint}"));
                    }
                    Err(error) => return refused(error.to_string()),
                }
            }
            // A domain has the places that a daemon gave.
            (Reserved::Daemon(_), None) => return Ok(()),
        }
        self.send(executor, Control::Reweigh { id: number, claim });
        Ok(())
    }

    /// Gives the event server of `cpu` this share of the CPU, if admission grants it (DWCS). The
    /// share replaces the earlier one. Events may use it ahead of jobs, and every job still meets
    /// its deadline. `None` takes the share back: then events are served where nothing is ready, or
    /// in order of deadlines. No effect without a daemon if there is no such CPU. Does not wait for
    /// the executor. Allocates; one analysis.
    ///
    /// A share is granted only where every job is done in time. So it is refused beside handlers
    /// that must use the misses of their windows, and such handlers are refused beside a share.
    ///
    /// Under a daemon each process has event servers of its own, and asks the daemon for their
    /// shares. The shares of all domains of a CPU add up. The call blocks until the daemon has
    /// answered. The share goes back when the process ends.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::ActivityParams};
    /// use upcall::{admission::Share, discipline::DWCS, time::Span};
    /// let mut runtime = Runtime::start(Config { discipline: &DWCS, ..Config::default() })?;
    /// let params = ActivityParams::new(Span::from_millis(10), Span::from_millis(1));
    /// let player = runtime.handler("player", params, |batch| {
    ///     if batch.take_event().is_some() && batch.proceed() {
    ///         // process one event
    ///     }
    /// })?;
    /// let (cpu, _) = runtime.place(player).ok_or("closed")?;
    /// runtime.reserve_events(cpu, Share::from_ppm(50_000))?; // 5 % of the CPU of `player`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Without a daemon, `reservations().event_share(cpu)` is the largest share that fits. In a
    /// domain it is `None`, which would take the share back: `reservations()` does not know what
    /// the daemon granted.
    ///
    /// # Errors
    /// The share does not fit, or the policy has no event server. A daemon that refuses, or does
    /// not answer, is [`Reason::ByDaemon`](crate::admission::Reason). It also refuses a CPU that is
    /// not its own. Then nothing has changed.
    pub fn reserve_events(&mut self, cpu: u32, share: Option<Share>) -> Result<(), Box<Refusal>> {
        if let Some(domain) = &mut self.domain {
            let refused = |told| Err(Box::new(self.reservations.events_refused_elsewhere(told)));
            match domain.reserve_events(cpu, share) {
                Ok(Ok(())) => {}
                Ok(Err(NoPlace { reason, .. })) => return refused(reason),
                Err(error) => return refused(error.to_string()),
            }
        } else {
            self.reservations.reserve_events(cpu, share)?;
        }
        if let Some(executor) = self.executors.iter().position(|one| one.cpu == cpu) {
            self.send(executor, Control::EventServer { share });
        }
        Ok(())
    }

    /// A [`Poster`] that posts events to a handler, from any thread of this process. `None` if the
    /// handler is closed, a task or a virtual-time handler.
    ///
    /// An event releases nothing. While it waits, the handler goes before handlers of equal rank
    /// that have no event, or a later one. This holds at every choice, among the domains of a
    /// daemon too. Under RMDP and RM it holds only for handlers with
    /// [`activity::Terms::wins_ties`](crate::activity::Terms::wins_ties), which admission takes
    /// into account. Under DWS and DWCS it holds for any handler. Under PS events do not count. The
    /// handler takes its events by [`Batch::take_event`](crate::Batch::take_event).
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use upcall::{Config, Runtime, activity::{ActivityParams, Terms}, clock, time::Span};
    /// let mut runtime = Runtime::start(Config::default())?;
    /// let params = ActivityParams::new(Span::from_millis(33), Span::from_millis(5));
    /// let terms = Terms { wins_ties: true, ..Terms::default() };
    /// let latest = Arc::new(AtomicU64::new(0));
    /// let shown = latest.clone();
    /// let mut held = None; // an event that was taken, but not processed
    /// let player = runtime.handler("player", (params, terms), move |batch| {
    ///     while let Some(frame) = held.take().or_else(|| batch.take_event()) {
    ///         if !batch.proceed() {
    ///             held = Some(frame); // for the next upcall
    ///             break;
    ///         }
    ///         shown.store(frame.rank, Ordering::Relaxed); // show the frame
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

    /// What a virtual-time handler has done. `None` if it is closed, or for another kind of
    /// handler.
    pub fn virtual_statistics(&self, id: HandlerId) -> Option<VirtualStatistics> {
        self.virtual_time.as_ref()?.statistics(id)
    }

    /// Blocks until at least one of `ids` is no longer delivered, and returns those (`rts_sleep`,
    /// rtu-1995 §6 item 5). An empty list means that `deadline` has come; `None` is no limit.
    /// Returns at once if one is inactive already. Allocates.
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
            // Wakes at intervals to take in records.
            let poll_at = clock::now() + LOOK_EVERY;
            let until = deadline.map_or(poll_at, |deadline| deadline.min(poll_at));
            self.inactive_epoch.wait_past(seen, Some(until));
        }
    }

    /// The count of handlers that became inactive. A thread can wait for it without the runtime:
    /// see [`Endings`].
    pub fn endings(&self) -> Endings {
        Endings(self.inactive_epoch.clone())
    }

    /// Whether a handler is delivered: it was run, and was not suspended or closed and did not
    /// finish since.
    pub fn is_active(&self, id: HandlerId) -> bool {
        let Some(activity) = &self.activities[id.0] else {
            return self.virtual_time.as_ref().is_some_and(|known| known.is_active(id));
        };
        let executor = &self.executors[activity.executor];
        executor.link.shared.is_active(activity.id) && executor.runs()
    }

    /// Takes in the records of jobs that ended since the last call, and shows each to `on_job`. For
    /// complete statistics, call it a few times a second. The counters are complete without it.
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
        for activity in self.activities.iter_mut().flatten() {
            let shared = &self.executors[activity.executor].link.shared;
            activity.statistics.lag = shared.lag(activity.id).read();
        }
    }

    /// Takes the records of the core's inputs and commands since the last call, and shows each with
    /// its CPU to `on_record`. The records of one CPU come in their order. Without
    /// [`Config::trace`] there are none. Records that are not taken in time are lost. One record in
    /// their place says how many were lost. Ten calls a second suffice for 300,000 records a second
    /// and CPU.
    pub fn poll_trace(&mut self, mut on_record: impl FnMut(u32, &Record)) {
        for thread in &mut self.executors {
            let Some(records) = &mut thread.link.records else { continue };
            while let Ok(record) = records.pop() {
                on_record(thread.cpu, &record);
            }
        }
    }

    /// The actions of the watchdog against this process since the last call, in order. For example,
    /// a handler kept its CPU while other domains waited. An action is reported a moment after it
    /// was taken. Does not block. Allocates if there are any.
    ///
    /// With [`Config::daemon`] the daemon's watchdog acts. Without it, a thread of this process
    /// does, in mode `upcall` and with the real-time class. It puts the thread of a CPU into the
    /// ordinary class in two cases. An upcall used more CPU time than its PDUs declare, plus the
    /// larger of that and 50 ms. Or the thread did not sleep for longer than 1 s plus the CPU time
    /// of two jobs of each handler. The thread returns to its class when the upcall has ended, or
    /// when it has slept. If the program does not call `offences`, the runtime keeps the first 64.
    pub fn offences(&mut self) -> Vec<Offence> {
        let own = self.watchdog.iter().flat_map(Watchdog::offences);
        let mut all: Vec<Offence> = own.collect();
        all.extend(self.domain.iter_mut().flat_map(Domain::offences));
        all
    }

    /// The CPU of a handler and its number there, which records use. `None` if the handler is
    /// closed; then another handler may get the number.
    pub fn place(&self, id: HandlerId) -> Option<(u32, ActivityId)> {
        let activity = self.activities[id.0].as_ref()?;
        Some((self.executors[activity.executor].cpu, activity.id))
    }

    /// The statistics of a handler as of the last [`Runtime::poll`]. `None` if it is closed.
    pub fn statistics(&self, id: HandlerId) -> Option<&Statistics> {
        self.activities[id.0].as_ref().map(|activity| &activity.statistics)
    }

    /// The parameters that a handler was admitted with. `None` if it is closed.
    pub fn params(&self, id: HandlerId) -> Option<ActivityParams> {
        self.activities[id.0].as_ref().map(|activity| activity.params)
    }

    /// The reservation of a handler. `None` if it is closed, or if admission is a daemon's.
    pub fn reservation(&self, id: HandlerId) -> Option<ReservationId> {
        match self.activities[id.0].as_ref()?.reserved {
            Reserved::Local(id) => Some(id),
            Reserved::Daemon(_) => None,
        }
    }

    fn send(&mut self, executor: usize, control: Control) {
        self.post(executor, control);
        self.executors[executor].link.shared.notifier.notify();
    }

    /// Leaves a control for an executor. The caller notifies the executor later.
    fn post(&mut self, executor: usize, mut control: Control) {
        let link = &mut self.executors[executor].link;
        // The ring is full only if hundreds of controls wait for the executor. Then this thread, of
        // ordinary class, waits.
        while let Err(rtrb::PushError::Full(back)) = link.controls.push(control) {
            control = back;
            link.shared.notifier.notify();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
