//! The share of a CPU's event server (DWCS; ecalls-2001 §2.4: the *ECall server*). Admission treats
//! the share like an activity, and later activities get the rest.

use super::dwcs;
use super::isolation::Users;
use super::refusal::{Reason, Refusal};
use super::reservations::Reservations;
use super::response_time::Steps;
use crate::share::Share;

/// The name in a refusal of the event server.
const NAME: &str = "event server";

impl Reservations {
    /// The largest share that [`Reservations::reserve_events`] can grant on `cpu` beside the
    /// activities there: the paper's *rest utilization*. A share that the event server has already
    /// counts as free. Takes about 20 analyses.
    ///
    /// `None` if no share fits. Also `None` if not all deadlines can be kept, under another policy
    /// than DWCS, without an activity, or if there is no such CPU.
    pub fn event_share(&self, cpu: u32) -> Option<Share> {
        let cpu = self.cpus.iter().find(|candidate| candidate.number == cpu)?;
        if !self.test.has_event_server() || cpu.members.is_empty() {
            return None;
        }
        let set: Vec<_> = cpu.members.iter().map(|member| member.params).collect();
        dwcs::event_share(&set, &cpu.platform(&self.platform))
    }

    /// The refusal of an event server's share that a daemon refused, which said so much.
    pub fn events_refused_elsewhere(&self, told: String) -> Refusal {
        let reason = match self.test.has_event_server() {
            true => Reason::ByDaemon { told: told.into() },
            false => Reason::NoEventServer { policy: self.test.policy },
        };
        Refusal::without_hint(NAME.to_owned(), reason, Vec::new())
    }

    /// Gives the event server of `cpu` this share instead of its former one; `None` takes the share
    /// back. Every deadline is still kept, and activities that come later get the rest. After this
    /// call succeeds, pass the share to the scheduler with
    /// [`crate::scheduler::Input::EventServer`]. A smaller share always succeeds. No effect if
    /// there is no such CPU. One analysis. Of several processes each may have an event server; this
    /// is the sum of their shares.
    ///
    /// # Errors
    /// The share does not fit beside the reservations, or the policy has no event server. Nothing
    /// changed.
    pub fn reserve_events(&mut self, cpu: u32, share: Option<Share>) -> Result<(), Refusal> {
        if share.is_some() && !self.test.has_event_server() {
            let reason = Reason::NoEventServer { policy: self.test.policy };
            return Err(Refusal::without_hint(NAME.to_owned(), reason, Vec::new()));
        }
        let Some(at) = self.cpus.iter().position(|candidate| candidate.number == cpu) else {
            return Ok(());
        };
        let cpu = &self.cpus[at];
        let grows = share > cpu.events;
        let (number, ranked) = (cpu.number, cpu.ranked());
        let steps = &mut Steps::of_analysis();
        let platform = cpu.platform(&self.platform);
        let verdict = self.test.screen(number, (&ranked, Users::ONE), share, &platform, steps);
        let verdict = cpu.with_programs(verdict, &ranked, &platform);
        if grows && verdict.failure.is_some() {
            let victim = |index: usize| cpu.members[index].name.clone();
            let at = (number, &cpu.programs.timed[..]);
            let reason = Reason::of(at, &verdict, platform.cpu_limit, victim);
            let tests = verdict.tests;
            return Err(Refusal::without_hint(NAME.to_owned(), reason, tests));
        }
        let cpu = &mut self.cpus[at];
        (cpu.events, cpu.verdict) = (share, verdict);
        Ok(())
    }
}
