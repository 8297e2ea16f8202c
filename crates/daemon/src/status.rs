//! The daemon's status for an inspector: `upcall top` and `upcall ps`.
//!
//! Used by the server, in its thread. The status comes from the registry, from the states that the
//! daemon assumes for its domains, and from their user areas. [`Peer`] copies and checks everything
//! in those areas. The status of a domain with an invalid area names the fault.
//!
//! ```text
//!   Inspect --> (1) sending -- socket full --> (2) waiting -- socket writable --> (1)
//!                  |
//!                  +-- End is sent --> (3) done
//! ```
//!
//! 1. The server makes and sends the messages of one domain, then those of the next at the
//!    inspector's next turn, while they fit into the socket.
//! 2. The server reads no messages of this inspector meanwhile. It serves other sessions.
//! 3. The inspector may ask again.
//!
//! At most the messages of the CPUs, programs, packet quotas and flows, or of one domain, are kept
//! for an inspector, however slowly it reads.

use std::collections::VecDeque;
use std::sync::Arc;

use upcall_core::admission::Share;
use upcall_core::time::Span;
use upcall_shm::user_area::{NEVER, Peer, Slot, SlotState};
use upcall_shm::wire::{
    ActivityStatus, CpuStatus, DomainStatus, FlowStatus, OwnedInterfaceStatus, PacketQuotaStatus,
    ProgramStatus, StatusPart, ToDomain, VirtualProcessorStatus,
};
use upcall_shm::{DomainId, PeerFault};
use upcall_sys::local::{Connection, Credentials};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::readiness::Watch;
use upcall_sys::{OsError, clock, process};

use crate::accounts::lag_ns;
use crate::cpu::CpuState;
use crate::group::{DomainGroup, Member};
use crate::registry::{Domain, Listed, Registry};

#[cfg(test)]
mod tests;

/// How often an area is read again while its owner is writing it.
const READ_ATTEMPTS_MAX: usize = 8;

/// A reply that is being sent.
pub(crate) struct StatusReply {
    /// Messages that are not sent yet.
    messages: VecDeque<Vec<u8>>,
    /// Numbers and generations of the domains whose messages come after these.
    domains: VecDeque<(u32, u64)>,
    /// The last message, until it is added to `messages`.
    end: Option<StatusPart>,
    /// Ready when the socket has room again.
    pub(crate) writable: Option<Watch>,
}

/// The result of [`StatusReply::send_more`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// The next call sends more.
    Part,
    SocketFull,
}

/// Where the status comes from.
pub(crate) struct StatusSource<'s> {
    pub(crate) registry: &'s Registry,
    pub(crate) cpu_states: &'s [Arc<CpuState>],
}

impl StatusReply {
    /// Begins a reply. Root and the daemon's own user see all domains. Other users see their own
    /// domains and the number of the others. Sends nothing yet.
    pub(crate) fn begin(
        source: &StatusSource<'_>,
        credentials: &Credentials,
        real_time: bool,
    ) -> Self {
        let seen = |domain: &Domain| sees(credentials, domain.owner.uid);
        let domains = source.registry.domains().filter(|(_, domain)| seen(domain));
        let hidden = source.registry.domains().filter(|(_, domain)| !seen(domain)).count();
        // The number reveals little: the load of the CPUs already shows that there are others.
        let hidden_domains = u32::try_from(hidden).unwrap_or(u32::MAX);
        let policy = source.registry.policy().to_owned();
        let cpus = source.registry.reservations().load();
        let switch_cost_ns = source.registry.reservations().switch_cost().as_nanos();
        StatusReply {
            messages: cpus
                .iter()
                .map(|load| CpuStatus {
                    cpu: load.cpu,
                    reserved_ppm: ppm(load.utilization),
                    limit_ppm: ppm(load.limit),
                })
                .map(|cpu| message(StatusPart::Cpu(cpu)))
                .collect(),
            domains: domains.map(|(number, domain)| (number, domain.generation)).collect(),
            end: Some(StatusPart::End { policy, real_time, switch_cost_ns, hidden_domains }),
            writable: None,
        }
    }

    /// Adds the programs that the inspector may see, before the domains.
    pub(crate) fn add_programs(&mut self, credentials: &Credentials, programs: Vec<ProgramStatus>) {
        let seen = programs.into_iter().filter(|program| sees(credentials, program.uid));
        self.messages.extend(seen.map(|program| message(StatusPart::Program(program))));
    }

    /// Adds the packet quotas, before the domains, for root and the daemon's own user.
    pub(crate) fn add_packet_quotas(
        &mut self,
        credentials: &Credentials,
        quotas: Vec<PacketQuotaStatus>,
    ) {
        let own = process::effective_user();
        let seen = quotas.into_iter().filter(|_| sees(credentials, own));
        self.messages.extend(seen.map(|quota| message(StatusPart::PacketQuota(quota))));
    }

    /// Adds the interfaces with flows, and the flows that the inspector may see, before the
    /// domains.
    pub(crate) fn add_flows(
        &mut self,
        credentials: &Credentials,
        (interfaces, flows): (Vec<OwnedInterfaceStatus>, Vec<FlowStatus>),
    ) {
        let interfaces = interfaces.into_iter().map(StatusPart::OwnedInterface);
        let seen = flows.into_iter().filter(|flow| sees(credentials, flow.uid));
        self.messages.extend(interfaces.chain(seen.map(StatusPart::Flow)).map(message));
    }

    /// Sends the messages of one domain that fit. Does not block.
    ///
    /// # Errors
    /// The inspector has gone.
    pub(crate) fn send_more(
        &mut self,
        source: &StatusSource<'_>,
        connection: &Connection,
    ) -> Result<Sent, OsError> {
        while let Some(message) = self.messages.front() {
            match connection.send(message, &[]) {
                Ok(()) => drop(self.messages.pop_front()),
                Err(error) if error.is_would_block() => return Ok(Sent::SocketFull),
                Err(error) => return Err(error),
            }
        }
        match (self.domains.pop_front(), self.end.take()) {
            (Some((number, generation)), end) => {
                self.end = end;
                self.messages = source.domain(number, generation);
            }
            (None, Some(end)) => self.messages.push_back(message(end)),
            (None, None) => return Ok(Sent::All),
        }
        Ok(Sent::Part)
    }
}

impl StatusSource<'_> {
    /// All messages of a domain; none if it has gone. O(slots) and one file of `/proc`, per CPU.
    fn domain(&self, number: u32, generation: u64) -> VecDeque<Vec<u8>> {
        let known = self.registry.domain(number).filter(|known| known.generation == generation);
        let (Some(domain), Some(id)) = (known, DomainId::new(number)) else {
            return VecDeque::new();
        };
        let mut parts = vec![StatusPart::Domain(DomainStatus {
            domain: number,
            generation,
            pid: domain.owner.pid,
            uid: domain.owner.uid,
            at_ns: clock::monotonic_ns(),
            name: domain.name.clone(),
        })];
        let mut shown = Vec::new();
        for (group, member) in self.virtual_processors(id, domain) {
            let reserved_ppm = self.registry.reserved_ppm(number, group.cpu);
            let (virtual_processor, slots) = virtual_processor(&group, &member, reserved_ppm);
            parts.push(StatusPart::VirtualProcessor(virtual_processor));
            shown.push((group.cpu, slots));
        }
        for listed in self.registry.listed(number) {
            let slots = shown.iter().find(|(cpu, _)| *cpu == listed.cpu);
            let slots = slots.map_or(&[][..], |(_, slots)| slots);
            let has_lag = self.registry.time_quantum().is_some();
            parts.push(StatusPart::Activity(activity(&listed, slots, has_lag)));
        }
        parts.into_iter().map(message).collect()
    }

    /// The groups and members of a domain, one for each CPU where its thread is attached.
    fn virtual_processors(
        &self,
        id: DomainId,
        domain: &Domain,
    ) -> Vec<(Arc<DomainGroup>, Arc<Member>)> {
        let groups = self.cpu_states.iter().flat_map(|cpu_state| cpu_state.groups().to_vec());
        let groups = groups.filter(|group| group.uid == domain.owner.uid);
        let virtual_processor_in = |group: Arc<DomainGroup>| {
            let members = group.members();
            let mut same = members.iter().filter(|member| {
                member.domain == id && member.generation.get() == domain.generation
            });
            let member = same.next().cloned()?;
            Some((group, member))
        };
        groups.filter_map(virtual_processor_in).collect()
    }
}

/// Whether the inspector sees what belongs to user `uid`.
fn sees(inspector: &Credentials, uid: u32) -> bool {
    [0, process::effective_user(), uid].contains(&inspector.uid)
}

fn message(part: StatusPart) -> Vec<u8> {
    ToDomain::Status(part).encode()
}

/// The status of a domain on a CPU, and the slots that it shows there.
fn virtual_processor(
    group: &DomainGroup,
    member: &Member,
    reserved_ppm: u64,
) -> (VirtualProcessorStatus, Vec<Slot>) {
    let (slots, mut fault) = match slots(&member.area) {
        Ok(slots) => (slots, String::new()),
        Err(fault) => (Vec::new(), fault.to_string()),
    };
    let used_ns = member.thread.by_server().map(|thread| thread.cpu_time());
    if let Some(Err(error)) = used_ns
        && !error.is_not_found()
        && fault.is_empty()
    {
        fault = format!("its CPU time cannot be read, so it is not watched: {error}");
    }
    let virtual_processor = VirtualProcessorStatus {
        cpu: group.cpu,
        tid: member.thread.tid(),
        state: member.state(),
        offences: member.offences(),
        reserved_ppm,
        part_ppm: group.time_quantum.map(|_| u64::from(group.shares.ppm(member.domain))),
        lag_ns: lag_ns(group, member.domain, member.generation.get()),
        // Zero if its thread has just ended: the CPU time is no longer known then.
        used_ns: used_ns.and_then(Result::ok).unwrap_or_default(),
        counters: member.area.counters(),
        fault,
    };
    (virtual_processor, slots)
}

/// The slots in use. Marks the slot that runs, and the best slot that is ready.
///
/// A domain publishes only the best of its ready slots.
fn slots(area: &Peer<SharedMapping>) -> Result<Vec<Slot>, PeerFault> {
    area.audit()?;
    let mut slots = Vec::new();
    for index in 0..area.slots() {
        slots.push(read_with_retries(|| area.slot(index))?);
    }
    let best = read_with_retries(|| area.best(0))?;
    let running = area.running()?.slot;
    for (index, slot) in slots.iter_mut().enumerate() {
        let is_best = best.is_some_and(|best| best.order == slot.rank.order);
        slot.state = match slot.state {
            SlotState::Free => SlotState::Free,
            _ if running == Some(index) => SlotState::Running,
            _ if is_best => SlotState::Ready,
            state => state,
        };
    }
    slots.retain(|slot| slot.state != SlotState::Free);
    Ok(slots)
}

/// Reads again while the owner is writing, or was preempted while writing.
fn read_with_retries<T>(read: impl Fn() -> Result<T, PeerFault>) -> Result<T, PeerFault> {
    for _ in 1..READ_ATTEMPTS_MAX {
        match read() {
            Err(PeerFault::Torn { .. }) => std::thread::yield_now(),
            found => return found,
        }
    }
    read()
}

fn activity(listed: &Listed<'_>, slots: &[Slot], has_lag: bool) -> ActivityStatus {
    let params = listed.params;
    let slot = slots.iter().find(|slot| slot.rank.order == listed.order);
    let slot = slot.copied().unwrap_or(Slot::FREE);
    ActivityStatus {
        order: listed.order,
        cpu: listed.cpu,
        period_ns: params.period.as_nanos(),
        deadline_ns: params.deadline.as_nanos(),
        batch: params.batch,
        quantum: params.quantum,
        pdu_cost_ns: params.pdu_cost.as_nanos(),
        reserved_ppm: listed.reserved_ppm,
        response_ns_max: listed.response_max.map_or(u64::MAX, Span::as_nanos),
        unscreened: listed.unscreened,
        state: slot.state,
        next_release_ns: slot.next_release_ns,
        lag_ns: (has_lag && slot.rank.event != NEVER).then_some(slot.rank.event.cast_signed()),
        name: listed.name.to_owned(),
    }
}

/// A share of a CPU in millionths; more than 1 is possible.
fn ppm(part: f64) -> u64 {
    // The cast saturates, and no share is negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let ppm = (part * f64::from(Share::WHOLE.ppm())).round() as u64;
    ppm
}
