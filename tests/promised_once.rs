//! Two programs never promise the time of one CPU twice: a second run is refused with the reason,
//! or one daemon admits both.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{
    Done, Running, SpecFile, UPCALL, UPCALLD, daemon, list, machine, number, on_a_cpu, text, truth,
    wait_until,
};

const RIGHT: &str = "needs the right to SCHED_FIFO";

/// A task that takes 60 % of a CPU.
const MOST: &str = r#"
switch_cost = "20 us"
[[task]]
name = "most"
period = "2 ms"
cost = "100 us"
batch = 12
"#;

/// A folder of its own for the locks, so that other tests at the same time do not matter, and a
/// socket at which no daemon listens at first.
struct Place(SpecFile);

impl Place {
    fn new(spec: &str) -> Place {
        Place(SpecFile::new(on_a_cpu(spec)))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.0.folder.path();
        command.env("XDG_RUNTIME_DIR", folder).env("UPCALL_SOCKET", self.socket());
        command
    }

    fn socket(&self) -> String {
        self.0.beside("a.sock")
    }

    fn start(&self, options: &[&str]) -> Running {
        let mut command = self.command(UPCALL);
        Running::start(command.args(["run", self.0.path(), "--json"]).args(options))
    }

    fn run(&self, options: &[&str]) -> Done {
        self.start(&[&["--duration", "200ms"], options].concat()).finish()
    }

    /// A run that has done some jobs and would last for an hour.
    fn running(&self, options: &[&str]) -> Running {
        let log = self.0.beside("jobs.csv");
        let _ = fs::remove_file(&log);
        let long = ["--duration", "3600s", "--csv", &log];
        let mut running = self.start(&[&long[..], options].concat());
        let lines = || fs::read_to_string(&log).map_or(0, |log| log.lines().count());
        wait_until("jobs", || lines() > 3 || !running.runs());
        assert!(running.runs(), "{:#?}", running.finish());
        running
    }
}

#[track_caller]
fn assert_refused(done: &Done, reason: &str) {
    let plan = done.assert_code(&[3]).json();
    assert!(!truth(&plan, "admitted"), "{plan:#}");
    let [refusal] = list(&plan, "refusals") else { panic!("{plan:#}") };
    assert_eq!(text(refusal, "name"), "most");
    assert!(text(refusal, "reason").contains(reason), "{refusal:#}");
    assert!(done.stderr.contains(reason), "{done:#?}");
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn a_second_run_on_a_cpu_is_refused_until_the_first_has_ended() {
    assert!(upcall::RealTime::granted().is_ok(), "{RIGHT}");
    let _machine = machine();
    let place = Place::new(MOST);
    let first = place.running(&[]);
    let holder = format!("is taken by process {} (upcall run)", first.pid());
    assert_refused(&place.run(&[]), &holder);
    let done = place.run(&[]);
    let plan = done.json();
    let remedy = "or start `upcalld` first and run both under it";
    assert!(text(&list(&plan, "refusals")[0], "hint").ends_with(remedy), "{plan:#}");
    assert!(done.stderr.contains(remedy), "{done:#?}");
    assert!(list(&plan, "activities")[0]["cpu"].is_null(), "{plan:#}");
    // A soft run promises nothing, and it has the real-time class.
    assert_refused(&place.run(&["--soft"]), &holder);
    // The baseline modes take no lock.
    for mode in ["threads", "fifo"] {
        place.run(&["--mode", mode]).assert_code(&[0, 4]);
    }
    first.signal("KILL");
    assert_eq!(first.finish().code(), -1);
    place.run(&[]).assert_code(&[0, 4]);
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn a_soft_run_holds_its_cpu_without_a_daemon_and_is_a_domain_with_one() {
    assert!(upcall::RealTime::granted().is_ok(), "{RIGHT}");
    let _machine = machine();
    let place = Place::new(MOST);
    let soft = place.running(&["--soft"]);
    let holder = format!("is taken by process {} (upcall run --soft)", soft.pid());
    assert_refused(&place.run(&[]), &holder);
    drop(soft);
    let _own = daemon(&mut place.command(UPCALLD), Path::new(&place.socket()));
    let soft = place.running(&["--soft"]);
    let status = upcall::status::status(Path::new(&place.socket())).unwrap();
    let [domain] = &status.domains[..] else { panic!("{status:#?}") };
    // The name of the spec file.
    assert_eq!(domain.name, "spec");
    soft.signal("INT");
    let run = soft.finish().assert_code(&[0, 4]).json();
    assert!(!truth(&run, "promised"), "{run:#}");
}

/// A CPU of this process that is not the one of the daemon.
fn another_cpu() -> Option<u32> {
    let cpus = upcall::allowed_cpus().expect("the kernel says it");
    cpus.into_iter().find(|&cpu| cpu != support::a_cpu())
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn a_daemon_of_other_cpus_or_another_policy_keeps_no_run_away_without_a_remedy() {
    assert!(upcall::RealTime::granted().is_ok(), "{RIGHT}");
    let _machine = machine();
    let place = Place::new(MOST);
    let socket = place.socket();
    let _own = daemon(&mut place.command(UPCALLD), Path::new(&socket));
    let other = format!("policy = \"dws\"{MOST}");
    fs::write(place.0.path(), on_a_cpu(&other)).unwrap();
    let done = place.run(&[]);
    assert_refused(&done, "schedules by `rmdp`, the spec by `dws`");
    assert!(
        done.stderr.starts_with("upcall: ") && done.stderr.contains("name other `cpus`"),
        "{done:#?}"
    );
    let Some(apart) = another_cpu() else { return support::skipped("one CPU only") };
    for spec in [MOST, &other] {
        fs::write(place.0.path(), format!("cpus = [{apart}]\n{spec}")).unwrap();
        place.run(&[]).assert_code(&[0, 4]);
    }
    let two = support::TWO_DOMAINS.replace("mixer", "most");
    fs::write(place.0.path(), format!("cpus = [{apart}]\n{two}")).unwrap();
    let done = place.run(&[]);
    assert_refused(
        &done,
        &format!("schedules CPUs [{}], the spec names [{apart}]", support::a_cpu()),
    );
    assert!(done.stderr.contains("UPCALL_SOCKET="), "{done:#?}");
    let both = format!("cpus = [{}, {apart}]\n{MOST}", support::a_cpu());
    fs::write(place.0.path(), both).unwrap();
    assert_refused(&place.run(&[]), "schedules CPUs");
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn a_run_starts_no_daemon_on_a_cpu_that_another_run_has_promised() {
    assert!(upcall::RealTime::granted().is_ok(), "{RIGHT}");
    let _machine = machine();
    let place = Place::new(MOST);
    let first = place.running(&[]);
    let two = support::TWO_DOMAINS.replace("mixer", "most");
    fs::write(place.0.path(), on_a_cpu(&two)).unwrap();
    assert_refused(&place.run(&[]), &format!("is taken by process {}", first.pid()));
    let mut command = place.command(UPCALLD);
    command.args(["--cpus", &support::a_cpu().to_string()]);
    let done = Running::start(&mut command).finish();
    assert!(done.assert_code(&[2]).stderr.contains("(upcall run)"), "{done:#?}");
}

#[test]
#[ignore = "needs the right to SCHED_FIFO"]
fn runs_of_one_domain_attach_to_a_daemon_which_admits_or_refuses_them() {
    assert!(upcall::RealTime::granted().is_ok(), "{RIGHT}");
    let _machine = machine();
    let place = Place::new(MOST);
    let _own = daemon(&mut place.command(UPCALLD), Path::new(&place.socket()));
    let first = place.running(&[]);
    let done = place.run(&[]);
    assert_refused(&done, "");
    assert!(done.stderr.contains("the daemon refuses most"), "{done:#?}");
    // 24 % fit beside the 60 %.
    fs::write(place.0.path(), on_a_cpu(&MOST.replace("batch = 12", "batch = 4"))).unwrap();
    let run = place.run(&[]).assert_code(&[0, 4]).json();
    assert!(number(&list(&run, "activities")[0], "completed") > 2, "{run:#}");
    // The daemon schedules by one policy. A run with another one starts no daemon beside it.
    let slow = MOST.replace("2 ms", "20 ms");
    let shares = format!("policy = \"ps\"{slow}share = \"80 %\"\n");
    fs::write(place.0.path(), on_a_cpu(&shares)).unwrap();
    assert_refused(&place.run(&[]), "schedules by `rmdp`, the spec by `ps`");
    drop(first);
}
