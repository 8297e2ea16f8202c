//! Limits and defaults of the mapping.

use crate::time::Span;

/// Delay of a bulk stream whose user names none.
pub const BULK_DELAY: Span = Span::from_millis(200);

/// Largest PDU in bytes.
pub const PDU_BYTES_MAX: u32 = 1 << 30;

/// The period to which batching is worth its buffers.
///
/// What a longer period saves is hand-offs, two a job: at 5 us each, 0.001 % of a
/// CPU is left to save at one second, while buffers and the length of a job
/// grow on. So a careless delay of an hour does not make a batch of an hour. Two
/// kinds of stream have longer periods, if their delay allows: one whose units are
/// further apart than this (the period is their interval, or the handler would look
/// for nothing), and one with bursts (until as many PDUs come by rate as by burst,
/// so that the burst reserves no more than the rate).
pub const PERIOD_LONGEST: Span = Span::from_secs(1);
