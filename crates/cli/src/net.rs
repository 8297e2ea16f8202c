//! `upcall net`: the network interfaces, what each can do for Upcall, and the packet quotas.
//!
//! Called by `main`. The interfaces are those of this command's network namespace. The quotas come
//! from the daemon, if one answers.

use std::path::Path;

use serde::Serialize;
use upcall::interface::{self, AttachedXdp, Interface, XdpFeatures};
use upcall::status::{PacketQuotaStatus, status};

use crate::args::NetArgs;
use crate::exit::Failure;
use crate::ps;
use crate::show;
use crate::standard_output::{print, print_json};
use path::PacketPath;

mod path;

/// The output of `--json`. Documented in docs/observing.md.
#[derive(Debug, Serialize)]
struct Output {
    interfaces: Vec<Shown>,
    /// Null: no daemon answers.
    packet_quotas: Option<Vec<Quota>>,
}

#[derive(Debug, Serialize)]
struct Shown {
    index: u32,
    name: String,
    /// Empty for hardware.
    kind: String,
    mtu_bytes: u32,
    up: bool,
    loopback: bool,
    receive_queues: u32,
    transmit_queues: u32,
    /// Null: the kernel does not say.
    xdp: Option<Features>,
    /// Null: no program is attached.
    attached: Option<Attached>,
    path: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Features {
    native: bool,
    redirect: bool,
    zero_copy: bool,
    fragments: bool,
}

#[derive(Debug, Serialize)]
struct Attached {
    program: u32,
    mode: String,
}

#[derive(Debug, Serialize)]
struct Quota {
    interface: String,
    destination: String,
    interval_ns: u64,
    depth: u32,
    passed: u64,
    dropped: u64,
    name: String,
    pid: u32,
}

/// Prints interfaces and quotas.
///
/// # Errors
/// The kernel does not list the interfaces, or the named daemon does not answer.
pub fn net(args: &NetArgs) -> Result<(), Failure> {
    let interfaces = interface::all().map_err(Failure::of_error)?;
    let quotas = quotas(args.daemon.socket.as_deref())?;
    let output = Output {
        interfaces: interfaces.iter().map(Shown::of).collect(),
        packet_quotas: quotas.as_ref().map(|all| all.iter().map(Quota::of).collect()),
    };
    match args.json {
        true => print_json(&output),
        false => print(&output.text()),
    }
}

/// The quotas of the daemon. `None`: none was named, and none answers.
fn quotas(named: Option<&Path>) -> Result<Option<Vec<PacketQuotaStatus>>, Failure> {
    let socket = match ps::socket(named) {
        Ok(socket) => socket,
        Err(_) if named.is_none() => return Ok(None),
        Err(failure) => return Err(failure),
    };
    match status(&socket) {
        Ok(status) => Ok(Some(status.packet_quotas)),
        Err(_) if named.is_none() => Ok(None),
        Err(error) => Err(ps::failed_request(&socket, error)),
    }
}

impl Output {
    fn text(&self) -> String {
        let header = ["interface", "kind", "state", "MTU", "queues", "XDP", "attached", "path"];
        let mut table = show::table(&header, header.len());
        for shown in &self.interfaces {
            table.add_row(shown.cells());
        }
        let mut text = format!("{table}\n\n");
        for Shown { name, reason, .. } in &self.interfaces {
            text += &format!("{}: {reason}\n", ps::visible(name));
        }
        match &self.packet_quotas {
            None => text += "\nNo daemon answers, so no quotas are shown.",
            Some(quotas) if quotas.is_empty() => text += "\nThe daemon has no packet quotas.",
            Some(quotas) => {
                let header = [
                    "interface",
                    "destination",
                    "PID",
                    "program",
                    "packets/s",
                    "ahead",
                    "passed",
                    "dropped",
                ];
                let mut table = show::table(&header, 4);
                for quota in quotas {
                    table.add_row(quota.cells());
                }
                text += &format!("\n{table}");
            }
        }
        text
    }
}

impl Shown {
    fn of(interface: &Interface) -> Self {
        let (path, reason) = path::of(interface);
        Shown {
            index: interface.index,
            name: interface.name.clone(),
            kind: interface.kind.clone(),
            mtu_bytes: interface.mtu_bytes,
            up: interface.is_up,
            loopback: interface.is_loopback,
            receive_queues: interface.receive_queues,
            transmit_queues: interface.transmit_queues,
            xdp: interface.features.map(Features::of),
            attached: interface.xdp.map(Attached::of),
            path: PacketPath::name(path),
            reason,
        }
    }

    fn cells(&self) -> [String; 8] {
        let kind = match (self.loopback, self.kind.as_str()) {
            (true, _) => "loopback".to_owned(),
            (false, "") => "hardware".to_owned(),
            (false, kind) => ps::visible(kind),
        };
        let attached = self.attached.as_ref();
        [
            ps::visible(&self.name),
            kind,
            if self.up { "up" } else { "down" }.to_owned(),
            self.mtu_bytes.to_string(),
            format!("{}/{}", self.receive_queues, self.transmit_queues),
            self.xdp.as_ref().map_or_else(|| "unknown".to_owned(), Features::words),
            attached.map_or_else(|| "-".to_owned(), |of| format!("{} ({})", of.program, of.mode)),
            self.path.to_owned(),
        ]
    }
}

impl Features {
    fn of(features: XdpFeatures) -> Self {
        Features {
            native: features.has_native(),
            redirect: features.has_redirect(),
            zero_copy: features.has_zero_copy(),
            fragments: features.has_fragments(),
        }
    }

    fn words(&self) -> String {
        let all = [
            (self.native, "native"),
            (self.redirect, "redirect"),
            (self.zero_copy, "zero copy"),
            (self.fragments, "fragments"),
        ];
        let words: Vec<&str> =
            all.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        if words.is_empty() { "generic only".to_owned() } else { words.join(", ") }
    }
}

impl Attached {
    fn of(attached: AttachedXdp) -> Self {
        Attached { program: attached.program, mode: attached.mode.to_string() }
    }
}

impl Quota {
    fn of(status: &PacketQuotaStatus) -> Self {
        let PacketQuotaStatus { quota, counts, pid, interface, name } = status;
        Quota {
            interface: interface.clone(),
            destination: quota.destination.to_string(),
            interval_ns: quota.interval_ns,
            depth: quota.depth,
            passed: counts.passed,
            dropped: counts.dropped,
            name: name.clone(),
            pid: *pid,
        }
    }

    fn cells(&self) -> [String; 8] {
        [
            ps::visible(&self.interface),
            self.destination.clone(),
            self.pid.to_string(),
            ps::visible(&self.name),
            format!("{:.1}", 1e9 / self.interval_ns.max(1) as f64),
            self.depth.to_string(),
            self.passed.to_string(),
            self.dropped.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall::status::{PacketCounts, PacketDestination, PacketQuota};

    fn output(packet_quotas: Option<Vec<Quota>>) -> Output {
        let interface = Interface {
            index: 2,
            name: "eth1".to_owned(),
            mtu_bytes: 1500,
            is_up: true,
            receive_queues: 4,
            transmit_queues: 4,
            ..Interface::default()
        };
        Output { interfaces: vec![Shown::of(&interface)], packet_quotas }
    }

    #[test]
    fn the_tables_name_interfaces_and_quotas() {
        let destination = PacketDestination { address: [0; 16], protocol: 17, port: 5004 };
        let status = PacketQuotaStatus {
            quota: PacketQuota { destination, interval_ns: 10_101_010, depth: 3 },
            counts: PacketCounts { passed: 900, dropped: 48_000 },
            pid: 7,
            interface: "eth1".to_owned(),
            name: "player".to_owned(),
        };
        let text = output(Some(vec![Quota::of(&status)])).text();
        for part in ["eth1", "hardware", "4/4", "udp:5004", "99.0", "player", "900", "48000"] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }

    #[test]
    fn no_daemon_is_not_the_same_as_no_quotas() {
        assert!(output(None).text().contains("No daemon answers"));
        assert!(output(Some(Vec::new())).text().contains("has no packet quotas"));
        let json = serde_json::to_value(output(None)).unwrap();
        assert!(json["packet_quotas"].is_null() && json["interfaces"][0]["xdp"].is_null());
    }
}
