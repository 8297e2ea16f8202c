//! The PS policy by its documentation, over plain nested accounts: which activities compete, how
//! long a request is, where it ends. The property test and the fuzz target give it operations.

use super::ps_instance::Model;
use upcall_core::activity::{ActivityId, ActivityParams, Claim, GroupId, Terms};
use upcall_core::admission::Share;
use upcall_core::cost::CostEstimate;
use upcall_core::policy::ps::{Group, ProportionalShare};
use upcall_core::policy::{Checked, Policy, Ready};
use upcall_core::time::{Instant, Span};

/// The number of activities.
pub const COUNT: u32 = 6;
/// Accounts: the top, the rest for adaptive activities, and from there on groups.
const TOP: usize = 0;
const REST: usize = 1;
/// The account of each activity: three real-time and three adaptive activities.
const FLAT: [usize; 6] = [TOP, TOP, TOP, REST, REST, REST];
/// The account of each activity with groups. Two activities are beside a group in a group, and one
/// is in another group of the rest.
const GROUPED: [usize; 6] = [TOP, REST, 2, 2, 3, 4];
/// For each group, the account above it and its weight in that account; in the top a share.
const GROUPS: [(usize, u32); 3] = [(TOP, 100_000), (2, 2), (REST, 2)];

const QUANTUM_NS: u64 = 1_000_000;
/// The declared stretch of all activities. The real time between two boundaries may be longer.
const STRETCH_NS: u64 = 100_000;
/// The shares that a real-time activity may ask for; their sum stays below the whole.
const SHARES_PPM: [u32; 3] = [100_000, 200_000, 250_000];
const WEIGHTS: [u32; 3] = [1, 1, 2];
const BATCHES: [u32; 6] = [7, 7, 7, 25, 25, 25];

const JOB: Ready = Ready::new(Instant::ZERO, Instant::FAR);

/// The operations. Invalid ones are skipped.
#[derive(Clone, Debug)]
pub enum Op {
    /// An idle activity gets a job.
    Release(u32),
    /// A ready activity is suspended.
    Withdraw(u32),
    /// An idle activity leaves.
    Leave(u32),
    /// An activity that left joins again, with another share or weight.
    Join(u32, u32),
    /// An activity claims another share or weight, in any state.
    Reweigh(u32, u32),
    /// The CPU goes to the next activity; or the running one continues for this long and reaches a
    /// boundary.
    Run(u64),
    /// The handler returns by itself after this long, within its request, and is picked again.
    Cut(u64),
    /// The job ends after this long; if `true`, the next job waited.
    Done(u64, bool),
}

/// The state of an activity that joined.
#[derive(Clone, Copy, Debug)]
struct Member {
    claim: u32,
    declared_ns: u64,
    stretch_ns: u64,
    used_ns: u64,
    estimate: CostEstimate,
    ready: bool,
}

impl Member {
    /// Whole stretches for the rest of the job's expected time, at most a quantum.
    fn request_ns(&self) -> u64 {
        let most_ns = QUANTUM_NS / self.stretch_ns * self.stretch_ns;
        let expected_ns = self.estimate.mean().map_or(self.declared_ns, Span::as_nanos);
        let left_ns = [expected_ns, self.declared_ns]
            .into_iter()
            .find_map(|end_ns| end_ns.checked_sub(self.used_ns).filter(|&left_ns| left_ns > 0));
        let stretches = left_ns.unwrap_or(most_ns).div_ceil(self.stretch_ns);
        (stretches * self.stretch_ns).min(most_ns)
    }
}

/// The running activity, how long its request has run, and the length of the request.
#[derive(Clone, Copy, Debug)]
struct Running {
    number: u32,
    since: Instant,
    in_request_ns: u64,
    request_ns: u64,
}

#[derive(Clone)]
struct Node {
    account: Model,
    parent: usize,
    /// The weight of the account in the account above; in the top a share.
    weight: u32,
    members: u32,
}

#[derive(Clone)]
struct ModelPolicy {
    nodes: Vec<Node>,
    node_of_activity: [usize; COUNT as usize],
    members: [Option<Member>; COUNT as usize],
    running: Option<Running>,
    created: u32,
}

/// The number of an account among the clients of the one above.
fn client_of(node: usize) -> u32 {
    COUNT + u32::try_from(node).expect("a few") - 1
}

/// Groups come before all activities.
fn tie_of(node: usize) -> u32 {
    u32::try_from(node).expect("a few") - 2
}

impl ModelPolicy {
    fn new(grouped: bool) -> Self {
        let capacity = COUNT as usize + 1 + GROUPS.len();
        let (members, parent) = (0, TOP);
        // Multiples of the divisors: the shares, and what they leave to the rest.
        let mut top = Model::new(capacity, true, 1_000_000 * 720_720i128.pow(3));
        top.join(client_of(REST), 1_000_000, u32::MAX);
        let of_weights = Model::new(capacity, false, 12i128.pow(18));
        let mut nodes = vec![Node { account: top, parent, weight: 0, members }];
        let below = [(TOP, 1_000_000)].into_iter().chain(GROUPS.into_iter().filter(|_| grouped));
        nodes.extend(below.map(|(parent, weight)| {
            let account = of_weights.clone();
            Node { account, parent, weight, members }
        }));
        // A group with a weight exists from the start.
        for node in 2..nodes.len() {
            let Node { parent, weight, .. } = nodes[node];
            if parent != TOP {
                nodes[parent].account.join(client_of(node), weight, tie_of(node));
            }
        }
        let node_of_activity = if grouped { GROUPED } else { FLAT };
        let created = u32::try_from(nodes.len()).expect("a few");
        ModelPolicy { nodes, node_of_activity, members: [None; 6], running: None, created }
    }

    fn of(&mut self, number: u32) -> &mut Member {
        self.members[number as usize].as_mut().expect("it joined")
    }

    fn is_running(&self, number: u32) -> bool {
        self.running.is_some_and(|running| running.number == number)
    }

    fn node(&self, number: u32) -> usize {
        self.node_of_activity[number as usize]
    }

    fn is_real_time(&self, number: u32) -> bool {
        self.node(number) == TOP
    }

    /// The accounts from an account up to the top, each with its client number above.
    fn path(&self, node: usize) -> Vec<usize> {
        let mut path = vec![node];
        while let Some(&node) = path.last().filter(|&&node| node != TOP) {
            path.push(self.nodes[node].parent);
        }
        path
    }

    fn weigh_rest(&mut self) {
        let alone = (0..COUNT).filter(|&number| self.is_real_time(number));
        let of_members = alone.filter_map(|number| self.members[number as usize]);
        let shares_ppm: u32 = of_members.map(|member| member.claim).sum();
        let groups = self.nodes[2..].iter().filter(|node| node.parent == TOP && node.members > 0);
        let of_groups: u32 = groups.map(|node| node.weight).sum();
        self.nodes[TOP].account.reweigh(client_of(REST), 1_000_000 - shares_ppm - of_groups);
    }

    fn enter(&mut self, node: usize, client: u32, weight: u32, tie: u32) {
        for above in self.path(node).into_iter().filter(|&above| above > REST) {
            self.nodes[above].members += 1;
            if self.nodes[above].members == 1 && self.nodes[above].parent == TOP {
                self.enter(TOP, client_of(above), self.nodes[above].weight, tie_of(above));
            }
        }
        if node == TOP {
            self.weigh_rest();
        }
        self.nodes[node].account.join(client, weight, tie);
    }

    /// The rest gets a share that leaves, and owes what the share used in advance.
    fn exit(&mut self, node: usize, client: u32) {
        let ahead_ns = self.nodes[node].account.lag_ns(client).unwrap_or(0).min(0).unsigned_abs();
        self.nodes[node].account.leave(client);
        if node == TOP {
            self.weigh_rest();
            self.nodes[TOP].account.inherit(client_of(REST), ahead_ns);
        }
        for above in self.path(node).into_iter().filter(|&above| above > REST) {
            self.nodes[above].members -= 1;
            if self.nodes[above].members == 0 && self.nodes[above].parent == TOP {
                self.exit(TOP, client_of(above));
            }
        }
    }

    fn join(&mut self, number: u32, claim: u32) {
        let declared_ns = u64::from(BATCHES[number as usize]) * STRETCH_NS;
        let estimate = CostEstimate::default();
        let (stretch_ns, used_ns, ready) = (STRETCH_NS, 0, false);
        self.members[number as usize] =
            Some(Member { claim, declared_ns, stretch_ns, used_ns, estimate, ready });
        self.enter(self.node(number), number, claim, self.created);
        self.created += 1;
    }

    fn reweigh(&mut self, number: u32, claim: u32) {
        self.of(number).claim = claim;
        let node = self.node(number);
        self.nodes[node].account.reweigh(number, claim);
        if node == TOP {
            self.weigh_rest();
        }
    }

    fn leave(&mut self, number: u32) {
        self.members[number as usize] = None;
        self.exit(self.node(number), number);
    }

    /// The activity is ready, with its next request.
    fn request(&mut self, number: u32) {
        self.of(number).ready = true;
        let request_ns = self.of(number).request_ns();
        let node = self.node(number);
        self.nodes[node].account.request(number, request_ns);
        self.place(node);
    }

    fn retire(&mut self, number: u32) {
        (self.of(number).ready, self.of(number).used_ns) = (false, 0);
        let node = self.node(number);
        self.nodes[node].account.retire(number);
        self.place(node);
    }

    /// Before a choice: accounts without a ready member begin anew.
    fn settle(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.account.settle());
    }

    /// Every account above follows the one below, unless a member of it is served.
    fn place(&mut self, node: usize) {
        let served = self.running.map(|running| self.path(self.node(running.number)));
        for node in self.path(node) {
            if node == TOP || served.as_ref().is_some_and(|served| served.contains(&node)) {
                return;
            }
            let (ready, client) = (self.nodes[node].account.has_ready(), client_of(node));
            let parent = self.nodes[node].parent;
            let above = &mut self.nodes[parent].account;
            match (ready, above.is_ready(client)) {
                (true, true) => {}
                (true, false) => above.request(client, QUANTUM_NS),
                (false, _) => above.retire(client),
            }
        }
    }

    fn pick(&mut self, now: Instant) -> Option<u32> {
        let top = &mut self.nodes[TOP].account;
        if !top.has_eligible() {
            top.forgive(client_of(REST));
        }
        let mut number = top.pick()?;
        while number >= COUNT {
            number = self.nodes[(number - COUNT) as usize + 1].account.pick()?;
        }
        self.of(number).ready = false;
        let request_ns = self.of(number).request_ns();
        self.running = Some(Running { number, since: now, in_request_ns: 0, request_ns });
        Some(number)
    }

    fn charge(&mut self, ns: u64) {
        let Some(running) = &mut self.running else { return };
        running.in_request_ns += ns;
        let number = running.number;
        self.of(number).used_ns += ns;
        let mut client = number;
        for node in self.path(self.node(number)) {
            self.nodes[node].account.charge(client, ns);
            client = if node == TOP { client } else { client_of(node) };
        }
    }

    /// Whether the request is over at this boundary. A request that ran past its end had a longer
    /// stretch than assumed.
    fn request_is_over(&mut self) -> bool {
        let Some(running) = self.running else { return false };
        let stretch_ns = self.of(running.number).stretch_ns;
        let unasked_ns = running.request_ns.saturating_sub(stretch_ns);
        if running.in_request_ns > running.request_ns {
            let found_ns = (running.in_request_ns - unasked_ns).min(QUANTUM_NS);
            self.of(running.number).stretch_ns = stretch_ns.max(found_ns);
        }
        running.in_request_ns > unasked_ns
    }

    fn is_exact(&self) -> bool {
        self.nodes.iter().all(|node| node.account.exact)
    }

    fn lag_ns(&self, number: u32) -> Option<i64> {
        self.nodes[self.node(number)].account.lag_ns(number)
    }

    fn group_lag_ns(&self, group: usize) -> Option<i64> {
        let node = &self.nodes[group + 2];
        self.nodes[node.parent].account.lag_ns(client_of(group + 2))
    }
}

/// The policy and the model side by side.
struct Both {
    policy: Checked<ProportionalShare>,
    model: ModelPolicy,
    now: Instant,
}

impl Both {
    fn new(grouped: bool) -> Self {
        let model = ModelPolicy::new(grouped);
        let group = |node: &Node| match Share::from_ppm(node.weight) {
            Some(share) if node.parent == TOP => Group { claim: Claim::Share(share), parent: None },
            _ => {
                let parent = node.parent.checked_sub(2).and_then(|group| u16::try_from(group).ok());
                Group { claim: Claim::Weight(node.weight), parent: parent.map(GroupId) }
            }
        };
        let groups: Vec<_> = model.nodes[2..].iter().map(group).collect();
        let quantum = Span::from_nanos(QUANTUM_NS);
        let policy = ProportionalShare::with_groups(COUNT, quantum, &groups);
        let policy = Checked::new(Box::new(policy), COUNT);
        let mut both = Both { policy, model, now: Instant::ZERO };
        for number in 0..COUNT {
            both.join(number, number % 3);
        }
        both
    }

    fn join(&mut self, number: u32, claim: u32) {
        let (ppm, weight) = (SHARES_PPM[claim as usize % 3], WEIGHTS[claim as usize % 3]);
        let is_real_time = self.model.is_real_time(number);
        let group =
            self.model.node(number).checked_sub(2).and_then(|group| u16::try_from(group).ok());
        let terms = match is_real_time {
            true => Terms { share: Share::from_ppm(ppm), ..Terms::default() },
            false => Terms { weight: Some(weight), group: group.map(GroupId), ..Terms::default() },
        };
        let params = ActivityParams::new(Span::from_millis(100), Span::from_nanos(STRETCH_NS));
        let params = params.batch(BATCHES[number as usize]);
        self.policy.join(ActivityId(number), &params, &terms, self.now);
        self.model.join(number, if is_real_time { ppm } else { weight });
    }

    fn reweigh(&mut self, number: u32, claim: u32) {
        let (ppm, weight) = (SHARES_PPM[claim as usize % 3], WEIGHTS[claim as usize % 3]);
        let (claim, number_of_it) = match Share::from_ppm(ppm) {
            Some(share) if self.model.is_real_time(number) => (Claim::Share(share), ppm),
            _ => (Claim::Weight(weight), weight),
        };
        self.policy.reweigh(ActivityId(number), claim, self.now);
        self.model.reweigh(number, number_of_it);
    }

    fn pass(&mut self, ns: u64) {
        self.now += Span::from_nanos(ns);
        self.model.charge(ns);
    }

    fn stop(&mut self, running: Running) {
        let id = ActivityId(running.number);
        self.policy.ran(id, self.now.since(running.since), self.now);
        self.model.running = None;
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Release(number)
            | Op::Withdraw(number)
            | Op::Leave(number)
            | Op::Join(number, _)
                if self.model.is_running(number) => {}
            Op::Join(number, claim) if self.model.members[number as usize].is_none() => {
                self.join(number, claim);
            }
            Op::Reweigh(number, claim) if self.model.members[number as usize].is_some() => {
                self.reweigh(number, claim);
            }
            Op::Release(number) | Op::Withdraw(number) | Op::Leave(number) => {
                let Some(member) = self.model.members[number as usize] else { return };
                let id = ActivityId(number);
                match (op, member.ready) {
                    (Op::Release(_), false) => {
                        self.policy.ready(id, JOB, self.now);
                        self.model.request(number);
                    }
                    (Op::Withdraw(_), true) => {
                        self.policy.withdraw(id, self.now);
                        self.model.retire(number);
                    }
                    (Op::Leave(_), false) => {
                        self.policy.leave(id, self.now);
                        self.model.leave(number);
                    }
                    _ => {}
                }
            }
            Op::Join(..) | Op::Reweigh(..) => {}
            Op::Run(ns) => match self.model.running {
                None => {
                    self.model.settle();
                    let picked = self.policy.pick(self.now);
                    assert_eq!(picked.map(|id| id.0), self.model.pick(self.now));
                }
                Some(running) => {
                    self.pass(ns);
                    self.boundary(running);
                }
            },
            Op::Cut(ns) => {
                let Some(running) = self.model.running else { return };
                let stretch_ns = self.model.of(running.number).stretch_ns;
                let used_ns = running.in_request_ns + ns;
                if used_ns > running.request_ns.saturating_sub(stretch_ns) {
                    return;
                }
                self.pass(ns);
                let id = ActivityId(running.number);
                self.policy.ran(id, self.now.since(running.since), self.now);
                self.policy.resume(id, self.now);
                self.model.settle();
                assert_eq!(self.policy.pick(self.now), Some(id), "another goes first");
                let request_ns = running.request_ns - used_ns;
                let rest = Running { since: self.now, in_request_ns: 0, request_ns, ..running };
                self.model.running = Some(rest);
            }
            Op::Done(ns, another) => {
                let Some(running) = self.model.running else { return };
                self.pass(ns);
                self.stop(running);
                let id = ActivityId(running.number);
                self.policy.done(id, JOB.deadline, self.now);
                let member = self.model.of(running.number);
                member.estimate.observe(Span::from_nanos(member.used_ns), 1);
                self.model.retire(running.number);
                if another {
                    self.policy.ready(id, JOB, self.now);
                    self.model.request(running.number);
                }
            }
        }
    }

    /// At the end of a request, the activity that the model would pick must have the CPU.
    fn boundary(&mut self, running: Running) {
        let id = ActivityId(running.number);
        let over = self.model.request_is_over();
        let mut next = self.model.clone();
        next.running = None;
        next.request(running.number);
        let picked = next.pick(self.now);
        let gives_way = over && picked != Some(running.number);
        let exact = self.model.is_exact() && next.is_exact();
        let found = self.policy.gives_way(id, running.since, self.now);
        assert!(found == gives_way || !exact, "gives way: {found} instead of {gives_way}");
        if !over {
            return;
        }
        self.model = next;
        match (&mut self.model.running, picked) {
            (Some(next), _) if !gives_way => next.since = running.since,
            (_, Some(other)) => {
                // Put back: this was only a check.
                self.model.running = None;
                self.model.request(other);
                self.stop(running);
                self.policy.resume(id, self.now);
                self.model.request(running.number);
            }
            (_, None) => unreachable!("the activity that ran is ready"),
        }
    }
}

/// Applies the operations to the policy and the model, until the model is no longer exact; returns
/// how many it applied. Panics where they differ: in the picked activity, in preemption, or in a
/// lag by more than the rounding.
pub fn compare(grouped: bool, ops: &[Op]) -> usize {
    let mut both = Both::new(grouped);
    for (count, op) in ops.iter().enumerate() {
        both.apply(op);
        if !both.model.is_exact() {
            return count;
        }
        assert_eq!(
            both.policy.has_ready(),
            both.model.members.iter().flatten().any(|member| member.ready)
        );
        for number in 0..COUNT {
            let found = both.policy.lag_ns(ActivityId(number), both.now);
            let expected = both.model.lag_ns(number);
            assert_eq!(found.is_some(), expected.is_some());
            let difference = found.unwrap_or(0) - expected.unwrap_or(0);
            assert!(difference.abs() <= 1, "{number}: {found:?} instead of {expected:?}");
        }
        for group in 0..both.model.nodes.len() - 2 {
            let id = GroupId(u16::try_from(group).expect("a few"));
            let found = both.policy.policy().group_lag_ns(id, both.now);
            let expected = both.model.group_lag_ns(group);
            assert_eq!(found.is_some(), expected.is_some());
            let difference = found.unwrap_or(0) - expected.unwrap_or(0);
            assert!(difference.abs() <= 1, "group {group}: {found:?} instead of {expected:?}");
        }
    }
    ops.len()
}
