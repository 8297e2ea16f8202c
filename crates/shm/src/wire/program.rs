//! The messages about programs: processes that nobody changed, with a share of a CPU.
//!
//! ```text
//!   client (no domain)                            daemon
//!   Start           ------------------------->    (puts the process into a group)
//!                   <-------------------------    Admitted, or Refused
//!                   <-------------------------    Admitted again, when the share was changed
//!                   <-------------------------    Ended, when the program lost its share
//! ```
//!
//! A program of Start has its share until its connection closes. A program of Adopt has it until
//! its last process has ended, or until Release. Change and Release name any process of the
//! program. The reply to Release is Ended.

use std::collections::VecDeque;

use super::frame::{WireError, encode, flag, narrow};

/// The first kind of these messages, in both directions.
const START: u32 = 48;
const ADOPT: u32 = 49;
const CHANGE: u32 = 50;
const RELEASE: u32 = 51;
/// The kinds of the requests.
pub(super) const REQUESTS: core::ops::RangeInclusive<u32> = START..=RELEASE;

const ADMITTED: u32 = 48;
const REFUSED: u32 = 49;
const ENDED: u32 = 50;
/// The kinds of the replies.
pub(super) const REPLIES: core::ops::RangeInclusive<u32> = ADMITTED..=ENDED;

/// A whole CPU, in millionths.
const WHOLE_PPM: u32 = 1_000_000;
/// Stands for a CPU that the daemon chooses.
const ANY_CPU: u64 = u64::MAX;

/// What a program asks for, in numbers that the daemon checks: a share, or a cost in each period,
/// or both, or else a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTerms {
    /// The share of the CPU, in millionths, at most 1,000,000. 0: none.
    pub share_ppm: u32,
    /// The weight beside other programs with weights, and beside all other processes together,
    /// which have weight 1. 0: none.
    pub weight: u32,
    /// CPU time that it needs in each period. 0: not stated.
    pub cost_ns: u64,
    /// The period. 0: not stated.
    pub period_ns: u64,
    /// The only CPU to use. `None`: the daemon chooses.
    pub cpu: Option<u32>,
    /// How long the program may keep the CPU from another. 0: the daemon chooses.
    pub quantum_ns: u64,
}

/// A request about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramRequest {
    /// Asks for a share for a process, as long as this connection is open.
    Start {
        /// The process.
        pid: u32,
        /// What it asks for.
        terms: ProgramTerms,
        /// The name of the program, for display.
        name: String,
    },
    /// Asks for a share for a process, until the last process of the program has ended.
    Adopt {
        /// The process.
        pid: u32,
        /// What it asks for.
        terms: ProgramTerms,
        /// The name of the program, for display.
        name: String,
    },
    /// Asks for another share.
    Change {
        /// A process of the program.
        pid: u32,
        /// The share of the CPU, in millionths, 1 to 1,000,000.
        share_ppm: u32,
    },
    /// Gives the share of a program back.
    Release {
        /// A process of the program.
        pid: u32,
    },
}

/// The place of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmittedProgram {
    /// Its number.
    pub id: u64,
    /// Its CPU.
    pub cpu: u32,
    /// Its share of the CPU, in millionths. 0: it has a weight.
    pub share_ppm: u32,
    /// Its weight. 0: it has a share.
    pub weight: u32,
    /// The longest time for which real-time handlers may keep the CPU from it (`B`).
    pub burst_ns: u64,
    /// How long another program may keep the CPU from it (`q`).
    pub quantum_ns: u64,
    /// Whether a ticker keeps the quantum. Otherwise the tick of the kernel does.
    pub ticker: bool,
}

/// Why a program was refused, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RefusalCause {
    /// The CPU has less to give away than the share.
    NoRoom = 1,
    /// The share is too small for the cost in the period.
    ShareTooSmall = 2,
    /// No share is enough for the cost in the period.
    PeriodTooShort = 3,
    /// A limit of the user or of the daemon is reached.
    Limit = 4,
    /// The terms contradict each other, or one is out of its range.
    Terms = 5,
    /// The daemon does not schedule the CPU.
    Cpu = 6,
    /// There is no such process, or it has ended.
    NoProcess = 7,
    /// The process belongs to another user.
    OtherUser = 8,
    /// The process belongs to no program that the user may change.
    NoProgram = 9,
    /// The process belongs to a program already, or has real-time threads as a domain does.
    Taken = 10,
    /// The daemon cannot make groups: a right or a controller is missing.
    NoGroups = 11,
    /// The user may not ask for shares of programs.
    NoRight = 12,
}

impl RefusalCause {
    /// All causes.
    pub const ALL: [RefusalCause; 12] = [
        RefusalCause::NoRoom,
        RefusalCause::ShareTooSmall,
        RefusalCause::PeriodTooShort,
        RefusalCause::Limit,
        RefusalCause::Terms,
        RefusalCause::Cpu,
        RefusalCause::NoProcess,
        RefusalCause::OtherUser,
        RefusalCause::NoProgram,
        RefusalCause::Taken,
        RefusalCause::NoGroups,
        RefusalCause::NoRight,
    ];

    /// The cause with this number in a message; `None`: there is none.
    pub fn of_number(number: u32) -> Option<Self> {
        RefusalCause::ALL.into_iter().find(|&cause| cause as u32 == number)
    }

    /// Whether admission refused: another share, period or CPU may fit. The other causes are
    /// errors of the request, or of the machine.
    pub fn is_admission(self) -> bool {
        matches!(
            self,
            RefusalCause::NoRoom
                | RefusalCause::ShareTooSmall
                | RefusalCause::PeriodTooShort
                | RefusalCause::Limit
        )
    }
}

/// Why a program was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedProgram {
    /// The cause.
    pub cause: RefusalCause,
    /// The share that was asked for, or that the cost needs, in millionths. 0: none.
    pub asked_ppm: u32,
    /// The share that fits, in millionths: what is free, or what the cost needs. 0: none.
    pub fits_ppm: u32,
    /// The cause, and what would fit, in one line.
    pub reason: String,
}

/// A reply about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramReply {
    /// The program has a place.
    Admitted(AdmittedProgram),
    /// The program has none, or keeps the one that it has.
    Refused(RefusedProgram),
    /// The program has lost its place, or gave it back. Its processes run on.
    Ended {
        /// Its number.
        id: u64,
    },
}

/// The state of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStatus {
    /// Its number.
    pub id: u64,
    /// The process that it began with.
    pub pid: u32,
    /// The user that asked for its share.
    pub uid: u32,
    /// Its CPU.
    pub cpu: u32,
    /// Its share of the CPU, in millionths. 0: it has a weight.
    pub share_ppm: u32,
    /// Its weight. 0: it has a share.
    pub weight: u32,
    /// CPU time of its processes since it has its share.
    pub used_ns: u64,
    /// How many processes it has.
    pub processes: u32,
    /// As in [`AdmittedProgram`].
    pub burst_ns: u64,
    /// As in [`AdmittedProgram`].
    pub quantum_ns: u64,
    /// When the daemon looked at it (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// Its name, as its user stated.
    pub name: String,
}

impl ProgramTerms {
    const WORDS: usize = 6;

    fn words(&self) -> [u64; ProgramTerms::WORDS] {
        [
            u64::from(self.share_ppm),
            u64::from(self.weight),
            self.cost_ns,
            self.period_ns,
            self.cpu.map_or(ANY_CPU, u64::from),
            self.quantum_ns,
        ]
    }

    fn of(words: &[u64], content: WireError) -> Result<Self, WireError> {
        let words: &[u64; ProgramTerms::WORDS] = words.try_into().map_err(|_| content)?;
        Ok(ProgramTerms {
            share_ppm: ppm(words[0], content)?,
            weight: narrow(words[1], content)?,
            cost_ns: words[2],
            period_ns: words[3],
            cpu: if words[4] == ANY_CPU { None } else { Some(narrow(words[4], content)?) },
            quantum_ns: words[5],
        })
    }
}

impl ProgramRequest {
    pub(super) fn encode(&self) -> Vec<u8> {
        let with_terms = |kind, pid: u32, terms: &ProgramTerms, name| {
            let mut words = vec![u64::from(pid)];
            words.extend(terms.words());
            encode(kind, &words, &[name])
        };
        match self {
            ProgramRequest::Start { pid, terms, name } => with_terms(START, *pid, terms, name),
            ProgramRequest::Adopt { pid, terms, name } => with_terms(ADOPT, *pid, terms, name),
            ProgramRequest::Change { pid, share_ppm } => {
                encode(CHANGE, &[u64::from(*pid), u64::from(*share_ppm)], &[])
            }
            ProgramRequest::Release { pid } => encode(RELEASE, &[u64::from(*pid)], &[]),
        }
    }

    pub(super) fn decode(
        kind: u32,
        words: &[u64],
        texts: &mut VecDeque<String>,
    ) -> Result<Self, WireError> {
        let content = WireError::Content { kind };
        let mut text = || texts.pop_front().ok_or(content);
        match (kind, words) {
            (START, &[pid, ref terms @ ..]) => Ok(ProgramRequest::Start {
                pid: narrow(pid, content)?,
                terms: ProgramTerms::of(terms, content)?,
                name: text()?,
            }),
            (ADOPT, &[pid, ref terms @ ..]) => Ok(ProgramRequest::Adopt {
                pid: narrow(pid, content)?,
                terms: ProgramTerms::of(terms, content)?,
                name: text()?,
            }),
            (CHANGE, &[pid, share_ppm]) => match ppm(share_ppm, content)? {
                0 => Err(content),
                share_ppm => Ok(ProgramRequest::Change { pid: narrow(pid, content)?, share_ppm }),
            },
            (RELEASE, &[pid]) => Ok(ProgramRequest::Release { pid: narrow(pid, content)? }),
            _ => Err(content),
        }
    }
}

impl ProgramReply {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            ProgramReply::Admitted(admitted) => encode(ADMITTED, &admitted.words(), &[]),
            ProgramReply::Refused(RefusedProgram { cause, asked_ppm, fits_ppm, reason }) => {
                let words = [*cause as u32, *asked_ppm, *fits_ppm].map(u64::from);
                encode(REFUSED, &words, &[reason])
            }
            ProgramReply::Ended { id } => encode(ENDED, &[*id], &[]),
        }
    }

    pub(super) fn decode(
        kind: u32,
        words: &[u64],
        texts: &mut VecDeque<String>,
    ) -> Result<Self, WireError> {
        let content = WireError::Content { kind };
        let mut text = || texts.pop_front().ok_or(content);
        match (kind, words) {
            (ADMITTED, words) => AdmittedProgram::of(words, content).map(ProgramReply::Admitted),
            (REFUSED, &[cause, asked_ppm, fits_ppm]) => Ok(ProgramReply::Refused(RefusedProgram {
                cause: RefusalCause::of_number(narrow(cause, content)?).ok_or(content)?,
                asked_ppm: ppm(asked_ppm, content)?,
                fits_ppm: ppm(fits_ppm, content)?,
                reason: text()?,
            })),
            (ENDED, &[id]) => Ok(ProgramReply::Ended { id }),
            _ => Err(content),
        }
    }
}

impl AdmittedProgram {
    const WORDS: usize = 7;

    fn words(&self) -> [u64; AdmittedProgram::WORDS] {
        [
            self.id,
            u64::from(self.cpu),
            u64::from(self.share_ppm),
            u64::from(self.weight),
            self.burst_ns,
            self.quantum_ns,
            u64::from(self.ticker),
        ]
    }

    fn of(words: &[u64], content: WireError) -> Result<Self, WireError> {
        let words: &[u64; AdmittedProgram::WORDS] = words.try_into().map_err(|_| content)?;
        Ok(AdmittedProgram {
            id: words[0],
            cpu: narrow(words[1], content)?,
            share_ppm: ppm(words[2], content)?,
            weight: narrow(words[3], content)?,
            burst_ns: words[4],
            quantum_ns: words[5],
            ticker: flag(words[6], content)?,
        })
    }
}

impl ProgramStatus {
    const WORDS: usize = 11;

    pub(super) fn words(&self) -> [u64; ProgramStatus::WORDS] {
        [
            self.id,
            u64::from(self.pid),
            u64::from(self.uid),
            u64::from(self.cpu),
            u64::from(self.share_ppm),
            u64::from(self.weight),
            self.used_ns,
            u64::from(self.processes),
            self.burst_ns,
            self.quantum_ns,
            self.at_ns,
        ]
    }

    pub(super) fn of(words: &[u64], name: String, content: WireError) -> Result<Self, WireError> {
        let words: &[u64; ProgramStatus::WORDS] = words.try_into().map_err(|_| content)?;
        Ok(ProgramStatus {
            id: words[0],
            pid: narrow(words[1], content)?,
            uid: narrow(words[2], content)?,
            cpu: narrow(words[3], content)?,
            share_ppm: ppm(words[4], content)?,
            weight: narrow(words[5], content)?,
            used_ns: words[6],
            processes: narrow(words[7], content)?,
            burst_ns: words[8],
            quantum_ns: words[9],
            at_ns: words[10],
            name,
        })
    }
}

/// A share of at most a whole CPU.
fn ppm(word: u64, content: WireError) -> Result<u32, WireError> {
    narrow(word, content).and_then(|ppm| if ppm <= WHOLE_PPM { Ok(ppm) } else { Err(content) })
}
