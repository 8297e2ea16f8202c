//! The clock that the drivers of a machine read, where it differs from true time.
//!
//! Virtual time itself never steps. The clock that drivers read may step ([`Fault::ClockForward`],
//! [`Fault::ClockBack`]). The core's inputs and outputs are in readings. Everything that happens
//! (work, arrivals, sleep) is in true time. This module converts between the two for
//! [`crate::cpu`].

use crate::fault::{Fault, Window};
use upcall_core::time::{Instant, Span};

/// Every interval in which readings are wrong, in order and without overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<Step>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    window: Window,
    by: Offset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    Forward(Span),
    Back(Span),
}

impl Clock {
    /// Where two steps overlap, the earlier one holds for its whole window.
    pub(crate) fn of(faults: &[Fault]) -> Self {
        let mut steps: Vec<_> = faults
            .iter()
            .filter_map(|fault| match *fault {
                Fault::ClockForward { window, by } => {
                    Some(Step { window, by: Offset::Forward(by) })
                }
                Fault::ClockBack { window, by } => Some(Step { window, by: Offset::Back(by) }),
                _ => None,
            })
            .filter(|step| step.window.from < step.window.until)
            .collect();
        steps.sort_by_key(|step| step.window.from);
        let mut free = Instant::ZERO;
        for step in &mut steps {
            step.window.from = step.window.from.max(free).min(step.window.until);
            free = free.max(step.window.until);
        }
        steps.retain(|step| step.window.from < step.window.until);
        Clock(steps)
    }

    /// The reading at `at`. Readings decrease where the clock is set back.
    #[inline]
    pub(crate) fn reads(&self, at: Instant) -> Instant {
        match self.0.iter().find(|step| step.window.contains(at)) {
            Some(Step { by: Offset::Forward(by), .. }) => at + *by,
            Some(Step { by: Offset::Back(by), .. }) => at - *by,
            None => at,
        }
    }

    /// The first time at which the clock reads `reading` or more.
    #[inline]
    pub(crate) fn first(&self, reading: Instant) -> Instant {
        if reading == Instant::FAR {
            return reading;
        }
        // Outside the steps the clock is right.
        let mut right_from = Instant::ZERO;
        for Step { window, by } in &self.0 {
            if reading < window.from {
                return reading.max(right_from);
            }
            let in_step = match *by {
                Offset::Forward(by) => reading - by,
                Offset::Back(by) => reading + by,
            };
            if in_step < window.until {
                return in_step.max(window.from);
            }
            right_from = window.until;
        }
        reading.max(right_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_and_their_first_times_agree() {
        let at = Instant::from_nanos;
        let window = |from, until| Window { from: at(from), until: at(until) };
        let by = Span::from_nanos;
        let forward =
            |from, until, ns| Fault::ClockForward { window: window(from, until), by: by(ns) };
        let back = |from, until, ns| Fault::ClockBack { window: window(from, until), by: by(ns) };
        for faults in [
            vec![],
            vec![forward(10, 20, 5)],
            vec![back(10, 20, 5)],
            vec![back(10, 20, 50)],
            vec![forward(10, 20, 50), back(25, 45, 3), forward(30, 50, 7)],
            vec![back(1, 8, 3), forward(8, 9, 1), back(9, 9, 4)],
        ] {
            let clock = Clock::of(&faults);
            for reading in 0..120 {
                let slow = (0..240).map(at).find(|&t| clock.reads(t) >= at(reading));
                assert_eq!(Some(clock.first(at(reading))), slow, "{faults:?} {reading}");
            }
            assert_eq!(clock.first(Instant::FAR), Instant::FAR);
        }
    }
}
