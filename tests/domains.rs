//! A spec with several domains. Each is a process of its own. The daemon has one order of all
//! handlers and one admission. No process is left behind.

#![expect(clippy::unwrap_used, reason = "a test")]
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use support::{
    Running, SpecFile, UPCALL, descendants, is_alive, list, machine, number, on_a_cpu, text, truth,
    upcall, wait_until, with_ports,
};
use upcall::scheduler::{Command as CoreCommand, Input};
use upcall_sim::trace::{Crossing, Record, read_all};

/// Three domains of two activities each. One activity is a stream. They take a third of a CPU.
const SET: &str = r#"
switch_cost = "20 us"
[[task]]
name = "balance"
period = "10 ms"
cost = "300 us"
domain = "robot"
[[task]]
name = "steer"
period = "20 ms"
cost = "200 us"
batch = 4
domain = "robot"
[[stream]]
name = "voice"
class = "continuous-media"
rate = "100/s"
pdu = "100 B"
delay = "200 ms"
cost = "300 us"
receive = "udp://127.0.0.1:{}"
source = "embedded"
domain = "intercom"
[[task]]
name = "mixer"
period = "20 ms"
cost = "250 us"
batch = 4
domain = "intercom"
[[task]]
name = "encode"
period = "40 ms"
cost = "250 us"
batch = 16
domain = "recorder"
[[task]]
name = "store"
period = "40 ms"
cost = "500 us"
domain = "recorder"
"#;

/// Two domains, which take a little more than half a CPU.
const HALF: &str = r#"
switch_cost = "20 us"
[[task]]
name = "one"
period = "20 ms"
cost = "250 us"
batch = 20
domain = "left"
[[task]]
name = "two"
period = "20 ms"
cost = "250 us"
batch = 24
domain = "right"
"#;

/// A spec, and the path of the socket of its own daemon.
struct Set {
    spec: SpecFile,
    socket: String,
}

impl Set {
    fn new(text: &str) -> Set {
        let spec = SpecFile::new(on_a_cpu(&with_ports(text).0));
        let socket = spec.beside("upcall.sock");
        Set { spec, socket }
    }

    /// Starts the set under the daemon at `socket`.
    fn start_at(&self, socket: &str, options: &[&str]) -> Running {
        let mut command = Command::new(UPCALL);
        command.args(["run", self.spec.path(), "--json"]).args(options);
        Running::start(command.env("UPCALL_SOCKET", socket))
    }

    fn start(&self, options: &[&str]) -> Running {
        self.start_at(&self.socket, options)
    }

    /// Starts the set for an hour and waits until it has done hundreds of jobs.
    fn started(&self) -> Running {
        self.started_with(&[])
    }

    fn started_with(&self, options: &[&str]) -> Running {
        let log = self.spec.beside("jobs.csv");
        let always = ["--duration", "3600s", "--csv", &log];
        let mut running = self.start(&[&always, options].concat());
        let lines = || fs::read_to_string(&log).map_or(0, |log| log.lines().count());
        wait_until("hundreds of jobs", || lines() > 100 || !running.runs());
        assert!(running.runs(), "{:#?}", running.finish());
        running
    }

    fn assert_nothing_is_left(&self, processes: &[u32]) {
        wait_until("the end of all processes", || processes.iter().all(|&pid| !is_alive(pid)));
        assert!(!fs::exists(&self.socket).unwrap(), "{} is still there", self.socket);
    }
}

/// Descendants of `pid` that were started with the command `word`.
fn started_as(pid: u32, word: &str) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(word.as_bytes())
    };
    descendants(pid).into_iter().filter(is_one).collect()
}

/// Real-time priorities of the threads that run handlers, by process, of the descendants of `pid`.
/// 0 for an ordinary thread.
fn priorities(pid: u32) -> Vec<Vec<u32>> {
    let of = |pid: u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let stats = threads.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        let handlers = stats.filter(|stat| stat.contains("(upcall-cpu"));
        // proc_pid_stat(5): field 40. The third field is the first after the name.
        let of_thread = |stat: String| stat.rsplit_once(')')?.1.split(' ').nth(38)?.parse().ok();
        let mut found: Vec<u32> = handlers.filter_map(of_thread).collect();
        found.sort_unstable();
        found
    };
    started_as(pid, "__domain").into_iter().map(of).collect()
}

#[track_caller]
fn assert_all_ran(run: &Value, activities: usize) {
    assert_eq!(list(run, "activities").len(), activities, "{run:#}");
    for activity in list(run, "activities") {
        // At least a tenth of a second, even if the machine had no more time.
        assert!(number(activity, "completed") > 2, "{activity:#}");
    }
}

#[test]
fn domains_run_as_processes_under_a_daemon_and_leave_nothing_behind() {
    let _machine = machine();
    let set = Set::new(SET);
    let log = set.spec.beside("jobs.csv");
    let mut running = set.start(&["--duration", "2s", "--csv", &log]);
    let pid = running.pid();
    wait_until("three domains", || started_as(pid, "__domain").len() == 3 || !running.runs());
    wait_until("a daemon", || started_as(pid, "daemon").len() == 1 || !running.runs());
    let all = descendants(pid);
    let done = running.finish();
    let run = done.assert_code(&[0, 4]).json();
    set.assert_nothing_is_left(&all);
    assert_eq!(truth(&run, "kept"), done.code() == 0, "{run:#}");
    assert_all_ran(&run, 6);
    let names: Vec<_> = list(&run, "activities").iter().map(|each| text(each, "name")).collect();
    assert_eq!(names, ["balance", "steer", "voice", "mixer", "encode", "store"]);
    assert_eq!(text(&list(&run, "activities")[4], "domain"), "recorder");
    let [voice] = list(&run, "streams") else { panic!("{run:#}") };
    assert!(number(voice, "processed") > 10, "{voice:#}");
    assert!(number(voice, "offered") >= number(voice, "received"), "{voice:#}");
    assert!(number(&run, "switches.domain") > 10, "{run:#}");
    assert!(number(&run, "switches.kernel") > 10, "{run:#}");
    let lines = fs::read_to_string(&log).unwrap().lines().count() as u64;
    let jobs = list(&run, "activities").iter().map(|each| number(each, "completed")).sum::<u64>();
    assert_eq!(lines, 1 + jobs);
}

/// The priorities follow the periods across all processes, although no process knows the others.
#[test]
fn in_the_modes_threads_and_fifo_domains_need_no_daemon() {
    let _machine = machine();
    for mode in ["threads", "fifo"] {
        let set = Set::new(SET);
        let log = set.spec.beside("jobs.csv");
        let mut running = set.start(&["--mode", mode, "--duration", "3s", "--csv", &log]);
        let pid = running.pid();
        let ready = |found: &[Vec<u32>]| found.len() == 3 && found.iter().all(|of| of.len() == 2);
        wait_until("six threads", || ready(&priorities(pid)) || !running.runs());
        // A thread gets its class shortly after its name. Jobs come later.
        let lines = || fs::read_to_string(&log).map_or(0, |log| log.lines().count());
        wait_until("jobs", || lines() > 1 || !running.runs());
        let (mut found, daemons) = (priorities(pid), started_as(pid, "daemon"));
        let all = descendants(pid);
        let done = running.finish();
        let run = done.assert_code(&[0, 4]).json();
        set.assert_nothing_is_left(&all);
        assert!(daemons.is_empty(), "{daemons:?}");
        assert_all_ran(&run, 6);
        assert_eq!((text(&run, "mode"), number(&run, "switches.domain")), (mode, 0));
        let [voice] = list(&run, "streams") else { panic!("{run:#}") };
        assert!(number(voice, "processed") > 10, "{voice:#}");
        let lines = lines() as u64;
        let jobs = list(&run, "activities").iter().map(|each| number(each, "completed"));
        assert_eq!(lines, 1 + jobs.sum::<u64>());

        let periods: Vec<u64> =
            list(&run, "activities").iter().map(|each| number(each, "period_ns")).collect();
        let real_time = mode == "fifo" && truth(&run, "platform.real_time");
        let first = found.iter().flatten().copied().max().unwrap();
        assert_eq!(first > 0, real_time, "{found:?} {run:#}");
        let priority = |period: &u64| {
            let mut shorter: Vec<_> = periods.iter().filter(|other| *other < period).collect();
            shorter.sort_unstable();
            shorter.dedup();
            if real_time { first - u32::try_from(shorter.len()).unwrap() } else { 0 }
        };
        // The activities are in the file by domain, two each.
        let mut expected: Vec<Vec<u32>> =
            periods.chunks(2).map(|two| two.iter().map(priority).collect()).collect();
        expected.iter_mut().for_each(|of| of.sort_unstable());
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{run:#}");
    }
}

#[test]
fn a_comparison_has_the_same_processes_in_every_mode() {
    let _machine = machine();
    let set = Set::new(SET);
    let log = set.spec.beside("jobs.csv");
    let done = set.start(&["--compare", "--duration", "1s", "--csv", &log]).finish();
    let compared = done.assert_code(&[0, 4]).json();
    set.assert_nothing_is_left(&[]);
    let lines = fs::read_to_string(&log).unwrap();
    let runs = list(&compared, "runs");
    let modes: Vec<_> = runs.iter().map(|run| text(run, "mode")).collect();
    assert_eq!(modes, ["upcall", "threads", "fifo"]);
    for run in runs {
        assert_all_ran(run, 6);
        let jobs = list(run, "activities").iter().map(|each| number(each, "completed"));
        let mode = format!("{},", text(run, "mode"));
        let logged = lines.lines().filter(|line| line.starts_with(&mode)).count() as u64;
        assert_eq!(logged, jobs.sum::<u64>(), "{mode}");
    }
    assert!(number(&runs[0], "switches.domain") > 10, "{compared:#}");
}

#[test]
fn without_a_daemon_a_killed_domain_loses_only_its_own_part() {
    let _machine = machine();
    let set = Set::new(SET);
    let mut running = set.started_with(&["--mode", "threads"]);
    let log = set.spec.beside("jobs.csv");
    let lines = || fs::read_to_string(&log).map_or(0, |log| log.lines().count());
    let all = descendants(running.pid());
    support::signal(started_as(running.pid(), "__domain")[0], "KILL");
    let then = lines();
    wait_until("jobs of the others", || lines() > then + 100 || !running.runs());
    running.signal("INT");
    let run = running.finish().assert_code(&[4]).json();
    set.assert_nothing_is_left(&all);
    assert_all_ran(&run, 6);
    let mut broken = list(&run, "broken").iter().filter_map(Value::as_str);
    assert!(broken.any(|line| line.contains("its process was killed (signal: 9")), "{run:#}");
}

#[test]
#[ignore = "needs setpriv and root"]
fn an_ordinary_user_has_domains_and_a_notice_of_missing_promises() {
    let _machine = machine();
    let set = Set::new(SET);
    let program = set.spec.beside("upcall");
    fs::copy(UPCALL, &program).unwrap();
    // The daemon refuses a folder in which another user may replace its socket.
    fs::set_permissions(set.spec.folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args(["--bounding-set", "-all", "--inh-caps", "-all", &program]);
    command.args(["run", set.spec.path(), "--duration", "1s", "--json"]);
    let done = Running::start(command.env("UPCALL_SOCKET", &set.socket)).finish();
    let run = done.assert_code(&[0, 4]).json();
    assert_all_ran(&run, 6);
    assert!(!truth(&run, "platform.real_time"), "{run:#}");
    assert!(done.stderr.contains("NOT promised"), "{done:#?}");
    set.assert_nothing_is_left(&[]);
}

#[test]
fn runs_at_the_same_time_share_one_daemon_and_its_admission() {
    let _machine = machine();
    let (first, small) = (Set::new(HALF), Set::new(SET));
    let running = first.started();
    let all = descendants(running.pid());
    // Alone the same set would be admitted again.
    let refused = first.start(&["--duration", "1s"]).finish();
    let plan = refused.assert_code(&[3]).json();
    assert!(!truth(&plan, "admitted"), "{plan:#}");
    let [refusal] = list(&plan, "refusals") else { panic!("{plan:#}") };
    // 55 % and 25 % fit below 90 %. 30 % more do not.
    assert_eq!(text(refusal, "name"), "two");
    assert!(refused.stderr.contains("the daemon refuses two"), "{refused:#?}");

    let joined = small.start_at(&first.socket, &["--duration", "1s"]).finish();
    assert_all_ran(&joined.assert_code(&[0, 4]).json(), 6);

    let other = Set::new(&format!("policy = \"rm\"\n{HALF}"));
    let unlike = other.start_at(&first.socket, &["--duration", "1s"]).finish();
    assert!(unlike.assert_code(&[3]).stderr.contains("schedules by `rmdp`"), "{unlike:#?}");

    if support::a_cpu() != 0 {
        fs::write(other.spec.path(), format!("cpus = [0]\n{HALF}")).unwrap();
        let unlike = other.start_at(&first.socket, &["--duration", "1s"]).finish();
        assert!(unlike.assert_code(&[3]).stderr.contains("the spec names [0]"), "{unlike:#?}");
    }

    running.signal("INT");
    let run = running.finish().assert_code(&[0, 4]).json();
    assert_all_ran(&run, 2);
    first.assert_nothing_is_left(&all);
}

#[test]
fn ctrl_c_ends_all_domains_and_prints_the_outcome() {
    let _machine = machine();
    for signal in ["INT", "TERM"] {
        let set = Set::new(SET);
        let running = set.started();
        let all = descendants(running.pid());
        running.signal(signal);
        let run = running.finish().assert_code(&[0, 4]).json();
        set.assert_nothing_is_left(&all);
        assert!(truth(&run, "interrupted"), "{run:#}");
        assert_all_ran(&run, 6);
    }
}

#[test]
fn a_killed_domain_loses_only_its_own_part() {
    let _machine = machine();
    let set = Set::new(SET);
    let trace = set.spec.beside("trace");
    let mut running = set.started_with(&["--trace", &trace]);
    let all = descendants(running.pid());
    let victim = started_as(running.pid(), "__domain")[0];
    support::signal(victim, "KILL");
    wait_until("the end of the victim", || !is_alive(victim));
    let length = || fs::metadata(set.spec.beside("jobs.csv")).unwrap().len();
    let then = length();
    wait_until("jobs of the others", || length() > then + 4096 || !running.runs());
    running.signal("INT");
    let run = running.finish().assert_code(&[4]).json();
    set.assert_nothing_is_left(&all);
    assert_all_ran(&run, 6);
    let broken: Vec<_> = list(&run, "broken").iter().filter_map(Value::as_str).collect();
    let lost =
        broken.iter().find(|line| line.contains("its process was killed (signal: 9")).unwrap();
    assert!(lost.starts_with("domain `"), "{lost}");
    let domain = lost.split('`').nth(1).unwrap();
    let (its, others): (Vec<_>, Vec<_>) =
        list(&run, "activities").iter().partition(|each| text(each, "domain") == domain);
    assert_eq!((its.len(), others.len()), (2, 4), "{run:#}");
    assert!(others.iter().all(|each| number(each, "response_ns.max") > 0), "{run:#}");
    // The jobs of the killed domain until then are there, and those of the others to the end.
    let replay = upcall(&["sim", "--json", "--replay", &trace]).assert_code(&[0]).json();
    assert_eq!(list(&replay, "cpus").len(), 3, "{replay:#}");
    assert!(list(&replay, "cpus").iter().all(|of| number(of, "commands") > 10), "{replay:#}");
}

#[test]
fn processes_end_with_a_parent_that_was_killed() {
    let _machine = machine();
    let set = Set::new(SET);
    let running = set.started();
    let all = descendants(running.pid());
    running.signal("KILL");
    assert_eq!(running.finish().status.code(), None);
    set.assert_nothing_is_left(&all);
}

#[test]
fn a_failed_setup_in_a_domain_is_reported_with_its_place() {
    let set = Set::new(SET);
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fs::write(set.spec.path(), on_a_cpu(&SET.replace("{}", &port))).unwrap();
    let done = set.start(&["--duration", "1s"]).finish();
    assert!(done.assert_code(&[2]).stderr.contains("spec.toml:"), "{done:#?}");
    assert!(done.stderr.contains("a free address of this machine"), "{done:#?}");
    set.assert_nothing_is_left(&[]);
}

#[test]
fn a_trace_of_several_processes_gives_the_same_commands_again_domain_by_domain() {
    let _machine = machine();
    let set = Set::new(SET);
    let trace = set.spec.beside("trace");
    let run = set.start(&["--duration", "1s", "--trace", &trace]).finish();
    let run = run.assert_code(&[0, 4]).json();
    let replayed = upcall(&["sim", "--json", "--replay", &trace]);
    let replay = replayed.assert_code(&[0]).json();
    assert!(truth(&replay, "same"), "{replay:#}");
    let domains: Vec<_> = list(&replay, "cpus").iter().map(|of| text(of, "domain")).collect();
    assert_eq!(domains, ["robot", "intercom", "recorder"]);
    let jobs = list(&run, "activities").iter().map(|each| number(each, "completed")).sum::<u64>();
    // At least one command began and one ended each job.
    assert!(number(&replay, "commands") >= 2 * jobs, "{jobs} {replay:#}");
    let traces = read_all(&fs::read(&trace).unwrap()).unwrap();
    let ended = |record: &&Record| match record.crossing {
        Crossing::Command(Some(CoreCommand::JobDone(job)))
        | Crossing::Notice(Some(CoreCommand::JobDone(job))) => job.completed,
        _ => false,
    };
    let told = traces.iter().flat_map(|of| of.records.iter().flatten());
    assert_eq!(told.filter(ended).count() as u64, jobs);

    let picture = set.spec.beside("trace.svg");
    upcall(&["plot", &trace, "-o", &picture]).assert_code(&[0]);
    let picture = fs::read_to_string(&picture).unwrap();
    let arrivals = format!("store={trace}");
    let spec = set.spec.path();
    let again = upcall(&["sim", spec, "--duration", "1s", "--json", "--arrivals", &arrivals]);
    let again = again.assert_code(&[0, 4]).json();
    for activity in list(&run, "activities") {
        let (name, cpu) = (text(activity, "name"), number(activity, "cpu"));
        let domain = text(activity, "domain");
        let place = format!("CPU {cpu} · {domain}");
        assert!(picture.contains(name) && picture.contains(&place), "{name} {place}");
    }
    assert!(number(support::named(&again, "activities", "store"), "jobs") > 2, "{again:#}");
}

#[test]
fn windows_that_a_daemon_would_refuse_run_in_one_process_with_a_notice() {
    let _machine = machine();
    // Two jobs of 6 ms in 10 ms: the windows take turns.
    let task = |name: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\ndomain = \"{name}\"\nperiod = \"10 ms\"\n\
             deadline = \"DUE\"\ncost = \"250 us\"\nbatch = 24\nwindow = \"1/2\"\n"
        )
    };
    let text = format!("policy = \"dwcs\"\nswitch_cost = \"20 us\"\n{}{}", task("a"), task("b"));
    let set = Set::new(&text.replace("DUE", "10 ms"));
    let done = set.start(&["--duration", "1s"]).finish();
    assert_all_ran(&done.assert_code(&[0, 4]).json(), 2);
    let notice = "the 2 domains run in one process: a daemon of dwcs would refuse `b`: with it";
    assert!(done.stderr.contains(notice), "{done:#?}");
    // With a deadline before the end of the period they are processes.
    let set = Set::new(&text.replace("DUE", "8 ms"));
    let running = set.start(&["--duration", "1s"]);
    let outcome = running.finish().assert_code(&[0, 4]).json();
    assert_all_ran(&outcome, 2);
    assert!(number(&outcome, "switches.domain") > 20, "{outcome:#}");
    for activity in list(&outcome, "activities") {
        assert!(activity["window_violations"].is_u64(), "{activity:#}");
    }
}

/// Shares with promises, and a task with a weight in the domain of one of them, which wants more
/// than is left.
const PS_SET: &str = r#"
policy = "ps"
time_quantum = "500 us"
switch_cost = "20 us"
[[task]]
name = "video"
period = "20 ms"
cost = "500 us"
batch = 4
share = "40 %"
domain = "one"
[[task]]
name = "audio"
period = "50 ms"
cost = "250 us"
batch = 4
share = "20 %"
domain = "two"
[[task]]
name = "index"
period = "100 ms"
cost = "250 us"
batch = 400
weight = 1
domain = "one"
"#;

#[test]
fn domains_under_ps_are_processes_with_the_bounds_of_the_plan() {
    let _machine = machine();
    let set = Set::new(PS_SET);
    let planned = upcall(&["plan", set.spec.path(), "--json"]);
    let bounds = |value: &Value| -> Vec<Option<u64>> {
        let all = list(value, "activities").iter();
        all.map(|activity| activity["response_ns_max"].as_u64()).collect()
    };
    let of_plan = bounds(&planned.json());
    assert!(of_plan[0].is_some() && of_plan[1].is_some() && of_plan[2].is_none(), "{of_plan:?}");
    let mut running = set.start(&["--duration", "2s"]);
    let pid = running.pid();
    wait_until("two domains", || started_as(pid, "__domain").len() == 2 || !running.runs());
    let all = descendants(pid);
    let outcome = running.finish().assert_code(&[0, 4]).json();
    set.assert_nothing_is_left(&all);
    assert_eq!(bounds(&outcome), of_plan);
    for activity in list(&outcome, "activities") {
        assert!(number(activity, "completed") > 0, "{activity:#}");
        assert!(activity["lag_ns"]["max"].is_i64(), "{activity:#}");
    }
    assert!(number(&outcome, "switches.domain") > 20, "{outcome:#}");
}

/// A group with members in two domains, which always have work.
const GROUP_SET: &str = r#"
policy = "ps"
switch_cost = "20 us"
[[group]]
name = "video"
share = "40 %"
[[task]]
name = "decode"
period = "40 ms"
cost = "250 us"
batch = 60
weight = 3
group = "video"
domain = "player"
[[task]]
name = "encode"
period = "40 ms"
cost = "250 us"
batch = 60
group = "video"
domain = "recorder"
"#;

#[test]
fn members_of_a_group_in_several_runs_share_it_and_must_agree_on_it() {
    let _machine = machine();
    let set = Set::new(GROUP_SET);
    let running = set.started();
    let all = descendants(running.pid());
    // Another spec says something else of the group.
    let member = GROUP_SET.replace("decode", "filter").replace("encode", "effect");
    let other = Set::new(&member.replace("40 %", "30 %"));
    let refused = other.start_at(&set.socket, &["--duration", "1s"]).finish();
    let why = "group `video` has a share of 40 % in another process of the user, found a share of \
               30 %";
    assert!(refused.assert_code(&[3]).stderr.contains(why), "{refused:#?}");
    // The same again: its members join the group. The share of the group is given away once.
    let trace = set.spec.beside("trace");
    let joined = Set::new(&member);
    let options = ["--duration", "1s", "--trace", &trace];
    let run = joined.start_at(&set.socket, &options).finish().assert_code(&[0, 4]).json();
    assert!(list(&run, "activities").iter().all(|of| number(of, "completed") > 0), "{run:#}");
    running.signal("INT");
    running.finish().assert_code(&[0, 4]);
    set.assert_nothing_is_left(&all);
    // The parts of the group are in the trace, and the schedulers decide the same again.
    let replay = upcall(&["sim", "--json", "--replay", &trace]).assert_code(&[0]).json();
    assert!(truth(&replay, "same"), "{replay:#}");
    let traces = read_all(&fs::read(&trace).unwrap()).unwrap();
    let mut records = traces.iter().flat_map(|of| of.records.iter().flatten());
    let is_part = |record: &Record| match record.crossing {
        // `effect` has 1 of all weights, 3 + 1 + 3 + 1.
        Crossing::Input { input: Input::GroupPart { part, .. }, .. } => {
            (120_000..=130_000).contains(&part.ppm())
        }
        _ => false,
    };
    assert!(records.any(is_part), "no domain was told its part of the group of both runs");
}
