//! DWCS: dynamic window-constrained scheduling, with events (ecalls-2001 §2.4).
//!
//! An activity has a period `T`, a run time `C = B * cost` and a window-constraint `x/y`: in each
//! `y` periods, all but `x` get the whole run time before their deadline. An activity is eligible
//! from the start of its period. Its rank is its deadline, then how tight its window has become.
//!
//! # Sources of the rules
//!
//! The paper gives the idea and leaves the rules to the DWCS papers (West and Schwan, ICMCS 1999;
//! West, Schwan and Poellabauer, RTAS 1999; West and Poellabauer, RTSS 2000; West, Zhang, Schwan
//! and Poellabauer, IEEE Transactions on Computers 53(6), 2004). The rules here are from the last
//! two:
//!
//! - **Precedence**: `window::Order`. The version of 1999 compares windows before deadlines.
//!   ecalls-2001 compares deadlines first, like the later versions.
//! - **Service** before the deadline: `y'` falls by one; if `x' = y'`, so does `x'`. **Miss**: both
//!   fall by one while `x' > 0`. Where `y'` reaches 0, a new window begins with `x/y`.
//! - **Violation**, a miss with `x' = 0`: `y'` grows by epsilon, here 1, and the next service
//!   begins a new window.
//!
//! The paper says that a service lowers numerator and denominator, which relaxes the constraint,
//! and that a miss lowers only the numerator. The first is impossible: `(x-1)/(y-1)` is less than
//! `x/y`, so it is tighter. Therefore this module uses the published rules, by which a service
//! relaxes the constraint and a miss tightens it.
//!
//! # Decisions
//!
//! - **Windows follow one another.** By these rules a window is `y` periods from the first release
//!   on, then the next `y`. Two adjacent windows can both have their misses where they meet, so
//!   among *any* `x + y` periods in a row there are up to `2x` misses. No scheduler can promise `x`
//!   of any `y` at full utilization (1/2, 2/3 and 5/6 with equal periods is a counterexample).
//!   `window_violations` counts these adjacent windows.
//! - **A lost period.** A job that is not done at its deadline has lost its value. The policy drops
//!   it and adjusts its window. When the CPU is about to be assigned, the policy also drops a job
//!   whose run time no longer fits before its deadline. Published DWCS serves whole slots and has
//!   no such job. A quantum that could only end late would take the time of the next period.
//! - **The run time is a budget.** A job that used its run time goes after all jobs that did not,
//!   until its deadline. So a handler that takes longer than declared costs the others nothing.
//! - **The window of a suspended activity does not move.** Among several processes the activity
//!   begins a new window when it is run again, after the former one would have ended.
//! - **Equal deadlines do not preempt**: a service gives the whole run time `C` without a change to
//!   an activity of the same deadline.
//! - **Work-conserving** activities are served again in a period while nothing is ready, until a
//!   service finds nothing left to do. Windows count periods, so such *extra* services do not
//!   adjust them. An extra service begins only if its quantum ends before the next release. The
//!   quantum counts twice, for hand-offs that the policy does not know. So an extra service never
//!   delays a job whose release is known.
//! - **Activities on demand** (tasks, handlers of streams) have a job for each message, at most one
//!   a period ([`Policy::arrival_gap`]). Their windows count these jobs, and time without messages
//!   does not count. A lost job does not lose its message: the job of the next period finds it.
//!   They get no extra service, because they have nothing to do without a message; an event waits
//!   for the next job. Their releases are not known, so an extra service of another activity may
//!   delay them by its quantum, and admission counts that.
//!
//! # Events
//!
//! Events wait for an activity from [`Policy::posted`] to [`Policy::taken`], ordered by rank.
//! Activities with events are ordered by their most urgent event. An upcall has *seen* the events
//! that wait at its start. Seen events count again when another event comes, or when the handler
//! takes some and leaves others. So a handler that takes no event is not called for ever. The three
//! modifications of the paper:
//!
//! 1. *Among equal deadlines, an activity with an event goes first, as long as this does not at
//!    once violate a promise to another activity.* Taken literally, this breaks promises later. For
//!    example, three activities with `2/3` share one slot a period. If one of them always has
//!    events, the other two miss until neither may miss any more. Therefore an activity with an
//!    event overtakes others only if all of them still fit before the deadline, each counted twice,
//!    as above. This changes the order of service and not which jobs are served. At most
//!    [`OVERTAKEN_MAX`] jobs are overtaken.
//! 2. *Where a work-conserving activity would be served again, one with an event is served
//!    instead*, even if it is not work-conserving.
//! 3. *The same in place of best-effort work*: when nothing is ready.
//!
//! The event server (`server`) serves events ahead of jobs.
//!
//! # Several processes
//!
//! Each process of a CPU, a *domain*, has a policy of its own, and the domains are put in one order
//! by what these show ([`Policy::best`]). A key is a deadline, and the window stands where other
//! policies have the event ([`Standing::event`]), as one number (`window::Order::tightness`). Jobs
//! beyond their run time have the highest bit of the key. So the domains together serve what one
//! scheduler of all would serve. Two rules need to know all activities of the CPU, and no domain
//! does: no activity with an event overtakes others of its deadline, and there are no extra
//! services. An event waits for the job of its activity, or for the event server of its domain.
//!
//! *Aligned releases.* Where windows allow misses, activities of equal deadlines must be released
//! together, whenever their processes start. So the first release of a periodic activity is rounded
//! up to a multiple of its period, then its offset is added. A window that was interrupted by a
//! suspend ends before the next one begins ([`Policy::first_release`]). Domains share no state for
//! that, only the clock. [`crate::admission`] says which windows are kept so.
//!
//! A domain that does not run does not learn that a job of it is lost. It gets the turn for that
//! job, drops it, and passes the turn on if another domain goes first now. That hand-off comes only
//! after a miss.

use super::{EventRank, ExtraEnd, KEY_OVER_BUDGET, Policy, Ready, Standing};
use crate::activity::{ActivityId, ActivityParams, Terms, Window};
use crate::heap::IndexedHeap;
use crate::share::Share;
use crate::time::{Instant, Span};
use server::Server;
use window::{Order, Progress};

mod server;
#[cfg(test)]
mod tests;
mod window;

/// The window of an activity that states none: no miss is allowed.
pub(crate) const NO_MISSES: Window = Window { misses: 0, periods: 1 };

/// The window-constraint of these terms, put into its valid range.
pub(crate) fn window_of(terms: &Terms) -> Window {
    Progress::new(terms.window.unwrap_or(NO_MISSES)).window()
}

/// In that order, the key of a running extra service.
const EXTRA: u64 = 3 << 62;

/// The most jobs that an activity with an event may overtake. Bounds the work of a pick.
pub const OVERTAKEN_MAX: usize = 16;

/// Ranks by deadline and window. Every call is O(log n).
#[derive(Debug)]
pub struct WindowConstrained {
    members: Vec<Option<Member>>,
    /// The ready activities with run time left.
    ready: IndexedHeap<Order>,
    /// The ready activities whose jobs used their run time.
    spent: IndexedHeap<Order>,
    /// The ready activities with events, by deadline, then by event.
    eager: IndexedHeap<(Instant, EventRank)>,
    /// All activities that do not run and that the event server could serve for an event.
    waiting: IndexedHeap<EventRank>,
    /// Idle activities that may be served beyond their periods.
    idle: IndexedHeap<(Extra, Order)>,
    running: Option<(ActivityId, Service)>,
    server: Option<Server>,
    /// Whether other domains have activities on the CPU.
    has_peers: bool,
    /// The latest `now` of a `tick`.
    now: Instant,
    /// The activity that ran last, and what a hand-off to another one costs.
    last: Option<ActivityId>,
    switch_cost: Span,
    /// How many activities ever joined, for ties. Wraps after 4 billion.
    created: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    period: Span,
    offset: Span,
    run_time: Span,
    quantum_cost: Span,
    work_conserving: bool,
    /// Whether only messages release it ([`Terms::on_demand`]).
    on_demand: bool,
    tie: u32,
    state: State,
    /// Whether it was released since it was created or suspended.
    active: bool,
    /// The first release since then.
    begun: Instant,
    /// Among several processes: when the window ends during which the activity was suspended.
    window_end: Instant,
    /// The deadline of the oldest job; of the last job while idle.
    deadline: Instant,
    /// The remaining run time of the oldest job.
    left: Span,
    progress: Progress,
    /// The most urgent waiting event.
    first: Option<EventRank>,
    /// Whether its last upcall saw all waiting events.
    seen: bool,
    /// The event for which it was upcalled without a job, if it yielded then.
    again: Option<EventRank>,
    /// Whether its last extra service in this period found nothing left to do.
    exhausted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Ready,
    Running,
}

/// Why an idle activity is served; the smaller reason goes first (modification 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extra {
    Event(EventRank),
    WorkConserving,
}

/// The service for which the running activity was picked.
#[derive(Clone, Copy, Debug)]
enum Service {
    /// Its oldest job. `urgency` is the deadline of the job, or that of the event server if
    /// earlier.
    Job { urgency: Instant },
    /// No other activity was ready. `until` is the next release.
    Extra { kind: Extra, until: Instant },
    /// The activity is idle, and the event server pays.
    Event { urgency: Instant, event: EventRank },
}

impl Member {
    fn order(&self) -> Order {
        Order { deadline: self.deadline, current: self.progress.current(), tie: self.tie }
    }

    /// The event that counts for the activity.
    fn event(&self) -> Option<EventRank> {
        let unseen = self.first.filter(|_| !self.seen);
        unseen.into_iter().chain(self.again).min()
    }

    fn extra(&self) -> Option<Extra> {
        let work = self.work_conserving && !self.exhausted;
        match self.event() {
            _ if self.state != State::Idle || !self.active || self.on_demand => None,
            Some(event) => Some(Extra::Event(event)),
            None => work.then_some(Extra::WorkConserving),
        }
    }

    /// Whether the oldest job can still be done in time.
    fn fits(&self, now: Instant) -> bool {
        now + self.left <= self.deadline
    }

    /// When the window that `now` is in ends: a period, if no miss is allowed.
    fn end_of_window(&self, now: Instant) -> Instant {
        let periods = match self.progress.window() {
            Window { misses: 0, .. } => 1,
            Window { periods, .. } => periods,
        };
        let length = self.period.saturating_mul(periods.into());
        let over = now.since(self.begun).whole(length);
        self.begun + length.saturating_mul(over + 1)
    }

    /// The first multiple of the period from `at` on with which a new window may begin.
    fn aligned(&self, at: Instant) -> Instant {
        let from_ns = at.max(self.window_end - self.offset).as_nanos();
        let multiple = from_ns.checked_next_multiple_of(self.period.as_nanos());
        Instant::from_nanos(multiple.unwrap_or(from_ns))
    }

    /// Whether a quantum that begins at `now` ends before `until`, with a hand-off of the same
    /// cost.
    fn quantum_fits(&self, now: Instant, until: Instant) -> bool {
        now + self.quantum_cost * 2 <= until
    }
}

impl WindowConstrained {
    /// A policy for activities numbered `0..capacity`. Takes all memory that it will ever need.
    pub fn new(capacity: u32) -> Self {
        WindowConstrained {
            members: vec![None; capacity as usize],
            ready: IndexedHeap::with_capacity(capacity),
            spent: IndexedHeap::with_capacity(capacity),
            eager: IndexedHeap::with_capacity(capacity),
            waiting: IndexedHeap::with_capacity(capacity),
            idle: IndexedHeap::with_capacity(capacity),
            running: None,
            server: None,
            has_peers: false,
            now: Instant::ZERO,
            last: None,
            switch_cost: Span::ZERO,
            created: 0,
        }
    }

    fn member(&self, id: ActivityId) -> Option<&Member> {
        self.members.get(id.0 as usize)?.as_ref()
    }

    /// Changes a member, then updates its place in the queues.
    fn change(&mut self, id: ActivityId, now: Instant, change: impl FnOnce(&mut Member)) {
        let Some(member) = self.members.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            // Invariant: the scheduler names only activities that joined.
            debug_assert!(false, "activity {} never joined", id.0);
            return;
        };
        change(member);
        let (order, is_ready) = (member.order(), member.state == State::Ready);
        let ready = is_ready && !member.left.is_zero();
        let (deadline, extra) = (member.deadline, member.extra());
        let eager = member.event().filter(|_| ready);
        let idle = match extra {
            Some(Extra::Event(event)) => Some(event),
            _ => None,
        };
        place(&mut self.ready, id, ready.then_some(order));
        place(&mut self.spent, id, (is_ready && !ready).then_some(order));
        place(&mut self.eager, id, eager.map(|event| (deadline, event)));
        place(&mut self.waiting, id, eager.or(idle));
        place(&mut self.idle, id, extra.map(|extra| (extra, order)));
        self.note_waiting(now);
    }

    /// Tells the event server whether any event waits.
    fn note_waiting(&mut self, now: Instant) {
        let waiting = !self.waiting.is_empty();
        if let Some(server) = &mut self.server {
            server.note(waiting, now);
        }
    }

    /// The activity that the event server would serve, with the event and the deadline of the
    /// service.
    fn server_turn(&self) -> Option<(Instant, ActivityId, EventRank)> {
        let (event, number) = self.waiting.peek()?;
        let id = ActivityId(number);
        let deadline = self.server?.deadline(self.member(id)?.run_time)?;
        Some((deadline, id, event))
    }

    /// The service that `pick` would begin.
    fn next_service(&self, now: Instant) -> Option<(ActivityId, Service)> {
        let event = self.event_service(now).map(|(_, next)| next);
        event.or_else(|| self.next_job(now))
    }

    /// The service of [`Self::server_turn`], if it goes before all ready activities, with the
    /// deadline.
    fn event_service(&self, now: Instant) -> Option<(Instant, (ActivityId, Service))> {
        let (deadline, id, event) = self.server_turn()?;
        let member = self.member(id)?;
        let service = match member.state {
            State::Ready if !member.fits(now) => return None,
            State::Ready => Service::Job { urgency: deadline.min(member.deadline) },
            _ => Service::Event { urgency: deadline, event },
        };
        if let Some((best, number)) = self.ready.peek() {
            let in_turn = number == id.0;
            if in_turn || best.deadline < deadline {
                return None;
            }
        }
        Some((deadline, (id, service)))
    }

    /// The best ready activity, or one with an event that may overtake it.
    fn next_job(&self, now: Instant) -> Option<(ActivityId, Service)> {
        let Some((best, number)) = self.ready.peek() else {
            let (_, number) = self.spent.peek()?;
            return Some((ActivityId(number), Service::Job { urgency: Instant::FAR }));
        };
        let service = Service::Job { urgency: best.deadline };
        if let Some(((deadline, _), with_event)) = self.eager.peek()
            && !self.has_peers
            && with_event != number
            && deadline == best.deadline
            && self.may_overtake(with_event, now)
        {
            return Some((ActivityId(with_event), service));
        }
        Some((ActivityId(number), service))
    }

    /// Whether all activities of the same deadline before `number` still fit after it.
    fn may_overtake(&self, number: u32, now: Instant) -> bool {
        let Some(order) = self.member(ActivityId(number)).map(Member::order) else { return false };
        let left = |number| self.member(ActivityId(number)).map_or(Span::MAX, |member| member.left);
        let room = order.deadline.since(now);
        let mut sum = left(number);
        let mut overtaken = 0;
        self.ready.all_below(order, &mut |number| {
            sum += left(number);
            overtaken += 1;
            overtaken <= OVERTAKEN_MAX && sum * 2 <= room
        }) && sum * 2 <= room
    }

    /// Starts the service of `id`. The upcall sees its events.
    fn begin(&mut self, now: Instant, (id, service): (ActivityId, Service)) -> ActivityId {
        self.running = Some((id, service));
        let is_handed_off = self.last.replace(id) != Some(id);
        let hand_off = if is_handed_off { self.switch_cost } else { Span::ZERO };
        self.change(id, now, |member| {
            member.state = State::Running;
            // The hand-off is part of the service, and no part of the run time.
            if !member.left.is_zero() {
                member.left += hand_off;
            }
            (member.seen, member.again) = (true, None);
        });
        id
    }

    /// The earliest deadline of the waiting activities, including that of the event server.
    fn most_urgent(&self) -> Option<Instant> {
        let job = self.ready.peek().map(|(order, _)| order.deadline);
        job.into_iter().chain(self.server_turn().map(|(deadline, ..)| deadline)).min()
    }
}

/// Inserts `id` into a queue, moves it, or removes it.
#[inline]
fn place<K: Ord + Copy>(queue: &mut IndexedHeap<K>, id: ActivityId, key: Option<K>) {
    match key {
        Some(key) => queue.set(key, id.0),
        None => queue.remove(id.0),
    }
}

impl Policy for WindowConstrained {
    fn join(&mut self, id: ActivityId, params: &ActivityParams, terms: &Terms, now: Instant) {
        self.members[id.0 as usize] = Some(Member {
            period: params.period,
            offset: params.offset,
            run_time: params.compute(),
            quantum_cost: params.quantum_cost(),
            work_conserving: terms.work_conserving,
            on_demand: terms.on_demand,
            tie: self.created,
            state: State::Idle,
            active: false,
            begun: now,
            window_end: Instant::ZERO,
            deadline: now,
            left: Span::ZERO,
            progress: Progress::new(terms.window.unwrap_or(NO_MISSES)),
            first: None,
            seen: false,
            again: None,
            exhausted: false,
        });
        self.created = self.created.wrapping_add(1);
    }

    fn leave(&mut self, id: ActivityId, now: Instant) {
        self.change(id, now, |member| member.active = false);
        self.members[id.0 as usize] = None;
    }

    fn ready(&mut self, id: ActivityId, job: Ready, now: Instant) {
        self.change(id, now, |member| {
            member.state = State::Ready;
            if !member.active {
                (member.active, member.begun) = (true, job.release);
            }
            member.deadline = job.deadline;
            member.left = member.run_time;
            member.exhausted = false;
        });
    }

    fn first_release(&self, id: ActivityId, at: Instant, now: Instant) -> Instant {
        match self.member(id).filter(|member| self.has_peers && !member.on_demand) {
            Some(member) => member.aligned(at.max(now)),
            None => at,
        }
    }

    fn drops_late_jobs(&self) -> bool {
        true
    }

    fn withdraw(&mut self, id: ActivityId, now: Instant) {
        self.change(id, now, |member| member.state = State::Idle);
    }

    fn suspended(&mut self, id: ActivityId, now: Instant) {
        let ends_window = self.has_peers;
        self.change(id, now, |member| {
            if ends_window && member.active && !member.on_demand {
                member.window_end = member.end_of_window(now);
                member.progress.begin_anew();
            }
            (member.active, member.again) = (false, None);
        });
    }

    fn pick(&mut self, now: Instant) -> Option<ActivityId> {
        self.now = now;
        if let Some((deadline, next)) = self.event_service(now) {
            self.server.as_mut()?.spend(deadline);
            return Some(self.begin(now, next));
        }
        let next = self.next_job(now)?;
        Some(self.begin(now, next))
    }

    fn pick_extra(&mut self, now: Instant, next_release: Instant) -> Option<ActivityId> {
        let ((kind, _), number) = self.idle.peek().filter(|_| !self.has_peers)?;
        let id = ActivityId(number);
        let fits = self.member(id)?.quantum_fits(now, next_release);
        let service = Service::Extra { kind, until: next_release };
        fits.then(|| self.begin(now, (id, service)))
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.spent.is_empty() || self.server_turn().is_some()
    }

    fn best(&self) -> Option<Standing> {
        let (id, service) = self.next_service(self.now)?;
        let member = self.member(id)?;
        let key = match service {
            Service::Job { urgency: Instant::FAR } => KEY_OVER_BUDGET | member.deadline.as_nanos(),
            Service::Job { urgency } | Service::Event { urgency, .. } => urgency.as_nanos(),
            Service::Extra { .. } => return None,
        };
        Some(Standing { id, key, event: Some(member.order().tightness()), first: id })
    }

    /// The key of a job, with the window as it is now.
    fn standing(&self, id: ActivityId, job: Ready, _: Instant) -> Option<Standing> {
        let event = Some(self.member(id)?.order().tightness());
        Some(Standing { id, key: job.deadline.as_nanos(), event, first: id })
    }

    /// The window takes the place of the event, so no activity of an equal deadline preempts.
    fn served(&self, running: ActivityId) -> Option<u64> {
        self.member(running).map(|member| member.order().tightness())
    }

    fn running_key(&self, running: ActivityId, since: Instant, now: Instant) -> Option<u64> {
        let member = self.member(running)?;
        Some(match self.running?.1 {
            Service::Job { .. } if member.left <= now.since(since) => KEY_OVER_BUDGET,
            Service::Job { urgency } | Service::Event { urgency, .. } => urgency.as_nanos(),
            Service::Extra { .. } => EXTRA,
        })
    }

    fn set_domain_share(&mut self, share: Option<Share>, _: Instant) {
        self.has_peers = share.is_some();
    }

    fn tick(&mut self, now: Instant) {
        self.now = now;
    }

    fn gives_way(&mut self, running: ActivityId, since: Instant, now: Instant) -> bool {
        let Some((_, service)) = self.running else { return false };
        let Some(member) = self.member(running) else { return false };
        let outranked = |urgency| self.most_urgent().is_some_and(|waiting| waiting < urgency);
        match service {
            Service::Job { urgency } => {
                let is_spent = member.left <= now.since(since);
                let urgency = if is_spent { Instant::FAR } else { urgency };
                now >= member.deadline || outranked(urgency)
            }
            Service::Event { urgency, .. } => outranked(urgency),
            Service::Extra { kind, until } => {
                let event = kind == Extra::WorkConserving && !self.waiting.is_empty();
                event || self.has_ready() || !member.quantum_fits(now, until)
            }
        }
    }

    fn check_at(&self, running: ActivityId, since: Instant, next_release: Instant) -> Instant {
        let member = self.member(running);
        let at = match (self.running, member) {
            (Some((_, Service::Job { .. })), Some(member)) if member.left.is_zero() => {
                member.deadline
            }
            (Some((_, Service::Job { .. })), Some(member)) => {
                member.deadline.min(since + member.left)
            }
            (Some((_, Service::Extra { until, .. })), Some(member)) => {
                until - member.quantum_cost * 2
            }
            _ => Instant::FAR,
        };
        at.min(next_release)
    }

    fn ran(&mut self, id: ActivityId, used: Span, now: Instant) {
        if let Some((_, Service::Job { .. })) = self.running {
            self.change(id, now, |member| member.left = member.left.saturating_sub(used));
        }
    }

    fn resume(&mut self, id: ActivityId, now: Instant) {
        self.running = None;
        self.change(id, now, |member| member.state = State::Ready);
    }

    fn done(&mut self, id: ActivityId, deadline: Instant, now: Instant) {
        self.running = None;
        self.change(id, now, |member| {
            member.state = State::Idle;
            match now <= deadline {
                true => member.progress.served(),
                false => member.progress.missed(1),
            }
        });
    }

    fn extra_done(&mut self, id: ActivityId, end: ExtraEnd, now: Instant) {
        let event = self.running.take().and_then(|(_, service)| match service {
            Service::Event { event, .. } => Some(event),
            Service::Extra { kind: Extra::Event(event), .. } => Some(event),
            _ => None,
        });
        self.change(id, now, |member| {
            member.state = State::Idle;
            member.exhausted = end == ExtraEnd::Done;
            // The service ended before the handler had dealt with the event.
            member.again = event.filter(|_| end == ExtraEnd::Yielded);
        });
    }

    fn next_event(&self) -> Instant {
        let first = |queue: &IndexedHeap<Order>| queue.peek().map(|(order, _)| order.deadline);
        first(&self.ready).into_iter().chain(first(&self.spent)).min().unwrap_or(Instant::FAR)
    }

    fn overdue(&mut self, now: Instant, choosing: bool) -> Option<ActivityId> {
        let is_lost = |&(order, number): &(Order, u32)| {
            let member = self.member(ActivityId(number));
            let hopeless = choosing && member.is_some_and(|member| !member.fits(now));
            order.deadline <= now || hopeless
        };
        let first = self.ready.peek().filter(is_lost).or_else(|| self.spent.peek().filter(is_lost));
        first.map(|(_, number)| ActivityId(number))
    }

    fn lost(&mut self, id: ActivityId, jobs: u64, now: Instant) {
        self.change(id, now, |member| {
            member.state = State::Idle;
            member.progress.missed(jobs);
        });
    }

    fn posted(&mut self, id: ActivityId, first: EventRank, now: Instant) {
        self.change(id, now, |member| (member.first, member.seen) = (Some(first), false));
    }

    fn taken(&mut self, id: ActivityId, first: Option<EventRank>, now: Instant) {
        self.change(id, now, |member| (member.first, member.seen) = (first, false));
    }

    fn set_switch_cost(&mut self, cost: Span) {
        self.switch_cost = cost;
    }

    fn set_event_share(&mut self, share: Option<Share>, now: Instant) {
        self.server = share.map(|share| Server::new(share, now));
        self.note_waiting(now);
    }

    /// The tests of admission count on the declared rate.
    fn arrival_gap(&self, params: &ActivityParams, _: &Terms) -> Span {
        params.period
    }

    fn window_violations(&self, id: ActivityId) -> Option<u64> {
        self.member(id).map(|member| member.progress.violations())
    }
}
