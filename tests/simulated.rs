//! `upcall sim` of domains and of work ahead, as a whole program.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;

use serde_json::Value;
use support::{Done, SpecFile, example, list, named, number, truth, upcall};

/// A task of a message each 10 ms, of which four come at once, beside one that is critical
/// before them.
const AHEAD: &str = r#"
policy = "dws"
cpus = [0]
[[task]]
name = "burst"
period = "10 ms"
cost = "2 ms"
workahead = AHEAD
[[task]]
name = "rival"
period = "40 ms"
cost = "1 ms"
batch = 6
quantum = 1
"#;

fn sim(spec: &str, more: &[&str]) -> Done {
    upcall(&[&["sim", spec, "--duration", "2s", "--json"], more].concat())
}

/// The median response of the bursty task, and how many activities broke a promise.
fn with_workahead(messages: u32, policy: &str) -> (Value, u64) {
    let spec = SpecFile::new(AHEAD.replace("AHEAD", &messages.to_string()));
    let times: String = (0..50).map(|burst| format!("{} ms\n", burst * 40).repeat(4)).collect();
    fs::write(spec.beside("burst.txt"), times).expect("space on the disk");
    let burst = format!("burst={}", spec.beside("burst.txt"));
    let outcome = sim(spec.path(), &["--arrivals", &burst, "--policy", policy]).json();
    assert!(truth(&outcome, "kept"), "{outcome:#}");
    let p50 = number(named(&outcome, "activities", "burst"), "response_ns.p50");
    (outcome, p50)
}

/// The key changed nothing before: nobody told the scheduler of early messages.
#[test]
fn recorded_messages_that_come_early_are_processed_ahead() {
    let (without, late) = with_workahead(0, "dws");
    let (with, early) = with_workahead(3, "dws");
    let pdus = |outcome| number(named(outcome, "activities", "burst"), "pdus");
    assert_eq!((pdus(&without), pdus(&with)), (200, 200));
    // A job that ends before its release has a response of 0. That is three of four.
    assert!(late >= 2_000_000 && early == 0, "{late} and {early} ns");
    // Other policies have no work ahead.
    assert_eq!(with_workahead(0, "rmdp").1, with_workahead(3, "rmdp").1);
}

fn turns(outcome: &Value) -> u64 {
    number(outcome, "switches.domain")
}

#[test]
fn several_domains_are_simulated_as_processes() {
    let spec = example("domains.toml");
    let folder = support::folder();
    let trace = folder.path().join("out.pftrace");
    let trace = trace.to_str().expect("a path of ASCII");
    let done = sim(&spec, &["--trace", trace]);
    done.assert_code(&[0]);
    assert_eq!(number(&done.json(), "platform.domains"), 3);
    assert_eq!(sim(&spec, &[]).stdout, done.stdout);
    // Each domain has its own scheduler, and each decides the same again.
    let replay = upcall(&["sim", "--replay", trace, "--json"]);
    replay.assert_code(&[0]);
    let replay = replay.json();
    let domains = list(&replay, "cpus").iter().map(|cpu| support::text(cpu, "domain"));
    assert_eq!(domains.collect::<Vec<_>>(), ["intercom", "robot", "recorder"]);
    let report = upcall(&["sim", &spec, "--duration", "1s"]).stdout;
    assert!(report.contains("\ndomains: 3 processes, each with its own scheduler\n"), "{report}");
    // Under PS the processes have accounts.
    let shares = sim(&example("shares.toml"), &[]).json();
    assert_eq!(number(&shares, "platform.domains"), 3);
    let groups = sim(&example("group-processes.toml"), &["--trace", trace]);
    assert_eq!(number(&groups.assert_code(&[0]).json(), "platform.domains"), 4);
    upcall(&["sim", "--replay", trace]).assert_code(&[0]);
    let windows = sim(&spec, &["--policy", "dwcs"]).json();
    assert_eq!(number(&windows, "platform.domains"), 3);
}

/// A domain for each task, in which one of two periods may be missed.
fn loose_domains(tasks: &[(&str, &str, u32)]) -> String {
    let task = |(place, (period, deadline, batch)): (usize, &(&str, &str, u32))| {
        format!(
            "[[task]]\nname = \"t{place}\"\ndomain = \"d{place}\"\nperiod = \"{period}\"\n\
             deadline = \"{deadline}\"\ncost = \"1 ms\"\nbatch = {batch}\nwindow = \"1/2\"\n"
        )
    };
    let tasks: String = tasks.iter().enumerate().map(task).collect();
    format!("policy = \"dwcs\"\n{tasks}")
}

#[test]
fn domains_with_windows_are_processes_where_a_daemon_would_admit_them() {
    let number_of = |tasks: &[_]| {
        let spec = SpecFile::new(loose_domains(tasks));
        let done = sim(spec.path(), &[]);
        done.assert_code(&[0]);
        let done = done.json();
        let all = list(&done, "activities");
        assert!(all.iter().all(|of| number(of, "window_violations") == 0), "{done:#}");
        assert!(all.iter().map(|of| number(of, "misses")).sum::<u64>() > 50, "{done:#}");
        number(&done, "platform.domains")
    };
    // Two of three jobs fit into each period.
    assert_eq!(number_of(&[("10 ms", "9 ms", 4); 3]), 3);
    // A deadline at the end of the period leaves nothing above the limit of 90 %.
    assert_eq!(number_of(&[("10 ms", "10 ms", 4); 3]), 0);
    // Different periods need a common start.
    assert_eq!(number_of(&[("10 ms", "10 ms", 8), ("20 ms", "20 ms", 9)]), 0);
}

#[test]
fn deferred_preemption_saves_turns_and_is_refused_where_it_does_nothing() {
    let spec = example("domains.toml");
    let (at_once, deferred) = (sim(&spec, &[]), sim(&spec, &["--defer-preemption", "5ms"]));
    deferred.assert_code(&[0]);
    let (at_once, deferred) = (at_once.json(), deferred.json());
    assert!(turns(&deferred) < turns(&at_once), "{deferred:#} {at_once:#}");
    assert_eq!(number(&deferred, "platform.defer_preemption_ns"), 5_000_000);
    let report = upcall(&["sim", &spec, "--duration", "1s", "--defer-preemption", "5ms"]).stdout;
    assert!(report.contains("own scheduler; one goes on for up to 5 ms\n"), "{report}");
    // Admission counts it.
    let bound = |outcome| number(named(outcome, "activities", "balance"), "response_ns_max");
    assert_eq!(bound(&deferred), bound(&at_once) + 5_000_000);

    let refused = sim(&spec, &["--defer-preemption", "5ms", "--policy", "dws"]);
    refused.assert_code(&[2]);
    assert!(refused.stderr.contains("found policy dws, expected rmdp"), "{refused:?}");
    let alone = SpecFile::new("[[task]]\nname = \"t\"\nperiod = \"10 ms\"\ncost = \"1 ms\"\n");
    let refused = sim(alone.path(), &["--defer-preemption", "5ms"]);
    refused.assert_code(&[2]);
    assert!(refused.stderr.contains("found one domain, expected several"), "{refused:?}");
}
