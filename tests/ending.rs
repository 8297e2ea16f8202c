//! A run that ends early: Ctrl-C, SIGTERM, SIGKILL, a reader that closes the pipe, a full disk. No
//! process is left behind.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{
    Running, SpecFile, UPCALL, descendants, is_alive, list, machine, named, number, start, truth,
    upcall, wait_until, wait_until_bound, with_ports,
};

/// Senders, a stream to the test, a hog of upcall, and a program that reports its start.
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
[[stream]]
name = "echo"
class = "continuous-media"
rate = "50/s"
pdu = "100 B"
delay = "100 ms"
cost = "100 us"
send = "udp://ECHO"
[[background]]
name = "hog"
spin = 2
[[background]]
name = "trace"
command = ["sh", "-c", "echo $$ > TRACE; exec sleep 1000"]
"#;

/// The set, the port of its stream `voice`, and the socket at which its echo arrives.
fn set() -> (SpecFile, u16, UdpSocket) {
    let (text, ports) = with_ports(SET);
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = echo.local_addr().expect("it is bound").to_string();
    let spec = SpecFile::new("");
    let text = text.replace("TRACE", &spec.beside("trace")).replace("ECHO", &address);
    fs::write(spec.path(), text).expect("the file is writable");
    (spec, ports[0], echo)
}

/// Starts the set for an hour and waits until it has done jobs: the socket is bound, the background
/// load and the senders run, and an echo has come. Returns the pids of all processes that it
/// started.
fn started(options: &[&str]) -> (SpecFile, Running, Vec<u32>) {
    let (spec, port, echo) = set();
    let mut arguments = vec!["run", spec.path(), "--duration", "3600s"];
    arguments.extend(options);
    let mut running = start(&arguments);
    wait_until_bound(&mut running, port);
    let trace = spec.beside("trace");
    wait_until("the background load", || fs::metadata(&trace).is_ok_and(|file| file.len() > 0));
    // The hog, the trace and the senders, which start last.
    wait_until("the senders", || descendants(running.pid()).len() >= 3);
    echo.set_read_timeout(Some(Duration::from_secs(60))).expect("not zero");
    // Echoes of several jobs, so that jobs are running when the test interrupts them.
    for _ in 0..10 {
        echo.recv(&mut [0; 100]).expect("an echo within a minute");
    }
    let children = descendants(running.pid());
    let background: u32 =
        fs::read_to_string(trace).expect("the trace").trim().parse().expect("a pid");
    assert!(children.contains(&background), "{children:?}, {background}");
    (spec, running, children)
}

/// Waits for the end. The bound is generous, because a busy machine may need more than the
/// specified second. Without the interrupt the run would last an hour.
fn assert_ends_early(running: &mut Running) {
    wait_until("the end of an interrupted run", || !running.runs());
}

fn assert_all_gone(children: &[u32]) {
    wait_until("the end of all it started", || children.iter().all(|&pid| !is_alive(pid)));
}

#[test]
fn ctrl_c_and_sigterm_end_the_run_and_print_the_outcome() {
    let _machine = machine();
    for signal in ["INT", "TERM"] {
        let (_spec, mut running, children) = started(&["--json"]);
        running.signal(signal);
        assert_ends_early(&mut running);
        // All children have ended before the run ends, so that a caller can rely on it.
        assert!(children.iter().all(|&pid| !is_alive(pid)), "{signal}: {children:?}");
        let done = running.finish();
        let outcome = done.assert_code(&[0, 4]).json();
        assert!(truth(&outcome, "interrupted"));
        assert!(number(&outcome, "duration_ns") < 3_600_000_000_000);
        for activity in list(&outcome, "activities") {
            assert!(number(activity, "jobs") > 0, "{outcome:#}");
        }
        assert!(number(named(&outcome, "streams", "echo"), "processed") >= 10, "{outcome:#}");
        for background in list(&outcome, "background") {
            assert!(number(background, "cpu_ns") > 0, "{background:#}");
        }
    }
}

#[test]
fn an_interrupted_run_prints_its_table() {
    let _machine = machine();
    let (_spec, mut running, children) = started(&[]);
    running.signal("INT");
    assert_ends_early(&mut running);
    assert_all_gone(&children);
    let done = running.finish();
    done.assert_code(&[0, 4]);
    assert!(done.stdout.contains("\ninterrupted\n"), "{done:#?}");
    assert!(done.stdout.contains("voice"), "{done:#?}");
}

#[test]
fn an_interrupted_comparison_does_not_begin_the_next_mode() {
    let _machine = machine();
    let (_spec, mut running, children) = started(&["--compare", "--json"]);
    running.signal("INT");
    assert_ends_early(&mut running);
    assert_all_gone(&children);
    let done = running.finish();
    let comparison = done.assert_code(&[0, 4]).json();
    let [run] = list(&comparison, "runs") else { panic!("{comparison:#}") };
    assert!(truth(run, "interrupted"));
}

#[test]
fn the_job_log_of_an_interrupted_run_is_complete() {
    let _machine = machine();
    let folder = support::folder();
    let path = folder.path().join("jobs.csv");
    let path = path.to_str().expect("UTF-8");
    let (_spec, mut running, _) = started(&["--json", "--csv", path]);
    running.signal("INT");
    assert_ends_early(&mut running);
    let outcome = running.finish().assert_code(&[0, 4]).json();
    let log = fs::read_to_string(path).expect("the log was written");
    assert!(log.ends_with('\n'));
    let activities = list(&outcome, "activities").iter();
    let completed: u64 = activities.map(|activity| number(activity, "completed")).sum();
    assert!(completed > 0);
    assert_eq!(log.lines().count() as u64, 1 + completed);
}

#[test]
fn children_end_with_a_parent_that_was_killed() {
    let _machine = machine();
    let (_spec, running, children) = started(&["--json"]);
    running.signal("KILL");
    let done = running.finish();
    assert_eq!(done.status.code(), None, "{done:#?}");
    assert_all_gone(&children);
}

#[test]
fn a_run_that_ends_in_time_leaves_nothing_behind() {
    let _machine = machine();
    let (spec, ..) = set();
    // Long enough to be noticed if this test is stopped meanwhile.
    let running = start(&["run", spec.path(), "--duration", "3s", "--json"]);
    wait_until("the senders", || descendants(running.pid()).len() >= 3);
    let children = descendants(running.pid());
    let outcome = running.finish().assert_code(&[0, 4]).json();
    assert!(children.iter().all(|&pid| !is_alive(pid)), "{children:?}");
    assert!(!truth(&outcome, "interrupted"));
}

/// As with `| head -1`: the reader takes one line and closes the pipe.
#[test]
fn a_closed_pipe_is_no_failure_of_a_run() {
    let _machine = machine();
    let (spec, ..) = set();
    let mut child = Command::new(UPCALL)
        .args(["run", spec.path(), "--duration", "1s"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("upcall starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert!(!line.is_empty());
    // The reader is dropped, so the outcome is written to a closed pipe.
    let output = child.wait_with_output().expect("upcall ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{:?} {stderr}", output.status);
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn other_commands_survive_a_closed_pipe_too() {
    let plan = support::example("conference.toml");
    for command in ["\"$0\" plan \"$1\"", "\"$0\" completions bash", "\"$0\" --help"] {
        // In the braces the status goes to a file descriptor that stays open.
        let script = format!("{{ {command}; echo status $? >&2; }} | true");
        let output =
            Command::new("sh").args(["-c", &script, UPCALL, &plan]).output().expect("a shell");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{command}: {stderr}");
        assert!(stderr.contains("status 0"), "{command}: {stderr}");
    }
}

#[test]
fn a_full_disk_loses_the_job_log_but_not_the_outcome() {
    let _machine = machine();
    let (spec, ..) = set();
    let done = upcall(&["run", spec.path(), "--duration", "1s", "--json", "--csv", "/dev/full"]);
    let outcome = done.assert_code(&[2]).json();
    assert!(number(&list(&outcome, "activities")[0], "jobs") > 0, "{outcome:#}");
    assert!(done.stderr.contains("job log"), "{done:#?}");
    assert!(done.stderr.contains("No space left on device"), "{done:#?}");
}

/// Runs a command line of the shell, in which `$0` is the program and `$1` the set. Returns its
/// exit status.
fn status_of(script: &str, set: &str) -> Option<i32> {
    let mut command = Command::new("sh");
    command.args(["-c", script, UPCALL, set]).stdin(Stdio::null()).stdout(Stdio::null());
    // Used if a script does not redirect standard error.
    command.stderr(Stdio::null()).status().expect("a shell").code()
}

#[test]
fn a_standard_error_that_is_full_or_closed_changes_no_exit_status() {
    let set = support::example("conference.toml");
    for (command, code) in [
        ("plan /nowhere", 2),
        ("plot \"$1\" -o /nowhere/x.svg", 2),
        ("ps --socket /nowhere", 2),
        ("man /dev/null/x", 2),
        ("daemon --socket /nowhere/x --switch-cost 1us", 2),
        ("nonsense", 2),
        ("plan \"$1\"", 0),
    ] {
        for target in ["2>/dev/full", "2>&-"] {
            let script = format!("\"$0\" {command} {target}");
            assert_eq!(status_of(&script, &set), Some(code), "{script}");
        }
    }
}

/// A run writes notices and progress to standard error, and so does its daemon.
#[test]
fn a_run_survives_a_full_standard_error_in_one_process_and_in_several() {
    let _machine = machine();
    let (alone, ..) = set();
    let together = support::example("domains.toml");
    for set in [alone.path(), &together] {
        // Longer than the time to the first line of progress.
        let script = "UPCALL_SOCKET=$(mktemp -u) \"$0\" run \"$1\" --soft --duration 6s \
                      --json 2>/dev/full";
        // A busy machine may break promises.
        assert!(matches!(status_of(script, set), Some(0 | 4)), "{set}");
    }
}

#[test]
fn an_outcome_that_cannot_be_written_is_a_failure() {
    let file = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let status = Command::new(UPCALL)
        .args(["plan", &support::example("conference.toml"), "--json"])
        .stdout(file)
        .stderr(Stdio::null())
        .status()
        .expect("upcall starts");
    assert_eq!(status.code(), Some(2));
}
