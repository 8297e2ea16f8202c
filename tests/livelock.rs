//! `upcall bench livelock`, as a whole program in network namespaces of its own.
//!
//! The tests compare what became of packets, and no times. They need root and ip(8); a test whose
//! machine has no namespaces or control groups says that it was skipped.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;
use upcall_sys::process::effective_user;

use support::{UPCALL, field, folder, list, number, signal, skipped, start, text, wait_until};

/// The user `nobody`.
const USER: u32 = 65_534;

/// The namespaces of the run with this process number.
fn namespaces(pid: u32) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let begin = format!("upcall-livelock-{pid}-");
    names.filter(|name| name.starts_with(&begin)).map(str::to_owned).collect()
}

/// Whether this machine lets this process make a namespace. Says why not.
fn has_namespaces() -> bool {
    if effective_user() != 0 {
        skipped("needs root, which makes network namespaces");
        return false;
    }
    let name = format!("upcall-test-{}", std::process::id());
    let ip = |verb: &str| Command::new("ip").args(["netns", verb, &name]).output();
    let why = match ip("add") {
        Ok(done) if done.status.success() => {
            ip("delete").unwrap();
            match upcall::allowed_cpus().unwrap().len() {
                1 => "one CPU".to_owned(),
                _ => return true,
            }
        }
        Ok(done) => String::from_utf8_lossy(&done.stderr).trim().to_owned(),
        Err(error) => format!("ip: {error}"),
    };
    skipped(&why);
    false
}

#[test]
fn an_ordinary_user_is_told_in_one_line_that_root_is_needed() {
    let folder = folder();
    let program = folder.path().join("upcall");
    let mut command = match effective_user() {
        0 => {
            // Where that user may execute it.
            fs::copy(UPCALL, &program).unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let mut command = Command::new(&program);
            command.uid(USER).gid(USER);
            command
        }
        _ => Command::new(UPCALL),
    };
    let output = command.args(["bench", "livelock"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in ["upcall bench livelock: found user ", "expected root"] {
        assert!(said.contains(part), "no `{part}`: {said}");
    }
    assert!(output.stdout.is_empty());
}

/// The only run of a cell.
fn run_of(cell: &Value) -> &Value {
    &list(cell, "runs")[0]
}

/// A receiver of that run.
fn receiver<'j>(cell: &'j Value, name: &str) -> &'j Value {
    let receivers = list(run_of(cell), "receivers");
    receivers.iter().find(|receiver| text(receiver, "name") == name).unwrap()
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_quota_drops_a_flood_before_it_reaches_a_socket() {
    let _machine = support::machine();
    if !has_namespaces() {
        return;
    }
    let (folder, svg) = (folder(), "livelock.svg");
    let svg = folder.path().join(svg);
    let words = "bench livelock --config 1,5 --flood 20k --duration 2s --json --svg";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.push(svg.to_str().unwrap());
    let running = start(&words);
    let pid = running.pid();
    let done = running.finish();
    if done.code() == 2 && done.stderr.contains("no right to") {
        return skipped(done.stderr.lines().last().unwrap_or_default());
    }
    done.assert_code(&[0]);
    assert_eq!(namespaces(pid), Vec::<String>::new());
    let outcome = done.json();
    let cells = list(&outcome, "cells");
    assert_eq!(cells.iter().map(|cell| number(cell, "config")).collect::<Vec<_>>(), [1, 5]);
    for cell in cells {
        assert_eq!(text(cell, "senders"), "flood 20k");
        for receiver in list(run_of(cell), "receivers") {
            let of = |name| number(receiver, name);
            let known = of("packets") + of("left") + of("drops_at_socket") + of("drops_at_ip");
            assert_eq!(known, of("sent"), "{receiver:#}");
            assert!(of("on_time") <= of("packets") && of("sent") > 0, "{receiver:#}");
        }
    }
    let (plain, scheduled) = (&cells[0], &cells[1]);
    let of = |cell, name, key| number(receiver(cell, name), key);
    // The plain kernel works on packets and drops them at the socket; the quota drops them before.
    assert!(of(plain, "file", "drops_at_socket") > 0, "{plain:#}");
    assert!(field(run_of(plain), "quota_drops").is_null(), "{plain:#}");
    assert!(of(scheduled, "file", "drops_at_ip") > of(scheduled, "file", "packets"));
    assert!(number(run_of(scheduled), "quota_drops") > 0, "{scheduled:#}");
    for name in ["audio", "video"] {
        assert_eq!(of(scheduled, name, "drops_at_socket"), 0, "{scheduled:#}");
    }
    let picture = fs::read_to_string(svg).unwrap();
    assert!(picture.contains("5: PS for programs") && picture.contains("flood 20k"));
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_run_that_was_killed_leaves_nothing_to_the_next_one() {
    let _machine = support::machine();
    if !has_namespaces() {
        return;
    }
    let killed = start(&["bench", "livelock", "--config", "1", "--duration", "1min"]);
    let pid = killed.pid();
    // From then on, a receiver is in the namespace.
    let pids = |namespace: &str| {
        let output = Command::new("ip").args(["netns", "pids", namespace]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    let receivers = format!("upcall-livelock-{pid}-rx");
    wait_until("receivers", || namespaces(pid).len() == 2 && pids(&receivers) == 4);
    signal(pid, "KILL");
    assert_eq!(killed.finish().code(), -1);
    assert_eq!(namespaces(pid).len(), 2);
    wait_until("the processes of the killed run end", || pids(&receivers) == 0);
    let next = ["bench", "livelock", "--config", "1", "--senders", "constant", "--duration"];
    let next = start(&[&next[..], &["200ms"]].concat());
    let next_pid = next.pid();
    let done = next.finish();
    done.assert_code(&[0]);
    assert!(done.stderr.contains(&format!("removed {receivers}")), "{}", done.stderr);
    for pid in [pid, next_pid] {
        assert_eq!(namespaces(pid), Vec::<String>::new());
    }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn an_interrupted_run_prints_what_it_has_and_removes_its_namespaces() {
    let _machine = support::machine();
    if !has_namespaces() {
        return;
    }
    let words = "bench livelock --config 1 --senders constant --runs 1000 --duration 500ms --json";
    let running = start(&words.split(' ').collect::<Vec<_>>());
    let pid = running.pid();
    wait_until("the namespaces", || namespaces(pid).len() == 2);
    // Some runs end before the signal. Which of them is all the same.
    std::thread::sleep(std::time::Duration::from_secs(2));
    signal(pid, "INT");
    let done = running.finish();
    done.assert_code(&[0]);
    assert_eq!(namespaces(pid), Vec::<String>::new());
    assert_eq!(done.json()["interrupted"], true);
    assert!(done.stderr.contains("interrupted in run"), "{}", done.stderr);
}
