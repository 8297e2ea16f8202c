//! The loop of one scheduling thread: asks the core what to do, and does it.
//!
//! An executor upcalls handlers and polls tasks ([`crate::work`]). In [`Mode::Upcall`](crate::Mode)
//! there is one executor for each CPU, and it holds all handlers of that CPU. In the two baseline
//! modes there is one executor for each handler, so that the same jobs run the ordinary way. The
//! modes differ only in what decides: the core or the kernel.
//!
//! Each round of the loop does these steps:
//!
//! 1. It takes in what other threads left for it: data in streams, controls, events of channels,
//!    posted events (`sources`, `control`).
//! 2. Under a daemon it finds out which domain has the best rank. If that is a peer, the executor
//!    passes the turn on and sleeps ([`crate::domain::virtual_processor`]).
//! 3. It delivers user interrupts ([`crate::preemption::interrupts`]).
//! 4. It upcalls the work that the core chose, or sleeps until the next release. It also sleeps if
//!    all ready work is beyond its budget and has used its part of the idle time (`surplus`). Under
//!    a daemon it has no turn then (2).
//!
//! Once started, the executor allocates nothing and takes no lock. It makes a system call only to
//! sleep when nothing is ready, to wake a thread that waits, and, in the baseline modes, to read
//! its own CPU time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use upcall_core::activity::{ActivityId, ActivityParams};
use upcall_core::admission::Share;
use upcall_core::discipline::Discipline;
use upcall_core::record::JobRecord;
use upcall_core::scheduler::{Command, Counters, Input, Outcome};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Traced;
use upcall_shm::DomainId;

use super::credit::{Credit, Meter};
use super::link::{End, Link, Retired, Rings, Work, link};
use crate::channel::{DispatchPoint, set_executor};
use crate::clock;
use crate::domain::virtual_processor::{Next, VirtualProcessor};
use crate::events::Inboxes;
use crate::latency::Latency;
use crate::mailbox::{ACTIVITIES_MAX, Epoch, Job, Shared};
use crate::notify::Notifier;
use crate::panics;
use crate::preemption::PreemptionPoint;
use crate::preemption::interrupts::Interrupts;
use crate::stream::{WATCHES_MAX, set_among_domains};
use crate::trace::Ring;
use crate::work::batch::{Authority, Batch, Early, Grant, Use};
use crate::work::handler;
use crate::work::task::NextMessage;

/// The results of an executor that has quit.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// By activity number, for the activities that exist.
    pub(crate) ends: Vec<End>,
    pub(crate) switches: u64,
    /// How often the turn was passed on. 0 without a daemon.
    pub(crate) handoffs: u64,
    /// How late the thread woke, each time a release found it asleep.
    pub(crate) wakeup: Latency,
    /// Records that were lost after the last one in the ring.
    pub(crate) records_lost: u64,
}

/// See the module's head.
pub(crate) struct Executor {
    pub(super) scheduler: Traced<Ring>,
    pub(super) slots: Vec<Slot>,
    pub(super) rings: Rings,
    pub(super) shared: Arc<Shared>,
    /// Whether to meter handlers by thread CPU time, because the kernel may preempt them.
    meter_cpu: bool,
    /// The time of a hand-off.
    switch_cost: Span,
    /// Whether to note the lags of the activities: the policy has lags, and it decides.
    notes_lag: bool,
    wakeup: Latency,
    /// `Some` under a daemon.
    pub(super) virtual_processor: Option<VirtualProcessor>,
    /// Under a daemon: the policy drops jobs that are late, so work that was shown may be gone.
    drops_shown_work: bool,
    /// Otherwise the executor meters what all jobs of an activity use together (PS, DWCS).
    pub(super) core_keeps_budgets: bool,
    pub(super) interrupts: Interrupts,
    pub(super) inboxes: Inboxes,
    /// Scratch of [`Executor::poll_streams`]: streams whose level is reached, and when their
    /// messages arrive.
    pub(super) reached: Vec<(ActivityId, Instant)>,
    /// `Some` in the real-time class: how much work beyond its budget may run.
    pub(super) credit: Option<Credit>,
    /// The share of the event server, in millionths of the CPU.
    pub(super) event_share_ppm: u64,
}

/// What the executor knows of one activity.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) work: Option<Work>,
    pub(super) params: Option<ActivityParams>,
    /// Quanta of the present job that took longer than declared.
    quantum_overruns: u32,
    /// CPU time of the present job.
    cpu: Span,
    /// The counts of the last record.
    counted: Counted,
    /// The counters at the close, kept until the activity is retired.
    pub(super) last_counters: Option<Counters>,
    /// The message of its handler's panic.
    panic: Option<String>,
    /// Used if the core keeps no budget for the activity.
    pub(super) meter: Meter,
}

/// Counts of missed jobs at a record of an activity.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// The core's counts.
    misses: u64,
    skipped: u64,
    /// The records of missed jobs so far.
    recorded: u64,
    /// Missed jobs that have no record, or a record that comes later.
    unrecorded: u64,
}

impl Counted {
    /// The counts at the next record, by the core's `counters`.
    fn after(self, record: &JobRecord, counters: Option<Counters>) -> Self {
        let recorded = self.recorded + u64::from(record.missed());
        let misses = counters.map_or(recorded, |of| of.misses).max(self.misses);
        let skipped = counters.map_or(0, |of| of.skipped).max(self.skipped);
        Counted { misses, skipped, recorded, unrecorded: misses.saturating_sub(recorded) }
    }
}

impl Slot {
    pub(super) fn new(work: Work, params: ActivityParams) -> Self {
        Slot { work: Some(work), params: Some(params), ..Slot::default() }
    }
}

/// The domain that is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// This domain, or there is no other.
    Own,
    /// A peer domain: this one waits for a notification.
    Peer,
}

/// Whether controllers had asked for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    Nothing,
    Something,
    Quit,
}

impl Executor {
    /// Creates an executor and the link that controls it. Allocates all memory it needs.
    pub(crate) fn new(
        discipline: &Discipline,
        (meter_cpu, switch_cost): (bool, Span),
        traced: bool,
        inactive_epoch: Arc<Epoch>,
        virtual_processor: Option<VirtualProcessor>,
    ) -> (Self, Link) {
        let handle = virtual_processor.as_ref().map(VirtualProcessor::wake_handle);
        let notifier = handle.map(Notifier::shared).unwrap_or_default();
        let mask = virtual_processor.as_ref().map(VirtualProcessor::lent_mask);
        let shared = Arc::new(Shared::new(notifier, inactive_epoch).with_mask(mask));
        let mut scheduler = Traced::new(ACTIVITIES_MAX, discipline);
        let records = traced.then(|| {
            let (ring, records) = Ring::new();
            scheduler.set_sink(ring);
            records
        });
        let mut slots = Vec::new();
        slots.resize_with(ACTIVITIES_MAX as usize, Slot::default);
        let (rings, link) = link(shared.clone(), records);
        // Accounts leave ordinary programs their part by themselves.
        let is_limited =
            virtual_processor.as_ref().is_some_and(|of| of.is_real_time() && !of.has_accounts());
        let executor = Executor {
            scheduler,
            slots,
            rings,
            shared: shared.clone(),
            meter_cpu,
            switch_cost,
            notes_lag: discipline.has_lag() && !meter_cpu,
            wakeup: Latency::default(),
            interrupts: Interrupts::new(shared.clone(), virtual_processor.as_ref()),
            inboxes: Inboxes::new(discipline, shared),
            reached: Vec::with_capacity(WATCHES_MAX),
            drops_shown_work: discipline.drops_late_jobs() && virtual_processor.is_some(),
            core_keeps_budgets: discipline.keeps_budgets(),
            virtual_processor,
            credit: is_limited.then(|| Credit::of_time(clock::now())),
            event_share_ppm: 0,
        };
        (executor, link)
    }

    /// The thread has the real-time class and no daemon watches it: work beyond its budget leaves
    /// time to ordinary programs from now on.
    pub(crate) fn limit_surplus(&mut self) {
        self.credit = Some(Credit::of_sleeps());
    }

    /// Runs until a controller sends `Quit`.
    pub(crate) fn run(mut self) -> Outcomes {
        let mut now = clock::now();
        self.handle_input(now, Input::SwitchCost { cost: self.switch_cost });
        if self.drops_shown_work {
            // The core shows no job that no longer fits, and relies on no activity of others.
            self.handle_input(now, Input::DomainShare { share: Some(Share::WHOLE) });
        }
        if self.virtual_processor.is_some() {
            set_among_domains();
        }
        set_executor(&self.shared);
        let shared = self.shared.clone();
        let _attached = shared.pulse.attach_thread();
        panics::watch_this_thread();
        loop {
            if self.interrupts.watches.any() {
                self.poll_streams(now);
            }
            if self.acknowledge() && self.poll_controls(now) == Drained::Quit {
                return self.outcomes(now);
            }
            if self.interrupts.serve(now, DispatchPoint::Scheduling) {
                now = clock::now();
            }
            self.poll_events(now);
            if self.turn(now) == Turn::Peer {
                let (woken, drained) = self.await_turn();
                now = woken;
                if drained == Drained::Quit {
                    return self.outcomes(now);
                }
                continue;
            }
            if self.interrupts.deliver(now, self.virtual_processor.as_ref()) {
                now = clock::now();
                self.poll_events(now);
            }
            // Under a daemon such work has no turn (`turn`).
            let has_turns = self.virtual_processor.is_some();
            let waits_until = if has_turns { None } else { self.surplus_waits(now) };
            let next = if waits_until.is_some() { None } else { self.next_upcall(now) };
            match next {
                Some((id, grant)) => now = self.upcall(id, grant),
                // The job for which this domain has the turn was dropped: the domains are compared
                // again, and the turn is passed on.
                None if self.drops_shown_work && self.takes_turns() => {}
                None => {
                    // `Instant::ZERO`: an activity is ready, so the CPU does not idle.
                    if self.scheduler.next_deadline() != Some(Instant::ZERO) {
                        self.note_idle(now);
                    }
                    let (woken, drained) = self.await_release(waits_until);
                    if let Some(credit) = &mut self.credit {
                        credit.slept(woken.since(now));
                    }
                    now = woken;
                    if drained == Drained::Quit {
                        return self.outcomes(now);
                    }
                }
            }
        }
    }

    /// Sleeps until this domain has the turn, or until a controller asks for something. Returns the
    /// time, and what controllers asked.
    #[inline]
    fn await_turn(&mut self) -> (Instant, Drained) {
        let notified = self.sleep_until(None);
        let now = clock::now();
        let drained = if notified { self.poll_controls(now) } else { Drained::Something };
        if drained == Drained::Nothing
            && !self.drops_shown_work
            && let Some(virtual_processor) = &mut self.virtual_processor
        {
            virtual_processor.woken_by_turn();
        }
        (now, drained)
    }

    /// Sleeps until the next release or interrupt of the timer, or until a notification. If work
    /// beyond its budget waits, sleeps until `waits_until` at most. Returns the time, and what
    /// controllers asked.
    #[inline]
    fn await_release(&mut self, waits_until: Option<Instant>) -> (Instant, Drained) {
        let deadline = match waits_until {
            None => self.scheduler.next_deadline(),
            Some(_) => Some(self.scheduler.next_change()),
        };
        let timer = self.interrupts.timer().min(waits_until.unwrap_or(Instant::FAR));
        let until = deadline.map_or(timer, |deadline| deadline.min(timer));
        let until = (until != Instant::FAR).then_some(until);
        let notified = self.sleep_until(until);
        let now = clock::now();
        // If the thread woke before the release, a notification woke it.
        if let Some(due) = deadline.filter(|&due| due <= now) {
            self.wakeup.observe(now.since(due));
        }
        self.handle_input(now, Input::Tick);
        (now, if notified { self.poll_controls(now) } else { Drained::Nothing })
    }

    /// Whether the domain runs in turns with others.
    fn takes_turns(&self) -> bool {
        self.virtual_processor.as_ref().is_some_and(|of| !of.is_alone())
    }

    /// PS: tells the scheduler which parts of its groups the domain has, if that has changed.
    fn take_group_parts(&mut self, now: Instant) {
        while let Some((group, part)) =
            self.virtual_processor.as_mut().and_then(VirtualProcessor::take_group_part)
        {
            self.handle_input(now, Input::GroupPart { group, part });
        }
    }

    /// Whether this domain is to run now. If a peer is to run, the executor publishes what this
    /// domain has to run. It passes the turn on if this domain holds it.
    fn turn(&mut self, now: Instant) -> Turn {
        let Some(virtual_processor) = self
            .virtual_processor
            .as_mut()
            .filter(|virtual_processor| !virtual_processor.is_alone())
        else {
            return Turn::Own;
        };
        let outside_wakes = self.interrupts.watches.any() || self.interrupts.dispatcher.is_some();
        virtual_processor.set_outside_wakes(outside_wakes);
        if let Some(share) = virtual_processor.take_share() {
            self.handle_input(now, Input::DomainShare { share: Some(share) });
        }
        self.take_group_parts(now);
        let Some(virtual_processor) = &mut self.virtual_processor else { return Turn::Own };
        let has_turn = virtual_processor.has_turn();
        let was_passed_over = virtual_processor.take_passed_over();
        // The CPU idled while this domain slept. The core learns it before what was released since,
        // and with the present time: no window begins before the domain shows its work by it.
        if self.scheduler.awaits_idle() {
            let idled_at = virtual_processor.idled_at();
            if self.scheduler.clock() < idled_at && idled_at <= now {
                self.note_idle(now);
            }
        }
        // The return of an upcall already told the core what was due by its end.
        if has_turn && self.scheduler.clock() < now {
            self.handle_input(now, Input::Tick);
        }
        if was_passed_over {
            self.handle_input(now, Input::PassedOver);
        }
        let surplus_at = self.surplus_waits(now).max(self.unreserved_waits(now));
        let forgives_debts = self.forgives_debts();
        let Some(virtual_processor) = &mut self.virtual_processor else { return Turn::Own };
        virtual_processor.set_surplus(surplus_at, forgives_debts);
        let next = has_turn.then(|| virtual_processor.next(&self.scheduler, now));
        let to = match next {
            Some(Next::Own) => return Turn::Own,
            Some(Next::Other(domain)) => Some(domain),
            Some(Next::Nobody) => Some(DomainId::DAEMON),
            None => None,
        };
        if next == Some(Next::Nobody) {
            self.note_idle(now);
        }
        let Some(virtual_processor) = &mut self.virtual_processor else { return Turn::Own };
        virtual_processor.publish(&self.scheduler);
        if let Some(domain) = to {
            virtual_processor.pass(domain);
        }
        Turn::Peer
    }

    /// The CPU has nothing to run. Without credit for that, debts remain.
    #[inline]
    fn note_idle(&mut self, now: Instant) {
        if self.scheduler.awaits_idle() && self.forgives_debts() {
            self.handle_input(now, Input::Idle);
        }
    }

    /// Hands the core a task's next message, if it is known.
    pub(super) fn handle_message(
        &mut self,
        now: Instant,
        id: ActivityId,
        next: Option<NextMessage>,
    ) {
        if let Some(NextMessage { critical, from }) = next {
            self.handle_input(now, Input::Message { id, critical, from });
        }
    }

    /// Hands the core what a handler said of the messages after its job. The core counts only
    /// messages that it does not know: those beyond the jobs that have not ended.
    fn tell_early(&mut self, now: Instant, id: ActivityId, Early { waiting, arrival }: Early) {
        if let Some(critical) = arrival {
            self.handle_input(now, Input::Advance { id, critical });
        }
        if waiting > 0 {
            let known = u32::try_from(self.scheduler.unfinished(id)).unwrap_or(u32::MAX);
            let messages = waiting.saturating_sub(known);
            self.handle_input(now, Input::Arrived { id, messages });
        }
    }

    /// Hands an input to the core and carries out the core's commands, upcalls excepted. Inputs
    /// come from the controller, which keeps the core's rules. An input that the core refuses is a
    /// bug, and changes nothing.
    pub(super) fn handle_input(&mut self, now: Instant, input: Input) {
        let handled = self.scheduler.handle(now, input);
        debug_assert!(handled.is_ok(), "{handled:?}");
        while let Some(command) = self.scheduler.poll_notice() {
            self.carry_out(command);
        }
    }

    /// The upcall that is due, if one is.
    fn next_upcall(&mut self, now: Instant) -> Option<(ActivityId, Grant)> {
        let (id, pdus_max, resumed, check_at) = loop {
            match self.scheduler.poll_command(now)? {
                Command::Upcall { id, pdus_max, resumed, check_at } => {
                    break (id, pdus_max, resumed, check_at);
                }
                // While DWCS chooses, it may give up a job: the command reports the job's end.
                command => self.carry_out(command),
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
            jobs_skipped: self.scheduler.jobs_skipped(),
            aborting: self.shared.is_aborting(id),
        };
        Some((id, grant))
    }

    /// Carries out a command of the core that is not an upcall.
    pub(super) fn carry_out(&mut self, command: Command) {
        match command {
            Command::JobDone(record) => self.job_done(record),
            Command::Inactive { id } => {
                self.shared.set_active(id, false);
                self.shared.inactive_epoch.advance();
            }
            Command::Closed { id } => self.retire(id),
            // `run` begins the upcalls; the preemption point takes the replies to `Boundary`.
            Command::Upcall { .. } | Command::Proceed { .. } | Command::Yield => {
                debug_assert!(false, "{command:?} out of place");
            }
        }
    }

    /// Hands a closed activity back to the controller.
    fn retire(&mut self, id: ActivityId) {
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.set_order(id, None);
        }
        self.interrupts.watches.remove(id);
        let Slot { work, last_counters, panic, .. } =
            std::mem::take(&mut self.slots[id.0 as usize]);
        self.publish_compute();
        let _inbox = self.inboxes.set(id, None);
        let end = End { counters: last_counters, panic };
        // The ring has room for one entry of each activity, and the controller uses a number again
        // only after it took the entry out.
        let pushed = self.rings.retired.push(Retired { id, _work: work, _inbox, end });
        debug_assert!(pushed.is_ok());
    }

    /// Shows the watchdog the time of one job of each activity.
    pub(super) fn publish_compute(&mut self) {
        let params = self.slots.iter().filter_map(|slot| slot.params);
        let computes = params.map(|params| params.compute());
        let compute = computes.fold(Span::ZERO, |sum, compute| sum + compute);
        self.shared.pulse.set_compute(compute);
        self.update_reservation(compute);
    }

    fn job_done(&mut self, mut record: JobRecord) {
        let slot = &mut self.slots[record.id.0 as usize];
        if self.meter_cpu {
            record.run = slot.cpu;
        }
        let counted = slot.counted.after(&record, self.scheduler.counters(record.id));
        let job = Job {
            record,
            quantum_overruns: slot.quantum_overruns,
            ended: (1 + counted.unrecorded).saturating_sub(slot.counted.unrecorded),
            missed: counted.misses - slot.counted.misses,
            skipped: counted.skipped - slot.counted.skipped,
        };
        slot.counted = counted;
        slot.quantum_overruns = 0;
        slot.cpu = Span::ZERO;
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.job_done(&job);
        }
        if self.rings.jobs.push(job).is_err() {
            // Relaxed: a statistic.
            self.shared.jobs_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Upcalls a handler or task and hands the core the result. Returns the time.
    fn upcall(&mut self, id: ActivityId, mut grant: Grant) -> Instant {
        if let Some(virtual_processor) = &mut self.virtual_processor {
            grant.check_at =
                grant.check_at.min(virtual_processor.upcall(&self.scheduler, grant.start));
        }
        let cost = self.slots[id.0 as usize].params.map_or(Span::ZERO, |params| params.pdu_cost);
        self.shared.pulse.begin(cost.saturating_mul(u64::from(grant.pdus_max)));
        let cpu_before = self.meter_cpu.then(upcall_sys::clock::thread_cpu_ns);
        self.note_lag(grant.start, id);
        let surplus = self.surplus(id, grant.start);
        grant.check_at = grant.check_at.min(surplus.return_at);
        let (mut used, panicked, next) = self.call(id, &grant, surplus.return_at);
        self.shared.pulse.end();
        self.charge_surplus(id, (grant.start, surplus.from), used.end);
        let slot = &mut self.slots[id.0 as usize];
        if let Some(before) = cpu_before {
            slot.cpu += Span::from_nanos(upcall_sys::clock::thread_cpu_ns() - before);
        }
        if !self.meter_cpu {
            slot.quantum_overruns += used.quantum_overruns;
        }
        if panicked {
            slot.panic = panics::take_last();
            self.shared.set_faulted(id);
            used.outcome = Outcome::Finished;
        }
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.returned(used.end);
            if let Some(length) = virtual_processor.take_interruption() {
                self.handle_input(used.end, Input::Interrupted { length });
            }
        }
        self.handle_input(used.end, Input::Returned { pdus: used.pdus, outcome: used.outcome });
        if let Some(virtual_processor) = &mut self.virtual_processor {
            virtual_processor.count(self.scheduler.switches());
        }
        self.note_lag(used.end, id);
        self.handle_message(used.end, id, next);
        if used.outcome == Outcome::Done {
            self.tell_early(used.end, id, used.early);
            self.wait_for_level(used.end, id);
        }
        used.end
    }

    /// Notes the lag of an activity that is upcalled or has returned. O(depth of the groups).
    #[inline]
    fn note_lag(&self, now: Instant, id: ActivityId) {
        if self.notes_lag
            && let Some(lag_ns) = self.scheduler.lag_ns(id, now)
        {
            self.shared.lag(id).note(lag_ns);
        }
    }

    /// Calls the code of an activity. Returns what it used, whether it panicked, and its next
    /// message if it is a task.
    #[inline]
    fn call(
        &mut self,
        id: ActivityId,
        grant: &Grant,
        return_at: Instant,
    ) -> (Use, bool, Option<NextMessage>) {
        let mut point = PreemptionPoint {
            scheduler: &mut self.scheduler,
            notifier: &self.shared.notifier,
            virtual_processor: self.virtual_processor.as_mut(),
            interrupts: Some(&mut self.interrupts),
            inboxes: Some(&mut self.inboxes),
            return_at,
        };
        match self.slots[id.0 as usize].work.as_mut() {
            Some(Work::Handler(handler)) => {
                let batch = Batch::new(Authority::Scheduler(point), *grant);
                let (used, panicked) = handler::upcall(handler, batch);
                (used, panicked, None)
            }
            Some(Work::Stream(stream)) => {
                let batch = Batch::new(Authority::Scheduler(point), *grant);
                let (used, panicked) = stream.upcall(batch);
                (used, panicked, None)
            }
            Some(Work::Task(task)) => {
                let polled = task.upcall(&mut point, grant);
                (polled.used, polled.panicked, polled.next)
            }
            None => {
                let end = clock::now();
                let (outcome, early) = (Outcome::Finished, Early::default());
                (Use { pdus: 0, quantum_overruns: 0, outcome, end, early }, true, None)
            }
        }
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
