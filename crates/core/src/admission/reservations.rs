//! The reservations on all CPUs, and the calls that change them.

use super::cpu::{Cpu, Member, ReservationId};
use super::hint;
use super::isolation::{Isolation, ROOT, Users};
use super::load::CpuLoad;
use super::platform::Platform;
use super::program::CpuPrograms;
use super::refusal::{Reason, Refusal};
use super::response_time::{Response, STEPS_MAX, Steps};
use super::screen::{AdmissionTest, Test};
use super::test_result::TestResult;
use super::verdict::Verdict;
use crate::activity::{ActivityParams, Terms};
use crate::policy::ps::Group;
use crate::share::Share;
use crate::time::Span;

/// A granted place on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Identifies the reservation, for [`Reservations::release`].
    pub id: ReservationId,
    /// The CPU on which the activity runs.
    pub cpu: u32,
}

/// The former place of an activity that was admitted before, by a daemon that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// The only CPU to use.
    pub cpu: u32,
    /// Among equals the activity ranks before these.
    pub lower_ranked: &'a [ReservationId],
    /// The user who asks, as for [`Reservations::reserve_for`]. Under PS the domain, if processes
    /// start apart: the activities of a domain share its part.
    pub user: u32,
}

/// The activities on the CPUs, and a test for further ones.
///
/// Every call that changes the reservations analyses one CPU anew (a refusal: every CPU). That
/// takes time in proportion to `n^2 * k` for `n` activities on the CPU with `k` jobs in their
/// busiest period. On a CPU that is so nearly full that `k` becomes very large, a step limit bounds
/// the analysis. Allocates.
#[derive(Clone, Debug)]
pub struct Reservations {
    pub(super) test: AdmissionTest,
    pub(super) platform: Platform,
    pub(super) cpus: Vec<Cpu>,
    next_id: u64,
    /// Of one analysis of a CPU.
    steps_max: u64,
    /// `None`: all activities trust each other.
    isolation: Option<Isolation>,
}

impl Reservations {
    /// No reservation on any CPU of the platform. `test` is the admission test, usually of a
    /// [`Discipline`](crate::discipline::Discipline).
    pub fn new(platform: Platform, test: impl Into<AdmissionTest>) -> Self {
        let test = test.into();
        let mut cpus: Vec<Cpu> = Vec::new();
        let numbers = if platform.cpus.is_empty() { &[0][..] } else { &platform.cpus };
        for &number in numbers {
            if cpus.iter().all(|cpu| cpu.number != number) {
                let verdict = test.screen(
                    number,
                    (&[], Users::ONE),
                    None,
                    &platform,
                    &mut Steps::of_analysis(),
                );
                let (members, events, programs) = (Vec::new(), None, CpuPrograms::default());
                cpus.push(Cpu { number, members, events, programs, verdict });
            }
        }
        let (next_id, steps_max, isolation) = (0, STEPS_MAX, None);
        Reservations { test, platform, cpus, next_id, steps_max, isolation }
    }

    /// Lowers the step limit of each analysis of a CPU from the default of 10 million, for a
    /// program that must answer others meanwhile. A set that needs more steps is refused
    /// ([`Reason::Undecided`]).
    pub fn limit_steps(&mut self, steps_max: u64) {
        self.steps_max = steps_max.min(STEPS_MAX);
    }

    /// From now on each analysis counts what users may take from each other beyond their
    /// reservations ([`Reservations::reserve_for`]). For a daemon of several users, under the tests
    /// for fixed priorities and for DWS.
    pub fn isolate_users(&mut self, isolation: Isolation) {
        self.isolation = Some(isolation);
    }

    /// From now on no analysis relies on a common start of all activities: they belong to several
    /// processes. Matters under DWCS, where only first releases are aligned then, and under PS,
    /// where the domains have accounts.
    pub fn start_apart(&mut self) {
        self.test.starts_apart = true;
    }

    /// PS: the groups are these from now on. A group of a reserved activity, and each around it,
    /// must stay as it is. No effect under another policy.
    pub fn set_groups(&mut self, groups: &[Group]) {
        if let Test::ProportionalShare { groups: known, .. } = &mut self.test.test {
            *known = groups.to_vec();
        }
    }

    /// The steps of one analysis of a CPU.
    fn steps(&self) -> Steps {
        Steps::up_to(self.steps_max)
    }

    /// Reserves a place on the first CPU where the exact test passes for all activities. The
    /// activity belongs to user 0 ([`Reservations::reserve_for`]).
    ///
    /// # Errors
    /// Why no CPU can take it, and one change that would fit. Nothing changed.
    pub fn reserve(
        &mut self,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Result<Reservation, Refusal> {
        self.reserve_for(ROOT, name, params, terms)
    }

    /// As [`Reservations::reserve`], for an activity of a user, by number. Users matter after
    /// [`Reservations::isolate_users`]. Nobody is isolated from user 0.
    ///
    /// # Errors
    /// As [`Reservations::reserve`].
    pub fn reserve_for(
        &mut self,
        user: u32,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Result<Reservation, Refusal> {
        if let Err(error) = params.validated() {
            return Err(Refusal::of_params(name, error));
        }
        let mut trials = Vec::with_capacity(self.cpus.len());
        for (at, cpu) in self.cpus.iter().enumerate() {
            let place = cpu.place_of(&self.test, &params);
            let verdict = self.verdict_with(at, place, (&params, terms, user));
            if verdict.failure.is_none() {
                return Ok(self.place((at, place), name, (params, terms, user), verdict));
            }
            trials.push((at, verdict));
        }
        let nearest = trials.into_iter().min_by(|(_, a), (_, b)| a.excess().total_cmp(&b.excess()));
        // Invariant: there is at least one CPU, and each was tried.
        let (at, verdict) = nearest.expect("a platform has a CPU");
        let cpu = &self.cpus[at];
        let place = cpu.place_of(&self.test, &params);
        Err(self.refusal((cpu, place), name, (&params, terms, user), verdict))
    }

    /// Reserves a place on the least utilized CPU, whatever the tests say (`--soft`).
    ///
    /// `params` must be valid, as [`crate::scheduler::Input::Create`] requires.
    pub fn reserve_unscreened(
        &mut self,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Reservation {
        debug_assert_eq!(params.validated(), Ok(params));
        let utilization = |at: &usize| self.cpus[*at].verdict.utilization;
        let at = (0..self.cpus.len())
            .min_by(|a, b| utilization(a).total_cmp(&utilization(b)))
            .expect("a platform has a CPU");
        let place = self.cpus[at].place_of(&self.test, &params);
        let verdict = self.verdict_with(at, place, (&params, terms, ROOT));
        self.place((at, place), name, (params, terms, ROOT), verdict)
    }

    /// Like [`Reservations::reserve`], but only at `spot`.
    ///
    /// # Errors
    /// `None` if the platform has no such CPU. Else why the CPU cannot take it, and one change that
    /// would fit. Nothing changed.
    pub fn reserve_at(
        &mut self,
        spot: Spot<'_>,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Result<Reservation, Option<Refusal>> {
        if let Err(error) = params.validated() {
            return Err(Some(Refusal::of_params(name, error)));
        }
        let (at, place, verdict) = self.tried_at(spot, &params, terms).ok_or(None)?;
        if verdict.failure.is_some() {
            let at = (&self.cpus[at], place);
            return Err(Some(self.refusal(at, name, (&params, terms, spot.user), verdict)));
        }
        Ok(self.place((at, place), name, (params, terms, spot.user), verdict))
    }

    /// Reserves a place at `spot`, whatever the tests say; `None` if the platform has no such CPU.
    /// `params` must be valid.
    pub fn reserve_unscreened_at(
        &mut self,
        spot: Spot<'_>,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Option<Reservation> {
        debug_assert_eq!(params.validated(), Ok(params));
        let (at, place, verdict) = self.tried_at(spot, &params, terms)?;
        Some(self.place((at, place), name, (params, terms, spot.user), verdict))
    }

    /// The CPU and the place that `spot` means, and the verdict on them.
    fn tried_at(
        &self,
        spot: Spot<'_>,
        params: &ActivityParams,
        terms: &Terms,
    ) -> Option<(usize, usize, Verdict)> {
        let at = self.cpus.iter().position(|cpu| cpu.number == spot.cpu)?;
        let cpu = &self.cpus[at];
        let place = cpu.place_before(&self.test, params, spot.lower_ranked);
        Some((at, place, self.verdict_with(at, place, (params, terms, spot.user))))
    }

    /// The verdict on the CPU with index `at` if an activity of a user gets that place.
    fn verdict_with(
        &self,
        at: usize,
        place: usize,
        asked: (&ActivityParams, &Terms, u32),
    ) -> Verdict {
        let (ranked, users) = self.cpus[at].set_with(place, asked);
        self.screened(at, (&ranked, &users), &mut self.steps())
    }

    /// Releases a reservation; no effect if it is gone already.
    ///
    /// Call it after the scheduler has reported [`crate::scheduler::Command::Closed`]. Until then a
    /// last quantum may run, which needs the reservation.
    pub fn release(&mut self, id: ReservationId) {
        self.release_all(&[id]);
    }

    /// As [`Reservations::release`], for several reservations at once. At most one analysis a CPU.
    pub fn release_all(&mut self, ids: &[ReservationId]) {
        for at in 0..self.cpus.len() {
            let members = &mut self.cpus[at].members;
            let before = members.len();
            members.retain(|member| !ids.contains(&member.id));
            if members.len() < before {
                let (ranked, users) = (self.cpus[at].ranked(), self.cpus[at].users());
                self.cpus[at].verdict = self.screened(at, (&ranked, &users), &mut self.steps());
            }
        }
    }

    /// The verdict on the set `ranked` of these users on the CPU with index `at`, with its event
    /// server.
    pub(super) fn screened(
        &self,
        at: usize,
        (ranked, users): (&[(ActivityParams, Terms)], &[u32]),
        steps: &mut Steps,
    ) -> Verdict {
        let cpu = &self.cpus[at];
        let users = Users { of: users, isolation: self.isolation };
        let platform = cpu.platform(&self.platform);
        let verdict = self.test.screen(cpu.number, (ranked, users), cpu.events, &platform, steps);
        cpu.with_programs(verdict, ranked, &platform)
    }

    /// Tells what programs have of a CPU ([`super::program`]). For reservations from now on: they
    /// have what programs leave of the limit, and break no promise to a program with a period.
    /// Deadlines are not affected: programs run below all activities. No effect if there is no such
    /// CPU.
    pub fn set_programs(&mut self, cpu: u32, programs: CpuPrograms) {
        for of in self.cpus.iter_mut().filter(|of| of.number == cpu) {
            of.programs = programs.clone();
        }
    }

    /// DWCS: whether the set on a CPU is admitted because its windows allow misses, and not because
    /// every job is done in time.
    pub fn relies_on_windows(&self, cpu: u32) -> bool {
        let here = self.cpus.iter().filter(|of| of.number == cpu);
        let mut deciding = here.flat_map(|of| of.verdict.tests.iter()).filter(|test| test.deciding);
        deciding.any(|test| test.name == "window-slots")
    }

    /// The worst time from release to end over all jobs, with the present reservations.
    ///
    /// `None` if there is no such reservation, or if no bound exists because the demand is more
    /// than the CPU has. `None` also if no bound was found within the step limit, or if nothing is
    /// promised to the activity (DWS: not real time). After `reserve_unscreened` the response may
    /// be longer than the deadline.
    pub fn response_max(&self, id: ReservationId) -> Option<Span> {
        let (cpu, place) = self.cpus.iter().find_map(|cpu| {
            let place = cpu.members.iter().position(|member| member.id == id)?;
            Some((cpu, place))
        })?;
        match cpu.verdict.responses[place] {
            Response::Bounded(span) => Some(span),
            Response::AtLeast(_) | Response::Unbounded => None,
        }
    }

    /// The cost of a hand-off that admission assumes.
    pub fn switch_cost(&self) -> Span {
        self.platform.switch_cost
    }

    /// The limit of a CPU without what programs have of it. `None`: there is no such CPU.
    pub fn limit_of(&self, cpu: u32) -> Option<Share> {
        let of = self.cpus.iter().find(|of| of.number == cpu)?;
        Some(of.platform(&self.platform).cpu_limit)
    }

    /// The load of each CPU, in the platform's order.
    pub fn load(&self) -> Vec<CpuLoad> {
        let load_of = |cpu: &Cpu| {
            let ranked: Vec<_> = cpu.members.iter().map(|member| member.params).collect();
            cpu.load_of(&ranked, cpu.verdict.utilization, &self.platform)
        };
        self.cpus.iter().map(load_of).collect()
    }

    /// Every test that applies to the present reservations, CPU by CPU; none for a CPU without
    /// reservations. Exactly one test a CPU is marked as deciding.
    pub fn tests(&self) -> Vec<TestResult> {
        self.cpus.iter().flat_map(|cpu| cpu.verdict.tests.iter().copied()).collect()
    }

    fn place(
        &mut self,
        (at, place): (usize, usize),
        name: &str,
        (params, terms, user): (ActivityParams, &Terms, u32),
        verdict: Verdict,
    ) -> Reservation {
        let id = ReservationId(self.next_id);
        self.next_id += 1;
        let cpu = &mut self.cpus[at];
        let (name, terms) = (name.to_owned(), *terms);
        cpu.members.insert(place, Member { id, name, params, terms, user });
        cpu.verdict = verdict;
        Reservation { id, cpu: cpu.number }
    }

    fn refusal(
        &self,
        (cpu, place): (&Cpu, usize),
        name: &str,
        asked: (&ActivityParams, &Terms, u32),
        verdict: Verdict,
    ) -> Refusal {
        let victim = |index: usize| match index.cmp(&place) {
            core::cmp::Ordering::Less => cpu.members[index].name.clone(),
            core::cmp::Ordering::Equal => name.to_owned(),
            core::cmp::Ordering::Greater => cpu.members[index - 1].name.clone(),
        };
        let trials = (&verdict, self.steps());
        let platform = cpu.platform(&self.platform);
        let hint = hint::find(cpu, &self.test, &platform, (asked, self.isolation), trials);
        // The limit with programs is no key of a spec.
        let without_programs = cpu.programs.reserved_ppm == 0;
        let hint =
            hint.filter(|hint| without_programs || !matches!(hint, hint::Hint::CpuLimit { .. }));
        let at = (cpu.number, &cpu.programs.timed[..]);
        let mut reason = Reason::of(at, &verdict, platform.cpu_limit, victim);
        if let Reason::MissesDeadline { by_users, .. } = &mut reason {
            *by_users = self.isolation.is_some() && self.fits_for_one_user((cpu, place), asked);
        }
        Refusal { hint, ..Refusal::without_hint(name.to_owned(), reason, verdict.tests) }
    }

    /// Whether an activity would fit if all on the CPU belonged to one user.
    fn fits_for_one_user(
        &self,
        (cpu, place): (&Cpu, usize),
        asked: (&ActivityParams, &Terms, u32),
    ) -> bool {
        let (ranked, _) = cpu.set_with(place, asked);
        let (set, steps) = ((&ranked[..], Users::ONE), &mut self.steps());
        let platform = cpu.platform(&self.platform);
        let verdict = self.test.screen(cpu.number, set, cpu.events, &platform, steps);
        cpu.with_programs(verdict, &ranked, &platform).failure.is_none()
    }
}
