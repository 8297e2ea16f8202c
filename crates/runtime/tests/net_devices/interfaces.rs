//! Interfaces of the kernel, in a network namespace of their own.

use super::suite::wait_for;
use std::io::Write;
use std::process::Command;

/// Runs `work` in a process with a network namespace of its own, by the `test` of this program that
/// calls it. `with` is put before the command, to watch it.
pub fn in_own_network(test: &str, with: &[&str], work: fn()) {
    if std::env::var_os("UPCALL_OWN_NETWORK").is_some() {
        return work();
    }
    let mut command = Command::new("unshare");
    command.arg("--net").args(with).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    let output = command.env("UPCALL_OWN_NETWORK", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{error}");
}

/// Says that `test` cannot run here. Not by a macro, because the output of a passing test is
/// hidden.
pub fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the veth pair `ours` and `theirs` anew.
pub fn veth() {
    // There is none the first time.
    let _ = Command::new("ip").args(["link", "delete", "ours"]).output().unwrap();
    ip("link add ours type veth peer name theirs");
    ["ours", "theirs"].into_iter().for_each(quiet);
    ["ours", "theirs"].into_iter().for_each(wait_until_up);
}

/// Sets an interface up, without frames of the kernel's own.
pub fn quiet(interface: &str) {
    ip(&format!("link set {interface} addrgenmode none"));
    ip(&format!("link set {interface} up"));
}

/// The kernel puts the queue of a new interface into use with a delay. It drops frames till then.
pub fn wait_until_up(interface: &str) {
    let is_up = || {
        let found = ip(&format!("-oneline link show {interface}"));
        found.contains("LOWER_UP") && !found.contains("qdisc noop ")
    };
    wait_for(is_up, "the interface");
}

pub fn delete(interface: &str) {
    ip(&format!("link delete {interface}"));
}
