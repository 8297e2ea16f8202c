//! A domain, as the watchdog remembers it from tick to tick.

use std::sync::Arc;

use upcall_core::time::Instant;

use super::account::Account;
use crate::group::Member;

/// So many ticks may a domain have the turn, not run, and keep another user waiting.
pub(super) const IDLE_TICKS_MAX: u32 = 3;

/// A domain, as the watchdog remembers it.
pub(super) struct Record {
    pub(super) member: Arc<Member>,
    pub(super) offences: u64,
    pub(super) account: Account,
    /// CPU time as it was when it was first seen awake without the turn, and when; `None`: it
    /// is not, or has given a sign since.
    pub(super) awake_without_turn: Option<(u64, Instant)>,
    /// `None`: it takes turns, or has act_against too often to do so again.
    pub(super) penalty: Option<Penalty>,
    /// Ticks at which it had the turn and made nothing of it, since it ran last.
    pub(super) idle_ticks: u32,
    /// CPU time of its KLS thread at the last of them.
    pub(super) kls_ns: u64,
    /// Ticks in succession at which it showed a rank that it was not admitted with.
    pub(super) false_rank_ticks: u32,
    pub(super) seen: bool,
}

/// A domain that was put beneath the others.
#[derive(Clone, Copy)]
pub(super) struct Penalty {
    /// CPU time of its thread then.
    pub(super) cpu_ns: u64,
    pub(super) at: Instant,
    /// It was put into the ordinary class since.
    pub(super) is_ordinary: bool,
}

impl Record {
    pub(super) fn new(member: Arc<Member>) -> Self {
        Record {
            member,
            offences: 0,
            account: Account::default(),
            awake_without_turn: None,
            penalty: None,
            idle_ticks: 0,
            kls_ns: 0,
            false_rank_ticks: 0,
            seen: true,
        }
    }

    /// At another look it had the turn and made nothing of it; whether that was once too often. Such
    /// a look does not count if its KLS thread, which is to wake it or to pass over it, is ready and has
    /// not run since the last: the machine keeps it from that, or somebody who is found in other ways.
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
