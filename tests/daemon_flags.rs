//! The flags of `upcalld`, as a whole program: each changes what the daemon answers a domain, or
//! when it ends. docs/keys.md lists the flags with tests elsewhere.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{
    Done, Running, SpecFile, UPCALL, UPCALLD, field, folder, machine, skipped, text, truth,
    wait_until,
};
use upcall::activity::ActivityParams;
use upcall::status::{Status, status};
use upcall::time::Span;
use upcall::{Attach, Config, CreateError, Need, RealTime, Runtime, StartError};
use upcall_sys::local::Connection;
use upcall_sys::readiness::{self, Direction};

/// A daemon for one test.
struct Daemon {
    running: Running,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start(flags: &[&str]) -> Self {
        let folder = folder();
        let socket = folder.path().join("upcall.sock");
        let running = support::daemon(Command::new(UPCALLD).args(flags), &socket);
        Daemon { running, socket, _folder: folder }
    }

    fn attach(&self, name: &str) -> Result<Runtime, StartError> {
        let daemon = Some(Attach { socket: self.socket.clone(), name: name.to_owned() });
        Runtime::start(Config { daemon, ..Config::default() })
    }

    fn status(&self) -> Status {
        status(&self.socket).unwrap()
    }
}

/// 1 ms in each 10 ms, due after 3 ms.
const SOON: ActivityParams =
    ActivityParams::new(Span::from_millis(10), Span::from_millis(1)).deadline(Span::from_millis(3));
/// 4 ms in each 10 ms.
const MUCH: ActivityParams = ActivityParams::new(Span::from_millis(10), Span::from_millis(4));

/// Whether a daemon with `flags` admits `need`.
fn admits(flags: &[&str], need: ActivityParams) -> bool {
    let daemon = Daemon::start(flags);
    let mut runtime = daemon.attach("domain").unwrap();
    match runtime.handler("handler", Need::from(need), |_| {}) {
        Ok(_) => true,
        Err(CreateError::RefusedByDaemon { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_platform_of_admission_follows_the_flags() {
    let _machine = machine();
    assert!(admits(&[], MUCH) && admits(&[], SOON));
    assert!(!admits(&["--cpu-limit", "30%"], MUCH));
    assert!(!admits(&["--wakeup-latency", "5ms"], SOON));
    assert!(!admits(&["--defer-preemption", "5ms"], SOON));
}

#[test]
fn the_state_of_the_daemon_follows_the_flags() {
    let _machine = machine();
    let daemon = Daemon::start(&["--policy", "dws"]);
    let told = daemon.status();
    // `support::daemon` passes --cpus and --switch-cost.
    assert_eq!((told.policy.as_str(), told.switch_cost_ns), ("dws", 20_000));
    assert_eq!(told.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [support::a_cpu()]);
    // A domain must schedule by the same policy, and this one does not.
    assert!(matches!(daemon.attach("domain").map(|_| ()), Err(StartError::Attach(_))));
    // Where there are several CPUs, the first is not the default.
    let first = upcall::allowed_cpus().unwrap()[0];
    let socket = daemon.socket.with_file_name("first.sock");
    let mut command = Command::new(UPCALLD);
    command.args(["--cpus", &first.to_string(), "--switch-cost", "20us", "--socket"]);
    drop(daemon.running);
    let mut running = Running::start(command.arg(&socket));
    wait_until("the daemon", || !running.runs() || status(&socket).is_ok());
    let told = status(&socket).unwrap();
    assert_eq!(told.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [first]);
}

#[test]
fn a_user_has_at_most_as_many_domains_as_the_flag_says() {
    let _machine = machine();
    let daemon = Daemon::start(&["--user-domains", "1"]);
    let first = daemon.attach("first").unwrap();
    let second = daemon.attach("second").map(|_| ());
    assert!(matches!(second, Err(StartError::Attach(_))), "{second:?}");
    drop(first);
    // The daemon notices the end a moment later.
    wait_until("the place is free", || daemon.attach("third").is_ok());
}

/// Before, one user could take all 32 places of a daemon for everyone.
#[test]
fn a_user_of_a_daemon_for_everyone_leaves_places_to_others() {
    let _machine = machine();
    for (flags, places) in [(&["--access", "everyone"][..], 24), (&[], 32)] {
        let daemon = Daemon::start(flags);
        let domains = (0..33).map_while(|_| daemon.attach("domain").ok());
        assert_eq!(domains.collect::<Vec<_>>().len(), places, "{flags:?}");
    }
}

#[test]
fn a_user_has_at_most_as_many_connections_as_the_flag_says() {
    let _machine = machine();
    let daemon = Daemon::start(&["--user-connections", "1"]);
    // The daemon notices a moment later that the connection of `support::daemon` has ended.
    let mut domain = None;
    wait_until("the connection is free", || {
        domain = daemon.attach("domain").ok();
        domain.is_some()
    });
    // Of many refusals in a short time, as above, the daemon tells some only.
    wait_until("the reason", || {
        let refused = status(&daemon.socket).unwrap_err().to_string();
        refused.contains("has the maximum number of connections, 1")
    });
    drop(domain);
    wait_until("the connection is free", || status(&daemon.socket).is_ok());
}

#[test]
fn a_silent_connection_ends_after_the_time_of_the_flag() {
    let _machine = machine();
    let silent = |timeout| {
        let folder = folder();
        let socket = folder.path().join("upcall.sock");
        let mut command = Command::new(UPCALLD);
        command.args(["--silent-timeout", timeout]);
        // Both daemons have one CPU, which one process may lock in a folder.
        let daemon = support::daemon(command.env("XDG_RUNTIME_DIR", folder.path()), &socket);
        (Connection::connect(&socket).unwrap(), daemon, folder)
    };
    // The connection that comes first may stay for longer.
    let [(stays, ..), (ends, ..)] = &["1000s", "50ms"].map(silent);
    assert!(readiness::wait_until(ends.as_fd(), Direction::Readable, None).unwrap());
    let now = Some(upcall::clock::now().as_nanos());
    assert!(!readiness::wait_until(stays.as_fd(), Direction::Readable, now).unwrap());
}

/// The first task takes more than admission may reserve.
const TOO_MUCH: &str = r#"
[[task]]
name = "much"
domain = "one"
period = "10 ms"
batch = 10
cost = "1 ms"
[[task]]
name = "little"
domain = "two"
period = "20 ms"
cost = "100 us"
"#;

/// A user whom no machine has of itself.
const USER: &str = "59431";

#[test]
#[ignore = "needs setpriv and root"]
fn only_root_and_users_of_the_flag_may_run_what_admission_refuses() {
    let _machine = machine();
    let spec = SpecFile::new(support::on_a_cpu(TOO_MUCH));
    let program = spec.beside("upcall");
    fs::copy(UPCALL, &program).unwrap();
    for path in [spec.folder.path().to_str().unwrap(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run = |daemon: &Daemon, as_user: &[&str]| {
        let folder = daemon.socket.parent().unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(as_user).arg(&program).args(["run", spec.path(), "--soft"]);
        command.args(["--duration", "200ms"]).env("UPCALL_SOCKET", &daemon.socket);
        Running::start(&mut command).finish()
    };
    let reuid = ["--reuid", USER, "--regid", USER, "--clear-groups", "--bounding-set=-all"];
    let daemon = Daemon::start(&["--access", "everyone"]);
    let refused = run(&daemon, &reuid);
    refused.assert_code(&[3]);
    let reason = format!("user {USER} has no right to run it all the same (upcalld --soft-users)");
    assert!(refused.stderr.contains(&reason), "{refused:#?}");
    run(&daemon, &["--bounding-set=+all"]).assert_code(&[0, 4]);
    // A run of one process asks the same daemon.
    fs::write(spec.path(), support::on_a_cpu(&TOO_MUCH.replace("domain =", "# domain ="))).unwrap();
    let refused = run(&daemon, &reuid);
    assert!(refused.assert_code(&[3]).stderr.contains(&reason), "{refused:#?}");
    drop(daemon);
    let daemon = Daemon::start(&["--access", "everyone", "--soft-users", USER]);
    run(&daemon, &reuid).assert_code(&[0, 4]);
}

/// A copy of `upcall` in a folder that any user may enter.
fn for_all_users() -> (SpecFile, String) {
    let spec = SpecFile::new(String::new());
    let program = spec.beside("upcall");
    fs::copy(UPCALL, &program).unwrap();
    for path in [spec.folder.path().to_str().unwrap(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (spec, program)
}

/// `upcall exec` of `true` as an ordinary user, with a share of 10 %, and the object that it said.
fn exec_as_user(program: &str, socket: &Path) -> (Done, Value) {
    fs::set_permissions(socket.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--bounding-set=-all"]);
    command.arg(program).args(["exec", "--share", "10%", "--json", "--", "true"]);
    command.env("UPCALL_SOCKET", socket).env("XDG_RUNTIME_DIR", socket.parent().unwrap());
    let done = Running::start(&mut command).finish();
    let last = done.stderr.lines().last().unwrap_or_default();
    let said = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {done:#?}"));
    (done, said)
}

#[test]
#[ignore = "needs setpriv and root"]
fn only_root_and_users_of_the_flag_may_ask_for_shares_of_programs() {
    let _machine = machine();
    let (_folder, program) = for_all_users();
    let daemon = Daemon::start(&["--access", "everyone"]);
    let (done, said) = exec_as_user(&program, &daemon.socket);
    done.assert_code(&[2]);
    assert_eq!(text(&said, "cause"), "no right");
    for part in [
        &format!("user {USER} has no right to shares of programs"),
        "root, the daemon's user 0, and users of `upcalld --program-users` have it",
        &format!("start the daemon with `--program-users {USER}`"),
    ] {
        assert!(text(&said, "reason").contains(part), "no `{part}`: {said:#}");
        assert!(done.stderr.contains(part), "no `{part}`: {done:#?}");
    }
    drop(daemon);
    let daemon = Daemon::start(&["--access", "everyone", "--program-users", USER]);
    let (done, said) = exec_as_user(&program, &daemon.socket);
    if done.code() == 2 && text(&said, "cause") == "no groups" {
        // Of all rights, this may be missing here. Then root has none, either.
        assert!(text(&said, "reason").contains("control group"), "{said:#}");
        return skipped(text(&said, "reason"));
    }
    done.assert_code(&[0]);
    assert!(truth(&said, "admitted") && truth(&said, "kept_to_end"), "{said:#}");
    assert_eq!(field(&said, "share"), 0.1);
}

/// A user whose own daemon can make no group learns which file it cannot write, and what would
/// help.
#[test]
#[ignore = "needs setpriv and root"]
fn a_user_without_a_group_learns_which_right_its_daemon_lacks() {
    let _machine = machine();
    let (_folder, program) = for_all_users();
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    let user = Some(USER.parse().unwrap());
    std::os::unix::fs::chown(&own, user, user).unwrap();
    let (done, said) = exec_as_user(&program, &own.join("upcall.sock"));
    done.assert_code(&[2]);
    assert_eq!(text(&said, "cause"), "no groups", "{said:#}");
    let reason = text(&said, "reason");
    if !reason.contains("no control groups with the controller `cpu`") {
        for part in ["no right to write /", "needs root", "Delegate=cpu"] {
            assert!(reason.contains(part), "no `{part}`: {said:#}");
        }
    }
    assert!(done.stderr.contains("nothing was run"), "{done:#?}");
}

#[test]
fn an_idle_daemon_ends_only_with_the_flag() {
    let _machine = machine();
    for (flags, ends) in [(&["--exit-when-idle"][..], true), (&[], false)] {
        let mut daemon = Daemon::start(flags);
        drop(daemon.attach("domain").unwrap());
        if ends {
            wait_until("the daemon ends", || !daemon.running.runs());
        } else {
            wait_until("the domain is gone", || daemon.status().domains.is_empty());
            assert!(daemon.running.runs());
        }
    }
}

/// A domain whose handler never yields, in a process of its own.
#[test]
#[ignore = "not a test: the tests below start it"]
fn as_a_domain_that_never_yields() {
    let Some(socket) = std::env::var_os("RUNAWAY_SOCKET") else { return };
    let daemon = Some(Attach { socket: socket.into(), name: "runaway".to_owned() });
    let mut runtime = Runtime::start(Config { daemon, ..Config::default() }).unwrap();
    let short = ActivityParams::new(Span::from_millis(10), Span::from_micros(100));
    let handler = runtime.handler("runaway", short, |_| {
        loop {
            std::hint::spin_loop();
        }
    });
    runtime.run(handler.unwrap()).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(20));
}

fn runaway(daemon: &Daemon) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "as_a_domain_that_never_yields"]);
    command.env("RUNAWAY_SOCKET", &daemon.socket).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// The offences of the runaway.
fn offences(told: &Status) -> u64 {
    told.domains.iter().filter(|of| of.name == "runaway").map(|of| of.offences()).sum()
}

/// The CPU time of the runaway.
fn used_ns(told: &Status) -> u64 {
    told.domains.iter().filter(|of| of.name == "runaway").map(|of| of.used_ns()).sum()
}

/// Beside a domain that waits for the CPU.
#[test]
fn a_domain_that_does_not_yield_is_killed_only_with_the_flag() {
    let _machine = machine();
    if RealTime::granted().is_err() {
        return skipped("no right to the real-time class");
    }
    for (flags, is_killed) in
        [(&["--grace", "10ms", "--kill"][..], true), (&["--grace", "10ms"], false)]
    {
        let daemon = Daemon::start(flags);
        let mut beside = daemon.attach("beside").unwrap();
        let waits = beside.handler("beside", SOON, |batch| while batch.proceed() {}).unwrap();
        beside.run(waits).unwrap();
        let mut child = runaway(&daemon);
        if is_killed {
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(9), "{status}");
        } else {
            wait_until("an offence", || offences(&daemon.status()) > 0);
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// With a grace of a minute the watchdog waits for longer than the kernel, which stops the
/// real-time class after 0.95 s. The runaway ends before that grace.
#[test]
fn a_long_grace_delays_the_first_offence() {
    let _machine = machine();
    if RealTime::granted().is_err() {
        return skipped("no right to the real-time class");
    }
    for (grace, offends) in [("60s", false), ("10ms", true)] {
        let daemon = Daemon::start(&["--grace", grace]);
        let mut beside = daemon.attach("beside").unwrap();
        let waits = beside.handler("beside", SOON, |batch| while batch.proceed() {}).unwrap();
        beside.run(waits).unwrap();
        let mut child = runaway(&daemon);
        wait_until("half a second of CPU time", || used_ns(&daemon.status()) > 500_000_000);
        if offends {
            wait_until("an offence", || offences(&daemon.status()) > 0);
        } else {
            assert_eq!(offences(&daemon.status()), 0);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
