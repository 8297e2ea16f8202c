//! One scheduler of a CPU, and what it shows the others.
//!
//! Without [`crate::SimSpec::split_level`] a CPU has one, with the activities of all domains. With
//! it, a CPU has one for each domain that has activities there. [`super::turns`] compares them, by
//! the same functions as the runtime ([`upcall_shm::user_area::order`]).

use super::machine::count;
use super::running::Running;
use crate::actor::Actor;
use crate::spec::SimSpec;
use upcall_core::activity::ActivityId;
use upcall_core::policy::Standing;
use upcall_core::time::{Instant, Span};
use upcall_core::trace::{Record, Traced};
use upcall_shm::user_area::{Pending, Rank, Rival, order};

#[derive(Debug)]
pub(super) struct Domain {
    /// Its number in the spec.
    pub(super) number: u32,
    /// The number of its process in a trace; 0 if all domains are one process.
    pub(super) process: u16,
    pub(super) scheduler: Traced<Vec<Record>>,
    /// For each [`ActivityId`], the actor.
    pub(super) members: Vec<u32>,
    /// The actors among them that messages release.
    pub(super) on_demand: Vec<u32>,
    /// When its handler comes back from the kernel.
    pub(super) blocked_until: Option<Instant>,
    /// How many faults stop it now.
    pub(super) stops: u32,
    /// The upcall that stopped in the middle.
    pub(super) paused: Option<Running>,
    /// Whether the CPU passes over the domain.
    pub(super) is_away: bool,
    /// The cost of a hand-off, as the scheduler knows it.
    pub(super) switch_cost: Span,
}

impl Domain {
    /// The schedulers of a CPU. Each actor gets its place in one of them.
    pub(super) fn all(spec: &SimSpec, actors: &mut [Actor]) -> Vec<Domain> {
        let processes = spec.processes();
        let mut homes: Vec<(u32, u16, [Vec<u32>; 2])> = Vec::new();
        for (number, actor) in (0u32..).zip(actors) {
            let at = homes
                .iter()
                .position(|(domain, ..)| spec.split_level.is_none() || *domain == actor.domain);
            actor.home = at.unwrap_or(homes.len());
            if at.is_none() {
                let process = processes.iter().position(|&domain| domain == actor.domain);
                let process = process.and_then(|at| u16::try_from(at + 1).ok()).unwrap_or(0);
                homes.push((actor.domain, process, Default::default()));
            }
            let [members, on_demand] = &mut homes[actor.home].2;
            actor.id = ActivityId(count(members.len()));
            members.push(number);
            on_demand.extend(actor.is_on_demand().then_some(number));
        }
        if homes.is_empty() {
            homes.push((0, 0, Default::default()));
        }
        homes.into_iter().map(|home| Domain::new(spec, home)).collect()
    }

    fn new(
        spec: &SimSpec,
        (number, process, [members, on_demand]): (u32, u16, [Vec<u32>; 2]),
    ) -> Self {
        let capacity = count(members.len());
        Domain {
            number,
            process,
            scheduler: match spec.checked {
                true => Traced::new(capacity, &spec.discipline.checked()),
                false => Traced::new(capacity, spec.discipline),
            },
            members,
            on_demand,
            blocked_until: None,
            stops: 0,
            paused: None,
            is_away: false,
            switch_cost: Span::ZERO,
        }
    }

    /// Whether the domain may get the turn.
    pub(super) fn takes_part(&self) -> bool {
        self.blocked_until.is_none() && self.stops == 0 && self.paused.is_none()
    }

    fn order(&self, actors: &[Actor], id: ActivityId) -> u32 {
        actors[self.members[id.0 as usize] as usize].order
    }

    /// The rank among all domains.
    pub(super) fn rank(&self, actors: &[Actor], standing: Standing) -> Rank {
        Rank::of(standing.key, standing.event, self.order(actors, standing.id))
    }

    /// What was ready when the scheduler was last told the time. `knows_since`: with its waiting
    /// time.
    fn ready(&self, actors: &[Actor], knows_since: bool) -> Pending {
        let Some(best) = self.scheduler.best() else { return Pending::NONE };
        let ids = (0..count(self.members.len())).map(ActivityId).filter(|_| knows_since);
        let since = ids.filter_map(|id| self.scheduler.pending_since(id)).min();
        Pending {
            rank: self.rank(actors, best),
            first: self.order(actors, best.first),
            since_ns: since.map_or(0, |since| since.min(self.scheduler.clock()).as_nanos()),
        }
    }

    /// The next release of each activity, and its rank from then on. If the activity will be over
    /// budget, also its release over budget, which the runtime does not show.
    fn slots<'a>(&'a self, actors: &'a [Actor]) -> impl Iterator<Item = (u64, Rank)> + 'a {
        let ids = (0..count(self.members.len())).map(ActivityId);
        let changes = ids.flat_map(|id| {
            let over_budget = self.scheduler.upcoming_over_budget(id);
            self.scheduler.upcoming(id).into_iter().chain(over_budget)
        });
        changes.map(|(at, standing)| (at.as_nanos(), self.rank(actors, standing)))
    }

    /// Under PS: the next release of each activity, and the length of its first request.
    fn requests(&self) -> impl Iterator<Item = (Instant, Span)> + '_ {
        let ids = (0..count(self.members.len())).map(ActivityId);
        ids.filter_map(|id| self.scheduler.request_at_release(id))
    }

    /// Under PS: for how long the domain requests the CPU at `now`. `None` if it has nothing to
    /// run. O(activities of the domain).
    pub(super) fn request(&self, now: Instant) -> Option<Span> {
        let released = self.requests().filter(|(at, _)| *at <= now);
        self.scheduler.domain_request().max(released.map(|(_, length)| length).max())
    }

    /// The next release that the domain shows.
    pub(super) fn next(&self, actors: &[Actor]) -> Option<Instant> {
        let slots = self.slots(actors).map(|(at_ns, _)| Instant::from_nanos(at_ns));
        slots.chain(self.requests().map(|(at, _)| at)).min()
    }

    /// The best rank that was ready or released by `by`. O(activities of the domain).
    pub(super) fn best(&self, actors: &[Actor], knows_since: bool, by: Instant) -> Option<Rank> {
        order::best(self.ready(actors, knows_since), self.slots(actors), by.as_nanos())
    }

    /// How the domain compares with an activity of another domain. O(activities of the domain).
    pub(super) fn rival(
        &self,
        actors: &[Actor],
        knows_since: bool,
        running: Rank,
        by: Instant,
    ) -> Rival {
        let ready = self.ready(actors, knows_since);
        order::rival(ready, self.slots(actors), running, by.as_nanos())
    }
}
