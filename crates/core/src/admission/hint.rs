//! One change that would make a refused activity fit.
//!
//! Every suggested change was tested on the CPU where the activity came nearest to being admitted,
//! and passed. Changes are tried in the order of their cost to the user: the quantum affects the
//! scheduler alone, a later deadline delays results, a cheaper PDU needs work. Under DWS the
//! shortest delay bound comes first, because admission offers it (split-level-1991 §3.4).
//! Responses need not be monotonic in these parameters (a smaller quantum can make its owner
//! slower). So the searches may overlook a change, but never suggest one that does not fit.

use super::cpu::Cpu;
use super::dws::shortest_delay_bound;
use super::isolation::{Isolation, Users};
use super::platform::Platform;
use super::response_time::{Response, Steps};
use super::screen::{AdmissionTest, Test};
use super::verdict::{Failure, Verdict};
use crate::activity::{ActivityParams, PERIOD_MAX, Terms};
use crate::share::Share;
use crate::time::Span;
use core::fmt;

/// A change that would fit. The values print without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Another number of PDUs between preemption points.
    Quantum {
        /// As asked.
        from: u32,
        /// What fits.
        to: u32,
    },
    /// A later deadline, at most the period.
    Deadline {
        /// As asked.
        from: Span,
        /// What fits.
        to: Span,
    },
    /// DWS: the shortest delay bound with which every promise holds
    /// ([`super::dws::delay_bound_offered`], rounded up to print without loss); it may be longer
    /// than the period.
    DelayBound {
        /// As asked.
        from: Span,
        /// What fits.
        to: Span,
    },
    /// Less work per PDU, at least a tenth of the stated cost.
    PduCost {
        /// As asked.
        from: Span,
        /// What fits.
        to: Span,
    },
    /// The same batch less often, at most ten times the stated period.
    Period {
        /// As asked.
        from: Span,
        /// What fits.
        to: Span,
        /// Whether the deadline changes with the period, because it was the end of the period.
        /// Otherwise it stays as stated.
        with_deadline: bool,
    },
    /// PS: another part of the CPU.
    Share {
        /// As asked.
        from: Share,
        /// What fits.
        to: Share,
    },
    /// A higher limit of the part of a CPU that may be granted.
    CpuLimit {
        /// The present limit.
        from: Share,
        /// What fits.
        to: Share,
    },
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::Quantum { from, to } => {
                let unit = if *to == 1 { "PDU" } else { "PDUs" };
                write!(f, "a quantum of {to} {unit} instead of {from} would fit")
            }
            Hint::Deadline { from, to } => {
                write!(f, "a deadline of {to} instead of {from} would fit")
            }
            Hint::DelayBound { from, to } => {
                write!(f, "a delay bound of {to} instead of {from} would fit")
            }
            Hint::PduCost { from, to } => {
                write!(f, "a cost of {to} per PDU instead of {from} would fit")
            }
            Hint::Period { from, to, with_deadline } => {
                let moved = if *with_deadline { "period and deadline" } else { "period" };
                write!(f, "a {moved} of {to} instead of {from} would fit")
            }
            Hint::Share { from, to } => {
                write!(f, "a share of {to} instead of {from} would fit")
            }
            Hint::CpuLimit { from, to } => {
                write!(f, "a cpu_limit of {to} instead of {from} would fit")
            }
        }
    }
}

/// A hint with a higher limit is tried last, because the kernel may stop the whole real-time class
/// above it.
const CPU_LIMIT_SAFE: Share = Share::CPU_LIMIT_SAFE;

/// The largest factor by which cost and period are changed.
const FACTOR_MAX: u64 = 10;

/// Searches for a change of `asked`, which `verdict` refused on `cpu`. Bounded by `steps`.
pub(super) fn find(
    cpu: &Cpu,
    test: &AdmissionTest,
    platform: &Platform,
    ((asked, terms, user), isolation): ((&ActivityParams, &Terms, u32), Option<Isolation>),
    (verdict, steps): (&Verdict, Steps),
) -> Option<Hint> {
    let mut trials = Trials { cpu, test, platform, asked, terms, user, isolation, steps };
    let limit = match verdict.failure {
        Some(Failure::OverLimit) => trials.limit(verdict),
        _ => None,
    };
    if let Some(Hint::CpuLimit { to, .. }) = limit
        && to <= CPU_LIMIT_SAFE
    {
        return limit;
    }
    trials
        .delay_bound()
        .or_else(|| trials.quantum())
        .or_else(|| trials.deadline(verdict))
        .or_else(|| trials.pdu_cost())
        .or_else(|| trials.period())
        .or(limit)
}

/// The trials of changed parameters, one after the other until the steps run out.
struct Trials<'a> {
    cpu: &'a Cpu,
    test: &'a AdmissionTest,
    platform: &'a Platform,
    asked: &'a ActivityParams,
    terms: &'a Terms,
    /// The user that asks.
    user: u32,
    isolation: Option<Isolation>,
    steps: Steps,
}

impl Trials<'_> {
    fn fits(&mut self, params: &ActivityParams) -> bool {
        params.validated().is_ok() && self.fits_on(params, self.terms, self.platform)
    }

    fn fits_on(&mut self, params: &ActivityParams, terms: &Terms, platform: &Platform) -> bool {
        let place = self.cpu.place_of(self.test, params);
        let (set, users) = self.cpu.set_with(place, (params, terms, self.user));
        let users = Users { of: &users, isolation: self.isolation };
        let Cpu { number, events, .. } = *self.cpu;
        let steps = &mut self.steps;
        let verdict = self.test.screen(number, (&set, users), events, platform, steps);
        self.cpu.with_programs(verdict, &set, platform).failure.is_none()
    }

    /// The lowest limit, in tenths of a percent, within which the CPU fits.
    fn limit(&mut self, verdict: &Verdict) -> Option<Hint> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share above 0"
        )]
        let tenths = (verdict.utilization * 1e3).ceil() as u32;
        let to = Share::from_ppm(tenths.saturating_mul(1_000))?;
        let raised = Platform { cpu_limit: to, ..self.platform.clone() };
        let fits = to > self.platform.cpu_limit && self.fits_on(self.asked, self.terms, &raised);
        fits.then_some(Hint::CpuLimit { from: self.platform.cpu_limit, to })
    }

    /// DWS: the shortest delay bound. No other policy reads it.
    fn delay_bound(&mut self) -> Option<Hint> {
        if !matches!(self.test.test, Test::DeadlineWorkahead) {
            return None;
        }
        let place = self.cpu.place_of(self.test, self.asked);
        let (set, users) = self.cpu.set_with(place, (self.asked, self.terms, self.user));
        let users = Users { of: &users, isolation: self.isolation };
        let offered = shortest_delay_bound((&set, users), place, self.platform, &mut self.steps)?;
        let from = self.terms.delay_bound.unwrap_or(self.asked.deadline);
        let to = Span::from_nanos(offered.as_nanos().next_multiple_of(granule_ns(offered)));
        let terms = Terms { delay_bound: Some(to), ..*self.terms };
        let longer = to > from && to <= PERIOD_MAX;
        let fits = longer && self.fits_on(self.asked, &terms, self.platform);
        fits.then_some(Hint::DelayBound { from, to })
    }

    /// The largest smaller quantum that fits. Otherwise the smallest larger one, because a longer
    /// last quantum protects its owner (rtu-1995 §7.2).
    fn quantum(&mut self) -> Option<Hint> {
        let (from, batch) = (self.asked.quantum, self.asked.batch);
        let halves = core::iter::successors(Some(from), |&quantum| Some(quantum / 2));
        let doubles = core::iter::successors(Some(from), |&quantum| {
            Some(quantum.saturating_mul(2).min(batch))
        });
        let smaller: Vec<_> = halves.take_while(|&quantum| quantum > 0).map(u64::from).collect();
        let mut larger: Vec<_> =
            doubles.take_while(|&quantum| quantum < batch).map(u64::from).collect();
        if from < batch {
            larger.push(u64::from(batch));
        }
        let params = |asked: &ActivityParams, quantum| {
            u32::try_from(quantum).map_or(*asked, |quantum| asked.quantum(quantum))
        };
        let to = self.nearest(&smaller, 1, params).or_else(|| self.nearest(&larger, 1, params))?;
        Some(Hint::Quantum { from, to: u32::try_from(to).ok()? })
    }

    /// No response depends on a deadline, so the worst response itself is the answer.
    fn deadline(&mut self, verdict: &Verdict) -> Option<Hint> {
        let place = self.cpu.place_of(self.test, self.asked);
        let Response::Bounded(response) = verdict.responses[place] else { return None };
        let (from, period) = (self.asked.deadline, self.asked.period);
        let printable_ns = response.as_nanos().next_multiple_of(granule_ns(response));
        let to = Span::from_nanos(printable_ns).min(period);
        let later = to > from && self.fits(&self.asked.deadline(to));
        later.then_some(Hint::Deadline { from, to })
    }

    /// The largest cost that fits.
    fn pdu_cost(&mut self) -> Option<Hint> {
        let from = self.asked.pdu_cost;
        let granule_ns = granule_ns(from);
        let round_ns = |divisor| from.as_nanos() / divisor / granule_ns * granule_ns;
        let mut costs_ns = vec![from.as_nanos()];
        costs_ns.extend([2, 4, 8].map(round_ns));
        // At least a tenth: rounded up.
        costs_ns.push((from.as_nanos().div_ceil(FACTOR_MAX)).next_multiple_of(granule_ns));
        let params = |asked: &ActivityParams, cost_ns| ActivityParams {
            pdu_cost: Span::from_nanos(cost_ns),
            ..*asked
        };
        let to = self.nearest(&costs_ns, granule_ns, params)?;
        Some(Hint::PduCost { from, to: Span::from_nanos(to) })
    }

    /// The shortest period that fits.
    fn period(&mut self) -> Option<Hint> {
        let from = self.asked.period;
        let longest = from.saturating_mul(FACTOR_MAX).min(PERIOD_MAX);
        let granule_ns = granule_ns(longest);
        let round_ns = |factor| from.as_nanos() * factor / granule_ns * granule_ns;
        let mut periods_ns = vec![from.as_nanos()];
        periods_ns.extend([2, 4, 8, FACTOR_MAX].map(round_ns));
        let with_deadline = self.asked.deadline == self.asked.period;
        let params = |asked: &ActivityParams, period_ns| {
            let period = Span::from_nanos(period_ns);
            let deadline = if with_deadline { period } else { asked.deadline };
            ActivityParams { period, deadline, ..*asked }
        };
        let to = Span::from_nanos(self.nearest(&periods_ns, granule_ns, params)?);
        Some(Hint::Period { from, to, with_deadline })
    }

    /// Tries `values`, the first of which was refused, until one fits. Then bisects between that
    /// value and the one before it, in whole `granule`s.
    fn nearest(
        &mut self,
        values: &[u64],
        granule: u64,
        params: impl Fn(&ActivityParams, u64) -> ActivityParams,
    ) -> Option<u64> {
        let asked = self.asked;
        let at = (1..values.len()).find(|&at| self.fits(&params(asked, values[at])))?;
        let (mut fits, mut refused) = (values[at], values[at - 1]);
        loop {
            let middle = fits.midpoint(refused) / granule * granule;
            if middle <= fits.min(refused) || middle >= fits.max(refused) {
                return Some(fits);
            }
            if self.fits(&params(asked, middle)) {
                fits = middle;
            } else {
                refused = middle;
            }
        }
    }
}

/// The granule of a span: spans of about this length that are multiples of the granule print
/// without loss.
fn granule_ns(span: Span) -> u64 {
    match span.as_nanos() {
        ns if ns >= 10_000_000_000 => 1_000_000,
        ns if ns >= 1_000_000 => 1_000,
        _ => 1,
    }
}
