//! Programs and protocols under the policy PS of the core.

use super::programs::Programs;
use upcall_core::activity::{ActivityId, ActivityParams, Terms};
use upcall_core::admission::Share;
use upcall_core::policy::ps::ProportionalShare;
use upcall_core::policy::{Policy, Ready};
use upcall_core::time::{Instant, Span};

/// A program for PS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) params: ActivityParams,
    /// `None`: a weight of 1.
    pub(super) share: Option<Share>,
}

#[derive(Debug)]
pub(super) struct Shares {
    policy: ProportionalShare,
    gaps: Vec<Span>,
}

impl Shares {
    /// The programs in the order of their numbers.
    pub(super) fn new(claims: &[Claim], quantum: Span) -> Self {
        let mut policy = ProportionalShare::new(number(claims.len()), quantum);
        let mut gaps = Vec::new();
        for (program, claim) in claims.iter().enumerate() {
            let terms = Terms { share: claim.share, on_demand: true, ..Terms::default() };
            policy.join(id(program), &claim.params, &terms, Instant::ZERO);
            gaps.push(policy.arrival_gap(&claim.params, &terms));
        }
        Shares { policy, gaps }
    }
}

fn number(program: usize) -> u32 {
    u32::try_from(program).unwrap_or(u32::MAX)
}

fn id(program: usize) -> ActivityId {
    ActivityId(number(program))
}

impl Programs for Shares {
    fn ready(&mut self, program: usize, now: Instant) {
        self.policy.ready(id(program), Ready::new(now, now), now);
    }

    fn pick(&mut self, now: Instant) -> Option<usize> {
        self.policy.pick(now).map(|ActivityId(picked)| picked as usize)
    }

    fn is_preempted(&self, _: usize) -> bool {
        false
    }

    fn gives_way(&mut self, running: usize, since: Instant, now: Instant) -> bool {
        self.policy.gives_way(id(running), since, now)
    }

    fn stopped(&mut self, program: usize, used: Span, is_done: bool, now: Instant) {
        self.policy.ran(id(program), used, now);
        if is_done {
            self.policy.done(id(program), now, now);
        } else {
            self.policy.resume(id(program), now);
        }
    }

    fn second_passed(&mut self) {}

    fn gap(&self, program: usize) -> Span {
        self.gaps[program]
    }
}
