//! What one CPU does next: the state machine that every driver runs.
//!
//! One instance a CPU. Whoever drives it (the runtime's thread, the daemon,
//! the simulator) says what happened with [`Scheduler::handle`], takes out
//! what is to be done with [`Scheduler::poll_command`] until there is nothing,
//! and then sleeps until [`Scheduler::next_deadline`]. It must not read a clock,
//! call back, or block. Memory is taken once, in [`Scheduler::new`]; no later
//! call allocates, and each is O(log n) in the number of activities.
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
//! 1. `Create`: the parameters were admitted; nothing is delivered yet.
//! 2. `Run`: the first release is `at + offset`, the others follow by the period.
//! 3. A release makes a job ready. If the job before is not done, the new one
//!    waits behind it and an *overrun* is counted.
//! 4. `Ready -> Running` (unlabelled above is `Upcall`): the best rank is upcalled
//!    when nothing runs.
//! 5. At a quantum boundary an activity of better rank is ready: the handler is
//!    told to return; what remains of the batch is kept for the next upcall.
//! 6. The handler returned by itself: the job is done, and recorded.
//! 7. `Suspend`: pending job and future releases are dropped. A running handler
//!    is told to return at its next boundary, then it is suspended; a `Run` that
//!    comes before makes the suspend undone. A job dropped after its deadline is missed.
//! 8. `Close`: as 7, and the number is free again.
//!
//! Under a policy that works ahead (DWS), `Arrived` does what a release does (3),
//! but earlier: the job is ready now, and its release, the logical arrival of its
//! message, is still to come. Its deadline counts from there all the same, and a
//! job that ends before its release has a response of zero.
//! 9. Not drawn: a policy may drop a ready job (`Ready -> Waiting`): it ends as
//!    missed, not completed. And it may have an activity upcalled that is
//!    `Waiting` (`Waiting -> Running -> Waiting`): an *extra* service, which is no
//!    job, leaves no record and is abandoned when it yields; only its PDUs count.
//!
//! An activity *on demand* (`Terms::on_demand`) has one release and not
//! a sequence of them: `Run` gives it the first, `Message` each further one, and
//! may take back one that has not come (`scheduler/messages.rs`). Between a job's end and
//! the next `Message` it is `Waiting` without a release. The rest is as drawn.
//!
//! *Events* wait beside all this (`scheduler/events.rs`): `Posted` and `Taken` say of them, in
//! every state, and they change no state. What they change is whom the policy prefers.

use crate::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use crate::heap::IndexedHeap;
use crate::policy::{ExtraEnd, Policy, PolicyFactory, Ready, Standing};
use crate::time::{Instant, Span};
use events::EventQueue;
pub use events::{EVENTS_MAX, EVENTS_MAX_IN_ALL};
pub use interface::{Command, Input, InputError, Outcome};
pub use slot::Counters;
use slot::{JOB_FRESH, Running, Slot, Stop, end_job};
use std::collections::VecDeque;

mod events;
mod interface;
mod messages;
mod slot;
#[cfg(test)]
mod tests;

/// The scheduler of one CPU, as a state machine without clock or threads: [the module](self) has
/// its states.
///
/// [`Scheduler::handle`] takes what happened, [`Scheduler::poll_command`] gives what is to be done.
/// Runtime, daemon and simulator drive it. A program that runs handlers does not need it.
#[derive(Debug)]
pub struct Scheduler {
    slots: Vec<Option<Slot>>,
    /// Next release of every active activity, running and ready ones included.
    releases: IndexedHeap<Instant>,
    /// Orders the activities with a ready job that are not running.
    policy: Box<dyn Policy>,
    events: EventQueue,
    running: Option<Running>,
    /// At most `COMMANDS_MAX` wait at a time.
    commands: VecDeque<Command>,
    /// Activities with a `Slot::lost`, by when it was.
    lost: IndexedHeap<Instant>,
    /// The latest `now` there was: one that is earlier counts as this.
    clock: Instant,
    /// Who was upcalled last, for counting switches.
    last_run: Option<ActivityId>,
    switches: u64,
}

/// One `handle` produces at most the end of a lost job and of a started one, a
/// change of state and an answer.
const COMMANDS_MAX: usize = 4;

impl Scheduler {
    /// A scheduler for activities numbered `0..capacity` under `discipline`.
    /// Takes all memory it will ever need.
    pub fn new(capacity: u32, discipline: &impl PolicyFactory) -> Self {
        Scheduler::with_policy(capacity, discipline.policy(capacity))
    }

    /// A scheduler for activities numbered `0..capacity` with `policy`, made for as many.
    pub(crate) fn with_policy(capacity: u32, policy: Box<dyn Policy>) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(capacity as usize, || None);
        Scheduler {
            slots,
            releases: IndexedHeap::with_capacity(capacity),
            policy,
            events: EventQueue::with_capacity(capacity),
            running: None,
            commands: VecDeque::with_capacity(COMMANDS_MAX),
            lost: IndexedHeap::with_capacity(capacity),
            clock: Instant::ZERO,
            last_run: None,
            switches: 0,
        }
    }

    /// Takes in what happened at `now`, then releases every job that is due.
    ///
    /// `now` should not go backwards; a clock that does stands still until it is
    /// past its latest reading, here and in [`Scheduler::poll_command`]. O(log n), or O(k log n) if k releases are
    /// due. Commands must be polled dry before the next call.
    ///
    /// # Errors
    /// The input does not fit the state; see [`InputError`].
    pub fn handle(&mut self, now: Instant, input: Input) -> Result<(), InputError> {
        debug_assert!(self.commands.is_empty(), "poll_command was not called until None");
        let now = now.max(self.clock);
        match input {
            Input::Create { id, params, terms } => self.create(id, params, &terms, now)?,
            Input::Run { id, at } => self.run(id, at)?,
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
            Input::Tick => {}
            Input::Boundary => {
                let running = self.running.ok_or(InputError::NothingRuns)?;
                self.release_due(now);
                self.boundary(now, running);
            }
            Input::Returned { pdus, outcome } => self.returned(now, pdus, outcome)?,
        }
        self.clock = now;
        self.release_due(now);
        debug_assert!(self.commands.len() <= COMMANDS_MAX);
        Ok(())
    }

    /// As [`Scheduler::poll_command`], but begins no upcall: for a driver that
    /// has more inputs to hand in first. O(log n).
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Command> {
        // Mostly there is none, which is seen without a call.
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

    /// The next thing to do, `None` when the driver may sleep or go on running
    /// the handler it runs. `now` is when an upcall would begin. O(log n).
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
        let id = self.policy.pick(now).or_else(|| self.policy.pick_extra(now, next_release))?;
        Some(self.upcall(now, id))
    }

    /// When [`Input::Tick`] must come at the latest; `None` if no activity is
    /// active. In the past if something is ready. O(1).
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.running.is_none() && self.policy.has_ready() {
            return Some(Instant::ZERO);
        }
        let next = self.next_release().min(self.policy.next_event());
        (next < Instant::FAR).then_some(next)
    }

    /// Who would be upcalled now, as far as was looked at the last
    /// [`Scheduler::handle`], and its key in the order of all domains; `None` if
    /// nobody, or under a policy without such an order. O(1).
    pub fn best(&self) -> Option<Standing> {
        self.policy.best()
    }

    /// From when on `id` has another rank than now, its next release or the
    /// logical arrival of a message that is there, and the key it will have
    /// (split-level-1991 §3.2.2: the table of workahead and sleeping processes);
    /// `None` if it is not active, or as for [`Scheduler::best`]. O(1).
    pub fn upcoming(&self, id: ActivityId) -> Option<(Instant, Standing)> {
        let slot = self.slot(id).ok().filter(|slot| slot.active)?;
        let ahead = slot.unfinished > 0 && slot.release > self.clock;
        let release = if ahead { slot.release } else { slot.next_release };
        let job = Ready { release, deadline: release + slot.deadline };
        Some((release, self.policy.standing(id, job, release)?))
    }

    /// When the oldest job of `id` that has not ended was released, or will have been if
    /// it is there before; `None`: it has none. O(1).
    pub fn pending_since(&self, id: ActivityId) -> Option<Instant> {
        let slot = self.slot(id).ok().filter(|slot| slot.unfinished > 0)?;
        Some(slot.release)
    }

    /// The key of what is upcalled now, at `now`; as for [`Scheduler::best`].
    /// It changes by the passing of time alone, where work ahead becomes
    /// critical. The event is the one with which its job was begun, whether it was taken
    /// since or not: one that came later is for the next choice. O(1).
    pub fn running_standing(&self, now: Instant) -> Option<Standing> {
        let running = self.running.as_ref()?;
        let slot = self.slot(running.id).ok()?;
        let standing = self.policy.standing(running.id, slot.oldest(), now.max(self.clock))?;
        Some(Standing { event: self.policy.served(running.id), ..standing })
    }

    /// The activity that is upcalled now.
    pub fn running(&self) -> Option<ActivityId> {
        self.running.map(|running| running.id)
    }

    /// The latest `now` there was, which is what counts as now.
    pub fn clock(&self) -> Instant {
        self.clock
    }

    /// Whether `id` is delivered periodically (not suspended, not free).
    pub fn is_active(&self, id: ActivityId) -> bool {
        self.slot(id).is_ok_and(|slot| slot.active)
    }

    /// How often the CPU went from one activity to another.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// What was counted for `id` until now; `None` if there is no such activity.
    pub fn counters(&self, id: ActivityId) -> Option<Counters> {
        self.slot(id).ok().map(|slot| slot.counters)
    }

    /// As [`Scheduler::counters`], with the jobs counted as missed whose
    /// deadline passed before `now` though they have not ended. For the end of
    /// a run: work that never got done must not look like a kept promise.
    pub fn counters_at(&self, now: Instant, id: ActivityId) -> Option<Counters> {
        self.slot(id).ok().map(|slot| slot.counters_at(now))
    }

    /// How many events wait for `id`, and the rank of the most urgent of them. O(1).
    pub fn pending(&self, id: ActivityId) -> (u32, Option<u64>) {
        let first = self.events.first(id).map(|first| first.rank);
        (self.events.count(id), first)
    }

    /// What the policy knows of service: see [`Policy::lag_ns`].
    pub fn lag_ns(&self, id: ActivityId, now: Instant) -> Option<i64> {
        self.slot(id).ok().and_then(|_| self.policy.lag_ns(id, now))
    }

    /// What the policy knows of windows: see [`Policy::window_violations`].
    pub fn window_violations(&self, id: ActivityId) -> Option<u64> {
        self.slot(id).ok().and_then(|_| self.policy.window_violations(id))
    }

    /// Whether commands wait that came of the last input, so that no other may come.
    pub(crate) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
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
        let promised = terms.class == WorkClass::RealTime;
        let gap = if promised { params.period } else { Span::ZERO };
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
            counters: Counters::NONE,
            lost: None,
        });
        self.policy.join(id, &params, terms, now);
        Ok(())
    }

    fn run(&mut self, id: ActivityId, at: Instant) -> Result<(), InputError> {
        self.slot(id)?;
        let running = self.running.as_mut().filter(|running| running.id == id);
        let undone =
            running.and_then(|running| running.stop.take_if(|stop| *stop == Stop::Suspend));
        let slot = self.slot_mut(id)?;
        if !slot.active {
            slot.active = true;
            slot.next_release = at + slot.params.offset;
        } else if undone.is_none() {
            return Ok(());
        }
        let next_release = slot.next_release;
        self.releases.set(next_release, id.0);
        Ok(())
    }

    /// Makes jobs of messages that are there before their releases.
    fn arrived(&mut self, id: ActivityId, now: Instant, messages: u32) -> Result<(), InputError> {
        self.slot(id)?;
        self.release_due(now);
        let ahead_max = u64::from(self.policy.workahead_max(id));
        let stopping =
            self.running.is_some_and(|running| running.id == id && running.stop.is_some());
        let slot = self.slot_mut(id)?;
        let furthest = now + slot.params.period.saturating_mul(ahead_max);
        let none = messages == 0 || slot.on_demand.is_some();
        if !slot.active || stopping || none || slot.next_release > furthest {
            return Ok(());
        }
        let room_ns = furthest.since(slot.next_release).as_nanos();
        let room = room_ns / slot.params.period.as_nanos() + 1;
        let count = room.min(u64::from(messages));
        slot.settle(now);
        let idle = slot.add_jobs(count, slot.next_release);
        slot.ahead += count;
        let (next_release, oldest) = (slot.next_release, slot.oldest());
        self.releases.set(next_release, id.0);
        if idle {
            self.policy.ready(id, oldest, now);
        }
        Ok(())
    }

    /// Puts off the next release to what a timestamp says.
    fn advance(
        &mut self,
        id: ActivityId,
        now: Instant,
        critical: Instant,
    ) -> Result<(), InputError> {
        self.slot(id)?;
        self.release_due(now);
        let slot = self.slot_mut(id)?;
        let idle = slot.active && slot.unfinished == 0 && slot.on_demand.is_none();
        if idle && critical > slot.next_release {
            slot.next_release = critical;
            self.releases.set(critical, id.0);
        }
        Ok(())
    }

    /// Suspend or close: at once, or at the boundary if its handler is running.
    fn stop(&mut self, id: ActivityId, now: Instant, stop: Stop) -> Result<(), InputError> {
        self.slot(id)?;
        if let Some(running) = self.running.as_mut().filter(|running| running.id == id) {
            // A close is not taken back by a later suspend.
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

    /// Drops pending job and future releases of an activity that is not running.
    fn deactivate(&mut self, id: ActivityId, now: Instant, stop: Stop) {
        self.releases.remove(id.0);
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if slot.unfinished > 0 {
            self.policy.withdraw(id, now);
        }
        // What was lost is told while the activity is still there to be told of.
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
        // Work that never got done must not look like a kept promise.
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

    /// Releases every job that is due at `now`, and lets the policy do what is.
    fn release_due(&mut self, now: Instant) {
        self.policy.tick(now);
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
            // A driver that was late by many periods releases them in one step.
            let periods = now.since(at).whole(slot.params.period);
            let due = if slot.on_demand.is_some() { 1 } else { periods + 1 };
            slot.settle(now);
            let idle = slot.add_jobs(due, slot.next_release);
            slot.counters.overruns += if idle { due - 1 } else { due };
            self.releases.set(slot.next_release, number);
            if idle && !running {
                self.policy.ready(ActivityId(number), slot.oldest(), now);
            }
        }
        self.drop_lost(now, false);
    }

    /// Ends the jobs that have no value any more, if the policy is one that says
    /// so. Of several that an activity lost at once, or while one handler ran,
    /// only the oldest is recorded; all are counted.
    fn drop_lost(&mut self, now: Instant, choosing: bool) {
        while let Some(id) = self.policy.overdue(now, choosing) {
            let slot = self.slots[id.0 as usize].as_mut().expect("only live activities are ready");
            let deadline = slot.oldest().deadline;
            let behind = now.since(deadline).as_nanos() / slot.params.period.as_nanos();
            let behind = behind.min(slot.unfinished - 1);
            let record = end_job(id, slot, now.max(deadline), false);
            slot.next_job(now);
            slot.counters.misses += behind;
            slot.unfinished -= behind;
            slot.release += slot.params.period.saturating_mul(behind);
            if slot.lost.is_none() {
                slot.lost = Some(record);
                self.lost.set(record.end, id.0);
            }
            self.policy.lost(id, 1 + behind, now);
            if slot.unfinished > 0 {
                self.policy.ready(id, slot.oldest(), now);
            }
        }
    }

    /// Answers a running handler that wants to go on (rtu-1995 Figure 5).
    fn boundary(&mut self, now: Instant, running: Running) {
        // Its own job is not made to wait for what is no job.
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
        let id = running.id;
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return Err(InputError::Unknown(id));
        };
        let used = now.since(running.since);
        self.policy.ran(id, used, now);
        if running.extra {
            slot.counters.pdus += u64::from(pdus);
            let end = match outcome {
                Outcome::Yielded => ExtraEnd::Yielded,
                _ if pdus == running.pdus_max => ExtraEnd::Filled,
                _ => ExtraEnd::Done,
            };
            self.policy.extra_done(id, end, now);
            if slot.unfinished > 0 {
                self.policy.ready(id, slot.oldest(), now);
            }
            self.stop_returned(now, running, outcome);
            return Ok(());
        }
        slot.job.pdus += pdus;
        slot.job.run += used;
        slot.counters.pdus += u64::from(pdus);
        // A handler that was told to return after its last PDU has nothing to come back for.
        let completed = outcome != Outcome::Yielded || pdus == running.pdus_max;
        if !completed && running.stop.is_none() {
            slot.job.preemptions += 1;
            slot.counters.preemptions += 1;
            self.policy.resume(id, now);
            return Ok(());
        }
        if completed {
            let record = end_job(id, slot, now, true);
            slot.next_job(now);
            self.commands.push_back(Command::JobDone(record));
            self.policy.done(id, record.deadline, now);
            if slot.unfinished > 0 {
                self.policy.ready(id, slot.oldest(), now);
            }
        }
        if !completed {
            // Stopped amid its job: as far as the policy goes, ready for a moment.
            self.policy.resume(id, now);
        }
        self.stop_returned(now, running, outcome);
        Ok(())
    }

    /// Does what waited for the running handler to return.
    fn stop_returned(&mut self, now: Instant, running: Running, outcome: Outcome) {
        match (running.stop, outcome) {
            (Some(stop), _) => self.deactivate(running.id, now, stop),
            (None, Outcome::Finished) => self.deactivate(running.id, now, Stop::Suspend),
            (None, _) => {}
        }
    }

    fn upcall(&mut self, now: Instant, id: ActivityId) -> Command {
        if self.last_run != Some(id) {
            self.switches += 1;
            self.last_run = Some(id);
        }
        let check_at = self.check_at(id, now);
        let slot = self.slots[id.0 as usize].as_mut().expect("only live activities are picked");
        let extra = slot.unfinished == 0;
        let resumed = slot.job.start.is_some();
        if !extra {
            slot.job.start.get_or_insert(now);
        }
        let pdus_max = slot.params.batch - slot.job.pdus;
        self.running = Some(Running { id, since: now, pdus_max, extra, stop: None });
        Command::Upcall { id, pdus_max, resumed, check_at }
    }

    /// Nothing can outrank the running activity before something is released,
    /// unless its policy says so.
    fn check_at(&self, running: ActivityId, since: Instant) -> Instant {
        let next_release = self.next_release();
        self.policy.check_at(running, since, next_release).min(self.policy.next_event())
    }

    fn next_release(&self) -> Instant {
        self.releases.peek().map_or(Instant::FAR, |(at, _)| at)
    }
}
