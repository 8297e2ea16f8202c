//! PS across processes: the domains of a daemon have accounts (docs/decisions/0022).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use upcall_core::activity::{ActivityParams, Claim, GroupId, Terms};
use upcall_core::admission::program::ProgramNeed;
use upcall_core::admission::{Reason, Share};
use upcall_core::discipline::{Discipline, PS, ps_with_groups, ps_with_quantum};
use upcall_core::policy::ps::{Group, QUANTUM_DEFAULT};
use upcall_core::time::{Instant, Span};
use upcall_daemon::server::{Config, Daemon, DaemonEvent, StartError};
use upcall_runtime::{CreateError, HandlerId, Runtime, clock};
use upcall_sys::process::effective_user;

use support::{ChildProcess, ROLE, Server, attach, read_line};

/// The time for which domains are counted.
const COUNTED: Span = Span::from_millis(1_500);

fn terms(claim: Claim) -> Terms {
    match claim {
        Claim::Share(share) => Terms { share: Some(share), ..Terms::default() },
        Claim::Weight(weight) => Terms { weight: Some(weight), ..Terms::default() },
    }
}

fn share(percent: u32) -> Claim {
    Claim::Share(Share::from_ppm(percent * 10_000).unwrap())
}

/// The terms of a member of the first group.
fn member(weight: u32) -> Terms {
    Terms { weight: Some(weight), group: Some(GroupId(0)), ..Terms::default() }
}

/// PS with one group of this name and claim. Leaked: a test makes a few.
fn with_group(name: &str, claim: Claim) -> &'static Discipline {
    let groups = vec![Group { parent: None, claim }];
    let made = ps_with_groups(QUANTUM_DEFAULT, groups).unwrap();
    Box::leak(Box::new(made.naming_groups(vec![name.to_owned()]).unwrap()))
}

fn spin(length: Span) {
    let until = clock::now() + length;
    while clock::now() < until {}
}

/// Starts a handler that always has work, in PDUs of 100 us.
fn always_busy(runtime: &mut Runtime, terms: Terms) -> Result<HandlerId, CreateError> {
    counted_busy(runtime, "busy", terms, Arc::default())
}

/// As [`always_busy`]; counts the PDUs.
fn counted_busy(
    runtime: &mut Runtime,
    name: &str,
    terms: Terms,
    pdus: Arc<AtomicU64>,
) -> Result<HandlerId, CreateError> {
    let pdu = Span::from_micros(100);
    // A job takes all that its claim gives, or more, so the next one is there when it ends. What is
    // declared fits.
    let of_second = terms.share.map_or(10_000, |share| share.ppm() / 100);
    let declared = Span::from_micros(70);
    let need = ActivityParams::new(Span::from_millis(1_000), declared).batch(of_second).quantum(1);
    runtime.handler(name, (need, terms), move |batch| {
        while batch.proceed() {
            spin(pdu);
            pdus.fetch_add(1, Relaxed);
        }
    })
}

/// `share 45`, `weight 1`, or `film 40 1`: weight 1 in the group `film`, which has 40 %.
fn parse_role(text: &str) -> (&'static Discipline, Terms) {
    match text.split(' ').collect::<Vec<_>>()[..] {
        [group, percent, weight] => {
            let discipline = with_group(group, share(percent.parse().unwrap()));
            (discipline, member(weight.parse().unwrap()))
        }
        _ => (&PS, terms(parse_claim(text))),
    }
}

fn parse_claim(text: &str) -> Claim {
    match text.split_once(' ').unwrap() {
        ("share", percent) => share(percent.parse().unwrap()),
        (_, weight) => Claim::Weight(weight.parse().unwrap()),
    }
}

/// No test of its own: the others start it. Its role has the socket of the daemon and a claim.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (socket, claim) = role.split_once('|').unwrap();
    let (discipline, terms) = parse_role(claim);
    let mut runtime = attach(Path::new(socket), "child", discipline);
    let id = always_busy(&mut runtime, terms).unwrap();
    println!("#ready ");
    runtime.run_at(&[id], Instant::from_nanos(read_line().parse().unwrap())).unwrap();
    loop {
        match read_line().as_str() {
            "end" => break,
            "cpu" => {
                let cpu_ns = upcall_sys::clock::process_cpu_ns(std::process::id());
                println!("#cpu {}", cpu_ns.unwrap());
            }
            claim => {
                runtime.reweigh(id, parse_claim(claim)).unwrap();
                println!("#changed ");
            }
        }
    }
    let report = runtime.stop(|_, _| {});
    println!("#turns {}", report.domain_switches);
}

struct Child(ChildProcess);

impl Child {
    fn start(server: &Server, claim: &str) -> Self {
        let program = Command::new(std::env::current_exe().unwrap());
        let role = format!("{}|{claim}", server.socket.display());
        let mut child = ChildProcess::start(program, effective_user(), &role);
        child.read_word("ready");
        Child(child)
    }

    fn cpu_ns(&mut self) -> u64 {
        self.0.write_line("cpu");
        self.0.numbers("cpu")[0]
    }
}

fn start_all(children: &mut [Child]) {
    let at = clock::now() + Span::from_millis(30);
    for Child(child) in children.iter_mut() {
        child.write_line(&at.as_nanos().to_string());
    }
    std::thread::sleep(Duration::from_millis(130));
}

/// The CPU time of each child in [`COUNTED`], as a part of all of it, in per mille.
fn parts(children: &mut [Child]) -> Vec<u64> {
    let before: Vec<u64> = children.iter_mut().map(Child::cpu_ns).collect();
    std::thread::sleep(Duration::from(COUNTED));
    let after: Vec<u64> = children.iter_mut().map(Child::cpu_ns).collect();
    let used: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    let all: u64 = used.iter().sum();
    used.into_iter().map(|used| used * 1_000 / all).collect()
}

fn end(children: Vec<Child>) {
    for Child(mut child) in children {
        child.write_line("end");
        child.numbers("turns");
    }
}

fn offences(events: Vec<DaemonEvent>) -> Vec<DaemonEvent> {
    events.into_iter().filter(|event| matches!(event, DaemonEvent::Offence { .. })).collect()
}

/// Checks that each part is within 2 % of the CPU of the expected one, and a small part within a
/// tenth of itself.
fn check_parts(found: &[u64], expected: &[u64]) -> Result<(), String> {
    let is_near = |(&found, &expected): (&u64, &u64)| {
        found.abs_diff(expected) <= (expected / 10).clamp(5, 20)
    };
    let near = found.iter().zip(expected).all(is_near);
    if near { Ok(()) } else { Err(format!("{found:?} per mille, expected {expected:?}")) }
}

#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn processes_get_the_cpu_by_shares_and_weights() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let server = Server::start(|config| config.discipline = &PS);
        let claims = ["share 45", "weight 1", "weight 2"];
        let mut children: Vec<_> = claims.map(|claim| Child::start(&server, claim)).into();
        start_all(&mut children);
        // Of the 90 % that domains may have together.
        let first = parts(&mut children);
        let changed = [(0, "share 55"), (1, "weight 2")];
        for (at, claim) in changed {
            children[at].0.write_line(claim);
            children[at].0.read_word("changed");
        }
        let second = parts(&mut children);
        end(children);
        let offences = offences(server.stop());
        println!("{first:?}, then {second:?}; {offences:?}");
        check_parts(&first, &[500, 167, 333])?;
        check_parts(&second, &[611, 194, 195])?;
        if offences.is_empty() { Ok(()) } else { Err(format!("{offences:?}")) }
    });
}

#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn domains_that_are_always_busy_leave_ordinary_programs_their_part() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let server = Server::start(|config| config.discipline = &PS);
        let mut children =
            vec![Child::start(&server, "weight 1"), Child::start(&server, "weight 1")];
        let ordinary = std::thread::spawn(|| {
            upcall_sys::schedule::pin_thread(&[support::cpu()]).unwrap();
            let end = clock::now() + Span::from_secs(3);
            let (mut gap_max, mut last) = (Span::ZERO, clock::now());
            while last < end {
                let now = clock::now();
                gap_max = gap_max.max(now.since(last));
                last = now;
            }
            (upcall_sys::clock::thread_cpu_ns(), gap_max)
        });
        start_all(&mut children);
        let begin = clock::now();
        let before: Vec<u64> = children.iter_mut().map(Child::cpu_ns).collect();
        std::thread::sleep(Duration::from(COUNTED));
        let used: u64 =
            children.iter_mut().zip(before).map(|(child, before)| child.cpu_ns() - before).sum();
        let elapsed = clock::now().since(begin);
        let (ordinary_ns, gap_max) = ordinary.join().unwrap();
        end(children);
        let offences = offences(server.stop());
        let part = used * 1_000 / elapsed.as_nanos();
        println!(
            "domains {part} per mille; ordinary {ordinary_ns} ns, gap {gap_max}, {offences:?}"
        );
        match (700..=905).contains(&part) && offences.is_empty() {
            true => Ok(()),
            false => {
                Err(format!("domains have {part} per mille, expected 700 to 905; {offences:?}"))
            }
        }
    });
}

#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn a_domain_that_dies_leaves_its_part_to_the_others() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let server = Server::start(|config| config.discipline = &PS);
        let mut children =
            vec![Child::start(&server, "weight 1"), Child::start(&server, "weight 3")];
        children.push(Child::start(&server, "weight 4"));
        start_all(&mut children);
        drop(children.pop());
        std::thread::sleep(Duration::from_millis(100));
        let found = parts(&mut children);
        end(children);
        server.stop();
        check_parts(&found, &[250, 750])
    });
}

/// Two processes have members in a group of 40 %, beside a third one. A further member joins, and
/// is killed.
#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn the_members_of_a_group_in_several_processes_share_its_part() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let server = Server::start(|config| config.discipline = &PS);
        let claims = ["film 40 1", "film 40 3", "weight 1"];
        let mut children: Vec<_> = claims.map(|claim| Child::start(&server, claim)).into();
        start_all(&mut children);
        // Of the 90 % that domains may have together.
        let first = parts(&mut children);
        children.push(Child::start(&server, "film 40 4"));
        start_all(&mut children[3..]);
        let joined = parts(&mut children);
        drop(children.pop());
        children[1].0.write_line("weight 1");
        children[1].0.read_word("changed");
        std::thread::sleep(Duration::from_millis(100));
        let left = parts(&mut children);
        end(children);
        let offences = offences(server.stop());
        println!("{first:?}, {joined:?}, then {left:?}; {offences:?}");
        check_parts(&first, &[111, 333, 556])?;
        check_parts(&joined, &[56, 167, 556, 222])?;
        check_parts(&left, &[222, 222, 556])?;
        if offences.is_empty() { Ok(()) } else { Err(format!("{offences:?}")) }
    });
}

/// A member beside an activity of its own process: the scheduler of the process knows its part of
/// the group.
#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn a_process_takes_no_more_for_its_member_than_its_part_of_the_group() {
    let _alone = support::alone();
    support::most_kept(None, || {
        let server = Server::start(|config| config.discipline = &PS);
        let mut runtime = attach(&server.socket, "both", with_group("film", share(60)));
        let pdus: [Arc<AtomicU64>; 2] = Default::default();
        let mut create = |name, terms, at: usize| {
            counted_busy(&mut runtime, name, terms, pdus[at].clone()).unwrap()
        };
        let outside = terms(Claim::Weight(1));
        let ids = [create("inside", member(1), 0), create("outside", outside, 1)];
        let mut children = vec![Child::start(&server, "film 60 2")];
        let at = clock::now() + Span::from_millis(30);
        runtime.run_at(&ids, at).unwrap();
        start_all(&mut children);
        let count = || pdus.each_ref().map(|pdus| pdus.load(Relaxed));
        let before = count();
        std::thread::sleep(Duration::from(COUNTED));
        let after = count();
        end(children);
        drop(runtime);
        server.stop();
        // 20 % of the CPU by the group, and 30 % that shares and ordinary programs leave.
        let [inside, outside] = [0, 1].map(|at| after[at] - before[at]);
        let found = inside * 1_000 / (inside + outside);
        println!("the member has {found} per mille of its process");
        check_parts(&[found], &[400])
    });
}

#[test]
fn processes_agree_on_their_groups_or_are_refused() {
    let _alone = support::alone();
    let server = Server::start(|config| config.discipline = &PS);
    let [mut one, mut two, mut third] = [share(40), share(40), share(30)]
        .map(|claim| attach(&server.socket, "domain", with_group("film", claim)));
    always_busy(&mut one, member(1)).unwrap();
    let second = always_busy(&mut two, member(3)).unwrap();
    let refused = always_busy(&mut third, member(1)).unwrap_err();
    let CreateError::RefusedByDaemon { reason, .. } = &refused else { panic!("{refused}") };
    assert!(reason.contains("group `film` has a share of 40 % in another process"), "{reason}");
    always_busy(&mut third, terms(Claim::Weight(1))).unwrap();
    let parts = || -> Vec<Option<u64>> {
        let status = upcall_runtime::status::status(&server.socket).unwrap();
        status.domains.iter().map(|domain| domain.virtual_processors[0].part_ppm).collect()
    };
    assert_eq!(parts(), [Some(100_000), Some(300_000), Some(500_000)]);
    two.reweigh(second, Claim::Weight(1)).unwrap();
    assert_eq!(parts(), [Some(200_000), Some(200_000), Some(500_000)]);
    drop(two);
    while parts().len() > 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(parts(), [Some(400_000), Some(500_000)]);
    drop((one, third));
    server.stop();
}

#[test]
fn the_status_shows_the_part_and_the_lag_of_a_domain() {
    let _alone = support::alone();
    let server = Server::start(|config| config.discipline = &PS);
    let mut runtime = server.attach("domain");
    let handler = always_busy(&mut runtime, terms(Claim::Weight(1))).unwrap();
    let mut other = server.attach("other");
    let share_of_other = always_busy(&mut other, terms(share(30))).unwrap();
    runtime.run(handler).unwrap();
    other.run(share_of_other).unwrap();
    let (mut lags, mut of_activity) = (Vec::new(), None);
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(10));
        let status = upcall_runtime::status::status(&server.socket).unwrap();
        let domain = &status.domains[0];
        // Of the 90 % that admission may give, the other has 30.
        assert_eq!(domain.virtual_processors[0].part_ppm, Some(600_000));
        assert_eq!(status.domains[1].virtual_processors[0].part_ppm, Some(300_000));
        lags.push(domain.lag_ns().unwrap());
        of_activity = of_activity.or(domain.activities[0].lag_ns);
    }
    drop((runtime, other));
    server.stop();
    assert!(lags.iter().any(|lag| *lag != 0), "{lags:?}");
    assert!(of_activity.is_some());
}

#[test]
fn what_a_daemon_and_its_domains_must_agree_on() {
    let _alone = support::alone();
    let server = Server::start(|config| config.discipline = &PS);
    let mut runtime = server.attach("domain");
    // More than the limit of the CPU is refused, with a reason.
    let refused = always_busy(&mut runtime, terms(share(95))).unwrap_err();
    assert!(matches!(refused, CreateError::RefusedByDaemon { .. }), "{refused}");
    let half = always_busy(&mut runtime, terms(share(50))).unwrap();
    let refusal = runtime.reweigh(half, share(95)).unwrap_err();
    assert!(matches!(refusal.reason, Reason::ByDaemon { .. }), "{refusal}");
    let refusal = runtime.reweigh(half, Claim::Weight(2)).unwrap_err();
    assert!(refusal.to_string().contains("share"), "{refusal}");
    runtime.reweigh(half, share(60)).unwrap();
    drop(runtime);
    // Nothing could be promised to a program beside handlers that take what others leave.
    let programs = upcall_runtime::program::ProgramConnection::open(&server.socket).unwrap();
    let need = ProgramNeed { share: Share::from_ppm(100_000), ..ProgramNeed::default() };
    let refused = programs.adopt(std::process::id(), &need, "it").map(drop).unwrap_err();
    assert!(refused.to_string().contains("`ps`"), "{refused}");
    // Another quantum would make other requests.
    static OTHER: Discipline = ps_with_quantum(Span::from_micros(500));
    let name = "other".to_owned();
    let attach = upcall_runtime::Attach { socket: server.socket.clone(), name };
    let config = upcall_runtime::Config {
        daemon: Some(attach),
        discipline: &OTHER,
        ..upcall_runtime::Config::default()
    };
    let error = Runtime::start(config).map(drop).unwrap_err().to_string();
    assert!(error.contains("quantum"), "{error}");
    server.stop();
    // The domains bring the groups.
    let group = Group { parent: None, claim: Claim::Weight(1) };
    let grouped = ps_with_groups(Span::from_millis(1), vec![group]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = Config::new(directory.path().join("upcalld"), vec![support::cpu()]);
    let refused = Daemon::start(Config { discipline: Box::leak(Box::new(grouped)), ..config });
    assert!(matches!(refused, Err(StartError::Groups("ps"))));
}
