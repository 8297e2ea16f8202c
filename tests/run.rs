//! `upcall run`, as a whole program: the JSON and CSV of the contract, and the agreement of their
//! numbers. `promises.rs` tests whether promises are kept. Here a machine without rights or time
//! may break them all.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::process::Command;

use serde_json::Value;
use support::Type::{Bool, Count, CountOrNull, List, Object, SignedOrNull, Text};
use support::{
    Done, Running, SpecFile, Type, UPCALL, assert_fields, field, list, machine, named, number,
    on_a_cpu, text, truth, upcall, with_ports,
};

/// Two streams with embedded senders, a task, and a hog.
const SET: &str = r#"
[[stream]]
name = "voice"
class = "continuous-media"
rate = "50/s"
pdu = "100 B"
delay = "100 ms"
cost = "500 us"
receive = "udp://127.0.0.1:{}"
source = "embedded"
domain = "calls"
[[stream]]
name = "file"
class = "bulk"
rate = "200/s"
pdu = "1470 B"
cost = "200 us"
receive = "udp://127.0.0.1:{}"
source = "embedded"
[[task]]
name = "control"
period = "10 ms"
cost = "100 us"
batch = 2
[[background]]
name = "hog"
spin = 1
"#;

fn set() -> SpecFile {
    SpecFile::new(with_ports(SET).0)
}

/// Runs `spec` for at least a second with `options`. A broken promise is no failure.
fn run(spec: &SpecFile, options: &[&str]) -> Done {
    let mut arguments = vec!["run", spec.path(), "--duration", "1s"];
    arguments.extend(options);
    let done = upcall(&arguments);
    done.assert_code(&[0, 4]);
    done
}

/// The fields of a run.
const RUN_FIELDS: &[(&str, Type)] = &[
    ("mode", Text),
    ("policy", Text),
    ("duration_ns", Count),
    ("activities", List),
    ("streams", List),
    ("background", List),
    ("switches.activity", Count),
    ("switches.domain", Count),
    ("switches.kernel", Count),
    ("platform", Object),
    ("platform.cpu_model", Text),
    ("platform.kernel", Text),
    ("platform.real_time", Bool),
    ("platform.memory_locked", Bool),
    ("platform.notices", List),
    ("platform.steal_ns", Count),
    ("promised", Bool),
    ("refusals", List),
    ("kept", Bool),
    ("broken", List),
    ("interrupted", Bool),
];

/// The fields of an activity of a run.
const ACTIVITY_FIELDS: &[(&str, Type)] = &[
    ("name", Text),
    ("domain", Text),
    ("cpu", Count),
    ("jobs", Count),
    ("completed", Count),
    ("misses", Count),
    ("response_ns.p50", Count),
    ("response_ns.p99", Count),
    ("response_ns.max", Count),
    ("slack_ns_min", SignedOrNull),
    ("preemptions", Count),
    ("pdus", Count),
    ("response_ns_max", CountOrNull),
    ("responses_above_max", CountOrNull),
    ("skipped", Count),
    ("overruns", Count),
    ("quantum_overruns", Count),
    ("pdu_cost_ns.declared", Count),
    ("pdu_cost_ns.measured", CountOrNull),
    ("wakeup_latency_ns.max", Count),
    ("faulted", Bool),
];

/// The fields of a stream of a run.
const STREAM_FIELDS: &[(&str, Type)] = &[
    ("name", Text),
    ("offered", Count),
    ("received", Count),
    ("processed", Count),
    ("dropped.interface", Count),
    ("dropped.queue", Count),
    ("dropped.socket", Count),
    ("throughput_bps", Count),
    ("direction", Text),
    ("unread", Count),
    ("late", Count),
    ("delay_ns_max", Count),
    ("errors", Count),
];

/// Checks the fields of `run` in docs/contract.md ("JSON"), and the sums of its counts.
fn assert_is_a_run(run: &Value) {
    assert_fields(run, RUN_FIELDS);
    for activity in list(run, "activities") {
        assert_fields(activity, ACTIVITY_FIELDS);
        assert_activity_adds_up(activity);
    }
    for stream in list(run, "streams") {
        assert_fields(stream, STREAM_FIELDS);
        assert_stream_adds_up(stream);
    }
    for background in list(run, "background") {
        assert_fields(background, &[("name", Text), ("cpu_ns", Count), ("lifetime_ns", Count)]);
    }
    assert_eq!(truth(run, "kept"), list(run, "broken").is_empty());
}

fn assert_activity_adds_up(activity: &Value) {
    let of = |field| number(activity, field);
    assert!(of("jobs") > 0, "{activity:#}");
    assert!(of("completed") <= of("jobs"), "{activity:#}");
    assert!(of("misses") <= of("jobs"), "{activity:#}");
    assert!(of("response_ns.p50") <= of("response_ns.p99"), "{activity:#}");
    let slack_ns = field(activity, "slack_ns_min").as_i64().expect("a job ended");
    if of("completed") == of("jobs") {
        // If every job has ended, a miss is a job with negative slack.
        assert_eq!(of("misses") > 0, slack_ns < 0, "{activity:#}");
        // D - R of the worst job. All jobs of an activity have the same D.
        let worst_ns = i64::try_from(of("response_ns.max")).expect("584 years");
        let deadline_ns = i64::try_from(of("deadline_ns")).expect("584 years");
        assert_eq!(slack_ns, deadline_ns - worst_ns, "{activity:#}");
    }
}

fn assert_stream_adds_up(stream: &Value) {
    let of = |field| number(stream, field);
    assert_eq!(
        of("offered"),
        of("received") + of("dropped.interface") + of("dropped.socket"),
        "{stream:#}"
    );
    assert_eq!(of("received"), of("processed") + of("dropped.queue") + of("unread"), "{stream:#}");
    assert!(of("late") <= of("processed"), "{stream:#}");
}

/// Checks what holds for `SET` in every mode.
fn assert_is_a_run_of_the_set(run: &Value) {
    assert_is_a_run(run);
    let names = |path| -> Vec<&str> { list(run, path).iter().map(|e| text(e, "name")).collect() };
    assert_eq!(names("activities"), ["voice", "file", "control"]);
    assert_eq!(names("streams"), ["voice", "file"]);
    assert_eq!(names("background"), ["hog"]);
    assert_eq!(text(named(run, "activities", "voice"), "domain"), "calls");
    for (name, batch) in [("voice", 2), ("file", 20), ("control", 2)] {
        let activity = named(run, "activities", name);
        assert!(number(activity, "jobs") * batch >= number(activity, "pdus"), "{activity:#}");
    }
    // A task has its whole batch in each job.
    let control = named(run, "activities", "control");
    assert!(number(control, "pdus") >= 2 * number(control, "completed"), "{control:#}");
    for stream in list(run, "streams") {
        assert!(number(stream, "processed") > 0, "{stream:#}");
        assert_eq!(text(stream, "direction"), "receive");
    }
    // In this set one datagram is one PDU.
    for name in ["voice", "file"] {
        assert_eq!(
            number(named(run, "streams", name), "processed"),
            number(named(run, "activities", name), "pdus"),
            "{name}"
        );
    }
    assert!(number(named(run, "background", "hog"), "cpu_ns") > 0);
    assert!(!truth(run, "interrupted"));
}

#[test]
fn the_outcome_has_every_field_and_adds_up() {
    let _machine = machine();
    let done = run(&set(), &["--json"]);
    let outcome = done.json();
    assert_is_a_run_of_the_set(&outcome);
    // Of the second that the flag says, and not of the default, which is far longer.
    let duration_ns = number(&outcome, "duration_ns");
    assert!((1_000_000_000..5_000_000_000).contains(&duration_ns), "{duration_ns}");
    let released = number(named(&outcome, "activities", "control"), "jobs");
    // The duration ends before the activities are stopped, on a busy machine some jobs before.
    assert!(released <= 2 * (duration_ns / 10_000_000), "{released} of a job every 10 ms");
    assert_eq!((text(&outcome, "mode"), text(&outcome, "policy")), ("upcall", "rmdp"));
    assert_eq!(done.code() == 0, truth(&outcome, "kept"));
}

#[test]
fn the_other_modes_have_the_same_outcome_fields() {
    let _machine = machine();
    for mode in ["threads", "fifo"] {
        let done = run(&set(), &["--json", "--mode", mode]);
        let outcome = done.json();
        // The threads have no class, or a priority each.
        let of_class = done.stderr.lines().filter(|line| line.starts_with("upcall: real-time"));
        let class = "upcall: real-time class, threads at rate-monotonic priorities from ";
        assert!(of_class.clone().all(|line| line.starts_with(class)), "{done:#?}");
        let has_class = mode == "fifo" && truth(&outcome, "platform.real_time");
        assert_eq!(of_class.count(), usize::from(has_class), "{done:#?}");
        assert_is_a_run_of_the_set(&outcome);
        assert_eq!(text(&outcome, "mode"), mode);
    }
}

#[test]
fn a_comparison_is_one_object_with_three_runs_in_order() {
    let _machine = machine();
    let done = run(&set(), &["--json", "--compare"]);
    let comparison = done.json();
    let runs = list(&comparison, "runs");
    runs.iter().for_each(assert_is_a_run_of_the_set);
    let modes: Vec<&str> = runs.iter().map(|run| text(run, "mode")).collect();
    assert_eq!(modes, ["upcall", "threads", "fifo"]);
    // The other modes promise nothing, so their misses break no promise.
    assert_eq!(done.code() == 0, truth(&runs[0], "kept"));
}

#[test]
fn the_text_has_the_plan_the_outcome_and_the_verdict() {
    let _machine = machine();
    let done = run(&set(), &[]);
    for expected in ["admitted: voice, file, control\n", "voice", "background hog", "switches: "] {
        assert!(done.stdout.contains(expected), "no `{expected}`: {done:#?}");
    }
    // A machine without the right to the real-time class promises nothing.
    let verdict = match (done.stdout.contains("promised: nothing"), done.code()) {
        (false, 0) => "every promise kept",
        (false, _) => "BROKEN ",
        (true, 0) => "nothing broken",
        (true, _) => "not kept: ",
    };
    assert!(done.stdout.contains(verdict), "{done:#?}");
}

/// A line of the job log, in rt-app's columns. `period` is empty for a first job.
#[derive(Debug)]
struct CsvRow {
    mode: String,
    name: String,
    slack_us: i64,
}

fn read_log(path: &str, header: &str) -> Vec<CsvRow> {
    let log = fs::read_to_string(path).expect("the log was written");
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some(header));
    let with_mode = header.starts_with("mode,");
    lines
        .map(|line| {
            let mut fields = line.split(',');
            let mode = if with_mode { fields.next().expect("a mode") } else { "" };
            let name = fields.next().expect("a name");
            let numbers: Vec<Option<i64>> = fields
                .map(|f| (!f.is_empty()).then(|| f.parse().expect("a whole number")))
                .collect();
            let &[_, Some(run_us), Some(wakeup_us), Some(slack_us)] = numbers.as_slice() else {
                panic!("found `{line}`, expected `{header}`");
            };
            assert!(run_us >= 0 && wakeup_us >= 0, "{line}");
            CsvRow { mode: mode.to_owned(), name: name.to_owned(), slack_us }
        })
        .collect()
}

/// Compares the log with the outcome: a line for each job, and a negative slack for each miss.
fn assert_log_fits(lines: &[CsvRow], mode: &str, run: &Value) {
    for activity in list(run, "activities") {
        let name = text(activity, "name");
        let of_it = || lines.iter().filter(|line| line.mode == mode && line.name == name);
        let logged = of_it().count() as u64;
        let (jobs, completed) = (number(activity, "jobs"), number(activity, "completed"));
        assert_eq!(logged, completed, "{mode} {activity:#}");
        let negative = of_it().filter(|line| line.slack_us < 0).count() as u64;
        // A late job that had not ended at the end of the run is a miss without a line.
        let misses = number(activity, "misses");
        assert!(negative <= misses && misses <= negative + (jobs - completed), "{activity:#}");
    }
    let known: u64 = list(run, "activities").iter().map(|a| number(a, "completed")).sum();
    assert_eq!(lines.iter().filter(|line| line.mode == mode).count() as u64, known);
}

#[test]
fn the_job_log_has_a_line_for_each_job() {
    let _machine = machine();
    let spec = set();
    let path = spec.beside("jobs.csv");
    let outcome = run(&spec, &["--json", "--csv", &path]).json();
    let lines = read_log(&path, "name,period,run,wakeup_latency,slack");
    assert_log_fits(&lines, "", &outcome);
}

#[test]
fn the_job_log_of_a_comparison_names_the_mode() {
    let _machine = machine();
    let spec = set();
    let path = spec.beside("jobs.csv");
    let outcome = run(&spec, &["--json", "--compare", "--csv", &path]).json();
    let lines = read_log(&path, "mode,name,period,run,wakeup_latency,slack");
    for run in list(&outcome, "runs") {
        assert_log_fits(&lines, text(run, "mode"), run);
    }
}

/// Two tasks that need more time than a CPU has.
const OVERLOAD: &str = r#"
[[task]]
name = "first"
period = "10 ms"
cost = "4 ms"
[[task]]
name = "second"
period = "20 ms"
cost = "16 ms"
"#;

#[test]
fn a_refused_set_runs_only_with_soft() {
    let _machine = machine();
    let spec = SpecFile::new(on_a_cpu(OVERLOAD));
    let done = upcall(&["run", spec.path(), "--duration", "1s", "--json"]);
    let refused = done.assert_code(&[3]).json();
    // The plan is the only result.
    assert!(!truth(&refused, "admitted"));
    assert!(refused.get("mode").is_none(), "{refused:#}");
    assert!(done.stderr.contains("--soft"), "{done:#?}");

    let outcome = run(&spec, &["--json", "--soft"]).json();
    assert_is_a_run(&outcome);
    // 120 % of a CPU: the first has the better rank and its time. The second cannot.
    let second = named(&outcome, "activities", "second");
    assert!(number(second, "misses") > 0, "{outcome:#}");
    assert!(!truth(&outcome, "kept"));
}

#[test]
fn a_comparison_of_a_refused_set_is_refused_too() {
    let spec = SpecFile::new(on_a_cpu(OVERLOAD));
    let done = upcall(&["run", spec.path(), "--duration", "1s", "--json", "--compare"]);
    assert!(!truth(&done.assert_code(&[3]).json(), "admitted"));
}

/// The optional task does not fit.
const CROWDED: &str = r#"
[[task]]
name = "first"
period = "20 ms"
cost = "5 ms"
[[task]]
name = "guest"
period = "10 ms"
cost = "9 ms"
optional = true
[[task]]
name = "second"
period = "40 ms"
cost = "5 ms"
"#;

#[test]
fn a_refused_optional_activity_is_left_out_if_there_is_admission() {
    let _machine = machine();
    let spec = SpecFile::new(on_a_cpu(CROWDED));
    let run = |options: &[&str]| {
        let always = ["run", spec.path(), "--duration", "1s", "--json"];
        upcall(&[&always, options].concat())
    };
    let compared = run(&["--compare"]);
    let runs = compared.assert_code(&[0, 4]).json();
    let names = |run: &Value| -> Vec<String> {
        list(run, "activities").iter().map(|each| text(each, "name").to_owned()).collect()
    };
    let [own, threads, fifo] = list(&runs, "runs") else { panic!("{runs:#}") };
    assert_eq!(names(own), ["first", "second"]);
    let [refusal] = list(own, "refusals") else { panic!("{own:#}") };
    assert_eq!((text(refusal, "name"), truth(refusal, "optional")), ("guest", true));
    assert!(!text(refusal, "reason").is_empty(), "{own:#}");
    assert_eq!(truth(own, "promised"), truth(own, "platform.real_time"), "{own:#}");
    for other in [threads, fifo] {
        assert_eq!(names(other), ["first", "second", "guest"]);
        assert!(list(other, "refusals").is_empty() && !truth(other, "promised"), "{other:#}");
    }
    let soft = run(&["--soft"]).assert_code(&[0, 4]).json();
    assert_eq!(names(&soft), ["first", "second", "guest"]);
    assert!(list(&soft, "refusals").is_empty() && !truth(&soft, "promised"), "{soft:#}");
    let sim = upcall(&["sim", spec.path(), "--duration", "1s", "--json"]);
    let sim = sim.assert_code(&[0]).json();
    assert_eq!((names(&sim), list(&sim, "refusals").len()), (names(own), 1));
    // The same with processes. Each process maps the whole spec.
    let text = CROWDED.replace("cost = \"5 ms\"\n[[", "cost = \"5 ms\"\ndomain = \"one\"\n[[");
    let spec = SpecFile::new(on_a_cpu(&text));
    let across = upcall(&["run", spec.path(), "--json", "--duration", "1s"]);
    let across = across.assert_code(&[0, 4]).json();
    assert_eq!((names(&across), list(&across, "refusals").len()), (names(own), 1));
    assert!(number(&across, "switches.domain") > 0, "two processes: {across:#}");
}

#[test]
fn a_refused_required_activity_refuses_the_set() {
    let required = CROWDED.replace("optional = true\n", "");
    let spec = SpecFile::new(on_a_cpu(&required));
    let done = upcall(&["run", spec.path(), "--duration", "1s", "--json"]);
    let plan = done.assert_code(&[3]).json();
    assert!(!truth(&plan, "admitted"), "{plan:#}");
    assert!(list(&plan, "refusals").iter().all(|refusal| !truth(refusal, "optional")));
}

/// Before, a run that admission had refused kept the real-time class without end, and only Linux'
/// limit on real-time threads let ordinary programs run.
#[test]
fn a_soft_run_that_never_sleeps_leaves_the_real_time_class_and_says_so() {
    let _machine = machine();
    let task = |name| format!("[[task]]\nname = \"{name}\"\nperiod = \"8 ms\"\ncost = \"6 ms\"\n");
    let spec = SpecFile::new(on_a_cpu(&(task("one") + &task("other"))));
    if upcall::RealTime::granted().is_err() {
        support::skipped("no right to the real-time class");
        return;
    }
    // It needs a second of CPU time, which a host may not leave.
    support::assert_kept(support::a_cpu(), || {
        let done = upcall(&["run", spec.path(), "--soft", "--duration", "2s", "--json"]);
        let run = done.assert_code(&[0, 4]).json();
        assert!(truth(&run, "platform.real_time"), "{run:#}");
        let notices = list(&run, "platform.notices").iter().filter_map(Value::as_str);
        let lowered = notices.filter(|line| line.starts_with("this process kept CPU "));
        if lowered.count() == 1 { Ok(()) } else { Err(format!("{run:#}")) }
    });
}

/// A stream whose sender is another program: none.
const LISTENER: &str = r#"
[[stream]]
name = "voice"
class = "continuous-media"
rate = "50/s"
pdu = "100 B"
delay = "100 ms"
cost = "500 us"
receive = "udp://127.0.0.1:{}"
"#;

/// Pipes stand for the counters of an interface. The run reads each before and after.
#[test]
#[ignore = "needs unshare(1) and root"]
fn packets_that_interfaces_drop_during_a_run_are_counted() {
    let _machine = machine();
    let spec = SpecFile::new(on_a_cpu(&with_ports(LISTENER).0));
    let interfaces = spec.folder.path().join("interfaces");
    let statistics = interfaces.join("eth0/statistics");
    fs::create_dir_all(&statistics).unwrap();
    let pipes = ["rx_dropped", "rx_missed_errors"].map(|name| statistics.join(name));
    assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
    // Each write waits for the reader. The thread is left behind if there is none.
    std::thread::spawn(move || {
        for counters in [["3\n", "1\n"], ["8\n", "3\n"]] {
            pipes.iter().zip(counters).for_each(|(pipe, count)| fs::write(pipe, count).unwrap());
        }
    });
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /sys/class/net && exec \"$@\"").arg(&interfaces);
    command.args([UPCALL, "run", spec.path(), "--duration", "200ms", "--json"]);
    let run = Running::start(&mut command).finish().assert_code(&[0, 4]).json();
    assert_eq!(number(named(&run, "streams", "voice"), "dropped.interface"), 7, "{run:#}");
}
