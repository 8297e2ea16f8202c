//! Another claim of an activity that has a reservation. It is screened like a new activity, with
//! all others on its CPU.
//!
//! The kind of the claim stays. A change to real-time would add a promise of a deadline, and a
//! change to adaptive would remove it. Such a change needs a new activity.

use super::cpu::{Cpu, ReservationId};
use super::hint::Hint;
use super::refusal::{Reason, Refusal};
use super::reservations::Reservations;
use super::response_time::Steps;
use super::verdict::Verdict;
use crate::activity::{ActivityParams, Claim, Terms};
use crate::share::Share;

impl Reservations {
    /// Gives an activity another share or weight (PS) on its CPU. A weight is always granted,
    /// because an activity with a weight has no promise. After this call succeeds, pass the claim
    /// to the scheduler with [`crate::scheduler::Input::Reweigh`]. No effect if the reservation is
    /// gone. One analysis of its CPU, and up to 20 for the hint of a refusal.
    ///
    /// # Errors
    /// The share does not fit, or is too small for the activity's demand; or the claim is not of
    /// the kind that was admitted. Nothing changed.
    pub fn reweigh(&mut self, id: ReservationId, claim: Claim) -> Result<(), Refusal> {
        self.claim(id, claim, matches!(claim, Claim::Share(_)))
    }

    /// Like [`Reservations::reweigh`], whatever the tests say (`--soft`).
    ///
    /// # Errors
    /// The claim is not of the kind that was admitted. Nothing changed.
    pub fn reweigh_unscreened(&mut self, id: ReservationId, claim: Claim) -> Result<(), Refusal> {
        self.claim(id, claim, false)
    }

    /// The refusal of a claim by `name` whose reservation a daemon holds: it says why, and what
    /// would fit. Under a policy without shares and weights the reason is
    /// [`Reason::NotShared`].
    pub fn refused_elsewhere(&self, name: &str, told: String) -> Refusal {
        let reason = match self.test.shares_time() {
            true => Reason::ByDaemon { told: told.into() },
            false => Reason::NotShared { policy: self.test.policy },
        };
        Refusal::without_hint(name.to_owned(), reason, Vec::new())
    }

    fn claim(&mut self, id: ReservationId, claim: Claim, screened: bool) -> Result<(), Refusal> {
        let found = self.cpus.iter().enumerate().find_map(|(at, cpu)| {
            Some((at, cpu.members.iter().position(|member| member.id == id)?))
        });
        let Some((at, place)) = found else { return Ok(()) };
        let member = &self.cpus[at].members[place];
        let terms = self
            .same_kind(&member.terms, claim)
            .map_err(|reason| Refusal::without_hint(member.name.clone(), reason, Vec::new()))?;
        let verdict = self.verdict_claiming(at, place, terms);
        if screened && verdict.failure.is_some() {
            return Err(self.refusal_of_claim(at, place, terms, verdict));
        }
        let cpu = &mut self.cpus[at];
        cpu.members[place].terms = terms;
        cpu.verdict = verdict;
        Ok(())
    }

    fn same_kind(&self, terms: &Terms, claim: Claim) -> Result<Terms, Reason> {
        if !self.test.shares_time() {
            return Err(Reason::NotShared { policy: self.test.policy });
        }
        let real_time = terms.share.is_some() && terms.group.is_none();
        terms.claiming(claim).ok_or(Reason::OtherKind { real_time })
    }

    /// The verdict on the CPU if that member has those terms.
    fn verdict_claiming(&self, at: usize, place: usize, terms: Terms) -> Verdict {
        let cpu = &self.cpus[at];
        let ranked = cpu.ranked_claiming(place, terms);
        let steps = &mut Steps::of_analysis();
        self.screened(at, (&ranked, &cpu.users()), steps)
    }

    fn refusal_of_claim(&self, at: usize, place: usize, terms: Terms, verdict: Verdict) -> Refusal {
        let cpu = &self.cpus[at];
        let victim = |index: usize| cpu.members[index].name.clone();
        let limit = cpu.platform(&self.platform).cpu_limit;
        let reason = Reason::of((cpu.number, &cpu.programs.timed), &verdict, limit, victim);
        let hint = terms.share.and_then(|asked| self.nearest_share(at, place, asked));
        Refusal { hint, ..Refusal::without_hint(victim(place), reason, verdict.tests) }
    }

    /// The tested share between the present and the asked one that fits and is nearest to the asked
    /// one.
    fn nearest_share(&self, at: usize, place: usize, asked: Share) -> Option<Hint> {
        let terms = self.cpus[at].members[place].terms;
        let fits = |ppm: u32| {
            let share = Share::from_ppm(ppm);
            share.is_some()
                && self.verdict_claiming(at, place, Terms { share, ..terms }).failure.is_none()
        };
        let (mut fitting, mut refused) = (terms.share?.ppm(), asked.ppm());
        if !fits(fitting) {
            return None;
        }
        while fitting.abs_diff(refused) > 1 {
            let middle = fitting.midpoint(refused);
            if fits(middle) {
                fitting = middle;
            } else {
                refused = middle;
            }
        }
        Some(Hint::Share { from: asked, to: Share::from_ppm(fitting)? })
    }
}

impl Cpu {
    /// The parameters of the members, one of them with other terms.
    fn ranked_claiming(&self, place: usize, terms: Terms) -> Vec<(ActivityParams, Terms)> {
        let mut ranked = self.ranked();
        ranked[place].1 = terms;
        ranked
    }
}
