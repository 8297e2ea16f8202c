//! Two network namespaces, with a pair of virtual interfaces between them.
//!
//! ```text
//!   namespace upcall-livelock-PID-tx             namespace upcall-livelock-PID-rx
//!     tx0, 10.77.0.2  ------------------------->   rx0, 10.77.0.1   RPS: the receivers' CPU
//! ```
//!
//! Without RPS the kernel's work for a packet runs on the CPU of its sender, and a flood costs the
//! receivers nothing. RPS stands for a network card that interrupts the receivers' CPU.
//!
//! Buffers of sockets and queues have the kernel's default sizes. The interfaces have one queue and
//! the default offloads of veth, so no checksum is computed. Datagrams that a sender hands over
//! together cross the wire one by one (`gso_max_segs`), and nothing joins them.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use upcall_cli::standard_error::say;

use crate::exit::Failure;

/// What the names of all namespaces begin with. A process number follows.
const PREFIX: &str = "upcall-livelock-";
/// The receivers' interface.
pub const INTERFACE: &str = "rx0";
/// The receivers' address.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const HARDWARE_ADDRESS: &str = "02:00:00:00:00:01";

/// The end of the wire at which a process is.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Receivers,
    Senders,
}

/// See the module's head. Dropping it removes both namespaces.
#[derive(Debug)]
pub struct Wire {
    receivers: String,
    senders: String,
}

impl Wire {
    /// Makes namespaces and interfaces. `receivers_cpu` does the kernel's work for packets.
    ///
    /// # Errors
    /// What ip(8) said. Nothing remains.
    pub fn lay(receivers_cpu: u32) -> Result<Wire, Failure> {
        let pid = std::process::id();
        // First, so that a failure below removes what was made.
        let wire =
            Wire { receivers: format!("{PREFIX}{pid}-rx"), senders: format!("{PREFIX}{pid}-tx") };
        let (rx, tx) = (wire.receivers.as_str(), wire.senders.as_str());
        ip(&format!("netns add {rx}"))?;
        ip(&format!("netns add {tx}"))?;
        ip(&format!(
            "-n {rx} link add {INTERFACE} address {HARDWARE_ADDRESS} numrxqueues 1 numtxqueues 1 \
             type veth peer name tx0 address 02:00:00:00:00:02 numrxqueues 1 numtxqueues 1 \
             netns {tx}"
        ))?;
        for (namespace, interface, address) in
            [(rx, INTERFACE, "10.77.0.1"), (tx, "tx0", "10.77.0.2")]
        {
            // No traffic but that of the senders.
            ip(&format!("-n {namespace} link set {interface} addrgenmode none"))?;
            ip(&format!("-n {namespace} address add {address}/24 dev {interface}"))?;
            ip(&format!("-n {namespace} link set {interface} gso_max_segs 1"))?;
            ip(&format!("-n {namespace} link set {interface} up"))?;
        }
        ip(&format!("-n {tx} neigh add {ADDRESS} lladdr {HARDWARE_ADDRESS} dev tx0"))?;
        wire.steer(receivers_cpu)?;
        Ok(wire)
    }

    /// Lets `cpu` do the kernel's work for packets that arrive (RPS).
    fn steer(&self, cpu: u32) -> Result<(), Failure> {
        let queue = format!("/sys/class/net/{INTERFACE}/queues/rx-0/rps_cpus");
        let failed = |why: &str| Failure::new(format_args!("{queue}: {why}"));
        let mut tee = self.inside(End::Receivers);
        tee.args(["tee", &queue])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut tee = tee.spawn().map_err(Failure::of_error)?;
        if let Some(mut input) = tee.stdin.take() {
            let _ = input.write_all(mask(cpu).as_bytes());
        }
        let output = tee.wait_with_output().map_err(Failure::of_error)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// The begin of a command line that runs in the namespace of an end.
    pub fn inside(&self, end: End) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace(end)]);
        command
    }

    /// The name of the namespace of an end.
    pub fn namespace(&self, end: End) -> &str {
        match end {
            End::Receivers => &self.receivers,
            End::Senders => &self.senders,
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for namespace in [&self.senders, &self.receivers] {
            // It fails if the namespace was not made.
            let _ = ip(&format!("netns delete {namespace}"));
        }
    }
}

/// Removes the namespaces of runs that were killed. Says what it removed, and what it could not.
pub fn remove_leftovers() {
    let Ok(list) = ip("netns list") else { return };
    let is_alive = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
    for namespace in leftovers(&list, is_alive) {
        match ip(&format!("netns delete {namespace}")) {
            Ok(_) => say(format_args!("upcall: removed {namespace}, which a killed run left")),
            Err(error) => say(format_args!("upcall: {error}")),
        }
    }
}

/// The namespaces in the output of `ip netns list` whose process does not live.
fn leftovers(list: &str, is_alive: impl Fn(u32) -> bool) -> Vec<&str> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| {
            let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            pid.and_then(|pid| pid.parse().ok()).is_some_and(|pid| !is_alive(pid))
        })
        .collect()
}

/// The mask of a CPU in the kernel's form: groups of 32 bits, the highest first.
fn mask(cpu: u32) -> String {
    format!("{:x}{}", 1_u32 << (cpu % 32), ",00000000".repeat((cpu / 32) as usize))
}

/// Runs ip(8). Returns its output.
fn ip(words: &str) -> Result<String, Failure> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output =
        output.map_err(|error| Failure::new(format_args!("ip: {error}")).because(error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Failure::new(format_args!("ip {words}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_processes_that_live_are_not_removed() {
        let list =
            "upcall-livelock-12-rx (id: 1)\nupcall-livelock-7-tx\nother\nupcall-livelock-x\n";
        assert_eq!(leftovers(list, |pid| pid == 7), ["upcall-livelock-12-rx"]);
        assert_eq!(leftovers(list, |_| true), [""; 0]);
    }

    #[test]
    fn a_mask_has_groups_of_32_bits() {
        assert_eq!(mask(1), "2");
        assert_eq!(mask(31), "80000000");
        assert_eq!(mask(65), "2,00000000,00000000");
    }
}
