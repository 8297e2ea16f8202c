//! `upcall net`: the network interfaces, what each can do for Upcall, the packet quotas and the
//! flows.
//!
//! Called by `main`. The interfaces are those of this command's network namespace. Quotas and flows
//! come from the daemon, if one answers.

use std::path::Path;

use serde::Serialize;
use upcall::status::{Status, status};
use upcall_daemon::interface::{self, AttachedXdp, Interface, XdpFeatures};
use upcall_daemon::placement::{Mode, Placement};

use crate::args::NetArgs;
use crate::exit::Failure;
use crate::ps;
use crate::ps::flows::{self, FlowOutput, OwnedInterfaceOutput};
use crate::ps::packet_quotas::{self, PacketQuotaOutput};
use crate::show;
use crate::standard_output::{print, print_json};
use path::PacketPath;

mod path;

/// The output of `--json`. Documented in docs/contract.md.
#[derive(Debug, Serialize)]
struct Output {
    interfaces: Vec<Shown>,
    /// Null: no daemon answers.
    packet_quotas: Option<Vec<PacketQuotaOutput>>,
    /// The same.
    owned_interfaces: Option<Vec<OwnedInterfaceOutput>>,
    /// The same.
    flows: Option<Vec<FlowOutput>>,
}

impl Output {
    fn of(interfaces: Vec<Shown>, status: Option<&Status>) -> Self {
        Output {
            interfaces,
            packet_quotas: status
                .map(|of| of.packet_quotas.iter().map(PacketQuotaOutput::of).collect()),
            owned_interfaces: status
                .map(|of| of.owned_interfaces.iter().map(OwnedInterfaceOutput::of).collect()),
            flows: status.map(|of| of.flows.iter().map(FlowOutput::of).collect()),
        }
    }
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
    /// In words. Null: the driver has no XDP.
    drops_run_on: Option<String>,
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

/// Prints interfaces, quotas and flows.
///
/// # Errors
/// The kernel does not list the interfaces, or the named daemon does not answer.
pub fn net(args: &NetArgs) -> Result<(), Failure> {
    let interfaces = interface::all().map_err(Failure::of_error)?;
    let status = of_daemon(args.daemon.socket.as_deref())?;
    let shown: Vec<Shown> = interfaces.iter().map(Shown::of).collect();
    if args.json {
        return print_json(&Output::of(shown, status.as_ref()));
    }
    print(&text(&shown, status.as_ref()))
}

/// The state of the daemon. `None`: none was named, and none answers.
fn of_daemon(named: Option<&Path>) -> Result<Option<Status>, Failure> {
    let socket = match ps::socket(named) {
        Ok(socket) => socket,
        Err(_) if named.is_none() => return Ok(None),
        Err(failure) => return Err(failure),
    };
    match status(&socket) {
        Ok(status) => Ok(Some(status)),
        Err(_) if named.is_none() => Ok(None),
        Err(error) => Err(ps::failed_request(&socket, error)),
    }
}

fn text(interfaces: &[Shown], status: Option<&Status>) -> String {
    let header = ["interface", "kind", "state", "MTU", "queues", "XDP", "attached", "path"];
    let mut table = show::table(&header, header.len());
    for shown in interfaces {
        table.add_row(shown.cells());
    }
    let mut text = format!("{table}\n\n");
    for Shown { name, reason, drops_run_on, .. } in interfaces {
        let drops = drops_run_on.as_ref().map(|drops| format!("; drops would run on {drops}"));
        text += &format!("{}: {reason}{}\n", show::visible(name), drops.unwrap_or_default());
    }
    let Some(status) = status else {
        return text + "\nNo daemon answers, so no quotas and flows are shown.\n";
    };
    text += &match status.packet_quotas.as_slice() {
        [] => "\nThe daemon has no packet quotas.\n".to_owned(),
        quotas => format!("\n{}\n", packet_quotas::table(quotas)),
    };
    text + &flows::text(&status.owned_interfaces, &status.flows)
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
            drops_run_on: drops_run_on(interface),
        }
    }

    fn cells(&self) -> [String; 8] {
        let kind = match (self.loopback, self.kind.as_str()) {
            (true, _) => "loopback".to_owned(),
            (false, "") => "hardware".to_owned(),
            (false, kind) => show::visible(kind),
        };
        let attached = self.attached.as_ref();
        [
            show::visible(&self.name),
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

/// Where the driver of an interface would drop packets.
fn drops_run_on(interface: &Interface) -> Option<String> {
    let has_native = interface.features.is_some_and(XdpFeatures::has_native);
    let placement = has_native.then(|| Placement::of(&interface.name).ok()).flatten()?;
    Some(placement.early_drop(Mode::Native).to_string())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ps::flows::tests::flow;
    use crate::ps::packet_quotas::tests::quota;

    fn interface() -> Shown {
        Shown::of(&Interface {
            index: 2,
            name: "eth1".to_owned(),
            mtu_bytes: 1500,
            is_up: true,
            receive_queues: 4,
            transmit_queues: 4,
            ..Interface::default()
        })
    }

    #[test]
    fn the_tables_name_interfaces_and_quotas() {
        let (owned, flow) = flow();
        let status = Status {
            packet_quotas: vec![quota()],
            owned_interfaces: vec![owned],
            flows: vec![flow],
            ..Status::default()
        };
        let text = text(&[interface()], Some(&status));
        for part in [
            "eth1",
            "hardware",
            "4/4",
            "eth1: this kernel does not say",
            "udp:5004",
            "10.0.0.2:5004",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }

    #[test]
    fn no_daemon_is_not_the_same_as_no_quotas() {
        assert!(text(&[interface()], None).contains("No daemon answers"));
        assert!(text(&[interface()], Some(&Status::default())).contains("has no packet quotas"));
        let json = serde_json::to_value(Output::of(vec![interface()], None)).unwrap();
        assert!(json["packet_quotas"].is_null() && json["flows"].is_null());
        assert!(json["owned_interfaces"].is_null() && json["interfaces"][0]["xdp"].is_null());
    }
}
