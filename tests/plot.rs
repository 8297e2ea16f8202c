//! `upcall plot`, as a whole program: it draws the files of `--trace` and `--json`.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;

use support::{SpecFile, folder, machine, upcall};
use upcall_sim::trace::{Crossing, Writer, read};

const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/conference.toml");

#[test]
fn a_trace_and_an_outcome_become_pictures() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, json, picture) = (path("t.pftrace"), path("o.json"), path("out.svg"));
    let done = upcall(&["sim", SPEC, "--duration", "1s", "--json", "--trace", &trace]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    fs::write(&json, &done.stdout).expect("space on the disk");
    for (from, drawn) in [(&trace, "slack of all jobs"), (&json, "response (median")] {
        let done = upcall(&["plot", from, "-o", &picture]);
        assert_eq!((done.status.code(), &*done.stdout), (Some(0), ""), "{done:?}");
        let svg = fs::read_to_string(&picture).expect("the file was written");
        assert!(svg.starts_with("<svg") && svg.contains(drawn), "{svg}");
        for name in ["audio", "video", "file"] {
            assert!(svg.contains(name), "{name}");
        }
    }
}

/// Three tasks under PS, one with a fixed share.
const SHARES: &str = r#"
policy = "ps"
[[task]]
name = "sound"
period = "10 ms"
cost = "250 us"
batch = 4
share = "15 %"
[[task]]
name = "index"
period = "100 ms"
cost = "500 us"
batch = 20
weight = 1
[[task]]
name = "backup"
period = "200 ms"
cost = "300 us"
batch = 100
weight = 2
"#;

/// Parses a shown time into nanoseconds.
fn ns(shown: &str) -> f64 {
    let (number, unit) = shown.split_once(' ').expect("a number and its unit");
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        _ => 1e9,
    };
    number.parse::<f64>().expect("a number") * unit_ns
}

/// The range in the `desc` of `chart`, as it is shown.
fn range<'a>(svg: &'a str, chart: &str) -> (&'a str, &'a str) {
    let (_, rest) = svg.split_once(chart).expect("the chart is there");
    let described = rest.split("<desc>").nth(1).and_then(|rest| rest.split("</desc>").next());
    let range = described.expect("a description").trim().rsplit(", ").next();
    range.expect("a range").split_once(" to ").expect("two ends")
}

#[test]
fn a_live_trace_shows_lag_and_the_latest_wake_up_of_the_outcome() {
    let _machine = machine();
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, picture, spec) = (path("t.pftrace"), path("out.svg"), SpecFile::new(SHARES));
    let soft = ["run", spec.path(), "--soft", "--duration", "1s", "--json", "--trace", &trace];
    let run = upcall(&soft);
    // Without rights or time the machine may break promises, but the threads still wake.
    run.assert_code(&[0, 4]);
    let done = upcall(&["plot", &trace, "-o", &picture]);
    assert_eq!((done.code(), &*done.stderr), (0, ""), "{done:?}");
    let svg = fs::read_to_string(&picture).expect("the file was written");
    assert!(svg.contains("lag of sound") && svg.contains("lag of index"), "{svg}");
    let told_ns = run.json()["platform"]["wakeup_latency_ns"]["max"].as_f64().expect("a time");
    let latest_ns = ns(range(&svg, "wake-up latency of CPU").1);
    // The picture shows three digits.
    assert!((latest_ns - told_ns).abs() <= told_ns / 100.0, "{latest_ns} for {told_ns}");
    assert_same_lags(&svg, &run.json());
}

/// The extremes of lag in the picture of a trace, which a replay computed, are those of the
/// outcome. The picture shows three digits.
fn assert_same_lags(svg: &str, run: &serde_json::Value) {
    for activity in run["activities"].as_array().expect("the contract's list") {
        let name = activity["name"].as_str().expect("a name");
        let (least, most) = range(svg, &format!("lag of {name}"));
        for (shown, end) in [(least, "min"), (most, "max")] {
            let printed = activity["lag_ns"][end].as_f64().expect("a time");
            assert!((ns(shown) - printed).abs() <= printed.abs() / 100.0, "{shown} for {printed}");
        }
    }
}

#[test]
fn the_picture_and_the_outcome_have_the_same_lag() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, picture, spec) = (path("t.pftrace"), path("out.svg"), SpecFile::new(SHARES));
    let sim = upcall(&["sim", spec.path(), "--duration", "2s", "--json", "--trace", &trace]);
    sim.assert_code(&[0]);
    upcall(&["plot", &trace, "-o", &picture]).assert_code(&[0]);
    let svg = fs::read_to_string(&picture).expect("the file was written");
    // No thread wakes late in virtual time.
    assert!(svg.contains("+1 quantum") && !svg.contains("wake-up latency"), "{svg}");
    assert_same_lags(&svg, &sim.json());
}

#[test]
fn a_trace_with_a_gap_is_drawn_without_lag_and_with_a_warning() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, picture, spec) = (path("t.pftrace"), path("out.svg"), SpecFile::new(SHARES));
    upcall(&["sim", spec.path(), "--duration", "1s", "--trace", &trace]).assert_code(&[0]);
    let mut gap = read(&fs::read(&trace).expect("the file was written")).expect("it is a trace");
    gap.records[0][50].crossing = Crossing::Lost { records: 30 };
    let mut writer = Writer::new(Vec::new(), &gap.header).expect("a Vec takes all bytes");
    for record in &gap.records[0] {
        writer.record(gap.header.cpus[0].0, record).expect("a Vec takes all bytes");
    }
    fs::write(&trace, writer.finish().expect("a Vec takes all bytes")).expect("space on the disk");
    let done = upcall(&["plot", &trace, "-o", &picture]);
    done.assert_code(&[0]);
    assert!(done.stderr.contains("are not drawn: CPU ") && done.stderr.lines().count() == 1);
    assert!(done.stderr.contains("30 records are missing"), "{done:?}");
    let svg = fs::read_to_string(&picture).expect("the file was written");
    assert!(svg.contains("slack of sound") && !svg.contains("lag of sound"), "{svg}");
}

#[test]
fn another_file_format_is_refused_and_no_file_is_made() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let trace = path("t.pftrace");
    upcall(&["sim", SPEC, "--duration", "100ms", "--trace", &trace]).assert_code(&[0]);
    for name in ["x.png", "x.PNG", "x.html", "x.svg.gz", "x.pdf"] {
        let done = upcall(&["plot", &trace, "-o", &path(name)]);
        done.assert_code(&[2]);
        assert!(done.stderr.contains("expected .svg"), "{done:?}");
        assert!(!folder.path().join(name).exists(), "{name}");
    }
    for name in ["x.svg", "x.SVG", "x"] {
        upcall(&["plot", &trace, "-o", &path(name)]).assert_code(&[0]);
        let svg = fs::read_to_string(path(name)).expect("the file was written");
        assert!(svg.starts_with("<svg"), "{name}");
    }
}

#[test]
fn an_invalid_file_is_refused_and_nothing_is_written() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, picture) = (path("t.pftrace"), path("out.svg"));
    let done = upcall(&["sim", SPEC, "--duration", "100ms", "--trace", &trace]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    fs::write(path("other.json"), "{\"a\": 1}").expect("space on the disk");
    fs::write(path("cut.json"), "{\"a\"").expect("space on the disk");
    for (file, more, said) in [
        (SPEC.to_owned(), None, "no Perfetto trace"),
        (path("other.json"), None, "found no activities"),
        (path("cut.json"), None, "EOF"),
        (path("missing"), None, "No such file"),
        (trace, Some("5s"), "found nothing from 5000 ms on, the trace lasts 100 ms"),
    ] {
        let mut arguments = vec!["plot", &*file, "-o", &*picture];
        arguments.extend(more.iter().flat_map(|from| ["--from", *from]));
        let done = upcall(&arguments);
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(done.stderr.contains(said), "{done:?}");
        assert!(!std::path::Path::new(&picture).exists(), "{file}");
    }
}
