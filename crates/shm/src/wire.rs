//! The messages between a domain and the daemon on their socket.
//!
//! Each message is one datagram (`SOCK_SEQPACKET`), and both ends are on one machine. The caller
//! handles the descriptors that travel with it. The runtime (the end of a domain) and the daemon
//! use this module. Hand-offs of the CPU do not use it. Its functions allocate.
//!
//! ```text
//!   domain                                        daemon
//!   Hello           ------------------------->
//!                   <-------------------------    Welcome, then VirtualProcessor with three
//!                                                 descriptors a CPU:
//!                                                 turn page, own user area, kernel area
//!                   <-------------------------    Peer with its user area to read, now and later
//!   Thread          ------------------------->    (gives it the real-time class)
//!   Group           ------------------------->    for each group, before the first Create
//!   Create          ------------------------->
//!                   <-------------------------    Granted, or Refused
//!   Reweigh         ------------------------->
//!                   <-------------------------    Granted, or Refused
//!   ReserveEvents   ------------------------->
//!                   <-------------------------    EventsReserved, or Refused
//!   Close           ------------------------->
//!                   <-------------------------    Offence, when the watchdog had to act
//! ```
//!
//! A process that is not a domain may send Inspect instead. The daemon replies with its state: see
//! module `status`. Or it asks for the share of a program (module `program`), for a packet quota
//! (module `packet_quota`) or for a flow (module `flow`). A frame is a fixed head, then words, then
//! texts. Each kind has a fixed number of both, which is checked before anything is used.
//!
//! | bytes | native order | |
//! |---|---|---|
//! | 0..4 | version | [`PROTOCOL_VERSION`] |
//! | 4..8 | kind | |
//! | 8..12 | words | how many follow |
//! | 12..16 | texts | how many follow them |
//! | then | words, of 8 bytes | |
//! | then | texts | 4 bytes of length, then UTF-8 |

use frame::{Frame, encode, flag, narrow};

mod flow;
mod frame;
mod packet_quota;
mod program;
mod status;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use flow::{
    FLOW_DESCRIPTORS, FlowCause, FlowCounts, FlowQuota, FlowReply, FlowShare, FlowStatus,
    InterfaceDrops, OpenFlow, OpenedFlow, OwnedInterfaceStatus,
};
pub use frame::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION, TEXT_BYTES_MAX, WireError};
pub use packet_quota::{
    PacketCounts, PacketDestination, PacketQuota, PacketQuotaCause, PacketQuotaReply,
    PacketQuotaRequest, PacketQuotaStatus,
};
pub use program::{
    AdmittedProgram, ProgramReply, ProgramRequest, ProgramStatus, ProgramTerms, RefusalCause,
    RefusedProgram,
};
pub use status::{ActivityStatus, CpuStatus, DomainStatus, StatusPart, VirtualProcessorStatus};

/// The kind of [`ToDaemon::Inspect`], apart from the kinds that a domain sends.
const INSPECT: u32 = 32;
/// In place of [`Need::only_cpu`], where there is none.
const ANY_CPU: u64 = u64::MAX;
/// In place of the number of a group, where there is none.
const NO_GROUP: u64 = u64::MAX;

/// The requirements of an activity, in numbers that the daemon checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Time between two releases.
    pub period_ns: u64,
    /// Time from a release to the end of the job.
    pub deadline_ns: u64,
    /// Time before the first release.
    pub offset_ns: u64,
    /// PDUs in a period.
    pub batch: u32,
    /// PDUs without preemption.
    pub quantum: u32,
    /// Time for one PDU.
    pub pdu_cost_ns: u64,
    /// DWS: 0 real time, 1 interactive, 2 background.
    pub class: u32,
    /// DWS: the greatest number of messages ahead.
    pub workahead_max: u32,
    /// DWS: time from logical arrival to deadline. 0: the deadline.
    pub delay_bound_ns: u64,
    /// DWS: whether messages are announced one by one.
    pub on_demand: bool,
    /// RMDP and RM: whether the activity goes first among equal keys while an event waits for it.
    pub wins_ties: bool,
    /// PS: the share of a CPU, in millionths. 0: none.
    pub share_ppm: u32,
    /// PS: the weight. 0: none.
    pub weight: u32,
    /// DWCS: how many periods of a window may be missed.
    pub window_misses: u32,
    /// DWCS: the periods of a window. 0: no window, so none may be missed.
    pub window_periods: u32,
    /// PS: the group in which it has its weight, as [`ToDaemon::Group`] numbers it.
    pub group: Option<u32>,
    /// The only CPU to use. `None`: any CPU of the daemon. A claim names its CPU itself.
    pub only_cpu: Option<u32>,
}

/// PS: what an activity or a group claims of its CPU, in numbers that the daemon checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// A share, in millionths.
    Share(u32),
    /// A weight.
    Weight(u32),
}

/// A message from a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToDaemon {
    /// The first message.
    Hello {
        /// The name of the domain, for display.
        name: String,
        /// The policy that the domain expects.
        policy: String,
    },
    /// This thread is the domain's virtual processor on a CPU.
    Thread {
        /// Which CPU.
        cpu: u32,
        /// The thread, as its own process numbers it.
        tid: u32,
    },
    /// PS: defines a group. A domain numbers its groups from 0, in the order of these messages.
    /// There is no reply. Groups without members change nothing.
    Group {
        /// The enclosing group.
        parent: Option<u32>,
        /// The share or weight of the group.
        portion: Portion,
        /// In the domains of a user, groups of one name are one group. Empty: a group of this
        /// domain alone.
        name: String,
    },
    /// Asks for a place for an activity.
    Create {
        /// The reply carries the same number.
        request: u64,
        /// Whether to place the activity even if the admission tests fail.
        unscreened: bool,
        /// The requirements.
        need: Need,
        /// The name, for display.
        name: String,
    },
    /// Gives the place of an activity back.
    Close {
        /// As granted.
        order: u32,
    },
    /// Claims a place that an earlier daemon granted. The reply is as to `Create`.
    Claim {
        /// The reply carries the same number.
        request: u64,
        /// As in `Create`.
        unscreened: bool,
        /// The CPU on which it runs.
        cpu: u32,
        /// As the former daemon granted.
        order: u32,
        /// The requirements.
        need: Need,
        /// The name, for display.
        name: String,
    },
    /// PS: asks for another share or weight of an activity. The reply is as to `Create`.
    Reweigh {
        /// The reply carries the same number.
        request: u64,
        /// As granted.
        order: u32,
        /// The new share or weight.
        portion: Portion,
    },
    /// DWCS: asks for another share of the event server that the domain has on a CPU. Refused if it
    /// does not fit.
    ReserveEvents {
        /// The reply carries the same number.
        request: u64,
        /// The CPU.
        cpu: u32,
        /// The share in millionths, in place of the former one. 0: none.
        share_ppm: u32,
    },
    /// The domain ends in order: the daemon detaches it and closes the connection. A connection
    /// that closes without this message belongs to a process that died or omitted it.
    Detach,
    /// Asks for the state of the daemon. Sent by a process that is not a domain. The reply is a
    /// sequence of [`ToDomain::Status`].
    Inspect,
    /// A request about a program. Sent by a process that is not a domain.
    Program(ProgramRequest),
    /// A request about packet quotas. Sent by a process that is not a domain.
    PacketQuota(PacketQuotaRequest),
    /// A request for a flow. Sent by a process that is not a domain.
    OpenFlow(OpenFlow),
    /// The memory of the flow was taken: sealed, with all pages and the queues.
    TakeFlow,
}

/// A message from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToDomain {
    /// The domain is attached.
    Welcome {
        /// Its number.
        domain: u32,
        /// Distinguishes the domain from an earlier one with the same number.
        generation: u64,
        /// How many [`ToDomain::VirtualProcessor`]s follow.
        virtual_processors: u32,
        /// 1 if threads get the real-time class, 0 if they stay ordinary.
        real_time: bool,
        /// What admission charges for a hand-off.
        switch_cost_ns: u64,
        /// How long the domain may let a released activity of another domain wait although it has a
        /// better rank. 0: not at all.
        defer_preemption_ns: u64,
    },
    /// The domain is not attached. The daemon closes the connection.
    Rejected {
        /// Why, in one line.
        reason: String,
    },
    /// The pages of the domain on a CPU.
    VirtualProcessor {
        /// Which CPU.
        cpu: u32,
    },
    /// Another domain of the same user on a CPU.
    Peer {
        /// Which CPU.
        cpu: u32,
        /// Its number.
        domain: u32,
        /// As for `Welcome`.
        generation: u64,
    },
    /// A place for an activity.
    Granted {
        /// As in the request.
        request: u64,
        /// The CPU of the activity.
        cpu: u32,
        /// Its place in the order of admission. The domain names the activity by this number from
        /// now on.
        order: u32,
        /// The worst response time as admitted. `u64::MAX` if none is promised.
        response_max_ns: u64,
        /// The first release must not come before. DWCS: the windows of activities that have left
        /// are over then.
        not_before_ns: u64,
    },
    /// The domain's event server has the share that was asked for.
    EventsReserved {
        /// As in the request.
        request: u64,
    },
    /// No place for an activity.
    Refused {
        /// As in the request.
        request: u64,
        /// Why, in one line.
        reason: String,
        /// What would fit, or empty.
        hint: String,
    },
    /// The watchdog had to act against this domain.
    Offence {
        /// On which CPU.
        cpu: u32,
        /// The number of a [`Measure`](crate::Measure).
        measure: u32,
        /// How long the domain had kept the turn after it should have yielded.
        held_ns: u64,
    },
    /// A part of the reply to [`ToDaemon::Inspect`].
    Status(StatusPart),
    /// The reply to [`ToDaemon::Program`], and news of a program of the connection.
    Program(ProgramReply),
    /// The reply to [`ToDaemon::PacketQuota`].
    PacketQuota(PacketQuotaReply),
    /// The reply to [`ToDaemon::OpenFlow`] and [`ToDaemon::TakeFlow`].
    Flow(FlowReply),
}

impl ToDaemon {
    /// Encodes the datagram. Cuts texts that are too long.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToDaemon::Hello { name, policy } => encode(1, &[], &[name, policy]),
            ToDaemon::Thread { cpu, tid } => encode(2, &[u64::from(*cpu), u64::from(*tid)], &[]),
            ToDaemon::Create { request, unscreened, need, name } => {
                let mut words = vec![*request, u64::from(*unscreened)];
                words.extend(need.words());
                encode(3, &words, &[name])
            }
            ToDaemon::Close { order } => encode(4, &[u64::from(*order)], &[]),
            ToDaemon::Claim { request, unscreened, cpu, order, need, name } => {
                let (cpu, order) = (u64::from(*cpu), u64::from(*order));
                let mut words = vec![*request, u64::from(*unscreened), cpu, order];
                words.extend(need.words());
                encode(5, &words, &[name])
            }
            ToDaemon::Detach => encode(6, &[], &[]),
            ToDaemon::Reweigh { request, order, portion } => {
                let [is_share, number] = portion.words();
                encode(7, &[*request, u64::from(*order), is_share, number], &[])
            }
            ToDaemon::Group { parent, portion, name } => {
                let [is_share, number] = portion.words();
                encode(8, &[parent.map_or(NO_GROUP, u64::from), is_share, number], &[name])
            }
            ToDaemon::ReserveEvents { request, cpu, share_ppm } => {
                encode(9, &[*request, u64::from(*cpu), u64::from(*share_ppm)], &[])
            }
            ToDaemon::Inspect => encode(INSPECT, &[], &[]),
            ToDaemon::Program(request) => request.encode(),
            ToDaemon::PacketQuota(request) => request.encode(),
            ToDaemon::OpenFlow(request) => request.encode(),
            ToDaemon::TakeFlow => encode(flow::TAKE, &[], &[]),
        }
    }

    /// Decodes a datagram.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let Frame { kind, words, mut texts } = Frame::decode(bytes)?;
        let content = WireError::Content { kind };
        if program::REQUESTS.contains(&kind) {
            let request = ProgramRequest::decode(kind, &words, &mut texts)?;
            return if texts.is_empty() { Ok(ToDaemon::Program(request)) } else { Err(content) };
        }
        if packet_quota::REQUESTS.contains(&kind) {
            let request = PacketQuotaRequest::decode(kind, &words, &mut texts)?;
            let message = ToDaemon::PacketQuota(request);
            return if texts.is_empty() { Ok(message) } else { Err(content) };
        }
        if kind == flow::OPEN {
            let request = OpenFlow::decode(&words, &mut texts)?;
            return if texts.is_empty() { Ok(ToDaemon::OpenFlow(request)) } else { Err(content) };
        }
        let mut text = || texts.pop_front().ok_or(content);
        match (kind, words.as_slice()) {
            (1, []) => Ok(ToDaemon::Hello { name: text()?, policy: text()? }),
            (2, &[cpu, tid]) => {
                Ok(ToDaemon::Thread { cpu: narrow(cpu, content)?, tid: narrow(tid, content)? })
            }
            (3, &[request, unscreened, ref need @ ..]) => Ok(ToDaemon::Create {
                request,
                unscreened: flag(unscreened, content)?,
                need: Need::of(need, content)?,
                name: text()?,
            }),
            (4, &[order]) => Ok(ToDaemon::Close { order: narrow(order, content)? }),
            (5, &[request, unscreened, cpu, order, ref need @ ..]) => Ok(ToDaemon::Claim {
                request,
                unscreened: flag(unscreened, content)?,
                cpu: narrow(cpu, content)?,
                order: narrow(order, content)?,
                need: Need::of(need, content)?,
                name: text()?,
            }),
            (6, []) => Ok(ToDaemon::Detach),
            (7, &[request, order, is_share, number]) => {
                let portion = Portion::of([is_share, number], content)?;
                Ok(ToDaemon::Reweigh { request, order: narrow(order, content)?, portion })
            }
            (8, &[parent, is_share, number]) => Ok(ToDaemon::Group {
                parent: group(parent, content)?,
                portion: Portion::of([is_share, number], content)?,
                name: text()?,
            }),
            (9, &[request, cpu, share_ppm]) => Ok(ToDaemon::ReserveEvents {
                request,
                cpu: narrow(cpu, content)?,
                share_ppm: narrow(share_ppm, content)?,
            }),
            (flow::TAKE, []) => Ok(ToDaemon::TakeFlow),
            (INSPECT, []) => Ok(ToDaemon::Inspect),
            (1..=9 | INSPECT | flow::TAKE, _) => Err(content),
            _ => Err(WireError::Kind { found: kind }),
        }
        .and_then(|message| if texts.is_empty() { Ok(message) } else { Err(content) })
    }
}

impl ToDomain {
    /// Encodes the datagram. Cuts texts that are too long.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToDomain::Welcome {
                domain,
                generation,
                virtual_processors,
                real_time,
                switch_cost_ns,
                defer_preemption_ns,
            } => {
                let (domain, virtual_processors) =
                    (u64::from(*domain), u64::from(*virtual_processors));
                let real_time = u64::from(*real_time);
                let words = [
                    domain,
                    *generation,
                    virtual_processors,
                    real_time,
                    *switch_cost_ns,
                    *defer_preemption_ns,
                ];
                encode(1, &words, &[])
            }
            ToDomain::Rejected { reason } => encode(2, &[], &[reason]),
            ToDomain::VirtualProcessor { cpu } => encode(3, &[u64::from(*cpu)], &[]),
            ToDomain::Peer { cpu, domain, generation } => {
                encode(4, &[u64::from(*cpu), u64::from(*domain), *generation], &[])
            }
            ToDomain::Granted { request, cpu, order, response_max_ns, not_before_ns } => {
                let (cpu, order) = (u64::from(*cpu), u64::from(*order));
                encode(5, &[*request, cpu, order, *response_max_ns, *not_before_ns], &[])
            }
            ToDomain::EventsReserved { request } => encode(8, &[*request], &[]),
            ToDomain::Refused { request, reason, hint } => encode(6, &[*request], &[reason, hint]),
            ToDomain::Offence { cpu, measure, held_ns } => {
                encode(7, &[u64::from(*cpu), u64::from(*measure), *held_ns], &[])
            }
            ToDomain::Status(part) => part.encode(),
            ToDomain::Program(reply) => reply.encode(),
            ToDomain::PacketQuota(reply) => reply.encode(),
            ToDomain::Flow(reply) => reply.encode(),
        }
    }

    /// Decodes a datagram.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let Frame { kind, words, mut texts } = Frame::decode(bytes)?;
        let content = WireError::Content { kind };
        if status::KINDS.contains(&kind) {
            let part = StatusPart::decode(kind, &words, &mut texts)?;
            return if texts.is_empty() { Ok(ToDomain::Status(part)) } else { Err(content) };
        }
        if program::REPLIES.contains(&kind) {
            let reply = ProgramReply::decode(kind, &words, &mut texts)?;
            return if texts.is_empty() { Ok(ToDomain::Program(reply)) } else { Err(content) };
        }
        if packet_quota::REPLIES.contains(&kind) {
            let reply = PacketQuotaReply::decode(kind, &words, &mut texts)?;
            return if texts.is_empty() { Ok(ToDomain::PacketQuota(reply)) } else { Err(content) };
        }
        if flow::REPLIES.contains(&kind) {
            let reply = FlowReply::decode(kind, &words, &mut texts)?;
            return if texts.is_empty() { Ok(ToDomain::Flow(reply)) } else { Err(content) };
        }
        let small = |word| narrow(word, content);
        let mut text = || texts.pop_front().ok_or(content);
        match (kind, words.as_slice()) {
            (
                1,
                &[
                    domain,
                    generation,
                    virtual_processors,
                    real_time,
                    switch_cost_ns,
                    defer_preemption_ns,
                ],
            ) => Ok(ToDomain::Welcome {
                domain: small(domain)?,
                generation,
                virtual_processors: small(virtual_processors)?,
                real_time: flag(real_time, content)?,
                switch_cost_ns,
                defer_preemption_ns,
            }),
            (2, []) => Ok(ToDomain::Rejected { reason: text()? }),
            (3, &[cpu]) => Ok(ToDomain::VirtualProcessor { cpu: small(cpu)? }),
            (4, &[cpu, domain, generation]) => {
                Ok(ToDomain::Peer { cpu: small(cpu)?, domain: small(domain)?, generation })
            }
            (5, &[request, cpu, order, response_max_ns, not_before_ns]) => Ok(ToDomain::Granted {
                request,
                cpu: small(cpu)?,
                order: small(order)?,
                response_max_ns,
                not_before_ns,
            }),
            (6, &[request]) => Ok(ToDomain::Refused { request, reason: text()?, hint: text()? }),
            (7, &[cpu, measure, held_ns]) => {
                Ok(ToDomain::Offence { cpu: small(cpu)?, measure: small(measure)?, held_ns })
            }
            (8, &[request]) => Ok(ToDomain::EventsReserved { request }),
            (1..=8, _) => Err(content),
            _ => Err(WireError::Kind { found: kind }),
        }
        .and_then(|message| if texts.is_empty() { Ok(message) } else { Err(content) })
    }
}

impl Portion {
    fn words(self) -> [u64; 2] {
        match self {
            Portion::Share(ppm) => [1, u64::from(ppm)],
            Portion::Weight(weight) => [0, u64::from(weight)],
        }
    }

    fn of([is_share, number]: [u64; 2], content: WireError) -> Result<Self, WireError> {
        let number = narrow(number, content)?;
        Ok(match flag(is_share, content)? {
            true => Portion::Share(number),
            false => Portion::Weight(number),
        })
    }
}

/// The number of a group, if there is one.
fn group(word: u64, content: WireError) -> Result<Option<u32>, WireError> {
    if word == NO_GROUP { Ok(None) } else { narrow(word, content).map(Some) }
}

impl Need {
    const WORDS: usize = 17;

    fn words(&self) -> [u64; Need::WORDS] {
        [
            self.period_ns,
            self.deadline_ns,
            self.offset_ns,
            u64::from(self.batch),
            u64::from(self.quantum),
            self.pdu_cost_ns,
            u64::from(self.class),
            u64::from(self.workahead_max),
            self.delay_bound_ns,
            u64::from(self.on_demand),
            u64::from(self.wins_ties),
            self.only_cpu.map_or(ANY_CPU, u64::from),
            u64::from(self.share_ppm),
            u64::from(self.weight),
            self.group.map_or(NO_GROUP, u64::from),
            u64::from(self.window_misses),
            u64::from(self.window_periods),
        ]
    }

    fn of(words: &[u64], content: WireError) -> Result<Self, WireError> {
        let words: &[u64; Need::WORDS] = words.try_into().map_err(|_| content)?;
        Ok(Need {
            period_ns: words[0],
            deadline_ns: words[1],
            offset_ns: words[2],
            batch: narrow(words[3], content)?,
            quantum: narrow(words[4], content)?,
            pdu_cost_ns: words[5],
            class: narrow(words[6], content)?,
            workahead_max: narrow(words[7], content)?,
            delay_bound_ns: words[8],
            on_demand: flag(words[9], content)?,
            wins_ties: flag(words[10], content)?,
            only_cpu: match words[11] {
                ANY_CPU => None,
                cpu => Some(narrow(cpu, content)?),
            },
            share_ppm: narrow(words[12], content)?,
            weight: narrow(words[13], content)?,
            group: group(words[14], content)?,
            window_misses: narrow(words[15], content)?,
            window_periods: narrow(words[16], content)?,
        })
    }
}
