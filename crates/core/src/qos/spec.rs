//! The parameters that the user of a stream states.

use crate::activity::Backlog;
use crate::time::Span;

/// Units a second, in millionths: `29.97/s` is `Rate::from_micro_hertz(29_970_000)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// `micro_hertz` millionths of a unit a second.
    pub const fn from_micro_hertz(micro_hertz: u64) -> Self {
        Rate(micro_hertz)
    }

    /// `hertz` units a second; saturates.
    pub const fn from_hertz(hertz: u64) -> Self {
        Rate(hertz.saturating_mul(1_000_000))
    }

    /// The rate in millionths of a unit a second.
    pub const fn as_micro_hertz(self) -> u64 {
        self.0
    }
}

/// The specification of one stream. Its user need not know period and batch. `Runtime::handler`
/// takes it directly; [`map`](super::map) shows what is derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// The class of the stream, with the parameters of that class.
    pub class: Class,
    /// The largest PDU in bytes: the unit of work. `1 ..=` [`super::mapping::PDU_BYTES_MAX`].
    pub pdu_bytes: u32,
    /// The longest time from the arrival of a PDU (for a frame or message: of its last PDU) to the
    /// end of its processing; `>= 2 ns`. Mandatory for all classes but bulk, whose default is
    /// [`super::mapping::BULK_DELAY`].
    pub delay: Option<Span>,
    /// The CPU time of one PDU. `> 0`.
    pub pdu_cost: Span,
    /// The number of PDUs without preemption; derived if absent. At least 1, at most the batch that
    /// the mapping derives.
    pub quantum: Option<u32>,
}

/// The four application classes (rtu-1996 §2, "QoS Specification").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Audio, video, sensors: a steady flow.
    ContinuousMedia(Flow),
    /// Files, backups: throughput matters, and delay matters little.
    Bulk(Flow),
    /// Requests at low bandwidth that arrive at any time: response time matters.
    Transaction {
        /// The highest rate of requests, on average. `> 0`.
        rate: Rate,
        /// The most requests that arrive at once, each one PDU. `1 ..=`
        /// [`crate::activity::BATCH_MAX`]. Within any time `t` at most `burst + rate * t` requests
        /// arrive.
        burst: u32,
    },
    /// Large messages at high bandwidth, each cut into PDUs that arrive at once.
    MessageStream {
        /// Messages a second. `> 0`.
        message_rate: Rate,
        /// The largest message in bytes. `> 0`, and at most [`crate::activity::BATCH_MAX`] PDUs.
        message_bytes: u64,
    },
}

impl Class {
    /// What becomes of jobs of a stream of this class that could not begin by their deadlines, if
    /// its user does not say. Media that are late are useless, so their jobs are dropped. All data
    /// of the other classes are processed.
    pub const fn backlog(&self) -> Backlog {
        match self {
            Class::ContinuousMedia(_) => Backlog::Skip,
            Class::Bulk(_) | Class::Transaction { .. } | Class::MessageStream { .. } => {
                Backlog::CatchUp
            }
        }
    }
}

/// The amount of data a second, in the units that the user knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// PDUs a second. `> 0`.
    PduRate(Rate),
    /// Bits of payload a second, in PDUs of the stated size. The same bandwidth in smaller PDUs
    /// needs more PDUs; in that case state a [`Flow::PduRate`].
    Bandwidth {
        /// Bits a second. `> 0`.
        bits_per_second: u64,
    },
    /// Media frames a second, each of at most `frame_bytes`, cut into PDUs.
    Frames {
        /// Frames a second. `> 0`.
        frame_rate: Rate,
        /// The largest frame in bytes. `> 0`, and at most [`crate::activity::BATCH_MAX`] PDUs.
        frame_bytes: u64,
    },
    /// An amount of data within a time, sent evenly. The last PDU *arrives* within that time; its
    /// processing ends at most the delay later.
    Transfer {
        /// Bytes in all. `> 0`.
        bytes: u64,
        /// The time for the transfer. `> 0`.
        within: Span,
    },
}
