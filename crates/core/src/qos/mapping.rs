//! QoS mapping: from the specification of a stream to its needs (rtu-1996 §2 "QoS Mapping", §2.1;
//! rtu-1995 §2.1).
//!
//! Code that turns a specification into an activity calls the mapping once a stream, before
//! admission. The mapping decides nothing about other streams: [`crate::admission`] decides whether
//! the result fits beside them.
//!
//! The papers give the model (`B` PDUs every period `T`, where `T` is `B` times the time of one
//! PDU; `C` CPU time for `B` PDUs; the deadline `D` at the next period). They leave the choice of
//! `B` to another work of their authors, which was not available. Here the *delay* that the user
//! stated decides `B`. Every other quantity follows.
//!
//! # How PDUs arrive
//!
//! In all classes a *unit* of `n` PDUs arrives at once every interval `I`, and `a` PDUs may come
//! ahead of that. `S` is the PDU size in bytes.
//!
//! | specification | `n` | `I` | `a` | payload, bits/s |
//! |---|---|---|---|---|
//! | [`Flow::PduRate`] `R` | 1 | `1 / R` | 0 | `8 S R` |
//! | [`Flow::Bandwidth`] `w` | 1 | `8 S / w` | 0 | `w` |
//! | [`Flow::Frames`] `R` of `F` bytes | `ceil(F / S)` | `1 / R` | 0 | `8 F R` |
//! | [`Flow::Transfer`] of `F` bytes within `W` | 1 | `W / ceil(F / S)` | 0 | `8 F / W` |
//! | [`Class::Transaction`] `R`, burst `b` | 1 | `1 / R` | `b - 1` | `8 S R` |
//! | [`Class::MessageStream`] `R` of `F` bytes | `ceil(F / S)` | `1 / R` | 0 | `8 F R` |
//!
//! The bandwidth row is rtu-1996 §2.1: bandwidth and PDU size give the time of one PDU. `I` is kept
//! as a fraction, so nothing is rounded yet. The *PDU interval* is `tau = I / n`.
//!
//! **(1)** Within a half-open window `(t, t + w]` at most `alpha(w) = a + n * ceil(w / I)` PDUs
//! arrive. For units at least `I` apart this follows by counting. A token bucket of depth `a + 1`
//! lets `a + 1 + floor(v / I)` PDUs through in a closed window of length `v`, and a half-open
//! window of length `w` holds closed ones of every `v < w`. (The window is half-open because a
//! handler that runs at or after its release sees the PDUs that arrived at the release.)
//!
//! # Period, deadline, batch
//!
//! **(2)** `D = T` (rtu-1995 §2.1).
//!
//! **(3)** `B = alpha(T)`. Then a job takes all PDUs that arrived up to its release and were not
//! taken before. If the previous job did so, these are the arrivals of one period, at most
//! `alpha(T)`.
//!
//! **(4)** So a PDU that arrives just after a release is taken by the next job and done at that
//! job's deadline. It waits less than `T + D`, and `2 T <= delay` keeps the delay that the user
//! stated. [`Mapping::delay_max`] is `T + D`.
//!
//! **(5)** Two of the periods up to `H = floor(delay / 2)` are candidates: the longest, `H`, and
//! the longest that is a whole number of intervals, `m I` with `m = floor(H / I)`. A `T` between
//! two multiples has the batch of the upper one, so it reserves `B / T` for PDUs that do not come.
//! The mapping takes the one with the smaller `B / T`, and the longer one if they are equal.
//!
//! For all classes but transactions the result is `T = m I` and `B = m n`, and the reservation is
//! exactly the stream's rate; for a steady flow `B = floor(delay * R / 2)`. If `m = 0`, the user
//! wants a PDU done within less than two intervals. Then `B = n` and `T = H`: the handler runs more
//! often than units arrive, and the reservation is `I / T` times what the stream uses on average.
//! So a short delay reserves more CPU. A transaction stream with a deep bucket also reserves more
//! CPU, for its burst: `a / T` PDUs a second that mostly do not come. A longer `T` makes them
//! fewer.
//!
//! **(6)** `T` is at most the longest of [`PERIOD_LONGEST`] and `(a + 1) I`, at most
//! [`crate::activity::PERIOD_MAX`], and so short that `B <=`
//! [`BATCH_MAX`](crate::activity::BATCH_MAX). A shorter period also keeps the delay.
//!
//! Rounding: `T` is rounded down to nanoseconds. So `B / T` is never below the rate, and `T + D`
//! never above the delay. A longer delay never reserves more CPU (beyond the nanosecond to which
//! `T` is rounded) and never releases more jobs.
//!
//! # CPU, quantum, buffers
//!
//! **(7)** `C = B * cost` (rtu-1995 §2.1), which must fit into `T`; the utilization is `C / T`. If
//! it does not fit, the shortest delay that would fit is `2 T'`, where `T' = (a + n k) * cost` with
//! the smallest `k >= 1` for which `(a + n k) * cost <= k I`. There is no such delay if units cost
//! more than their interval, or if `T'` is more than (6) allows.
//!
//! **(8)** Quantum: the smallest `b` with `b * cost >= 100 * switch_cost`, within `1 ..= B`. A
//! preemption costs two hand-offs, away and back, and there is at most one a quantum. So hand-offs
//! take at most 2 % of the time. A larger quantum would save part of those 2 %. A smaller one
//! shortens `b * cost`, the time for which all others wait (rtu-1995 §5). A user may state another
//! quantum.
//!
//! **(9)** Buffers: `N = alpha(T + D)`. Just before a job's deadline, the buffers hold the PDUs of
//! the job, which arrived in the period before its release, and the PDUs that arrived since.
//! Together they arrived in a window of `T + D`. A PDU counts from its arrival to the end of its
//! *job*. Slots that a ring keeps empty do not count, nor do buffers that an interface fills before
//! the PDU has arrived.
//!
//! **(10)** Bandwidth: the payload of the table, rounded up. (Not `8 S n / I`: the last PDU of a
//! frame may be short, and the user knows the frame.)
//!
//! # Streams that send
//!
//! The formulas above are those of a receiver. A sender that processed a batch of `B` PDUs would
//! give them to the network at once. [`Mapping::paced`] gives its jobs the PDUs of at most a
//! millisecond, so that they leave at the reserved bandwidth.
//!
//! # What is not promised
//!
//! *Early PDUs.* Unit number `i` arrives logically at `l(i)`: when it arrives, but not before `I`
//! after `l(i - 1)` (split-level-1991 §2.2; with `a > 0` the first `a + 1` may come together). (3)
//! and (4) hold with logical arrivals in place of real ones, because a unit has arrived at its
//! logical arrival at the latest. So jitter on the network does not harm other streams, and the
//! delay of a PDU that comes early counts from its logical arrival. It occupies a buffer from its
//! real arrival on: a stream that may run ahead by `k` PDUs needs `N + k` buffers. A frame or
//! message whose PDUs arrive one by one counts as arrived with its last PDU, and needs up to `n`
//! more buffers.
//!
//! *Fast senders.* The declared rate is an upper limit. Where the reservation equals the rate, a
//! sender whose clock runs 100 ppm fast gains one PDU in 10 000, which stays in the queue. Its
//! logical arrival falls behind the real one, until buffers run out and PDUs are dropped. For the
//! same reason a backlog from before the first release does not shrink. Declare the rate with the
//! drift in it (`"50.01/s"`).
//!
//! *Late releases.* `D` counts from the planned release, so a job that starts late has less time.
//! Admission accounts for that, not the mapping.
//!
//! # The effect of a longer delay
//!
//! Audio, PDUs of 100 B at 50/s, 1 ms each (computed by a test of this module):
//!
//! | delay | period | batch | buffers | bytes | jobs/s | CPU | delay kept |
//! |---|---|---|---|---|---|---|---|
//! | 20 ms | 10 ms | 1 | 1 | 100 | 100 | 10 % | 20 ms |
//! | 60 ms | 20 ms | 1 | 2 | 200 | 50 | 5 % | 40 ms |
//! | 100 ms | 40 ms | 2 | 4 | 400 | 25 | 5 % | 80 ms |
//! | 500 ms | 240 ms | 12 | 24 | 2400 | 4.2 | 5 % | 480 ms |
//!
//! # Example
//!
//! ```
//! # extern crate upcall_core as upcall;
//! use upcall::qos::{Class, Flow, Rate, StreamSpec, map};
//! use upcall::time::Span;
//!
//! let camera = StreamSpec {
//!     class: Class::ContinuousMedia(Flow::PduRate(Rate::from_hertz(90))),
//!     pdu_bytes: 1470,
//!     delay: Some(Span::from_millis(50)),
//!     pdu_cost: Span::from_millis(5),
//!     quantum: None,
//! };
//! let mapping = map(&camera, Span::from_micros(5))?;
//! // Half the delay is 25 ms. Two whole intervals of 11.1 ms fit into it, with one PDU each.
//! assert_eq!(mapping.params.batch, 2);
//! assert_eq!(mapping.params.period, Span::from_nanos(22_222_222));
//! assert_eq!(mapping.buffers, 4);
//! assert!(mapping.delay_max <= Span::from_millis(50));
//! # Ok::<(), upcall::qos::MapError>(())
//! ```

use super::spec::{Class, StreamSpec};
use crate::activity::ActivityParams;
use crate::time::Span;
use arrivals::Arrivals;

mod arrivals;
mod error;
mod limits;
#[cfg(test)]
mod tests;

pub use error::MapError;
pub use limits::{BULK_DELAY, PDU_BYTES_MAX, PERIOD_LONGEST};

#[cfg(doc)]
use super::spec::Flow;

/// A quantum takes at least as long as this many hand-offs; formula (8).
const QUANTUM_SWITCHES: u128 = 100;

/// The needs of a stream, derived from its specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// `tau`: time between two PDUs at the specified rate, rounded down.
    pub pdu_interval: Span,
    /// Period, deadline, batch, quantum and cost for the scheduler. Valid
    /// ([`ActivityParams::validated`]); the offset is zero.
    pub params: ActivityParams,
    /// PDU buffers between arrival and the end of processing.
    pub buffers: u32,
    /// The same in bytes of payload.
    pub buffer_bytes: u64,
    /// Network bandwidth in bits of payload a second, rounded up.
    pub bandwidth_bps: u64,
    /// The delay that this mapping keeps, at most the stated one.
    pub delay_max: Span,
}

/// PDUs that a paced sender gives to the network at once lie within this time at the reserved
/// bandwidth.
const PACE: Span = Span::from_millis(1);

impl Mapping {
    /// The mapping of a stream that sends (rtu-1995 §2: pacing): its PDUs leave at the reserved
    /// bandwidth, spread over time, and not a batch at once. A job has the PDUs of at most a
    /// millisecond, at least one, and the period follows. The deadline stays or becomes shorter, so
    /// the delay is kept. Shorter periods take more hand-offs. Constant time, no allocation.
    #[must_use]
    pub fn paced(self) -> Mapping {
        let within = PACE.as_nanos() / self.pdu_interval.as_nanos().max(1);
        let batch = u32::try_from(within).unwrap_or(u32::MAX).clamp(1, self.params.batch);
        let period = self.pdu_interval.saturating_mul(u64::from(batch));
        let params = ActivityParams {
            period,
            deadline: self.params.deadline.min(period),
            batch,
            quantum: self.params.quantum.min(batch),
            ..self.params
        };
        // An interval that is too long for a period has a batch of one PDU already.
        match params.validated() {
            Ok(params) => {
                Mapping { params, delay_max: self.delay_max.min(period + params.deadline), ..self }
            }
            Err(_) => self,
        }
    }
}

/// Derives the needs of a stream. `switch_cost` is the cost of one hand-off; it affects only the
/// quantum. Constant time, no allocation.
///
/// # Errors
/// See [`MapError`].
pub fn map(spec: &StreamSpec, switch_cost: Span) -> Result<Mapping, MapError> {
    if spec.pdu_bytes == 0 || spec.pdu_bytes > PDU_BYTES_MAX {
        return Err(MapError::Pdu { pdu_bytes: spec.pdu_bytes });
    }
    if spec.pdu_cost.is_zero() {
        return Err(MapError::Zero { key: "cost" });
    }
    let arrivals = Arrivals::new(spec)?;
    let delay = delay(spec)?;
    let period = arrivals.period(delay / 2);
    let batch = arrivals.pdus_max(period);
    check_cost(spec.pdu_cost, delay, period, &arrivals)?;
    let quantum = quantum(spec, switch_cost, period, batch)?;
    let params = ActivityParams::new(period, spec.pdu_cost).batch(batch).quantum(quantum);
    debug_assert_eq!(params.validated(), Ok(params));
    let delay_max = params.period + params.deadline;
    let buffers = arrivals.pdus_max(delay_max);
    Ok(Mapping {
        pdu_interval: arrivals.pdu_interval(),
        params,
        buffers,
        buffer_bytes: u64::from(buffers) * u64::from(spec.pdu_bytes),
        bandwidth_bps: arrivals.payload_bps(),
        delay_max,
    })
}

/// The stated delay, or the default of the class; at least 2 ns.
fn delay(spec: &StreamSpec) -> Result<Span, MapError> {
    let delay = match (spec.delay, spec.class) {
        (Some(delay), _) => delay,
        (None, Class::Bulk(_)) => BULK_DELAY,
        (None, _) => return Err(MapError::DelayMissing),
    };
    if delay < Span::from_nanos(2) {
        return Err(MapError::DelayShort { delay });
    }
    Ok(delay)
}

/// Formula (7).
fn check_cost(
    pdu_cost: Span,
    delay: Span,
    period: Span,
    arrivals: &Arrivals,
) -> Result<(), MapError> {
    let batch = arrivals.pdus_max(period);
    let pdu_cost_max = period / batch;
    if pdu_cost <= pdu_cost_max {
        return Ok(());
    }
    Err(MapError::Cost {
        pdu_cost,
        delay,
        batch,
        period,
        pdu_cost_max: (!pdu_cost_max.is_zero()).then_some(pdu_cost_max),
        delay_min: arrivals.period_min(pdu_cost).map(|period| period * 2),
    })
}

/// Formula (8), or the quantum that the user stated.
fn quantum(
    spec: &StreamSpec,
    switch_cost: Span,
    period: Span,
    batch: u32,
) -> Result<u32, MapError> {
    match spec.quantum {
        Some(quantum) if quantum == 0 || quantum > batch => {
            Err(MapError::Quantum { quantum, batch, period })
        }
        Some(quantum) => Ok(quantum),
        None => {
            let worth_ns = QUANTUM_SWITCHES * u128::from(switch_cost.as_nanos());
            let pdus = worth_ns.div_ceil(u128::from(spec.pdu_cost.as_nanos()));
            Ok(u32::try_from(pdus).unwrap_or(u32::MAX).clamp(1, batch))
        }
    }
}
