//! The background program: it computes whenever it has the CPU, in place of Dhrystone.

use super::computing::{ROUNDS_PER_ITERATION, compute as compute_rounds};
use super::counts::Computed;
use super::dialogue::{now_ns, print_counts, times};
use crate::exit::Failure;

/// Computes and counts iterations.
///
/// # Errors
/// Standard input or output cannot be used.
pub fn compute() -> Result<(), Failure> {
    let Some(times) = times()? else { return Ok(()) };
    times.sleep_until_begin();
    let mut iterations = 0;
    while now_ns() < times.end_ns {
        compute_rounds(ROUNDS_PER_ITERATION);
        iterations += 1;
    }
    print_counts(&Computed { iterations })
}
