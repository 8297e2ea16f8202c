//! `upcall plan`, as a whole program: the JSON of the contract, the exit statuses, the numbers
//! compared with a computation by hand, and hints that are true.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use serde_json::Value;
use support::{
    Done, SpecFile, Type, a_cpu, assert_fields, example, field, list, named, number, on_a_cpu,
    text, truth, upcall,
};

/// Checks the fields of `plan` in docs/contract.md ("JSON").
fn assert_is_a_plan(plan: &Value) {
    use Type::{Bool, Count, CountOrNull, Float, FloatOrNull, List, Text, TextOrNull};
    assert_fields(
        plan,
        &[
            ("admitted", Bool),
            ("policy", Text),
            ("cpus", List),
            ("activities", List),
            ("tests", List),
            ("refusals", List),
            ("switch_cost_ns", Count),
            ("wakeup_latency_ns", Count),
        ],
    );
    for cpu in list(plan, "cpus") {
        assert_fields(cpu, &[("cpu", Count), ("utilization", Float), ("limit", Float)]);
    }
    for activity in list(plan, "activities") {
        assert_fields(
            activity,
            &[
                ("name", Text),
                ("domain", Text),
                ("cpu", CountOrNull),
                ("period_ns", Count),
                ("deadline_ns", Count),
                ("batch", Count),
                ("quantum", Count),
                ("pdu_cost_ns", Count),
                ("compute_ns", Count),
                ("response_ns_max", CountOrNull),
                ("buffer_bytes", Count),
                ("bandwidth_bps", Count),
                ("cost_measured", Bool),
                ("buffers", Count),
                ("delay_ns_max", CountOrNull),
                ("group", TextOrNull),
                ("same_cpu_as", TextOrNull),
            ],
        );
        assert_eq!(
            number(activity, "compute_ns"),
            number(activity, "batch") * number(activity, "pdu_cost_ns")
        );
    }
    for test in list(plan, "tests") {
        assert_fields(
            test,
            &[("name", Text), ("passed", Bool), ("value", FloatOrNull), ("bound", Float)],
        );
    }
    for refusal in list(plan, "refusals") {
        let fields = [("name", Text), ("reason", Text), ("hint", TextOrNull), ("optional", Bool)];
        assert_fields(refusal, &fields);
    }
    let refusals = list(plan, "refusals");
    assert_eq!(truth(plan, "admitted"), refusals.iter().all(|each| truth(each, "optional")));
}

/// The test that decided. The only CPU has exactly one.
fn deciding(plan: &Value) -> &Value {
    let mut deciding = list(plan, "tests")
        .iter()
        .filter(|test| test.get("deciding").is_some_and(|deciding| deciding == true));
    let found = deciding.next().expect("a test decides");
    assert!(deciding.next().is_none(), "two tests decide: {plan:#}");
    found
}

/// Plans `spec` on one CPU: a set that does not fit there is refused.
fn plan(spec: &str) -> Done {
    upcall(&["plan", SpecFile::new(on_a_cpu(spec)).path(), "--json"])
}

#[test]
fn the_conference_is_admitted() {
    let done = upcall(&["plan", &example("conference.toml"), "--json"]);
    let plan = done.assert_code(&[0]).json();
    assert_is_a_plan(&plan);
    assert!(truth(&plan, "admitted"));
    assert_eq!(text(&plan, "policy"), "rmdp");
    // The mapping is that in the comments of the file.
    for (name, period_ns, batch) in
        [("audio", 20_000_000, 1), ("video", 44_444_444, 4), ("file", 100_000_000, 20)]
    {
        let activity = named(&plan, "activities", name);
        assert_eq!(number(activity, "period_ns"), period_ns, "{name}");
        assert_eq!(number(activity, "deadline_ns"), period_ns, "{name}");
        assert_eq!(number(activity, "batch"), batch, "{name}");
        assert!(number(activity, "response_ns_max") <= period_ns, "{name}");
    }
    // The guest does not fit. The others are admitted.
    let [refusal] = list(&plan, "refusals") else { panic!("{plan:#}") };
    assert_eq!((text(refusal, "name"), truth(refusal, "optional")), ("guest", true));
    assert!(text(refusal, "reason").contains("120"), "{refusal:#}");
    assert!(field(refusal, "hint").is_string(), "{refusal:#}");
    assert!(field(named(&plan, "activities", "guest"), "cpu").is_null());
    assert!(truth(deciding(&plan), "passed"));
    assert!(done.stderr.is_empty(), "{done:#?}");
}

#[test]
fn an_optional_activity_takes_no_time_from_others_in_any_order() {
    let optional =
        "[[task]]\nname = \"greedy\"\nperiod = \"10 ms\"\ncost = \"6 ms\"\noptional = true\n";
    let needed = "[[task]]\nname = \"needed\"\nperiod = \"10 ms\"\ncost = \"5 ms\"\n";
    for spec in [format!("{optional}{needed}"), format!("{needed}{optional}")] {
        let plan = plan(&spec).assert_code(&[0]).json();
        let [refusal] = list(&plan, "refusals") else { panic!("{plan:#}") };
        assert_eq!((text(refusal, "name"), truth(refusal, "optional")), ("greedy", true));
        assert!(field(named(&plan, "activities", "needed"), "cpu").is_u64(), "{plan:#}");
    }
}

/// Each of two activities waits for a request of the other, which is as long as the quantum allows.
#[test]
fn proportional_share_admits_by_the_time_quantum_of_the_spec() {
    let response = |settings: &str| {
        let task = |name: &str| {
            format!(
                "[[task]]\nname = \"{name}\"\nperiod = \"100 ms\"\nbatch = 80\n\
                 cost = \"100 us\"\nshare = \"20 %\"\n"
            )
        };
        let head = "policy = \"ps\"\nswitch_cost = \"0 us\"\n";
        let spec = SpecFile::new(on_a_cpu(&format!("{head}{settings}{}{}", task("a"), task("b"))));
        let plan = upcall(&["plan", spec.path(), "--json"]).assert_code(&[0]).json();
        number(named(&plan, "activities", "a"), "response_ns_max")
    };
    let of_default = response("");
    assert_eq!(response("time_quantum = \"1 ms\"\n"), of_default);
    assert_eq!(response("time_quantum = \"3 ms\"\n"), of_default + 2_000_000);
    assert_eq!(response("time_quantum = \"100 us\"\n"), of_default - 900_000);
}

/// In `groups.toml` only the shares of two groups are given away. Another share that does not fit
/// beside them is refused.
#[test]
fn groups_are_admitted_by_their_shares() {
    let example = std::fs::read_to_string(example("groups.toml")).expect("the spec has it");
    let plan = |text: String| {
        let spec = SpecFile::new(text);
        let done = upcall(&["plan", spec.path(), "--json"]);
        (done.code(), done.json())
    };
    let on = on_a_cpu(&example);
    let (code, found) = plan(on.clone());
    assert_eq!(code, 0, "{found:#}");
    assert_is_a_plan(&found);
    assert_eq!(field(&list(&found, "cpus")[0], "utilization").as_f64(), Some(0.7));
    assert_eq!(text(named(&found, "activities", "decode"), "group"), "video");
    assert!(field(named(&found, "activities", "audio"), "group").is_null());
    let (code, found) = plan(on.replace("share = \"30 %\"", "share = \"60 %\""));
    assert_eq!(code, 3, "{found:#}");
}

#[test]
fn the_contracts_own_example_is_admitted() {
    let contract = std::fs::read_to_string(example("contract.toml")).expect("the example");
    // It names CPU 1, which a machine with one CPU, or a cpuset, may lack.
    let here = contract.replace("cpus = [1] ", &format!("cpus = [{}] ", a_cpu()));
    assert!(here.contains(&format!("cpus = [{}] ", a_cpu())), "{here}");
    let plan = upcall(&["plan", SpecFile::new(here).path(), "--json"]).assert_code(&[0]).json();
    assert_is_a_plan(&plan);
    let camera = named(&plan, "activities", "camera");
    // 90 PDUs/s within 50 ms: two PDUs every 2/90 s, rounded down.
    assert_eq!(number(camera, "period_ns"), 22_222_222);
    assert_eq!((number(camera, "batch"), number(camera, "buffers")), (2, 4));
    assert_eq!(number(camera, "buffer_bytes"), 4 * 1470);
    assert_eq!(number(camera, "bandwidth_bps"), 90 * 1470 * 8);
    assert_eq!(text(camera, "domain"), "player");
    let task = named(&plan, "activities", "t1");
    assert_eq!((number(task, "batch"), number(task, "compute_ns")), (8, 2_000_000));
    assert!(field(task, "delay_ns_max").is_null());
    assert_eq!(number(&plan, "switch_cost_ns"), 5_000);
}

/// t1, t2 and t3 in the order of their ranks. Hand-offs are free, times are in ms, and e = 1 ns. B,
/// C, q, L, W and R are as in the head of core's `response_time`.
///
/// ```text
/// t1: T 10, C 2 x 1 =  2, q 1
/// t2: T 20, C 4 x 1 =  4, q 2
/// t3: T 50, C 5 x 2 = 10, q 2 (2+2+1 PDUs)
///
/// t1: B = max(2 x 1, 2 x 2) - e = 4 - e
///     L = B + 2 = 6 - e < 10: one job.  W = B + 2 - 1 = 5 - e.  R = W + 1 = 6 - e
/// t2: B = 2 x 2 - e = 4 - e
///     L = B + 2 + 4 = 10 - e: t1 is not released again before 10, so one job
///     W = B + 4 - 2 + 2 (floor(W / 10) + 1) = 6 - e + 2 = 8 - e, a solution since floor(0.8) = 0
///     R = W + 2 = 10 - e
/// t3: B = 0
///     L: 16 -> 10 + 2 x 2 + 4 = 18 -> 18 < 50: one job
///     W = 10 - 2 + 2 (floor(W / 10) + 1) + 4 (floor(W / 20) + 1): 8 -> 14 -> 16 -> 16
///     R = 16 + 2 = 18
/// ```
const BY_HAND: &str = r#"
switch_cost = "0 us"
[[task]]
name = "t3"
period = "50 ms"
batch = 5
quantum = 2
cost = "2 ms"
[[task]]
name = "t1"
period = "10 ms"
batch = 2
quantum = 1
cost = "1 ms"
[[task]]
name = "t2"
period = "20 ms"
batch = 4
quantum = 2
cost = "1 ms"
"#;

#[test]
fn responses_are_as_computed_by_hand() {
    let plan = plan(BY_HAND).assert_code(&[0]).json();
    assert_is_a_plan(&plan);
    for (name, response_ns) in [("t1", 5_999_999), ("t2", 9_999_999), ("t3", 18_000_000)] {
        let activity = named(&plan, "activities", name);
        assert_eq!(number(activity, "response_ns_max"), response_ns, "{name}");
    }
    let names: Vec<&str> = list(&plan, "activities").iter().map(|a| text(a, "name")).collect();
    assert_eq!(names, ["t3", "t1", "t2"], "the activities are in the order of the file");
    // 2/10 + 4/20 + 10/50
    let used = field(&list(&plan, "cpus")[0], "utilization").as_f64().unwrap();
    assert!((used - 0.6).abs() < 1e-12, "{used}");
    let names: Vec<&str> = list(&plan, "tests").iter().map(|test| text(test, "name")).collect();
    assert_eq!(names, ["liu-layland", "sha-blocking", "rmdp-bound", "response-time", "cpu-limit"]);
    // t1 has the largest response relative to its deadline.
    let decided = deciding(&plan);
    assert_eq!(text(decided, "name"), "response-time");
    let value = field(decided, "value").as_f64().unwrap();
    assert!((value - 0.599_999_9).abs() < 1e-12, "{value}");
}

/// The blocking is one nanosecond longer than t1's deadline allows.
#[test]
fn a_deadline_equal_to_the_response_is_admitted_and_a_nanosecond_less_refused() {
    let with_deadline = |deadline: &str| {
        let with = format!("period = \"10 ms\"\ndeadline = \"{deadline}\"");
        plan(&BY_HAND.replace("period = \"10 ms\"", &with))
    };
    with_deadline("5999999 ns").assert_code(&[0]);
    let refused = with_deadline("5999998 ns").assert_code(&[3]).json();
    assert!(!truth(deciding(&refused), "passed"));
}

#[test]
fn a_cpu_may_be_filled_to_its_limit_and_not_beyond() {
    let one = |cost: &str| {
        plan(&format!(
            "cpu_limit = \"90 %\"\nswitch_cost = \"0 us\"\n\
             [[task]]\nname = \"t\"\nperiod = \"10 ms\"\ncost = \"{cost}\"\n"
        ))
    };
    let admitted = one("9 ms").assert_code(&[0]).json();
    let cpu = &list(&admitted, "cpus")[0];
    assert_eq!(field(cpu, "utilization"), field(cpu, "limit"));
    let refused = one("9000001 ns").assert_code(&[3]).json();
    assert_is_a_plan(&refused);
    let decided = deciding(&refused);
    assert_eq!((text(decided, "name"), truth(decided, "passed")), ("cpu-limit", false));
    assert!(field(&list(&refused, "activities")[0], "cpu").is_null());
}

/// A task block with `more` lines.
fn task(name: &str, period: &str, cost: &str, more: &str) -> String {
    format!("[[task]]\nname = \"{name}\"\nperiod = \"{period}\"\ncost = \"{cost}\"\n{more}\n")
}

/// The only refusal of a set. Checks that it names `name` and that its hint changes `what`. Returns
/// the hint.
fn refusal(spec: &str, name: &str, what: &str) -> String {
    let done = plan(spec);
    let refused = done.assert_code(&[3]).json();
    assert_is_a_plan(&refused);
    assert!(!truth(deciding(&refused), "passed"), "{refused:#}");
    let [refusal] = list(&refused, "refusals") else { panic!("{refused:#}") };
    assert_eq!(text(refusal, "name"), name);
    assert!(!text(refusal, "reason").is_empty());
    let hint = text(refusal, "hint").to_owned();
    assert!(hint.starts_with(&format!("a {what} of ")), "found `{hint}`, expected a {what}");
    hint
}

/// `spec` with the change of a hint, `a KEY of VALUE [...] instead of OLD [...] would fit`. The
/// change is made to the task `name`, or to the file if the key belongs to the file.
fn with_hint(spec: &str, name: &str, hint: &str) -> String {
    let (words, values) =
        hint.strip_prefix("a ").and_then(|h| h.split_once(" of ")).expect("a hint");
    let keys = &words.replace("delay bound", "delay_bound");
    let (value, _) = values.split_once(" instead of ").expect("a hint");
    let value = value.strip_suffix(" per PDU").unwrap_or(value);
    let value = match value.split_once(" PDU") {
        Some((count, _)) => count.to_owned(),
        None => format!("\"{value}\""),
    };
    let head = |key: &str| format!("{key} = {value}\n");
    if keys == "cpu_limit" {
        let kept: Vec<&str> = spec.lines().filter(|line| !line.starts_with(keys)).collect();
        return head(keys) + &kept.join("\n");
    }
    let (before, block) =
        spec.split_once(&format!("name = \"{name}\"\n")).expect("the spec has it");
    let (block, after) = match block.split_once("[[") {
        Some((block, after)) => (block, format!("[[{after}")),
        None => (block, String::new()),
    };
    let mut lines = format!("name = \"{name}\"\n");
    for key in keys.split(" and ") {
        lines += &head(key);
    }
    for line in block.lines() {
        let changed = keys.split(" and ").any(|key| line.starts_with(&format!("{key} =")));
        if !changed {
            lines += &format!("{line}\n");
        }
    }
    format!("{before}{lines}{after}")
}

/// Checks that the set is refused with a hint about `what`, and admitted with that change.
fn assert_the_hint_fits(spec: &str, name: &str, what: &str) {
    let hint = refusal(spec, name, what);
    let changed = with_hint(spec, name, &hint);
    let done = plan(&changed);
    assert_eq!(done.code(), 0, "`{hint}` does not fit: {done:#?}\n{changed}");
}

const FREE: &str = "switch_cost = \"0 us\"\n";

#[test]
fn a_quantum_that_blocks_too_long_is_refused_and_the_hint_is_true() {
    let spec = FREE.to_owned()
        + &task("urgent", "10 ms", "1 ms", "deadline = \"5 ms\"")
        + &task("heavy", "100 ms", "1 ms", "batch = 10\nquantum = 10");
    assert_the_hint_fits(&spec, "heavy", "quantum");
    // 4 PDUs block for 4 ms - 1 ns, and 1 ms follows: the longest quantum that fits.
    assert_eq!(refusal(&spec, "heavy", "quantum"), "a quantum of 4 PDUs instead of 10 would fit");
}

#[test]
fn a_deadline_that_is_too_short_is_refused_and_the_hint_is_true() {
    let spec = FREE.to_owned()
        + &task("first", "10 ms", "4 ms", "")
        + &task("second", "20 ms", "4 ms", "deadline = \"6 ms\"");
    assert_the_hint_fits(&spec, "second", "deadline");
    assert_eq!(
        refusal(&spec, "second", "deadline"),
        "a deadline of 8 ms instead of 6 ms would fit"
    );
}

#[test]
fn more_than_a_cpu_is_refused_and_the_hint_is_true() {
    let spec = FREE.to_owned()
        + &task("first", "10 ms", "5 ms", "")
        + &task("second", "20 ms", "12 ms", "");
    assert_the_hint_fits(&spec, "second", "cost");
    let plan = plan(&spec).json();
    assert!(text(&list(&plan, "refusals")[0], "reason").contains("110 %"), "{plan:#}");
    // The response has no bound, so the value of the deciding test is null.
    assert!(field(deciding(&plan), "value").is_null());
}

#[test]
fn a_period_below_the_blocking_is_refused_and_the_hint_is_true() {
    let spec = FREE.to_owned()
        + &task("long", "20 ms", "8900 us", "")
        + &task("short", "5 ms", "100 us", "");
    assert_the_hint_fits(&spec, "short", "period and deadline");
}

/// split-level-1991 §3.4: admission offers the shortest delay bound, here one beyond the period.
/// The quanta of the others block `late`, whose own quantum is one PDU.
#[test]
fn a_refusal_under_dws_offers_a_delay_bound_that_is_true() {
    let spec = FREE.to_owned()
        + "policy = \"dws\"\n"
        + &task("first", "10 ms", "4 ms", "")
        + &task("second", "20 ms", "5 ms", "")
        + &task("late", "10 ms", "2 ms", "delay_bound = \"3 ms\"\nbatch = 1");
    assert_the_hint_fits(&spec, "late", "delay bound");
    let offered = refusal(&spec, "late", "delay bound");
    let (bound, _) = offered["a delay bound of ".len()..].split_once(" ms").expect("ms");
    let bound: f64 = bound.parse().expect("a number");
    // It is the shortest: 0.1 % less is refused.
    let less = format!("{} us", (bound * 999.0).floor());
    let shorter = with_hint(&spec, "late", &format!("a delay bound of {less} instead of 3 ms"));
    plan(&shorter).assert_code(&[3]);
    // The words of the screen.
    let file = SpecFile::new(&spec);
    let done = upcall(&["plan", file.path()]);
    assert!(done.stdout.contains(&offered), "{done:#?}");
}

#[test]
fn a_limit_that_is_barely_exceeded_is_refused_and_the_hint_is_true() {
    let spec = FREE.to_owned() + &task("t", "10 ms", "9200 us", "");
    assert_the_hint_fits(&spec, "t", "cpu_limit");
}

#[test]
fn a_refused_stream_gets_a_hint_that_is_true() {
    let spec = FREE.to_owned()
        + &task("t", "10 ms", "4700 us", "")
        + "[[stream]]\nname = \"s\"\nclass = \"continuous-media\"\nrate = \"90/s\"\n\
           pdu = \"1470 B\"\ndelay = \"100 ms\"\ncost = \"5 ms\"\nreceive = \"udp://127.0.0.1:5004\"\n";
    // 47 % + 45 %: a higher limit would allow it.
    assert_the_hint_fits(&spec, "s", "cpu_limit");
    // 47 % + 54 %: more than a whole CPU.
    let spec = spec.replace("cost = \"5 ms\"", "cost = \"6 ms\"");
    assert_the_hint_fits(&spec, "s", "cost");
}

#[test]
fn the_text_of_a_refused_plan_names_refusal_and_hint() {
    let file = SpecFile::new(FREE.to_owned() + &task("t", "10 ms", "9500 us", ""));
    let done = upcall(&["plan", file.path()]);
    done.assert_code(&[3]);
    assert!(done.stdout.contains("REFUSED t: "), "{done:#?}");
    assert!(done.stdout.contains("would fit"), "{done:#?}");
    assert!(!done.stdout.contains("\nadmitted"), "{done:#?}");
}

#[test]
fn the_same_plan_prints_the_same_bytes() {
    let file = SpecFile::new(BY_HAND);
    let [first, second] = [(); 2].map(|()| upcall(&["plan", file.path(), "--json"]).stdout);
    assert_eq!(first, second);
}

/// Under `dws` a job is late after its delay bound, which may be longer or shorter than the period.
#[test]
fn the_deadline_that_is_shown_is_the_one_that_is_judged() {
    let spec = |policy: &str, bound: &str| {
        SpecFile::new(format!(
            "policy = \"{policy}\"\nswitch_cost = \"1 us\"\n[[task]]\nname = \"one\"\n\
             period = \"20 ms\"\ncost = \"1 ms\"\n{bound}"
        ))
    };
    for (policy, bound, deadline) in [
        ("dws", "delay_bound = \"15 ms\"\n", 15),
        ("dws", "delay_bound = \"35 ms\"\n", 35),
        ("dws", "", 20),
        ("rmdp", "delay_bound = \"15 ms\"\n", 20),
    ] {
        let spec = spec(policy, bound);
        let plan = upcall(&["plan", spec.path(), "--json"]);
        let sim = upcall(&["sim", spec.path(), "--duration", "100ms", "--json"]);
        for done in [plan, sim] {
            let activity = &list(&done.assert_code(&[0]).json(), "activities")[0].clone();
            assert_eq!(number(activity, "deadline_ns"), deadline * 1_000_000, "{activity:#}");
        }
        let shown = upcall(&["plan", spec.path()]).stdout;
        assert!(shown.contains(&format!(" {deadline} ms")), "{shown}");
    }
}
