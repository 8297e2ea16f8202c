//! PS: proportional share by earliest eligible virtual deadline first (proportional-share-1998 §3,
//! §4.2-4.4; the algorithm is EEVDF, Stoica et al. 1996).
//!
//! An activity is eligible while its lag is not negative. Its rank is its virtual deadline.
//! [`Instance`] keeps both, and defines what happens to lag when an activity joins or leaves. This
//! module defines what an activity requests from it.
//!
//! **Shares and weights** (§3.2, §4.3). A *real-time* activity has a fixed share `f`; an *adaptive*
//! one has a weight `w`. If an activity has both, the share counts; with neither, its weight is 1.
//! Let `F` be the sum of the shares and `W_a` the sum of the weights of the competing activities.
//! The weight of a real-time activity must be such that equation (1) of §3 gives it `f`, whatever
//! the total:
//!
//! ```text
//! w_i / (W_a + sum w_j) = f_i   for all real-time i; summed up: sum w_j / (W_a + sum w_j) = F
//! so  W_a + sum w_j = W_a / (1 - F)   and   w_i = f_i W_a / (1 - F)
//! ```
//!
//! All these weights change whenever an activity comes, goes, blocks or wakes. But in the virtual
//! time of the whole, `dV = dt / (W_a + sum w_j)`, a real-time activity is due the service
//! `w_i dV = f_i dt`: the weights cancel out. Therefore the policy never computes them. There are
//! two instances, one inside the other:
//!
//! ```text
//! top (shares, in millionths):  real-time f_1 .. f_n, and the rest, 1 - F
//! rest (weights):               adaptive  w_1 .. w_m
//! ```
//!
//! In `top`, all shares together are the whole, and the virtual time is the service given, to the
//! nanosecond. The account of a real-time activity does not change when another activity comes,
//! goes, blocks or wakes, and this costs nothing. The rest is served as one client. It gets
//! `1 - F`. It also gets the time that real-time activities leave, before real-time activities may
//! get more than they are due. The rest divides its service by weight. The lag of an adaptive
//! activity is relative to its part of that service.
//!
//! Admission keeps the sum of the shares below 1. If the sum reached 1, the rest would keep one
//! millionth, and every share would shrink in proportion.
//!
//! **Groups** ([`Group`]). A group with a share is an account in the top. A group with a weight is
//! an account in the rest or in another group. Its members divide its service by weight, and get
//! only that; their lag is relative to their part of it. For activities outside, a group is one
//! more client, so an overload inside a group affects only its members. A group with no ready
//! member cedes its part to the others. A group requests one quantum at a time. It is served in the
//! requests of its members, which may be shorter: with a part `f`, a group may be `(1 + f) q`
//! behind.
//!
//! **Competing activities** (§3 calls them *active*). An activity competes while it has a ready or
//! running job. When its jobs are done it leaves, and it returns with the next release as
//! [`Instance`] describes. An activity that was behind forfeits its lag. An activity that was ahead
//! keeps its debt until the debt is paid or the CPU has nothing to do. A job that waited behind the
//! one that ended does not count as a return.
//!
//! **Activities on demand** (tasks, handlers of streams) are released by the arrival of a message,
//! and compete while they have one. Their requests follow from the estimate, as for all others. An
//! adaptive one is released as often as messages come: others wait for it no longer than for one
//! that never blocks. The messages of an activity with a share of its own are a period apart
//! ([`Policy::arrival_gap`]), because its promised response counts on that.
//!
//! **Another share or weight** ([`Instance::reweigh`]) holds at once, in every state. The lag stays
//! the same amount of service, so no activity gains or loses by the change itself. The kind of the
//! claim stays the same, so a change neither adds nor removes a promise. A larger weight moves the
//! deadline of a waiting request closer than it was when the deadlines of the others were set. If
//! changes are about as frequent as ends of requests, lags exceed the quantum by a few percent of
//! the quantum (`tests/ps_lag.rs`, `docs/results/ps-lag.txt`). The bound of EEVDF is for changes at
//! a lag of 0. If a change waited for a lag of 0, or forfeited the lag, activities that are
//! reweighed often would starve.
//!
//! **Requests and quanta** (§4.2). The CPU goes to one activity for one request of at most the time
//! quantum `q`, without preemption. A request ends where the handler can be preempted: at a
//! boundary of its own quantum of PDUs. That quantum is called its *stretch* here, to distinguish
//! the two. So a request is a whole number of stretches, and longer than `q` only if a single
//! stretch is. It ends at the boundary after which another stretch might not fit. When a request
//! ends, the next one begins with its own deadline, and the activity gives way if another activity
//! goes first then. A handler may return within its request because another thread woke a task or
//! asked for something. Then it is picked again for the rest of the request. So no thread can cause
//! hand-offs that admission does not know. If all stretches are within `q`, all lags stay within
//! `-q ..= q`.
//!
//! **Cost estimates** (§4.3). A request is as long as the job is expected to continue. The
//! expectation is the time that recent jobs took, smoothed by [`CostEstimate`]. Before the first
//! job has ended, and once the current job has taken more than the expectation, the declared cost
//! replaces it. Once the job has taken more than the declared cost, the request is a full quantum.
//! A wrong estimate makes the deadlines of its activity too early or too late, and the requests too
//! many or too long. The charge to the activity and the service due to the others stay correct. If
//! a stretch turns out longer than declared, the request ran over its end while others waited. From
//! then on the policy assumes that length, up to `q`, and checks the activity earlier. The policy
//! does not reduce the length again.
//!
//! **Hand-offs** are charged to the activity that gets the CPU, like any time between its upcall
//! and its return.
//!
//! **Several processes.** Each process of a CPU, a *domain*, has a policy of its own. Above them
//! are the *domain accounts* ([`DomainAccounts`]): one more instance, whose clients are the
//! domains. A domain has the shares of its activities, and by its weights a part of what all shares
//! leave ([`Parts`]). This policy divides that part ([`Policy::set_domain_share`]):
//! its `top` is then the part of the domain, and not the whole CPU. So the virtual time of a domain
//! is the service of the domain, and it needs to know nothing of the others. A group may have
//! members in several domains: this policy then has the part of the group that the weights of its
//! own members are of all ([`Policy::set_group_part`]). The domain is served
//! in the requests of its activities ([`Policy::next_request`]): at the end of a request the
//! domains are compared, so the running activity gives way then. Each level keeps the bound on
//! lags. With a part `p` of what its domain gets, an activity may be `(1 + p) q` behind its part of
//! the CPU.
//!
//! The order is decided at boundaries only, as under RMDP. So activities of one CPU share data
//! without locks.

use super::{Policy, Ready};
use crate::activity::{ActivityId, ActivityParams, Claim, GroupId, Terms};
use crate::cost::CostEstimate;
use crate::share::Share;
use crate::time::{Instant, Span};
pub use domains::DomainAccounts;
pub(crate) use group::group_of;
pub use group::{GROUPS_MAX, Group, GroupError, check_groups, outermost};
pub use instance::{FRACTION_BITS, Instance};
pub use parts::{DomainClaim, Parts};
pub use turns::{Choice, ORDINARY, TurnAccounts, TurnState};

use tree::{REST, TOP, Tree};

mod domains;
mod group;
mod instance;
mod parts;
#[cfg(test)]
mod tests;
mod tree;
mod turns;

/// The default time quantum: 1 ms (proportional-share-1998 §4.2).
pub const QUANTUM_DEFAULT: Span = Span::from_millis(1);

/// The length of a full request of an activity with such stretches: whole stretches that fit into
/// the quantum, at least one.
pub(crate) fn slice(stretch: Span, quantum: Span) -> Span {
    let stretch_ns = stretch.as_nanos().max(1);
    Span::from_nanos((quantum.as_nanos() / stretch_ns * stretch_ns).max(stretch_ns))
}

/// The key by which a domain shows other processes that it requests `request`: a longer request has
/// a smaller key, so the best of several is the longest one. Below the keys of work that admission
/// promises nothing (`1 << 61`).
pub fn request_key(request: Span) -> u64 {
    REQUEST_KEYS - request.as_nanos().min(REQUEST_KEYS)
}

/// The request that a domain shows by this key.
pub fn request_of_key(key: u64) -> Span {
    Span::from_nanos(REQUEST_KEYS.saturating_sub(key))
}

/// The key of a request of 0.
const REQUEST_KEYS: u64 = 1 << 60;

/// The policy PS of one CPU. It decides which activity is eligible and has the earliest virtual
/// deadline; [the module](self) describes the rules. A program selects it by
/// [`PS`](crate::discipline::PS) and does not call it.
#[derive(Debug)]
pub struct ProportionalShare {
    quantum: Span,
    slots: Vec<Slot>,
    groups: Vec<Group>,
    tree: Tree,
    running: Option<Running>,
    /// The activity whose handler returned within its request, and what the request has left.
    cut: Option<(ActivityId, Span)>,
    /// Whether other domains share the CPU, so that they are compared when a request ends.
    has_peers: bool,
    /// The number of groups, plus how many activities ever joined, for ties. Wraps after 4 billion.
    created: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The account of which the activity is a client: the top for real-time activities, another
    /// account for adaptive activities.
    node: usize,
    /// The weight of the activity in that account; in the top a share in millionths.
    weight: u32,
    /// The longest time without a boundary: as declared, or longer if observed so.
    stretch: Span,
    /// The upper limit of `stretch`.
    stretch_max: Span,
    /// The declared CPU time of a job.
    compute: Span,
    /// The observed CPU time of a job.
    estimate: CostEstimate,
    /// CPU time that the current job has used.
    used: Span,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    id: ActivityId,
    /// When it was picked.
    since: Instant,
    /// The time that it was charged since then.
    charged: Span,
    /// The part of `charged` from before the current request.
    before: Span,
    /// The length of the current request.
    request: Span,
    /// Whether the policy told it to give way.
    gives_way: bool,
}

impl Slot {
    fn new(stretch: Span, quantum: Span, compute: Span) -> Self {
        let stretch = stretch.max(Span::from_nanos(1));
        let stretch_max = stretch.max(quantum);
        let estimate = CostEstimate::default();
        let (node, weight, used) = (REST, 1, Span::ZERO);
        Slot { node, weight, stretch, stretch_max, compute, estimate, used }
    }

    /// The length of the next request.
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
        // Never less than a stretch: service beyond the request would be at the expense of the
        // others.
        let stretch_ns = self.stretch.as_nanos();
        Span::from_nanos(left_ns.div_ceil(stretch_ns).saturating_mul(stretch_ns).min(slice_ns))
    }

    /// The used time up to which a boundary cannot end the request, because another stretch still
    /// fits.
    fn unasked(&self, request: Span) -> Span {
        request.saturating_sub(self.stretch)
    }
}

impl ProportionalShare {
    /// A policy for activities numbered `0..capacity`, each served for at most `quantum` at a time.
    /// Takes all memory that it will ever need.
    pub fn new(capacity: u32, quantum: Span) -> Self {
        ProportionalShare::with_groups(capacity, quantum, &[])
    }

    /// Like [`Self::new`], with groups. Each group comes after its parent.
    pub fn with_groups(capacity: u32, quantum: Span, groups: &[Group]) -> Self {
        let quantum = quantum.max(Span::from_nanos(1));
        ProportionalShare {
            quantum,
            slots: vec![Slot::new(Span::ZERO, quantum, Span::ZERO); capacity as usize],
            groups: groups.to_vec(),
            tree: Tree::new(capacity, quantum, groups),
            running: None,
            cut: None,
            has_peers: false,
            // Groups come first.
            created: u32::try_from(groups.len()).unwrap_or(0),
        }
    }

    /// How far a group is behind its part, in the terms of [`Policy::lag_ns`]. `None` if there is
    /// no such group, or if it has a share and no member here. O(depth).
    pub fn group_lag_ns(&self, group: GroupId, now: Instant) -> Option<i64> {
        let node = Tree::of_group(usize::from(group.0));
        let (serving, pending) = self.pending(now);
        self.tree.account_lag_ns(node, serving, pending)
    }

    /// The account and number of the running activity, and its time that is not charged yet.
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

    /// Enters the next request of `id`, which has a job.
    fn enqueue(&mut self, id: ActivityId) {
        let slot = self.slot(id);
        let (node, request) = (slot.node, slot.request(self.quantum));
        self.tree.request(node, id.0, request);
    }

    /// Removes `id`, which has no job, from the competition.
    fn retire(&mut self, id: ActivityId) {
        let node = self.slot(id).node;
        self.tree.retire(node, id.0);
    }

    /// Ends the service of the running activity. The caller then enters its next request or retires
    /// it.
    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.tree.put_back(self.slot(running.id).node);
        }
    }

    /// Charges the running activity, which has used `used` since it was picked.
    fn charge(&mut self, used: Span) {
        let Some(running) = &mut self.running else { return };
        let id = running.id;
        let uncharged = used.saturating_sub(running.charged);
        running.charged += uncharged;
        self.slot_mut(id).used += uncharged;
        let node = self.slot(id).node;
        self.tree.charge(node, id.0, uncharged);
    }

    /// Brings the accounts to `now`, before an activity joins or leaves.
    fn sync(&mut self, now: Instant) {
        if let Some(running) = self.running {
            self.charge(now.since(running.since));
        }
    }

    /// What is left of the request of the running activity, if it returned before the end of the
    /// request by itself.
    fn left_of_request(&self) -> Option<(ActivityId, Span)> {
        let running = self.running.filter(|running| !running.gives_way)?;
        let used = running.charged.saturating_sub(running.before);
        let is_within = used <= self.slot(running.id).unasked(running.request);
        is_within.then(|| (running.id, running.request.saturating_sub(used)))
    }

    /// Whether the request of the running activity is over at this boundary. If the activity ran
    /// past the end of its request, its stretch is longer than assumed: at least as long as the
    /// time used beyond [`Slot::unasked`].
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

/// Activity numbers are below the capacity, as the trait requires.
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
        self.cut = self.cut.filter(|(cut, _)| *cut != id);
        self.slot_mut(id).used = Span::ZERO;
        self.retire(id);
    }

    fn pick(&mut self, now: Instant) -> Option<ActivityId> {
        self.tree.settle();
        let (id, request) = match self.cut.take() {
            Some(cut) => cut,
            None => {
                let id = ActivityId(self.tree.choose()?);
                (id, self.slot(id).request(self.quantum))
            }
        };
        let Slot { node, .. } = *self.slot(id);
        self.tree.take(node, id.0);
        let (charged, before, gives_way) = (Span::ZERO, Span::ZERO, false);
        self.running = Some(Running { id, since: now, charged, before, request, gives_way });
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
        // The next request of the activity competes with the ready ones.
        let id = running.id;
        self.stop();
        self.enqueue(id);
        let stays = !self.has_peers && self.tree.choose() == Some(id.0);
        let node = self.slot(id).node;
        let request = self.slot(id).request(self.quantum);
        self.tree.take(node, id.0);
        let (before, gives_way) = (running.charged, !stays);
        self.running = Some(Running { before, request, gives_way, ..running });
        gives_way
    }

    fn check_at(&self, _: ActivityId, since: Instant, next_release: Instant) -> Instant {
        let Some(running) = self.running else { return next_release };
        let unasked = self.slot(running.id).unasked(running.request);
        let over = since + running.before + unasked + Span::from_nanos(1);
        over.min(next_release)
    }

    fn ran(&mut self, _: ActivityId, used: Span, _: Instant) {
        self.charge(used);
        self.cut = self.left_of_request();
        self.stop();
    }

    fn resume(&mut self, id: ActivityId, _: Instant) {
        match self.cut {
            Some((_, left)) => self.tree.request(self.slot(id).node, id.0, left),
            None => self.enqueue(id),
        }
    }

    fn done(&mut self, id: ActivityId, _: Instant, _: Instant) {
        self.cut = None;
        let slot = self.slot_mut(id);
        let used = core::mem::replace(&mut slot.used, Span::ZERO);
        slot.estimate.observe(used, 1);
        self.retire(id);
    }

    fn set_domain_share(&mut self, share: Option<Share>, now: Instant) {
        self.sync(now);
        self.has_peers = share.is_some();
        self.tree.set_whole(share.unwrap_or(Share::WHOLE));
    }

    fn set_group_part(&mut self, group: GroupId, part: Share, now: Instant) {
        self.sync(now);
        self.tree.set_part(usize::from(group.0), part);
    }

    fn next_request(&mut self) -> Option<Span> {
        if let Some((_, left)) = self.cut {
            return Some(left);
        }
        self.tree.settle();
        let id = ActivityId(self.tree.choose()?);
        Some(self.slot(id).request(self.quantum))
    }

    fn request_at_release(&self, id: ActivityId) -> Option<Span> {
        Some(Slot { used: Span::ZERO, ..*self.slot(id) }.request(self.quantum))
    }

    fn is_within_request(&self) -> bool {
        self.cut.is_some()
    }

    /// The response that admission promises to a share counts on the declared rate. Without such a
    /// promise the account alone limits what an activity gets.
    fn arrival_gap(&self, params: &ActivityParams, terms: &Terms) -> Span {
        match group_of(terms, &self.groups) {
            None if terms.share.is_some() => params.period,
            _ => Span::ZERO,
        }
    }

    fn lag_ns(&self, id: ActivityId, now: Instant) -> Option<i64> {
        let slot = self.slots.get(id.0 as usize)?;
        let (serving, pending) = self.pending(now);
        self.tree.lag_ns(slot.node, id.0, serving, pending)
    }
}
