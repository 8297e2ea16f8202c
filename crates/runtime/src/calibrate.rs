//! Measures costs that the program did not declare: the cost of a hand-off, and the cost of a PDU.
//!
//! It runs before admission, in the caller's thread. The machine is shared and noisy. So the cost
//! of a PDU is a high percentile with a margin, and that of a hand-off the least of several high
//! percentiles. The running estimate ([`crate::cost`]) shows the true cost later.

use upcall_core::activity::{ActivityId, ActivityParams, Terms};
use upcall_core::discipline::RMDP;
use upcall_core::scheduler::{Command, Input, Outcome};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Traced;

use crate::clock;
use crate::notify::Notifier;
use crate::preemption::PreemptionPoint;
use crate::trace::Ring;
use crate::work::batch::{Authority, Batch, Grant};
use crate::work::handler::Handler;

/// How many hand-offs a round measures. The cost in the round is their 99th percentile.
const HAND_OFFS: usize = 400;
/// How many rounds there are. The least cost counts, because other threads that run meanwhile only
/// add to the cost: this thread is of the ordinary class, and the executors are not.
const ROUNDS: usize = 10;
/// The greatest number of trial batches of a handler without a declared cost.
const TRIALS_MAX: usize = 32;
/// How long all trial batches together may take.
const TRIAL_TIME_MAX: Span = Span::from_millis(500);
/// Added to a measured cost, in percent.
const MARGIN_PERCENT: u64 = 20;

/// Cost of going from one ready handler to the next inside a process: the return of one, the core's
/// decision, and the upcall of the other.
///
/// Takes some milliseconds; does not block.
pub fn switch_cost() -> Span {
    (0..ROUNDS).map(|_| switch_cost_once()).min().unwrap_or_default()
}

fn switch_cost_once() -> Span {
    let mut scheduler = Traced::new(2, &RMDP);
    let notifier = Notifier::default();
    let mut handlers: [Handler; 2] = std::array::from_fn(|_| {
        Box::new(|batch: &mut Batch<'_>| {
            batch.proceed();
        }) as Handler
    });
    let period = run_two(&mut scheduler);
    // A virtual time in which a period passes at each hand-off, so that both handlers are always
    // ready.
    let mut virtual_now = Instant::ZERO;
    let mut costs_ns = Vec::with_capacity(HAND_OFFS);
    let mut before = clock::now();
    while costs_ns.len() < HAND_OFFS {
        match scheduler.poll_command(virtual_now) {
            Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                let grant = Grant {
                    pdus_max,
                    quantum: 1,
                    quantum_cost: Span::MAX,
                    check_at,
                    start: before,
                    resumed,
                    jobs_skipped: 0,
                    aborting: false,
                };
                let point = PreemptionPoint::on_trial(&mut scheduler, &notifier, None);
                let mut batch = Batch::new(Authority::Scheduler(point), grant);
                handlers[id.0 as usize](&mut batch);
                let now = clock::now();
                let used = batch.close(now);
                let returned = Input::Returned { pdus: used.pdus, outcome: Outcome::Done };
                handle(&mut scheduler, virtual_now, returned);
                costs_ns.push(now.since(before).as_nanos());
                before = now;
            }
            Some(_) => {}
            None => {
                virtual_now += period;
                handle(&mut scheduler, virtual_now, Input::Tick);
            }
        }
    }
    Span::from_nanos(percentile(&mut costs_ns, 99))
}

/// Creates and runs two activities. Returns their period.
fn run_two(scheduler: &mut Traced<Ring>) -> Span {
    let params =
        ActivityParams::new(Span::from_secs(1), Span::from_nanos(1)).batch(u32::from(u16::MAX));
    let at = Instant::ZERO;
    for number in 0..2 {
        let id = ActivityId(number);
        handle(scheduler, at, Input::Create { id, params, terms: Terms::default() });
        handle(scheduler, at, Input::Run { id, at });
    }
    params.period
}

fn handle(scheduler: &mut Traced<Ring>, now: Instant, input: Input) {
    let handled = scheduler.handle(now, input);
    debug_assert!(handled.is_ok(), "{handled:?}");
}

/// CPU time of one PDU of `handler`, from trial runs of `batch_max` PDUs each. `None` if the
/// handler found no PDU to process.
///
/// The handler consumes the PDUs that it processes. Blocks as long as the handler does.
pub(crate) fn pdu_cost(handler: &mut Handler, batch_max: u32) -> Option<Span> {
    let mut costs_ns = Vec::with_capacity(TRIALS_MAX);
    let begin = clock::now();
    for trial in 0..TRIALS_MAX {
        let start = clock::now();
        if trial > 0 && start.since(begin) > TRIAL_TIME_MAX {
            break;
        }
        let grant = Grant {
            pdus_max: batch_max,
            quantum: batch_max,
            quantum_cost: Span::MAX,
            check_at: Instant::FAR,
            start,
            resumed: false,
            jobs_skipped: 0,
            aborting: false,
        };
        let mut batch = Batch::new(Authority::Trial, grant);
        let cpu_before_ns = upcall_sys::clock::thread_cpu_ns();
        handler(&mut batch);
        let cpu_ns = upcall_sys::clock::thread_cpu_ns() - cpu_before_ns;
        let used = batch.close(clock::now());
        if used.pdus > 0 {
            costs_ns.push(cpu_ns / u64::from(used.pdus));
        }
        if used.outcome == Outcome::Finished {
            break;
        }
    }
    if costs_ns.is_empty() {
        return None;
    }
    let cost_ns = percentile(&mut costs_ns, 95).max(1);
    Some(Span::from_nanos(cost_ns + cost_ns * MARGIN_PERCENT / 100))
}

/// The smallest value that at least `percent` % of `values` do not exceed. `values` is not empty.
fn percentile(values: &mut [u64], percent: usize) -> u64 {
    values.sort_unstable();
    values[(values.len() * percent).div_ceil(100).saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_costs_something() {
        assert!(switch_cost() > Span::ZERO);
    }

    #[test]
    fn a_handler_without_work_has_no_cost_to_measure() {
        let mut idle: Handler = Box::new(|_| {});
        assert_eq!(pdu_cost(&mut idle, 4), None);
        let mut busy: Handler = Box::new(|batch| {
            while batch.proceed() {
                std::hint::black_box((0..1000).fold(1u64, |a, b| a.wrapping_mul(b | 1)));
            }
        });
        assert!(pdu_cost(&mut busy, 4).is_some());
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut values, 99), 99);
        assert_eq!(percentile(&mut [7], 99), 7);
    }
}
