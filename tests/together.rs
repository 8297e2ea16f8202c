//! No system call between two handlers that are both ready: counted by strace
//! on `crates/upcall/examples/together.rs`.

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

/// Calls a scheduling thread makes to set itself up and to end, whatever runs
/// on it: name, stack, signal stack, pinning, class, and the undoing of these.
const SETUP_MAX: usize = 40;

/// Builds the example as this program was built, and says where it lies.
fn together() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root());
    command.args(["build", "--locked", "--package", "upcall", "--example", "together"]);
    command.args(["--message-format", "json"]);
    // However long that takes: it may find little built, or wait for another.
    let output = command.output().expect("cargo starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = built.filter(|message| message["target"]["name"] == "together");
    let mut paths =
        executable.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    paths.next_back().expect("cargo names what it built")
}

#[test]
#[ignore = "needs strace"]
fn between_two_ready_handlers_there_is_no_system_call() {
    assert_no_call_between(&[]);
}

/// Virtual masking: both levels go up and down for each PDU (split-level-1991 §3.3).
#[test]
#[ignore = "needs strace"]
fn masking_preemption_and_interrupts_takes_no_system_call() {
    assert_no_call_between(&["masked"]);
}

/// Among domains too: the turn is passed on when no handler of this one is ready, and
/// not between two that are. By perf: strace stops a thread at each call, and who is
/// stopped with the turn loses it.
#[test]
#[ignore = "needs perf and root"]
fn between_two_ready_handlers_of_a_domain_there_is_no_system_call() {
    let program = together();
    let _machine = machine();
    let folder = folder();
    let socket = folder.path().join("upcall.sock");
    let _daemon = support::daemon(&mut Command::new(UPCALLD), &socket);
    // Another domain, whose handler the others outrank.
    let attach = Attach { socket: socket.clone(), name: "beside".into() };
    let mut beside = Runtime::start(Config { daemon: Some(attach), ..Config::default() })
        .expect("the daemon answers");
    let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(200));
    let handler =
        beside.handler("beside", need, |batch| while batch.proceed() {}).expect("there is room");
    beside.run_at(&[handler], clock::now()).expect("it is suspended");

    let log = folder.path().join("calls");
    let mut command = Command::new("perf");
    command.args(["trace", "--summary", "--output"]).arg(&log).arg("--").arg(program);
    let thread = run_all(command.env("UPCALL_SOCKET", &socket), &[]);
    let text = fs::read_to_string(&log).expect("perf wrote it");
    assert!(!text.contains("LOST"), "{text}");
    let report = beside.stop(|_, _| {});
    let jobs = report.activities[0].counters.map_or(0, |counters| counters.completed);
    assert!(jobs > 2 && report.domain_switches > 2, "{jobs} jobs, {report:#?}");
    // Two for each time that the turn is passed on: to ring and to sleep.
    assert_few(&summed_up(&thread, &text), 2);
}

#[track_caller]
fn assert_no_call_between(arguments: &[&str]) {
    let program = together();
    let _machine = machine();
    // One to sleep.
    assert_few(&calls_in(&program, arguments), 1);
}

/// Calls of the thread that runs all handlers, by strace.
#[track_caller]
fn calls_in(program: &Path, arguments: &[&str]) -> BTreeMap<String, usize> {
    let folder = folder();
    let log = folder.path().join("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(&log).arg(program);
    let thread = run_all(command.env_remove("UPCALL_SOCKET"), arguments);
    calls_of(&thread, &fs::read_to_string(&log).expect("strace wrote it"))
}

/// Has all handlers upcalled JOBS times, and says by which thread.
#[track_caller]
fn run_all(command: &mut Command, arguments: &[&str]) -> String {
    command.args([HANDLERS.to_string(), JOBS.to_string()]).args(arguments);
    let done = Running::start(command).finish();
    done.assert_code(&[0]);
    let upcalls = HANDLERS * JOBS;
    // A release that comes while the one before still runs, as may happen under
    // strace, is a job too; what counts is that all were upcalled.
    assert!(done.stdout.starts_with(&format!("upcalls {upcalls}, jobs {upcalls},")), "{done:#?}");
    let (_, thread) = done.stdout.trim_end().rsplit_once("thread ").expect("it names its thread");
    assert!(thread.parse::<u32>().is_ok(), "{done:#?}");
    thread.into()
}

/// So many for each of the JOBS moments of release, and none for each upcall.
#[track_caller]
fn assert_few(calls: &BTreeMap<String, usize>, of_a_moment: usize) {
    let futex = calls.get("futex").copied().unwrap_or(0);
    let others: usize = calls.values().sum::<usize>() - futex;
    // Besides: a bell that is rung for each handler's creation and start wakes it
    // once, and it wakes the one who waits for the end of each.
    let sleeps_max = of_a_moment * (JOBS + 4 * HANDLERS) + 16;
    assert!(futex > 0, "strace did not see the sleeps: {calls:?}");
    assert!(futex <= sleeps_max, "{futex} futex calls, expected at most {sleeps_max}: {calls:?}");
    assert!(others <= SETUP_MAX, "{others} other calls, expected at most {SETUP_MAX}: {calls:?}");
}

/// The same from perf's summary: a line with the thread, a table with its calls, an
/// empty line behind it. Not by the thread's name: perf reads what each CPU recorded in
/// turn, and one that hears of the name before it hears of the thread forgets the name,
/// and the calls until then.
fn summed_up(thread: &str, summary: &str) -> BTreeMap<String, usize> {
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

/// How often each system call was made by that thread, from strace's log: a pid, then
/// the call. A call that another thread's output cuts in two is counted where it begins.
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
    use super::{calls_of, summed_up};

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
        let calls = summed_up("8", summary);
        assert_eq!(
            calls.into_iter().collect::<Vec<_>>(),
            [("futex".to_owned(), 222), ("gettid".to_owned(), 2)]
        );
    }
}
