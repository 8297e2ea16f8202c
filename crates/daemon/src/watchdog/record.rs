//! The record of a domain that the watchdog keeps from tick to tick.

use std::sync::Arc;

use upcall_core::time::Instant;

use super::account::Account;
use crate::group::Member;

/// The number of ticks for which a domain may have the turn without running while another user
/// waits.
pub(super) const IDLE_TICKS_MAX: u32 = 3;

/// A domain and its record.
pub(super) struct Record {
    pub(super) member: Arc<Member>,
    pub(super) offences: u64,
    pub(super) account: Account,
    /// The CPU time of it that the account of its group contains.
    pub(super) charged_ns: u64,
    /// The CPU time and the time at which it was first seen awake without the turn. `None`: it
    /// sleeps, has the turn, or has responded since.
    pub(super) awake_without_turn: Option<(u64, Instant)>,
    /// `None`: it takes turns, or has offended too often to do so again.
    pub(super) penalty: Option<Penalty>,
    /// The number of ticks since it last ran at which it had the turn and did not run.
    pub(super) idle_ticks: u32,
    /// CPU time of its KLS thread at the last of these ticks.
    pub(super) kls_ns: u64,
    /// Successive ticks at which it showed a rank that it was not admitted with.
    pub(super) false_rank_ticks: u32,
    /// Whether it wanted the CPU at this tick.
    pub(super) wants_cpu: bool,
    pub(super) seen: bool,
}

/// An offender that runs below the other domains.
#[derive(Clone, Copy)]
pub(super) struct Penalty {
    /// CPU time of its thread when it offended.
    pub(super) cpu_ns: u64,
    pub(super) at: Instant,
    /// Whether it was put into the ordinary class since.
    pub(super) is_ordinary: bool,
}

impl Record {
    pub(super) fn new(member: Arc<Member>) -> Self {
        Record {
            member,
            offences: 0,
            account: Account::default(),
            charged_ns: 0,
            awake_without_turn: None,
            penalty: None,
            idle_ticks: 0,
            kls_ns: 0,
            false_rank_ticks: 0,
            wants_cpu: false,
            seen: true,
        }
    }

    /// Counts a tick at which the domain had the turn and did not run. Returns whether that was one
    /// tick too many.
    ///
    /// A tick does not count if the KLS thread is ready and has not run since the last one. That
    /// thread should wake the domain or pass over it. If it cannot run, the cause is the machine,
    /// or a domain that the other checks find.
    pub(super) fn count_idle_tick(&mut self, (kls_is_ready, kls_ns): (bool, u64)) -> bool {
        let kls_has_run = std::mem::replace(&mut self.kls_ns, kls_ns) != kls_ns;
        if kls_is_ready && !kls_has_run {
            return false;
        }
        self.idle_ticks += 1;
        let is_too_long = self.idle_ticks > IDLE_TICKS_MAX;
        if is_too_long {
            self.idle_ticks = 0;
        }
        is_too_long
    }
}
