//! Which domain of a CPU has the turn, and what happens to one that cannot run
//! (docs/decisions/0008, 0014). Only with [`crate::SimSpec::split_level`].
//!
//! The domain that has the turn compares its rank with those of the others at each boundary and at
//! the end of each upcall, and passes the turn to a better one. The others learn the time only when
//! they get the turn. A domain that blocks or is stopped loses the turn:
//!
//! ```text
//!              (1) its handler blocks           (3) comes back: runs at once
//!             +------------> Blocked ----------------------+
//!             |                                            v
//!      takes part <---------------------------------- finishes its quantum
//!          |  ^        (5) boundary or end                 ^
//!          |  |                                            |
//!          |  +--- (4) continued, and nothing to finish    |
//!          |  |                                            |
//!          +--+-----------> Stopped -----------------------+
//!              (2) stopped          (4) continued: runs when the running domain sleeps
//! ```
//!
//! Under PS the domains are compared by their accounts
//! ([`upcall_core::policy::ps::DomainAccounts`]) and not by ranks. The
//! domain that has the turn keeps it until its request ends. At a boundary before that, domains
//! whose releases have come join the competition.
//!
//! In (3) the upcall of the domain that has the turn is interrupted, and continues after (5). At
//! (5) the domain finds that it has no turn, and waits for one. Until then the CPU passes over it.

use super::machine::{Machine, count};
use super::running::{Running, State};
use super::state::Cpu;
use crate::event::{EventKind, SimEvent};
use crate::spec::SplitLevel;
use std::cmp::Reverse;
use upcall_core::policy::ps::{DomainClaim, Parts};
use upcall_core::scheduler::Input;
use upcall_core::time::{Instant, Span};
use upcall_shm::user_area::NEVER;
use upcall_shm::user_area::order::{Next, better, next};

impl Cpu {
    /// The domain that is to have the turn now. O(activities of the CPU).
    pub(super) fn next_domain(
        &mut self,
        split_level: SplitLevel,
        observe: &mut impl FnMut(&SimEvent),
    ) -> Next<usize> {
        let now = self.reading();
        let holder = self.holder.filter(|&holder| self.domains[holder].takes_part());
        if self.accounts.is_some() {
            return self.next_by_account(holder, observe);
        }
        if let Some(holder) = holder
            && self.domains[holder].scheduler.clock() < now
        {
            self.inform(holder, Input::Tick, observe);
        }
        let own = holder.and_then(|holder| {
            let domain = &self.domains[holder];
            Some(domain.rank(&self.actors, domain.scheduler.best()?))
        });
        let deferral = split_level.defer_preemption;
        let by = if own.is_some() { now - deferral } else { now };
        let knows_since = !deferral.is_zero();
        let other = self.others(holder).fold(None, |best, home| {
            let rank = self.domains[home].best(&self.actors, knows_since, by);
            better(best, rank, home)
        });
        next(own, other)
    }

    /// The domain that is next by the accounts.
    fn next_by_account(
        &mut self,
        holder: Option<usize>,
        observe: &mut impl FnMut(&SimEvent),
    ) -> Next<usize> {
        if let Some(holder) = holder {
            self.inform(holder, Input::Tick, observe);
            if self.domains[holder].scheduler.is_within_request() {
                return Next::Own;
            }
        }
        self.enter_requests(None);
        let Some(accounts) = &mut self.accounts else { return Next::Nothing };
        let Some(next) = accounts.next_domain() else { return Next::Nothing };
        self.charged_until = self.now;
        match next as usize {
            next if Some(next) == holder => Next::Own,
            next => Next::Other(next),
        }
    }

    /// Enters in the accounts what all domains but one request now.
    fn enter_requests(&mut self, but: Option<usize>) {
        let now = self.reading();
        let Some(accounts) = &mut self.accounts else { return };
        let others = self.domains.iter().enumerate().filter(|(home, _)| Some(*home) != but);
        for (home, domain) in others {
            let request = if domain.takes_part() { domain.request(now) } else { None };
            accounts.set_request(count(home), request);
        }
    }

    /// Charges the domain that runs in its account.
    pub(super) fn charge_domain(&mut self, home: usize) {
        let used = self.now.since(self.charged_until);
        self.charged_until = self.now;
        if let Some(accounts) = &mut self.accounts {
            accounts.charge(count(home), used);
        }
    }

    /// Tells each domain which part of the CPU and of its groups it has, or under DWCS that there
    /// are others.
    pub(super) fn share_out(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        if machine.split_level.is_none() {
            return;
        }
        let alive = self.actors.iter().filter(|actor| actor.alive);
        let groups = &machine.groups;
        let claims: Vec<_> =
            alive.map(|actor| DomainClaim::of(count(actor.home), &actor.terms(), groups)).collect();
        let Parts { of_domains, of_groups, .. } = Parts::new(groups, &claims, 0);
        let has_peers = self.domains.len() > 1;
        for home in 0..self.domains.len() {
            let part = of_domains.iter().find(|(domain, _)| *domain == count(home));
            let share = part.map(|(_, share)| *share);
            if let Some(accounts) = &mut self.accounts {
                accounts.set_share(count(home), share);
            } else if !machine.drops_late_jobs || !has_peers {
                continue;
            }
            self.inform(home, Input::DomainShare { share }, observe);
            for &(_, group, part) in of_groups.iter().filter(|of| of.0 == count(home)) {
                self.inform(home, Input::GroupPart { group, part }, observe);
            }
        }
    }

    /// Until when no other domain preempts the handler that runs in `home`. `None` if one does now,
    /// or the domain has no turn. O(activities of the CPU).
    pub(super) fn may_go_on(&mut self, home: usize, split_level: SplitLevel) -> Option<Instant> {
        if self.holder != Some(home) {
            return None;
        }
        if self.accounts.is_some() {
            self.charge_domain(home);
            self.enter_requests(Some(home));
            let now = self.reading();
            let others = self.others(Some(home));
            let next = others.filter_map(|other| self.domains[other].next(&self.actors));
            return Some(next.filter(|&at| at > now).min().unwrap_or(Instant::FAR));
        }
        let (now, deferral) = (self.reading(), split_level.defer_preemption);
        let domain = &self.domains[home];
        let own = domain.rank(&self.actors, domain.scheduler.running_standing(now)?);
        let (by, knows_since) = (now - deferral, !deferral.is_zero());
        let rivals = self.others(Some(home)).map(|other| {
            self.domains[other].rival(&self.actors, knows_since, own, by).preempts_at_ns
        });
        let preempted_at = Instant::from_nanos(rivals.min().unwrap_or(NEVER));
        (preempted_at > by).then(|| preempted_at + deferral)
    }

    /// When a domain that takes part shows work next. O(activities of the CPU).
    pub(super) fn next_shown(&self) -> Instant {
        let next = self.others(None).filter_map(|home| self.domains[home].next(&self.actors));
        next.min().unwrap_or(Instant::FAR)
    }

    /// The domains that take part, without `home`.
    fn others(&self, home: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        let all = self.domains.iter().enumerate();
        let part = all.filter(move |(at, domain)| Some(*at) != home && domain.takes_part());
        part.map(|(at, _)| at)
    }

    /// (1) The handler that was just upcalled blocks for `length`.
    pub(super) fn block(
        &mut self,
        running: Running,
        length: Span,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let actor = &self.actors[running.actor as usize];
        let (home, activity) = (actor.home, actor.activity);
        let until = self.now + length;
        self.charge_domain(home);
        self.unblocks.push(Reverse((until, home)));
        self.domains[home].blocked_until = Some(until);
        let lead = running.from.since(self.now);
        self.domains[home].paused = Some(Running { lead, ..running });
        self.holder = None;
        self.note_away(home, observe);
        self.emit(EventKind::Pause { activity }, observe);
    }

    /// (3) The kernel lets the first handler that is due come back.
    pub(super) fn unblock(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        let Some(Reverse((at, home))) = self.unblocks.pop() else { return };
        let domain = &mut self.domains[home];
        if domain.blocked_until.take_if(|until| *until == at).is_none() || domain.stops > 0 {
            return;
        }
        match self.state {
            State::Running(running) if self.has_turn(&running) => {
                self.interrupted = Some(self.pause(running, machine, observe));
                self.resume(home, machine, observe);
            }
            State::Running(_) | State::HandOff { .. } => self.returners.push_back(home),
            State::Asleep { .. } => {
                self.become_awake(machine, observe);
                self.resume(home, machine, observe);
            }
        }
    }

    /// (2) and (4) A fault stops the domain, or lets it continue.
    pub(super) fn stop(
        &mut self,
        domain: u32,
        stops: bool,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let Some(home) = self.domains.iter().position(|of| of.number == domain) else { return };
        if !stops {
            self.domains[home].stops -= 1;
            if self.domains[home].stops == 0 {
                self.continued(home, machine, observe);
            }
            return;
        }
        self.domains[home].stops += 1;
        self.returners.retain(|&other| other != home);
        self.continued.retain(|&other| other != home);
        self.note_away(home, observe);
        if self.holder == Some(home) {
            self.holder = None;
        }
        match self.state {
            State::Running(running) if self.actors[running.actor as usize].home == home => {
                let paused = self.pause(running, machine, observe);
                self.domains[home].paused = Some(paused);
                self.decide(machine, observe);
            }
            _ => {
                let is_own =
                    |running: &mut Running| self.actors[running.actor as usize].home == home;
                if let Some(interrupted) = self.interrupted.take_if(is_own) {
                    self.domains[home].paused = Some(interrupted);
                }
            }
        }
    }

    /// (4)
    fn continued(&mut self, home: usize, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        if self.domains[home].blocked_until.is_some() {
            return;
        }
        let has_rest = self.domains[home].paused.is_some();
        if has_rest {
            self.continued.push_back(home);
        } else {
            self.note_back(home, observe);
        }
        match self.state {
            State::Asleep { .. } => {
                self.become_awake(machine, observe);
                self.decide(machine, observe);
            }
            State::Running(running) if !has_rest => self.ask_soon(running, machine),
            State::Running(_) | State::HandOff { .. } => {}
        }
    }

    /// Begins the hand-off to a domain, if the CPU ran another one last and a hand-off takes time.
    pub(super) fn begin_hand_off(
        &mut self,
        home: usize,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) -> bool {
        let (domain, cost) = (self.domains[home].number, machine.handoff_cost());
        if cost.is_zero() || self.handed_to.replace(domain) == Some(domain) {
            return false;
        }
        self.switching += cost;
        self.state = State::HandOff { until: machine.stalls.end(self.now, cost) };
        self.emit(EventKind::HandOff { domain }, observe);
        true
    }

    /// The domain that holds the turn begins. It was the best one when it got the turn, and does
    /// not look again.
    pub(super) fn end_hand_off(&mut self, machine: &Machine, observe: &mut impl FnMut(&SimEvent)) {
        let holder = self.holder.filter(|&holder| self.domains[holder].takes_part());
        let Some(holder) = holder.filter(|_| self.returners.is_empty()) else {
            return self.decide(machine, observe);
        };
        let lost = self.inform(holder, Input::Tick, observe) && machine.drops_late_jobs;
        if lost || !self.next_upcall(holder, true, machine, observe) {
            self.decide(machine, observe);
        }
    }

    /// Takes the running handler off the CPU. The caller sets the new state.
    fn pause(
        &mut self,
        running: Running,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) -> Running {
        let position = self.position(&running, machine);
        let actor = &mut self.actors[running.actor as usize];
        actor.position = position;
        actor.busy += self.now.since(running.upcalled);
        let (activity, home) = (actor.activity, actor.home);
        self.charge_domain(home);
        self.emit(EventKind::Pause { activity }, observe);
        Running { upcalled: self.now, lead: running.from.since(self.now), ..running }
    }

    /// A handler continues where it stopped, up to its next preemption point.
    pub(super) fn resume(
        &mut self,
        home: usize,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        if let Some(paused) = self.domains[home].paused.take() {
            self.go_on(paused, machine, observe);
        }
    }

    pub(super) fn go_on(
        &mut self,
        mut running: Running,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        let activity = self.actors[running.actor as usize].activity;
        self.emit(EventKind::Continue { activity }, observe);
        // A hand-off that had begun is made again if another handler ran meanwhile.
        let switches = self.switch_to(running.actor);
        let cost = if switches { machine.handoff_cost() } else { running.lead };
        self.switching += if switches { cost } else { Span::ZERO };
        running.upcalled = self.now;
        self.charged_until = self.now;
        running.from = machine.stalls.end(self.now, cost);
        running.check_at = self.now;
        let mut planned = self.planned(running, machine);
        planned.end = planned.end.max(self.now);
        self.state = State::Running(planned);
    }

    /// (5) The upcall of the holder goes on, which does not pay for the handlers that came back.
    pub(super) fn end_interruption(
        &mut self,
        interrupted: Running,
        machine: &Machine,
        observe: &mut impl FnMut(&SimEvent),
    ) {
        self.go_on(interrupted, machine, observe);
        let State::Running(running) = self.state else { return };
        let length = running.from.since(interrupted.upcalled + interrupted.lead);
        let home = self.actors[running.actor as usize].home;
        self.inform(home, Input::Interrupted { length }, observe);
    }

    pub(super) fn has_turn(&self, running: &Running) -> bool {
        self.holder == Some(self.actors[running.actor as usize].home)
    }

    fn note_away(&mut self, home: usize, observe: &mut impl FnMut(&SimEvent)) {
        let domain = &mut self.domains[home];
        if !core::mem::replace(&mut domain.is_away, true) {
            let domain = domain.number;
            self.emit(EventKind::DomainAway { domain }, observe);
        }
    }

    /// (5) The domain takes part again, if nothing holds it back any more.
    #[inline]
    pub(super) fn note_back(&mut self, home: usize, observe: &mut impl FnMut(&SimEvent)) {
        if self.domains[home].is_away && self.domains[home].takes_part() {
            self.domains[home].is_away = false;
            self.inform(home, Input::PassedOver, observe);
            let domain = self.domains[home].number;
            self.emit(EventKind::DomainBack { domain }, observe);
        }
    }
}
