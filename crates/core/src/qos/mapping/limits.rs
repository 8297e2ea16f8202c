//! Limits and defaults of the mapping.

use crate::time::Span;

/// The delay of a bulk stream whose specification has none.
pub const BULK_DELAY: Span = Span::from_millis(200);

/// The largest PDU in bytes.
pub const PDU_BYTES_MAX: u32 = 1 << 30;

/// The longest period for which batching is worth its buffers.
///
/// A longer period saves hand-offs, two a job. At 5 us each, only 0.001 % of a CPU can still be
/// saved at one second, while buffers and the length of a job grow further. With this limit, a
/// careless delay of an hour does not cause a batch of an hour. Two kinds of stream have longer
/// periods, if their delay allows. The first has units further apart than this: its period is their
/// interval, because the handler would find no work otherwise. The second has bursts: its period is
/// so long that as many PDUs come by rate as by burst, so that the burst reserves no more than the
/// rate.
pub const PERIOD_LONGEST: Span = Span::from_secs(1);
