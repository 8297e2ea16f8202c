//! Why a specification has no mapping, in the terms of its author.

use super::limits::{BULK_DELAY, PDU_BYTES_MAX};
use crate::activity::BATCH_MAX;
use crate::time::Span;
use core::fmt;

/// A specification that has no mapping: a mistake of the caller.
///
/// `Display` states what was found and what was expected. [`MapError::key`] names the faulty key of
/// the spec file.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// A value that must be above 0 is 0.
    Zero {
        /// Its key in the spec file.
        key: &'static str,
    },
    /// The PDU is empty or larger than [`PDU_BYTES_MAX`].
    Pdu {
        /// As given.
        pdu_bytes: u32,
    },
    /// No delay in a class without a default.
    DelayMissing,
    /// A delay that cannot be split into a wait and a deadline.
    DelayShort {
        /// As given, less than 2 ns.
        delay: Span,
    },
    /// More than [`BATCH_MAX`] PDUs arrive at once.
    AtOnce {
        /// `burst`, `frame` or `message`.
        key: &'static str,
        /// The number of PDUs.
        pdus: u64,
    },
    /// More than one PDU a nanosecond.
    RateLarge {
        /// The key that gave the rate.
        key: &'static str,
        /// PDUs a second, rounded down.
        pdu_rate_hz: u64,
    },
    /// A batch takes more CPU time than its period has.
    Cost {
        /// As given.
        pdu_cost: Span,
        /// As given, or [`BULK_DELAY`].
        delay: Span,
        /// The batch derived from the delay.
        batch: u32,
        /// The period derived from the delay.
        period: Span,
        /// The largest cost of a PDU with this delay, if any cost fits.
        pdu_cost_max: Option<Span>,
        /// The least delay that fits this cost, if there is one.
        delay_min: Option<Span>,
    },
    /// The quantum is 0 or larger than the batch.
    Quantum {
        /// As given.
        quantum: u32,
        /// The batch derived from rate and delay: the upper limit.
        batch: u32,
        /// The period of that batch.
        period: Span,
    },
}

impl MapError {
    /// The key of the spec file with the faulty value.
    pub const fn key(&self) -> &'static str {
        match *self {
            MapError::Zero { key }
            | MapError::AtOnce { key, .. }
            | MapError::RateLarge { key, .. } => key,
            MapError::Pdu { .. } => "pdu",
            MapError::DelayMissing | MapError::DelayShort { .. } => "delay",
            MapError::Cost { .. } => "cost",
            MapError::Quantum { .. } => "quantum",
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MapError::Zero { key } => write!(f, "{key} is 0; expected more than 0"),
            MapError::Pdu { pdu_bytes } => {
                write!(f, "pdu is {pdu_bytes} B; expected 1 B to {PDU_BYTES_MAX} B")
            }
            MapError::DelayMissing => write!(
                f,
                "delay is missing; expected the most time from the arrival of a PDU to the end of \
                 its processing (only bulk streams have a default, {BULK_DELAY})"
            ),
            MapError::DelayShort { delay } => {
                write!(f, "delay is {delay}; expected at least 2 ns")
            }
            MapError::AtOnce { key: "burst", pdus } => {
                write!(f, "burst is {pdus} PDUs; expected at most {BATCH_MAX}")
            }
            MapError::AtOnce { key, pdus } => write!(
                f,
                "{key} makes {pdus} PDUs that arrive at once; expected at most {BATCH_MAX} (larger \
                 PDUs are fewer)"
            ),
            MapError::RateLarge { key, pdu_rate_hz } => write!(
                f,
                "{key} makes {pdu_rate_hz} PDUs a second; expected at most 1000000000, one a \
                 nanosecond"
            ),
            MapError::Cost { pdu_cost, delay, batch, period, pdu_cost_max, delay_min } => {
                let pdus = if batch == 1 { "PDU" } else { "PDUs" };
                write!(
                    f,
                    "cost is {pdu_cost}; a delay of {delay} makes {batch} {pdus} every {period}, \
                     which is {} of CPU time; ",
                    pdu_cost.saturating_mul(u64::from(batch))
                )?;
                fmt_remedy(f, pdu_cost_max.map(printed_down), delay_min.map(printed_up))
            }
            MapError::Quantum { quantum, batch, period } => write!(
                f,
                "quantum is {quantum}; expected 1 to {batch}, the PDUs of one period of {period} \
                 (a longer delay makes it more)"
            ),
        }
    }
}

crate::debug_as_display!(MapError);

impl core::error::Error for MapError {}

fn fmt_remedy(
    f: &mut fmt::Formatter<'_>,
    pdu_cost_max: Option<Span>,
    delay_min: Option<Span>,
) -> fmt::Result {
    match (pdu_cost_max, delay_min) {
        (Some(cost), Some(delay)) => {
            write!(f, "expected a cost of at most {cost}, or a delay of at least {delay}")
        }
        (Some(cost), None) => {
            write!(f, "expected a cost of at most {cost}; no delay makes room for more")
        }
        (None, Some(delay)) => write!(f, "expected a delay of at least {delay}"),
        (None, None) => f.write_str("expected fewer PDUs: no cost fits, and no delay helps"),
    }
}

/// The longest span up to this one that [`Span`] prints exactly, so that a value copied from the
/// message fits.
fn printed_down(span: Span) -> Span {
    let step_ns = printed_step_ns(span);
    Span::from_nanos(span.as_nanos() / step_ns * step_ns)
}

/// The shortest span from this one on that [`Span`] prints exactly.
fn printed_up(span: Span) -> Span {
    let step_ns = printed_step_ns(span);
    Span::from_nanos(span.as_nanos().div_ceil(step_ns).saturating_mul(step_ns))
}

/// [`Span`] prints three decimal places of the unit that it chooses.
fn printed_step_ns(span: Span) -> u64 {
    match span.as_nanos() {
        ns if ns >= 10_000_000_000 => 1_000_000,
        ns if ns >= 1_000_000 => 1_000,
        _ => 1,
    }
}
