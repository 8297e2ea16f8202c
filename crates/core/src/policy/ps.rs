//! PS: proportional share by earliest eligible virtual deadline first
//! (proportional-share-1998 §3, §4.2-4.4; the algorithm is EEVDF, Stoica et al. 1996).
//!
//! An activity is eligible while its lag is not negative, and its rank is its
//! virtual deadline; [`Instance`] keeps both and says what happens to lag when
//! one joins or leaves. Here is what an activity asks of it.
//!
//! **Shares and weights** (§3.2, §4.3). An activity has a fixed share `f`, and is
//! then *real-time*, or a weight `w`, and is *adaptive*; with both, the share
//! holds, with neither, the weight is 1. Let `F` be the sum of the shares and `W_a` of
//! the weights of those who compete. The weight of a real-time activity is to be
//! such that equation (1) of §3 gives it `f`, whatever the total:
//!
//! ```text
//! w_i / (W_a + sum w_j) = f_i   for all real-time i; summed up: sum w_j / (W_a + sum w_j) = F
//! so  W_a + sum w_j = W_a / (1 - F)   and   w_i = f_i W_a / (1 - F)
//! ```
//!
//! So all these weights change with every activity that comes, goes, blocks or
//! wakes. But put into the virtual time of the whole, `dV = dt / (W_a + sum w_j)`,
//! the service such an activity is due is `w_i dV = f_i dt`: the weights cancel
//! out. So they need never be computed. There are two instances, one in the other:
//!
//! ```text
//! top (shares, in millionths):  real-time f_1 .. f_n, and the rest, 1 - F
//! rest (weights):               adaptive  w_1 .. w_m
//! ```
//!
//! In `top` all shares together are the whole, and its virtual time is the service
//! given, to the nanosecond. Nobody who comes, goes, blocks or wakes moves the account of
//! a real-time activity, at no cost. The rest is served as one client, for `1 - F` and
//! for all that real-time activities leave, before these may get more than they
//! are due. What the rest gets, it shares out by weight; the lag of an adaptive
//! activity is to its part of that.
//!
//! Should the shares reach 1, which admission prevents, the rest is left with a
//! millionth and every share shrinks in proportion.
//!
//! **Groups** ([`Group`]). A group is an account in the top, if it claims a share, or in the
//! rest or in another group, by weight. Its members share by weight what it gets, and only
//! that; their lag is to their part of it. To those outside it is one client more, so an
//! overload inside is paid inside. A group that nobody of is ready leaves its part to
//! the others. A group asks for a quantum at a time and is served in the requests of its
//! members, which may be shorter: if its part is `f`, it may be `(1 + f) q` behind.
//!
//! **Who competes** (§3: the active). An activity with a ready or running job.
//! When its jobs are done it leaves, and comes back with the next release as
//! [`Instance`] says: what it was behind is forfeit, what it was ahead is kept
//! until it is paid or the CPU has nothing to do. A job that was waiting behind the
//! one that ended is no new beginning.
//!
//! **Another share or weight** ([`Instance::reweigh`]) holds at once, whatever its owner is
//! at: what it is behind or ahead stays the same amount of service, so that nobody gains or
//! loses by the change itself. The kind stays: a promise is not given or taken back on the
//! way. A larger weight brings the deadline of a request that waits nearer than it was
//! when the others' were fixed. So while changes come about as often as requests end,
//! lags leave the quantum by a few percent of it (`tests/ps_lag.rs`, `docs/results/ps-lag.txt`);
//! EEVDF's bound is for changes where lag is 0. Nothing else is kept: to wait for
//! that, or to forfeit what is behind, would starve who is reweighed often.
//!
//! **Requests and quanta** (§4.2). The CPU goes to one activity for one request,
//! at most the time quantum `q`, and nobody preempts it within. A
//! request ends where the handler can be preempted: at a boundary of its own
//! quantum of PDUs, its *stretch* here to keep the two apart. So a request is a
//! whole number of stretches, and longer than `q` only if one stretch is. It ends at the
//! boundary after which another stretch might not fit. When a request ends, the next
//! begins with its own deadline; the activity gives way if another comes first
//! then. With all stretches within `q`, no lag leaves `-q ..= q`.
//!
//! **Cost estimates** (§4.3). A request is as long as the job is expected to go
//! on. What is expected is what recent jobs took, smoothed as [`CostEstimate`]
//! does it; before any ended, and once a job has taken more, what was declared;
//! once it has taken that too, a full quantum. A wrong estimate makes its
//! owner's deadlines too early or too late, and its requests too many or too
//! long; neither changes what it is charged or what the others are due. If a
//! stretch turns out longer than declared, the request ran over its end, and others
//! waited: from then on the stretch is taken to be that long, up to `q`, and its owner
//! asked earlier. That is not unlearned.
//!
//! **Hand-offs** are charged to the activity that is handed the CPU, like any
//! time between its upcall and its return.
//!
//! The order is decided at boundaries only, as under RMDP: activities of one CPU
//! share data without locks.

use super::{Policy, Ready};
use crate::activity::{ActivityId, ActivityParams, Claim, GroupId, Terms};
use crate::cost::CostEstimate;
use crate::time::{Instant, Span};
pub(crate) use group::check_groups;
pub use group::{GROUPS_MAX, Group, GroupError};
pub(crate) use group::{group_of, outermost};
pub use instance::{FRACTION_BITS, Instance};

use tree::{REST, TOP, Tree};

mod group;
mod instance;
#[cfg(test)]
mod tests;
mod tree;

/// The time quantum, if nothing else is said: 1 ms (proportional-share-1998 §4.2).
pub const QUANTUM_DEFAULT: Span = Span::from_millis(1);

/// What is served at a time of an activity with such stretches: whole ones that fit
/// into the quantum, at least one.
pub(crate) fn slice(stretch: Span, quantum: Span) -> Span {
    let stretch_ns = stretch.as_nanos().max(1);
    Span::from_nanos((quantum.as_nanos() / stretch_ns * stretch_ns).max(stretch_ns))
}

/// The policy PS of one CPU: who is eligible, and whose virtual deadline is first. [The
/// module](self) says by which rules. A program chooses it by [`PS`] and does not call it.
#[derive(Debug)]
pub struct ProportionalShare {
    quantum: Span,
    slots: Vec<Slot>,
    groups: Vec<Group>,
    tree: Tree,
    running: Option<Running>,
    /// Groups, and activities that ever joined, for ties. Wraps after 4 billion.
    created: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The account it is a client of; real-time in the top, adaptive elsewhere.
    node: usize,
    /// There; in the top a share in millionths.
    weight: u32,
    /// Longest time without a boundary: declared, or longer if found so.
    stretch: Span,
    /// The most `stretch` may grow to.
    stretch_max: Span,
    /// CPU time of a job, declared.
    compute: Span,
    /// CPU time of a job, observed.
    estimate: CostEstimate,
    /// Of the current job.
    used: Span,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    id: ActivityId,
    /// When it was picked.
    since: Instant,
    /// What it was charged since.
    charged: Span,
    /// What of that was before the current request.
    before: Span,
    /// Length of the current request.
    request: Span,
}

impl Slot {
    fn new(stretch: Span, quantum: Span, compute: Span) -> Self {
        let stretch = stretch.max(Span::from_nanos(1));
        let stretch_max = stretch.max(quantum);
        let estimate = CostEstimate::default();
        let (node, weight, used) = (REST, 1, Span::ZERO);
        Slot { node, weight, stretch, stretch_max, compute, estimate, used }
    }

    /// Length of the next request.
    fn request(&self, quantum: Span) -> Span {
        let slice_ns = slice(self.stretch, quantum).as_nanos();
        let (used_ns, declared_ns) = (self.used.as_nanos(), self.compute.as_nanos());
        let expected_ns = self.estimate.mean().map_or(declared_ns, Span::as_nanos);
        let left_ns = if used_ns < expected_ns {
            expected_ns - used_ns
        } else if used_ns < declared_ns {
            declared_ns - used_ns
        } else {
            slice_ns
        };
        // Never less than a stretch: who is served for longer than it asked for takes
        // it from the others.
        let stretch_ns = self.stretch.as_nanos();
        Span::from_nanos(left_ns.div_ceil(stretch_ns).saturating_mul(stretch_ns).min(slice_ns))
    }

    /// How much of a request may be used before boundaries are of interest: up to
    /// there, another stretch fits.
    fn unasked(&self, request: Span) -> Span {
        request.saturating_sub(self.stretch)
    }
}

impl ProportionalShare {
    /// For activities numbered `0..capacity`, served for at most `quantum` at a
    /// time. Takes all memory it will ever need.
    pub fn new(capacity: u32, quantum: Span) -> Self {
        ProportionalShare::with_groups(capacity, quantum, &[])
    }

    /// The same with groups, each behind its parent.
    pub fn with_groups(capacity: u32, quantum: Span, groups: &[Group]) -> Self {
        let quantum = quantum.max(Span::from_nanos(1));
        ProportionalShare {
            quantum,
            slots: vec![Slot::new(Span::ZERO, quantum, Span::ZERO); capacity as usize],
            groups: groups.to_vec(),
            tree: Tree::new(capacity, quantum, groups),
            running: None,
            // Groups come first.
            created: u32::try_from(groups.len()).unwrap_or(0),
        }
    }

    /// How far a group is behind its part, as [`Policy::lag_ns`] says it of an activity;
    /// `None` if there is no such group, or it has a share and no member here. O(depth).
    pub fn group_lag_ns(&self, group: GroupId, now: Instant) -> Option<i64> {
        let node = Tree::of_group(usize::from(group.0));
        let (serving, pending) = self.pending(now);
        self.tree.account_lag_ns(node, serving, pending)
    }

    /// Who runs, and what it had that is not charged yet.
    fn pending(&self, now: Instant) -> (Option<(usize, u32)>, Span) {
        let Some(running) = self.running else { return (None, Span::ZERO) };
        let pending = now.since(running.since).saturating_sub(running.charged);
        (Some((self.slot(running.id).node, running.id.0)), pending)
    }

    fn slot(&self, id: ActivityId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    fn slot_mut(&mut self, id: ActivityId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }

    /// Hands in the next request of `id`, which has a job.
    fn enqueue(&mut self, id: ActivityId) {
        let slot = self.slot(id);
        let (node, request) = (slot.node, slot.request(self.quantum));
        self.tree.request(node, id.0, request);
    }

    /// `id` has no job.
    fn retire(&mut self, id: ActivityId) {
        let node = self.slot(id).node;
        self.tree.retire(node, id.0);
        if self.running.is_none() {
            self.tree.settle(node);
        }
    }

    /// Who runs does not any more; a request of it follows, or its end.
    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.tree.put_back(self.slot(running.id).node);
        }
    }

    /// Charges the running activity, which has had `used` since it was picked.
    fn charge(&mut self, used: Span) {
        let Some(running) = &mut self.running else { return };
        let id = running.id;
        let uncharged = used.saturating_sub(running.charged);
        running.charged += uncharged;
        self.slot_mut(id).used += uncharged;
        let node = self.slot(id).node;
        self.tree.charge(node, id.0, uncharged);
    }

    /// Brings the accounts to `now`, before anyone joins or leaves.
    fn sync(&mut self, now: Instant) {
        if let Some(running) = self.running {
            self.charge(now.since(running.since));
        }
    }

    /// Whether the running activity's request is over at this boundary. If it ran
    /// over its end, its stretch is longer than was thought: at least as long as
    /// from where it was asked to here.
    fn request_is_over(&mut self, running: Running) -> bool {
        let used = running.charged.saturating_sub(running.before);
        let unasked = self.slot(running.id).unasked(running.request);
        if used <= unasked {
            return false;
        }
        if used > running.request {
            let slot = self.slot_mut(running.id);
            let found = used.saturating_sub(unasked).min(slot.stretch_max);
            slot.stretch = slot.stretch.max(found);
        }
        true
    }
}

/// Numbers are below the capacity, as the trait's rules say.
impl Policy for ProportionalShare {
    fn join(&mut self, id: ActivityId, params: &ActivityParams, terms: &Terms, now: Instant) {
        self.sync(now);
        let (node, weight) = match (group_of(terms, &self.groups), terms.share) {
            (None, Some(share)) => (TOP, share.ppm()),
            (None, None) => (REST, terms.weight.unwrap_or(1)),
            (Some(group), _) => (Tree::of_group(group), terms.weight.unwrap_or(1)),
        };
        let slot = Slot::new(params.quantum_cost(), self.quantum, params.compute());
        *self.slot_mut(id) = Slot { node, weight, ..slot };
        self.tree.note_stretch(node, slot.stretch);
        self.tree.join(node, id.0, weight, self.created);
        self.created = self.created.wrapping_add(1);
    }

    fn leave(&mut self, id: ActivityId, now: Instant) {
        self.sync(now);
        let Slot { node, weight, .. } = *self.slot(id);
        self.tree.leave(node, id.0, weight);
    }

    fn reweigh(&mut self, id: ActivityId, claim: Claim, now: Instant) {
        let Slot { node, weight: before, .. } = *self.slot(id);
        let weight = match claim {
            Claim::Share(share) if node == TOP => share.ppm(),
            Claim::Weight(weight) if node != TOP => weight,
            Claim::Share(_) | Claim::Weight(_) => return,
        };
        self.sync(now);
        self.slot_mut(id).weight = weight;
        self.tree.reweigh(node, id.0, before, weight);
    }

    fn ready(&mut self, id: ActivityId, _: Ready, now: Instant) {
        self.sync(now);
        self.enqueue(id);
    }

    fn withdraw(&mut self, id: ActivityId, now: Instant) {
        self.sync(now);
        self.slot_mut(id).used = Span::ZERO;
        self.retire(id);
    }

    fn pick(&mut self, now: Instant) -> Option<ActivityId> {
        let id = ActivityId(self.tree.choose()?);
        let Slot { node, .. } = *self.slot(id);
        let request = self.slot(id).request(self.quantum);
        self.tree.take(node, id.0);
        let (charged, before) = (Span::ZERO, Span::ZERO);
        self.running = Some(Running { id, since: now, charged, before, request });
        Some(id)
    }

    fn has_ready(&self) -> bool {
        self.tree.has_ready()
    }

    fn gives_way(&mut self, _: ActivityId, _: Instant, now: Instant) -> bool {
        self.sync(now);
        let Some(running) = self.running else { return false };
        if !self.request_is_over(running) {
            return false;
        }
        // Its next request competes with what is ready.
        let id = running.id;
        self.stop();
        self.enqueue(id);
        let stays = self.tree.choose() == Some(id.0);
        let node = self.slot(id).node;
        let request = self.slot(id).request(self.quantum);
        self.tree.take(node, id.0);
        self.running = Some(Running { before: running.charged, request, ..running });
        !stays
    }

    fn check_at(&self, _: ActivityId, since: Instant, next_release: Instant) -> Instant {
        let Some(running) = self.running else { return next_release };
        let unasked = self.slot(running.id).unasked(running.request);
        let over = since + running.before + unasked + Span::from_nanos(1);
        over.min(next_release)
    }

    fn ran(&mut self, _: ActivityId, used: Span, _: Instant) {
        self.charge(used);
        self.stop();
    }

    fn resume(&mut self, id: ActivityId, _: Instant) {
        self.enqueue(id);
    }

    fn done(&mut self, id: ActivityId, _: Instant, _: Instant) {
        let slot = self.slot_mut(id);
        let used = core::mem::replace(&mut slot.used, Span::ZERO);
        slot.estimate.observe(used, 1);
        self.retire(id);
    }

    fn lag_ns(&self, id: ActivityId, now: Instant) -> Option<i64> {
        let slot = self.slots.get(id.0 as usize)?;
        let (serving, pending) = self.pending(now);
        self.tree.lag_ns(slot.node, id.0, serving, pending)
    }
}
