//! What a domain and the daemon say to each other over their socket.
//!
//! One datagram a message (`SOCK_SEQPACKET`), both ends on one machine. Descriptors
//! travel beside it and are the caller's business. Used by the runtime (a domain's
//! end) and the daemon; neither is on the path of a hand-off. Allocates.
//!
//! ```text
//!   domain                                        daemon
//!   Hello           ------------------------->
//!                   <-------------------------    Welcome, then VirtualProcessor with three descriptors a CPU:
//!                                                 turn page, own user area, kernel area
//!                   <-------------------------    Peer with its user area to read, now and later
//!   Thread          ------------------------->    (gives it the real-time class)
//!   Create          ------------------------->
//!                   <-------------------------    Granted, or Refused
//!   Close           ------------------------->
//!                   <-------------------------    Offence, when the watchdog had to act
//! ```
//!
//! Who is no domain may say Inspect instead, and is told how things stand: module
//! `status`. A frame is a fixed head, so many words and so many texts; what each kind has is
//! checked before anything is looked at.
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

mod frame;
mod status;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use frame::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION, TEXT_BYTES_MAX, WireError};
pub use status::{ActivityStatus, CpuStatus, DomainStatus, StatusPart, VirtualProcessorStatus};

/// The kind of [`ToDaemon::Inspect`], apart from a domain's own.
const INSPECT: u32 = 32;
/// What an activity needs, in numbers that the daemon checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Between two releases.
    pub period_ns: u64,
    /// From a release to the end of the job.
    pub deadline_ns: u64,
    /// Before the first release.
    pub offset_ns: u64,
    /// PDUs a period.
    pub batch: u32,
    /// PDUs without preemption.
    pub quantum: u32,
    /// Of one PDU.
    pub pdu_cost_ns: u64,
    /// DWS: 0 real time, 1 interactive, 2 background.
    pub class: u32,
    /// DWS: messages ahead.
    pub workahead_max: u32,
    /// DWS: from logical arrival to deadline; 0: the deadline.
    pub delay_bound_ns: u64,
    /// DWS: messages are said one by one.
    pub on_demand: bool,
    /// RMDP and RM: among equals it goes first while an event waits for it.
    pub wins_ties: bool,
}

/// From a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToDaemon {
    /// The first message.
    Hello {
        /// Of the domain, for people.
        name: String,
        /// The policy it counts on.
        policy: String,
    },
    /// Its virtual processor of a CPU is this thread.
    Thread {
        /// Which CPU.
        cpu: u32,
        /// The thread, as its own process sees it.
        tid: u32,
    },
    /// It asks for a place for an activity.
    Create {
        /// Comes back with the answer.
        request: u64,
        /// To be placed even if the tests fail.
        unscreened: bool,
        /// What it needs.
        need: Need,
        /// For people.
        name: String,
    },
    /// It gives the place of an activity back.
    Close {
        /// As granted.
        order: u32,
    },
    /// It has an activity since before this daemon was there: answered as `Create` is.
    Claim {
        /// Comes back with the answer.
        request: u64,
        /// As when it was created.
        unscreened: bool,
        /// Where it runs.
        cpu: u32,
        /// As the former daemon granted.
        order: u32,
        /// What it needs.
        need: Need,
        /// For people.
        name: String,
    },
    /// It ends in order: the daemon detaches it and closes the connection. A connection
    /// that closes without this message is that of a process that died, or left it out.
    Detach,
    /// How do things stand? From who is no domain; answered by [`ToDomain::Status`]es.
    Inspect,
}

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToDomain {
    /// It is attached.
    Welcome {
        /// Its number.
        domain: u32,
        /// Tells it from the one that had the number before.
        generation: u64,
        /// How many [`ToDomain::VirtualProcessor`]s follow.
        virtual_processors: u32,
        /// 1 if threads get the real-time class, 0 if they stay ordinary.
        real_time: bool,
        /// What admission counts for a hand-off.
        switch_cost_ns: u64,
        /// For so long a domain may have released activities of others wait that outrank
        /// what it goes on with; 0: not at all.
        defer_preemption_ns: u64,
    },
    /// It is not, and why; the daemon hangs up.
    Rejected {
        /// In a line.
        reason: String,
    },
    /// Its pages on a CPU.
    VirtualProcessor {
        /// Which CPU.
        cpu: u32,
    },
    /// Another domain of its user on a CPU.
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
        /// As asked.
        request: u64,
        /// Where.
        cpu: u32,
        /// Its place in the order of admission, and its name from now on.
        order: u32,
        /// Worst response as admitted; `u64::MAX` where nothing is promised.
        response_max_ns: u64,
    },
    /// No place for an activity.
    Refused {
        /// As asked.
        request: u64,
        /// Why, in a line.
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
        /// How long it had kept the turn after it should have yielded.
        held_ns: u64,
    },
    /// A part of the answer to [`ToDaemon::Inspect`].
    Status(StatusPart),
}

impl ToDaemon {
    /// The datagram. Texts that are too long are cut.
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
            ToDaemon::Inspect => encode(INSPECT, &[], &[]),
        }
    }

    /// The message of a datagram.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let Frame { kind, words, mut texts } = Frame::decode(bytes)?;
        let content = WireError::Content { kind };
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
            (INSPECT, []) => Ok(ToDaemon::Inspect),
            (1..=6 | INSPECT, _) => Err(content),
            _ => Err(WireError::Kind { found: kind }),
        }
        .and_then(|message| if texts.is_empty() { Ok(message) } else { Err(content) })
    }
}

impl ToDomain {
    /// The datagram. Texts that are too long are cut.
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
            ToDomain::Granted { request, cpu, order, response_max_ns } => {
                let words = [*request, u64::from(*cpu), u64::from(*order), *response_max_ns];
                encode(5, &words, &[])
            }
            ToDomain::Refused { request, reason, hint } => encode(6, &[*request], &[reason, hint]),
            ToDomain::Offence { cpu, measure, held_ns } => {
                encode(7, &[u64::from(*cpu), u64::from(*measure), *held_ns], &[])
            }
            ToDomain::Status(part) => part.encode(),
        }
    }

    /// The message of a datagram.
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
            (5, &[request, cpu, order, response_max_ns]) => Ok(ToDomain::Granted {
                request,
                cpu: small(cpu)?,
                order: small(order)?,
                response_max_ns,
            }),
            (6, &[request]) => Ok(ToDomain::Refused { request, reason: text()?, hint: text()? }),
            (7, &[cpu, measure, held_ns]) => {
                Ok(ToDomain::Offence { cpu: small(cpu)?, measure: small(measure)?, held_ns })
            }
            (1..=7, _) => Err(content),
            _ => Err(WireError::Kind { found: kind }),
        }
        .and_then(|message| if texts.is_empty() { Ok(message) } else { Err(content) })
    }
}

impl Need {
    const WORDS: usize = 11;

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
        })
    }
}
