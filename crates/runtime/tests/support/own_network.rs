//! Network namespaces for tests of real interfaces: one for the test, and one for its peer, whose
//! kernel echoes datagrams.

use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The port of the echo server.
pub const ECHO: u16 = 7007;

/// A child that ends with the test.
pub struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `work` in a process with a network namespace of its own, by the `test` of this file that
/// calls it. `with` goes before the command: a program that watches it.
pub fn in_own_network(test: &str, with: &[&str], work: fn()) {
    if std::env::var_os("UPCALL_OWN_NETWORK").is_some() {
        return work();
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--kill-child", "--fork"]).args(with);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    let output = command.env("UPCALL_OWN_NETWORK", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{error}");
}

/// Runs a command line that must succeed.
pub fn run(arguments: &str) {
    let mut words = arguments.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Calls `look` until it is true, for a minute at most.
pub fn wait_for(mut look: impl FnMut() -> bool, what: &str) {
    for _ in 0..60_000 {
        if look() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited a minute for {what}");
}

/// Another network namespace, and what goes before a command line in it.
pub fn namespace() -> (Peer, String) {
    let sleeper = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
    let namespace = Peer(sleeper);
    let pid = namespace.0.id().to_string();
    // The namespace is there once it differs from ours.
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
    wait_for(|| of(&pid).ok() != of("self").ok(), "the namespace");
    (namespace, format!("nsenter --net=/proc/{pid}/ns/net "))
}

/// Moves `interface` into the namespace.
pub fn move_into(namespace: &Peer, interface: &str) {
    run(&format!("ip link set {interface} netns {}", namespace.0.id()));
}

/// Starts the test `as_echo_server` of this file in a process `there`.
pub fn echo_server(there: &str) -> Peer {
    let mut words = there.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "as_echo_server", "--include-ignored", "--nocapture"]);
    command.env("UPCALL_ECHO", "1").stdout(Stdio::null()).stderr(Stdio::null());
    Peer(command.spawn().unwrap())
}

/// The test `as_echo_server`: sends datagrams to `address` back, in the process of [`echo_server`].
pub fn serve_echo(address: IpAddr) {
    if std::env::var_os("UPCALL_ECHO").is_none() {
        return println!("skipped: it is a part of other tests");
    }
    let socket = UdpSocket::bind((address, ECHO)).unwrap();
    let mut bytes = [0; 65_536];
    while let Ok((length, peer)) = socket.recv_from(&mut bytes) {
        socket.send_to(&bytes[..length], peer).unwrap();
    }
}
