//! No system call between two handlers that are both ready: counted by strace
//! on `crates/upcall/examples/together.rs`.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::{Running, folder, machine, root};

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

#[track_caller]
fn assert_no_call_between(arguments: &[&str]) {
    let program = together();
    let _machine = machine();
    let folder = folder();
    let log = folder.path().join("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(&log).arg(program);
    command.args([HANDLERS.to_string(), JOBS.to_string()]).args(arguments);
    let done = Running::start(&mut command).finish();
    done.assert_code(&[0]);
    let upcalls = HANDLERS * JOBS;
    // A release that comes while the one before still runs, as may happen under
    // strace, is a job too; what counts is that all were upcalled.
    assert!(done.stdout.starts_with(&format!("upcalls {upcalls}, jobs {upcalls},")), "{done:#?}");

    let calls = calls_of("upcall-cpu", &fs::read_to_string(&log).expect("strace wrote it"));
    let futex = calls.get("futex").copied().unwrap_or(0);
    let others: usize = calls.values().sum::<usize>() - futex;
    // One to sleep until each of the JOBS moments of release. Besides: a bell
    // that is rung for each handler's creation and start wakes it once, and it
    // wakes the one who waits for the end of each.
    let sleeps_max = JOBS + 4 * HANDLERS + 16;
    assert!(futex > 0, "strace did not see the sleeps: {calls:?}");
    assert!(futex <= sleeps_max, "{futex} futex calls, expected at most {sleeps_max}: {calls:?}");
    assert!(others <= SETUP_MAX, "{others} other calls, expected at most {SETUP_MAX}: {calls:?}");
}

/// How often each system call was made by the thread of that name, from strace's
/// log: a pid, then the call. A call that another thread's output cuts in two is
/// counted where it begins.
fn calls_of(name: &str, log: &str) -> BTreeMap<String, usize> {
    let lines = || {
        log.lines().filter_map(|line| {
            let (pid, call) = line.split_once(' ')?;
            Some((pid, call.trim_start()))
        })
    };
    let naming = format!("prctl(PR_SET_NAME, \"{name}");
    let threads: Vec<&str> =
        lines().filter(|(_, call)| call.starts_with(&naming)).map(|(pid, _)| pid).collect();
    let [thread] = threads.as_slice() else {
        panic!("expected one thread named {name}, found {threads:?}");
    };
    let mut calls = BTreeMap::new();
    for (pid, call) in lines() {
        let name = call.split('(').next().unwrap_or_default();
        let begins = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if pid == *thread && begins && call.contains('(') {
            *calls.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::calls_of;

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
        let calls = calls_of("upcall-cpu", log);
        assert_eq!(
            calls.into_iter().collect::<Vec<_>>(),
            [("futex".to_owned(), 1), ("prctl".to_owned(), 1)]
        );
    }
}
