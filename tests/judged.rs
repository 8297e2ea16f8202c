//! `sim` and `run` judge what admission promised to each activity, and no more.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::process::Command;

use support::{Done, SpecFile, UPCALL, list, machine, number, on_a_cpu, text, truth, upcall};

/// Two tasks that need 110 % of a CPU together.
fn too_much(policy: &str, first: &str, second: &str) -> SpecFile {
    SpecFile::new(on_a_cpu(&format!(
        r#"
policy = "{policy}"
switch_cost = "0 us"
[[task]]
name = "frames"
period = "20 ms"
cost = "1 ms"
batch = 12
{first}
[[task]]
name = "index"
period = "20 ms"
cost = "1 ms"
batch = 10
{second}
"#
    )))
}

fn simulate(spec: &SpecFile, options: &[&str]) -> Done {
    upcall(&[&["sim", spec.path(), "--duration", "1s"], options].concat())
}

#[test]
fn only_what_was_promised_is_judged() {
    for (policy, terms, promises, line) in [
        ("ps", ["", ""], ["nothing", "nothing"], "promised: nothing, no activity has a deadline"),
        (
            "ps",
            ["share = \"80 %\"", ""],
            ["deadlines", "nothing"],
            "promised: every job of frames ends by its deadline; no deadline to index\n",
        ),
        (
            "dws",
            ["", "class = \"background\""],
            ["deadlines", "nothing"],
            "promised: every job of frames ends by its deadline; no deadline to index\n",
        ),
        (
            "dwcs",
            ["window = \"1/2\"", "window = \"1/2\""],
            ["windows", "windows"],
            "promised: frames misses at most 1 of 2 periods; index misses at most 1 of 2 periods\n",
        ),
    ] {
        let spec = too_much(policy, terms[0], terms[1]);
        let done = simulate(&spec, &[]);
        done.assert_code(&[0]);
        assert!(done.stdout.contains(line), "{policy}: {done:#?}");
        let run = simulate(&spec, &["--json"]).assert_code(&[0]).json();
        let activities = list(&run, "activities");
        let found: Vec<_> = activities.iter().map(|each| text(each, "promise")).collect();
        assert_eq!(found, promises, "{policy}");
        assert!(truth(&run, "kept") && list(&run, "broken").is_empty(), "{run:#}");
        assert_eq!(truth(&run, "promised"), promises[0] != "nothing", "{run:#}");
        let misses: u64 = activities.iter().map(|each| number(each, "misses")).sum();
        assert!(misses > 10, "{policy}: nothing had to be judged: {run:#}");
    }
}

#[test]
fn a_run_counts_violated_windows() {
    let _machine = machine();
    let light = "window = \"1/2\"\ndeadline = \"15 ms\"";
    let spec = too_much("dwcs", light, light);
    let text_of = std::fs::read_to_string(spec.path())
        .unwrap()
        .replace("cost = \"1 ms\"", "cost = \"100 us\"");
    std::fs::write(spec.path(), text_of).unwrap();
    let mut command = Command::new(UPCALL);
    command.args(["run", spec.path(), "--duration", "500ms", "--json"]);
    let run = support::Running::start(&mut command).finish();
    let run = run.assert_code(&[0, 4]).json();
    let mut violations = 0;
    for activity in list(&run, "activities") {
        assert_eq!(text(activity, "window"), "1/2");
        violations += number(activity, "window_violations");
    }
    let broken: Vec<_> = list(&run, "broken").iter().map(ToString::to_string).collect();
    assert_eq!(violations > 0, broken.iter().any(|line| line.contains("windows violated")));
    assert!(!broken.iter().any(|line| line.contains("deadlines missed")), "{broken:?}");
}
