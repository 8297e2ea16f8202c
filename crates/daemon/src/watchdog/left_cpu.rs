//! Domains that leave their CPU.
//!
//! The daemon pins the thread of a domain to the CPU on which it is admitted
//! ([`crate::member_thread`]). A thread may change its own CPUs (sched_setaffinity(2)). On another
//! CPU it would have the priority of the domains there, and nobody expects it there: neither
//! admission nor the looks. On a CPU without domains it would keep ordinary programs from running.
//! It may also wait there behind the owner of its lock (`lock_waits`), ready and never raised.
//!
//! The kernel tells no daemon when a thread changes its CPUs. So the watchdog asks for the CPUs of
//! each thread once within each tick, at a random moment: a thread that is back at a moment it
//! knows would never be found. It also asks when a look at another CPU raises a silent holder, or
//! finds no choice of a KLS thread. A thread that may run elsewhere is pinned again, and is
//! ordinary for 50 ms. In the class of the others it would leave again at once. The third time,
//! each within a second of the one before, is an offence.
//!
//! An administrator may change the CPUs of a thread, too (taskset(1), cpuset(7)), and the kernel
//! does when a CPU goes offline. So one such change is no offence. While the kernel refuses to pin
//! the thread, nothing follows.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::Measure;
use upcall_sys::schedule::Class;

use super::cpu_watch::CpuWatch;
use super::measures::{put_into_ordinary_class, revoke_turn};
use super::tick::Tick;
use crate::cpu::CpuView;
use crate::enforcement::TICK;
use crate::group::{DomainGroup, Member};

/// A random moment within the tick that begins at `begin`.
pub(super) fn moment_within(begin: Instant) -> Instant {
    // Its keys are random and secret, and differ each time.
    let random = RandomState::new().build_hasher().finish();
    begin + Span::from_nanos(random % TICK.as_nanos())
}

impl CpuWatch {
    /// Pins the threads again that may run on other CPUs. Puts their domains into the ordinary
    /// class, or acts against them. Two system calls for each domain, and four more for each that
    /// has left.
    pub(super) fn end_absences(&mut self, view: &CpuView, tick: &mut Tick<'_>) {
        if tick.rules.band.is_none() {
            return;
        }
        for (group, members) in view.groups() {
            for member in members.iter() {
                if self.has_priority(member) && self.ends_absence(member) {
                    self.note_absence(group, member, tick);
                }
            }
        }
    }

    /// Whether a thread with a real-time class could run elsewhere, and is pinned again.
    fn ends_absence(&self, member: &Arc<Member>) -> bool {
        let (thread, cpu) = (member.thread.by_watchdog(), self.cpu_state.cpu);
        // An error: the thread has ended.
        thread.is_pinned_to(cpu) == Ok(false)
            && thread.class() != Ok(Class::Ordinary)
            && thread.pin(cpu).is_ok()
    }

    fn note_absence(&mut self, group: &DomainGroup, member: &Member, tick: &mut Tick<'_>) {
        let turn = group.turn_of(member);
        let Some(record) = self.record_of(member) else { return };
        let (is_offence, used_ns) =
            (record.absences.is_one_too_many(tick.now), record.account.used_ns);
        if is_offence {
            self.act_against(group, member, (Measure::LeftCpu, used_ns), tick);
        } else {
            record.put_away(tick.now, false);
            put_into_ordinary_class(group, member, tick.rules);
            group.notify(member.domain);
        }
        turn.into_iter().for_each(|turn| revoke_turn(group, turn));
    }
}
