//! Shared by the whole-program tests: starting `upcall`, specs, ports, JSON.
//!
//! This module asserts nothing about time. Its bounds are generous by a factor of ten or more. They
//! make a hang fail its test, so that it does not stop all tests.

use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use serde_json::Value;

/// Time between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// Checks before a wait counts as hung: two minutes.
const CHECKS_MAX: u32 = 6_000;

/// Held by a test that runs real-time threads: two such tests at once would disturb each other on
/// the CPU that they share.
pub fn machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // A poisoned lock is ignored: a failed test leaves no state that affects the next.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The programs under test.
pub const UPCALL: &str = env!("CARGO_BIN_EXE_upcall");
pub const UPCALLD: &str = env!("CARGO_BIN_EXE_upcalld");

/// Two domains, each a process of its own. They need a daemon.
pub const TWO_DOMAINS: &str = r#"
[[task]]
name = "mixer"
domain = "player"
period = "10 ms"
cost = "100 us"
[[task]]
name = "steer"
domain = "control"
period = "20 ms"
cost = "100 us"
"#;

/// The root folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The path of a file in `examples/`.
pub fn example(name: &str) -> String {
    let path = root().join("examples").join(name);
    path.to_str().expect("the workspace's path is UTF-8").to_owned()
}

/// The result of a command that has ended.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// The exit status; -1 after a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// The only JSON object on standard output.
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value @ Value::Object(_)) => value,
            other => panic!("expected one JSON object, found {other:?} in {self:#?}"),
        }
    }

    /// Fails unless the command ended with one of `codes`.
    #[track_caller]
    pub fn assert_code(&self, codes: &[i32]) -> &Self {
        assert!(codes.contains(&self.code()), "expected exit {codes:?}, found {self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }
}

/// A running command. It is killed if it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts `command` without input and collects its output. If `command` sets no
    /// `UPCALL_SOCKET`, it finds no daemon except one that it starts.
    pub fn start(command: &mut Command) -> Running {
        if !command.get_envs().any(|(key, _)| key == "UPCALL_SOCKET") {
            command.env("UPCALL_SOCKET", own_socket());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Running { child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the command is still running.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal by its name, such as `INT`.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for the end of the command.
    pub fn finish(mut self) -> Done {
        wait_until("the command's end", || !self.runs());
        let status = self.child.wait().expect("it ended");
        let text = |thread: Option<JoinHandle<String>>| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        Done { status, stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // No effect if the command has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of a socket at which no other daemon listens.
fn own_socket() -> PathBuf {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("upcall-test-{}-{number}.sock", std::process::id()))
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Runs `upcall` with `arguments` to its end.
pub fn upcall(arguments: &[&str]) -> Done {
    start(arguments).finish()
}

/// Starts `upcall` with `arguments`.
pub fn start(arguments: &[&str]) -> Running {
    Running::start(Command::new(UPCALL).args(arguments))
}

/// Starts a daemon for one CPU at `socket`, with `command`. Returns when it answers.
#[track_caller]
pub fn daemon(command: &mut Command, socket: &Path) -> Running {
    command.args(["--cpus", &a_cpu().to_string(), "--switch-cost", "20us", "--socket"]).arg(socket);
    let mut running = Running::start(command);
    wait_until("the daemon", || {
        assert!(running.runs(), "the daemon ended");
        upcall::status::status(socket).is_ok()
    });
    running
}

/// Sends a process a signal by its name.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()])
        .status()
        .expect("there is a shell");
    assert!(sent.success(), "kill -s {name} {pid}");
}

/// Checks `done` until it is true, a bounded number of times.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..CHECKS_MAX {
        if done() {
            return;
        }
        sleep(CHECK_EVERY);
    }
    panic!("waited in vain for {what}");
}

/// A folder that is removed at the end of the test.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A spec file that is removed with its folder.
#[derive(Debug)]
pub struct SpecFile {
    pub folder: tempfile::TempDir,
    path: PathBuf,
}

impl SpecFile {
    pub fn new(text: impl AsRef<[u8]>) -> SpecFile {
        let folder = folder();
        let path = folder.path().join("spec.toml");
        fs::write(&path, text).expect("the folder is ours");
        SpecFile { folder, path }
    }

    pub fn path(&self) -> &str {
        self.path.to_str().expect("temporary paths are UTF-8")
    }

    /// Path of another file in the same folder.
    pub fn beside(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        path.to_str().expect("temporary paths are UTF-8").to_owned()
    }
}

/// A UDP port on the loopback interface that is free now. The kernel hands out ports in its own
/// order, so another test is unlikely to get the same.
pub fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("it is bound").port()
}

/// `text` with each `{}` replaced by a free port, and those ports.
pub fn with_ports(text: &str) -> (String, Vec<u16>) {
    let mut parts = text.split("{}");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    // All sockets stay open until all ports are known, so that no two are equal.
    let mut sockets = Vec::new();
    for part in parts {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        filled += &socket.local_addr().expect("it is bound").port().to_string();
        filled += part;
        sockets.push(socket);
    }
    let port = |socket: &UdpSocket| socket.local_addr().expect("it is bound").port();
    (filled, sockets.iter().map(port).collect())
}

/// Waits until `running` has bound a UDP socket to `port` on IPv4.
#[track_caller]
pub fn wait_until_bound(running: &mut Running, port: u16) {
    let local = format!(":{port:04X}");
    let is_bound = || {
        let table = fs::read_to_string("/proc/net/udp").expect("/proc is mounted");
        table.lines().any(|line| {
            line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&local))
        })
    };
    wait_until("a bound port", || is_bound() || !running.runs());
    assert!(running.runs(), "the command ended before it bound port {port}");
}

/// The attempts of [`assert_kept`] in all, and those that fail it.
const ATTEMPTS_MAX: usize = 8;
const BROKEN_MAX: usize = 2;

/// Repeats `attempt`, a run on `cpu`, until it was kept more often than broken.
///
/// On a virtual machine the host may take the CPU away for longer than any slack (its steal time).
/// No scheduler inside the machine can prevent that, so a failure with steal time proves nothing
/// and does not count. A failure without it counts, and after it two attempts must succeed: the
/// best of three decides. If the host leaves too few attempts alone, the promise was not seen kept.
/// The test is then skipped, with the number of attempts.
///
/// Without the right to the real-time class every program takes the CPU as the host does, so no
/// failure counts.
#[track_caller]
pub fn assert_kept(cpu: u32, mut attempt: impl FnMut() -> Result<(), String>) {
    if upcall::RealTime::granted().is_err() {
        if (0..3).all(|_| attempt().is_err()) {
            skipped("not kept in 3 attempts without the right to the real-time class");
        }
    } else if let Err(why) = most_kept(|| steal_ms(cpu), attempt) {
        skipped(&format!("CPU {cpu}: {why}"));
    }
}

/// As [`assert_kept`], with a counter of steal time. The error says why nothing is proved.
///
/// # Panics
/// If two attempts without steal time fail before two more succeed.
#[track_caller]
pub fn most_kept(
    steal_ms: impl Fn() -> u64,
    mut attempt: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let (mut kept, mut broken) = (0, Vec::new());
    let before_ms = steal_ms();
    for _ in 0..ATTEMPTS_MAX {
        let start_ms = steal_ms();
        match attempt() {
            Ok(()) => kept += 1,
            Err(_) if steal_ms() > start_ms => continue,
            Err(how) => broken.push(how),
        }
        assert!(broken.len() < BROKEN_MAX, "broken {BROKEN_MAX} times: {}", broken.join("\n"));
        if kept > broken.len() {
            return Ok(());
        }
    }
    let stolen_ms = steal_ms() - before_ms;
    let count = format!("{kept} kept, {} broken", broken.len());
    Err(format!(
        "not decided in {ATTEMPTS_MAX} attempts ({count}), the host took {stolen_ms} ms of them"
    ))
}

/// Prints that the test of this thread was skipped and why, even if the output of passed tests is
/// not shown.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {why}", thread.name().unwrap_or("a test"));
}

/// Time for which the host ran something else on `cpu`, since boot and in steps of 10 ms
/// (proc_stat(5), `steal`). 0 if the host does not tell.
pub fn steal_ms(cpu: u32) -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc is mounted");
    let name = format!("cpu{cpu}");
    // Fields after the name: user nice system idle iowait irq softirq steal.
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name));
    let ticks = line.and_then(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok());
    ticks.unwrap_or(0) * 10
}

/// The last CPU that this process may use, for a set that shares one CPU. Without `cpus` in its
/// spec, a set spreads over all CPUs of the machine.
pub fn a_cpu() -> u32 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = list.and_then(|list| list.trim().rsplit([',', '-']).next()?.parse().ok());
    last.expect("a list of CPUs, such as 0-3,8")
}

/// `spec` on the CPU of [`a_cpu`].
pub fn on_a_cpu(spec: &str) -> String {
    format!("cpus = [{}]\n{spec}", a_cpu())
}

/// A field, which must exist.
#[track_caller]
pub fn field<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, key| {
        value.get(key).unwrap_or_else(|| panic!("no `{path}` (at `{key}`) in {value:#}"))
    })
}

/// A field that is a non-negative whole number.
#[track_caller]
pub fn number(value: &Value, path: &str) -> u64 {
    let found = field(value, path);
    found.as_u64().unwrap_or_else(|| panic!("`{path}`: found {found}, expected a whole number"))
}

#[track_caller]
pub fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    let found = field(value, path);
    found.as_str().unwrap_or_else(|| panic!("`{path}`: found {found}, expected a string"))
}

#[track_caller]
pub fn truth(value: &Value, path: &str) -> bool {
    let found = field(value, path);
    found.as_bool().unwrap_or_else(|| panic!("`{path}`: found {found}, expected true or false"))
}

#[track_caller]
pub fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    let found = field(value, path);
    found.as_array().unwrap_or_else(|| panic!("`{path}`: found {found}, expected an array"))
}

/// The entry of a list with this name.
#[track_caller]
pub fn named<'v>(value: &'v Value, path: &str, name: &str) -> &'v Value {
    let found = list(value, path).iter().find(|entry| text(entry, "name") == name);
    found.unwrap_or_else(|| panic!("no `{name}` in `{path}` of {value:#}"))
}

/// The type that a field of an object must have.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A non-negative whole number.
    Count,
    /// A whole number of either sign, or null.
    SignedOrNull,
    CountOrNull,
    Float,
    FloatOrNull,
    Text,
    TextOrNull,
    Bool,
    List,
    Object,
}

/// Fails unless each field exists with its type. More fields may exist.
#[track_caller]
pub fn assert_fields(value: &Value, fields: &[(&str, Type)]) {
    for &(path, kind) in fields {
        let found = field(value, path);
        let fits = match kind {
            Type::Count => found.is_u64(),
            Type::SignedOrNull => found.is_i64() || found.is_null(),
            Type::CountOrNull => found.is_u64() || found.is_null(),
            Type::Float => found.is_f64(),
            Type::FloatOrNull => found.is_f64() || found.is_null(),
            Type::Text => found.is_string(),
            Type::TextOrNull => found.is_string() || found.is_null(),
            Type::Bool => found.is_boolean(),
            Type::List => found.is_array(),
            Type::Object => found.is_object(),
        };
        assert!(fits, "`{path}`: found {found}, expected {kind:?}, in {value:#}");
    }
}

/// Processes with the ancestor `pid`, by the parents in /proc.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if let Some((parent, state)) = parent_of(child)
            && state != 'Z'
        {
            parents.push((child, parent));
        }
    }
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let above = found[at];
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| pid));
        at += 1;
    }
    found.split_off(1)
}

/// Parent and state of a process, if it exists.
fn parent_of(pid: u32) -> Option<(u32, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// Whether a process exists and is not only waiting to be reaped.
pub fn is_alive(pid: u32) -> bool {
    parent_of(pid).is_some_and(|(_, state)| state != 'Z')
}
