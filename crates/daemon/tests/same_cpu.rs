//! A handler that asks for the CPU of another one, in a process whose admission is the daemon's.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::Write as _;

use upcall_core::activity::ActivityParams;
use upcall_core::time::Span;
use upcall_runtime::{CreateError, Need, allowed_cpus};

use support::Server;

/// `percent` of a CPU, in every 10 ms.
fn part(percent: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(10), Span::from_micros(100 * percent))
}

#[test]
fn a_domains_handler_is_on_the_cpu_of_the_one_it_names_or_is_refused() {
    let test = "a_domains_handler_is_on_the_cpu_of_the_one_it_names_or_is_refused";
    let cpus: Vec<u32> = allowed_cpus().unwrap().into_iter().take(2).collect();
    if cpus.len() < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: one CPU");
        return;
    }
    let _alone = support::alone();
    let server = Server::start(|config| config.cpus.clone_from(&cpus));
    let mut runtime = server.attach("domain");
    let mut create = |name: &str, need: Need| runtime.handler(name, need, |_| {});
    let big = create("big", part(60).into()).unwrap();
    let head = create("head", part(40).into()).unwrap();
    let second = create("second", Need::from(part(10)).same_cpu_as(head)).unwrap();
    let other = create("other", part(10).into()).unwrap();
    let refused = create("third", Need::from(part(45)).same_cpu_as(head)).unwrap_err();
    let CreateError::RefusedByDaemon { reason, .. } = &refused else { panic!("{refused}") };
    let start = format!("it must be on CPU {}, the CPU of `head`: with it", cpus[1]);
    assert!(reason.starts_with(&start), "{reason}");
    let cpu = |id| runtime.place(id).unwrap().0;
    assert_eq!([cpu(big), cpu(other)], [cpus[0]; 2]);
    assert_eq!([cpu(head), cpu(second)], [cpus[1]; 2]);
    drop(runtime);
    server.stop();
}
