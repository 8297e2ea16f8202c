//! Counts of values, over many distributions.

use super::*;
use upcall_sim::chance::Chance;

/// `count` values of each distribution: even, in two clusters, one far from the others, and few
/// different values.
fn shapes(count: u64) -> Vec<Vec<f64>> {
    let mut chance = Chance::new(count, 1);
    let mut draw = |least: i64, most: u64| {
        (0..count).map(|_| least as f64 + chance.between(0, most) as f64).collect::<Vec<_>>()
    };
    let even = draw(-5_000_000, 10_000_000);
    let two = draw(0, 1_000).into_iter().chain(draw(9_000_000, 1_000)).collect();
    let mut far = draw(20_000_000, 50);
    far.push(-3_000_000.0);
    vec![even, two, far, draw(-40, 100)]
}

#[test]
fn every_value_is_counted_once_in_ten_to_sixty_bars_with_round_edges() {
    for count in [2, 3, 10, 100, 5_000] {
        for mut values in shapes(count) {
            let bins = Bins::of(&mut values, 1.0).unwrap();
            let (least, most) = (values[0], values[values.len() - 1]);
            assert_eq!(bins.counts.iter().sum::<u64>(), values.len() as u64);
            assert!(bins.counts.len() <= 60, "{bins:?}");
            assert!(bins.counts.len() >= 10 || most - least < 10.0, "{bins:?}");
            assert!(bins.span().0 <= least && most < bins.span().1, "{bins:?}");
            let digits = format!("{:e}", bins.width);
            assert!("125".contains(&digits[..1]) && digits[1..].starts_with('e'), "{digits}");
            // Zero is an edge: values below it are in bars that end at zero or before.
            let below = values.iter().filter(|&&value| value < 0.0).count() as u64;
            let ends = (0..bins.counts.len()).filter(|&place| bins.edge(place + 1) <= 0.0);
            assert_eq!(ends.map(|place| bins.counts[place]).sum::<u64>(), below, "{bins:?}");
        }
    }
}

#[test]
fn the_closer_the_quartiles_the_narrower_the_bars() {
    // 2 x 4,000 by 20, the cube root of 8,000, is 400.
    let mut even: Vec<f64> = (0..8_000).map(f64::from).collect();
    assert_eq!(Bins::of(&mut even, 1.0).unwrap().width, 500.0);
    // The same range with most values in the middle has at most sixty bars.
    let mut heap: Vec<f64> = (0..8_000).map(|n| 3_600.0 + f64::from(n) / 10.0).collect();
    heap.extend([0.0, 7_999.0]);
    assert_eq!(Bins::of(&mut heap, 1.0).unwrap().width, 200.0);
    // A coarse `finest` limits the number of bars.
    assert_eq!(Bins::of(&mut heap, 4_000.0).unwrap().counts.len(), 2);
}

#[test]
fn one_value_is_one_bar_and_no_value_no_histogram() {
    assert_eq!(Bins::of(&mut [], 1.0), None);
    for value in [0.0, 31_000_000.0, -7.0] {
        let bins = Bins::of(&mut [value; 4], 1.0).unwrap();
        assert_eq!(bins.counts, [4]);
        assert!(bins.axis().holds(value) && bins.axis().holds(value + 3.0 * bins.width));
    }
}
