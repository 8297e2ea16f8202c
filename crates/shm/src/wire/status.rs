//! How things stand: what the daemon answers to [`ToDaemon::Inspect`].
//!
//! ```text
//!   inspector (no domain)                         daemon
//!   Inspect         ------------------------->
//!                   <-------------------------    Cpu, for each CPU
//!                   <-------------------------    Domain, then its VirtualProcessors, then its Activities;
//!                                                 for each domain the inspector may see
//!                   <-------------------------    End
//! ```
//!
//! Each domain is of one moment, [`DomainStatus::at_ns`]; the answer as a whole is not.
//! Counters and slots are what a domain says of itself.
//!
//! [`ToDaemon::Inspect`]: super::ToDaemon::Inspect

use std::collections::VecDeque;

use super::frame::{WireError, encode, flag, narrow};
use crate::kernel_area::State;
use crate::user_area::{Counters, SlotState};

/// The first of their kinds; those of a domain are apart.
const CPU: u32 = 32;
const DOMAIN: u32 = 33;
const VIRTUAL_PROCESSOR: u32 = 34;
const ACTIVITY: u32 = 35;
const END: u32 = 36;
/// Their kinds.
pub(super) const KINDS: core::ops::RangeInclusive<u32> = CPU..=END;

/// One part of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusPart {
    /// A CPU that the daemon schedules.
    Cpu(CpuStatus),
    /// A domain; what follows is of it.
    Domain(DomainStatus),
    /// It, on one CPU.
    VirtualProcessor(VirtualProcessorStatus),
    /// What it has a place for.
    Activity(ActivityStatus),
    /// That was all.
    End {
        /// By which policy it schedules.
        policy: String,
        /// Whether handlers get the real-time class.
        real_time: bool,
        /// What admission charges for a hand-off.
        switch_cost_ns: u64,
        /// Domains of other users, of which the inspector may see nothing else.
        hidden_domains: u32,
    },
}

/// A CPU that the daemon schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuStatus {
    /// Which one.
    pub cpu: u32,
    /// Reserved by all domains, hand-offs included, in millionths of the CPU.
    pub reserved_ppm: u64,
    /// The most that admission gives away, in millionths.
    pub limit_ppm: u64,
}

/// A domain, as it attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// Its number.
    pub domain: u32,
    /// Tells it from the one that had the number before.
    pub generation: u64,
    /// Its process.
    pub pid: u32,
    /// Whose it is.
    pub uid: u32,
    /// When it was looked at (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// As it said.
    pub name: String,
}

/// A domain on one CPU, from its thread on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualProcessorStatus {
    /// Which CPU.
    pub cpu: u32,
    /// Its thread there.
    pub tid: u32,
    /// How the daemon takes it to be.
    pub state: State,
    /// How often the watchdog had to act against it.
    pub offences: u64,
    /// Reserved for it, in millionths of the CPU, hand-offs not included.
    pub reserved_ppm: u64,
    /// CPU time of its thread so far.
    pub used_ns: u64,
    /// What it counted.
    pub counters: Counters,
    /// What is wrong with its pages; empty: nothing.
    pub fault: String,
}

/// An activity that has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityStatus {
    /// Its place in the order of admission.
    pub order: u32,
    /// Where it runs.
    pub cpu: u32,
    /// Between two releases.
    pub period_ns: u64,
    /// From a release to the end of the job.
    pub deadline_ns: u64,
    /// PDUs a period.
    pub batch: u32,
    /// PDUs without preemption.
    pub quantum: u32,
    /// Of one PDU.
    pub pdu_cost_ns: u64,
    /// Reserved, in millionths of the CPU.
    pub reserved_ppm: u64,
    /// Worst response as admitted now; `u64::MAX` where nothing is promised.
    pub response_ns_max: u64,
    /// Admission refused it, and it was placed all the same.
    pub unscreened: bool,
    /// As its domain says; [`SlotState::Free`] if it says nothing of it.
    pub state: SlotState,
    /// When it is released next (`CLOCK_MONOTONIC`); `u64::MAX`: not known to be.
    pub next_release_ns: u64,
    /// As its domain calls it.
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
            (END, &[real_time, switch_cost_ns, hidden]) => {
                let (real_time, hidden_domains) = (flag(real_time, content)?, small(hidden)?);
                Ok(StatusPart::End { policy: text()?, real_time, switch_cost_ns, hidden_domains })
            }
            _ => Err(content),
        }
    }
}

impl VirtualProcessorStatus {
    const WORDS: usize = 13;

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
    const WORDS: usize = 12;

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
            name,
        })
    }
}
