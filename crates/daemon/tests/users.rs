//! Domains of two users on one CPU under root's daemon, each in a process of its own.
//!
//! The children are those of the module [`support`].

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use upcall_core::activity::ActivityParams;
use upcall_core::admission::Share;
use upcall_core::time::{Instant, Span};
use upcall_daemon::server::{Access, Config, DaemonEvent};
use upcall_runtime::{Attach, Config as RuntimeConfig, CreateError, Runtime, clock, status};
use upcall_sys::process::effective_user;

use support::{ChildProcess, ROLE, Server, read_line};

const NOBODY: u32 = 65534;
const SOMEBODY: u32 = 65533;

struct Running {
    server: Server,
    /// A copy of this program that other users may run.
    program: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Running {
    fn start(change: impl FnOnce(&mut Config)) -> Self {
        let alone = support::alone();
        let server = Server::start(|config| {
            config.access = Access::Everyone;
            change(config);
        });
        let program = support::program_for_all(server.directory.path());
        Running { server, program, _alone: alone }
    }

    fn child(&self, uid: u32, role: &str) -> ChildProcess {
        let mut command = Command::new(&self.program);
        command.env("UPCALL_SOCKET", &self.server.socket);
        command.current_dir(self.server.directory.path());
        ChildProcess::start(command, uid, role)
    }

    fn stop(self) -> Vec<DaemonEvent> {
        self.server.stop()
    }
}

/// No test of its own: the other tests start it.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split('|').collect::<Vec<_>>()[..] {
        ["work", name, period_ms, batch] => {
            work(name, period_ms.parse().unwrap(), batch.parse().unwrap());
        }
        ["stay"] => stay(),
        ["share", period_ms, batch] => share(period_ms.parse().unwrap(), batch.parse().unwrap()),
        _ => panic!("unknown role {role:?}"),
    }
}

fn attached(name: &str) -> Result<Runtime, upcall_runtime::StartError> {
    let daemon =
        Some(Attach { socket: upcall_runtime::daemon_socket().unwrap(), name: name.to_owned() });
    Runtime::start(RuntimeConfig { daemon, ..RuntimeConfig::default() })
}

/// Prints `ready`, reads when to begin, and works until it reads `end`. Then prints its releases,
/// starts, boundaries and counts of jobs: completed, missed and lost.
fn work(name: &str, period_ms: u64, batch: u32) {
    let mut runtime = match attached(name) {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("#rejected {error}");
            return;
        }
    };
    let need = ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(600));
    let boundaries = Arc::new(Mutex::new(Vec::with_capacity(100_000)));
    let noted = boundaries.clone();
    let id = runtime.handler(name, need.batch(batch).quantum(1), move |batch| {
        while batch.proceed() {
            let now = clock::now();
            noted.lock().unwrap().push(now.as_nanos());
            while clock::now() < now + Span::from_micros(400) {}
        }
    });
    let id = id.unwrap();
    for notice in runtime.notices() {
        println!("#notice {notice}");
    }
    println!("#ready {}", descriptors());
    runtime.run_at(&[id], Instant::from_nanos(read_line().parse().unwrap())).unwrap();
    assert_eq!(read_line(), "end");
    let mut jobs = Vec::new();
    let report = runtime.stop(|_, job| jobs.push(job.record));
    let list = |of: &mut dyn Iterator<Item = u64>| {
        of.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    };
    println!("#releases {}", list(&mut jobs.iter().map(|job| job.release.as_nanos())));
    println!("#starts {}", list(&mut jobs.iter().map(|job| job.start.as_nanos())));
    println!("#boundaries {}", list(&mut boundaries.lock().unwrap().iter().copied()));
    let counters = report.activities[0].counters.unwrap();
    let lost = report.jobs_lost;
    println!("#counters {} {} {lost}", counters.completed, counters.misses);
}

/// Prints `ready` after its first turns, and ends when it reads a line.
fn stay() {
    let mut runtime = match attached("stays") {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("#rejected {error}");
            return;
        }
    };
    run_some_jobs(&mut runtime);
    println!("#ready ");
    read_line();
}

/// Runs until some jobs are done.
fn run_some_jobs(runtime: &mut Runtime) {
    // So long that a hand-off that was measured on a busy machine leaves room for three users.
    let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(50));
    let (runs, count) = (Arc::new(AtomicU32::new(0)), 3);
    let counted = runs.clone();
    let handler = runtime.handler("turns", need.batch(1), move |batch| {
        while batch.proceed() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    runtime.run(handler.unwrap()).unwrap();
    wait_until(|| runs.load(Ordering::Relaxed) >= count, || format!("{runs:?} jobs"));
}

fn wait_until(is_so: impl Fn() -> bool, what: impl Fn() -> String) {
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < give_up, "after a minute: {}", what());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Requests one share after the other until one is refused, and prints the reason.
fn share(period_ms: u64, batch: u32) {
    let mut runtime = attached("greedy").unwrap();
    let need = ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(1_000));
    for number in 0..100 {
        match runtime.handler(&number.to_string(), need.batch(batch), |_| {}) {
            Ok(_) => {}
            Err(CreateError::RefusedByDaemon { reason, .. }) => {
                println!("#refused {number} {reason}");
                let _ = std::io::stdin().read(&mut [0]);
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no request was refused");
}

/// The areas that this process has mapped or open: names and inodes.
fn descriptors() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut found: Vec<String> = maps
        .lines()
        .filter(|line| line.contains("memfd:upcall"))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words[5].trim_start_matches("/memfd:");
            format!("{name}:{}:{}", words[4], &words[1][..2])
        })
        .collect();
    found.sort();
    found.dedup();
    found.join(" ")
}

fn is_root() -> bool {
    effective_user() == 0
}

#[test]
#[ignore = "needs root"]
fn a_better_rank_of_another_user_runs_at_the_next_boundary() {
    assert!(is_root());
    support::most_kept(None, run_long_and_short);
}

/// One run of jobs of 50 quanta beside those of a better rank. An error if more than one quantum
/// began before a better job.
fn run_long_and_short() -> Result<(), String> {
    let daemon = Running::start(|_| {});
    // Jobs of 50 quanta, so that those of the other domain are released in between.
    let mut long = daemon.child(NOBODY, "work|long|100|50");
    let mut short = daemon.child(SOMEBODY, "work|short|9|1");
    let (seen_by_long, seen_by_short) = (long.read_word("ready"), short.read_word("ready"));
    assert_nothing_shared(&seen_by_long, &seen_by_short);
    let at = (clock::now() + Span::from_millis(50)).as_nanos().to_string();
    long.write_line(&at);
    short.write_line(&at);
    std::thread::sleep(Duration::from_millis(1_500));
    let (mut times, mut jobs) = (Vec::new(), Vec::new());
    for child in [&mut short, &mut long] {
        child.write_line("end");
        times.push(["releases", "starts", "boundaries"].map(|word| child.numbers(word)));
        jobs.push(child.numbers("counters"));
    }
    let events = daemon.stop();
    let is_unexpected =
        |event: &&DaemonEvent| is_offence(event) || matches!(event, DaemonEvent::Refused { .. });
    let unexpected: Vec<_> = events.iter().filter(is_unexpected).collect();
    if !unexpected.is_empty() {
        return Err(format!("{unexpected:?}"));
    }
    let [short, long] = &times[..] else { panic!("two children") };
    // At least half of the long jobs, even if the machine is busy for some time.
    if jobs[1][0] < 5 || jobs[0][0] < 50 {
        return Err(format!("{jobs:?}"));
    }
    let mut overlaps = 0;
    for (&release, &start) in short[0].iter().zip(&short[1]) {
        // One quantum may have been allowed to run just before the other job was released.
        let begun = long[2].iter().filter(|&&at| (release..start).contains(&at)).count();
        if begun > 1 {
            return Err(format!("{begun} quanta of the long job between {release} and {start}"));
        }
        let runs = |at: &u64| (release.saturating_sub(3_000_000)..release).contains(at);
        overlaps += usize::from(long[2].iter().any(runs));
    }
    // Fewer overlaps would make the test meaningless.
    if overlaps < 10 {
        return Err(format!("{overlaps} releases during a long job"));
    }
    Ok(())
}

fn is_offence(event: &DaemonEvent) -> bool {
    matches!(event, DaemonEvent::Offence { .. })
}

/// Neither user maps a page that the other may write, or the other's own pages.
fn assert_nothing_shared(one: &str, other: &str) {
    let (one, other): (Vec<_>, Vec<_>) = (one.split(' ').collect(), other.split(' ').collect());
    for pages in [&one, &other] {
        for name in ["upcall-turn:", "upcall-domain:", "upcall-kernel:", "upcall-others:"] {
            let found = pages.iter().filter(|page| page.starts_with(name)).count();
            assert_eq!(found, 1, "{name} in {pages:?}");
        }
        let written = pages.iter().filter(|page| page.ends_with(":rw")).count();
        assert_eq!(written, 2, "the turn page and the own area: {pages:?}");
    }
    for page in &one {
        let inode = page.rsplit(':').nth(1).unwrap();
        let shared = other.iter().any(|page| page.rsplit(':').nth(1) == Some(inode));
        assert!(!shared, "{page} is mapped by both");
    }
}

#[test]
#[ignore = "needs root"]
fn a_quota_binds_one_user_and_refuses_with_the_reason() {
    assert!(is_root());
    let daemon = Running::start(|config| {
        config.quota.domains_max = 1;
        config.quota.share_max_ppm = Share::from_ppm(250_000).unwrap().ppm().into();
    });
    // A tenth of the CPU each time.
    let mut greedy = daemon.child(NOBODY, "share|100|10");
    let refused = greedy.read_word("refused");
    assert!(refused.starts_with("2 "), "{refused}");
    assert!(refused.contains("quota"), "{refused}");
    let mut second = daemon.child(NOBODY, "work|second|100|1");
    let rejected = second.read_word("rejected");
    assert!(rejected.contains("the user has 1 domains, which is its quota"), "{rejected}");
    // The quota of one user does not affect another.
    let mut other = daemon.child(SOMEBODY, "share|100|10");
    assert!(other.read_word("refused").starts_with("2 "));
    let reply = status::status(&daemon.server.socket).unwrap();
    let mut users: Vec<u32> = reply.domains.iter().map(|domain| domain.uid).collect();
    users.sort_unstable();
    assert_eq!(users, [SOMEBODY, NOBODY]);
    let events = daemon.stop();
    let refused =
        events.iter().filter(|event| matches!(event, DaemonEvent::Refused { .. })).count();
    assert_eq!(refused, 3, "{events:?}");
}

#[test]
#[ignore = "needs root"]
fn a_domain_that_ends_during_its_turn_leaves_the_cpu_to_the_other_user() {
    assert!(is_root());
    let daemon = Running::start(|_| {});
    let mut stays = daemon.child(NOBODY, "work|stays|20|5");
    let ready = stays.read_word("ready");
    assert!(!ready.is_empty());
    stays.write_line(&clock::now().as_nanos().to_string());
    for _ in 0..5 {
        let mut goes = daemon.child(SOMEBODY, "work|goes|10|5");
        goes.read_word("ready");
        goes.write_line(&clock::now().as_nanos().to_string());
        std::thread::sleep(Duration::from_millis(33));
    }
    std::thread::sleep(Duration::from_millis(200));
    stays.write_line("end");
    let releases = stays.numbers("releases");
    let counters = stays.numbers("counters");
    // One job may be under way at the end. Each release had its job.
    assert!(counters[0] + 1 >= releases.len() as u64 && counters[0] > 10, "{counters:?}");
    let gaps = releases.windows(2).filter(|pair| pair[1] - pair[0] != 20_000_000).count();
    let missed = counters[1];
    assert!(gaps as u64 <= missed, "{gaps} releases left out, {missed} jobs missed");
    assert!(!daemon.stop().iter().any(is_offence));
}

/// The resources of this process: a daemon's threads, descriptors, and Upcall's pages.
#[derive(Debug, PartialEq, Eq)]
struct Resources {
    threads: usize,
    descriptors: usize,
    mappings: usize,
}

impl Resources {
    fn now() -> Self {
        let count = |directory: &str, counts: &dyn Fn(PathBuf) -> bool| {
            let entries = std::fs::read_dir(directory).unwrap();
            entries.filter(|entry| counts(entry.as_ref().unwrap().path())).count()
        };
        // This thread belongs to the process from its first runtime on, not to a daemon.
        let is_ours = |task: PathBuf| {
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.starts_with("upcall-") && name.trim_end() != "upcall-panics"
        };
        // Pipes lead to the children of this test and of others.
        let is_kept = |fd: PathBuf| {
            std::fs::read_link(fd).is_ok_and(|to| !to.to_string_lossy().starts_with("pipe:"))
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Resources {
            threads: count("/proc/self/task", &is_ours),
            descriptors: count("/proc/self/fd", &is_kept),
            mappings: maps.lines().filter(|line| line.contains("memfd:upcall")).count(),
        }
    }

    /// Waits until the threads of the watchdog and the reaper have set their names.
    fn of_idle_daemon() -> Self {
        wait_until(
            || Resources::now().threads == 2,
            || format!("{:?}, not 2 threads", Resources::now()),
        );
        Resources::now()
    }

    /// Waits until everything that is being freed is gone.
    fn wait_until_restored(&self) {
        wait_until(
            || Resources::now() == *self,
            || format!("{:?}, not {self:?}", Resources::now()),
        );
    }
}

/// Runs children as other users if that is allowed, otherwise as this user only.
#[test]
fn detached_users_leave_no_thread_descriptor_or_page_behind() {
    let daemon = Running::start(|_| {});
    let users = if is_root() { vec![NOBODY, SOMEBODY, 65532] } else { vec![effective_user()] };
    let before = Resources::of_idle_daemon();
    for round in 0..8 {
        let come = |uid: &u32| daemon.child(*uid, "stay");
        let mut children: Vec<ChildProcess> = users.iter().map(come).collect();
        children.iter_mut().for_each(|child| drop(child.read_word("ready")));
        // A group has three pages, and a domain has one. Former groups may still be draining.
        let (threads, mappings) = (before.threads + users.len(), before.mappings + users.len() * 4);
        let is_so = |with: Resources| with.threads == threads && with.mappings == mappings;
        wait_until(
            || is_so(Resources::now()),
            || format!("{:?}, not {threads}, {mappings}", Resources::now()),
        );
        assert!(Resources::now().descriptors > before.descriptors);
        // Each user attaches again while its former group may still be draining.
        for (index, uid) in users.iter().enumerate() {
            if round % 2 == 0 {
                children[index].write_line("go");
                children[index].child.wait().unwrap();
            }
            children[index] = daemon.child(*uid, "stay");
            children[index].read_word("ready");
        }
        drop(children);
        if round % 2 == 0 {
            before.wait_until_restored();
        }
    }
    before.wait_until_restored();
    assert!(!daemon.stop().iter().any(|event| matches!(event, DaemonEvent::Refused { .. })));
}

#[test]
fn a_user_that_attaches_again_gets_turns_before_its_former_group_is_drained() {
    let daemon = Running::start(|_| {});
    let before = Resources::of_idle_daemon();
    for _ in 0..20 {
        let mut runtime = Runtime::start(RuntimeConfig {
            daemon: Some(Attach { socket: daemon.server.socket.clone(), name: "again".to_owned() }),
            ..RuntimeConfig::default()
        });
        run_some_jobs(runtime.as_mut().unwrap());
    }
    before.wait_until_restored();
    let events = daemon.stop();
    let attached =
        events.iter().filter(|event| matches!(event, DaemonEvent::Attached { .. })).count();
    assert_eq!((attached, events.iter().any(is_offence)), (20, false), "{events:?}");
}
