//! Random task sets, each drawn from its number.

use upcall::activity::{ActivityParams, Terms};
use upcall::time::Span;
use upcall_cli::spec::sweep::Sweep;
use upcall_sim::chance::Chance;

/// Purpose of these random numbers, which separates them from others of the same seed.
const PURPOSE: u64 = 1 << 49;

/// A point of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub utilization_ppm: u32,
    pub activities: u32,
    pub quantum: u32,
    pub switch_cost: Span,
}

/// The point of set `number`. Sets of one point are consecutive.
pub fn point(sweep: &Sweep, number: u64) -> Point {
    let mut rest = number / u64::from(sweep.sets);
    let mut next = |len: usize| {
        let place = usize::try_from(rest % len as u64).unwrap_or(0);
        rest /= len as u64;
        place
    };
    let switch_cost = sweep.switch_costs[next(sweep.switch_costs.len())];
    let quantum = sweep.quanta[next(sweep.quanta.len())];
    let activities = sweep.activities[next(sweep.activities.len())];
    let utilization_ppm = sweep.utilizations_ppm[next(sweep.utilizations_ppm.len())];
    Point { utilization_ppm, activities, quantum, switch_cost }
}

/// Draws set `number`. [`Chance::parts`] divides the utilization; periods are log-uniform, to the
/// microsecond. Sets of the same number within their points have the same periods and parts for
/// every quantum and hand-off cost, so curves over these compare equal sets.
pub fn draw(sweep: &Sweep, number: u64) -> Vec<(ActivityParams, Terms)> {
    let point = point(sweep, number);
    let within = number % u64::from(sweep.sets);
    let purpose = PURPOSE + (u64::from(point.activities) << 20);
    let mut chance = Chance::new(u64::from(sweep.seed) << 32 | within, purpose);
    let parts = chance.parts(point.activities, u64::from(point.utilization_ppm) * 1_000);
    parts
        .into_iter()
        .map(|part_ppb| {
            let period = period(&mut chance, sweep.periods);
            let compute_ns = u128::from(period.as_nanos()) * u128::from(part_ppb) / 1_000_000_000;
            let cost_ns = u64::try_from(compute_ns).unwrap_or(u64::MAX) / u64::from(sweep.batch);
            let params = ActivityParams::new(period, Span::from_nanos(cost_ns.max(1)));
            let params = params.batch(sweep.batch).quantum(point.quantum);
            (params, crate::plan::stream_terms(&params))
        })
        .collect()
}

fn period(chance: &mut Chance, (shortest, longest): (Span, Span)) -> Span {
    let (least, most) = (shortest.as_nanos() as f64, longest.as_nanos() as f64);
    let part = chance.between(0, 1 << 32) as f64 / 2f64.powi(32);
    let ns = least * (most / least).powf(part);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within periods")]
    let us = (ns / 1_000.0).round() as u64;
    Span::from_micros(us).max(shortest).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(text: &str) -> Sweep {
        Sweep::parse("sweep.toml", text.as_bytes()).unwrap()
    }

    #[test]
    fn a_set_has_the_requested_utilization_and_periods() {
        let sweep = sweep(
            "utilizations = [\"50 %\", \"95 %\"]\nactivities = [1, 7]\nsets = 50\nbatch = 4\n\
             periods = [\"5 ms\", \"80 ms\"]\n",
        );
        let mut shorter = 0;
        for number in 0..sweep.set_count() {
            let (set, point) = (draw(&sweep, number), point(&sweep, number));
            assert_eq!(u32::try_from(set.len()), Ok(point.activities));
            let utilization: f64 = set.iter().map(|(params, _)| params.utilization()).sum();
            let asked = f64::from(point.utilization_ppm) / 1e6;
            assert!((utilization - asked).abs() < 1e-4, "{utilization} for {asked}");
            for (params, _) in &set {
                assert_eq!(params.validated(), Ok(*params));
                assert!((5..=80).contains(&params.period.as_nanos().div_ceil(1_000_000)));
                shorter += u32::from(params.period < Span::from_millis(20));
            }
        }
        // 20 ms is the middle of the logarithmic range.
        assert!((300..500).contains(&shorter), "{shorter} of 800");
    }

    #[test]
    fn quantum_and_switch_cost_do_not_change_the_drawn_set() {
        let sweep = sweep(
            "utilizations = [\"60 %\"]\nactivities = [3]\nsets = 5\nbatch = 4\nquanta = [1, 4]\n\
             switch_costs = [\"0 us\", \"50 us\"]\n",
        );
        let quantum = |number| point(&sweep, number).quantum;
        assert_eq!((quantum(0), quantum(10)), (1, 4));
        for number in 0..5 {
            let bare = |number| draw(&sweep, number).into_iter().map(|(p, _)| p.quantum(1));
            assert!(bare(number).eq(bare(number + 10)));
            assert!(!bare(number).eq(bare((number + 1) % 5)));
        }
    }
}
