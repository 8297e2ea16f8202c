//! Whether windows are kept under DWCS ([`crate::policy::dwcs`]).
//!
//! With `C'` the run time and its hand-offs, a set needs
//!
//! ```text
//! sum of (1 - x_i/y_i) C'_i / T_i <= 1
//! ```
//!
//! of a CPU (`window-utilization`; West and Poellabauer, RTSS 2000). No scheduler keeps the windows
//! of a set whose sum is above 1. The published guarantee is the converse: DWCS keeps the windows
//! up to 1, if all run times are the same `K`, all periods are the same multiple `q K`, and all
//! activities start together.
//!
//! **It does not hold as published.** 12/15, 4/16 and 20/21 with `q = 1` ask for 1676/1680 and lose
//! a window in period 104. The authors' page of DWCS later said that the guarantee holds only for
//! constraints in a "canonical" form. So the sum alone admits nothing. One of these three tests
//! must admit the set:
//!
//! - **`edf-demand`: no job is missed at all.** DWCS is earliest deadline first, and its quanta
//!   block. All deadlines are kept if, for every length `L`, two things fit into `L` together: the
//!   jobs that are released and due within `L`, and the longest quantum of an activity with a
//!   deadline beyond `L` (Baruah, ECRTS 2005). This holds for all phases, and for jobs that take
//!   less than declared.
//! - **`window-slots`: equal periods, deadlines and offsets.** `q` jobs of the longest run time,
//!   with their hand-offs, fit before the deadline. In each period the `q` jobs with the tightest
//!   windows are served. Suppose that each activity must be served once a window (`y - x = 1`) or
//!   every time (`x = 0`). Then the tightest window is the one that ends first. That is earliest
//!   deadline first of unit jobs on `q` slots, which keeps every window while `sum of (1 - x/y) <=
//!   q`. This is the published guarantee, where it holds. Any other set of this kind is simulated
//!   (`slot-simulation`) until all windows begin anew together. A job that takes less than declared
//!   changes nothing: an activity that is served once more has a looser window then, and goes
//!   before no other activity because of it.
//! - **`window-simulation`, for all other sets**, where hand-offs and wake-ups are free and offsets
//!   are equal, as in a simulation with exact costs. The scheduler itself runs through the cycle of
//!   all windows. That proves this case only: neither jobs that take less than declared, nor
//!   pending events.
//!
//! All tests but the first require that the activities start at the same instant. A set to which
//! none applies is refused.
//!
//! **Under a daemon** processes come and go, but their first releases are *aligned*
//! ([`Start::Aligned`]): each is a multiple of the period, plus the offset
//! ([`Policy::first_release`](crate::policy::Policy::first_release)). So activities of equal
//! periods and offsets are released together, whenever each was started. The first test admits as
//! ever. `window-slots` admits where each activity must be served once a window or every time, and
//! no simulation follows. Then each window is a unit job: its release and its deadline are integral
//! in periods, hence in slots. Earliest deadline first keeps all deadlines of unit jobs with
//! integral releases if any schedule does: it preempts none, because no job is released within a
//! slot, so it is the optimal preemptive order (Liu and Layland 1973). Windows of an activity do
//! not overlap, so in `L` periods at most `sum of L/y_i (y_i - x_i) <= L q` windows
//! begin and end: the demand fits for all phases (Baruah, Mok and Rosier, RTSS 1990). Two things
//! differ from one process:
//!
//! - *A domain that does not run does not learn that its job is lost.* It gets the turn for that
//!   job, because the key of an earlier period goes first, and drops it. Only then its next job
//!   counts, with the window as it is. Each such turn costs a hand-off, at most one for each lost
//!   job. So `window-slots` counts a hand-off for every activity in every period, served or not.
//! - *The limit.* Others need the part of the CPU above it, so it must hold for all that jobs may
//!   take, permitted misses included: `sum of C'_i / T_i`, but no more than the time to the common
//!   deadline, at which a job that is not done is dropped, and a hand-off for each. A deadline
//!   before the end of the period keeps an overloaded set within the limit.
//!
//! No test counts what other users may take beyond their reservations, so the activities of a CPU
//! must belong to one user ([`Start::BesideUsers`]).
//!
//! **Activities on demand** have jobs at least a period apart, at any time. Only `edf-demand` holds
//! then. It counts the longest quantum of all activities in every length: an extra service of any
//! activity may have begun just before the message.
//!
//! **The event server** ([`Reservations::reserve_events`](super::Reservations::reserve_events)) is
//! one more demand, for its share of every interval. Only `edf-demand` accounts for it. If windows
//! allow misses, no test proves a set with an event server.
//!
//! In one process `cpu_limit` is compared with the sum above. Jobs that may be missed still run
//! while there is time, up to the whole CPU.

use super::platform::Platform;
use super::response_time::{Response, Steps, blocking};
use super::test_result::TestResult;
use super::utilization::{self, Demand};
use super::verdict::{Failure, Verdict, share};
use crate::activity::{ActivityParams, Terms};
use crate::share::Share;
use crate::time::Span;
use core::cmp::{Ordering, Reverse};
use member::{Member, demand};
use simulation::simulate;
use std::collections::BinaryHeap;

mod member;
mod simulation;
#[cfg(test)]
mod tests;

/// When the activities of a set start, and whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// All at the same instant, but for their offsets.
    Together,
    /// At any time, and they belong to several processes. Their first releases are aligned.
    Aligned,
    /// At any time, and they belong to several users.
    BesideUsers,
}

/// The finding on a set. The verdict holds the tests that were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// The windows alone need more than the CPU has.
    TooMuch,
    NoMiss,
    Slots,
    /// The simulation of that name kept every window.
    Simulated(&'static str),
    /// The simulation of that name did not keep the window of this activity.
    Violated(&'static str, usize),
    Unproven,
}

/// Applies the tests to the set on `cpu`, which is in order of creation.
pub(crate) fn verdict(
    cpu: u32,
    (set, start): (&[(ActivityParams, Terms)], Start),
    events: Option<Share>,
    platform: &Platform,
    steps: &mut Steps,
) -> Verdict {
    let set: Vec<Member> = set.iter().map(Member::from).collect();
    let params: Vec<_> = set.iter().map(|member| member.params).collect();
    let server = EdfDemand::new(&params, platform, events, false).of_server().copied();
    let needed = set.iter().map(|member| member.needed(&set, platform));
    let demands: Vec<Demand> = needed.chain(server).collect();
    let mut tests = Vec::new();
    let mut finding = Finding::NoMiss;
    if !set.is_empty() {
        let mut trial = Trial { cpu, set: &set, start, events, platform, steps, tests: &mut tests };
        finding = trial.find(&demands);
    }
    let taken = match start {
        Start::Together => demands,
        Start::Aligned | Start::BesideUsers => taken(&set, finding, server, platform),
    };
    let (utilization, within_limit) = share(&taken, platform.cpu_limit);
    let failure = match finding {
        Finding::TooMuch => Some(Failure::WindowsOverCpu),
        Finding::Violated(_, index) => {
            Some(Failure::ViolatesWindow { index, window: set[index].window })
        }
        Finding::Unproven => Some(Failure::WindowsUnproven),
        _ if !within_limit => Some(Failure::OverLimit),
        _ => None,
    };
    if !set.is_empty() {
        let (name, bound) = ("cpu-limit", platform.cpu_limit.as_f64());
        let (value, passed) = (utilization, within_limit);
        tests.push(TestResult { name, cpu, passed, value, bound, deciding: false });
        let deciding = match (failure, finding) {
            (Some(Failure::OverLimit), _) => "cpu-limit",
            (_, Finding::TooMuch) => "window-utilization",
            (_, Finding::NoMiss | Finding::Unproven) => "edf-demand",
            (_, Finding::Slots) => "window-slots",
            (_, Finding::Simulated(name) | Finding::Violated(name, _)) => name,
        };
        for test in &mut tests {
            test.deciding = test.name == deciding;
        }
    }
    let response = |member: &Member| match failure {
        None if finding == Finding::NoMiss || member.window.misses == 0 => {
            Response::Bounded(member.params.deadline)
        }
        _ => Response::Unbounded,
    };
    let responses = set.iter().map(response).collect();
    Verdict { responses, utilization, tests, failure }
}

/// All that jobs and the event server may take, permitted misses included. Where every job is due
/// at the same moment of a period, jobs take no longer than to that moment, and turns for lost jobs
/// a hand-off each.
fn taken(
    set: &[Member],
    finding: Finding,
    server: Option<Demand>,
    platform: &Platform,
) -> Vec<Demand> {
    let preemptible = set.iter().any(|member| member.params.quantum < member.params.batch);
    let jobs = set.iter().map(|member| demand(&member.params, preemptible, platform));
    let jobs: Vec<_> = jobs.chain(server).collect();
    let (Finding::Slots, Some(first)) = (finding, set.first()) else { return jobs };
    let ActivityParams { period, deadline, .. } = first.params;
    let hand_offs = platform.switch_cost.saturating_mul(set.len() as u64);
    let until_due = (deadline + hand_offs).min(period);
    let capped = Demand { cost_ns: until_due.as_nanos(), period_ns: period.as_nanos() };
    let is_less = utilization::sum(&[capped]) < utilization::sum(&jobs);
    if is_less { vec![capped] } else { jobs }
}

/// The largest share that the event server may have beside this set, so that every deadline is
/// still kept; `None` if there is none.
pub(super) fn event_share(set: &[ActivityParams], platform: &Platform) -> Option<Share> {
    let fits = |share: Share| {
        // With a server every quantum counts already.
        let demand = EdfDemand::new(set, platform, Some(share), false);
        demand.within(platform.cpu_limit)
            && demand.worst(&mut Steps::of_analysis()).is_some_and(|worst| worst <= 1.0)
    };
    // If one share fits, all smaller shares fit.
    let (mut fitting, mut over) = (0, Share::WHOLE.ppm() + 1);
    while over - fitting > 1 {
        let middle = fitting.midpoint(over);
        match Share::from_ppm(middle).is_some_and(fits) {
            true => fitting = middle,
            false => over = middle,
        }
    }
    Share::from_ppm(fitting)
}

/// The tests of one CPU, made one after the other until one decides.
struct Trial<'a> {
    cpu: u32,
    /// The set, which is not empty.
    set: &'a [Member],
    start: Start,
    events: Option<Share>,
    platform: &'a Platform,
    steps: &'a mut Steps,
    tests: &'a mut Vec<TestResult>,
}

impl Trial<'_> {
    fn note(&mut self, name: &'static str, value: f64, bound: f64, passed: bool) {
        self.tests.push(TestResult { name, cpu: self.cpu, passed, value, bound, deciding: false });
    }

    fn find(&mut self, needed: &[Demand]) -> Finding {
        if !self.compare("window-utilization", needed) {
            return Finding::TooMuch;
        }
        let params: Vec<_> = self.set.iter().map(|member| member.params).collect();
        let on_demand = self.set.iter().any(|member| member.on_demand);
        let demand = EdfDemand::new(&params, self.platform, self.events, on_demand);
        let worst = demand.worst(self.steps).unwrap_or(f64::INFINITY);
        let is_kept = worst <= 1.0 && self.start != Start::BesideUsers;
        self.note("edf-demand", worst, 1.0, is_kept);
        if is_kept {
            return Finding::NoMiss;
        }
        if self.events.is_some() || on_demand || self.start == Start::BesideUsers {
            return Finding::Unproven;
        }
        let in_slots = self.in_slots();
        if self.start == Start::Aligned {
            return in_slots;
        }
        if let Finding::Slots | Finding::Simulated(_) = in_slots {
            return in_slots;
        }
        match self.as_declared() {
            Finding::Unproven => in_slots,
            finding => finding,
        }
    }

    /// Notes whether the demands are at most the whole CPU.
    fn compare(&mut self, name: &'static str, demands: &[Demand]) -> bool {
        let (value, passed) = share(demands, Share::WHOLE);
        self.note(name, value, 1.0, passed);
        passed
    }

    /// The test for equal periods, described in the [module](self).
    fn in_slots(&mut self) -> Finding {
        let Some(slots) = slots(self.set, self.platform, self.start) else {
            return Finding::Unproven;
        };
        let in_slots = |member: &Member| Demand {
            cost_ns: u64::from(member.services()),
            period_ns: u64::from(member.window.periods) * slots,
        };
        let demands: Vec<_> = self.set.iter().map(in_slots).collect();
        if !self.compare("window-slots", &demands) {
            return Finding::Unproven;
        }
        if self.set.iter().all(|member| member.window.misses == 0 || member.services() == 1) {
            return Finding::Slots;
        }
        if self.start == Start::Aligned {
            return Finding::Unproven;
        }
        let slot = |member: &Member| Member {
            params: ActivityParams::new(Span::from_nanos(slots), Span::from_nanos(1)),
            ..*member
        };
        let set: Vec<_> = self.set.iter().map(slot).collect();
        self.simulated("slot-simulation", &set)
    }

    /// The test for all other sets, whose jobs behave exactly as declared.
    fn as_declared(&mut self) -> Finding {
        let Platform { switch_cost, wakeup_latency, .. } = *self.platform;
        let offset = self.set[0].params.offset;
        let together = self.set.iter().all(|member| member.params.offset == offset);
        if !together || !switch_cost.is_zero() || !wakeup_latency.is_zero() {
            return Finding::Unproven;
        }
        self.simulated("window-simulation", self.set)
    }

    fn simulated(&mut self, name: &'static str, set: &[Member]) -> Finding {
        let Some(violations) = simulate(set, self.steps) else { return Finding::Unproven };
        let all: u64 = violations.iter().sum();
        self.note(name, all as f64, 0.0, all == 0);
        match violations.iter().position(|&violations| violations > 0) {
            Some(index) => Finding::Violated(name, index),
            None => Finding::Simulated(name),
        }
    }
}

/// How many jobs, whatever their activities, are done before the deadline in every period; at most
/// as many as there are activities. `None` if that is 0, or if the activities are not released and
/// due together.
///
/// A job that can no longer be done in time does not begin. But the hand-off to it may begin, which
/// delays the next period. A late wake-up delays the next period, too. Among processes every job
/// takes a hand-off, also one that is lost.
fn slots(set: &[Member], platform: &Platform, start: Start) -> Option<u64> {
    let key = |member: &Member| {
        let ActivityParams { period, deadline, offset, .. } = member.params;
        (period, deadline, offset)
    };
    let first = key(set.first()?);
    if set.iter().any(|member| key(member) != first) {
        return None;
    }
    let (_, deadline, _) = first;
    let longest = set.iter().map(|member| member.params.compute()).max()?;
    let room = deadline.saturating_sub(platform.wakeup_latency.max(platform.switch_cost));
    let count = set.len() as u64;
    let fitting = match start {
        Start::Together => room.as_nanos() / (longest + platform.switch_cost).as_nanos(),
        Start::Aligned | Start::BesideUsers => {
            let hand_offs = platform.switch_cost.saturating_mul(count);
            room.saturating_sub(hand_offs).as_nanos() / longest.as_nanos()
        }
    };
    (fitting > 0).then_some(fitting.min(count))
}

/// The demand of jobs until their deadlines, for any phases.
struct EdfDemand<'a> {
    set: &'a [ActivityParams],
    platform: &'a Platform,
    /// `C'/T` of each activity; with a server, its share last.
    demands: Vec<Demand>,
    /// Whether a service of any activity may begin just before a job that nobody expected.
    unexpected: bool,
}

impl<'a> EdfDemand<'a> {
    /// The demand of `set` and of an event server with the share `server`, if any. The services of
    /// the server take hand-offs, too. The hand-offs are largest relative to the shortest run time.
    fn new(
        set: &'a [ActivityParams],
        platform: &'a Platform,
        server: Option<Share>,
        on_demand: bool,
    ) -> Self {
        let preemptible = server.is_some() || set.iter().any(|p| p.quantum < p.batch);
        let mut demands: Vec<_> =
            set.iter().map(|params| demand(params, preemptible, platform)).collect();
        if let Some(share) = server {
            let part = |shortest: Span| {
                let shortest = u128::from(shortest.as_nanos());
                let with_hand_offs = shortest + 2 * u128::from(platform.switch_cost.as_nanos());
                (u128::from(share.ppm()) * with_hand_offs).div_ceil(shortest)
            };
            // Without an activity there is nothing to serve, and the share counts as it is.
            let shortest = set.iter().map(|params| params.compute()).min();
            let ppm = shortest.map_or(share.ppm().into(), part);
            demands.push(Demand {
                cost_ns: u64::try_from(ppm).unwrap_or(u64::MAX),
                period_ns: u64::from(Share::WHOLE.ppm()),
            });
        }
        let unexpected = server.is_some() || on_demand;
        EdfDemand { set, platform, demands, unexpected }
    }

    /// Whether all demands together are at most `limit`.
    fn within(&self, limit: Share) -> bool {
        utilization::compare(&self.demands, limit) != Ordering::Greater
    }

    /// The largest demand within a length `L` relative to `L`, blocking included. All deadlines are
    /// kept if it is at most 1. `None` if the steps ran out, or if the search has no known end.
    fn worst(&self, steps: &mut Steps) -> Option<f64> {
        if !self.within(Share::WHOLE) {
            return Some(utilization::sum(&self.demands).max(1f64.next_up()));
        }
        let search_ns = self.search_ns()?;
        let mut due: BinaryHeap<_> = (self.set.iter().enumerate())
            .map(|(index, params)| Reverse((params.deadline.as_nanos(), index)))
            .collect();
        let (mut worst, mut asked_ns) = (0f64, 0u64);
        while let Some(Reverse((length_ns, index))) = due.pop() {
            if length_ns > search_ns {
                break;
            }
            steps.spend(self.set.len())?;
            asked_ns = asked_ns.checked_add(self.demands[index].cost_ns)?;
            let next_ns = length_ns.checked_add(self.demands[index].period_ns)?;
            due.push(Reverse((next_ns, index)));
            let all_ns = asked_ns
                .checked_add(self.blocking_ns(length_ns))?
                .checked_add(self.server_ns(length_ns)?)?;
            let part = all_ns as f64 / length_ns as f64;
            // A quotient of 1 may be the result of rounding.
            worst = worst.max(if all_ns > length_ns { part.max(1f64.next_up()) } else { part });
            if all_ns > length_ns {
                break;
            }
        }
        Some(worst)
    }

    /// If all lengths up to this one fit, longer ones fit as well. Beyond the longest deadline, the
    /// demand in `L` is at most `U L`, plus a constant for deadlines before the ends of periods.
    fn search_ns(&self) -> Option<u64> {
        let longest_ns = self.set.iter().map(|params| params.deadline.as_nanos()).max()?;
        let early = |(params, demand): (&ActivityParams, &Demand)| {
            let rest = params.period.saturating_sub(params.deadline);
            demand.cost_ns as f64 / demand.period_ns as f64 * rest.as_nanos() as f64
        };
        let early: f64 = self.set.iter().zip(&self.demands).map(early).sum();
        let constant = early + self.blocking_ns(u64::MAX) as f64;
        if constant == 0.0 {
            return Some(longest_ns);
        }
        let rest = 1.0 - utilization::sum(&self.demands);
        if rest <= 0.0 {
            return None;
        }
        // Rounded up by more than the error of these few operations, unless `rest` is almost 0. In
        // that case the steps run out.
        let search_ns = constant / rest * 1.000_001 + 1.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let search_ns = search_ns as u64;
        Some(search_ns.max(longest_ns))
    }

    /// The longest quantum of a job that is due after `length_ns`. With an event server, every
    /// activity counts, because a service of events may have any deadline. With activities on
    /// demand every activity counts, because an extra service has none.
    fn blocking_ns(&self, length_ns: u64) -> u64 {
        let later =
            |params: &&ActivityParams| self.unexpected || params.deadline.as_nanos() > length_ns;
        let longest = self.set.iter().filter(later).map(|p| blocking(p, self.platform)).max();
        let quantum_ns = longest.map_or(0, |span| span.as_nanos().saturating_sub(1));
        quantum_ns.max(self.platform.wakeup_latency.as_nanos())
    }

    /// The demand of the event server, with its hand-offs.
    fn of_server(&self) -> Option<&Demand> {
        self.demands.get(self.set.len())
    }

    /// The most that the event server takes of a length.
    fn server_ns(&self, length_ns: u64) -> Option<u64> {
        let Some(server) = self.of_server() else { return Some(0) };
        let product = u128::from(length_ns) * u128::from(server.cost_ns);
        u64::try_from(product.div_ceil(u128::from(server.period_ns))).ok()
    }
}
