//! Requests: places for activities, and the daemon's status. Sibling `programs` has those of
//! programs.
//!
//! Called with each message of a session. The registry decides, and the watchdog gets the new
//! limits. Part of the server's thread.

use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use upcall_core::time::Span;
use upcall_shm::DomainId;
use upcall_shm::wire::{ToDaemon, ToDomain};
use upcall_sys::readiness::{Direction, Watch};

use super::connections::{After, REPORT_INTERVAL};
use super::daemon::{Daemon, SESSIONS};
use super::event::DaemonEvent;
use super::names::shown;
use super::session::{Attached, Session, SessionEnd};
use crate::clock;
use crate::registry::{Claimed, Grant, Owner, PlaceError};
use crate::status::{Sent, StatusReply, StatusSource};

/// Refusals of a user that are reported in [`REPORT_INTERVAL`].
const REFUSALS_MAX: u32 = 20;

impl Daemon {
    pub(super) fn handle_message(
        &mut self,
        session: u64,
        message: ToDaemon,
    ) -> Result<(), SessionEnd> {
        match message {
            ToDaemon::Hello { name, policy } => {
                self.attach(session, &shown(&name), &shown(&policy))
            }
            ToDaemon::Thread { cpu, tid } => self.attach_thread(session, cpu, tid),
            ToDaemon::Group { parent, portion, name } => {
                let number = self.domain_of(session)?.number.number();
                let defined = self.registry.define_group(number, &shown(&name), (parent, portion));
                defined.map_err(|error| SessionEnd(error.to_string()))
            }
            ToDaemon::Create { request, unscreened, need, name } => {
                let (number, name) = (self.domain_of(session)?.number.number(), shown(&name));
                let result = self.registry.create(number, &name, &need, unscreened);
                self.reply(session, request, &name, result)
            }
            ToDaemon::Claim { request, unscreened, cpu, order, need, name } => {
                let (number, name) = (self.domain_of(session)?.number.number(), shown(&name));
                let in_time = clock::now() < self.claims_until;
                let claimed = Claimed { cpu, order, unscreened, in_time };
                let result = self.registry.claim(number, &name, &need, claimed);
                self.reply(session, request, &name, result)
            }
            ToDaemon::Reweigh { request, order, portion } => {
                let number = self.domain_of(session)?.number.number();
                let name = self.registry.name_of(number, order).unwrap_or_default().to_owned();
                let result = self.registry.reweigh(number, order, portion);
                self.reply(session, request, &name, result)
            }
            ToDaemon::ReserveEvents { request, cpu, share_ppm } => {
                let number = self.domain_of(session)?.number.number();
                let result = self.registry.reserve_events(number, cpu, share_ppm);
                let result = result.map(|()| ToDomain::EventsReserved { request });
                self.answer(session, request, "event server", result)
            }
            ToDaemon::Close { order } => {
                let number = self.domain_of(session)?.number.number();
                self.registry.close(number, order, clock::now());
                self.tell_programs();
                self.set_shares();
                self.set_limits(session);
                Ok(())
            }
            ToDaemon::Detach => Err(SessionEnd("it detached".to_owned())),
            ToDaemon::Inspect => {
                let real_time = self.real_time.is_some();
                let source =
                    StatusSource { registry: &self.registry, cpu_states: &self.cpu_states };
                let inspector = self.sessions.get_mut(&session).filter(|s| s.domain.is_none());
                let inspector = inspector.ok_or("a domain asked for the status")?;
                let mut reply = StatusReply::begin(&source, &inspector.credentials, real_time);
                reply.add_programs(&inspector.credentials, self.programs.status());
                reply.add_packet_quotas(&inspector.credentials, self.packet_quotas.status());
                reply.add_flows(&inspector.credentials, self.networks.status());
                inspector.status_reply = Some(reply);
                Ok(())
            }
            ToDaemon::Program(request) => self.handle_program_request(session, request),
            ToDaemon::PacketQuota(request) => self.handle_packet_quota_request(session, request),
            ToDaemon::OpenFlow(request) => self.offer_flow(session, request),
            ToDaemon::TakeFlow => self.open_flow(session),
        }
    }

    /// Replies to a domain whether an activity has a place.
    fn reply(
        &mut self,
        session: u64,
        request: u64,
        name: &str,
        result: Result<Grant, PlaceError>,
    ) -> Result<(), SessionEnd> {
        let granted = |grant: Grant| ToDomain::Granted {
            request,
            cpu: grant.cpu,
            order: grant.order,
            response_max_ns: grant.response_max.map_or(u64::MAX, Span::as_nanos),
            not_before_ns: grant.not_before.as_nanos(),
        };
        self.answer(session, request, name, result.map(granted))
    }

    /// Sends the reply to a request about a place, or the refusal.
    fn answer(
        &mut self,
        session: u64,
        request: u64,
        name: &str,
        result: Result<ToDomain, PlaceError>,
    ) -> Result<(), SessionEnd> {
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                let reason = error.to_string();
                self.report_refusal(session, &format!("{name}: {reason}"));
                ToDomain::Refused { request, reason, hint: error.hint() }
            }
        };
        self.tell_programs();
        self.set_shares();
        self.set_limits(session);
        self.send(session, &reply, &[])
    }

    /// Sends one domain's part of the status to an inspector. Returns `None` if the session's
    /// messages are to be read now.
    pub(super) fn send_status(&mut self, number: u64) -> Result<Option<After>, SessionEnd> {
        let source = StatusSource { registry: &self.registry, cpu_states: &self.cpu_states };
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(Some(After::Waits)) };
        let Some(status_reply) = &mut session.status_reply else { return Ok(None) };
        match status_reply.send_more(&source, &session.connection)? {
            Sent::All => session.status_reply = None,
            Sent::Part => {}
            Sent::SocketFull if session.has_exited => return Err(session.closed()),
            Sent::SocketFull => {
                if let Some(writable) = &status_reply.writable {
                    writable.arm()?;
                } else {
                    let (fd, watch) = (session.connection.as_fd(), SESSIONS + 2 * number);
                    status_reply.writable =
                        Some(Watch::new(&self.readiness, fd, Direction::Writable, watch)?);
                }
                return Ok(Some(After::Waits));
            }
        }
        session.heard_at = clock::now();
        Ok(Some(After::More))
    }

    /// PS: gives each domain its part of each CPU. Call this after places were granted, changed or
    /// given back.
    pub(super) fn set_shares(&self) {
        for (group, _) in &self.groups {
            if let Some(parts) = self.registry.parts(group.cpu) {
                // What a domain requests may be served only now that it has a part.
                if group.set_shares(&parts) {
                    group.notify(DomainId::DAEMON);
                }
            }
        }
    }

    /// Writes the limits of a domain to the kernel areas, and for the watchdog.
    pub(super) fn set_limits(&self, session: u64) {
        let domain = self.sessions.get(&session).and_then(|session| session.domain.as_ref());
        let Some(Attached { number, virtual_processors, .. }) = domain else { return };
        for (group, member) in
            virtual_processors.iter().filter_map(|s| Some((&s.group, s.member.as_ref()?)))
        {
            let usage = self.registry.usage(number.number(), group.cpu);
            let limits = &member.limits;
            // Relaxed: see `Limits`.
            limits.quantum_ns_max.store(usage.quantum_max.as_nanos(), Ordering::Relaxed);
            // The kernel counts hand-offs as CPU time of the domain's thread.
            let (share_ppm, job) =
                (usage.share_ppm + usage.hand_offs_ppm, usage.compute + usage.hand_offs);
            limits.hand_offs_ppm.store(usage.hand_offs_ppm, Ordering::Relaxed);
            limits.share_ppm.store(share_ppm, Ordering::Relaxed);
            limits.compute_ns.store(job.as_nanos(), Ordering::Relaxed);
            limits.reserves.store(usage.reserves, Ordering::Relaxed);
            let admitted = self.registry.admitted(number.number(), group.cpu);
            let mut ranks = limits.ranks.lock().unwrap_or_else(PoisonError::into_inner);
            ranks.set(admitted, clock::now());
            drop(ranks);
            group.kernel.set_quantum(*number, usage.quantum_max.as_nanos());
            group.allow_hand_offs();
        }
    }

    pub(super) fn report_refusal(&mut self, session: u64, reason: &str) {
        let Some(Session { credentials, .. }) = self.sessions.get(&session) else { return };
        let owner = Owner { uid: credentials.uid, pid: credentials.pid };
        self.report_refusal_of(owner, reason.to_owned());
    }

    /// Counts a refusal, and reports it unless too many of the user's were reported lately: a user
    /// cannot fill the log. Returns whether it was reported.
    pub(super) fn report_refusal_of(&mut self, owner: Owner, reason: String) -> bool {
        // Relaxed: the count is used on its own.
        self.refused_ever.fetch_add(1, Ordering::Relaxed);
        let now = clock::now();
        let (since, count) = self.refusals.entry(owner.uid).or_insert((now, 0));
        if now.since(*since) >= REPORT_INTERVAL {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        let reason = match *count {
            ..REFUSALS_MAX => reason,
            REFUSALS_MAX => format!("{reason}; more of this user for {REPORT_INTERVAL} untold"),
            _ => return false,
        };
        self.events.push(DaemonEvent::Refused { owner, reason });
        true
    }
}
