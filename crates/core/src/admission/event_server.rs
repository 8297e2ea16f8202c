//! What the event server of a CPU may spend (DWCS; ecalls-2001 §2.4: the *ECall server*):
//! admitted as anything else is, and kept from whoever comes later.

use super::dwcs;
use super::refusal::{Reason, Refusal};
use super::reservations::Reservations;
use super::response_time::Steps;
use crate::share::Share;

/// Whose place is refused, where it is the server's.
const NAME: &str = "event server";

impl Reservations {
    /// Most that [`Reservations::reserve_events`] can grant on `cpu` beside the activities
    /// there, the paper's *rest utilization*; what is granted already counts as free.
    /// Some 20 analyses.
    ///
    /// `None` if that is nothing: also where jobs are missed as a matter of
    /// course, under another policy than DWCS, or if there is no activity or no such CPU.
    pub fn event_share(&self, cpu: u32) -> Option<Share> {
        let cpu = self.cpus.iter().find(|candidate| candidate.number == cpu)?;
        if !self.test.has_event_server() || cpu.members.is_empty() {
            return None;
        }
        let set: Vec<_> = cpu.members.iter().map(|member| member.params).collect();
        dwcs::event_share(&set, &self.platform)
    }

    /// Gives the event server of `cpu` this share in place of what it had; `None` takes it
    /// back. Every deadline is kept all the same, and whoever asks for a place later gets what is
    /// left. Once granted, tell the scheduler by [`crate::scheduler::Input::EventServer`]. No
    /// effect if there is no such CPU. One analysis.
    ///
    /// # Errors
    /// It does not fit beside what is reserved, or the policy has no event server. Nothing
    /// changed.
    pub fn reserve_events(&mut self, cpu: u32, share: Option<Share>) -> Result<(), Refusal> {
        if share.is_some() && !self.test.has_event_server() {
            let reason = Reason::NoEventServer { policy: self.test.policy };
            return Err(Refusal { name: NAME.to_owned(), reason, hint: None, tests: Vec::new() });
        }
        let Some(at) = self.cpus.iter().position(|candidate| candidate.number == cpu) else {
            return Ok(());
        };
        let cpu = &self.cpus[at];
        let (number, ranked) = (cpu.number, cpu.ranked());
        let steps = &mut Steps::of_analysis();
        let verdict = self.test.screen(number, &ranked, share, &self.platform, steps);
        if share.is_some() && verdict.failure.is_some() {
            let victim = |index: usize| cpu.members[index].name.clone();
            let reason = Reason::of(number, &verdict, self.platform.cpu_limit, victim);
            let tests = verdict.tests;
            return Err(Refusal { name: NAME.to_owned(), reason, hint: None, tests });
        }
        let cpu = &mut self.cpus[at];
        (cpu.events, cpu.verdict) = (share, verdict);
        Ok(())
    }
}
