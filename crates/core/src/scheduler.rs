//! What one CPU does next: the state machine that every driver runs.
//!
//! Each CPU of a process has one instance. A driver (a thread of the runtime, or the simulator)
//! reports what happened with [`Scheduler::handle`]. It takes commands from
//! [`Scheduler::poll_command`] until there are none, and then sleeps until
//! [`Scheduler::next_deadline`]. The scheduler does not read a clock, call back or block. It takes
//! its memory once, in [`Scheduler::new`]. No later call allocates, and each is O(log n) in the
//! number of activities.
//!
//! States of an activity (rtu-1995 Table 1, §6):
//!
//! ```text
//!            (1) Create          (2) Run            (3) release
//!   [free] ------------> Suspended ------> Waiting -------------> Ready
//!      ^                    ^  ^              ^                   |   ^
//!      |  (8) Close         |  |              | (6) batch done    |   | (5) Yield:
//!      |  from any state    |  |              |    or no more     |   |  remaining
//!      |                    |  |              |    work           v   |  count kept
//!      |                    |  |              +--------------- Running
//!      |                    |  |  (7) Suspend, at the next boundary |
//!      |                    |  +------------------------------------+
//!      |                    +-- (7) Suspend from Waiting or Ready
//! ```
//!
//! 1. `Create`: the parameters were admitted; the activity gets no upcalls yet.
//! 2. `Run`: the first release is `at + offset`; the others follow by the period. Among processes
//!    under DWCS `at` is rounded up ([`Policy::first_release`]).
//! 3. A release makes a job ready. If the previous job is not done, the new one waits behind it,
//!    and the scheduler counts an *overrun*.
//! 4. `Ready -> Running` (the unlabelled arrow, `Upcall`): when nothing runs, the scheduler upcalls
//!    the activity of the best rank.
//! 5. At a quantum boundary an activity of better rank is ready. The scheduler tells the handler to
//!    return and keeps the rest of the batch for the next upcall.
//! 6. The handler returned by itself. The job is done and recorded.
//! 7. `Suspend` drops the pending job and future releases. A running handler must return at its
//!    next boundary, and is suspended then. A `Run` before that boundary cancels the suspend. A job
//!    that is dropped after its deadline counts as missed.
//! 8. `Close` does the same as (7), and frees the number.
//! 9. Not drawn: a policy may drop a ready job (`Ready -> Waiting`), which ends as missed and not
//!    completed. A policy may also have the scheduler upcall a `Waiting` activity (`Waiting ->
//!    Running -> Waiting`). That is an *extra* service: it is no job, leaves no record and ends
//!    when it yields. Only its PDUs count.
//!
//! Under a policy that works ahead (DWS), `Arrived` has the effect of a release (3), but earlier.
//! The job is ready now, and its release, the logical arrival of its message, is still to come. Its
//! deadline counts from the release. A job that ends before its release has a response of zero.
//!
//! An activity *on demand* (`Terms::on_demand`) has one release at a time instead of a sequence.
//! `Run` sets the first release. `Message` sets each further one, and may replace one that has not
//! come (`scheduler/messages.rs`). Between the end of a job and the next `Message` the activity is
//! `Waiting` without a release. Everything else is as drawn.
//!
//! Each activity has a *budget*: beyond it the activity goes after all others until the next refill
//! (`scheduler/budget.rs`). Jobs that wait for too long may be dropped (`scheduler/backlog.rs`),
//! which ends them as in (9). Both change the order of the activities and no arrow above.
//!
//! *Events* wait independently of these states (`scheduler/events.rs`). `Posted` and `Taken` report
//! them in every state and change no state. They change which activity the policy prefers.

use crate::activity::{ActivityId, ActivityParams, Backlog, Terms};
use crate::heap::IndexedHeap;
use crate::policy::{ExtraEnd, Policy, PolicyFactory, Ready};
use crate::time::{Instant, Span};
use budget::Budget;
pub use budget::BudgetState;
use events::EventQueue;
pub use events::{EVENTS_MAX, EVENTS_MAX_IN_ALL};
pub use interface::{Command, Input, InputError, Outcome};
pub use slot::Counters;
use slot::{JOB_FRESH, Running, Slot, Stop, end_job};
use std::collections::VecDeque;

mod arrivals;
mod backlog;
mod budget;
mod charging;
mod events;
mod interface;
mod messages;
mod queries;
mod slot;
#[cfg(test)]
mod tests;

/// The scheduler of one CPU: a state machine without clock or threads. [The module](self) describes
/// its states.
///
/// [`Scheduler::handle`] takes what happened; [`Scheduler::poll_command`] returns what to do. The
/// runtime and the simulator drive it. A program that runs handlers does not need it.
#[derive(Debug)]
pub struct Scheduler {
    slots: Vec<Option<Slot>>,
    /// The next release of every active activity, including running and ready ones.
    releases: IndexedHeap<Instant>,
    /// The activities with a job that are over budget, by the time of the next refill.
    restores: IndexedHeap<Instant>,
    /// Orders the activities that have a ready job and are not running.
    policy: Box<dyn Policy>,
    events: EventQueue,
    running: Option<Running>,
    /// At most `COMMANDS_MAX` wait at a time.
    commands: VecDeque<Command>,
    /// The activities with a `Slot::lost`, by the time of the loss.
    lost: IndexedHeap<Instant>,
    /// The latest `now` so far. An earlier `now` counts as this one.
    clock: Instant,
    /// The activity that was upcalled last, for counting switches.
    last_run: Option<ActivityId>,
    switches: u64,
    /// The time of a hand-off, which budgets do not pay.
    switch_cost: Span,
    /// Whether [`Input::Idle`] has an effect.
    awaits_idle: bool,
    /// Whether other domains share the CPU ([`Input::DomainShare`]).
    has_peers: bool,
    /// [`Scheduler::domain_request`], as of the last input.
    domain_request: Option<Span>,
    /// [`Policy::drops_late_jobs`], which never changes.
    drops_late_jobs: bool,
}

/// One call of `handle` produces at most four commands: the end of a lost job, the end of a started
/// job, a change of state and a reply.
const COMMANDS_MAX: usize = 4;

impl Scheduler {
    /// A scheduler for activities numbered `0..capacity` under `discipline`. Takes all memory that
    /// it will ever need.
    pub fn new(capacity: u32, discipline: &impl PolicyFactory) -> Self {
        Scheduler::with_policy(capacity, discipline.policy(capacity))
    }

    /// A scheduler for activities numbered `0..capacity`, with a `policy` made for the same
    /// numbers.
    pub(crate) fn with_policy(capacity: u32, policy: Box<dyn Policy>) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(capacity as usize, || None);
        Scheduler {
            slots,
            releases: IndexedHeap::with_capacity(capacity),
            restores: IndexedHeap::with_capacity(capacity),
            drops_late_jobs: policy.drops_late_jobs(),
            policy,
            events: EventQueue::with_capacity(capacity),
            running: None,
            commands: VecDeque::with_capacity(COMMANDS_MAX),
            lost: IndexedHeap::with_capacity(capacity),
            clock: Instant::ZERO,
            last_run: None,
            switches: 0,
            switch_cost: Span::ZERO,
            awaits_idle: false,
            has_peers: false,
            domain_request: None,
        }
    }

    /// Processes what happened at `now`, then releases every job that is due.
    ///
    /// `now` should not go backwards. If it does, the scheduler uses its latest reading until `now`
    /// is past that, here and in [`Scheduler::poll_command`]. O(log n), or O(k log n) if k releases
    /// are due. The driver must poll all commands before the next call.
    ///
    /// # Errors
    /// The input does not fit the state; see [`InputError`].
    pub fn handle(&mut self, now: Instant, input: Input) -> Result<(), InputError> {
        debug_assert!(self.commands.is_empty(), "poll_command was not called until None");
        let now = now.max(self.clock);
        match input {
            Input::Create { id, params, terms } => self.create(id, params, &terms, now)?,
            Input::Run { id, at } => self.run(id, at, now)?,
            Input::Suspend { id } => self.stop(id, now, Stop::Suspend)?,
            Input::Close { id } => self.stop(id, now, Stop::Close)?,
            Input::Reweigh { id, claim } => {
                self.slot(id)?;
                self.policy.reweigh(id, claim, now);
            }
            Input::Arrived { id, messages } => self.arrived(id, now, messages)?,
            Input::Advance { id, critical } => self.advance(id, now, critical)?,
            Input::Message { id, critical, from } => self.message(id, now, critical, from)?,
            Input::Posted { id, rank } => {
                self.slot(id)?;
                let first = self.events.post(id, rank).ok_or(InputError::TooManyEvents(id))?;
                self.policy.posted(id, first, now);
            }
            Input::Taken { id, events } => {
                self.slot(id)?;
                if self.events.take(id, events) > 0 {
                    self.policy.taken(id, self.events.first(id), now);
                }
            }
            Input::EventServer { share } => self.policy.set_event_share(share, now),
            Input::DomainShare { share } => {
                self.has_peers = share.is_some();
                self.policy.set_domain_share(share, now);
            }
            Input::GroupPart { group, part } => self.policy.set_group_part(group, part, now),
            Input::SwitchCost { cost } => {
                self.switch_cost = cost;
                self.policy.set_switch_cost(cost);
            }
            Input::PassedOver => self.passed_over(now),
            Input::Interrupted { length } => self.interrupted(length),
            Input::Idle => self.renew_budgets(now),
            Input::Tick => {}
            Input::Boundary => {
                let running = self.running.ok_or(InputError::NothingRuns)?;
                self.release_due(now);
                self.charge(running, now);
                self.boundary(now, running);
            }
            Input::Returned { pdus, outcome } => self.returned(now, pdus, outcome)?,
        }
        self.clock = now;
        self.release_due(now);
        self.domain_request = None;
        if self.has_peers && self.running.is_none() {
            self.drop_lost(now, true);
            self.domain_request = self.policy.next_request();
        }
        debug_assert!(self.commands.len() <= COMMANDS_MAX);
        Ok(())
    }

    /// Like [`Scheduler::poll_command`], but begins no upcall. A driver calls this if it has more
    /// inputs to deliver first. O(log n).
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Command> {
        // The usual case, without a notice, costs no call.
        let none = self.commands.is_empty() && self.lost.is_empty();
        if none { None } else { self.notice() }
    }

    fn notice(&mut self) -> Option<Command> {
        if let Some(command) = self.commands.pop_front() {
            return Some(command);
        }
        if self.running.is_some() {
            return None;
        }
        let (_, number) = self.lost.peek()?;
        self.lost.remove(number);
        self.slots[number as usize].as_mut()?.lost.take().map(Command::JobDone)
    }

    /// The next command. `None` when the driver may sleep, or continue the running handler. An
    /// upcall would begin at `now`. O(log n).
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.clock = self.clock.max(now);
        let now = self.clock;
        if let Some(command) = self.poll_notice() {
            return Some(command);
        }
        if self.running.is_some() {
            return None;
        }
        self.drop_lost(now, true);
        if let Some(command) = self.poll_notice() {
            return Some(command);
        }
        let next_release = self.next_release();
        loop {
            let id = self.policy.pick(now).or_else(|| self.policy.pick_extra(now, next_release))?;
            if !self.is_stale(id, now) {
                return Some(self.upcall(now, id));
            }
            // The activity did not run: its job is dropped.
            self.policy.ran(id, Span::ZERO, now);
            self.policy.resume(id, now);
            self.drop_stale_ready(id, now);
            if let Some(command) = self.poll_notice() {
                return Some(command);
            }
        }
    }

    /// When [`Input::Tick`] must come at the latest; `None` if no activity is active. The instant
    /// lies in the past if nothing runs and an activity is ready. O(1).
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.running.is_none() && self.policy.has_ready() {
            return Some(Instant::ZERO);
        }
        let next = self.next_change();
        (next < Instant::FAR).then_some(next)
    }

    fn slot(&self, id: ActivityId) -> Result<&Slot, InputError> {
        self.slots
            .get(id.0 as usize)
            .ok_or(InputError::OutOfRange(id))?
            .as_ref()
            .ok_or(InputError::Unknown(id))
    }

    fn slot_mut(&mut self, id: ActivityId) -> Result<&mut Slot, InputError> {
        self.slots
            .get_mut(id.0 as usize)
            .ok_or(InputError::OutOfRange(id))?
            .as_mut()
            .ok_or(InputError::Unknown(id))
    }

    fn create(
        &mut self,
        id: ActivityId,
        params: ActivityParams,
        terms: &Terms,
        now: Instant,
    ) -> Result<(), InputError> {
        debug_assert_eq!(params.validated(), Ok(params));
        let deadline = self.policy.relative_deadline(&params, terms);
        let gap = self.policy.arrival_gap(&params, terms);
        let place = self.slots.get_mut(id.0 as usize).ok_or(InputError::OutOfRange(id))?;
        if place.is_some() {
            return Err(InputError::Taken(id));
        }
        *place = Some(Slot {
            params,
            deadline,
            active: false,
            release: Instant::ZERO,
            next_release: Instant::FAR,
            on_demand: terms.on_demand.then_some(gap),
            earliest: Instant::ZERO,
            unfinished: 0,
            ahead: 0,
            job: JOB_FRESH,
            placed: Ready::new(Instant::ZERO, Instant::ZERO),
            budget: None,
            window_from: Instant::ZERO,
            ended: Instant::ZERO,
            backlog: if self.drops_late_jobs { Backlog::CatchUp } else { terms.backlog },
            skipped: 0,
            counters: Counters::NONE,
            lost: None,
        });
        self.policy.join(id, &params, terms, now);
        if self.policy.keeps_budget(id) {
            self.slot_mut(id)?.budget = Some(Budget::new(&params, deadline));
        }
        Ok(())
    }

    fn run(&mut self, id: ActivityId, at: Instant, now: Instant) -> Result<(), InputError> {
        self.slot(id)?;
        let first_release = self.first_release(id, at, now);
        let running = self.running.as_mut().filter(|running| running.id == id);
        let undone =
            running.and_then(|running| running.stop.take_if(|stop| *stop == Stop::Suspend));
        let slot = self.slot_mut(id)?;
        if !slot.active {
            slot.active = true;
            slot.next_release = first_release + slot.params.offset;
        } else if undone.is_none() {
            return Ok(());
        }
        let next_release = slot.next_release;
        // The windows may still be on the grid of earlier releases.
        let has_budget = slot.budget.is_some();
        self.awaits_idle |= has_budget;
        self.releases.set(next_release, id.0);
        Ok(())
    }

    /// Suspends or closes an activity: at once, or at the next boundary if its handler is running.
    fn stop(&mut self, id: ActivityId, now: Instant, stop: Stop) -> Result<(), InputError> {
        self.slot(id)?;
        if let Some(running) = self.running.as_mut().filter(|running| running.id == id) {
            // A later suspend does not cancel a close.
            running.stop = Some(match running.stop {
                Some(Stop::Close) => Stop::Close,
                _ => stop,
            });
            self.releases.remove(id.0);
        } else {
            self.deactivate(id, now, stop);
        }
        Ok(())
    }

    /// Drops the pending job and future releases of an activity that is not running.
    fn deactivate(&mut self, id: ActivityId, now: Instant, stop: Stop) {
        self.releases.remove(id.0);
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if slot.unfinished > 0 {
            self.policy.withdraw(id, now);
            self.restores.remove(id.0);
        }
        // The report of a lost job must come before the activity is removed.
        if let Some(record) = slot.lost.take() {
            self.lost.remove(id.0);
            self.commands.push_back(Command::JobDone(record));
        }
        let was_active = core::mem::replace(&mut slot.active, false);
        let started = slot.unfinished > 0 && slot.job.start.is_some();
        if started {
            let record = end_job(id, slot, now, false);
            slot.next_job(now);
            self.commands.push_back(Command::JobDone(record));
        }
        // Unfinished work must not look like a kept promise.
        slot.counters = slot.counters_at(now);
        slot.unfinished = 0;
        slot.ahead = 0;
        slot.job = JOB_FRESH;
        if was_active {
            self.policy.suspended(id, now);
            self.commands.push_back(Command::Inactive { id });
        }
        if stop == Stop::Close {
            self.slots[id.0 as usize] = None;
            self.events.take(id, u32::MAX);
            self.policy.leave(id, now);
            self.commands.push_back(Command::Closed { id });
        }
    }

    /// Releases every job that is due at `now`. First it calls the policy's `tick`, and refills
    /// budgets.
    fn release_due(&mut self, now: Instant) {
        self.policy.tick(now);
        self.restore_due(now);
        self.drop_lost(now, false);
        if self.next_release() > now {
            return;
        }
        while let Some((at, number)) = self.releases.peek() {
            if at > now {
                break;
            }
            let running = self.running.is_some_and(|running| running.id.0 == number);
            let Some(slot) = self.slots.get_mut(number as usize).and_then(Option::as_mut) else {
                // Invariant: only live activities are in `releases`.
                debug_assert!(false, "a free slot has a release");
                self.releases.remove(number);
                continue;
            };
            // If the driver was late by many periods, all of them are released in one step.
            let periods = now.since(at).whole(slot.params.period);
            let due = if slot.on_demand.is_some() { 1 } else { periods + 1 };
            slot.settle(now);
            let idle = slot.add_jobs(due, slot.next_release);
            slot.counters.overruns += if idle { due - 1 } else { due };
            self.releases.set(slot.next_release, number);
            let id = ActivityId(number);
            if running {
                // What is stale is dropped when the running job ends.
            } else if !idle {
                self.drop_stale_ready(id, now);
            } else if self.drop_stale(id, now) {
                self.enlist(id, now);
            }
        }
        // If the driver is late, a refill may have come since a release.
        self.restore_due(now);
        self.drop_lost(now, false);
    }

    /// Ends the jobs that have lost their value, if the policy names any. If an activity lost
    /// several jobs at once, or while one handler ran, only the oldest is recorded; all are
    /// counted.
    #[inline]
    fn drop_lost(&mut self, now: Instant, choosing: bool) {
        if self.drops_late_jobs {
            self.drop_overdue(now, choosing);
        }
    }

    fn drop_overdue(&mut self, now: Instant, choosing: bool) {
        while let Some(id) = self.policy.overdue(now, choosing) {
            let slot = self.slots[id.0 as usize].as_mut().expect("only live activities are ready");
            let behind = now.since(slot.oldest().deadline).whole(slot.params.period);
            let jobs = match slot.on_demand {
                // The message waits on, and has a job in each period.
                Some(_) => behind + 1,
                None => (behind + 1).min(slot.unfinished),
            };
            slot.settle(now);
            slot.ended = now;
            let has_job = self.drop_oldest(id, jobs, now);
            self.policy.lost(id, jobs, now);
            if has_job {
                self.enlist(id, now);
            }
        }
    }

    /// Replies to a running handler that asks to continue (rtu-1995 Figure 5).
    fn boundary(&mut self, now: Instant, running: Running) {
        // An extra service does not delay a job of the same activity.
        let released = running.extra && self.slot(running.id).is_ok_and(|slot| slot.unfinished > 0);
        let gives_way = running.stop.is_some()
            || released
            || self.policy.gives_way(running.id, running.since, now);
        let answer = if gives_way {
            Command::Yield
        } else {
            Command::Proceed { check_at: self.check_at(running.id, running.since) }
        };
        self.commands.push_back(answer);
    }

    fn returned(&mut self, now: Instant, pdus: u32, outcome: Outcome) -> Result<(), InputError> {
        let running = self.running.ok_or(InputError::NothingRuns)?;
        if pdus > running.pdus_max {
            return Err(InputError::TooManyPdus { pdus, pdus_max: running.pdus_max });
        }
        self.running = None;
        if running.extra {
            return self.extra_returned(now, running, pdus, outcome);
        }
        let id = running.id;
        let used = now.since(running.since);
        self.policy.ran(id, used, now);
        // A handler that yields after its last PDU has no work left.
        let completed = outcome != Outcome::Yielded || pdus == running.pdus_max;
        match completed {
            true => _ = self.charge_last(id, now),
            false => self.charge(running, now),
        }
        let slot = self.slot_mut(id)?;
        slot.job.pdus += pdus;
        slot.job.run += used;
        slot.counters.pdus += u64::from(pdus);
        if !completed && running.stop.is_none() {
            slot.job.preemptions += 1;
            slot.counters.preemptions += 1;
            self.policy.resume(id, now);
            return Ok(());
        }
        if completed {
            let deadline = slot.placed.deadline;
            let record = end_job(id, slot, now, true);
            slot.next_job(now);
            self.commands.push_back(Command::JobDone(record));
            self.policy.done(id, deadline, now);
            self.restores.remove(id.0);
            if self.drop_stale(id, now) {
                self.enlist(id, now);
            }
        }
        if !completed {
            // The job was stopped halfway. For the policy it is ready again, and is then withdrawn.
            self.policy.resume(id, now);
        }
        self.stop_returned(now, running, outcome);
        Ok(())
    }

    /// The handler returned from a service without a job.
    fn extra_returned(
        &mut self,
        now: Instant,
        running: Running,
        pdus: u32,
        outcome: Outcome,
    ) -> Result<(), InputError> {
        let id = running.id;
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return Err(InputError::Unknown(id));
        };
        self.policy.ran(id, now.since(running.since), now);
        slot.counters.pdus += u64::from(pdus);
        let end = match outcome {
            Outcome::Yielded => ExtraEnd::Yielded,
            _ if pdus == running.pdus_max => ExtraEnd::Filled,
            _ => ExtraEnd::Done,
        };
        let unfinished = slot.unfinished;
        self.policy.extra_done(id, end, now);
        if unfinished > 0 {
            self.enlist(id, now);
        }
        self.stop_returned(now, running, outcome);
        Ok(())
    }

    /// Executes the suspend or close that waited for the running handler to return.
    fn stop_returned(&mut self, now: Instant, running: Running, outcome: Outcome) {
        match (running.stop, outcome) {
            (Some(stop), _) => self.deactivate(running.id, now, stop),
            (None, Outcome::Finished) => self.deactivate(running.id, now, Stop::Suspend),
            (None, _) => {}
        }
    }

    fn upcall(&mut self, now: Instant, id: ActivityId) -> Command {
        let mut charged_from = now;
        if self.last_run != Some(id) {
            self.switches += 1;
            self.last_run = Some(id);
            charged_from += self.switch_cost;
        }
        let slot = self.slots[id.0 as usize].as_mut().expect("only live activities are picked");
        let extra = slot.unfinished == 0;
        let resumed = slot.job.start.is_some();
        if !extra && !resumed {
            slot.job.start = Some(now);
            slot.job.skipped = core::mem::take(&mut slot.skipped);
        }
        let pdus_max = slot.params.batch - slot.job.pdus;
        self.running = Some(Running { id, since: now, pdus_max, extra, stop: None });
        let outranked = !extra && self.begin_charge(id, now, charged_from);
        // An activity that was picked by an old rank may be outranked at its first boundary.
        let check_at = if outranked { now } else { self.check_at(id, now) };
        Command::Upcall { id, pdus_max, resumed, check_at }
    }

    /// No activity can outrank the running one before a release, before a budget is refilled,
    /// used or expires, or before the policy says so.
    fn check_at(&self, running: ActivityId, since: Instant) -> Instant {
        let budget = self.slot(running).ok().and_then(|slot| slot.budget.as_ref());
        let changes_at = budget.map_or(Instant::FAR, Budget::changes_at);
        let next_release = self.next_release();
        let by_policy = self.policy.check_at(running, since, next_release);
        by_policy.min(changes_at).min(self.next_change())
    }

    /// When the order of the activities changes next by the passing of time: a release, a refill of
    /// a budget, or an event of the policy. [`Instant::FAR`] if it never does. O(1).
    pub fn next_change(&self) -> Instant {
        let restore = self.restores.peek().map_or(Instant::FAR, |(at, _)| at);
        self.next_release().min(restore).min(self.policy.next_event())
    }

    fn next_release(&self) -> Instant {
        self.releases.peek().map_or(Instant::FAR, |(at, _)| at)
    }
}
