//! Every key of a spec changes what `plan` computes, what `sim` does, or what `sweep` finds. Each
//! case changes one key and names a figure that follows. No figure only repeats the key.
//!
//! docs/keys.md lists the keys and their tests. Keys of packets have tests that run for real.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;

use serde_json::Value;
use support::{SpecFile, a_cpu, field, folder, list, named, start, upcall, wait_until};

/// One change of a key, and the figure of an activity that shows it: the text that is replaced, its
/// replacement, the activity, and the path of the figure.
type Case = (&'static str, &'static str, &'static str, &'static str);

/// On a CPU that this process may use, in place of CPU 0.
fn plan(spec: &str) -> Value {
    let file = SpecFile::new(spec.replace("cpus = [0]", &format!("cpus = [{}]", a_cpu())));
    upcall(&["plan", file.path(), "--json"]).assert_code(&[0, 3]).json()
}

fn sim(spec: &str) -> Value {
    let file = SpecFile::new(spec);
    let arguments = ["sim", file.path(), "--duration", "2s", "--soft", "--json"];
    upcall(&arguments).assert_code(&[0, 4]).json()
}

/// Checks that each case changes its figure in the output of `command`.
fn each_case_counts(base: &str, cases: &[Case], command: impl Fn(&str) -> Value) {
    let before = command(base);
    for (from, to, activity, figure) in cases {
        assert!(base.contains(from), "{from}");
        let after = command(&base.replacen(from, to, 1));
        let [before, after] = [&before, &after]
            .map(|output| field(named(output, "activities", activity), figure).clone());
        assert_ne!(before, after, "`{from}` -> `{to}`: {figure} of {activity}");
    }
}

/// The file with two tasks on CPU 0; a name begins each.
const TASKS: &str = r#"switch_cost = "10 us"
cpus = [0]
[[task]]
name = "short"
period = "10 ms"
cost = "1 ms"
batch = 2
[[task]]
name = "long"
period = "40 ms"
cost = "2 ms"
batch = 6
"#;

#[test]
fn every_key_of_the_file_changes_the_plan() {
    let cases: &[Case] = &[
        ("switch_cost = \"10 us\"", "switch_cost = \"100 us\"", "short", "response_ns_max"),
        ("cpus", "policy = \"rm\"\ncpus", "short", "response_ns_max"),
        ("cpus", "wakeup_latency = \"3 ms\"\ncpus", "short", "response_ns_max"),
        ("cpus", "cpu_limit = \"40 %\"\ncpus", "long", "cpu"),
    ];
    each_case_counts(TASKS, cases, plan);
    // One task on each CPU, and then only one CPU.
    let cases: &[Case] =
        &[("cpus = [0]", "cpu_limit = \"40 %\"\ncpus = [0, 1]", "long", "response_ns_max")];
    each_case_counts(TASKS, cases, plan_of_any);
    let two = TASKS.replace("cpus = [0]", "cpu_limit = \"40 %\"\ncpus = [0, 1]");
    each_case_counts(&two, &[("cpus", "cpu_count = 1\ncpus", "long", "cpu")], plan_of_any);
    let ps = TASKS.replace("cpus", "policy = \"ps\"\ntime_quantum = \"1 ms\"\ncpus");
    let ps = ps.replace("batch = 2", "batch = 2\nshare = \"40 %\"");
    let ps = ps.replace("cost = \"1 ms\"", "cost = \"100 us\"");
    let cases: &[Case] = &[("\"1 ms\"\ncpus", "\"5 ms\"\ncpus", "short", "response_ns_max")];
    each_case_counts(&ps, cases, sim);
}

/// As `plan`, in virtual time: the machine of the test may have one CPU only.
fn plan_of_any(spec: &str) -> Value {
    let file = SpecFile::new(spec);
    let arguments = ["sim", file.path(), "--duration", "100ms", "--json"];
    let done = upcall(&arguments);
    done.assert_code(&[0, 3, 4]).json()
}

#[test]
fn every_key_of_a_stream_changes_the_mapping() {
    let stream = |flow: &str| {
        format!(
            "switch_cost = \"10 us\"\ncpus = [0]\n[[stream]]\nname = \"s\"\n{flow}\n\
             pdu = \"1000 B\"\ndelay = \"100 ms\"\ncost = \"100 us\"\n\
             receive = \"udp://127.0.0.1:5004\"\n\
             [[task]]\nname = \"often\"\nperiod = \"2 ms\"\ncost = \"10 us\"\n"
        )
    };
    let media = "class = \"continuous-media\"\n";
    each_case_counts(
        &stream(&(media.to_owned() + "rate = \"100/s\"")),
        &[
            ("rate = \"100/s\"", "rate = \"200/s\"", "s", "batch"),
            ("delay = \"100 ms\"", "delay = \"50 ms\"", "s", "batch"),
            ("cost = \"100 us\"", "cost = \"1 ms\"", "s", "response_ns_max"),
            ("pdu = \"1000 B\"", "pdu = \"2000 B\"", "s", "buffer_bytes"),
            ("pdu", "quantum = 1\npdu", "often", "response_ns_max"),
            // The burst of a transaction may come at once.
            ("class = \"continuous-media\"", "class = \"transaction\"\nburst = 4", "s", "batch"),
        ],
        plan,
    );
    let transaction = "class = \"transaction\"\nburst = 1\nrate = \"100/s\"";
    each_case_counts(&stream(transaction), &[("burst = 1", "burst = 4", "s", "batch")], plan);
    let bandwidth = media.to_owned() + "bandwidth = \"800 kbit/s\"";
    let cases: &[Case] = &[("800 kbit/s", "1600 kbit/s", "s", "batch")];
    each_case_counts(&stream(&bandwidth), cases, plan);
    let frames = media.to_owned() + "frame = \"4000 B\"\nframe_rate = \"50/s\"";
    let cases: &[Case] = &[
        ("frame = \"4000 B\"", "frame = \"8000 B\"", "s", "batch"),
        ("frame_rate = \"50/s\"", "frame_rate = \"100/s\"", "s", "batch"),
    ];
    each_case_counts(&stream(&frames), cases, plan);
    let transfer = "class = \"bulk\"\nsize = \"1 MB\"\nwithin = \"10 s\"";
    let cases: &[Case] =
        &[("1 MB", "2 MB", "s", "batch"), ("within = \"10 s\"", "within = \"5 s\"", "s", "batch")];
    each_case_counts(&stream(transfer), cases, plan);
    let messages = "class = \"message-stream\"\nmessage = \"4000 B\"\nmessage_rate = \"20/s\"";
    let cases: &[Case] = &[
        ("message = \"4000 B\"", "message = \"8000 B\"", "s", "batch"),
        ("message_rate = \"20/s\"", "message_rate = \"100/s\"", "s", "batch"),
    ];
    each_case_counts(&stream(messages), cases, plan);
}

#[test]
fn every_key_of_a_task_changes_the_simulation() {
    each_case_counts(
        TASKS,
        &[
            ("period = \"10 ms\"", "period = \"20 ms\"", "short", "jobs"),
            ("cost = \"1 ms\"", "cost = \"2 ms\"", "long", "response_ns.max"),
            ("batch = 2", "batch = 4", "short", "pdus"),
            ("batch = 2", "batch = 2\noffset = \"1 s\"", "short", "jobs"),
            ("batch = 6", "batch = 6\nquantum = 6", "short", "response_ns.max"),
            ("batch = 6", "batch = 6\ndeadline = \"13 ms\"", "long", "slack_ns_min"),
        ],
        sim,
    );
    // Two tasks that want the whole CPU each.
    let full = TASKS.replace("batch = 2", "batch = 10").replace("batch = 6", "batch = 20");
    let under = |policy: &str| full.replace("cpus", &format!("policy = \"{policy}\"\ncpus"));
    let cases: &[Case] = &[
        ("batch = 10", "batch = 10\nshare = \"70 %\"", "short", "pdus"),
        ("batch = 10", "batch = 10\nweight = 3", "short", "pdus"),
    ];
    each_case_counts(&under("ps"), cases, sim);
    let cases: &[Case] = &[
        ("batch = 10", "batch = 10\nwindow = \"3/4\"", "short", "completed"),
        ("batch = 10", "batch = 10\nwork_conserving = true", "short", "pdus"),
    ];
    // Equal deadlines, so that the windows decide.
    let equal = under("dwcs").replace("period = \"40 ms\"", "period = \"10 ms\"");
    let equal =
        equal.replace("batch = 20", "batch = 2").replace("cost = \"1 ms\"", "cost = \"900 us\"");
    each_case_counts(&equal, cases, sim);
    let cases: &[Case] = &[
        ("batch = 10", "batch = 10\nclass = \"background\"", "long", "completed"),
        ("batch = 10", "batch = 10\ndelay_bound = \"200 ms\"", "long", "completed"),
    ];
    each_case_counts(&under("dws"), cases, sim);
}

#[test]
fn an_optional_task_is_left_out_and_a_domain_has_its_own_row() {
    let refused = TASKS.replace("cost = \"2 ms\"", "cost = \"6 ms\"");
    assert_eq!(field(&plan(&refused), "admitted"), false);
    let optional = refused.replace("batch = 6", "batch = 6\noptional = true");
    assert_eq!(field(&plan(&optional), "admitted"), true);
    // Tasks of two domains run in two processes, here in virtual time as in one.
    let domains = TASKS.replace("batch = 6", "batch = 6\ndomain = \"other\"");
    assert_eq!(field(named(&plan(&domains), "activities", "long"), "domain"), "other");
}

/// Two full tasks in two groups, one of which is in a third group.
const GROUPS: &str = r#"policy = "ps"
cpus = [0]
[[group]]
name = "a"
weight = 1
[[group]]
name = "b"
weight = 1
[[task]]
name = "in-a"
group = "a"
period = "10 ms"
cost = "1 ms"
batch = 10
[[task]]
name = "in-b"
group = "b"
period = "10 ms"
cost = "1 ms"
batch = 10
"#;

#[test]
fn every_key_of_a_group_changes_the_simulation() {
    each_case_counts(
        GROUPS,
        &[
            ("weight = 1", "weight = 3", "in-a", "pdus"),
            ("weight = 1", "share = \"20 %\"", "in-a", "pdus"),
            // Inside the other group it has half of nothing less than all.
            ("name = \"b\"\nweight = 1", "name = \"b\"\nweight = 2\ngroup = \"a\"", "in-b", "pdus"),
            ("group = \"b\"", "group = \"a\"", "in-b", "lag_ns.max"),
        ],
        sim,
    );
}

/// A sweep of few sets that are simulated.
const SWEEP: &str = "utilizations = [\"90 %\"]\nactivities = [4]\nbatch = 8\nquanta = [4]\n\
                     sets = 8\nseed = 1\nduration = \"200 ms\"\nswitch_costs = [\"20 us\"]\n\
                     periods = [\"5 ms\", \"50 ms\"]\npolicies = [\"rmdp\"]\n";

/// The columns of each row that no key repeats: from `admitted` on.
fn rows(sweep: &str) -> Vec<String> {
    let place = folder();
    let [file, out] = ["sweep.toml", "out.csv"].map(|name| place.path().join(name));
    fs::write(&file, sweep).expect("space on the disk");
    let arguments = ["sweep", file.to_str().expect("UTF-8"), "-o", out.to_str().expect("UTF-8")];
    upcall(&arguments).assert_code(&[0]);
    let text = fs::read_to_string(&out).expect("the rows");
    // The duration repeats its key.
    let found = |row: &str| {
        let found = row.splitn(8, ',').nth(7).expect("eight columns");
        found.rsplit_once(',').map_or(found, |(found, _)| found).to_owned()
    };
    text.lines().skip(1).map(found).collect()
}

#[test]
fn every_key_of_a_sweep_changes_its_rows() {
    let before = rows(SWEEP);
    assert_eq!(before, rows(SWEEP));
    for (from, to) in [
        ("[\"90 %\"]", "[\"40 %\"]"),
        ("activities = [4]", "activities = [12]"),
        ("batch = 8", "batch = 16"),
        ("quanta = [4]", "quanta = [1]"),
        ("sets = 8", "sets = 9"),
        ("seed = 1", "seed = 2"),
        ("duration = \"200 ms\"", "duration = \"400 ms\""),
        ("[\"20 us\"]", "[\"200 us\"]"),
        ("\"50 ms\"]", "\"500 ms\"]"),
        ("[\"rmdp\"]", "[\"dws\"]"),
    ] {
        assert!(SWEEP.contains(from), "{from}");
        assert_ne!(rows(&SWEEP.replace(from, to)), before, "`{from}` -> `{to}`");
    }
}

/// How many rectangles a picture of a trace has, from and to these moments.
#[test]
fn a_picture_has_the_time_between_from_and_to() {
    let file = SpecFile::new(TASKS);
    let [trace, picture] = ["t.pftrace", "t.svg"].map(|name| file.beside(name));
    let arguments = ["sim", file.path(), "--duration", "1s", "--trace", &trace];
    upcall(&arguments).assert_code(&[0]);
    let rectangles = |window: &[&str]| {
        upcall(&[&["plot", &*trace, "-o", &*picture], window].concat()).assert_code(&[0]);
        fs::read_to_string(&picture).expect("a picture").matches("<rect").count()
    };
    let all = rectangles(&["--from", "10ms", "--to", "500ms"]);
    assert!(rectangles(&["--from", "10ms", "--to", "300ms"]) < all);
    assert!(rectangles(&["--from", "300ms", "--to", "500ms"]) < all);
}

#[test]
fn the_flags_of_sim_change_what_is_simulated() {
    let file = SpecFile::new(TASKS);
    let short = |flags: &[&str], figure: &str| {
        let done = upcall(&[&["sim", file.path(), "--json"], flags].concat());
        field(named(&done.assert_code(&[0, 4]).json(), "activities", "short"), figure).clone()
    };
    assert_ne!(short(&["--duration", "1s"], "jobs"), short(&["--duration", "2s"], "jobs"));
    let response = |policy| short(&["--duration", "1s", "--policy", policy], "response_ns.max");
    assert_ne!(response("rm"), response("rmdp"));
    let refused = SpecFile::new(TASKS.replace("cost = \"2 ms\"", "cost = \"6 ms\""));
    let arguments = ["sim", refused.path(), "--duration", "1s", "--json"];
    upcall(&arguments).assert_code(&[3]);
    upcall(&[&arguments[..], &["--soft"]].concat()).assert_code(&[0, 4]);
    // An optional task that is refused is simulated only with the flag.
    let optional = TASKS.replace("cost = \"2 ms\"", "cost = \"6 ms\"");
    let optional = SpecFile::new(optional.replace("batch = 6", "batch = 6\noptional = true"));
    let simulated = |flags: &[&str]| {
        let done = upcall(&[&["sim", optional.path(), "--json"], flags].concat());
        list(&done.assert_code(&[0, 4]).json(), "activities").len()
    };
    assert!(simulated(&[]) < simulated(&["--soft"]));
}

/// Threads of a sweep that runs, by the kernel's count.
#[test]
fn a_sweep_has_as_many_threads_as_the_flag_says() {
    let place = folder();
    let [file, out] = ["sweep.toml", "out.csv"].map(|name| place.path().join(name));
    fs::write(&file, SWEEP.replace("sets = 8", "sets = 100000")).expect("space on the disk");
    let [file, out] = [&file, &out].map(|path| path.to_str().expect("UTF-8"));
    let has = |threads: &str, wanted: &dyn Fn(usize) -> bool| {
        let mut running = start(&["sweep", file, "-o", out, "--threads", threads]);
        let tasks = format!("/proc/{}/task", running.pid());
        let count = || fs::read_dir(&tasks).map_or(0, Iterator::count);
        wait_until("the threads of the sweep", || wanted(count()) || !running.runs());
        let found = count();
        running.signal("KILL");
        running.finish();
        found
    };
    let many = has("9", &|count| count >= 9);
    assert!(many >= 9, "{many}");
    // The first look may come before the threads.
    let few = has("2", &|count| count >= 2);
    assert!(few < 9, "{few}");
}
