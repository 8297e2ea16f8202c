//! Finds a holder that keeps its turn although a domain of another user shows a better rank. Part
//! of a look at a CPU ([`super::look`]).
//!
//! A domain can write responses, ranks and the turn of its own group without end, so none of these
//! counts here. Only a choice by a KLS thread shows that a holder passed its turn. An honest holder
//! passes the turn at its first boundary after a better rank was shown, so within its longest
//! quantum. A holder that still has the turn at its limit, 1 ms later, loses the turn and runs
//! below the others. That takes time alone, because the kernel's count of a running thread is up to
//! a kernel tick old. The change of priority brings the count up to date, as it was at the first
//! look that found the better rank. So the count then tells two cases apart:
//!
//! ```text
//!   has the turn --- a better rank, for its quantum and 1 ms ---> loses the turn
//!         used that much CPU time:    runs below the others; the third time is an offence
//!         used less:                  finishes its quantum at once, as if it had been blocked
//! ```
//!
//! In the second case the host, or a thread that came back from the kernel, had the CPU. Domains of
//! worse ranks must not go before such a holder. It may run for one more quantum and 1 ms of CPU
//! time without the turn (`look`), so nothing is gained by looking like that.
//!
//! These cases are no kept turns:
//!
//! - The machine stood still before the look. The time begins anew.
//! - A thread without the turn kept the holder from running. The time begins anew.
//! - The better rank is of the holder's own user. Domains of one user trust each other, and may
//!   defer preemption. Deferral does not hold against other users' work that is ready: the first
//!   look shows that work in the area of domain 0.
//! - The better rank was published just now. The time begins with the first look that finds it, and
//!   that look asks the holder to yield. A release that the domain has published ahead gets a look
//!   of its own.
//! - The holder itself has a rank that the other one does not preempt. An event decides between
//!   equals when the next domain is chosen, and never at a boundary.

use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_shm::turn_page::Turn;
use upcall_shm::user_area::Rank;

use super::cpu_watch::CpuWatch;
use super::look::GROUP_EVERY;
use super::measures::{let_finish_quantum, put_below_others, revoke_turn};
use super::record::{Beside, is_ready};
use super::tick::Tick;
use crate::cpu::CpuView;
use crate::group::{DomainGroup, Member, Shown};

impl CpuWatch {
    /// Whether the holder kept its turn until its limit, and has lost it. See the module's head.
    pub(super) fn keeps_turn(
        &mut self,
        view: &CpuView,
        (group, member, turn): (&Arc<DomainGroup>, &Arc<Member>, Turn),
        tick: &mut Tick<'_>,
    ) -> bool {
        let (kept_until, beside) = (self.kept_until, Beside::Grant(self.cpu_state.grants()));
        let Some(record) = self.record_of(member) else { return false };
        if tick.stalled == Span::ZERO && member.shows_false_rank(tick.now) {
            // The check of ranks acts against it, or it learns now what it was granted.
            return false;
        }
        if tick.stalled > Span::ZERO || !is_outranked(view, (group, member), tick.now) {
            record.passed_over = None;
            return false;
        }
        let known = record.passed_over.filter(|of| of.beside == beside && of.at >= kept_until);
        let limit = member.limits.response_max();
        match known {
            None => {
                record.passed_over = None;
                self.sample_exactly(group, member, tick);
                if view.publish_others(group, tick.now) == Shown::Changed {
                    let _ = group.turn.set_need_resched();
                }
                if let Some(record) = self.record_of(member) {
                    record.pass_over(beside, tick.now);
                }
                self.look_again_after(limit, tick);
                false
            }
            Some(known) if tick.now.since(known.at) < limit => {
                let left = (known.at + limit).since(tick.now);
                self.look_again_after(left.max(GROUP_EVERY), tick);
                false
            }
            // The KLS thread passes over a holder that is blocked.
            Some(_) if !is_ready(member) => {
                record.passed_over = None;
                false
            }
            Some(known) => {
                self.take_kept_turn((group, member, turn), known.cpu_ns, tick);
                true
            }
        }
    }

    /// Takes the turn from a holder that kept it until its limit. It had used `before_ns` of CPU
    /// time when the better rank was found.
    fn take_kept_turn(
        &mut self,
        (group, member, turn): (&Arc<DomainGroup>, &Arc<Member>, Turn),
        before_ns: u64,
        tick: &mut Tick<'_>,
    ) {
        put_below_others(group, member, tick.rules);
        self.update_record(group, member, tick, true);
        let Some(record) = self.record_of(member) else { return };
        let used_ns = record.account.cpu_ns.saturating_sub(before_ns);
        if used_ns > tick.rules.limit(member).as_nanos() {
            return self.put_in_order(group, member, (Some(turn), used_ns), tick);
        }
        (record.passed_over, record.suspicion) = (None, None);
        revoke_turn(group, turn);
        let_finish_quantum(group, member, tick.rules);
        self.look_again_after(GROUP_EVERY, tick);
    }

    /// Looks at the CPU when a domain of another user gets a rank that preempts the holder's.
    pub(super) fn look_at_better_release(
        &mut self,
        view: &CpuView,
        (group, holder): (&Arc<DomainGroup>, &Member),
        tick: &Tick<'_>,
    ) {
        let Ok(Some(own)) = holder.area.best(tick.now.as_nanos()) else { return };
        let others = view.groups().filter(|(other, _)| !Arc::ptr_eq(other, group));
        let present = others
            .flat_map(|(other, members)| members.iter().filter(|member| other.is_present(member)));
        let releases = present.filter_map(|member| member.next_release_before(own, tick.now));
        if let Some(at) = releases.min() {
            self.look_again_after(at.since(tick.now).max(GROUP_EVERY), tick);
        }
    }
}

/// Whether a domain of another user has a rank that preempts those of the holder, and may be
/// chosen.
///
/// The ranks are those that a choice compares, so a domain over its budget shows that. A holder
/// that writes its area without end shows no rank.
fn is_outranked(
    view: &CpuView,
    (group, holder): (&Arc<DomainGroup>, &Member),
    now: Instant,
) -> bool {
    let others = view.choosable_beside(group);
    let best = others.filter_map(|(other, members)| other.best(members, now)).map(|(rank, _)| rank);
    let own: Option<Rank> = holder.area.best(now.as_nanos()).unwrap_or_default();
    best.min().is_some_and(|best| own.is_none_or(|own| best.preempts(&own)))
}
