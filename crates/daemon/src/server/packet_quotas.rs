//! Requests for packet quotas, and the end of those of a connection.
//!
//! Part of the server's thread. [`PacketQuotas`](crate::packet_quotas::PacketQuotas) keeps the
//! quotas on the interfaces. This module checks who may ask: root and the daemon's own user, since
//! a quota limits whatever process receives at the destination.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use upcall_runtime::net::ProgramError;
use upcall_shm::wire::{
    PacketDestination, PacketQuota, PacketQuotaCause, PacketQuotaReply, PacketQuotaRequest,
    ToDomain,
};
use upcall_sys::process::{PidFd, effective_user};

use super::daemon::Daemon;
use super::event::DaemonEvent;
use super::names::shown;
use super::session::SessionEnd;
use crate::packet_quotas::{InterfaceError, Owner, PacketQuotaError};

impl Daemon {
    pub(super) fn handle_packet_quota_request(
        &mut self,
        session: u64,
        request: PacketQuotaRequest,
    ) -> Result<(), SessionEnd> {
        let Some(client) = self.sessions.get(&session) else { return Ok(()) };
        if client.domain.is_some() {
            return Err(SessionEnd("a domain asked for a packet quota".to_owned()));
        }
        let answer = match request {
            PacketQuotaRequest::Set { quota, pid, name } => {
                self.set_packet_quota(session, quota, (pid, shown(&name)))
            }
            PacketQuotaRequest::Count { destination } => self.count_packets(session, destination),
        };
        let reply = answer.unwrap_or_else(|(cause, reason)| {
            self.report_refusal(session, &reason);
            PacketQuotaReply::Refused { cause, reason }
        });
        self.send(session, &ToDomain::PacketQuota(reply), &[])
    }

    fn set_packet_quota(
        &mut self,
        session: u64,
        quota: PacketQuota,
        (program, name): (u32, String),
    ) -> Result<PacketQuotaReply, (PacketQuotaCause, String)> {
        let Some(client) = self.sessions.get_mut(&session) else {
            return Err((PacketQuotaCause::NoRight, "its connection has ended".to_owned()));
        };
        let (uid, pid) = (client.credentials.uid, client.credentials.pid);
        if ![0, effective_user()].contains(&uid) {
            return Err((PacketQuotaCause::NoRight, no_right(uid)));
        }
        is_in_own_network(pid, &client.process)
            .map_err(|reason| (PacketQuotaCause::OtherNamespace, reason))?;
        let destination = quota.destination.to_string();
        let owner = Owner { session, pid: program, name: name.clone() };
        let set = self.packet_quotas.set(quota, owner, &self.config.cpus, &mut self.xdp_programs);
        let places = set.map_err(|error| (cause_of(&error), error.to_string()))?;
        client.has_packet_quotas = true;
        // Relaxed: a count.
        self.attached_ever.fetch_add(1, Ordering::Relaxed);
        self.events.push(DaemonEvent::PacketQuotaSet {
            pid,
            name,
            destination,
            places: places.clone(),
        });
        Ok(PacketQuotaReply::Granted { places })
    }

    /// Ends the packet quotas of a session.
    pub(super) fn end_packet_quotas(&mut self, session: u64) {
        for ended in self.packet_quotas.end(session) {
            self.events.push(DaemonEvent::PacketQuotaEnded {
                name: ended.name,
                destination: ended.destination.to_string(),
                passed: ended.counts.passed,
                dropped: ended.counts.dropped,
            });
        }
    }

    fn count_packets(
        &self,
        session: u64,
        destination: PacketDestination,
    ) -> Result<PacketQuotaReply, (PacketQuotaCause, String)> {
        let counts = self.packet_quotas.counts(session, destination);
        let unknown = || {
            let reason = "this connection has no quota for the destination".to_owned();
            (PacketQuotaCause::Unknown, reason)
        };
        counts.map(PacketQuotaReply::Counted).ok_or_else(unknown)
    }
}

const OTHER_NAMESPACE: &str = "the process is in another network namespace than the daemon: \
                               start a daemon in that namespace (--socket)";

/// Checks that a client is in the network namespace of the daemon.
///
/// # Errors
/// It is in another one, or that cannot be found out: why, in one line.
pub(super) fn is_in_own_network(pid: u32, process: &PidFd) -> Result<(), String> {
    let is_here = match (network_namespace(&pid.to_string()), network_namespace("self")) {
        (Ok(one), Ok(other)) => one == other,
        (Err(error), _) | (_, Err(error)) => {
            return Err(format!(
                "the daemon cannot read the network namespace of process {pid}, for which it needs \
                 the same capabilities or CAP_SYS_PTRACE: {error}"
            ));
        }
    };
    // The number of a process that has ended may belong to another one.
    match is_here && process.has_exited() == Ok(false) {
        true => Ok(()),
        false => Err(OTHER_NAMESPACE.to_owned()),
    }
}

/// The network namespace of a process.
fn network_namespace(process: &str) -> std::io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/net"))
}

fn no_right(uid: u32) -> String {
    format!(
        "user {uid} has no right to packet quotas: root and the daemon's user {} have it, because \
         a quota limits whatever process receives there",
        effective_user()
    )
}

fn cause_of(error: &PacketQuotaError) -> PacketQuotaCause {
    match error {
        PacketQuotaError::NoInterface => PacketQuotaCause::NoInterface,
        PacketQuotaError::Interface {
            error: InterfaceError::Program(ProgramError::Taken(_)),
            ..
        }
        | PacketQuotaError::Taken { .. } => PacketQuotaCause::Taken,
        PacketQuotaError::Interface { .. } => PacketQuotaCause::Interface,
        PacketQuotaError::TooMany { .. } => PacketQuotaCause::Limit,
        PacketQuotaError::Destination
        | PacketQuotaError::Interval
        | PacketQuotaError::Depth
        | PacketQuotaError::Product(_) => PacketQuotaCause::Terms,
    }
}
