//! The state of a running daemon: its reply to [`ToDaemon::Inspect`].
//!
//! ```text
//!   inspector (no domain)                         daemon
//!   Inspect         ------------------------->
//!                   <-------------------------    Cpu, for each CPU
//!                   <-------------------------    Program, for each that the inspector may see
//!                   <-------------------------    PacketQuota, on each interface, likewise
//!                   <-------------------------    OwnedInterface, for each with flows
//!                   <-------------------------    Flow, for each that the inspector may see
//!                   <-------------------------    for each domain the inspector may see:
//!                                                 Domain, its VirtualProcessors, its Activities
//!                   <-------------------------    End
//! ```
//!
//! The data of one domain are of one moment, [`DomainStatus::at_ns`]. Different domains are of
//! different moments. Each domain states its counters and slots itself.
//!
//! [`ToDaemon::Inspect`]: super::ToDaemon::Inspect

use std::collections::VecDeque;

use super::flow::{FlowStatus, OwnedInterfaceStatus};
use super::frame::{WireError, encode, flag, narrow};
use super::packet_quota::PacketQuotaStatus;
use super::program::ProgramStatus;
use crate::kernel_area::State;
use crate::user_area::{Counters, SlotState};

/// The first kind of these messages, apart from the kinds of a domain.
const CPU: u32 = 32;
const DOMAIN: u32 = 33;
const VIRTUAL_PROCESSOR: u32 = 34;
const ACTIVITY: u32 = 35;
const END: u32 = 36;
const PROGRAM: u32 = 37;
const PACKET_QUOTA: u32 = 38;
const OWNED_INTERFACE: u32 = 39;
const FLOW: u32 = 40;
/// The kinds of these messages.
pub(super) const KINDS: core::ops::RangeInclusive<u32> = CPU..=FLOW;

/// One part of the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusPart {
    /// A CPU that the daemon schedules.
    Cpu(CpuStatus),
    /// A domain. The parts that follow belong to it.
    Domain(DomainStatus),
    /// The domain on one CPU.
    VirtualProcessor(VirtualProcessorStatus),
    /// An activity of the domain that has a place.
    Activity(ActivityStatus),
    /// A program with a share or a weight. It belongs to no domain.
    Program(ProgramStatus),
    /// A packet quota on an interface. It belongs to no domain.
    PacketQuota(PacketQuotaStatus),
    /// An interface with flows.
    OwnedInterface(OwnedInterfaceStatus),
    /// A flow. It belongs to no domain.
    Flow(FlowStatus),
    /// The end of the reply.
    End {
        /// The policy by which the daemon schedules.
        policy: String,
        /// Whether handlers get the real-time class.
        real_time: bool,
        /// What admission charges for a hand-off.
        switch_cost_ns: u64,
        /// How many domains of other users there are. The inspector sees only this number of them.
        hidden_domains: u32,
    },
}

/// A CPU that the daemon schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuStatus {
    /// Its number.
    pub cpu: u32,
    /// Reserved by all domains, with hand-offs, in millionths of the CPU.
    pub reserved_ppm: u64,
    /// The most that admission gives out, in millionths.
    pub limit_ppm: u64,
}

/// A domain, as it attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// Its number.
    pub domain: u32,
    /// Distinguishes the domain from an earlier one with the same number.
    pub generation: u64,
    /// Its process.
    pub pid: u32,
    /// The user it belongs to.
    pub uid: u32,
    /// When the daemon looked at it (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// Its name, as it stated.
    pub name: String,
}

/// A domain on one CPU, once its thread is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualProcessorStatus {
    /// Which CPU.
    pub cpu: u32,
    /// Its thread on that CPU.
    pub tid: u32,
    /// Its state, as the daemon sees it.
    pub state: State,
    /// How often the watchdog had to act against the domain.
    pub offences: u64,
    /// Reserved for the domain, without hand-offs, in millionths of the CPU.
    pub reserved_ppm: u64,
    /// PS: the part of the CPU that the domain has now, in millionths. `None`: the policy has none.
    pub part_ppm: Option<u64>,
    /// PS: how far the domain is behind its part, as its user's domains state it, in ns of CPU
    /// time; negative if ahead. `None`: it has no part.
    pub lag_ns: Option<i64>,
    /// CPU time of its thread so far.
    pub used_ns: u64,
    /// Its counters.
    pub counters: Counters,
    /// The fault of its pages. Empty if there is none.
    pub fault: String,
}

/// An activity that has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityStatus {
    /// Its place in the order of admission.
    pub order: u32,
    /// The CPU on which it runs.
    pub cpu: u32,
    /// Time between two releases.
    pub period_ns: u64,
    /// Time from a release to the end of the job.
    pub deadline_ns: u64,
    /// PDUs in a period.
    pub batch: u32,
    /// PDUs without preemption.
    pub quantum: u32,
    /// Time for one PDU.
    pub pdu_cost_ns: u64,
    /// Reserved, in millionths of the CPU.
    pub reserved_ppm: u64,
    /// The worst response time as admitted now. `u64::MAX` if none is promised.
    pub response_ns_max: u64,
    /// Whether the activity was placed although admission refused it.
    pub unscreened: bool,
    /// Its state, as its domain states it. [`SlotState::Free`] if the domain states none.
    pub state: SlotState,
    /// Its next release (`CLOCK_MONOTONIC`). `u64::MAX`: unknown.
    pub next_release_ns: u64,
    /// PS: how far it is behind its part of what its domain got, in ns of CPU time, as its domain
    /// states it; negative if ahead.
    pub lag_ns: Option<i64>,
    /// Its name, as its domain states it.
    pub name: String,
}

impl StatusPart {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            StatusPart::Cpu(CpuStatus { cpu, reserved_ppm, limit_ppm }) => {
                encode(CPU, &[u64::from(*cpu), *reserved_ppm, *limit_ppm], &[])
            }
            StatusPart::Domain(DomainStatus { domain, generation, pid, uid, at_ns, name }) => {
                let (domain, pid, uid) = (u64::from(*domain), u64::from(*pid), u64::from(*uid));
                encode(DOMAIN, &[domain, *generation, pid, uid, *at_ns], &[name])
            }
            StatusPart::VirtualProcessor(virtual_processor) => {
                encode(VIRTUAL_PROCESSOR, &virtual_processor.words(), &[&virtual_processor.fault])
            }
            StatusPart::Activity(activity) => {
                encode(ACTIVITY, &activity.words(), &[&activity.name])
            }
            StatusPart::Program(program) => encode(PROGRAM, &program.words(), &[&program.name]),
            StatusPart::PacketQuota(quota) => {
                encode(PACKET_QUOTA, &quota.words(), &[&quota.interface, &quota.name])
            }
            StatusPart::OwnedInterface(owned) => {
                encode(OWNED_INTERFACE, &owned.words(), &[&owned.interface, &owned.path])
            }
            StatusPart::Flow(flow) => encode(FLOW, &flow.words(), &[&flow.interface]),
            StatusPart::End { policy, real_time, switch_cost_ns, hidden_domains } => encode(
                END,
                &[u64::from(*real_time), *switch_cost_ns, u64::from(*hidden_domains)],
                &[policy],
            ),
        }
    }

    pub(super) fn decode(
        kind: u32,
        words: &[u64],
        texts: &mut VecDeque<String>,
    ) -> Result<Self, WireError> {
        let content = WireError::Content { kind };
        let small = |word| narrow(word, content);
        let mut text = || texts.pop_front().ok_or(content);
        match (kind, words) {
            (CPU, &[cpu, reserved_ppm, limit_ppm]) => {
                Ok(StatusPart::Cpu(CpuStatus { cpu: small(cpu)?, reserved_ppm, limit_ppm }))
            }
            (DOMAIN, &[domain, generation, pid, uid, at_ns]) => {
                let (domain, pid, uid) = (small(domain)?, small(pid)?, small(uid)?);
                let name = text()?;
                Ok(StatusPart::Domain(DomainStatus { domain, generation, pid, uid, at_ns, name }))
            }
            (VIRTUAL_PROCESSOR, words) => Ok(StatusPart::VirtualProcessor(
                VirtualProcessorStatus::of(words, text()?, content)?,
            )),
            (ACTIVITY, words) => {
                Ok(StatusPart::Activity(ActivityStatus::of(words, text()?, content)?))
            }
            (PROGRAM, words) => {
                Ok(StatusPart::Program(ProgramStatus::of(words, text()?, content)?))
            }
            (PACKET_QUOTA, words) => {
                let texts = [text()?, text()?];
                Ok(StatusPart::PacketQuota(PacketQuotaStatus::of(words, texts, content)?))
            }
            (OWNED_INTERFACE, words) => {
                let texts = [text()?, text()?];
                Ok(StatusPart::OwnedInterface(OwnedInterfaceStatus::of(words, texts, content)?))
            }
            (FLOW, words) => Ok(StatusPart::Flow(FlowStatus::of(words, text()?, content)?)),
            (END, &[real_time, switch_cost_ns, hidden]) => {
                let (real_time, hidden_domains) = (flag(real_time, content)?, small(hidden)?);
                Ok(StatusPart::End { policy: text()?, real_time, switch_cost_ns, hidden_domains })
            }
            _ => Err(content),
        }
    }
}

impl VirtualProcessorStatus {
    const WORDS: usize = 17;

    fn words(&self) -> [u64; VirtualProcessorStatus::WORDS] {
        let counters = &self.counters;
        [
            u64::from(self.cpu),
            u64::from(self.tid),
            self.state as u64,
            self.offences,
            self.reserved_ppm,
            self.used_ns,
            counters.upcalls,
            counters.switches,
            counters.jobs,
            counters.misses,
            counters.pdus,
            counters.handoffs,
            counters.slack_ns_min.cast_unsigned(),
            u64::from(self.part_ppm.is_some()),
            self.part_ppm.unwrap_or(0),
            u64::from(self.lag_ns.is_some()),
            self.lag_ns.unwrap_or(0).cast_unsigned(),
        ]
    }

    fn of(words: &[u64], fault: String, content: WireError) -> Result<Self, WireError> {
        let words: &[u64; VirtualProcessorStatus::WORDS] = words.try_into().map_err(|_| content)?;
        let state = State::ALL.into_iter().find(|&state| state as u64 == words[2]);
        Ok(VirtualProcessorStatus {
            cpu: narrow(words[0], content)?,
            tid: narrow(words[1], content)?,
            state: state.ok_or(content)?,
            offences: words[3],
            reserved_ppm: words[4],
            part_ppm: flag(words[13], content)?.then_some(words[14]),
            lag_ns: flag(words[15], content)?.then_some(words[16].cast_signed()),
            used_ns: words[5],
            counters: Counters {
                upcalls: words[6],
                switches: words[7],
                jobs: words[8],
                misses: words[9],
                pdus: words[10],
                handoffs: words[11],
                slack_ns_min: words[12].cast_signed(),
            },
            fault,
        })
    }
}

impl ActivityStatus {
    const WORDS: usize = 14;

    fn words(&self) -> [u64; ActivityStatus::WORDS] {
        [
            u64::from(self.order),
            u64::from(self.cpu),
            self.period_ns,
            self.deadline_ns,
            u64::from(self.batch),
            u64::from(self.quantum),
            self.pdu_cost_ns,
            self.reserved_ppm,
            self.response_ns_max,
            u64::from(self.unscreened),
            self.state as u64,
            self.next_release_ns,
            u64::from(self.lag_ns.is_some()),
            self.lag_ns.unwrap_or(0).cast_unsigned(),
        ]
    }

    fn of(words: &[u64], name: String, content: WireError) -> Result<Self, WireError> {
        let words: &[u64; ActivityStatus::WORDS] = words.try_into().map_err(|_| content)?;
        let state = SlotState::ALL.into_iter().find(|&state| state as u64 == words[10]);
        Ok(ActivityStatus {
            order: narrow(words[0], content)?,
            cpu: narrow(words[1], content)?,
            period_ns: words[2],
            deadline_ns: words[3],
            batch: narrow(words[4], content)?,
            quantum: narrow(words[5], content)?,
            pdu_cost_ns: words[6],
            reserved_ppm: words[7],
            response_ns_max: words[8],
            unscreened: flag(words[9], content)?,
            state: state.ok_or(content)?,
            next_release_ns: words[11],
            lag_ns: flag(words[12], content)?.then_some(words[13].cast_signed()),
            name,
        })
    }
}
