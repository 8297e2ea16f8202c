//! Domains that leave their CPU.
//!
//! The daemon pins the thread of a domain to the CPU on which it is admitted
//! ([`crate::member_thread`]). A thread may change its own CPUs (sched_setaffinity(2)). On another
//! CPU it would have the priority of the domains there, and nobody expects it there: neither
//! admission nor the looks. On a CPU without domains it would keep ordinary programs from running.
//! It may also hide there behind an owner of its lock (`lock_waits`), ready and never raised.
//!
//! Each tick asks the kernel for the CPUs of each thread, and so does a look that finds another CPU
//! at a standstill. A thread that may run elsewhere is pinned again. That is an offence, and
//! changes from outside are none: if the daemon cannot pin the thread, its CPU went offline, or an
//! administrator took the CPU from its control group (cpuset(7)).

use std::sync::Arc;

use upcall_shm::Measure;

use super::cpu_watch::CpuWatch;
use super::measures::revoke_turn;
use super::tick::Tick;
use crate::group::Member;

impl CpuWatch {
    /// Pins the threads again that may run on other CPUs, and acts against their domains. A system
    /// call for each thread with a real-time class, and two more for each that has left.
    pub(super) fn end_absences(&mut self, tick: &mut Tick<'_>) {
        if tick.rules.band.is_none() {
            return;
        }
        let view = std::mem::take(&mut self.view);
        for (group, members) in view.groups() {
            for member in members.iter() {
                if !self.has_priority(member) || !self.ends_absence(member) {
                    continue;
                }
                let used_ns = self.record_of(member).map_or(0, |record| record.account.used_ns);
                self.act_against(group, member, (Measure::LeftCpu, used_ns), tick);
                let turn = group.turn.turn().ok().filter(|turn| turn.holder() == member.domain);
                turn.into_iter().for_each(|turn| revoke_turn(group, turn));
            }
        }
        self.view = view;
    }

    /// Whether the thread could run elsewhere, and is pinned again.
    fn ends_absence(&self, member: &Arc<Member>) -> bool {
        let (thread, cpu) = (member.thread.by_watchdog(), self.cpu_state.cpu);
        // An error: the thread has ended.
        thread.is_pinned_to(cpu) == Ok(false) && thread.pin(cpu).is_ok()
    }
}
