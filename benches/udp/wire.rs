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

use upcall_benches::measured_cpu;
use upcall_sys::placement::{self, Placement};
use upcall_sys::schedule;

/// Our interface and address.
pub const INTERFACE: &str = "ours";
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address in the child namespace.
pub const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// The environment variable that tells a process its role.
pub const ROLE: &str = "UPCALL_BENCH_ROLE";
/// The environment variable with the CPUs of all: the bench pins itself to one, and its children
/// would inherit that.
const INSIDE: &str = "UPCALL_BENCH_INSIDE";

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
            // A packet that the kernel joined is taken apart before the wire.
            ip(&mut command(), &format!("link set {interface} gso_max_segs 1"));
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

    /// Lets a packet that the kernel joined cross the wire towards us as it is.
    pub fn carry_joined(&self) {
        ip(&mut self.inside("ip"), "link set theirs gso_max_segs 65535");
    }

    /// Has the kernel process the packets that come to us in a thread of its own on `cpu`, and
    /// returns that thread. The kernel has such threads only for an interface with an XDP program.
    /// `with_offload`: or with generic receive offload, for packets of an interface without TSO.
    ///
    /// The thread is of the class `SCHED_FIFO`, so that no ordinary program keeps the CPU while the
    /// 256 places of the interface fill. Nobody restores the class: the thread goes with the
    /// interface.
    pub fn process_in_thread(&self, cpu: u32, with_offload: bool) -> NapiThread {
        if with_offload {
            let mut ours = Command::new("ethtool");
            ours.args(["-K", INTERFACE, "gro", "on"]);
            let mut theirs = self.inside("ethtool");
            theirs.args(["-K", "theirs", "tso", "off"]);
            for mut command in [ours, theirs] {
                let status = command.status();
                assert!(status.is_ok_and(|status| status.success()), "ethtool(8) fails");
            }
        }
        // Nobody restores the old value: the interface goes with the bench.
        let _ = placement::set_threaded(INTERFACE, true).expect("threaded NAPI");
        let threads = Placement::of(INTERFACE).expect("the interface").napi_threads;
        let [thread] = threads[..] else { panic!("threads of the interface: {threads:?}") };
        schedule::pin_thread_of(thread, &[cpu]).expect("the CPU is allowed");
        // Below the receiver.
        schedule::set_fifo_of(thread, 1).expect("the right to the real-time class");
        NapiThread(thread)
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

/// A thread of the kernel that processes packets.
#[derive(Clone, Copy, Debug)]
pub struct NapiThread(u32);

impl NapiThread {
    /// Its CPU time in nanoseconds: the first number of proc(5), `schedstat`.
    pub fn cpu_ns(self) -> u64 {
        let path = format!("/proc/{}/schedstat", self.0);
        let text = std::fs::read_to_string(path).expect("schedstat");
        text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    }
}

/// Goes on in a network namespace of its own, with a `/sys` that shows it. Returns in that one, and
/// ends the process otherwise.
pub fn go_inside() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let own = std::env::current_exe().expect("this program has a path");
    let cpus: Vec<String> =
        schedule::allowed_cpus().unwrap_or_default().iter().map(u32::to_string).collect();
    let mut command = Command::new("unshare");
    let mount_and_run = r#"mount -t sysfs none /sys && exec "$0" "$@""#;
    command.args(["--net", "--mount", "sh", "-c", mount_and_run]).arg(own);
    command.args(std::env::args_os().skip(1)).env(INSIDE, cpus.join(" "));
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => {
            println!("skipped: udp: unshare(1): {error}");
            std::process::exit(0);
        }
    }
}

/// All CPUs of the bench, and of those the ones that the measured one leaves to the children.
pub fn cpus() -> (Vec<u32>, Vec<u32>) {
    let words = std::env::var(INSIDE).unwrap_or_default();
    let all: Vec<u32> = words.split(' ').filter_map(|word| word.parse().ok()).collect();
    let others = all.iter().copied().filter(|&cpu| cpu != measured_cpu()).collect();
    (all, others)
}

fn ip(command: &mut Command, words: &str) {
    let status = command.args(words.split_whitespace()).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {words} failed");
}
