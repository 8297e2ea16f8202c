//! The flows of a daemon and their interfaces, as JSON and as tables. `upcall ps` and `upcall net`
//! show them.

use comfy_table::Table;
use serde::Serialize;
use upcall::status::{FlowStatus, InterfaceDrops, OwnedInterfaceStatus};

use crate::show::{self, visible};

/// An entry of `flows`. Documented in docs/observing.md.
#[derive(Debug, Serialize)]
pub struct FlowOutput {
    interface: String,
    local: String,
    pid: u32,
    uid: u32,
    received: u64,
    dropped: Dropped,
    sent: u64,
    unsent: Unsent,
    at_ns: u64,
}

#[derive(Debug, Serialize)]
struct Dropped {
    over_quota: u64,
    behind: u64,
    queue_full: u64,
    receive_full: u64,
    checksum: u64,
    undelivered: u64,
}

#[derive(Debug, Serialize)]
struct Unsent {
    too_long: u64,
    unreachable: u64,
    refused: u64,
}

/// An entry of `owned_interfaces`. Documented in docs/observing.md.
#[derive(Debug, Serialize)]
pub struct OwnedInterfaceOutput {
    interface: String,
    path: String,
    frames: u32,
    free: u32,
    receiving: u32,
    sending: u32,
    waiting: u32,
    faults: u64,
    dropped: InterfaceDropped,
    at_ns: u64,
}

/// Frames that no flow got.
#[derive(Debug, Serialize)]
struct InterfaceDropped {
    hidden: u64,
    no_room: u64,
    too_long: u64,
    malformed: u64,
    fragments: u64,
    not_for_us: u64,
}

impl FlowOutput {
    pub fn of(status: &FlowStatus) -> Self {
        let FlowStatus { pid, uid, local, counts, at_ns, interface } = status;
        FlowOutput {
            interface: interface.clone(),
            local: local.to_string(),
            pid: *pid,
            uid: *uid,
            received: counts.received,
            dropped: Dropped {
                over_quota: counts.over_quota,
                behind: counts.behind,
                queue_full: counts.queue_full,
                receive_full: counts.receive_full,
                checksum: counts.checksum,
                undelivered: counts.undelivered,
            },
            sent: counts.sent,
            unsent: Unsent {
                too_long: counts.too_long,
                unreachable: counts.unreachable,
                refused: counts.refused,
            },
            at_ns: *at_ns,
        }
    }
}

impl OwnedInterfaceOutput {
    pub fn of(status: &OwnedInterfaceStatus) -> Self {
        OwnedInterfaceOutput {
            interface: status.interface.clone(),
            path: status.path.clone(),
            frames: status.frames,
            free: status.free,
            receiving: status.receiving,
            sending: status.sending,
            waiting: status.waiting,
            faults: status.faults,
            dropped: InterfaceDropped {
                hidden: status.drops.hidden,
                no_room: status.drops.no_room,
                too_long: status.drops.too_long,
                malformed: status.drops.malformed,
                fragments: status.drops.fragments,
                not_for_us: status.drops.not_for_us,
            },
            at_ns: status.at_ns,
        }
    }
}

/// The table of flows, and for each of their interfaces the path and the frames that no flow got.
/// Empty without flows.
pub fn text(interfaces: &[OwnedInterfaceStatus], flows: &[FlowStatus]) -> String {
    if flows.is_empty() {
        return String::new();
    }
    let path = |of: &OwnedInterfaceStatus| {
        let (interface, path) = (visible(&of.interface), visible(&of.path));
        format!("flows on {interface}: {path}\n{interface} dropped: {}\n", of_interface(of.drops))
    };
    format!("\n{}\n{}", table(flows), interfaces.iter().map(path).collect::<String>())
}

/// A row for each flow.
pub fn table(flows: &[FlowStatus]) -> Table {
    let header = ["interface", "local", "PID", "received", "dropped", "sent", "unsent"];
    let mut table = show::table(&header, 2);
    for FlowStatus { interface, local, pid, counts, .. } in flows {
        table.add_row([
            visible(interface),
            local.to_string(),
            pid.to_string(),
            counts.received.to_string(),
            dropped(counts),
            counts.sent.to_string(),
            unsent(counts),
        ]);
    }
    table
}

/// Datagrams that did not get to the program, with the reasons.
fn dropped(counts: &upcall::status::FlowCounts) -> String {
    by_reason(&[
        ("quota", counts.over_quota),
        ("behind", counts.behind),
        ("queue", counts.queue_full),
        ("full", counts.receive_full),
        ("checksum", counts.checksum),
        ("undelivered", counts.undelivered),
    ])
}

/// Frames that no flow got, with the reasons.
fn of_interface(drops: InterfaceDrops) -> String {
    by_reason(&[
        ("hidden", drops.hidden),
        ("no room", drops.no_room),
        ("too long", drops.too_long),
        ("malformed", drops.malformed),
        ("fragments", drops.fragments),
        ("not for us", drops.not_for_us),
    ])
}

fn unsent(counts: &upcall::status::FlowCounts) -> String {
    by_reason(&[
        ("too long", counts.too_long),
        ("unreachable", counts.unreachable),
        ("refused", counts.refused),
    ])
}

/// The numbers that are not 0, each with its reason.
fn by_reason(counts: &[(&str, u64)]) -> String {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = some.map(|(reason, count)| format!("{count} {reason}")).collect();
    if words.is_empty() { "0".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use upcall::status::FlowCounts;

    /// A flow that got 900 datagrams, and the interface.
    pub fn flow() -> (OwnedInterfaceStatus, FlowStatus) {
        let owned = OwnedInterfaceStatus {
            frames: 8192,
            free: 4096,
            receiving: 4095,
            sending: 1,
            waiting: 0,
            faults: 2,
            drops: InterfaceDrops { no_room: 6, malformed: 5, ..InterfaceDrops::default() },
            at_ns: 5,
            interface: "eth1".to_owned(),
            path: "AF_XDP with one copy".to_owned(),
        };
        let counts = FlowCounts {
            received: 900,
            over_quota: 48,
            checksum: 1,
            sent: 7,
            unreachable: 3,
            ..FlowCounts::default()
        };
        let flow = FlowStatus {
            pid: 7,
            uid: 1000,
            local: "10.0.0.2:5004".parse().unwrap(),
            counts,
            at_ns: 5,
            interface: "eth1".to_owned(),
        };
        (owned, flow)
    }

    #[test]
    fn a_row_has_the_counts_with_their_reasons() {
        let (owned, flow) = flow();
        let shown = text(std::slice::from_ref(&owned), std::slice::from_ref(&flow));
        for part in [
            "10.0.0.2:5004",
            "48 quota, 1 checksum",
            "3 unreachable",
            "with one copy",
            "eth1 dropped: 6 no room, 5 malformed\n",
        ] {
            assert!(shown.contains(part), "no `{part}` in:\n{shown}");
        }
        assert_eq!(text(&[], &[]), "");
        let json = serde_json::to_value(FlowOutput::of(&flow)).unwrap();
        let counts = (&json["dropped"]["over_quota"], &json["unsent"]["unreachable"]);
        assert_eq!(counts, (&48.into(), &3.into()));
        let json = serde_json::to_value(OwnedInterfaceOutput::of(&owned)).unwrap();
        assert_eq!((&json["free"], &json["faults"]), (&4096.into(), &2.into()));
        let dropped = &json["dropped"];
        assert_eq!((&dropped["no_room"], &dropped["hidden"]), (&6.into(), &0.into()));
    }
}
