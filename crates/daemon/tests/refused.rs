//! Domains of which admission refused all work, beside an admitted one, under a daemon with the
//! real-time class. They have work at all times. The admitted domain must miss no deadline: neither
//! by a quantum of theirs nor because Linux stops all real-time threads of a CPU that never rests
//! (`watchdog/kept_free.rs`). The majority of three tries without steal decides. The probe of
//! `lost_time` would excuse the fault: it is a real-time thread itself.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::time::Duration;

use upcall_core::activity::ActivityParams;
use upcall_core::time::Span;
use upcall_runtime::{Attach, Batch, Config, Runtime, clock};

use support::Server;

const DOMAINS: usize = 4;

/// A quantum of each of them.
const QUANTUM: Span = Span::from_millis(1);

fn spin(batch: &mut Batch<'_>, quantum: Span) {
    while batch.proceed() {
        let until = clock::now() + quantum;
        while clock::now() < until {}
    }
}

/// A domain whose work admission refuses: it wants a CPU and more.
fn refused(server: &Server, number: usize) -> Runtime {
    let daemon = Some(Attach { socket: server.socket.clone(), name: format!("refused{number}") });
    let config = Config { daemon, unscreened: true, ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let params = ActivityParams::new(Span::from_millis(20), QUANTUM).batch(20).quantum(1);
    let id = runtime.handler("refused", params, |batch| spin(batch, QUANTUM)).unwrap();
    runtime.run(id).unwrap();
    runtime
}

/// Runs all for 3.5 s: Linux counts what the real-time threads of a CPU use in each second.
fn run() -> Result<(), String> {
    let server = Server::start(|_| {});
    let mut admitted = server.attach("admitted");
    // 40 % of the CPU, and a quantum of others fits beside it.
    let params = ActivityParams::new(Span::from_millis(10), QUANTUM).batch(4).quantum(1);
    let shorter = Span::from_micros(900);
    let id = admitted.handler("admitted", params, move |batch| spin(batch, shorter)).unwrap();
    let others: Vec<Runtime> = (0..DOMAINS).map(|number| refused(&server, number)).collect();
    admitted.run(id).unwrap();
    std::thread::sleep(Duration::from_millis(3_500));
    let of = |runtime: Runtime| {
        let counters = runtime.stop(|_, _| {}).activities[0].counters.unwrap();
        (counters.jobs, counters.misses)
    };
    let (jobs, misses) = of(admitted);
    let others: u64 = others.into_iter().map(|other| of(other).0).sum();
    server.stop();
    if misses > 0 {
        return Err(format!("{misses} of {jobs} jobs missed"));
    }
    // Some 53 % of the CPU in quanta of 1 ms, 20 a job, are 93: the others do not just wait.
    if jobs < 300 || others < 75 {
        return Err(format!("{jobs} jobs of the admitted domain, {others} of the others"));
    }
    Ok(())
}

#[test]
#[ignore = "needs the right to the real-time class"]
fn refused_work_that_never_ends_costs_an_admitted_domain_no_deadline() {
    let _alone = support::alone();
    let runtime = upcall_sys::schedule::rt_runtime();
    if runtime.is_none_or(|of| of.runtime_us.is_none()) {
        return support::skipped(None, "the kernel does not limit real-time threads");
    }
    let decided = support::most_kept_of(support::lost_time::steal, run);
    decided.unwrap_or_else(|why| support::skipped(None, &why));
}
