//! Requests: places for activities, and how things stand.
//!
//! Called with each message of a session. The registry decides, and the watchdog is told
//! what was decided. Part of the server's thread.

use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use upcall_core::time::Span;
use upcall_shm::wire::{ToDaemon, ToDomain};
use upcall_sys::readiness::{Direction, Watch};

use super::session::{Attached, Over, Session};
use super::{Daemon, Event, SESSIONS};
use crate::clock;
use crate::registry::{Claimed, Grant, Owner, PlaceError};
use crate::status::{Scene, Telling};

impl Daemon {
    pub(super) fn obey(&mut self, session: u64, message: ToDaemon) -> Result<(), Over> {
        match message {
            ToDaemon::Hello { name, policy } => self.attach(session, &name, &policy),
            ToDaemon::Thread { cpu, tid } => self.virtual_processor(session, cpu, tid),
            ToDaemon::Create { request, unscreened, need, name } => {
                let number = self.domain_of(session)?.number.number();
                let placed = self.registry.create(number, &name, &need, unscreened);
                self.answer(session, request, &name, placed)
            }
            ToDaemon::Claim { request, unscreened, cpu, order, need, name } => {
                let number = self.domain_of(session)?.number.number();
                let trusted = clock::now() < self.claims_until;
                let claimed = Claimed { cpu, order, unscreened, trusted };
                let placed = self.registry.claim(number, &name, &need, claimed);
                self.answer(session, request, &name, placed)
            }
            ToDaemon::Close { order } => {
                let number = self.domain_of(session)?.number.number();
                self.registry.close(number, order);
                self.set_limits(session);
                Ok(())
            }
            ToDaemon::Detach => Err(Over("it detached".to_owned())),
            ToDaemon::Inspect => {
                let real_time = self.real_time.is_some();
                let scene = Scene { registry: &self.registry, cpu_states: &self.cpu_states };
                let asking = self.sessions.get_mut(&session).filter(|s| s.domain.is_none());
                let asking = asking.ok_or("a domain asked how things stand")?;
                asking.telling = Some(Telling::begin(&scene, &asking.credentials, real_time));
                Ok(())
            }
        }
    }

    /// Tells a domain whether an activity has a place.
    fn answer(
        &mut self,
        session: u64,
        request: u64,
        name: &str,
        placed: Result<Grant, PlaceError>,
    ) -> Result<(), Over> {
        let answer = match placed {
            Ok(grant) => ToDomain::Granted {
                request,
                cpu: grant.cpu,
                order: grant.order,
                response_max_ns: grant.response_max.map_or(u64::MAX, Span::as_nanos),
            },
            Err(error) => {
                let reason = error.to_string();
                self.refused(session, &format!("{name}: {reason}"));
                ToDomain::Refused { request, reason, hint: error.hint() }
            }
        };
        self.set_limits(session);
        self.say(session, &answer, &[])
    }

    /// Goes on answering an inspector; `false`: it is to be listened to later.
    pub(super) fn tell(&mut self, number: u64) -> Result<bool, Over> {
        let scene = Scene { registry: &self.registry, cpu_states: &self.cpu_states };
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(false) };
        let Some(telling) = &mut session.telling else { return Ok(true) };
        if telling.go_on(&scene, &session.connection)? {
            session.telling = None;
            // Whatever it asks next comes after what others ask.
            session.connection_watch.arm()?;
        } else if let Some(room) = &telling.room {
            room.arm()?;
        } else {
            let (fd, watch) = (session.connection.as_fd(), SESSIONS + 2 * number);
            telling.room = Some(Watch::new(&self.readiness, fd, Direction::Writable, watch)?);
        }
        Ok(false)
    }

    /// Tells the kernel areas and the watchdog what a domain may do.
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
            limits.share_ppm.store(usage.share_ppm, Ordering::Relaxed);
            limits.compute_ns.store(usage.compute.as_nanos(), Ordering::Relaxed);
            limits.unscreened.store(usage.unscreened, Ordering::Relaxed);
            let admitted = self.registry.admitted(number.number(), group.cpu);
            let mut ranks = limits.ranks.lock().unwrap_or_else(PoisonError::into_inner);
            ranks.set(admitted, clock::now());
            drop(ranks);
            group.kernel.set_quantum(*number, usage.quantum_max.as_nanos());
        }
    }

    pub(super) fn refused(&mut self, session: u64, reason: &str) {
        let Some(Session { credentials, .. }) = self.sessions.get(&session) else { return };
        let owner = Owner { uid: credentials.uid, pid: credentials.pid };
        self.events.push(Event::Refused { owner, reason: reason.to_owned() });
    }
}
