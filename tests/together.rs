//! There is no system call between two ready handlers. strace counts the calls of
//! `crates/upcall/examples/together.rs`.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{Running, UPCALLD, folder, machine, root};
use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, Runtime, clock};

const HANDLERS: usize = 8;
const JOBS: usize = 200;

/// Calls of a scheduling thread for its start and end: name, stack, signal stack, pinning, class,
/// and the undoing of these.
const SETUP_MAX: usize = 40;

/// Builds the example with the profile of this program. Returns its path.
fn together() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root());
    command.args(["build", "--locked", "--package", "upcall", "--example", "together"]);
    command.args(["--message-format", "json"]);
    // The build has no time limit: it may start from nothing, or wait for another build.
    let output = command.output().expect("cargo starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = built.filter(|message| message["target"]["name"] == "together");
    let mut paths =
        executable.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    paths.next_back().expect("cargo names the program")
}

/// Tries of a run that a stall of the host disturbs.
const TRIES_MAX: usize = 5;

#[test]
#[ignore = "needs strace"]
fn between_two_ready_handlers_there_is_no_system_call() {
    assert_no_call_between(&[]);
}

/// Virtual masking: both masks are set and released for each PDU (split-level-1991 §3.3).
#[test]
#[ignore = "needs strace"]
fn masking_preemption_and_interrupts_takes_no_system_call() {
    assert_no_call_between(&["masked"]);
}

/// The same among domains: the turn is passed on when no handler of this domain is ready, and not
/// between two ready handlers. perf counts here, because strace stops a thread at each call, and a
/// domain that is stopped with the turn loses it.
#[test]
#[ignore = "needs perf and root"]
fn between_two_ready_handlers_of_a_domain_there_is_no_system_call() {
    let program = together();
    let _machine = machine();
    let folder = folder();
    let socket = folder.path().join("upcall.sock");
    let _daemon = support::daemon(&mut Command::new(UPCALLD), &socket);
    // Another domain, whose handler has the lowest rank.
    let attach = Attach { socket: socket.clone(), name: "beside".into() };
    let mut beside = Runtime::start(Config { daemon: Some(attach), ..Config::default() })
        .expect("the daemon answers");
    let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(200));
    let handler = beside
        .handler("beside", need, |batch| while batch.proceed() {})
        .expect("the handler is admitted");
    beside.run_at(&[handler], clock::now()).expect("the handler is suspended");

    let log = folder.path().join("calls");
    // Two calls each time that the turn is passed on: to notify and to sleep. The thread reads its
    // CPU clock each 100 ms, for the credit of work over budget, and each millisecond after a stall
    // of the host. So one try of some counts.
    let mut tries = (0..TRIES_MAX).map(|_| {
        let mut command = Command::new("perf");
        command.args(["trace", "--summary", "--output"]).arg(&log).arg("--").arg(&program);
        let thread = run_all(command.env("UPCALL_SOCKET", &socket), &[]);
        let text = fs::read_to_string(&log).expect("perf wrote it");
        assert!(!text.contains("LOST"), "{text}");
        let mut calls = calls_in_summary(&thread, &text);
        (calls.remove("clock_gettime").unwrap_or(0), calls)
    });
    let (mut most, mut kept) = (0, None);
    for (clock_reads, calls) in &mut tries {
        if clock_reads <= JOBS / 4 {
            kept = Some(calls);
            break;
        }
        most = most.max(clock_reads);
    }
    let report = beside.stop(|_, _| {});
    let jobs = report.activities[0].counters.map_or(0, |counters| counters.completed);
    assert!(jobs > 2 && report.domain_switches > 2, "{jobs} jobs, {report:#?}");
    let calls = kept.unwrap_or_else(|| panic!("{most} reads of a clock in {JOBS} moments"));
    assert_few(&calls, 2);
}

#[track_caller]
fn assert_no_call_between(arguments: &[&str]) {
    let program = together();
    let _machine = machine();
    // One call, to sleep.
    assert_few(&calls_in(&program, arguments), 1);
}

/// The calls of the thread that runs all handlers, by strace.
#[track_caller]
fn calls_in(program: &Path, arguments: &[&str]) -> BTreeMap<String, usize> {
    let folder = folder();
    let log = folder.path().join("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(&log).arg(program);
    let thread = run_all(command.env_remove("UPCALL_SOCKET"), arguments);
    calls_of(&thread, &fs::read_to_string(&log).expect("strace wrote it"))
}

/// Runs until all handlers were upcalled JOBS times. Returns the thread that ran them.
#[track_caller]
fn run_all(command: &mut Command, arguments: &[&str]) -> String {
    command.args([HANDLERS.to_string(), JOBS.to_string()]).args(arguments);
    let done = Running::start(command).finish();
    done.assert_code(&[0]);
    let upcalls = HANDLERS * JOBS;
    // Under strace a release may come while the job before is still running. It is a job too. The
    // test requires that all were upcalled.
    assert!(done.stdout.starts_with(&format!("upcalls {upcalls}, jobs {upcalls},")), "{done:#?}");
    let (_, thread) = done.stdout.trim_end().rsplit_once("thread ").expect("the thread");
    assert!(thread.parse::<u32>().is_ok(), "{done:#?}");
    thread.into()
}

/// Checks that there are `of_a_moment` calls for each of the JOBS moments of release, and none for
/// each upcall.
#[track_caller]
fn assert_few(calls: &BTreeMap<String, usize>, of_a_moment: usize) {
    let futex = calls.get("futex").copied().unwrap_or(0);
    let others: usize = calls.values().sum::<usize>() - futex;
    // In addition, the wake word is notified for the creation and the start of each handler, which
    // wakes the thread once each. The thread also notifies the waiter at the end of each handler.
    let sleeps_max = of_a_moment * (JOBS + 4 * HANDLERS) + 16;
    assert!(futex > 0, "strace did not see the sleeps: {calls:?}");
    assert!(futex <= sleeps_max, "{futex} futex calls, expected at most {sleeps_max}: {calls:?}");
    assert!(others <= SETUP_MAX, "{others} other calls, expected at most {SETUP_MAX}: {calls:?}");
}

/// The same from perf's summary: a line with the thread, a table with its calls, and an empty line.
/// The thread is not found by its name. perf reads the records of one CPU after another. If it
/// reads the name before the thread, it forgets the name and the calls until then.
fn calls_in_summary(thread: &str, summary: &str) -> BTreeMap<String, usize> {
    let of_thread =
        |line: &&str| line.contains(&format!("({thread}), ")) && line.contains(" events, ");
    let lines = summary.lines().map(str::trim);
    assert_eq!(lines.clone().filter(of_thread).count(), 1, "thread {thread} in {summary}");
    let table = lines.skip_while(|line| !of_thread(line)).skip_while(|line| !line.contains("---"));
    let rows = table.skip(1).take_while(|line| !line.is_empty());
    let count = |row: &str| {
        let mut columns = row.split_whitespace();
        Some((columns.next()?.to_owned(), columns.next()?.parse().ok()?))
    };
    rows.filter_map(count).collect()
}

/// The count of each system call of that thread, from strace's log: a pid, then the call. A call
/// that the output of another thread cuts in two is counted at its beginning.
fn calls_of(thread: &str, log: &str) -> BTreeMap<String, usize> {
    let lines = log.lines().filter_map(|line| {
        let (pid, call) = line.split_once(' ')?;
        Some((pid, call.trim_start()))
    });
    let mut calls = BTreeMap::new();
    for (pid, call) in lines {
        let name = call.split('(').next().unwrap_or_default();
        let begins = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if pid == thread && begins && call.contains('(') {
            *calls.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::{calls_in_summary, calls_of};

    #[test]
    fn calls_are_counted_for_one_thread_and_where_they_begin() {
        let log = "\
7 prctl(PR_SET_NAME, \"upcall-cpu1\") = 0
8 prctl(PR_SET_NAME, \"other\") = 0
7 futex(0x1, FUTEX_WAIT <unfinished ...>
8 getpid() = 8
7 <... futex resumed>) = 0
7 +++ exited with 0 +++
";
        let calls = calls_of("7", log);
        assert_eq!(
            calls.into_iter().collect::<Vec<_>>(),
            [("futex".to_owned(), 1), ("prctl".to_owned(), 1)]
        );
    }

    #[test]
    fn calls_of_one_thread_are_in_its_table() {
        let summary = "
 Summary of events:

 together (7), 9 events, 90.0%

   syscall            calls  errors  total       min
                                     (msec)    (msec)
   --------------- --------  ------ -------- ---------
   brk                    8      0     1.557     0.002

 together (8), 2 events, 10.0%

   syscall            calls  errors  total       min
                                     (msec)    (msec)
   --------------- --------  ------ -------- ---------
   futex                222      0   955.054     0.002
   gettid                 2      0     0.002     0.002

";
        let calls = calls_in_summary("8", summary);
        assert_eq!(
            calls.into_iter().collect::<Vec<_>>(),
            [("futex".to_owned(), 222), ("gettid".to_owned(), 2)]
        );
    }
}
