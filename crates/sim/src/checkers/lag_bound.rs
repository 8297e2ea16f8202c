//! Checks the lag. At every upcall and return, an activity is behind or ahead of its ideal share by
//! at most a bound (proportional-share-1998 §3: one quantum). If domains are processes, so are the
//! domains, and the lag of an activity is relative to what its domain gets.

use super::checker::{Checker, Promises};
use super::excuse::Excuse;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use upcall_core::time::{Instant, Span};

/// The checker of the lag; see the module.
#[derive(Debug)]
pub struct LagBound {
    lag_max: Span,
    excuse: Excuse,
}

impl LagBound {
    /// The checker for a run of `spec`: `-lag_max <= lag <= lag_max`.
    pub fn new(spec: &SimSpec, promises: &Promises, lag_max: Span) -> Self {
        LagBound { lag_max, excuse: Excuse::new(spec, promises.wakeup_latency) }
    }
}

impl Checker for LagBound {
    fn name(&self) -> &'static str {
        "lag_bound"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.excuse.event(event);
        let (of, number, lag_ns) = match event.kind {
            EventKind::Lag { activity, lag_ns } => ("activity", activity, lag_ns),
            EventKind::DomainLag { domain, lag_ns } => ("domain", domain, lag_ns),
            _ => return Ok(()),
        };
        let is_within = lag_ns.unsigned_abs() <= self.lag_max.as_nanos();
        if is_within || self.excuse.holds(event.cpu) {
            return Ok(());
        }
        let most_ns = self.lag_max.as_nanos();
        Err(format!("{of} {number}: lag {lag_ns} ns, at most {most_ns} ns either way"))
    }

    fn finish(&mut self, _: Instant) -> Result<(), String> {
        Ok(())
    }
}
