//! DWCS across processes: domains of a daemon are put in one order by their deadlines and windows
//! (docs/decisions/0022).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// No test of its own: the others start it. Its role has the socket of the daemon, and what it
/// does: how many us a PDU takes, or another part.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (socket, part) = role.split_once('|').unwrap();
    let runtime = attach(Path::new(socket), "child", &DWCS);
    match part {
        "windows" => keep_windows(runtime),
        "events" => take_events(runtime),
        pdu_us => keep_or_exceed_cost(runtime, pdu_us),
    }
}

fn keep_or_exceed_cost(mut runtime: Runtime, pdu_us: &str) {
    let id = spinning(&mut runtime, need(30, 6), Span::from_micros(pdu_us.parse().unwrap()));
    println!("#ready ");
    runtime.run_at(&[id], Instant::from_nanos(read_line().parse().unwrap())).unwrap();
    assert_eq!(read_line(), "end");
    let counters = runtime.stop(|_, _| {}).activities[0].counters.unwrap();
    println!("#counters {} {}", counters.jobs, counters.misses);
}

/// At most one of two periods may be missed.
fn every_other() -> Terms {
    Terms { window: Some(Window { misses: 1, periods: 2 }), ..Terms::default() }
}

/// A daemon that charges a known time for a hand-off.
fn priced() -> Server {
    Server::start(|config| {
        config.discipline = &DWCS;
        config.switch_cost = Some(Span::from_micros(20));
    })
}

/// 40 % of each 10 ms, due within the limit of the CPU.
fn forty_percent() -> ActivityParams {
    need(10, 4).deadline(Span::from_micros(8_900))
}

#[test]
fn a_daemon_admits_windows_of_equal_periods_and_refuses_others() {
    let _alone = support::alone();
    let server = priced();
    let mut all = ["one", "two"].map(|name| server.attach(name));
    // In each period two of four jobs are done.
    for runtime in &mut all {
        runtime.handler("first", (forty_percent(), every_other()), |_| {}).unwrap();
        runtime.handler("second", (forty_percent(), every_other()), |_| {}).unwrap();
    }
    let refused_as = |refused: CreateError, part: &str| {
        let CreateError::RefusedByDaemon { reason, .. } = &refused else { panic!("{refused}") };
        assert!(reason.contains(part), "{reason}");
    };
    let fifth = all[0].handler("fifth", (forty_percent(), every_other()), |_| {}).unwrap_err();
    refused_as(fifth, "may not be missed would take");
    let other = all[0].handler("other", (need(20, 1), every_other()), |_| {}).unwrap_err();
    refused_as(other, "equal periods, deadlines and offsets");
    // Where windows allow misses, no test proves a set with an event server.
    let refused = all[1].reserve_events(support::cpu(), Share::from_ppm(10_000)).unwrap_err();
    assert!(matches!(refused.reason, Reason::ByDaemon { .. }), "{refused}");
    drop(all);
    server.stop();
}

#[test]
fn event_servers_of_domains_share_what_jobs_leave() {
    let _alone = support::alone();
    let server = priced();
    let mut all = ["one", "two"].map(|name| server.attach(name));
    let cpu = support::cpu();
    all[0].handler("job", need(20, 8), |_| {}).unwrap();
    let share = |percent: u32| Share::from_ppm(percent * 10_000);
    all.iter_mut().for_each(|of| of.reserve_events(cpu, share(15)).unwrap());
    let refused = all[1].reserve_events(cpu, share(60)).unwrap_err();
    assert_eq!(refused.name, "event server");
    let Reason::ByDaemon { told } = &refused.reason else { panic!("{refused}") };
    assert!(told.contains("% of CPU"), "{told}");
    assert!(all[1].reserve_events(1_000, share(1)).is_err());
    // What a domain gives back, or leaves when it ends, another one may have.
    all[1].reserve_events(cpu, share(30)).unwrap();
    assert!(all[0].reserve_events(cpu, share(30)).is_err());
    all[1].reserve_events(cpu, None).unwrap();
    all[0].reserve_events(cpu, share(30)).unwrap();
    let [one, mut two] = all;
    assert!(two.reserve_events(cpu, share(60)).is_err());
    drop(one);
    let until = clock::now() + Span::from_secs(10);
    while two.reserve_events(cpu, share(60)).is_err() {
        assert!(clock::now() < until, "the share of a domain that ended is not free");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(two);
    server.stop();
}

/// Three domains in two processes reserve 80 % of a CPU. One takes `child_us` for each PDU, which
/// declares 1 ms. Returns the jobs and misses of each, the child's last, the turns that the first
/// domain passed on, and the offences.
fn run(child_us: u64) -> ([(u64, u64); 3], u64, Vec<DaemonEvent>) {
    let server = priced();
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

/// The jobs of one handler, as its process counts them.
struct Counted {
    windows: Vec<bool>,
    first: Option<Instant>,
    current: (u64, u64),
    period: Span,
    off_grid: u64,
    misses: u64,
    jobs: u64,
}

/// The windows of one handler, which follow one another from its first release on.
impl Counted {
    fn new(period: Span) -> Self {
        let (windows, first, current) = (Vec::new(), None, (0, 0));
        Counted { windows, first, current, period, off_grid: 0, misses: 0, jobs: 0 }
    }

    fn count(&mut self, job: &upcall_runtime::Job) {
        let release = job.record.release;
        self.off_grid += u64::from(!release.as_nanos().is_multiple_of(self.period.as_nanos()));
        // Jobs that were dropped at once have one record, and follow one another.
        for place in 0..job.ended.max(1) {
            let at = release + self.period.saturating_mul(place);
            let first = *self.first.get_or_insert(at);
            let period = at.since(first).as_nanos() / self.period.as_nanos();
            let window = period / u64::from(ONE_OF_THREE.periods);
            let missed = place < job.missed;
            self.current = if self.current.0 == window { self.current } else { (window, 0) };
            self.current.1 += u64::from(missed);
            let window = usize::try_from(window).unwrap();
            self.windows.resize(self.windows.len().max(window + 1), false);
            self.windows[window] |= self.current.1 > u64::from(ONE_OF_THREE.misses);
            (self.jobs, self.misses) = (self.jobs + 1, self.misses + u64::from(missed));
        }
    }

    fn violated(&self) -> u64 {
        self.windows.iter().map(|&violated| u64::from(violated)).sum()
    }
}

/// One of three jobs must be done.
const ONE_OF_THREE: Window = Window { misses: 2, periods: 3 };

fn windows_handler(runtime: &mut Runtime) -> HandlerId {
    let pdu = Span::from_micros(950);
    let terms = Terms { window: Some(ONE_OF_THREE), ..Terms::default() };
    let made = runtime.handler("spins", (forty_percent(), terms), move |batch| {
        while batch.proceed() {
            let until = clock::now() + pdu;
            while clock::now() < until {}
        }
    });
    made.unwrap()
}

/// Runs a handler twice from now on, with a pause, until a line comes. Prints the jobs, the misses,
/// the violated windows, and the releases that are no multiple of the period.
fn keep_windows(mut runtime: Runtime) {
    let id = windows_handler(&mut runtime);
    println!("#ready ");
    let mut found = [0; 4];
    for _ in 0..2 {
        read_line();
        runtime.run(id).unwrap();
        let mut counted = Counted::new(forty_percent().period);
        let mut poll = |runtime: &mut Runtime| runtime.poll(|_, job| counted.count(job));
        let until = clock::now() + Span::from_millis(700);
        while clock::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            poll(&mut runtime);
        }
        runtime.suspend(id);
        while runtime.is_active(id) {
            std::thread::sleep(Duration::from_millis(1));
        }
        poll(&mut runtime);
        let these = [counted.jobs, counted.misses, counted.violated(), counted.off_grid];
        found = [0, 1, 2, 3].map(|at: usize| found[at] + these[at]);
    }
    let [jobs, misses, violated, off_grid] = found;
    println!("#windows {jobs} {misses} {violated} {off_grid}");
    read_line();
}

/// Four processes ask for 160 % of a CPU, and each may miss two of three jobs. They start and pause
/// at different times. The windows ask for four jobs in three periods, of six that fit.
#[test]
#[ignore = "needs root"]
fn processes_that_may_miss_jobs_keep_their_windows_whenever_they_start() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let server = priced();
        let mut children: Vec<_> = (0..4)
            .map(|_| {
                let program = Command::new(std::env::current_exe().unwrap());
                let role = format!("{}|windows", server.socket.display());
                let mut child = ChildProcess::start(program, effective_user(), &role);
                child.read_word("ready");
                child
            })
            .collect();
        // Each runs for 700 ms, pauses and goes on: whatever they were at when they are told.
        for round in 0..2 {
            for child in &mut children {
                child.write_line("run");
                std::thread::sleep(Duration::from_micros(43_300 + round * 21_700));
            }
        }
        let found: Vec<_> = children.iter_mut().map(|child| child.numbers("windows")).collect();
        drop(children);
        let is_offence = |event: &DaemonEvent| matches!(event, DaemonEvent::Offence { .. });
        let offences: Vec<_> = server.stop().into_iter().filter(is_offence).collect();
        println!("jobs, misses, violated windows, releases off the grid: {found:?}, {offences:?}");
        // 1.4 s of periods of 10 ms, each of which has a record.
        let is_kept = found.iter().all(|of| of[0] >= 130 && of[2..] == [0, 0]);
        let misses: u64 = found.iter().map(|of| of[1]).sum();
        let is_kept = is_kept && misses > 100 && offences.is_empty();
        if is_kept { Ok(()) } else { Err(format!("{found:?} {offences:?}")) }
    });
}

/// A handler with events, and a share for them. Each upcall takes one event.
fn with_events(runtime: &mut Runtime) -> (HandlerId, Arc<AtomicU64>, upcall_runtime::Poster) {
    let upcalls = Arc::new(AtomicU64::new(0));
    let counted = upcalls.clone();
    let handler = runtime.handler("events", need(200, 1), move |batch| {
        if batch.take_event().is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        while batch.proceed() {}
    });
    let id = handler.unwrap();
    let poster = runtime.poster(id).unwrap();
    (id, upcalls, poster)
}

/// Posts 60 events, one each 20 ms. Returns the jobs of the handler and the events that it took.
fn post_events(runtime: &mut Runtime, share: Option<Share>) -> [u64; 2] {
    let (id, taken, poster) = with_events(runtime);
    runtime.reserve_events(support::cpu(), share).unwrap();
    runtime.run(id).unwrap();
    for rank in 0..60 {
        poster.post(rank).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let report = runtime.close(id).unwrap();
    [report.counters.unwrap().jobs, taken.load(Ordering::Relaxed)]
}

fn take_events(mut runtime: Runtime) {
    println!("#ready ");
    let percent: u32 = read_line().parse().unwrap();
    let [jobs, taken] = post_events(&mut runtime, Share::from_ppm(percent * 10_000));
    println!("#events {jobs} {taken}");
    read_line();
}

/// A job comes each 200 ms, and an event each 20 ms: only the event servers can serve them.
#[test]
#[ignore = "needs root"]
fn event_servers_of_two_processes_serve_events_between_jobs() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let server = priced();
        let start = || {
            let program = Command::new(std::env::current_exe().unwrap());
            let role = format!("{}|events", server.socket.display());
            let mut child = ChildProcess::start(program, effective_user(), &role);
            child.read_word("ready");
            child
        };
        let mut children = [start(), start(), start()];
        for (child, percent) in children.iter_mut().zip(["20", "20", "0"]) {
            child.write_line(percent);
        }
        let found = children.each_mut().map(|child| child.numbers("events"));
        drop(children);
        server.stop();
        println!("jobs and events taken: {found:?}");
        let is_served = found[..2].iter().all(|of| of[1] >= 55 && of[0] <= 10);
        // Without a share each event waits for a job.
        let waits = found[2][1] <= found[2][0];
        if is_served && waits { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

#[test]
fn a_process_that_is_killed_gives_the_share_of_its_event_server_back() {
    let _alone = support::alone();
    let server = priced();
    let program = Command::new(std::env::current_exe().unwrap());
    let role = format!("{}|events", server.socket.display());
    let mut child = ChildProcess::start(program, effective_user(), &role);
    child.read_word("ready");
    child.write_line("50");
    let mut runtime = server.attach("own");
    let share = |percent: u32| Share::from_ppm(percent * 10_000);
    let half = |runtime: &mut Runtime| runtime.reserve_events(support::cpu(), share(50));
    let until = clock::now() + Span::from_secs(10);
    while half(&mut runtime).is_ok() {
        runtime.reserve_events(support::cpu(), None).unwrap();
        assert!(clock::now() < until, "the child has no share");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.child.kill().unwrap();
    let until = clock::now() + Span::from_secs(10);
    while half(&mut runtime).is_err() {
        assert!(clock::now() < until, "the share of a process that was killed is not free");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(runtime);
    server.stop();
}
