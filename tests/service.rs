//! The daemon under a service manager. The test acts as the manager: it passes a socket as
//! descriptor 3, and receives the messages of the daemon. It also scrapes metrics.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Running, SpecFile, UPCALL, UPCALLD, a_cpu, folder, signal, upcall, wait_until};
use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, Runtime};
use upcall_daemon::server::{Access, Listener};

/// The longest wait for a message or an answer. A hang fails the test.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

fn domain(socket: &Path, name: &str) -> Runtime {
    let daemon = Some(Attach { socket: socket.to_owned(), name: name.to_owned() });
    Runtime::start(Config { daemon, ..Config::default() }).unwrap()
}

/// The next message to the service manager.
fn told(manager: &UnixDatagram) -> String {
    let mut message = [0; 4096];
    let length = manager.recv(&mut message).unwrap();
    String::from_utf8_lossy(&message[..length]).into_owned()
}

/// Starts the daemon as a service manager does. The shell replaces itself by the daemon, so that
/// the process is the one of `LISTEN_PID`.
fn as_service(listener: &Listener, manager: &Path) -> Command {
    use std::os::fd::AsFd;
    let mut command = Command::new("sh");
    let daemon = "exec 3<&0 </dev/null; export LISTEN_PID=$$; exec \"$0\" \"$@\"";
    command.args(["-c", daemon, UPCALLD]);
    command.args(["--cpus", &a_cpu().to_string(), "--switch-cost", "20us"]);
    command.env("LISTEN_FDS", "1").env("NOTIFY_SOCKET", manager);
    // Standard input has no close-on-exec flag. The shell makes it descriptor 3.
    command.stdin(Stdio::from(listener.as_fd().try_clone_to_owned().unwrap()));
    command
}

/// The socket of a service manager, and the one that it passes to the daemon.
fn service_manager(socket: &Path, notify: &Path) -> (UnixDatagram, Listener) {
    let manager = UnixDatagram::bind(notify).unwrap();
    manager.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    (manager, Listener::bind(socket, Access::Owner).unwrap())
}

#[test]
fn a_service_manager_passes_the_socket_and_learns_of_start_and_end() {
    let _machine = support::machine();
    let folder = folder();
    let (socket, notify) = (folder.path().join("upcall.sock"), folder.path().join("notify"));
    let (manager, listener) = service_manager(&socket, &notify);
    let mut daemon = as_service(&listener, &notify).spawn().unwrap();

    let ready = told(&manager);
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    assert!(ready.contains(&format!("STATUS=on CPUs [{}] by rmdp", a_cpu())), "{ready}");
    let mut player = domain(&socket, "player");
    let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(100));
    player.handler("tick", need, |batch| while batch.proceed() {}).unwrap();
    let seen = upcall(&["ps", "--json", "--socket", socket.to_str().unwrap()]);
    assert!(seen.assert_code(&[0]).stdout.contains("player"), "{seen:#?}");
    drop(player);

    signal(daemon.id(), "TERM");
    assert_eq!(told(&manager), "STOPPING=1\n");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    // The manager keeps the socket open, and passes it to the next daemon.
    assert!(socket.exists());
    let mut next = as_service(&listener, &notify).spawn().unwrap();
    assert!(told(&manager).contains("READY=1"));
    drop(domain(&socket, "again"));
    signal(next.id(), "TERM");
    assert_eq!(next.wait().unwrap().code(), Some(0));
}

/// Before, the default was that of a daemon of one user, and one user could take all 32 places.
#[test]
fn a_user_of_a_passed_socket_leaves_places_to_others() {
    let _machine = support::machine();
    let folder = folder();
    let (socket, notify) = (folder.path().join("upcall.sock"), folder.path().join("notify"));
    let (manager, listener) = service_manager(&socket, &notify);
    let mut daemon = as_service(&listener, &notify).spawn().unwrap();
    assert!(told(&manager).contains("READY=1"));
    let attach = || {
        let daemon = Some(Attach { socket: socket.clone(), name: "domain".to_owned() });
        Runtime::start(Config { daemon, ..Config::default() }).ok()
    };
    let places = (0..33).map_while(|_| attach()).collect::<Vec<_>>().len();
    // Before the assertion, so that no daemon is left.
    signal(daemon.id(), "TERM");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert_eq!(places, 24);
}

#[test]
fn a_passed_socket_of_another_kind_or_place_is_refused_in_a_line() {
    let folder = folder();
    let [socket, notify] = ["upcall.sock", "notify"].map(|name| folder.path().join(name));
    let _manager = UnixDatagram::bind(&notify).unwrap();
    let listener = Listener::bind(&socket, Access::Owner).unwrap();
    let refused = |command: &mut Command| {
        let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let elsewhere = refused(as_service(&listener, &notify).args(["--socket", "/run/other"]));
    assert!(elsewhere.contains("/run/other") && elsewhere.contains("passed"), "{elsewhere}");
    let datagrams = UnixDatagram::unbound().unwrap();
    let kind = refused(as_service(&listener, &notify).stdin(std::os::fd::OwnedFd::from(datagrams)));
    assert!(kind.contains("EPROTOTYPE"), "{kind}");
}

#[test]
fn the_daemon_of_a_run_sends_nothing_to_the_service_manager() {
    let _machine = support::machine();
    let folder = folder();
    let [socket, notify] = ["upcall.sock", "notify"].map(|name| folder.path().join(name));
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_nonblocking(true).unwrap();
    let domains = support::example("domains.toml");
    let mut run = Command::new(UPCALL);
    run.args(["run", &domains, "--duration", "1s"]).stdout(Stdio::null());
    let ended = run.env("UPCALL_SOCKET", &socket).env("NOTIFY_SOCKET", &notify).status().unwrap();
    // A promise may be broken without the right to the real-time class.
    assert!([0, 4].contains(&ended.code().unwrap()), "{ended}");
    let told = manager.recv(&mut [0; 4096]).unwrap_err();
    assert_eq!(told.kind(), std::io::ErrorKind::WouldBlock);
}

/// A daemon with metrics.
struct Scraped {
    running: Running,
    socket: PathBuf,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Scraped {
    fn start() -> Self {
        let folder = folder();
        let socket = folder.path().join("upcall.sock");
        // The port is free now. The kernel hands out ports in its own order.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = Command::new(UPCALLD);
        command.args(["--metrics", &address.to_string()]);
        let running = support::daemon(&mut command, &socket);
        Scraped { running, socket, address, _folder: folder }
    }

    /// Opens a connection and sends `request`.
    fn send(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        // The daemon may have closed the connection already.
        let _ = stream.write_all(request);
        stream
    }

    /// Head and body of the answer to `request`. Both are empty if the daemon closes the
    /// connection.
    fn ask(&self, request: &[u8]) -> (String, String) {
        let mut answer = String::new();
        let _ = self.send(request).read_to_string(&mut answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (head.to_owned(), body.to_owned())
    }

    fn metrics(&self) -> String {
        let (head, body) = self.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        assert!(body.ends_with("# EOF\n"), "{body}");
        body
    }
}

/// The value of the series that begins with `series`.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_scraper_finds_what_ps_shows() {
    let _machine = support::machine();
    let daemon = Scraped::start();
    assert_eq!(value(&daemon.metrics(), "upcall_daemon_domains "), Some(0.0));
    let mut player = domain(&daemon.socket, "player");
    let need = |cost_us| ActivityParams::new(Span::from_millis(5), Span::from_micros(cost_us));
    let tick = player.handler("tick", need(100), |batch| while batch.proceed() {}).unwrap();
    assert!(player.handler("too much", need(4_900), |_| {}).is_err());
    player.run(tick).unwrap();
    let series = "upcall_domain_jobs_total{domain=\"player\",number=\"1\"";
    wait_until("jobs in the metrics", || value(&daemon.metrics(), series) > Some(2.0));
    let metrics = daemon.metrics();
    let cpu = a_cpu();
    assert_eq!(value(&metrics, "upcall_daemon_domains "), Some(1.0));
    assert_eq!(value(&metrics, "upcall_daemon_attached_total "), Some(1.0));
    assert_eq!(value(&metrics, "upcall_daemon_refused_total "), Some(1.0));
    let limit = format!("upcall_cpu_limit_ratio{{cpu=\"{cpu}\"}} ");
    assert_eq!(value(&metrics, &limit), Some(0.9));
    let reserved = "upcall_domain_reserved_ratio{domain=\"player\"";
    assert!(value(&metrics, reserved) >= Some(0.02), "{metrics}");
    drop(player);
    wait_until("its end in the metrics", || {
        value(&daemon.metrics(), "upcall_daemon_detached_total ") == Some(1.0)
    });
    assert_eq!(value(&daemon.metrics(), series), None);
    daemon.running.signal("TERM");
    daemon.running.finish().assert_code(&[0]);
}

/// The number of threads of `pid` with the name `name`.
fn threads(pid: u32, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

#[test]
fn hostile_scrapers_delay_neither_domains_nor_other_scrapers() {
    let _machine = support::machine();
    let daemon = Scraped::start();
    // Many scrapers that send nothing, or half a request, and keep the connection.
    let silent: Vec<_> = (0..40).map(|_| daemon.send(b"")).collect();
    let slow: Vec<_> = (0..40).map(|_| daemon.send(b"GET /metrics HT")).collect();
    let requests = || threads(daemon.running.pid(), "upcall-scrape");
    wait_until("a request", || requests() > 0);
    drop(domain(&daemon.socket, "meanwhile"));
    // The daemon closes each connection, and holds few at a time.
    for mut stream in silent.into_iter().chain(slow) {
        assert!(requests() <= 8, "{}", requests());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    let metrics = daemon.metrics();
    assert_eq!(value(&metrics, "upcall_daemon_attached_total "), Some(1.0), "{metrics}");
    let status = |request: &[u8]| {
        let (head, _) = daemon.ask(request);
        head.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status(b"DELETE /metrics HTTP/1.1\r\n\r\n"), "405");
    assert_eq!(status(b"\x16\x03\x01\x02\x00 TLS"), "400");
    let endless = [b"GET /metrics HTTP/1.1\r\n".as_slice(), &b"a".repeat(64 * 1024)].concat();
    assert!(["400", ""].contains(&&*status(&endless)));
    daemon.running.signal("TERM");
    daemon.running.finish().assert_code(&[0]);
}

#[test]
fn metrics_need_a_loopback_address_and_a_free_port() {
    let refused = |address: &str| {
        let mut command = Command::new(UPCALLD);
        let done = Running::start(command.args(["--metrics", address])).finish();
        done.assert_code(&[2]);
        done.stderr
    };
    let everywhere = refused("0.0.0.0:9435");
    assert!(everywhere.contains("loopback") && everywhere.contains("0.0.0.0"), "{everywhere}");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let told = refused(&address);
    assert!(told.contains(&address) && told.lines().count() == 1, "{told}");
}

#[test]
fn a_full_standard_error_does_not_end_the_daemon() {
    let _machine = support::machine();
    let folder = folder();
    let socket = folder.path().join("upcall.sock");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut daemon = Command::new(UPCALLD)
        .args(["--cpus", &a_cpu().to_string(), "--switch-cost", "20us", "--socket"])
        .arg(&socket)
        .stdin(Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    wait_until("the daemon", || upcall::status::status(&socket).is_ok());
    drop(domain(&socket, "player"));
    signal(daemon.id(), "TERM");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

#[test]
fn a_quiet_daemon_logs_only_warnings_with_any_rust_log() {
    let _machine = support::machine();
    let folder = folder();
    let socket = folder.path().join("upcall.sock");
    let mut command = Command::new(UPCALLD);
    command.arg("--quiet").env("RUST_LOG", "info");
    let daemon = support::daemon(&mut command, &socket);
    drop(domain(&socket, "player"));
    daemon.signal("TERM");
    let done = daemon.finish();
    done.assert_code(&[0]);
    assert!(!done.stderr.contains("player"), "{}", done.stderr);
}

#[test]
fn with_rust_log_a_line_has_fields() {
    let _machine = support::machine();
    let folder = folder();
    let socket = folder.path().join("upcall.sock");
    let mut command = Command::new(UPCALLD);
    let daemon = support::daemon(command.env("RUST_LOG", "upcall_daemon=info"), &socket);
    drop(domain(&socket, "player"));
    daemon.signal("TERM");
    let done = daemon.finish();
    done.assert_code(&[0]);
    let attached = done.stderr.lines().find(|line| line.contains("attached")).unwrap();
    for part in ["INFO", "domain=1", "name=\"player\"", "pid="] {
        assert!(attached.contains(part), "no {part}: {attached}");
    }
}

/// A set of two domains that another user runs. With one domain the run would need no daemon.
const SET: &str = "
[[task]]
name = \"tick\"
period = \"20 ms\"
cost = \"100 us\"
domain = \"player\"
[[task]]
name = \"rest\"
period = \"50 ms\"
cost = \"100 us\"
domain = \"mixer\"
";

#[test]
#[ignore = "needs root, setpriv and SCHED_FIFO"]
fn the_capabilities_of_the_unit_suffice_for_domains_of_other_users() {
    let _machine = support::machine();
    let unit = support::root().join("packaging/systemd/upcalld.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let capabilities: Vec<String> = set
        .split(' ')
        .map(|name| format!(",+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()))
        .collect();
    // A folder that any user may enter.
    let spec = SpecFile::new(support::on_a_cpu(SET));
    let program = spec.folder.path().join("upcall");
    std::fs::copy(UPCALL, &program).unwrap();
    std::fs::set_permissions(spec.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = spec.folder.path().join("upcall.sock");
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set=-all{}", capabilities.concat()));
    command.args(["--inh-caps=-all", "--no-new-privs", UPCALLD, "--access", "everyone"]);
    let daemon = support::daemon(&mut command, &socket);

    let mut run = Command::new("setpriv");
    run.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all"]);
    run.arg(&program).args(["run", spec.path(), "--duration", "1s"]).env("UPCALL_SOCKET", &socket);
    Running::start(&mut run).finish().assert_code(&[0, 4]);
    daemon.signal("TERM");
    let done = daemon.finish();
    done.assert_code(&[0]);
    for part in ["real-time class", "`player`: process", "of user 65534"] {
        assert!(done.stderr.contains(part), "no `{part}`: {}", done.stderr);
    }
    // All other lines are of domains, and a slow host adds such lines. Without tracefs the daemon
    // does not see which domains lend a priority, and says so.
    let is_of_unit = |line: &&str| {
        line.starts_with("upcalld: domain ")
            || line.contains(" on CPUs [")
            || line.contains("CAP_PERFMON")
    };
    let others: Vec<&str> = done.stderr.lines().filter(|line| !is_of_unit(line)).collect();
    assert!(others.is_empty(), "a right is missing: {others:?}");
    let folders = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
    if folders.iter().any(|folder| Path::new(folder).exists()) {
        assert!(!done.stderr.contains("CAP_PERFMON"), "a right is missing: {}", done.stderr);
    }
}
