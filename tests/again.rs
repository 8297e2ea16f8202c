//! A daemon is killed under running domains and started again. No domain loses a reservation.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{
    Running, SpecFile, UPCALL, UPCALLD, list, number, on_a_cpu, text, truth, upcall, wait_until,
};
use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, CreateError, Runtime};

/// Two domains, which take half a CPU.
const SET: &str = r#"
[[task]]
name = "balance"
period = "10 ms"
cost = "500 us"
batch = 4
domain = "robot"
[[task]]
name = "steer"
period = "20 ms"
cost = "500 us"
batch = 4
domain = "robot"
[[task]]
name = "mixer"
period = "20 ms"
cost = "500 us"
batch = 8
domain = "intercom"
"#;

fn daemon(socket: &str) -> Running {
    support::daemon(&mut Command::new(UPCALLD), Path::new(socket))
}

fn ps(socket: &str) -> Value {
    let done = upcall(&["ps", "--json", "--socket", socket]);
    done.assert_code(&[0]).json()
}

/// The order, CPU, name and domain of each activity, in the order of admission.
fn reserved(seen: &Value) -> Vec<(u64, u64, String, String)> {
    let mut all: Vec<_> = list(seen, "domains")
        .iter()
        .flat_map(|domain| {
            list(domain, "activities").iter().map(|activity| {
                let (name, of) = (text(activity, "name"), text(domain, "name"));
                let (order, cpu) = (number(activity, "order"), number(activity, "cpu"));
                (order, cpu, name.to_owned(), of.to_owned())
            })
        })
        .collect();
    all.sort_unstable();
    all
}

fn handoffs(seen: &Value) -> u64 {
    list(seen, "domains").iter().map(|domain| number(domain, "handoffs")).sum()
}

#[test]
fn a_daemon_that_is_killed_and_started_again_has_the_same_reservations() {
    let _machine = support::machine();
    let spec = SpecFile::new(on_a_cpu(SET));
    let (socket, log) = (spec.beside("upcall.sock"), spec.beside("jobs.csv"));
    let first = daemon(&socket);
    let mut command = Command::new(UPCALL);
    command.args(["run", spec.path(), "--json", "--duration", "3600s", "--csv", &log]);
    let mut running = Running::start(command.env("UPCALL_SOCKET", &socket));
    let length = || fs::metadata(&log).map_or(0, |log| log.len());
    let mut more_jobs = |what: &str| {
        let then = length();
        wait_until(what, || length() > then + 4096 || !running.runs());
        assert!(running.runs(), "the run ended");
    };
    more_jobs("jobs");
    let before = reserved(&ps(&socket));
    assert_eq!(before.len(), 3, "{before:?}");

    first.signal("KILL");
    assert_eq!(first.finish().status.code(), None);
    more_jobs("jobs without a daemon");

    let second = daemon(&socket);
    let mut seen = Value::Null;
    wait_until("the domains", || {
        seen = ps(&socket);
        reserved(&seen) == before
    });
    let then = handoffs(&seen);
    more_jobs("jobs under the second daemon");
    wait_until("hand-offs", || handoffs(&ps(&socket)) > then + 10);

    let attach = Attach { socket: PathBuf::from(&socket), name: "another".to_owned() };
    let config = Config { daemon: Some(attach), ..Config::default() };
    let mut another = Runtime::start(config).unwrap();
    let rest = ActivityParams::new(Span::from_millis(10), Span::from_micros(4_500));
    let error = another.handler("rest", rest, |_| {}).unwrap_err();
    assert!(matches!(error, CreateError::RefusedByDaemon { .. }), "{error:?}");
    drop(another);

    running.signal("INT");
    let run = running.finish().assert_code(&[0, 4]).json();
    assert!(truth(&run, "interrupted"), "{run:#}");
    for activity in list(&run, "activities") {
        assert!(number(activity, "completed") > 10, "{activity:#}");
    }
    second.signal("TERM");
    let told = second.finish().stderr;
    assert_eq!(told.matches("offen").count(), 0, "{told}");
}
