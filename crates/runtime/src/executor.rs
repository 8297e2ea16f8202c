//! The loop of one scheduling thread: asks the core what to do, and does it. What
//! it upcalls is a handler, or a task's poll ([`crate::task`]).
//!
//! In [`Mode::Upcall`](crate::Mode) there is one executor a CPU, and it holds
//! all handlers of that CPU. In the two baseline modes there is one executor
//! a handler, so that the same jobs run the ordinary way: what differs between
//! modes is who decides, the core or the kernel, and nothing else.
//!
//! Once started it allocates nothing, takes no lock, and makes a system call
//! only when nothing is ready (to sleep), when a waiter must be told, and,
//! in the baseline modes, to read its own CPU time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rtrb::{Consumer, Producer};
use upcall_core::activity::{ActivityId, ActivityParams, Claim, Terms};
use upcall_core::admission::Share;
use upcall_core::discipline::Discipline;
use upcall_core::record::JobRecord;
use upcall_core::scheduler::{Command, Counters, Input, Outcome};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::{Record, Traced};
use upcall_shm::inbox::{Marks, Taker};
use upcall_shm::user_area::LentMask;
use upcall_sys::futex::WaitSet;
use upcall_sys::memfd::SharedMapping;

use crate::batch::{Authority, Batch, Grant, Use};
use crate::channel::{Desk, Moment, set_executor};
use crate::clock;
use crate::doorbell::Doorbell;
use crate::events::Inboxes;
use crate::gate::Gate;
use crate::interrupt::{Interrupt, InterruptHandler, Interrupts, bit};
use crate::latency::Latency;
use crate::panics;
use crate::stream::{StreamWork, WATCHES_MAX, set_among_domains};
use crate::task::{Next, TaskWork};
use crate::trace::Ring;
use crate::virtual_processor::{Next as NextTurn, VirtualProcessor};

/// A user's code: called once a period, or more often if it must yield.
pub(crate) type Handler = Box<dyn FnMut(&mut Batch<'_>) + Send>;

/// What an activity does when it is upcalled.
pub(crate) enum Work {
    Handler(Handler),
    Stream(Box<StreamWork>),
    Task(TaskWork),
}

/// Most handlers and tasks on one CPU of a runtime.
pub const ACTIVITIES_MAX: u32 = 256;

/// Finished jobs that may wait for the collector; more are counted as lost
/// from the per-job data (never from the counters).
const JOBS_MAX: usize = 16 * 1024;
/// Who finds it full waits.
const CONTROLS_MAX: usize = 512;

/// What a controller asks of an executor.
pub(crate) enum Control {
    /// `order`: its place among the activities of all domains, if there are others.
    Create {
        id: ActivityId,
        params: ActivityParams,
        terms: Terms,
        work: Work,
        order: Option<u32>,
        /// `None`: it takes no events.
        inbox: Option<Taker>,
    },
    Run {
        id: ActivityId,
        at: Instant,
    },
    Suspend {
        id: ActivityId,
    },
    Reweigh {
        id: ActivityId,
        claim: Claim,
    },
    EventServer {
        share: Option<Share>,
    },
    Close {
        id: ActivityId,
    },
    /// Once.
    OnInterrupt {
        handler: InterruptHandler,
    },
    InterruptAt {
        at: Instant,
    },
    /// Of event channels: it is lent to a controller, and given back.
    LendDesk,
    TakeDesk {
        desk: Box<Desk>,
    },
    Quit,
}

/// A finished job, as [`Runtime::poll`](crate::Runtime::poll) shows it: its record, and what was
/// measured beside.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// As the core saw it.
    pub record: JobRecord,
    /// Quanta that took longer than declared.
    pub quantum_overruns: u32,
}

/// What controllers and executor share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) doorbell: Doorbell,
    /// Jobs whose record found the ring full.
    pub(crate) jobs_lost: AtomicU64,
    /// 1 while the activity is delivered or asked to be. Set by the controller
    /// before it sends `Run`, cleared by the executor.
    active: Box<[AtomicU32]>,
    faulted: Box<[AtomicU32]>,
    /// 1 from when the process ends. Set by the controller at the
    /// end of all: numbers are not used again after.
    aborting: Box<[AtomicU32]>,
    /// A bit for each task that was woken since the executor looked.
    woken: [AtomicU64; ACTIVITIES_MAX as usize / 64],
    /// For whom events were posted since.
    pub(crate) marks: Marks,
    /// 1 once anybody can post any.
    expects_events: AtomicU32,
    /// A bit for each user interrupt that was raised since.
    interrupts: AtomicU32,
    /// 1 once there is a stream to watch, or an event channel. Of the executor's thread.
    has_watches: AtomicU32,
    /// Counts ends of activity; a futex for those who wait for them.
    pub(crate) inactive_epoch: Arc<Epoch>,
    /// Where tasks show their masks to other domains, if there are any.
    pub(crate) mask: Option<Arc<LentMask<SharedMapping>>>,
}

/// A counter that can be waited for.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    word: AtomicU32,
    waiters: AtomicU32,
}

impl Epoch {
    pub(crate) fn now(&self) -> u32 {
        // Acquire pairs with the Release in `advance`: who sees the count sees
        // the flags stored before it.
        self.word.load(Ordering::Acquire)
    }

    pub(crate) fn advance(&self) {
        // SeqCst with the one in `wait_past`: either the waiter sees the new
        // count, or it is seen as a waiter here. Without it both could miss.
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            upcall_sys::futex::wake(&self.word, u32::MAX);
        }
    }

    /// Blocks until the count differs from `seen`, or `deadline`.
    pub(crate) fn wait_past(&self, seen: u32, deadline: Option<Instant>) {
        // SeqCst pairs with `advance`, see there.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if self.word.load(Ordering::SeqCst) == seen {
            let _ =
                upcall_sys::futex::wait_until(&self.word, seen, deadline.map(Instant::as_nanos));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    pub(crate) fn new(doorbell: Doorbell, inactive_epoch: Arc<Epoch>) -> Self {
        let flags = || (0..ACTIVITIES_MAX).map(|_| AtomicU32::new(0)).collect();
        Shared {
            doorbell,
            active: flags(),
            faulted: flags(),
            aborting: flags(),
            inactive_epoch,
            ..Shared::default()
        }
    }

    pub(crate) fn is_active(&self, id: ActivityId) -> bool {
        // Acquire pairs with the Release in `set_active`.
        self.active[id.0 as usize].load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_active(&self, id: ActivityId, active: bool) {
        // Release: what the handler wrote before it became inactive is seen by
        // whoever waited for that.
        self.active[id.0 as usize].store(u32::from(active), Ordering::Release);
    }

    /// Whether the activity is in its abort phase.
    pub(crate) fn is_aborting(&self, id: ActivityId) -> bool {
        // Acquire pairs with the Release in `set_aborting`.
        self.aborting[id.0 as usize].load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_aborting(&self, id: ActivityId) {
        // Release: what the program wrote before it aborted is seen by the handler.
        self.aborting[id.0 as usize].store(1, Ordering::Release);
    }

    /// Has the executor look after a task. From any thread; wait-free.
    pub(crate) fn wake(&self, id: ActivityId) {
        if let Some(word) = self.woken.get(id.0 as usize / 64) {
            // Release pairs with the Acquire in `take_woken`: what the task was
            // woken for is seen by its poll. The bell comes after the bit, so who
            // answers it sees the bit (`Doorbell::notify`).
            word.fetch_or(1 << (id.0 % 64), Ordering::Release);
            self.doorbell.notify();
        }
    }

    /// The tasks that were woken, which are then no longer marked.
    pub(crate) fn take_woken(&self) -> impl Iterator<Item = ActivityId> {
        self.woken.iter().zip(0u32..).flat_map(|(word, place)| {
            // Relaxed: only spares the swap; a bit that is set now rings the bell.
            let any = word.load(Ordering::Relaxed) != 0;
            // Acquire pairs with the Release in `wake`.
            let mut bits = if any { word.swap(0, Ordering::Acquire) } else { 0 };
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(ActivityId(place * 64 + bit))
            })
        })
    }

    /// Whether the executor has streams to watch, or event channels. By what it upcalls.
    pub(crate) fn has_watches(&self) -> bool {
        // Relaxed: in the same thread.
        self.has_watches.load(Ordering::Relaxed) != 0
    }

    /// From now on somebody can post events, and the executor is told so: who sleeps without
    /// expecting any would not be woken by them. From any thread; a system call if it sleeps.
    pub(crate) fn expect_events(&self) {
        // Relaxed: seen by whoever has heard the bell.
        self.expects_events.store(1, Ordering::Relaxed);
        self.doorbell.notify();
    }

    /// Whether events may be posted. By the executor; a load.
    #[inline]
    pub(crate) fn expects_events(&self) -> bool {
        // Relaxed: nobody posts before the bell was rung for this, and who has heard that sees it. Who has
        // not does not sleep.
        self.expects_events.load(Ordering::Relaxed) != 0
    }

    /// Requests a user interrupt. From any thread; a system call if the executor sleeps.
    pub(crate) fn interrupt(&self, kind: Interrupt) {
        // Release pairs with the Acquire in `take_interrupts`. The bell comes after it,
        // as in `wake`.
        self.interrupts.fetch_or(bit(kind), Ordering::Release);
        self.doorbell.notify();
    }

    /// The user interrupts that were requested, which then are no longer. A load, if
    /// there is none.
    #[inline]
    pub(crate) fn take_interrupts(&self) -> u32 {
        // Relaxed: only spares the swap; Acquire pairs with the Release in `interrupt`.
        let any = self.interrupts.load(Ordering::Relaxed) != 0;
        if any { self.interrupts.swap(0, Ordering::Acquire) } else { 0 }
    }

    /// A number is used again: what panicked was another.
    pub(crate) fn clear_faulted(&self, id: ActivityId) {
        // Relaxed: see `is_faulted`. The executor learns of the number later, by a ring.
        self.faulted[id.0 as usize].store(0, Ordering::Relaxed);
    }

    /// Whether the handler panicked.
    pub(crate) fn is_faulted(&self, id: ActivityId) -> bool {
        // Relaxed: a report, nothing hangs on it.
        self.faulted[id.0 as usize].load(Ordering::Relaxed) != 0
    }
}

/// Who is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// This domain, or there is no other.
    Own,
    /// Another: this one waits for its bell.
    Elsewhere,
}

/// What controllers had asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obeyed {
    Nothing,
    Something,
    Quit,
}

/// An activity that was closed: its handler, to be dropped outside the
/// executor, and what was counted.
pub(crate) struct Retired {
    pub(crate) id: ActivityId,
    /// Only to be dropped.
    pub(crate) _work: Option<Work>,
    /// The same.
    pub(crate) _inbox: Option<Taker>,
    pub(crate) end: End,
}

/// What is known of an activity at its end.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) counters: Option<Counters>,
    /// What its handler's panic said.
    pub(crate) panic: Option<String>,
}

/// The controller's end of an executor.
pub(crate) struct Link {
    pub(crate) controls: Producer<Control>,
    pub(crate) jobs: Consumer<Job>,
    pub(crate) retired: Consumer<Retired>,
    /// If it is traced.
    pub(crate) records: Option<Consumer<Record>>,
    pub(crate) desks: Consumer<Box<Desk>>,
    pub(crate) shared: Arc<Shared>,
}

/// What is left when an executor has quit.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// By activity number; of those there are.
    pub(crate) ends: Vec<End>,
    pub(crate) switches: u64,
    /// Turns passed on, if it is among other domains.
    pub(crate) handoffs: u64,
    /// How late its thread woke, each time a release found it asleep.
    pub(crate) wakeup: Latency,
    /// Records behind the last one in the ring that it had no room for.
    pub(crate) records_lost: u64,
}

/// See the module's head.
pub(crate) struct Executor {
    scheduler: Traced<Ring>,
    slots: Vec<Slot>,
    controls: Consumer<Control>,
    jobs: Producer<Job>,
    retired: Producer<Retired>,
    desks: Producer<Box<Desk>>,
    shared: Arc<Shared>,
    /// Whether to meter handlers by thread CPU time, because the kernel may
    /// preempt them.
    meter_cpu: bool,
    wakeup: Latency,
    /// Among other domains, if it is.
    virtual_processor: Option<VirtualProcessor>,
    interrupts: Interrupts,
    inboxes: Inboxes,
    /// Only for [`Executor::hear`]: streams that were rung, and when their messages arrive.
    heard: Vec<(ActivityId, Instant)>,
}

#[derive(Default)]
struct Slot {
    work: Option<Work>,
    params: Option<ActivityParams>,
    /// Of the present job.
    quantum_overruns: u32,
    cpu: Span,
    /// Kept from the close until the activity is gone.
    last_counters: Option<Counters>,
    /// What its handler's panic said.
    panic: Option<String>,
}

impl Executor {
    /// An executor and the link to control it. Takes all memory it needs.
    pub(crate) fn new(
        discipline: &Discipline,
        meter_cpu: bool,
        traced: bool,
        inactive_epoch: Arc<Epoch>,
        virtual_processor: Option<VirtualProcessor>,
    ) -> (Self, Link) {
        let (controls_in, controls) = rtrb::RingBuffer::new(CONTROLS_MAX);
        let (jobs, jobs_out) = rtrb::RingBuffer::new(JOBS_MAX);
        let (retired, retired_out) = rtrb::RingBuffer::new(ACTIVITIES_MAX as usize);
        let (desks, desks_out) = rtrb::RingBuffer::new(1);
        let line = virtual_processor.as_ref().map(VirtualProcessor::line);
        let doorbell = line.map(Doorbell::among_domains).unwrap_or_default();
        let mask = virtual_processor.as_ref().map(VirtualProcessor::lent_mask);
        let shared = Arc::new(Shared { mask, ..Shared::new(doorbell, inactive_epoch) });
        let mut scheduler = Traced::new(ACTIVITIES_MAX, discipline);
        let records = traced.then(|| {
            let (ring, records) = Ring::new();
            scheduler.set_sink(ring);
            records
        });
        let mut slots = Vec::new();
        slots.resize_with(ACTIVITIES_MAX as usize, Slot::default);
        let executor = Executor {
            scheduler,
            slots,
            controls,
            jobs,
            retired,
            desks,
            shared: shared.clone(),
            meter_cpu,
            wakeup: Latency::default(),
            interrupts: Interrupts::new(shared.clone(), virtual_processor.as_ref()),
            inboxes: Inboxes::new(discipline, shared.clone()),
            heard: Vec::with_capacity(WATCHES_MAX),
            virtual_processor,
        };
        let link = Link {
            controls: controls_in,
            jobs: jobs_out,
            retired: retired_out,
            records,
            desks: desks_out,
            shared,
        };
        (executor, link)
    }

    /// Runs until told to quit.
    pub(crate) fn run(mut self) -> Outcomes {
        let mut now = clock::now();
        if self.virtual_processor.is_some() {
            set_among_domains();
        }
        set_executor(&self.shared);
        panics::watch_this_thread();
        loop {
            if self.interrupts.watches.any() {
                self.hear(now);
            }
            if self.acknowledge() && self.heed(now) == Obeyed::Quit {
                return self.outcomes(now);
            }
            if self.interrupts.serve(now, Moment::Scheduling) {
                now = clock::now();
            }
            self.take_in_events(now);
            match self.turn(now) {
                Turn::Own => {}
                Turn::Elsewhere => {
                    let rung = self.sleep_until(None);
                    now = clock::now();
                    match if rung { self.heed(now) } else { Obeyed::Something } {
                        Obeyed::Quit => return self.outcomes(now),
                        Obeyed::Something => {}
                        Obeyed::Nothing => {
                            let _ = self
                                .virtual_processor
                                .as_mut()
                                .map(VirtualProcessor::woken_by_turn);
                        }
                    }
                    continue;
                }
            }
            if self.interrupts.deliver(now, self.virtual_processor.as_ref()) {
                now = clock::now();
                self.take_in_events(now);
            }
            match self.next_upcall(now) {
                Some((id, grant)) => now = self.upcall(id, grant),
                None => {
                    let deadline = self.scheduler.next_deadline();
                    let timer = self.interrupts.timer();
                    let until = deadline.map_or(timer, |deadline| deadline.min(timer));
                    let until = (until != Instant::FAR).then_some(until);
                    let rung = self.sleep_until(until);
                    now = clock::now();
                    // Woken before, it was the doorbell.
                    if let Some(due) = deadline.filter(|&due| due <= now) {
                        self.wakeup.observe(now.since(due));
                    }
                    self.tell(now, Input::Tick);
                    if rung && self.heed(now) == Obeyed::Quit {
                        return self.outcomes(now);
                    }
                }
            }
        }
    }

    /// Takes note of its bell: whether it was rung.
    #[inline]
    fn acknowledge(&self) -> bool {
        match &self.virtual_processor {
            Some(virtual_processor) => virtual_processor.wake_word().acknowledge(),
            None => self.shared.doorbell.acknowledge(),
        }
    }

    /// Sleeps until it is rung or `deadline` has come, or less; `true`: it was rung, and
    /// that was taken note of.
    fn sleep_until(&self, deadline: Option<Instant>) -> bool {
        // An event may change what is done now (`crate::events`, 3).
        let may_matter = self.virtual_processor.is_some() || self.inboxes.interrupt;
        if !may_matter || !self.shared.expects_events() {
            return self.sleep(deadline);
        }
        if !self.shared.marks.prepare_wait() {
            return self.acknowledge();
        }
        let rung = self.sleep(deadline);
        self.shared.marks.cancel_wait();
        rung
    }

    fn sleep(&self, deadline: Option<Instant>) -> bool {
        if let Some(desk) = &self.interrupts.desk {
            if desk.is_due(clock::now()) {
                return self.acknowledge();
            }
            return self.sleep_on_all(deadline.into_iter().chain(desk.next_deadline()).min());
        }
        if self.interrupts.watches.any() {
            return self.sleep_on_all(deadline);
        }
        match &self.virtual_processor {
            Some(virtual_processor) => {
                virtual_processor.sleep_until(deadline.map(Instant::as_nanos))
            }
            None => {
                self.shared.doorbell.sleep_until(deadline);
                false
            }
        }
    }

    /// As [`Self::sleep_until`], or until a stream's level is reached or an event is told.
    fn sleep_on_all(&self, deadline: Option<Instant>) -> bool {
        let mut set = WaitSet::new();
        let watches = &self.interrupts.watches;
        let desk = self.interrupts.desk.as_deref();
        let is_quiet =
            watches.prepare_wait(&mut set) & desk.is_none_or(|desk| desk.prepare_wait(&mut set));
        let rung = match (&self.virtual_processor, is_quiet) {
            (_, false) => false,
            (Some(virtual_processor), true) => {
                virtual_processor.sleep_among(&mut set, deadline.map(Instant::as_nanos))
            }
            (None, true) => {
                self.shared.doorbell.sleep_among(&mut set, deadline);
                false
            }
        };
        watches.cancel_wait();
        if let Some(desk) = desk {
            desk.cancel_wait();
        }
        rung
    }

    /// Makes eligible what reads a stream whose level is reached by now.
    fn hear(&mut self, now: Instant) {
        let mut heard = std::mem::take(&mut self.heard);
        self.interrupts.watches.hear(now, |id, at| heard.push((id, at)));
        for (id, at) in heard.drain(..) {
            self.tell(now, Input::Message { id, critical: at, from: at });
        }
        self.heard = heard;
    }

    /// Tells the core of the events that were posted since.
    #[inline]
    fn take_in_events(&mut self, now: Instant) {
        let Executor { inboxes, scheduler, .. } = self;
        inboxes.take_in(|id, rank| post(scheduler, now, id, rank));
    }

    /// Whether this domain is to run now. If another is, what this one has is shown,
    /// and the turn passed on if it was here.
    fn turn(&mut self, now: Instant) -> Turn {
        let Some(virtual_processor) = self
            .virtual_processor
            .as_mut()
            .filter(|virtual_processor| !virtual_processor.is_alone())
        else {
            return Turn::Own;
        };
        let has_turn = virtual_processor.has_turn();
        // What came due by the end of an upcall is known from its return.
        if has_turn && self.scheduler.clock() < now {
            self.tell(now, Input::Tick);
        }
        let Some(virtual_processor) = &mut self.virtual_processor else { return Turn::Own };
        match has_turn.then(|| virtual_processor.next(&self.scheduler, now)) {
            Some(NextTurn::Own) => return Turn::Own,
            Some(NextTurn::Other(domain)) => {
                virtual_processor.publish(&self.scheduler);
                virtual_processor.pass(domain);
            }
            None => virtual_processor.publish(&self.scheduler),
        }
        Turn::Elsewhere
    }

    /// It was rung: obeys, unless it was for the turn alone.
    #[inline]
    fn heed(&mut self, now: Instant) -> Obeyed {
        match &self.virtual_processor {
            Some(virtual_processor) if !virtual_processor.take_asked() => Obeyed::Nothing,
            _ => self.obey(now),
        }
    }

    /// Carries out what controllers asked.
    fn obey(&mut self, now: Instant) -> Obeyed {
        let mut obeyed = Obeyed::Nothing;
        // First of all: what was left before the old bell was rung is found below, and
        // what comes now rings the new one.
        if let Some(virtual_processor) = self.virtual_processor.as_mut()
            && virtual_processor.move_on()
        {
            self.interrupts.moved_to(virtual_processor);
            obeyed = Obeyed::Something;
        }
        if self.virtual_processor.as_mut().is_some_and(VirtualProcessor::take_in_peers) {
            obeyed = Obeyed::Something;
        }
        while let Ok(control) = self.controls.pop() {
            obeyed = Obeyed::Something;
            match control {
                Control::Create { id, params, terms, work, order, inbox } => {
                    if let Some(virtual_processor) = &mut self.virtual_processor {
                        virtual_processor.set_order(id, order);
                    }
                    self.watch(id, &work);
                    let slot = &mut self.slots[id.0 as usize];
                    *slot = Slot { work: Some(work), params: Some(params), ..Slot::default() };
                    self.tell(now, Input::Create { id, params, terms });
                    self.inboxes.set(id, inbox);
                }
                Control::Run { id, at } => self.start(now, id, at),
                Control::Suspend { id } => self.tell(now, Input::Suspend { id }),
                Control::Reweigh { id, claim } => self.tell(now, Input::Reweigh { id, claim }),
                Control::EventServer { share } => self.tell(now, Input::EventServer { share }),
                Control::Close { id } => {
                    if let Some(Work::Task(task)) = &self.slots[id.0 as usize].work {
                        task.close();
                    }
                    self.slots[id.0 as usize].last_counters = self.scheduler.counters_at(now, id);
                    self.tell(now, Input::Close { id });
                }
                Control::OnInterrupt { handler } => self.interrupts.set_handler(handler),
                Control::InterruptAt { at } => self.interrupts.set_timer(at),
                Control::LendDesk => {
                    if let Some(desk) = self.interrupts.desk.take() {
                        // There is room: it is the only one.
                        let _ = self.desks.push(desk);
                    }
                }
                Control::TakeDesk { desk } => {
                    self.interrupts.desk = Some(desk);
                    // Relaxed: see `has_watches`.
                    self.shared.has_watches.store(1, Ordering::Relaxed);
                }
                Control::Quit => {
                    if let Some(virtual_processor) = &mut self.virtual_processor {
                        virtual_processor.leave(&self.scheduler);
                    }
                    return Obeyed::Quit;
                }
            }
        }
        if let Some(desk) = &mut self.interrupts.desk {
            desk.called();
            obeyed = Obeyed::Something;
        }
        let shared = self.shared.clone();
        for id in shared.take_woken() {
            obeyed = Obeyed::Something;
            let aborting = shared.is_aborting(id);
            match &mut self.slots[id.0 as usize].work {
                Some(Work::Task(task)) => {
                    let next = task.woken(now, aborting);
                    self.tell_next(now, id, next);
                }
                // It is to know that the process ends, and not to wait for its stream.
                Some(Work::Stream(_)) if aborting => {
                    self.interrupts.watches.set_open(id, false);
                    self.tell(now, Input::Message { id, critical: now, from: now });
                }
                _ => {}
            }
        }
        obeyed
    }

    /// Knows the bell of a stream from now on.
    fn watch(&mut self, id: ActivityId, work: &Work) {
        let Work::Stream(stream) = work else { return };
        // It was attached before; a peer that spoils the header since has no wakes.
        if let Ok((watched, end)) = stream.watched() {
            self.interrupts.watches.add(id, watched, end);
            // Relaxed: see `has_watches`.
            self.shared.has_watches.store(1, Ordering::Relaxed);
        }
    }

    /// Waits for a stream's level, or tells the core that it is reached or the stream closed.
    fn wait_for_level(&mut self, now: Instant, id: ActivityId) {
        let Some(Work::Stream(stream)) = &mut self.slots[id.0 as usize].work else { return };
        let waits = stream.waits();
        let watches = &mut self.interrupts.watches;
        watches.set_open(id, waits);
        if !waits {
            let at = watches.arrival(id, now);
            self.tell(now, Input::Message { id, critical: at, from: at });
        }
    }

    /// Delivers an activity from `at` on. A task that has ended stays so, and what reads a stream
    /// that has.
    fn start(&mut self, now: Instant, id: ActivityId, at: Instant) {
        if let Some(Work::Stream(stream)) = &self.slots[id.0 as usize].work {
            if stream.has_ended() {
                self.notice(Command::Inactive { id });
                return;
            }
            let is_new = !self.scheduler.is_active(id);
            // Released by its stream and by nothing else.
            self.tell(now, Input::Run { id, at: Instant::FAR });
            if is_new {
                let offset = self.slots[id.0 as usize].params.map_or(Span::ZERO, |of| of.offset);
                self.interrupts.watches.set_not_before(id, at + offset);
                self.wait_for_level(now, id);
            }
            return;
        }
        if let Some(Work::Task(task)) = &mut self.slots[id.0 as usize].work {
            if task.has_ended() {
                self.notice(Command::Inactive { id });
                return;
            }
            if !self.scheduler.is_active(id) {
                task.set();
            }
        }
        self.tell(now, Input::Run { id, at });
    }

    /// Tells the core of a task's next message, if it is known.
    fn tell_next(&mut self, now: Instant, id: ActivityId, next: Option<Next>) {
        if let Some(Next { critical, from }) = next {
            self.tell(now, Input::Message { id, critical, from });
        }
    }

    /// Hands an input to the core and carries out what follows, but for an
    /// upcall. Inputs come from the controller, which keeps the core's rules; one
    /// that does not fit is a bug, and changes nothing.
    fn tell(&mut self, now: Instant, input: Input) {
        let told = self.scheduler.handle(now, input);
        debug_assert!(told.is_ok(), "{told:?}");
        while let Some(command) = self.scheduler.poll_notice() {
            self.notice(command);
        }
    }

    /// The upcall that is due, if one is.
    fn next_upcall(&mut self, now: Instant) -> Option<(ActivityId, Grant)> {
        let (id, pdus_max, resumed, check_at) = loop {
            match self.scheduler.poll_command(now)? {
                Command::Upcall { id, pdus_max, resumed, check_at } => {
                    break (id, pdus_max, resumed, check_at);
                }
                // A job that the policy will not run any more (DWCS): seen when it chooses.
                command => self.notice(command),
            }
        };
        let params = self.slots[id.0 as usize].params?;
        let grant = Grant {
            pdus_max,
            quantum: params.quantum,
            quantum_cost: params.quantum_cost(),
            check_at,
            start: now,
            resumed,
            aborting: self.shared.is_aborting(id),
        };
        Some((id, grant))
    }

    fn notice(&mut self, command: Command) {
        match command {
            Command::JobDone(record) => self.job_done(record),
            Command::Inactive { id } => {
                self.shared.set_active(id, false);
                self.shared.inactive_epoch.advance();
            }
            Command::Closed { id } => {
                if let Some(virtual_processor) = &mut self.virtual_processor {
                    virtual_processor.set_order(id, None);
                }
                self.interrupts.watches.remove(id);
                let Slot { work, last_counters, panic, .. } =
                    std::mem::take(&mut self.slots[id.0 as usize]);
                // There is room: the ring holds one of each activity, and a
                // number is used again only after its entry was taken out.
                let _inbox = self.inboxes.set(id, None);
                let end = End { counters: last_counters, panic };
                let pushed = self.retired.push(Retired { id, _work: work, _inbox, end });
                debug_assert!(pushed.is_ok());
            }
            // Upcalls are begun by `run`, answers to `Boundary` taken by the batch.
            Command::Upcall { .. } | Command::Proceed { .. } | Command::Yield => {
                debug_assert!(false, "{command:?} out of place");
            }
        }
    }

    fn job_done(&mut self, mut record: JobRecord) {
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.job_done(&record);
        }
        let slot = &mut self.slots[record.id.0 as usize];
        if self.meter_cpu {
            record.run = slot.cpu;
        }
        let job = Job { record, quantum_overruns: slot.quantum_overruns };
        slot.quantum_overruns = 0;
        slot.cpu = Span::ZERO;
        if self.jobs.push(job).is_err() {
            // Relaxed: a statistic.
            self.shared.jobs_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Upcalls a handler and tells the core how it went; returns the time.
    fn upcall(&mut self, id: ActivityId, mut grant: Grant) -> Instant {
        if let Some(virtual_processor) = &mut self.virtual_processor {
            grant.check_at =
                grant.check_at.min(virtual_processor.upcall(&self.scheduler, grant.start));
        }
        let slot = &mut self.slots[id.0 as usize];
        let cpu_before = self.meter_cpu.then(upcall_sys::clock::thread_cpu_ns);
        let (doorbell, virtual_processor) =
            (&self.shared.doorbell, self.virtual_processor.as_mut());
        let interrupts = Some(&mut self.interrupts);
        let inboxes = Some(&mut self.inboxes);
        let mut gate = Gate {
            scheduler: &mut self.scheduler,
            doorbell,
            virtual_processor,
            interrupts,
            inboxes,
        };
        let (mut used, panicked, next) = match slot.work.as_mut() {
            Some(Work::Handler(handler)) => {
                let batch = Batch::new(Authority::Gate(gate), grant);
                let (used, panicked) = upcall_handler(handler, batch);
                (used, panicked, None)
            }
            Some(Work::Stream(stream)) => {
                let (used, panicked) = stream.upcall(Batch::new(Authority::Gate(gate), grant));
                (used, panicked, None)
            }
            Some(Work::Task(task)) => {
                let turn = task.upcall(&mut gate, &grant);
                (turn.used, turn.panicked, turn.next)
            }
            None => {
                let end = clock::now();
                (Use { pdus: 0, quantum_overruns: 0, outcome: Outcome::Finished, end }, true, None)
            }
        };
        if let Some(before) = cpu_before {
            slot.cpu += Span::from_nanos(upcall_sys::clock::thread_cpu_ns() - before);
        }
        if !self.meter_cpu {
            slot.quantum_overruns += used.quantum_overruns;
        }
        if panicked {
            self.slots[id.0 as usize].panic = panics::take_last();
            // Relaxed: see `is_faulted`.
            self.shared.faulted[id.0 as usize].store(1, Ordering::Relaxed);
            used.outcome = Outcome::Finished;
        }
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.returned(used.end);
        }
        self.tell(used.end, Input::Returned { pdus: used.pdus, outcome: used.outcome });
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.count(self.scheduler.switches());
        }
        self.tell_next(used.end, id, next);
        if used.outcome == Outcome::Done {
            self.wait_for_level(used.end, id);
        }
        used.end
    }

    fn outcomes(&mut self, now: Instant) -> Outcomes {
        let ends = (0..ACTIVITIES_MAX).zip(&mut self.slots).map(|(number, slot)| End {
            counters: self.scheduler.counters_at(now, ActivityId(number)),
            panic: slot.panic.take(),
        });
        Outcomes {
            ends: ends.collect(),
            switches: self.scheduler.switches(),
            handoffs: self.virtual_processor.as_ref().map_or(0, VirtualProcessor::handoffs),
            wakeup: self.wakeup.clone(),
            records_lost: self.scheduler.sink_mut().map_or(0, |ring| ring.lost()),
        }
    }
}

/// Tells the core of an event. There is room: an inbox lets in no more.
pub(crate) fn post(scheduler: &mut Traced<Ring>, now: Instant, id: ActivityId, rank: u64) {
    let told = scheduler.handle(now, Input::Posted { id, rank });
    debug_assert!(told.is_ok(), "{told:?}");
}

/// Calls the handler; what it used, and whether it panicked.
pub(crate) fn upcall_handler(handler: &mut Handler, mut batch: Batch<'_>) -> (Use, bool) {
    // A panic is the handler's fault and ends only the handler: nothing of ours is
    // borrowed inside but the batch, whose counts stay valid.
    let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler(&mut batch)));
    (batch.close(clock::now()), called.is_err())
}
