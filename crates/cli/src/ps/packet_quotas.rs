//! The packet quotas of a daemon, as JSON and as a table. `upcall ps` and `upcall net` show them.

use comfy_table::Table;
use serde::Serialize;
use upcall::status::PacketQuotaStatus;

use crate::show::{self, visible};

/// An entry of `packet_quotas`. Documented in docs/observing.md.
#[derive(Debug, Serialize)]
pub struct PacketQuotaOutput {
    interface: String,
    destination: String,
    interval_ns: u64,
    depth: u32,
    passed: u64,
    dropped: u64,
    name: String,
    pid: u32,
    at_ns: u64,
}

impl PacketQuotaOutput {
    pub fn of(status: &PacketQuotaStatus) -> Self {
        let PacketQuotaStatus { quota, counts, pid, at_ns, interface, name } = status;
        PacketQuotaOutput {
            interface: interface.clone(),
            destination: quota.destination.to_string(),
            interval_ns: quota.interval_ns,
            depth: quota.depth,
            passed: counts.passed,
            dropped: counts.dropped,
            name: name.clone(),
            pid: *pid,
            at_ns: *at_ns,
        }
    }
}

/// A row for each quota on each interface.
pub fn table(quotas: &[PacketQuotaStatus]) -> Table {
    let header =
        ["interface", "destination", "name", "PID", "packets/s", "ahead", "passed", "dropped"];
    let mut table = show::table(&header, 3);
    for PacketQuotaStatus { quota, counts, pid, interface, name, .. } in quotas {
        table.add_row([
            visible(interface),
            quota.destination.to_string(),
            visible(name),
            pid.to_string(),
            rate(quota.interval_ns),
            quota.depth.to_string(),
            counts.passed.to_string(),
            counts.dropped.to_string(),
        ]);
    }
    table
}

/// Packets a second, with three digits.
pub fn rate(interval_ns: u64) -> String {
    let rate = 1e9 / interval_ns.max(1) as f64;
    match rate {
        rate if rate >= 100.0 => format!("{rate:.0}"),
        rate if rate >= 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use upcall::status::{PacketCounts, PacketDestination, PacketQuota};

    /// 99 packets a second to port 5004, of which 900 came and 48,000 were too many.
    pub fn quota() -> PacketQuotaStatus {
        let destination = PacketDestination { address: [0; 16], protocol: 17, port: 5004 };
        PacketQuotaStatus {
            quota: PacketQuota { destination, interval_ns: 10_101_010, depth: 3 },
            counts: PacketCounts { passed: 900, dropped: 48_000 },
            pid: 7,
            at_ns: 5,
            interface: "eth1".to_owned(),
            name: "play\x1ber".to_owned(),
        }
    }

    #[test]
    fn a_row_has_the_quota_and_its_counts() {
        let text = table(&[quota()]).to_string();
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["eth1", "udp:5004", "play?er", "7", "99.0", "3", "900", "48000"]);
        let json = serde_json::to_value(PacketQuotaOutput::of(&quota())).unwrap();
        assert_eq!((&json["passed"], &json["dropped"]), (&900.into(), &48_000.into()));
    }

    #[test]
    fn a_rate_has_three_digits() {
        let rates = [1_000_000_000, 10_101_010, 4_545_454].map(rate);
        assert_eq!(rates, ["1.00", "99.0", "220"]);
    }
}
