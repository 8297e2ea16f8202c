//! Checks pictures by counting their elements.

use super::label::LABEL_MAX;
use super::page::Axis;
use super::replayed::LagAt;
use super::*;
use upcall::activity::ActivityParams;
use upcall::discipline::RMDP;
use upcall_sim::trace::{Header, Writer, read};
use upcall_sim::{SimActivity, SimSpec, Simulation};

/// Two tasks for 100 ms: 10 jobs of 2 ms, and 4 of 9 ms that yield.
fn schedule(cost_us: u64) -> Schedule {
    let task = |name: &str, period, cost, batch| {
        let params = ActivityParams::new(Span::from_millis(period), cost).batch(batch);
        SimActivity::new(name, params)
    };
    let activities = vec![
        task("fast & small", 10, Span::from_micros(500), 4),
        task("<slow>", 25, Span::from_micros(cost_us), 9),
    ];
    let spec = SimSpec::new(&RMDP, activities);
    let mut writer = Writer::new(Vec::new(), &Header::of(&spec)).unwrap();
    let simulation = Simulation::new(spec).unwrap();
    simulation.run_traced(Span::from_millis(100), &mut |_| {}, &mut |_, cpu, record| {
        writer.record(cpu, record).unwrap();
    });
    Schedule::of(&[read(&writer.finish().unwrap()).unwrap()])
}

fn count(picture: &str, what: &str) -> usize {
    picture.matches(what).count()
}

/// Lags from the first millisecond on, one each millisecond.
fn every_ms<const N: usize>(lags_ns: [i64; N]) -> Vec<LagAt> {
    let moments = (1u64..).map(|ms| ms * 1_000_000);
    moments.zip(lags_ns).map(|(at_ns, lag_ns)| LagAt { at_ns, lag_ns }).collect()
}

#[test]
fn the_lags_of_the_window_are_a_line_of_each_activity() {
    let quantum = Some(Span::from_millis(1));
    let mut replayed = Replayed { time_quantum: quantum, ..Replayed::default() };
    let schedule = schedule(1_000);
    replayed.lags.insert((0, 0), every_ms([-250_000, 0, 500_000, 100_000]));
    replayed.lags.insert((0, 1), every_ms([-1_900_000, 500_000]));
    let ms = Span::from_millis;
    let drawn = |from, to| {
        let window = Window { from: Some(ms(from)), to: Some(ms(to)) };
        of_trace(&schedule, Some(&replayed), window).unwrap()
    };
    let picture = drawn(0, 100);
    for (what, times) in [
        ("lag over time: fast &amp; small", 1),
        ("lag over time: &lt;slow&gt;", 1),
        ("<polyline", 2),
        ("has 1.9 quanta", 1),
    ] {
        assert_eq!(count(&picture, what), times, "{what}: {picture}");
    }
    let points = |picture: &str| {
        let (_, rest) = picture.split_once("<polyline").unwrap();
        let (_, rest) = rest.split_once("points=\"").unwrap();
        let points = rest.split('"').next().unwrap();
        points.split(' ').map(|point| point.split_once(',').unwrap().1.parse().unwrap()).collect()
    };
    let heights: Vec<f64> = points(&picture);
    // Behind is above: a smaller coordinate.
    assert_eq!(heights.len(), 4);
    assert!(heights[0] > heights[1] && heights[1] > heights[2], "{heights:?}");
    let late = drawn(3, 100);
    assert_eq!((count(&late, "<polyline"), points(&late).len()), (1, 2), "{late}");
    assert_eq!(count(&drawn(50, 100), "<polyline"), 0);
}

#[test]
fn each_activity_has_a_histogram_of_lag_with_a_mark_at_a_quantum() {
    let mut replayed = Replayed::default();
    let schedule = schedule(1_000);
    let without = of_trace(&schedule, Some(&replayed), ALL).unwrap();
    assert_eq!(count(&without, "quantum") + count(&without, "wake-up"), 0);
    let quantum = Span::from_millis(1);
    replayed.time_quantum = Some(quantum);
    replayed.lags.insert((0, 0), every_ms([-250_000, 0, 0, 100_000]));
    replayed.lags.insert((0, 1), every_ms([-1_900_000, 500_000]));
    replayed.wakeups_ns.insert(0, vec![0, 5_000, 6_000, 40_000]);
    let picture = of_trace(&schedule, Some(&replayed), ALL).unwrap();
    for (what, times) in [
        ("a quantum q is 1 ms", 1),
        ("+1 quantum", 1),
        ("lag of fast &amp; small", 1),
        ("lag of &lt;slow&gt;", 1),
        // In two descriptions, and beside the bars.
        ("4 lags", 3),
        ("-250 us to +100 us", 2),
        ("-1.9 ms to +500 us", 2),
        ("wake-up latency of CPU 0", 1),
        ("CPU 0: 4 wake-ups", 2),
        ("median 5 us, 99 % 40 us", 2),
    ] {
        assert_eq!(count(&picture, what), times, "{what}: {picture}");
    }
    replayed.wakeups_ns.insert(0, vec![0, 0]);
    let punctual = of_trace(&schedule, Some(&replayed), ALL).unwrap();
    assert_eq!(count(&punctual, "wake-up"), 0);
}

#[test]
fn an_axis_has_few_ticks_for_any_range() {
    for (from, until) in [(0.0, 1.0), (-3.0, 7e9), (2f64.powi(62), 2f64.powi(62) + 1_024.0)] {
        let mut page = Page::new();
        Axis::new(from, until).draw(&mut page, 0.0, format_ms);
        let ticks = count(&page.finish(), "<line");
        assert!((1..=12).contains(&ticks), "{ticks} from {from} to {until}");
    }
}

const ALL: Window = Window { from: None, to: Some(Span::from_secs(1)) };

#[test]
fn every_upcall_is_a_rectangle_and_every_name_is_escaped() {
    let schedule = schedule(1_000);
    assert_eq!(schedule.rows.len(), 2);
    let runs: usize = schedule.rows.iter().map(|row| row.runs.len()).sum();
    assert_eq!(schedule.rows[0].jobs.len(), 10);
    assert_eq!(schedule.rows[1].jobs.len(), 4);
    // The slow task yields at least once a job.
    assert!(runs > 14, "{runs}");
    let picture = of_trace(&schedule, None, ALL).unwrap();
    assert_eq!(count(&picture, " from "), runs + 1 + count(&picture, "jobs from"), "{picture}");
    assert!(count(&picture, "resumed") >= 4);
    assert_eq!(count(&picture, "deadline missed"), 0);
    assert!(picture.contains("fast &amp; small") && picture.contains("&lt;slow&gt;"), "{picture}");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
}

#[test]
fn missed_deadlines_are_red() {
    // 2 of 10 ms and 22.5 of 25 ms.
    let picture = of_trace(&schedule(2_500), None, ALL).unwrap();
    assert!(count(&picture, "deadline missed") > 0);
}

#[test]
fn only_the_window_is_drawn() {
    let schedule = schedule(1_000);
    let ms = Span::from_millis;
    let window = Window { from: Some(ms(10)), to: Some(ms(12)) };
    let picture = of_trace(&schedule, None, window).unwrap();
    assert_eq!(count(&picture, ", resumed") + count(&picture, "fast &amp; small: 2 ms"), 1);
    let late = Window { from: Some(ms(200)), to: None };
    assert_eq!(
        of_trace(&schedule, None, late).unwrap_err(),
        "found nothing from 200 ms on, the trace lasts 100 ms"
    );
}

#[test]
fn every_mark_has_its_meaning_in_a_legend() {
    let schedule = schedule(1_000);
    let picture = of_trace(&schedule, None, ALL).unwrap();
    for meaning in ["runs", "release", "deadline", "missed deadline"] {
        let words = picture.split(['<', '>']).filter(|text| text.trim() == meaning);
        assert_eq!(words.count(), 1, "{meaning}");
    }
    // Three arrows of the legend, 14 releases, and 14 deadlines. The last deadline of each task is
    // at the end of the trace and is not drawn.
    assert_eq!(count(&picture, "<polygon"), 3 + 14 + 12);
}

#[test]
fn a_long_name_does_not_hide_its_cpu_and_domain() {
    let mut schedule = schedule(1_000);
    schedule.rows[0].name = "n".repeat(64);
    let picture = of_trace(&schedule, None, ALL).unwrap();
    let cut = format!("{}…", "n".repeat(LABEL_MAX));
    assert_eq!(count(&picture, &cut), 1, "{picture}");
    let home = format!("CPU 0 · {}", schedule.rows[0].domain);
    assert_eq!(count(&picture, &home), 2, "{picture}");
}

#[test]
fn a_picture_begins_just_before_the_first_event() {
    let at_once = schedule(1_000);
    let (mut late, later) = (at_once.clone(), Span::from_millis(160));
    late.until_ns += later.as_nanos();
    for row in &mut late.rows {
        for run in &mut row.runs {
            (run.from_ns, run.until_ns) =
                (run.from_ns + later.as_nanos(), run.until_ns + later.as_nanos());
        }
        for job in &mut row.jobs {
            (job.release, job.deadline) = (job.release + later, job.deadline + later);
        }
    }
    let picture = |schedule, to| of_trace(schedule, None, Window { from: None, to }).unwrap();
    assert!(picture(&at_once, None).contains("schedule from 0 ms to 100 ms of 100 ms"));
    // A fiftieth of the page before the first release.
    assert!(picture(&late, None).contains("schedule from 158 ms to 258 ms of 260 ms"));
    // A window that ends before the first release is drawn anyway.
    let empty = picture(&late, Some(Span::from_millis(50)));
    assert!(empty.contains("schedule from 0 ms to 50 ms of 260 ms"), "{empty}");
}

#[test]
fn an_outcome_has_a_bar_for_each_percentile_and_its_lags() {
    let outcome = serde_json::json!({"mode": "sim", "policy": "ps", "activities": [
        {"name": "a", "misses": 2, "deadline_ns": 5_000_000,
         "response_ns": {"p50": 1_000_000, "p99": 2_000_000, "max": 6_000_000},
         "lag_ns": {"min": -500_000, "max": 250_000}},
        {"name": "b", "misses": 0,
         "response_ns": {"p50": 10, "p99": 20, "max": 30}, "lag_ns": null},
    ]});
    let picture = of_outcome(&outcome).unwrap();
    for title in
        ["a: median 1 ms", "a: 99 % 2 ms", "a: worst 6 ms", "b: worst 30 ns", "a: 2 missed"]
    {
        assert_eq!(count(&picture, title), 1, "{title}");
    }
    assert_eq!(count(&picture, "a: -500 us to +250 us"), 1);
    for meaning in ["half of the responses", "99 % of them", "all of them", "deadline"] {
        let words = picture.split(['<', '>']).filter(|text| text.trim() == meaning);
        assert_eq!(words.count(), 1, "{meaning}");
    }
    let compared = serde_json::json!({"runs": [outcome, outcome]});
    assert_eq!(count(&of_outcome(&compared).unwrap(), "a: median 1 ms"), 2);
    for other in ["{}", r#"{"activities": [{"name": "a"}]}"#, r#"{"runs": [3]}"#] {
        let other: Value = serde_json::from_str(other).unwrap();
        assert!(of_outcome(&other).unwrap_err().starts_with("found no activities"));
    }
}
