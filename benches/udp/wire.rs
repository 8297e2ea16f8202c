//! A pair of virtual interfaces between this process and a child network namespace.
//!
//! ```text
//!   our namespace                          child namespace
//!     ours, 10.77.0.1  <--------------->     theirs, 10.77.0.2
//! ```
//!
//! The bench itself runs in a namespace of its own (`unshare --net`), so nothing leaves the
//! machine, and everything goes with the processes. One queue an end. Offloads are those of veth:
//! no checksum is computed for a packet that stays on the machine.

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Our interface and address.
pub const INTERFACE: &str = "ours";
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address in the child namespace.
pub const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// The environment variable that tells a process its role.
pub const ROLE: &str = "UPCALL_BENCH_ROLE";

/// The child namespace, until dropped.
#[derive(Debug)]
pub struct Wire(Child);

impl Wire {
    /// Makes both ends. Panics if ip(8) fails.
    pub fn lay(mtu: u32) -> Wire {
        // The pair of a former part.
        let _ =
            Command::new("ip").args(["link", "delete", INTERFACE]).stderr(Stdio::null()).status();
        let sleeper = Command::new("unshare").args(["--net", "sleep", "100000"]).spawn();
        let wire = Wire(sleeper.expect("unshare(1) starts"));
        let pid = wire.0.id().to_string();
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        while of(&pid) == of("self") {
            std::thread::sleep(Duration::from_millis(1));
        }
        ip(
            &mut Command::new("ip"),
            &format!(
                "link add {INTERFACE} numrxqueues 1 numtxqueues 1 mtu {mtu} type veth \
             peer name theirs numrxqueues 1 numtxqueues 1 mtu {mtu} netns {pid}"
            ),
        );
        for (interface, address) in [(INTERFACE, OURS), ("theirs", THEIRS)] {
            let command =
                || if interface == INTERFACE { Command::new("ip") } else { wire.inside("ip") };
            // No traffic but that of the bench.
            ip(&mut command(), &format!("link set {interface} addrgenmode none"));
            ip(&mut command(), &format!("address add {address}/24 dev {interface}"));
            ip(&mut command(), &format!("link set {interface} up"));
        }
        // The kernel puts a new queue into use with a delay, and drops frames till then.
        for interface in [INTERFACE, "theirs"] {
            let is_up = || {
                let mut command =
                    if interface == INTERFACE { Command::new("ip") } else { wire.inside("ip") };
                let output = command.args(["-oneline", "link", "show", interface]).output();
                let text =
                    String::from_utf8_lossy(&output.expect("ip(8) runs").stdout).into_owned();
                text.contains("LOWER_UP") && !text.contains("qdisc noop ")
            };
            while !is_up() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        wire
    }

    /// The begin of a command line in the child namespace.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg(program);
        command
    }

    /// Starts this program in the child namespace, in a role.
    pub fn start(&self, role: &str) -> Child {
        let own = std::env::current_exe().expect("this program has a path");
        let mut command = self.inside(&own.to_string_lossy());
        command.env(ROLE, role).stdout(Stdio::piped());
        command.spawn().expect("nsenter(1) starts")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goes on in a network namespace of its own. Returns in that one, and ends the process otherwise.
pub fn go_inside() {
    const INSIDE: &str = "UPCALL_BENCH_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let own = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(own).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => {
            println!("skipped: udp: unshare(1): {error}");
            std::process::exit(0);
        }
    }
}

fn ip(command: &mut Command, words: &str) {
    let status = command.args(words.split_whitespace()).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {words} failed");
}
