//! How the PDUs of a stream may arrive: the one model behind all four classes.
//!
//! [`Arrivals::new`] makes the model from a specification. [`super::map`] derives the period, the
//! batch and the buffers from it. The head of [`super`] has the formulas and their proofs. Here
//! they are computed exactly, in `u128`.

use super::error::MapError;
use super::limits::PERIOD_LONGEST;
use crate::activity::{BATCH_MAX, PERIOD_MAX};
use crate::qos::spec::{Class, Flow, Rate, StreamSpec};
use crate::time::Span;

const NANOS_PER_SEC: u128 = 1_000_000_000;
const MICRO: u128 = 1_000_000;
const BITS_PER_BYTE: u128 = 8;

/// A unit of `unit_pdus` PDUs at once every `I`, and `ahead` PDUs more at any one time.
///
/// Invariants: `1 <= ahead + unit_pdus <= BATCH_MAX`; `ahead` is 0 unless `unit_pdus` is 1; `I` is
/// at least `unit_pdus` nanoseconds and at most `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// `I` as a fraction of nanoseconds, `num / den`.
    interval_num: u128,
    interval_den: u128,
    /// `n`.
    unit_pdus: u128,
    /// `a`.
    ahead: u128,
    /// Payload in bits a second, rounded up.
    payload_bps: u64,
}

impl Arrivals {
    /// How the PDUs of `spec` may arrive. The caller has checked the PDU size.
    pub(super) fn new(spec: &StreamSpec) -> Result<Self, MapError> {
        let pdu_bytes = u128::from(spec.pdu_bytes);
        match spec.class {
            Class::ContinuousMedia(flow) | Class::Bulk(flow) => match flow {
                Flow::PduRate(rate) => Self::of_rate("rate", rate, 1, 0, pdu_bytes),
                Flow::Bandwidth { bits_per_second } => {
                    positive("bandwidth", bits_per_second)?;
                    let pdu_bits = pdu_bytes * BITS_PER_BYTE;
                    let interval = (pdu_bits * NANOS_PER_SEC, u128::from(bits_per_second));
                    Self::of_interval("bandwidth", interval, 1, 0, bits_per_second)
                }
                Flow::Frames { frame_rate, frame_bytes } => {
                    let pdus = cut("frame", frame_bytes, pdu_bytes)?;
                    Self::of_rate("frame_rate", frame_rate, pdus, 0, u128::from(frame_bytes))
                }
                Flow::Transfer { bytes, within } => {
                    positive("size", bytes)?;
                    positive("within", within.as_nanos())?;
                    let within_ns = u128::from(within.as_nanos());
                    let bit_nanos = u128::from(bytes) * BITS_PER_BYTE * NANOS_PER_SEC;
                    let payload_bps = saturated(bit_nanos.div_ceil(within_ns));
                    let interval = (within_ns, u128::from(bytes).div_ceil(pdu_bytes));
                    Self::of_interval("within", interval, 1, 0, payload_bps)
                }
            },
            Class::Transaction { rate, burst } => {
                positive("burst", u64::from(burst))?;
                if burst > BATCH_MAX {
                    return Err(MapError::AtOnce { key: "burst", pdus: u64::from(burst) });
                }
                Self::of_rate("rate", rate, 1, u128::from(burst) - 1, pdu_bytes)
            }
            Class::MessageStream { message_rate, message_bytes } => {
                let pdus = cut("message", message_bytes, pdu_bytes)?;
                Self::of_rate("message_rate", message_rate, pdus, 0, u128::from(message_bytes))
            }
        }
    }

    /// Units of `unit_bytes` in `unit_pdus` PDUs, at `rate` units a second.
    fn of_rate(
        key: &'static str,
        rate: Rate,
        unit_pdus: u128,
        ahead: u128,
        unit_bytes: u128,
    ) -> Result<Self, MapError> {
        positive(key, rate.as_micro_hertz())?;
        let micro_hertz = u128::from(rate.as_micro_hertz());
        // At most 2^50 bytes a unit (2^20 PDUs of 2^30), so this fits.
        let payload_bps = (unit_bytes * BITS_PER_BYTE * micro_hertz).div_ceil(MICRO);
        let interval = (NANOS_PER_SEC * MICRO, micro_hertz);
        Self::of_interval(key, interval, unit_pdus, ahead, saturated(payload_bps))
    }

    /// Checks that at most one PDU a nanosecond arrives. No cost would fit beyond that, and the
    /// period would round to zero.
    fn of_interval(
        key: &'static str,
        (interval_num, interval_den): (u128, u128),
        unit_pdus: u128,
        ahead: u128,
        payload_bps: u64,
    ) -> Result<Self, MapError> {
        if interval_num < unit_pdus * interval_den {
            let rate_hz = (unit_pdus * interval_den).saturating_mul(NANOS_PER_SEC) / interval_num;
            return Err(MapError::RateLarge { key, pdu_rate_hz: saturated(rate_hz) });
        }
        Ok(Arrivals { interval_num, interval_den, unit_pdus, ahead, payload_bps })
    }

    /// Payload in bits a second, rounded up.
    pub(super) fn payload_bps(&self) -> u64 {
        self.payload_bps
    }

    /// `tau`: mean time between two PDUs, rounded down; at least 1 ns.
    pub(super) fn pdu_interval(&self) -> Span {
        span(self.interval_num / (self.interval_den * self.unit_pdus))
    }

    /// `alpha(window)`: the most PDUs that arrive within a half-open window.
    pub(super) fn pdus_max(&self, window: Span) -> u32 {
        let units = (u128::from(window.as_nanos()) * self.interval_den).div_ceil(self.interval_num);
        u32::try_from(self.ahead + self.unit_pdus * units).unwrap_or(u32::MAX)
    }

    /// The period: either all of `half` the delay, or the whole number of intervals that fits into
    /// it. The choice is the one that reserves fewer PDUs a second.
    pub(super) fn period(&self, half: Span) -> Span {
        let all = half.min(self.period_max());
        let intervals = u128::from(all.as_nanos()) * self.interval_den / self.interval_num;
        let whole = self.intervals(intervals);
        let reserves_less = |a: Span, b: Span| {
            u128::from(self.pdus_max(a)) * u128::from(b.as_nanos())
                < u128::from(self.pdus_max(b)) * u128::from(a.as_nanos())
        };
        if intervals > 0 && reserves_less(whole, all) { whole } else { all }
    }

    /// The shortest period that holds its own batch at `pdu_cost` a PDU, if there is one. Every
    /// longer period that [`Arrivals::period`] chooses holds its batch too.
    pub(super) fn period_min(&self, pdu_cost: Span) -> Option<Span> {
        let cost_ns = u128::from(pdu_cost.as_nanos());
        let unit_cost_ns = self.unit_pdus * cost_ns;
        if unit_cost_ns > u128::from(PERIOD_MAX.as_nanos()) {
            return None;
        }
        // The spare time of each interval, in 1/den ns, pays for the PDUs ahead.
        let spare = self.interval_num.checked_sub(unit_cost_ns * self.interval_den)?;
        let debt = self.ahead * cost_ns * self.interval_den;
        let units = match (debt, spare) {
            (0, _) => 1,
            (_, 0) => return None,
            _ => debt.div_ceil(spare),
        };
        if units > u128::from(BATCH_MAX) {
            return None;
        }
        let period = span((self.ahead + self.unit_pdus * units) * cost_ns);
        (period <= self.period_max()).then_some(period)
    }

    /// The upper limit of a period: see [`PERIOD_LONGEST`].
    fn period_max(&self) -> Span {
        let worth_it = PERIOD_LONGEST.max(self.intervals(self.ahead + 1));
        let batch_fits = self.intervals((u128::from(BATCH_MAX) - self.ahead) / self.unit_pdus);
        worth_it.min(batch_fits).min(PERIOD_MAX)
    }

    /// `count * I`, rounded down.
    fn intervals(&self, count: u128) -> Span {
        span(count * self.interval_num / self.interval_den)
    }
}

/// The number of PDUs of a unit of `bytes`, which arrive at once.
fn cut(key: &'static str, bytes: u64, pdu_bytes: u128) -> Result<u128, MapError> {
    positive(key, bytes)?;
    let pdus = u128::from(bytes).div_ceil(pdu_bytes);
    if pdus > u128::from(BATCH_MAX) {
        return Err(MapError::AtOnce { key, pdus: saturated(pdus) });
    }
    Ok(pdus)
}

fn positive(key: &'static str, value: u64) -> Result<(), MapError> {
    if value == 0 { Err(MapError::Zero { key }) } else { Ok(()) }
}

fn saturated(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn span(ns: u128) -> Span {
    Span::from_nanos(saturated(ns))
}
