//! QoS specification: what a user of a stream says (rtu-1996 §2).
//!
//! Four application classes, each with the parameters a user of that class
//! knows. [`mapping`] derives everything else. Written by spec files and by
//! programs; read by the mapping only.

use crate::time::Span;

pub mod mapping;

pub use mapping::{MapError, Mapping, map};

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

/// What a user says of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// What kind of stream it is, and what users of that kind know.
    pub class: Class,
    /// Largest PDU in bytes: the unit of work. `1 ..= 2^30`.
    pub pdu_bytes: u32,
    /// Most time from the arrival of a PDU (of the last PDU of a frame or
    /// message) to the end of its processing. Mandatory for all classes but
    /// bulk, where it is [`mapping::BULK_DELAY`] if absent.
    pub delay: Option<Span>,
    /// CPU time one PDU takes.
    pub pdu_cost: Span,
    /// Preemption-free PDUs, where the user insists; else derived.
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
        /// Most requests a second, on average.
        rate: Rate,
        /// Most requests that arrive at once. `>= 1`.
        burst: u32,
    },
    /// Large messages at high bandwidth, each cut into PDUs that arrive at once.
    MessageStream {
        /// Messages a second.
        message_rate: Rate,
        /// Largest message in bytes.
        message_bytes: u64,
    },
}

/// How much flows, in the terms the user has it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// PDUs a second.
    PduRate(Rate),
    /// Bits of payload a second.
    Bandwidth {
        /// Bits a second.
        bits_per_second: u64,
    },
    /// Media frames a second, each of at most so many bytes, cut into PDUs.
    Frames {
        /// Frames a second.
        frame_rate: Rate,
        /// Largest frame in bytes.
        frame_bytes: u64,
    },
    /// So much within so long.
    Transfer {
        /// Bytes in all.
        bytes: u64,
        /// Time it may take.
        within: Span,
    },
}
