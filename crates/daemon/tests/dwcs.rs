//! DWCS across processes: domains of a daemon are put in one order by their deadlines and windows
//! (docs/decisions/0022).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use upcall_core::activity::{ActivityParams, Terms, Window};
use upcall_core::admission::{Reason, Share};
use upcall_core::discipline::DWCS;
use upcall_core::time::{Instant, Span};
use upcall_daemon::server::DaemonEvent;
use upcall_runtime::{CreateError, HandlerId, Runtime, clock};
use upcall_sys::process::effective_user;

use support::{ChildProcess, ROLE, Server, attach, read_line};

const fn need(period_ms: u64, pdus: u32) -> ActivityParams {
    ActivityParams::new(Span::from_millis(period_ms), Span::from_millis(1)).batch(pdus).quantum(1)
}

/// Starts a handler that takes `pdu` for each PDU.
fn spinning(runtime: &mut Runtime, need: ActivityParams, pdu: Span) -> HandlerId {
    let window = Some(Window { misses: 1, periods: 3 });
    let terms = Terms { window, ..Terms::default() };
    let handler = runtime.handler("spins", (need, terms), move |batch| {
        while batch.proceed() {
            let until = clock::now() + pdu;
            while clock::now() < until {}
        }
    });
    handler.unwrap()
}

/// No test of its own: the others start it. Its role has the socket of the daemon, and how many us
/// a PDU takes.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (socket, pdu_us) = role.split_once('|').unwrap();
    let mut runtime = attach(Path::new(socket), "child", &DWCS);
    let id = spinning(&mut runtime, need(30, 6), Span::from_micros(pdu_us.parse().unwrap()));
    println!("#ready ");
    runtime.run_at(&[id], Instant::from_nanos(read_line().parse().unwrap())).unwrap();
    assert_eq!(read_line(), "end");
    let counters = runtime.stop(|_, _| {}).activities[0].counters.unwrap();
    println!("#counters {} {}", counters.jobs, counters.misses);
}

#[test]
fn a_daemon_admits_what_misses_nothing_whenever_processes_start() {
    let _alone = support::alone();
    let server = Server::start(|config| config.discipline = &DWCS);
    let mut runtime = server.attach("domain");
    let loose = Terms { window: Some(Window { misses: 1, periods: 2 }), ..Terms::default() };
    let half = ActivityParams::new(Span::from_millis(10), Span::from_micros(5_000));
    runtime.handler("half", (half, loose), |_| {}).unwrap();
    // In one process the windows would take turns: 1/2 of each of two activities.
    let refused = runtime.handler("other", (half, loose), |_| {}).unwrap_err();
    let CreateError::RefusedByDaemon { reason, .. } = &refused else { panic!("{refused}") };
    assert!(!reason.is_empty());
    // The daemon has no event server to give.
    let refused = runtime.reserve_events(support::cpu(), Share::from_ppm(10_000)).unwrap_err();
    assert_eq!(refused.reason, Reason::NoEventServer { policy: "dwcs" });
    drop(runtime);
    server.stop();
}

/// Three domains in two processes reserve 80 % of a CPU. One takes `child_us` for each PDU, which
/// declares 1 ms. Returns the jobs and misses of each, the child's last, the turns that the first
/// domain passed on, and the offences.
fn run(child_us: u64) -> ([(u64, u64); 3], u64, Vec<DaemonEvent>) {
    let server = Server::start(|config| config.discipline = &DWCS);
    let program = Command::new(std::env::current_exe().unwrap());
    let role = format!("{}|{child_us}", server.socket.display());
    let mut child = ChildProcess::start(program, effective_user(), &role);
    child.read_word("ready");
    let own = [need(40, 12), need(60, 18)].map(|need| {
        let mut runtime = server.attach("own");
        let id = spinning(&mut runtime, need, Span::from_micros(900));
        (runtime, id)
    });
    let at = clock::now() + Span::from_millis(20);
    child.write_line(&at.as_nanos().to_string());
    let own = own.map(|(mut runtime, id)| {
        runtime.run_at(&[id], at).unwrap();
        runtime
    });
    std::thread::sleep(Duration::from_millis(1_500));
    let reports = own.map(|runtime| runtime.stop(|_, _| {}));
    child.write_line("end");
    let of_child = child.numbers("counters");
    drop(child);
    let [one, two] = reports.each_ref().map(|report| {
        let counters = report.activities[0].counters.unwrap();
        (counters.jobs, counters.misses)
    });
    let is_offence = |event: &DaemonEvent| matches!(event, DaemonEvent::Offence { .. });
    let offences = server.stop().into_iter().filter(is_offence).collect();
    let turns = reports.iter().map(|report| report.domain_switches).sum();
    ([one, two, (of_child[0], of_child[1])], turns, offences)
}

#[test]
#[ignore = "needs root"]
fn processes_that_keep_their_cost_miss_nothing() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let (found, turns, offences) = run(900);
        println!("jobs and misses {found:?}, {turns} turns, {offences:?}");
        let is_kept = found.iter().all(|&(jobs, misses)| jobs > 20 && misses == 0);
        let is_kept = is_kept && turns > 50 && offences.is_empty();
        if is_kept { Ok(()) } else { Err(format!("{found:?} {turns} {offences:?}")) }
    });
}

/// Jobs beyond their run time go after all others, and are dropped at their deadlines. A quantum
/// takes less than 1 ms longer than declared, as the watchdog allows.
#[test]
#[ignore = "needs root"]
fn a_process_that_takes_more_than_it_declared_costs_the_others_nothing() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let (found, turns, offences) = run(1_900);
        println!("jobs and misses {found:?}, {turns} turns, {offences:?}");
        let [one, two, child] = found;
        let is_kept = [one, two].iter().all(|&(jobs, misses)| jobs > 20 && misses == 0);
        let is_kept = is_kept && child.1 > 5 && offences.is_empty();
        if is_kept { Ok(()) } else { Err(format!("{found:?} {offences:?}")) }
    });
}
