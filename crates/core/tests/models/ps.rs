//! The PS policy as its documentation has it, over two plain accounts: who competes,
//! how long a request is, where one ends. The property test and the fuzz target give
//! it operations.

use super::ps_instance::Model;
use upcall_core::activity::{ActivityId, ActivityParams, Claim, Terms};
use upcall_core::admission::Share;
use upcall_core::cost::CostEstimate;
use upcall_core::policy::ps::ProportionalShare;
use upcall_core::policy::{Policy, Ready};
use upcall_core::time::{Instant, Span};

/// How many activities there may be.
pub const COUNT: u32 = 6;
/// Numbers below it are real-time.
const REAL_TIME: u32 = 3;
const REST: u32 = COUNT;

const QUANTUM_NS: u64 = 1_000_000;
/// Declared for everyone; what is done between two boundaries may be more.
const STRETCH_NS: u64 = 100_000;
/// What a real-time activity may ask for: the sum stays below the whole.
const SHARES_PPM: [u32; 3] = [100_000, 200_000, 250_000];
const WEIGHTS: [u32; 3] = [1, 1, 2];
const BATCHES: [u32; 6] = [7, 7, 7, 25, 25, 25];

const JOB: Ready = Ready { release: Instant::ZERO, deadline: Instant::FAR };

/// What may happen. What does not fit is left out.
#[derive(Clone, Debug)]
pub enum Op {
    /// A job of an idle one.
    Release(u32),
    /// A ready one is suspended.
    Withdraw(u32),
    /// An idle one goes.
    Leave(u32),
    /// One that went comes back, with another share or weight.
    Join(u32, u32),
    /// One claims another share or weight, whatever it is at.
    Reweigh(u32, u32),
    /// The CPU goes to the next, or whoever runs goes on for so long and comes to a
    /// boundary.
    Run(u64),
    /// The job ends after so long; the next was waiting if so.
    Done(u64, bool),
}

/// What is to be known of one that joined.
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
    /// Whole stretches for what the job is expected to take yet, at most what fits
    /// into a quantum.
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

/// Who runs, for how long so far in its request, and how long that is.
#[derive(Clone, Copy, Debug)]
struct Running {
    number: u32,
    since: Instant,
    in_request_ns: u64,
    request_ns: u64,
}

#[derive(Clone)]
struct ModelPolicy {
    top: Model,
    rest: Model,
    members: [Option<Member>; COUNT as usize],
    running: Option<Running>,
    created: u32,
}

impl ModelPolicy {
    fn new() -> Self {
        // Multiples of what is divided by: the shares, and what they leave to the rest.
        let mut top = Model::new(COUNT as usize + 1, true, 1_000_000 * 720_720i128.pow(3));
        let rest = Model::new(COUNT as usize, false, 12i128.pow(18));
        top.join(REST, 1_000_000, u32::MAX);
        ModelPolicy { top, rest, members: [None; 6], running: None, created: 0 }
    }

    fn of(&mut self, number: u32) -> &mut Member {
        self.members[number as usize].as_mut().expect("it joined")
    }

    fn is_running(&self, number: u32) -> bool {
        self.running.is_some_and(|running| running.number == number)
    }

    fn weigh_rest(&mut self) {
        let real_time = self.members[..REAL_TIME as usize].iter().flatten();
        let shares_ppm: u32 = real_time.map(|member| member.claim).sum();
        self.top.reweigh(REST, 1_000_000 - shares_ppm);
    }

    fn join(&mut self, number: u32, claim: u32) {
        let declared_ns = u64::from(BATCHES[number as usize]) * STRETCH_NS;
        let estimate = CostEstimate::default();
        let (stretch_ns, used_ns, ready) = (STRETCH_NS, 0, false);
        self.members[number as usize] =
            Some(Member { claim, declared_ns, stretch_ns, used_ns, estimate, ready });
        if number < REAL_TIME {
            self.weigh_rest();
            self.top.join(number, claim, self.created);
        } else {
            self.rest.join(number, claim, self.created);
        }
        self.created += 1;
    }

    fn reweigh(&mut self, number: u32, claim: u32) {
        self.of(number).claim = claim;
        if number < REAL_TIME {
            self.top.reweigh(number, claim);
            self.weigh_rest();
        } else {
            self.rest.reweigh(number, claim);
        }
    }

    /// What a share used in advance is owed by the rest, which gets it.
    fn leave(&mut self, number: u32) {
        self.members[number as usize] = None;
        if number < REAL_TIME {
            let ahead_ns = self.top.lag_ns(number).unwrap_or(0).min(0).unsigned_abs();
            self.top.leave(number);
            self.weigh_rest();
            self.top.inherit(REST, ahead_ns);
        } else {
            self.rest.leave(number);
        }
    }

    /// It is ready, with its next request.
    fn request(&mut self, number: u32) {
        self.of(number).ready = true;
        let request_ns = self.of(number).request_ns();
        let account = if number < REAL_TIME { &mut self.top } else { &mut self.rest };
        account.request(number, request_ns);
        self.place_rest();
    }

    fn retire(&mut self, number: u32) {
        (self.of(number).ready, self.of(number).used_ns) = (false, 0);
        let account = if number < REAL_TIME { &mut self.top } else { &mut self.rest };
        account.retire(number);
        self.place_rest();
        if self.running.is_none() {
            self.rest.settle();
            self.top.settle();
        }
    }

    fn place_rest(&mut self) {
        let adaptive_runs = self.running.is_some_and(|running| running.number >= REAL_TIME);
        match (adaptive_runs, self.rest.has_ready(), self.top.is_ready(REST)) {
            (true, ..) | (_, true, true) => {}
            (_, true, false) => self.top.request(REST, QUANTUM_NS),
            (_, false, _) => self.top.retire(REST),
        }
    }

    fn pick(&mut self, now: Instant) -> Option<u32> {
        if !self.top.has_eligible() {
            self.top.forgive(REST);
        }
        let client = self.top.pick()?;
        let number = if client == REST { self.rest.pick()? } else { client };
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
        if number < REAL_TIME {
            self.top.charge(number, ns);
        } else {
            self.rest.charge(number, ns);
            self.top.charge(REST, ns);
        }
    }

    /// Whether the request is over at this boundary; one that ran over its end had a
    /// longer stretch than was thought.
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
        self.top.exact && self.rest.exact
    }

    fn lag_ns(&self, number: u32) -> Option<i64> {
        let account = if number < REAL_TIME { &self.top } else { &self.rest };
        account.lag_ns(number)
    }
}

/// The policy and the model side by side.
struct Both {
    policy: ProportionalShare,
    model: ModelPolicy,
    now: Instant,
}

impl Both {
    fn new() -> Self {
        let policy = ProportionalShare::new(COUNT, Span::from_nanos(QUANTUM_NS));
        let mut both = Both { policy, model: ModelPolicy::new(), now: Instant::ZERO };
        for number in 0..COUNT {
            both.join(number, number % REAL_TIME);
        }
        both
    }

    fn join(&mut self, number: u32, claim: u32) {
        let (ppm, weight) = (SHARES_PPM[claim as usize % 3], WEIGHTS[claim as usize % 3]);
        let is_real_time = number < REAL_TIME;
        let terms = match is_real_time {
            true => Terms { share: Share::from_ppm(ppm), ..Terms::default() },
            false => Terms { weight: Some(weight), ..Terms::default() },
        };
        let params = ActivityParams::new(Span::from_millis(100), Span::from_nanos(STRETCH_NS));
        let params = params.batch(BATCHES[number as usize]);
        self.policy.join(ActivityId(number), &params, &terms, self.now);
        self.model.join(number, if is_real_time { ppm } else { weight });
    }

    fn reweigh(&mut self, number: u32, claim: u32) {
        let (ppm, weight) = (SHARES_PPM[claim as usize % 3], WEIGHTS[claim as usize % 3]);
        let (claim, number_of_it) = match Share::from_ppm(ppm) {
            Some(share) if number < REAL_TIME => (Claim::Share(share), ppm),
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
                    let picked = self.policy.pick(self.now);
                    assert_eq!(picked.map(|id| id.0), self.model.pick(self.now));
                }
                Some(running) => {
                    self.pass(ns);
                    self.boundary(running);
                }
            },
            Op::Done(ns, another) => {
                let Some(running) = self.model.running else { return };
                self.pass(ns);
                self.stop(running);
                let id = ActivityId(running.number);
                self.policy.done(id, self.now, self.now);
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

    /// Where a request ends, whoever the model would pick then must have the CPU.
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
                // Put back: it was only looked at.
                self.model.running = None;
                self.model.request(other);
                self.stop(running);
                self.policy.resume(id, self.now);
                self.model.request(running.number);
            }
            (_, None) => unreachable!("whoever ran is ready"),
        }
    }
}

/// Does the operations on both, until the model can go no further; how many that
/// were. Panics where they differ: in who is picked, in who gives way, or in a lag by
/// more than the rounding.
pub fn compare(ops: &[Op]) -> usize {
    let mut both = Both::new();
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
    }
    ops.len()
}
