//! Ends a session, a user's groups, and the daemon.
//!
//! Step 3 of the diagram in [`super`]. Part of the server's thread, which waits for other threads
//! only when the daemon ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use upcall_shm::DomainId;

use super::daemon::Daemon;
use super::event::DaemonEvent;
use super::session::{Attached, Session, VirtualProcessor};
use crate::clock;
use crate::group::{DomainGroup, Member};

impl Daemon {
    pub(super) fn end_all(&mut self) {
        let sessions: Vec<u64> = self.sessions.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.end(session, "the daemon ends"));
        self.end_all_programs();
        self.finish_networks();
    }

    /// Ends a session and releases everything that it has.
    pub(super) fn end(&mut self, number: u64, reason: &str) {
        let Some(session) = self.sessions.remove(&number) else { return };
        let Session { connection, connection_watch, status_reply, .. } = session;
        let Session { credentials, domain, program, .. } = session;
        if let Some(program) = program {
            self.end_program(program, reason);
        }
        self.end_packet_quotas(number);
        self.end_flow(number, reason);
        // They have copies of the connection's descriptor. `closer` must have the last one.
        drop((connection_watch, status_reply));
        let Some(Attached { number, virtual_processors, .. }) = domain else {
            return self.closer.close(credentials.uid, connection);
        };
        for VirtualProcessor { group, member, .. } in virtual_processors {
            let Some(member) = member else { continue };
            leave(&group, &member);
            let departed = Arc::clone(&member);
            // This lowers its thread, which brings the kernel's count of its CPU time up to date.
            drop(member);
            self.note_departure(&group, &departed);
        }
        if let Some(domain) = self.registry.detach(number.number(), clock::now()) {
            let (domain, name) = (number.number(), domain.name);
            self.events.push(DaemonEvent::Detached { domain, name, reason: reason.to_owned() });
        }
        self.tell_programs();
        self.set_shares();
        self.close_groups(credentials.uid);
        // Last: the domain learns of its end when all of it is done.
        self.closer.close(credentials.uid, connection);
    }

    /// Detaches a domain from a CPU where its thread has ended, and releases its places there. The
    /// session goes on: the domain may have threads on other CPUs, or may detach next.
    pub(super) fn end_thread(&mut self, session: u64, cpu: u32) {
        let Ok(Attached { number, virtual_processors, .. }) = self.domain_of(session) else {
            return;
        };
        let number = number.number();
        let mut all = virtual_processors.iter_mut();
        let Some(of_cpu) = all.find(|of| of.group.cpu == cpu) else { return };
        let (group, Some(member)) = (of_cpu.group.clone(), of_cpu.member.take()) else { return };
        leave(&group, &member);
        let departed = Arc::clone(&member);
        drop(member);
        self.note_departure(&group, &departed);
        self.registry.leave(number, cpu, clock::now());
        self.tell_programs();
        self.set_shares();
        // A process that ends in order also ends its threads before it detaches.
        tracing::debug!(event = "thread ended", domain = number, cpu, "the domain left the CPU");
    }

    fn note_departure(&self, group: &DomainGroup, member: &Member) {
        for cpu_state in self.cpu_states.iter().filter(|of| of.cpu == group.cpu) {
            cpu_state.note_departure(group, member, clock::now());
        }
    }

    /// Closes the groups of a user without domains.
    pub(super) fn close_groups(&mut self, uid: u32) {
        if self.registry.domains().any(|(_, domain)| domain.owner.uid == uid) {
            return;
        }
        for (group, thread) in self.groups.extract_if(.., |(group, _)| group.uid == uid) {
            self.cpu_states
                .iter()
                .filter(|cpu_state| cpu_state.cpu == group.cpu)
                .for_each(|cpu_state| cpu_state.close(&group));
            let _ = self.reaper.as_mut().map(|reaper| reaper.reap((group, thread)));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end_all();
        // Relaxed: the flag publishes no other data. The watchdog reads it at every tick.
        self.watchdog_quit.store(true, Ordering::Relaxed);
        // All groups are closed by now: a group is closed with its user's last domain.
        drop(self.reaper.take());
        let _ = self.watchdog.take().map(JoinHandle::join);
        if self.owns_file {
            let _ = std::fs::remove_file(&self.config.socket);
        }
    }
}

/// Takes a member out of its group, which then gives it no turns.
fn leave(group: &DomainGroup, member: &Arc<Member>) {
    let domain = member.domain;
    group.set_members(|members| members.retain(|other| !Arc::ptr_eq(other, member)));
    group.allow_hand_offs();
    group.kernel.detach(domain);
    if let Ok(turn) = group.turn.turn()
        && turn.holder() == domain
    {
        group.turn.pass(turn, DomainId::DAEMON);
    }
    group.notify(DomainId::DAEMON);
}
