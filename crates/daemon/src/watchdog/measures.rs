//! The measures that the watchdog takes against a domain's thread and turn, and how it undoes them.

use upcall_shm::kernel_area::State;
use upcall_shm::turn_page::Turn;
use upcall_shm::{DomainId, Measure};
use upcall_sys::schedule;

use super::tick::{Rules, Tick};
use crate::group::{DomainGroup, Member};

pub(super) fn reinstate(group: &DomainGroup, member: &Member, rules: &Rules) {
    if let Some(band) = rules.band {
        // Fails only if the thread has ended.
        let _ = member.thread.by_watchdog().set_fifo_not_inherited(band.handlers());
    }
    group.set_state(member, State::Attached);
    // Wakes the domain, so that it publishes its work.
    group.notify(member.domain);
}

/// Lowers a raised thread that has reached a boundary or has the turn again. The thread was raised
/// because it had blocked during its turn. It may stay raised for up to a tick too long, which
/// costs no other domain a quantum: without the turn the thread only shows its work.
pub(super) fn lower_returner(
    group: &DomainGroup,
    member: &Member,
    has_turn: DomainId,
    rules: &Rules,
) {
    let Some(band) = rules.band else { return };
    let is_back = group.is_present(member) || has_turn == member.domain;
    let is_raised = || {
        let raised = schedule::Class::Fifo { priority: band.returner() };
        member.thread.by_watchdog().class() == Ok(raised)
    };
    if is_back && is_raised() {
        // Fails only if the thread has ended.
        let _ = member.thread.by_watchdog().set_fifo_not_inherited(band.handlers());
    }
}

/// Brings the kernel's count of the CPU time of a thread that has the turn up to date. The count of
/// a running thread is up to a kernel tick behind, and each change of its priority adds what it has
/// used. The thread goes up by one priority and back, so it keeps its place before its equals.
pub(super) fn update_cpu_count(member: &Member, rules: &Rules) {
    let Some(band) = rules.band else { return };
    let thread = member.thread.by_watchdog();
    // Each fails only if the thread has ended.
    let _ = thread.set_fifo_not_inherited(band.returner());
    let _ = thread.set_fifo_not_inherited(band.handlers());
    // The KLS thread marks a holder that has blocked before it raises that thread.
    if member.is(State::Blocked) {
        let _ = thread.set_fifo_not_inherited(band.returner());
    }
}

/// Lets the thread that has the turn run before all domains and all threads with their priorities,
/// until [`lower_again`]. A change to a lower priority puts a thread before its equals.
pub(super) fn let_run(member: &Member, rules: &Rules) {
    let Some(band) = rules.band else { return };
    let thread = member.thread.by_watchdog();
    // Each fails only if the thread has ended.
    let _ = thread.set_fifo_not_inherited(band.watchdog());
    let _ = thread.set_fifo_not_inherited(band.returner());
}

/// Ends [`let_run`]. A thread that is to finish its quantum at once stays raised.
pub(super) fn lower_again(member: &Member, rules: &Rules) {
    let Some(band) = rules.band else { return };
    let thread = member.thread.by_watchdog();
    let is_raised = thread.class() == Ok(schedule::Class::Fifo { priority: band.returner() });
    // Each fails only if the thread has ended.
    if is_raised && (member.is(State::Attached) || member.is(State::Stopped)) {
        let _ = thread.set_fifo_not_inherited(band.handlers());
        // As in `update_cpu_count`.
        if member.is(State::Blocked) {
            let _ = thread.set_fifo_not_inherited(band.returner());
        }
    } else if is_raised && member.is(State::Demoted) {
        let _ = thread.set_fifo_not_inherited(band.offender());
    }
}

pub(super) fn demote(group: &DomainGroup, member: &Member, held_ns: u64, tick: &mut Tick<'_>) {
    group.set_state(member, State::Demoted);
    if tick.rules.band.is_some() {
        let _ = member.thread.by_watchdog().set_ordinary();
    }
    tick.report_offence(group, member, Measure::Demoted, held_ns);
    if tick.rules.kill {
        tick.report_offence(group, member, Measure::Killed, held_ns);
    }
    // The domain sees that it gets no turns when it wakes.
    group.notify(member.domain);
}

/// Puts the thread of a domain that takes no turns below the KLS thread.
pub(super) fn put_below_others(group: &DomainGroup, member: &Member, rules: &Rules) {
    // The state changes first, because the KLS thread may raise the thread now and checks the state
    // afterwards.
    group.set_state(member, State::Demoted);
    if let Some(band) = rules.band {
        // Fails only if the thread has ended.
        let _ = member.thread.by_watchdog().set_fifo_not_inherited(band.offender());
    }
}

/// Puts the thread of a domain that takes no turns into the ordinary class. The kernel then takes
/// the priority from the owners of locks for which the thread waits, too.
pub(super) fn put_into_ordinary_class(group: &DomainGroup, member: &Member, rules: &Rules) {
    // As in `put_below_others`.
    group.set_state(member, State::Demoted);
    if rules.band.is_some() {
        // Fails only if the thread has ended.
        let _ = member.thread.by_watchdog().set_ordinary();
    }
}

/// Lets a thread that lost time to the host finish its quantum at once, as the KLS thread does with
/// a thread that was blocked. It takes turns again when it sleeps.
pub(super) fn let_finish_quantum(group: &DomainGroup, member: &Member, rules: &Rules) {
    if let Some(band) = rules.band {
        // Fails only if the thread has ended.
        let _ = member.thread.by_watchdog().set_fifo_not_inherited(band.returner());
    }
    group.set_state(member, State::Blocked);
}

/// Puts a domain that owes too much into the ordinary class. This is no offence, so the daemon does
/// not kill it.
pub(super) fn lower(group: &DomainGroup, member: &Member, owed_ns: u64, tick: &mut Tick<'_>) {
    group.set_state(member, State::Demoted);
    if tick.rules.band.is_some() {
        let _ = member.thread.by_watchdog().set_ordinary();
    }
    tick.report_offence(group, member, Measure::Demoted, owed_ns);
    // The domain sees that it gets no turns when it wakes.
    group.notify(member.domain);
}

pub(super) fn revoke_turn(group: &DomainGroup, turn: Turn) {
    if group.turn.pass(turn, DomainId::DAEMON) {
        group.notify(DomainId::DAEMON);
    }
}
