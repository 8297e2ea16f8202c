//! Requests of programs, and the ends of their shares.
//!
//! Part of the server's thread. [`Programs`](crate::programs::Programs) admits them, checks whose
//! process a request names, and has their groups. This module knows which connection a program
//! belongs to, and lets admission of handlers and of programs know of each other:
//!
//! | program of | ends when |
//! |---|---|
//! | Start (`upcall exec`) | its connection closes, or its last process has ended |
//! | Adopt (`upcall adopt`) | its last process has ended |
//! | both | a Release names it, or the daemon ends |

use std::sync::atomic::Ordering;

use upcall_core::admission::Share;
use upcall_core::admission::program::{ProgramNeed, ProgramRefusal};
use upcall_core::time::{Instant, Span};
use upcall_shm::wire::{
    AdmittedProgram, ProgramReply, ProgramRequest, ProgramTerms, RefusalCause, RefusedProgram,
    ToDomain,
};
use upcall_sys::process::effective_user;

use super::daemon::Daemon;
use super::event::DaemonEvent;
use super::names::shown;
use super::served_programs::Known;
use super::session::SessionEnd;
use crate::clock;
use crate::programs::{Admitted, ProgramError, ProgramId};
use crate::registry::Owner;

impl Daemon {
    pub(super) fn handle_program_request(
        &mut self,
        session: u64,
        request: ProgramRequest,
    ) -> Result<(), SessionEnd> {
        let Some(client) = self.sessions.get(&session) else { return Ok(()) };
        if client.domain.is_some() {
            return Err(SessionEnd("a domain asked for the share of a program".to_owned()));
        }
        let (uid, has_one) = (client.credentials.uid, client.program.is_some());
        let reply = match request {
            _ if !self.programs.may_ask(uid) => Err(no_right(uid)),
            ProgramRequest::Start { .. } if has_one => {
                return Err(SessionEnd("it started a second program".to_owned()));
            }
            ProgramRequest::Start { pid, terms, name } => {
                self.admit_program((uid, pid), &terms, shown(&name), Some(session))
            }
            ProgramRequest::Adopt { pid, terms, name } => {
                self.admit_program((uid, pid), &terms, shown(&name), None)
            }
            ProgramRequest::Change { pid, share_ppm } => {
                self.change_program(session, (uid, pid), share_ppm)
            }
            ProgramRequest::Release { pid } => self.release_program(session, (uid, pid)),
        };
        let reply = reply.unwrap_or_else(|refused| {
            self.report_refusal(session, &refused.reason);
            ProgramReply::Refused(refused)
        });
        self.send(session, &ToDomain::Program(reply), &[])
    }

    /// Admits a process of the user as a program, which belongs to `session` if there is one.
    fn admit_program(
        &mut self,
        (uid, pid): (u32, u32),
        terms: &ProgramTerms,
        name: String,
        session: Option<u64>,
    ) -> Result<ProgramReply, RefusedProgram> {
        if self.registry.time_quantum().is_some() {
            return Err(refusal(RefusalCause::Limit, UNDER_SHARES.to_owned()));
        }
        let need = need(terms);
        let loads = self.registry.reservations().load();
        let programs = &mut self.programs.programs;
        let load = programs.place(&need, &loads).map_err(|error| refused_by(&error))?;
        let admitted = programs.admit(uid, pid, &need, load).map_err(|error| refused_by(&error))?;
        let share_ppm = admitted.share.map_or(0, Share::ppm);
        if let Err(error) = self.registry.check_share(uid, share_ppm.into()) {
            self.programs.programs.end(admitted.id);
            return Err(RefusedProgram {
                asked_ppm: share_ppm,
                ..refusal(RefusalCause::Limit, error.to_string())
            });
        }
        let (id, cpu, share) = (admitted.id, admitted.cpu, admitted.share);
        if let Some(owner) = session.and_then(|session| self.sessions.get_mut(&session)) {
            owner.program = Some(id);
        }
        let known = Known { name: name.clone(), session, share_ppm };
        self.programs.known.insert(id, known);
        self.tell_registry();
        // Relaxed: a count.
        self.attached_ever.fetch_add(1, Ordering::Relaxed);
        let owner = Owner { uid, pid };
        self.events.push(DaemonEvent::ProgramAdmitted { program: id, name, owner, cpu, share });
        Ok(ProgramReply::Admitted(reply_of(&admitted)))
    }

    fn change_program(
        &mut self,
        session: u64,
        (uid, pid): (u32, u32),
        share_ppm: u32,
    ) -> Result<ProgramReply, RefusedProgram> {
        let no_share = || refusal(RefusalCause::Terms, "a share of 0 %".to_owned());
        let share = Share::from_ppm(share_ppm).ok_or_else(no_share)?;
        let id = self.programs.programs.program_of(uid, pid);
        let id = id.map_err(|error| refused_by(&error))?;
        let before_ppm = self.programs.known.get(&id).map_or(0, |known| known.share_ppm);
        let more_ppm = share_ppm.saturating_sub(before_ppm);
        self.registry.check_share(uid, more_ppm.into()).map_err(|error| RefusedProgram {
            asked_ppm: share_ppm,
            ..refusal(RefusalCause::Limit, error.to_string())
        })?;
        let changed = self.programs.programs.change(uid, pid, share);
        let changed = changed.map_err(|error| refused_by(&error))?;
        if let Some(known) = self.programs.known.get_mut(&id) {
            known.share_ppm = share_ppm;
        }
        self.tell_registry();
        let reply = ProgramReply::Admitted(reply_of(&changed));
        self.tell_owner(id, session, &reply);
        Ok(reply)
    }

    fn release_program(
        &mut self,
        session: u64,
        (uid, pid): (u32, u32),
    ) -> Result<ProgramReply, RefusedProgram> {
        let found = self.programs.programs.program_of(uid, pid);
        let id = found.map_err(|error| refused_by(&error))?;
        let reply = ProgramReply::Ended { id };
        self.tell_owner(id, session, &reply);
        self.end_program(id, "its share was given back");
        Ok(reply)
    }

    /// Tells the connection of a program what another connection changed.
    fn tell_owner(&mut self, id: ProgramId, asking: u64, reply: &ProgramReply) {
        let owner = self.programs.known.get(&id).and_then(|known| known.session);
        let Some(owner) = owner.filter(|owner| *owner != asking) else { return };
        if self.send(owner, &ToDomain::Program(reply.clone()), &[]).is_err() {
            self.end(owner, "it does not read its messages");
        }
    }

    /// Takes the share of a program. No effect on one that has ended.
    pub(super) fn end_program(&mut self, id: ProgramId, reason: &str) {
        let Some(known) = self.programs.known.remove(&id) else { return };
        self.programs.programs.end(id);
        self.note_end_of_program(id, known, reason);
    }

    fn note_end_of_program(&mut self, id: ProgramId, known: Known, reason: &str) {
        if let Some(session) = known.session.and_then(|session| self.sessions.get_mut(&session)) {
            session.program = None;
            // From now on it is as any connection that has just sent a message.
            session.heard_at = clock::now();
        }
        self.tell_registry();
        let (name, reason) = (known.name, reason.to_owned());
        self.events.push(DaemonEvent::ProgramEnded { program: id, name, reason });
    }

    pub(super) fn end_all_programs(&mut self) {
        let ids: Vec<ProgramId> = self.programs.known.keys().copied().collect();
        ids.into_iter().for_each(|id| self.end_program(id, "the daemon ends"));
    }

    /// Ends the programs whose last process has ended.
    pub(super) fn look_at_programs(&mut self, now: Instant) {
        if self.programs.look_at().is_none_or(|at| now < at) {
            return;
        }
        self.programs.looked_at = now;
        let was_leaving = self.programs.programs.is_leaving();
        for id in self.programs.programs.reap() {
            if let Some(known) = self.programs.known.remove(&id) {
                self.note_end_of_program(id, known, "its last process ended");
            }
        }
        if was_leaving {
            self.tell_registry();
        }
    }

    /// Takes a process out of the groups before a thread of it gets the real-time class.
    pub(super) fn leave_programs(&self, session: u64) {
        let Some(session) = self.sessions.get(&session) else { return };
        // The number of a process that has ended may belong to another one.
        if session.process.has_exited() == Ok(false) {
            // If it fails, the kernel refuses the class, and that error is reported.
            let _ = self.programs.programs.leave_rest(session.credentials.pid);
        }
    }

    /// Tells the programs what handlers have reserved, after that has changed.
    pub(super) fn tell_programs(&mut self) {
        for load in self.registry.reservations().load() {
            if let Err(error) = self.programs.programs.set_load(&load) {
                let event = "programs";
                tracing::warn!(event, cpu = load.cpu, %error, "shares of programs are not kept");
            }
        }
    }

    /// Tells the admission of handlers what programs have, after that has changed.
    fn tell_registry(&mut self) {
        let programs = &self.programs.programs;
        let known = &self.programs.known;
        let name_of = |id| known.get(&id).map(|known| known.name.clone()).unwrap_or_default();
        self.registry.set_programs(programs.on_cpus(name_of), programs.shares_of_users());
        self.set_shares();
    }
}

/// The refusal of a user who may not ask, with who may, and what would help.
fn no_right(uid: u32) -> RefusedProgram {
    let own = effective_user();
    let reason = format!(
        "user {uid} has no right to shares of programs: root, the daemon's user {own}, and users \
         of `upcalld --program-users` have it; start the daemon with `--program-users {uid}`, or \
         ask a daemon of your own (--socket)"
    );
    refusal(RefusalCause::NoRight, reason)
}

fn refusal(cause: RefusalCause, reason: String) -> RefusedProgram {
    RefusedProgram { cause, asked_ppm: 0, fits_ppm: 0, reason }
}

/// Handlers with weights may always take all that the limit of the CPU leaves, so nothing could be
/// promised to a program.
const UNDER_SHARES: &str = "this daemon schedules by `ps`, under which handlers take what others \
                            leave: expected a daemon of rmdp, rm, dws or dwcs";

/// An error as the client gets it.
fn refused_by(error: &ProgramError) -> RefusedProgram {
    let cause = match error {
        ProgramError::Refused(refusal) => return refused_in_admission(refusal),
        ProgramError::Gone { .. } | ProgramError::System { .. } => RefusalCause::NoProcess,
        ProgramError::Owner { .. } => RefusalCause::OtherUser,
        ProgramError::Taken { .. } | ProgramError::RealTime { .. } => RefusalCause::Taken,
        ProgramError::ShortQuantum { .. } => RefusalCause::Terms,
        ProgramError::Unknown { .. } => RefusalCause::NoProgram,
        ProgramError::TooMany { .. } | ProgramError::Grows { .. } => RefusalCause::Limit,
        ProgramError::BreaksProgram { .. } => RefusalCause::NoRoom,
        ProgramError::Cpu(_) => RefusalCause::Cpu,
        ProgramError::OtherDaemon { .. }
        | ProgramError::Cgroup(_)
        | ProgramError::Os(_)
        | ProgramError::Ticker(_) => RefusalCause::NoGroups,
    };
    refusal(cause, error.to_string())
}

fn refused_in_admission(refused: &ProgramRefusal) -> RefusedProgram {
    let (cause, asked_ppm, fits_ppm) = match refused {
        ProgramRefusal::OverLimit { share, free_ppm, .. } => {
            (RefusalCause::NoRoom, share.ppm(), *free_ppm)
        }
        ProgramRefusal::ShareTooSmall { asked, needed, .. } => {
            (RefusalCause::ShareTooSmall, asked.ppm(), needed.ppm())
        }
        ProgramRefusal::PeriodTooShort { .. } => (RefusalCause::PeriodTooShort, 0, 0),
        _ => (RefusalCause::Terms, 0, 0),
    };
    RefusedProgram { asked_ppm, fits_ppm, ..refusal(cause, refused.to_string()) }
}

/// The numbers of a request. 0 stands for what is not stated.
fn need(terms: &ProgramTerms) -> ProgramNeed {
    let span = |ns: u64| (ns > 0).then(|| Span::from_nanos(ns));
    ProgramNeed {
        share: Share::from_ppm(terms.share_ppm),
        weight: Some(terms.weight).filter(|&weight| weight > 0),
        cost: span(terms.cost_ns),
        period: span(terms.period_ns),
        cpu: terms.cpu,
        quantum: span(terms.quantum_ns),
    }
}

fn reply_of(admitted: &Admitted) -> AdmittedProgram {
    AdmittedProgram {
        id: admitted.id,
        cpu: admitted.cpu,
        share_ppm: admitted.share.map_or(0, Share::ppm),
        weight: admitted.weight.unwrap_or(0),
        burst_ns: admitted.burst.as_nanos(),
        quantum_ns: admitted.quantum.as_nanos(),
        ticker: admitted.ticker,
    }
}
