//! `upcall exec`, `share` and `adopt`, as whole programs, on the control groups of this machine.
//!
//! A daemon must be able to make groups. Where it cannot, such as for an ordinary user without a
//! delegated group, each test says that it was skipped, and what was missing.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, CreateError, Need, Runtime};

use support::Type::{Bool, Count, CountOrNull, Float, FloatOrNull, Object, Text};
use support::{
    Done, Running, UPCALL, UPCALLD, a_cpu, assert_fields, assert_kept, field, folder, list, number,
    skipped, text, truth, upcall, wait_until,
};

/// Rounds of kills in each order; `UPCALL_KILL_ROUNDS` asks for others.
const KILL_ROUNDS: usize = 1;

/// A daemon for one test.
struct Daemon {
    running: Running,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// A daemon that can make groups. Otherwise says that the test is skipped.
    fn start() -> Option<Daemon> {
        let folder = folder();
        let socket = folder.path().join("upcall.sock");
        let running = support::daemon(&mut Command::new(UPCALLD), &socket);
        let daemon = Daemon { running, socket, _folder: folder };
        let done = daemon.exec("--share 1% --json -- true").finish();
        if done.code() == 2 && text(&report(&done), "cause") == "no groups" {
            skipped(text(&report(&done), "reason"));
            return None;
        }
        done.assert_code(&[0]);
        Some(daemon)
    }

    fn command(&self, command: &str, words: &str) -> Command {
        let mut upcall = Command::new(UPCALL);
        upcall.arg(command).arg("--socket").arg(&self.socket).args(words.split_whitespace());
        upcall
    }

    fn exec(&self, words: &str) -> Running {
        Running::start(&mut self.command("exec", words))
    }

    fn ask(&self, command: &str, words: &str) -> Done {
        Running::start(&mut self.command(command, words)).finish()
    }

    fn programs(&self) -> Vec<Value> {
        let status = self.ask("ps", "--json");
        status.assert_code(&[0]);
        list(&status.json(), "programs").to_vec()
    }

    /// The only program, once it is there.
    fn program(&self) -> Value {
        let mut programs = Vec::new();
        wait_until("a program", || {
            programs = self.programs();
            !programs.is_empty()
        });
        assert_eq!(programs.len(), 1, "{programs:#?}");
        programs.remove(0)
    }

    /// Waits until the program's process executes `name`.
    fn program_that_runs(&self, name: &str) -> Value {
        let program = self.program();
        let comm = format!("/proc/{}/comm", number(&program, "pid"));
        wait_until("the program", || {
            fs::read_to_string(&comm).is_ok_and(|found| found.trim() == name)
        });
        program
    }
}

/// The object on the last line of standard error.
#[track_caller]
fn report(done: &Done) -> Value {
    let last = done.stderr.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {done:#?}"))
}

/// A process that wants all of the test's CPU, outside of any program.
fn hog() -> Running {
    let cpu = a_cpu().to_string();
    Running::start(Command::new("taskset").args(["-c", &cpu, UPCALL, "__spin", "1"]))
}

/// Words of a program that wants all of its CPU for some seconds.
fn spin(seconds: &str) -> String {
    format!("-- timeout {seconds} {UPCALL} __spin 1")
}

fn float(value: &Value, path: &str) -> f64 {
    field(value, path).as_f64().unwrap()
}

fn near(what: &str, found: f64, expected: f64, within: f64) -> Result<(), String> {
    match (found - expected).abs() <= within {
        true => Ok(()),
        false => Err(format!("{what}: found {found}, expected {expected} +- {within}")),
    }
}

fn at_least(what: &str, found: f64, least: f64) -> Result<(), String> {
    match found >= least {
        true => Ok(()),
        false => Err(format!("{what}: found {found}, expected {least} or more")),
    }
}

/// Programs get more than their shares while other processes are busy on other CPUs: the kernel
/// divides the weight of all others among the CPUs (decision 0020). So this test has a lower bound.
#[test]
fn two_programs_get_their_shares_beside_a_hog() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let _hog = hog();
    let (cpu, spin) = (a_cpu(), spin("3"));
    assert_kept(cpu, || {
        let options = format!("--cpu {cpu} --json");
        let first = daemon.exec(&format!("--share 45% {options} {spin}"));
        let second = daemon.exec(&format!("--share 20% {options} {spin}"));
        wait_until("both programs", || daemon.programs().len() == 2);
        for program in daemon.programs() {
            assert_eq!((text(&program, "name"), number(&program, "cpu")), ("timeout", cpu.into()));
        }
        for (running, share) in [(first, 0.45), (second, 0.2)] {
            let done = running.finish();
            // `timeout` ends with this status.
            done.assert_code(&[124]);
            assert_eq!(done.stdout, "");
            let report = report(&done);
            assert_is_a_report(&report);
            assert_eq!(float(&report, "share"), share);
            at_least("share", float(&report, "share_of_wanted"), share - 0.01)?;
            at_least("share of all time", float(&report, "share_of_time"), share - 0.01)?;
        }
        Ok(())
    });
    wait_until("the end of both programs", || daemon.programs().is_empty());
}

/// Checks the fields of a report of a program with a share (docs/contract.md).
fn assert_is_a_report(report: &Value) {
    assert_fields(
        report,
        &[
            ("program", Text),
            ("pid", Count),
            ("admitted", Bool),
            ("exit_status", Count),
            ("signal", CountOrNull),
            ("cpu", Count),
            ("share", FloatOrNull),
            ("weight", CountOrNull),
            ("kept_to_end", Bool),
            ("changed", Bool),
            ("duration_ns", Count),
            ("cpu_ns", Count),
            ("wanted_ns", Count),
            ("share_of_time", Float),
            ("share_of_wanted", Float),
            ("lag_ns", Object),
            ("lag_ns.now", Count),
            ("lag_ns.p99", Count),
            ("lag_ns.max", Count),
            ("lag_ns.samples", Count),
            ("wait_ns_mean", Count),
            ("wait_ns_by_sample.p50", Count),
            ("wait_ns_by_sample.p99", Count),
            ("wait_ns_by_sample.max", Count),
            ("wait_ns_by_sample.samples", Count),
            ("slices", Count),
            ("completion_ns_by_lag", CountOrNull),
            ("promise.burst_ns", Count),
            ("promise.quantum_ns", Count),
            ("promise.lag_ns_max", Count),
            ("promise.completion_ns_max", CountOrNull),
            ("promise.ticker", Bool),
        ],
    );
    assert!(truth(report, "admitted") && truth(report, "kept_to_end"));
    assert!(!truth(report, "changed"));
}

#[test]
fn a_weight_divides_what_shares_leave() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let _hog = hog();
    let cpu = a_cpu();
    assert_kept(cpu, || {
        let done = daemon.exec(&format!("--weight 3 --json {}", spin("2"))).finish();
        done.assert_code(&[124]);
        let report = report(&done);
        assert!(field(&report, "promise").is_null() && field(&report, "lag_ns").is_null());
        // Three parts for the program, one for all other processes.
        at_least("part of the CPU", float(&report, "share_of_wanted"), 0.7)
    });
}

#[test]
fn a_share_that_is_too_small_for_its_period_is_refused_with_one_that_fits() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let folder = folder();
    let file = folder.path().join("it-ran");
    let touch = format!("-- touch {}", file.display());
    let mut fits = Vec::new();
    for quantum in ["1ms", "500us"] {
        let terms = format!("--share 45% --cost 5ms --period 11ms --quantum {quantum}");
        let refused = daemon.exec(&format!("{terms} --json {touch}")).finish();
        refused.assert_code(&[3]);
        assert_eq!(refused.stdout, "");
        let object = report(&refused);
        assert_eq!(text(&object, "cause"), "share too small");
        assert!(!truth(&object, "admitted"));
        fits.push(float(&object, "share_that_fits"));
        let said = format!("upcall: refused touch: {}; nothing was run", text(&object, "reason"));
        assert!(refused.stderr.lines().any(|line| line == said), "{refused:#?}");
    }
    // (5 ms + 2 q) / 11 ms.
    near("1 ms", fits[0], 7.0 / 11.0, 1e-5).unwrap();
    near("500 us", fits[1], 6.0 / 11.0, 1e-5).unwrap();
    assert!(!file.exists());

    let much = daemon.exec(&format!("--share 99% {touch}")).finish();
    much.assert_code(&[3]);
    assert!(much.stderr.contains("is free"), "{much:#?}");
    let nowhere = daemon.exec(&format!("--share 5% --cpu 4000 {touch}")).finish();
    nowhere.assert_code(&[2]);
    assert!(!file.exists());

    // Without a share it gets the one that fits.
    let done = daemon.exec(&format!("--cost 5ms --period 11ms --json {touch}")).finish();
    done.assert_code(&[0]);
    near("share", float(&report(&done), "share"), fits[0], 1e-5).unwrap();
    assert!(number(&report(&done), "promise.completion_ns_max") <= 11_000_000);
    let told = daemon.exec(&format!("--cost 5ms --period 11ms {}", spin("0.3"))).finish();
    told.assert_code(&[124]);
    for row in ["lag", "wake-up latency", "completion"] {
        let line = told.stderr.lines().find(|line| line.starts_with(row));
        assert!(line.is_some_and(|line| line.contains("max ")), "no max of {row}: {told:#?}");
    }
    assert!(file.exists());
}

/// 30 ms in each 100 ms with 40 %: handlers of 1 ms leave that, and handlers of 20 ms do not.
#[test]
fn a_handler_that_would_break_the_period_of_a_program_is_refused() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let attach = Attach { socket: daemon.socket.clone(), name: "domain".to_owned() };
    let config = Config { daemon: Some(attach), ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let handler = |runtime: &mut Runtime, cost_ms| {
        let (period, cost) = (Span::from_millis(100), Span::from_millis(cost_ms));
        let need = Need::from(ActivityParams::new(period, cost));
        runtime.handler(&format!("{cost_ms} ms"), need, |_| {}).map(drop)
    };
    let program = daemon.exec("--share 40% --cost 30ms --period 100ms -- sleep 1000");
    let id = number(&daemon.program_that_runs("sleep"), "id");
    let refused = handler(&mut runtime, 20).unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, CreateError::RefusedByDaemon { .. }), "{said}");
    let expected = format!("program {id} (`sleep`) on CPU {} would get ", a_cpu());
    assert!(said.contains(&expected) && said.contains("promised 30 ms"), "{said}");
    handler(&mut runtime, 1).unwrap();
    program.signal("TERM");
    program.finish().assert_code(&[143]);
    wait_until("the end of the program", || daemon.programs().is_empty());
    handler(&mut runtime, 20).unwrap();
}

/// A file of this machine, for the fields of a process (proc_pid_stat(5)): the 41st is its class.
fn class_in(stat: &str) -> &str {
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(38).unwrap()
}

/// The shell has the class `SCHED_DEADLINE` (6), and what it starts is ordinary.
#[test]
#[ignore = "needs the right to SCHED_DEADLINE (root)"]
fn a_program_with_a_deadline_has_the_class_alone_and_no_daemon_beside_it() {
    let _machine = support::machine();
    let exec = |words: &str, script: &str| {
        let mut command = Command::new(UPCALL);
        command.args(["exec", "--deadline", "--json"]).args(words.split_whitespace());
        Running::start(command.args(["--", "sh", "-c", script]))
    };
    let script = "read line < /proc/$$/stat; echo \"$line\"; cat /proc/self/stat; exit 7";
    let done = exec("--cost 5ms --period 20ms", script).finish();
    if done.code() == 2 && text(&report(&done), "cause") == "no right" {
        return skipped(text(&report(&done), "reason"));
    }
    done.assert_code(&[7]);
    let classes: Vec<&str> = done.stdout.lines().map(class_in).collect();
    assert_eq!(classes, ["6", "0"], "{done:#?}");
    assert_fields(
        &report(&done),
        &[
            ("program", Text),
            ("pid", Count),
            ("admitted", Bool),
            ("exit_status", Count),
            ("signal", CountOrNull),
            ("cost_ns", Count),
            ("period_ns", Count),
            ("duration_ns", Count),
            ("cpu_ns", Count),
        ],
    );
    // The kernel takes no less than 1,024 ns.
    let little = exec("--cost 1us --period 20ms", "exit 7").finish();
    little.assert_code(&[2]);
    assert_eq!(text(&report(&little), "cause"), "terms");

    // A daemon that could have handlers has a CPU.
    let folder = folder();
    let socket = folder.path().join("upcall.sock");
    let daemon = support::daemon(&mut Command::new(UPCALLD), &socket);
    let refused = exec("--cost 5ms --period 20ms", "exit 7").finish();
    refused.assert_code(&[3]);
    let object = report(&refused);
    let holder = format!("CPU {} is taken by process {} (upcalld)", a_cpu(), daemon.pid());
    assert!(text(&object, "reason").contains(&holder), "{object:#}");
    assert!(refused.stderr.contains("nothing was run"), "{refused:#?}");
    drop(daemon);

    // And the other way round.
    let running = exec("--cost 5ms --period 20ms", "exec sleep 1000");
    // The locks are taken before.
    wait_until("the program", || !support::descendants(running.pid()).is_empty());
    let mut second = Command::new(UPCALLD);
    second.args(["--cpus", &a_cpu().to_string(), "--switch-cost", "20us", "--socket"]).arg(&socket);
    wait_until("a daemon is refused", || {
        let mut daemon = Running::start(&mut second);
        wait_until("its end or its answer", || {
            !daemon.runs() || upcall::daemon_answers(&socket) == Ok(true)
        });
        !daemon.runs() && daemon.finish().stderr.contains("upcall exec --deadline")
    });
    running.signal("TERM");
    running.finish().assert_code(&[143]);
}

#[test]
fn signals_reach_the_program_and_its_exit_status_is_passed_on() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let script = |script: &str| {
        let mut command = daemon.command("exec", "--share 5% -- sh -c");
        Running::start(command.arg(script)).finish()
    };
    let ends = [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)];
    for (text, code) in ends {
        let done = script(text);
        done.assert_code(&[code]);
        // The report for people.
        for part in ["upcall: sh ", "promised", "lag", "share"] {
            assert!(done.stderr.contains(part), "no `{part}`: {done:#?}");
        }
    }
    let done = script("echo out; echo err >&2");
    assert_eq!(done.stdout, "out\n");
    assert!(done.stderr.starts_with("err\n"), "{done:#?}");

    for (signal, status) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let running = daemon.exec("--share 5% --json -- sleep 1000");
        daemon.program_that_runs("sleep");
        running.signal(signal);
        let done = running.finish();
        done.assert_code(&[status]);
        assert_eq!(number(&report(&done), "exit_status"), u64::try_from(status).unwrap());
        wait_until("the end of the program", || daemon.programs().is_empty());
    }

    daemon.exec("--share 5% -- /nonexistent/program").finish().assert_code(&[127]);
    daemon.exec("--share 5% -- /").finish().assert_code(&[126]);
    daemon.exec("-- true").finish().assert_code(&[2]);
}

#[test]
fn a_share_is_changed_and_given_back_while_the_program_runs() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let running = daemon.exec("--share 20% --json -- sleep 1000");
    let program = daemon.program_that_runs("sleep");
    let pid = number(&program, "pid");
    assert_eq!(float(&program, "share"), 0.2);

    let changed = daemon.ask("share", &format!("--json {pid} 30%"));
    changed.assert_code(&[0]);
    assert_eq!(float(&changed.json(), "share"), 0.3);
    assert_eq!(float(&daemon.program(), "share"), 0.3);
    let line = daemon.ask("share", &format!("{pid} 25%"));
    line.assert_code(&[0]);
    assert!(line.stdout.contains("25 % of CPU"), "{line:#?}");

    let refused = daemon.ask("share", &format!("{pid} 99%"));
    refused.assert_code(&[3]);
    assert!(refused.stderr.contains("nothing was changed"), "{refused:#?}");
    assert_eq!(float(&daemon.program(), "share"), 0.25);
    // This process is no program.
    let other = daemon.ask("share", &format!("{} 10%", std::process::id()));
    other.assert_code(&[2]);

    daemon.ask("share", &format!("{pid} none")).assert_code(&[0]);
    assert_eq!(daemon.programs(), [] as [Value; 0]);
    running.signal("TERM");
    let done = running.finish();
    done.assert_code(&[143]);
    assert!(done.stderr.contains("without its share: its share was given back"), "{done:#?}");
    let report = report(&done);
    assert!(truth(&report, "changed") && !truth(&report, "kept_to_end"));
}

#[test]
fn a_running_process_is_adopted_with_what_it_started() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let cpu = a_cpu();
    let shell = Running::start(Command::new("sh").args(["-c", "sleep 1000 & wait"]));
    let pid = shell.pid();
    wait_until("the child of the shell", || children_of(pid) == 1);
    let terms = [
        (format!("--share 20% --cpu {cpu}"), "share", 0.2),
        ("--cost 1ms --period 20ms --quantum 2ms".to_owned(), "share", 0.25),
        ("--weight 2".to_owned(), "weight", 2.0),
    ];
    for (terms, key, expected) in terms {
        let done = daemon.ask("adopt", &format!("{pid} --json {terms}"));
        done.assert_code(&[0]);
        let program = daemon.program();
        near(key, float(&program, key), expected, 1e-6).unwrap();
        assert_eq!((number(&program, "processes"), number(&program, "pid")), (2, pid.into()));
        assert_eq!(text(&program, "name"), "sh");
        daemon.ask("share", &format!("{pid} none")).assert_code(&[0]);
        assert_eq!(daemon.programs(), [] as [Value; 0]);
    }
    let line = daemon.ask("adopt", &format!("{pid} --share 10%"));
    line.assert_code(&[0]);
    assert!(line.stdout.contains("10 % of CPU"), "{line:#?}");
    // It ends with its last process.
    let child = fs::read_to_string(children_file(pid)).unwrap();
    support::signal(child.trim().parse().unwrap(), "KILL");
    shell.finish();
    wait_until("the end of the program", || daemon.programs().is_empty());
    daemon.ask("adopt", &format!("{pid} --share 10%")).assert_code(&[2]);
}

fn children_file(pid: u32) -> String {
    format!("/proc/{pid}/task/{pid}/children")
}

fn children_of(pid: u32) -> usize {
    fs::read_to_string(children_file(pid)).unwrap_or_default().split_whitespace().count()
}

#[test]
fn a_program_runs_on_when_its_daemon_is_killed() {
    let _machine = support::machine();
    let Some(daemon) = Daemon::start() else { return };
    let running = daemon.exec("--share 20% --json -- sleep 1000");
    let program = daemon.program_that_runs("sleep");
    let (pid, of_daemon) = (number(&program, "pid"), daemon.running.pid());
    daemon.running.signal("KILL");
    wait_until("no group of the daemon", || groups_of(of_daemon).is_empty());
    // The program has not ended.
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    running.signal("TERM");
    let done = running.finish();
    done.assert_code(&[143]);
    assert!(!truth(&report(&done), "kept_to_end"));
}

#[test]
fn exec_starts_a_daemon_that_ends_with_the_program() {
    let _machine = support::machine();
    if Daemon::start().is_none() {
        return;
    }
    let folder = folder();
    let socket = folder.path().join("own.sock");
    let mut command = Command::new(UPCALL);
    command.args(["exec", "--share", "5%", "--json", "--", "true"]);
    let done = Running::start(command.env("UPCALL_SOCKET", &socket)).finish();
    done.assert_code(&[0]);
    assert_eq!(text(&report(&done), "program"), "true");
    wait_until("the end of the daemon", || upcall::daemon_answers(&socket) == Ok(false));
    // `share` and `adopt` start none.
    let pid = std::process::id().to_string();
    let at = socket.to_str().unwrap();
    for command in [["share", &pid, "20%"], ["adopt", &pid, "--share=20%"]] {
        let done = upcall(&[&command[..], &["--socket", at]].concat());
        done.assert_code(&[2]);
        assert!(done.stderr.contains("no daemon"), "{done:#?}");
    }
}

/// Who is killed first, second and third.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// kill -9 of command, program and daemon in every order leaves no group, no process of Upcall, and
/// no thread of the program on one CPU. What a killed daemon left is removed by its supervisor.
#[test]
fn kills_in_any_order_leave_nothing() {
    let _machine = support::machine();
    let mut sorted = ORDERS;
    sorted.sort_unstable();
    // Six different orders of three.
    assert!(sorted.windows(2).all(|two| two[0] < two[1]) && ORDERS.len() == 6);
    let asked = std::env::var("UPCALL_KILL_ROUNDS").ok();
    let rounds = asked.and_then(|rounds| rounds.parse().ok()).unwrap_or(KILL_ROUNDS);
    let cpus = allowed_cpus("thread-self");
    for (round, order) in (0..rounds).flat_map(|round| ORDERS.map(|order| (round, order))) {
        let Some(daemon) = Daemon::start() else { return };
        let mut command = daemon.command("exec", "--share 20% -- sh -c");
        let script = "sleep 2000 < /dev/null > /dev/null 2>&1 & exec sleep 1000";
        let exec = Running::start(command.arg(script));
        let program = daemon.program_that_runs("sleep");
        let pid = u32::try_from(number(&program, "pid")).unwrap();
        let child = fs::read_to_string(children_file(pid)).unwrap();
        let child: u32 = child.trim().parse().unwrap();
        assert_eq!(allowed_cpus(&child.to_string()), a_cpu().to_string());
        let of_daemon = daemon.running.pid();
        assert!(!groups_of(of_daemon).is_empty());
        let socket = daemon.socket.clone();
        assert!(processes_with(socket.to_str().unwrap()).len() >= 2);
        let all = [exec.pid(), pid, of_daemon];
        for who in order {
            // The command ends by itself with the program.
            if Path::new(&format!("/proc/{}/exe", all[who])).exists() {
                let _ = Command::new("kill").args(["-9", &all[who].to_string()]).output().unwrap();
            }
            // The dead are waited for, so that they leave no zombie of this process.
            if who == 1 {
                let exe = format!("/proc/{pid}/exe");
                wait_until("the program's end", || !Path::new(&exe).exists());
            }
        }
        exec.finish();
        daemon.running.finish();
        let when = format!("in round {round}, order {order:?}");
        wait_until(&format!("no group {when}"), || groups_of(of_daemon).is_empty());
        wait_until(&format!("no daemon, command or supervisor {when}"), || {
            let words = [socket.to_str().unwrap(), &format!("upcall-{of_daemon}-")];
            words.iter().all(|word| processes_with(word).is_empty())
        });
        // What the program started has outlived it, and runs as before.
        wait_until(&format!("the former CPUs {when}"), || allowed_cpus(&child.to_string()) == cpus);
        support::signal(child, "KILL");
        wait_until("the end of the child", || !Path::new(&format!("/proc/{child}/exe")).exists());
    }
}

/// The CPUs of the first thread of a process, as the kernel lists them.
fn allowed_cpus(process: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    found.unwrap_or_default().trim().to_owned()
}

/// The processes with this text in their command line.
fn processes_with(text: &str) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_text = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(text)
    };
    numbers.filter(has_text).collect()
}

/// The control groups of a daemon.
fn groups_of(daemon: u32) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![PathBuf::from("/sys/fs/cgroup")], Vec::new());
    let prefix = format!("upcall-{daemon}-");
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|of| of.is_dir());
            if !is_folder {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                found.push(entry.path());
            }
            folders.push(entry.path());
        }
    }
    found
}
