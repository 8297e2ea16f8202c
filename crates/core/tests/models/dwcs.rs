//! DWCS in its simplest form: no queues, no stored values that can be computed, fractions as
//! fractions. The model also plays the scheduler's part, within the protocol of [`Policy`].

use upcall_core::activity::{ActivityId, ActivityParams, Terms, Window};
use upcall_core::admission::Share;
use upcall_core::policy::dwcs::WindowConstrained;
use upcall_core::policy::{Checked, EventRank, ExtraEnd, Policy, Ready};
use upcall_core::time::{Instant, Span};

/// A task: cost of a PDU in ns, batch, `x`, `y - x`, whether work-conserving.
pub type Task = (u64, u32, u32, u32, bool);

/// An operation: its number, its task, and an amount.
pub type Operation = (u32, u32, u64);

/// The number of operations.
pub const OPERATIONS: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Ready,
    Running,
}

#[derive(Clone, Debug)]
struct Activity {
    cost: u64,
    batch: u32,
    work_conserving: bool,
    window: (u32, u32),
    current: (u32, u32),
    violated: bool,
    history: Vec<bool>,
    state: State,
    active: bool,
    deadline: u64,
    left: u64,
    /// The waiting events.
    events: Vec<EventRank>,
    seen: bool,
    /// The event during whose service the activity yielded.
    again: Option<EventRank>,
    exhausted: bool,
}

/// The running service: a job with its urgency, an event with the server's urgency, or an extra
/// service until an instant, for an event or for work.
#[derive(Clone, Copy, Debug)]
enum Runs {
    Job(u64),
    Served(u64, EventRank),
    Extra(u64, Option<EventRank>),
}

#[derive(Clone, Debug, Default)]
struct Model {
    all: Vec<Activity>,
    running: Option<(usize, Runs)>,
    /// When the running activity was picked.
    since: u64,
    share: Option<u32>,
    spent_until: u64,
    begun: Option<u64>,
    posted: u64,
}

impl Activity {
    fn run_time(&self) -> u64 {
        self.cost * u64::from(self.batch)
    }

    fn outcome(&mut self, served: bool) {
        self.history.push(served);
        let (x, y) = self.current;
        self.current = match served {
            true if y > x => (x, y - 1),
            true => (x - 1, y - 1),
            false if x > 0 => (x - 1, y - 1),
            false => (0, y + 1),
        };
        self.violated |= !served && x == 0;
        if self.current == (0, 0) || (served && self.violated) {
            self.current = self.window;
            self.violated = false;
        }
    }

    fn violations(&self) -> u64 {
        let (x, y) = self.window;
        let misses = |periods: &&[bool]| periods.iter().filter(|&&served| !served).count();
        self.history.chunks(y as usize).filter(|periods| misses(periods) > x as usize).count()
            as u64
    }

    fn wants_extra(&self) -> bool {
        let work = self.work_conserving && !self.exhausted;
        self.state == State::Idle && self.active && (self.event().is_some() || work)
    }

    fn event(&self) -> Option<EventRank> {
        let unseen = if self.seen { None } else { self.events.iter().min() };
        unseen.copied().into_iter().chain(self.again).min()
    }

    fn first(&self) -> Option<EventRank> {
        self.events.iter().min().copied()
    }
}

impl Model {
    /// Whether `a` is served before `b`.
    fn before(&self, a: usize, b: usize) -> bool {
        let (p, q) = (&self.all[a], &self.all[b]);
        if p.deadline != q.deadline {
            return p.deadline < q.deadline;
        }
        let ((x, y), (u, v)) = (p.current, q.current);
        match (x, u) {
            (0, 0) if y != v => y > v,
            (0, 0) => a < b,
            _ if x * v != u * y => x * v < u * y,
            _ if x != u => x < u,
            _ => a < b,
        }
    }

    fn best(&self, of: impl Fn(&Activity) -> bool) -> Option<usize> {
        (0..self.all.len())
            .filter(|&a| of(&self.all[a]))
            .reduce(|a, b| if self.before(a, b) { a } else { b })
    }

    fn ready(&self) -> Option<usize> {
        self.best(|activity| activity.state == State::Ready && activity.left > 0)
    }

    /// The best of those that used the run time of their jobs.
    fn spent(&self) -> Option<usize> {
        self.best(|activity| activity.state == State::Ready && activity.left == 0)
    }

    /// The activity that has an event, does not run and could be served.
    fn with_event(&self) -> Option<usize> {
        self.most_urgent_event(|activity| {
            let idle = activity.state == State::Idle && activity.active;
            idle || (activity.state == State::Ready && activity.left > 0)
        })
    }

    fn most_urgent_event(&self, of: impl Fn(&Activity) -> bool) -> Option<usize> {
        let all = (0..self.all.len()).filter(|&a| of(&self.all[a]));
        all.filter_map(|a| Some((self.all[a].event()?, a))).min().map(|(_, a)| a)
    }

    fn extra(&self) -> Option<usize> {
        self.most_urgent_event(Activity::wants_extra).or_else(|| self.best(Activity::wants_extra))
    }

    /// After every operation: notes since when an event waits for the server.
    fn note(&mut self, now: u64) {
        self.begun = match (self.share, self.with_event()) {
            (Some(_), Some(_)) => Some(self.begun.unwrap_or(now.max(self.spent_until))),
            _ => None,
        };
    }

    fn server_deadline(&self) -> Option<u64> {
        let run_time = self.all[self.with_event()?].run_time();
        Some(self.begun? + (run_time * 1_000_000).div_ceil(u64::from(self.share?)))
    }

    fn most_urgent(&self) -> Option<u64> {
        let ready = self.ready().map(|a| self.all[a].deadline);
        ready.into_iter().chain(self.server_deadline()).min()
    }

    /// The activity that runs next, and the deadline that the server is charged.
    fn pick(&self, now: u64) -> Option<(usize, Runs, Option<u64>)> {
        let best = self.ready();
        if let (Some(first), Some(deadline)) = (self.with_event(), self.server_deadline()) {
            let activity = &self.all[first];
            let is_ready = activity.state == State::Ready;
            let hopeless = is_ready && now + activity.left > activity.deadline;
            let out_of_turn =
                best.is_none_or(|best| best != first && self.all[best].deadline >= deadline);
            if out_of_turn && !hopeless {
                let runs = match is_ready {
                    true => Runs::Job(deadline.min(activity.deadline)),
                    false => Runs::Served(deadline, activity.event()?),
                };
                return Some((first, runs, Some(deadline)));
            }
        }
        let Some(best) = best else { return Some((self.spent()?, Runs::Job(u64::MAX), None)) };
        let deadline = self.all[best].deadline;
        let ready = |a: &Activity| a.state == State::Ready && a.left > 0;
        let due = |a: &Activity| ready(a) && a.deadline == deadline;
        let overtaking = self.most_urgent_event(due).filter(|&eager| {
            let overtaken =
                (0..self.all.len()).filter(|&a| ready(&self.all[a]) && self.before(a, eager));
            let left: u64 = overtaken.map(|a| self.all[a].left).sum();
            let room = deadline.saturating_sub(now);
            let fit = 2 * (left + self.all[eager].left) <= room;
            eager == best || fit
        });
        Some((overtaking.unwrap_or(best), Runs::Job(deadline), None))
    }

    fn begin(&mut self, (a, runs, charge): (usize, Runs, Option<u64>)) {
        if let Some(deadline) = charge {
            (self.spent_until, self.begun) = (deadline, None);
        }
        self.all[a].state = State::Running;
        (self.all[a].seen, self.all[a].again) = (true, None);
        self.running = Some((a, runs));
    }

    fn gives_way(&self, now: u64) -> bool {
        let Some((a, runs)) = self.running else { return false };
        let outranked = |urgency| self.most_urgent().is_some_and(|waiting| waiting < urgency);
        match runs {
            Runs::Job(urgency) => {
                let is_spent = now - self.since >= self.all[a].left;
                let urgency = if is_spent { u64::MAX } else { urgency };
                now >= self.all[a].deadline || outranked(urgency)
            }
            Runs::Served(urgency, _) => outranked(urgency),
            Runs::Extra(until, for_event) => {
                let event_waits =
                    self.all.iter().any(|other| other.wants_extra() && other.event().is_some());
                self.most_urgent().is_some()
                    || self.spent().is_some()
                    || (for_event.is_none() && event_waits)
                    || now + 2 * self.all[a].cost > until
            }
        }
    }
}

/// Applies the operations to the policy and the model, like a scheduler. Panics where they differ.
pub fn compare(tasks: &[Task], share: Option<u32>, operations: &[Operation]) {
    let mut policy = Checked::new(Box::new(WindowConstrained::new(8)), 8);
    let mut model = Model::default();
    let mut now = 0;
    for (&(cost, batch, misses, more, work_conserving), id) in
        tasks.iter().zip((0..).map(ActivityId))
    {
        let window = (misses, misses + more);
        let terms = Terms {
            window: Some(Window { misses, periods: misses + more }),
            work_conserving,
            ..Terms::default()
        };
        let params = ActivityParams::new(Span::from_nanos(100), Span::from_nanos(cost));
        policy.join(id, &params.batch(batch), &terms, Instant::ZERO);
        model.all.push(Activity {
            cost,
            batch,
            work_conserving,
            window,
            current: window,
            violated: false,
            history: Vec::new(),
            state: State::Idle,
            active: false,
            deadline: 0,
            left: 0,
            events: Vec::new(),
            seen: false,
            again: None,
            exhausted: false,
        });
    }
    policy.set_event_share(share.and_then(Share::from_ppm), Instant::ZERO);
    model.share = share;
    for &(operation, number, amount) in operations {
        let a = number as usize % model.all.len();
        let id = ActivityId(u32::try_from(a).unwrap_or(0));
        operate(&mut policy, &mut model, &mut now, operation, id, amount);
        model.note(now);
        agree(&mut policy, &model, now);
    }
}

fn agree(policy: &mut Checked<WindowConstrained>, model: &Model, now: u64) {
    let at = Instant::from_nanos(now);
    let spent = model.spent();
    assert_eq!(policy.has_ready(), model.most_urgent().is_some() || spent.is_some());
    let next = model.ready().into_iter().chain(spent).map(|a| model.all[a].deadline).min();
    assert_eq!(policy.next_event(), next.map_or(Instant::FAR, Instant::from_nanos));
    for (activity, id) in model.all.iter().zip((0..).map(ActivityId)) {
        assert_eq!(policy.window_violations(id), Some(activity.violations()));
    }
    if let Some((a, _)) = model.running {
        let id = ActivityId(u32::try_from(a).unwrap_or(0));
        assert_eq!(
            policy.gives_way(id, Instant::from_nanos(model.since), at),
            model.gives_way(now)
        );
    }
}

fn operate(
    policy: &mut Checked<WindowConstrained>,
    model: &mut Model,
    now: &mut u64,
    operation: u32,
    id: ActivityId,
    amount: u64,
) {
    let a = id.0 as usize;
    let at = Instant::from_nanos(*now);
    match operation {
        // Time passes while the running activity runs.
        0..=2 => *now += amount,
        3..=5 if model.all[a].state == State::Idle => {
            let deadline = *now + 4 * amount + 1;
            policy.ready(id, Ready::new(at, Instant::from_nanos(deadline)), at);
            let activity = &mut model.all[a];
            (activity.state, activity.active, activity.exhausted) = (State::Ready, true, false);
            (activity.deadline, activity.left) = (deadline, activity.run_time());
        }
        6 if model.all[a].state != State::Running => {
            if model.all[a].state == State::Ready {
                policy.withdraw(id, at);
            }
            policy.suspended(id, at);
            (model.all[a].state, model.all[a].active) = (State::Idle, false);
            model.all[a].again = None;
        }
        7 => {
            let activity = &mut model.all[a];
            activity.seen = false;
            if amount.is_multiple_of(3) {
                activity.events.sort();
                let taken = activity.events.len().min(1 + usize::from(amount > 5));
                activity.events.drain(..taken);
                policy.taken(id, activity.first(), at);
            } else {
                model.posted += 1;
                let event = EventRank { rank: amount / 3, posted: model.posted };
                activity.events.push(event);
                policy.posted(id, activity.first().unwrap_or(event), at);
            }
        }
        8..=9 if model.running.is_none() => choose(policy, model, *now, amount),
        10..=11 => finish(policy, model, *now, amount),
        _ => {}
    }
}

fn choose(policy: &mut Checked<WindowConstrained>, model: &mut Model, now: u64, amount: u64) {
    let at = Instant::from_nanos(now);
    let lost = |model: &Model, best: usize| {
        let activity = &model.all[best];
        activity.deadline <= now || now + activity.left > activity.deadline
    };
    while let Some(best) = model
        .ready()
        .filter(|&best| lost(model, best))
        .or(model.spent().filter(|&best| lost(model, best)))
    {
        let activity = &mut model.all[best];
        let id = ActivityId(u32::try_from(best).unwrap_or(0));
        if activity.deadline <= now {
            assert_eq!(policy.overdue(at, false), Some(id));
        }
        assert_eq!(policy.overdue(at, true), Some(id));
        policy.lost(id, 1 + amount, at);
        activity.state = State::Idle;
        (0..=amount).for_each(|_| activity.outcome(false));
        model.note(now);
    }
    assert_eq!(policy.overdue(at, true), None);
    let next_release = now + 3 * amount;
    let picked = model.pick(now);
    let number = |a: usize| ActivityId(u32::try_from(a).unwrap_or(0));
    assert_eq!(policy.pick(at), picked.map(|(a, ..)| number(a)));
    model.since = now;
    if let Some(picked) = picked {
        model.begin(picked);
        return;
    }
    let extra = model.extra().filter(|&a| now + 2 * model.all[a].cost <= next_release);
    let until = Instant::from_nanos(next_release);
    assert_eq!(policy.pick_extra(at, until), extra.map(number));
    if let Some(a) = extra {
        let for_event = model.all[a].event();
        model.begin((a, Runs::Extra(next_release, for_event), None));
    }
}

/// The running handler returns: its batch done, or with some of it left.
fn finish(policy: &mut Checked<WindowConstrained>, model: &mut Model, now: u64, amount: u64) {
    let Some((a, runs)) = model.running.take() else { return };
    let at = Instant::from_nanos(now);
    let id = ActivityId(u32::try_from(a).unwrap_or(0));
    let activity = &mut model.all[a];
    let used = amount.min(now - model.since);
    policy.ran(id, Span::from_nanos(used), at);
    let end = match amount % 4 {
        0 => ExtraEnd::Yielded,
        2 => ExtraEnd::Filled,
        _ => ExtraEnd::Done,
    };
    let more = amount.is_multiple_of(2);
    match runs {
        Runs::Job(_) => {
            activity.left = activity.left.saturating_sub(used);
            if more {
                policy.resume(id, at);
                activity.state = State::Ready;
            } else {
                policy.done(id, Instant::from_nanos(activity.deadline), at);
                activity.state = State::Idle;
                activity.outcome(now <= activity.deadline);
            }
        }
        Runs::Served(_, event) | Runs::Extra(_, Some(event)) => {
            policy.extra_done(id, end, at);
            activity.state = State::Idle;
            activity.exhausted = end == ExtraEnd::Done;
            activity.again = Some(event).filter(|_| end == ExtraEnd::Yielded);
        }
        Runs::Extra(_, None) => {
            policy.extra_done(id, end, at);
            activity.state = State::Idle;
            activity.exhausted = end == ExtraEnd::Done;
        }
    }
}
