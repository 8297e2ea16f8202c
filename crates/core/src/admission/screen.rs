//! The admission test of each policy.

use super::isolation::Users;
use super::platform::Platform;
use super::response_time::Steps;
use super::verdict::Verdict;
use super::{dwcs, dws, ps};
use crate::activity::{ActivityParams, Terms};
use crate::policy::ps::Group;
use crate::share::Share;
use crate::time::Span;

/// The admission test of a discipline. [`Reservations::new`](super::Reservations::new) makes it
/// from a [`Discipline`](crate::discipline::Discipline).
#[derive(Clone, Debug)]
pub struct AdmissionTest {
    /// The name of the policy, for messages.
    pub(crate) policy: &'static str,
    pub(crate) test: Test,
    /// Whether the activities of a set may start at different times.
    pub(crate) starts_apart: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Test {
    /// Fixed priorities, with preemption at the ends of quanta if `delayed`, and anywhere if not.
    FixedPriority {
        delayed: bool,
    },
    DeadlineWorkahead,
    ProportionalShare {
        quantum: Span,
        groups: Vec<Group>,
    },
    WindowConstrained,
}

impl AdmissionTest {
    /// The key that sorts activities for `screen`, best rank first. Activities with equal keys stay
    /// in the order of creation.
    pub(super) fn order(&self, params: &ActivityParams) -> u64 {
        match self.test {
            Test::FixedPriority { .. } => params.period.as_nanos(),
            // Ranks change from message to message. The test accepts any order.
            Test::DeadlineWorkahead => params.deadline.as_nanos(),
            // The policy has no fixed ranks, so the order of creation counts.
            Test::ProportionalShare { .. } | Test::WindowConstrained => 0,
        }
    }

    /// The verdict on a set on `cpu`, sorted by `order`, with the user of each activity, and an
    /// event server (DWCS) beside it. Under PS the users are the domains.
    pub(super) fn screen(
        &self,
        cpu: u32,
        (set, users): (&[(ActivityParams, Terms)], Users<'_>),
        events: Option<Share>,
        platform: &Platform,
        steps: &mut Steps,
    ) -> Verdict {
        match &self.test {
            Test::FixedPriority { delayed } => {
                Verdict::of_fixed_priority(cpu, (set, users), platform, steps, *delayed)
            }
            Test::DeadlineWorkahead => dws::verdict(cpu, (set, users), platform, steps),
            Test::ProportionalShare { quantum, groups } => {
                let domains = self.starts_apart.then_some(users.of);
                ps::verdict(cpu, set, domains, platform, *quantum, groups)
            }
            Test::WindowConstrained => {
                let start = match (users.are_isolated(), self.starts_apart) {
                    (true, _) => dwcs::Start::BesideUsers,
                    (false, true) => dwcs::Start::Aligned,
                    (false, false) => dwcs::Start::Together,
                };
                dwcs::verdict(cpu, (set, start), events, platform, steps)
            }
        }
    }

    /// Whether an event server can be admitted.
    pub(super) fn has_event_server(&self) -> bool {
        matches!(self.test, Test::WindowConstrained)
    }

    /// Whether activities claim shares or weights.
    pub(super) fn shares_time(&self) -> bool {
        matches!(self.test, Test::ProportionalShare { .. })
    }
}
