//! The parameters that the user of a stream states.

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

    /// In millionths of a unit a second.
    pub const fn as_micro_hertz(self) -> u64 {
        self.0
    }
}

/// What a user says of one stream, who need not know period and batch. `Runtime::handler` takes
/// it as it is; [`map`](super::map) shows what is derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// What kind of stream it is, and what users of that kind know.
    pub class: Class,
    /// Largest PDU in bytes: the unit of work.
    /// `1 ..=` [`super::mapping::PDU_BYTES_MAX`].
    pub pdu_bytes: u32,
    /// Most time from the arrival of a PDU (of the last PDU of a frame or
    /// message) to the end of its processing; `>= 2 ns`. Mandatory for all
    /// classes but bulk, where it is [`super::mapping::BULK_DELAY`] if absent.
    pub delay: Option<Span>,
    /// CPU time one PDU takes. `> 0`.
    pub pdu_cost: Span,
    /// Preemption-free PDUs, where the user insists; else derived. At least 1,
    /// at most the batch that the mapping derives.
    pub quantum: Option<u32>,
}

/// The four application classes (rtu-1996 §2, "QoS Specification").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Audio, video, sensors: a steady flow.
    ContinuousMedia(Flow),
    /// Files, backups: throughput counts, delay hardly.
    Bulk(Flow),
    /// Requests at low bandwidth, arriving when they like: response time counts.
    Transaction {
        /// Most requests a second, on average. `> 0`.
        rate: Rate,
        /// Most requests that arrive at once, each one PDU.
        /// `1 ..=` [`crate::activity::BATCH_MAX`]. Within any time `t` at most
        /// `burst + rate * t` arrive.
        burst: u32,
    },
    /// Large messages at high bandwidth, each cut into PDUs that arrive at once.
    MessageStream {
        /// Messages a second. `> 0`.
        message_rate: Rate,
        /// Largest message in bytes. `> 0`, and at most
        /// [`crate::activity::BATCH_MAX`] PDUs.
        message_bytes: u64,
    },
}

/// How much flows, in the terms the user has it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// PDUs a second. `> 0`.
    PduRate(Rate),
    /// Bits of payload a second, in PDUs of the stated size. Smaller PDUs at the
    /// same bandwidth are more PDUs: whoever sends those states a
    /// [`Flow::PduRate`].
    Bandwidth {
        /// Bits a second. `> 0`.
        bits_per_second: u64,
    },
    /// Media frames a second, each of at most so many bytes, cut into PDUs.
    Frames {
        /// Frames a second. `> 0`.
        frame_rate: Rate,
        /// Largest frame in bytes. `> 0`, and at most
        /// [`crate::activity::BATCH_MAX`] PDUs.
        frame_bytes: u64,
    },
    /// So much within so long, sent evenly. The last PDU *arrives* within that
    /// time; its processing ends at most the delay later.
    Transfer {
        /// Bytes in all. `> 0`.
        bytes: u64,
        /// Time it may take. `> 0`.
        within: Span,
    },
}
