//! Checks the text with a strict reader of the OpenMetrics format.

use std::collections::{BTreeMap, BTreeSet};

use upcall::OsError;
use upcall::status::{
    CpuStatus, DomainCounters, FlowCounts, FlowStatus, InterfaceDrops, OwnedInterfaceStatus,
    PacketCounts, PacketDestination, PacketQuota, VirtualProcessorState,
};
use upcall_daemon::server::Trouble;

use super::*;

fn virtual_processor(cpu: u32) -> VirtualProcessorStatus {
    let counters = DomainCounters { jobs: 7, misses: 2, pdus: 14, ..DomainCounters::default() };
    VirtualProcessorStatus {
        cpu,
        tid: 1,
        state: VirtualProcessorState::Attached,
        offences: 3,
        reserved_ppm: 250_000,
        part_ppm: None,
        lag_ns: Some(-1_500_000),
        used_ns: 1_500_000_000,
        counters,
        fault: String::new(),
    }
}

fn domain(
    number: u32,
    name: &str,
    virtual_processors: Vec<VirtualProcessorStatus>,
) -> DomainStatus {
    let (pid, uid, generation, at_ns) = (1, 70_001, 1, 0);
    let (name, activities) = (name.to_owned(), Vec::new());
    DomainStatus {
        domain: number,
        generation,
        pid,
        uid,
        at_ns,
        name,
        virtual_processors,
        activities,
    }
}

fn text(domains: Vec<DomainStatus>) -> String {
    let cpus = vec![CpuStatus { cpu: 1, reserved_ppm: 500_000, limit_ppm: 900_000 }];
    let status =
        Status { policy: "rmdp".into(), real_time: true, cpus, domains, ..Status::default() };
    exposition(status, Arc::default()).unwrap()
}

/// A family: its type, and its samples by their labels.
type Families = BTreeMap<String, (String, BTreeMap<String, f64>)>;

/// Reads `text`, or returns what is wrong with it. Each family has HELP and TYPE before its samples
/// and occurs once. Samples of counters end in `_total`, and no series occurs twice. `# EOF` is the
/// last line.
fn families(text: &str) -> Result<Families, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let (mut families, mut helped) = (Families::new(), BTreeSet::new());
    let mut current = None;
    for line in body.lines() {
        if let Some((name, _)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            helped.insert(name.to_owned());
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let family = (kind.to_owned(), BTreeMap::new());
            if families.insert(name.to_owned(), family).is_some() {
                return Err(format!("family {name} twice"));
            }
            current = Some(name.to_owned());
        } else {
            let name = current.clone().ok_or_else(|| format!("a sample of no family: {line}"))?;
            let (kind, samples) = families.get_mut(&name).ok_or("it was inserted")?;
            let suffix = if kind == "counter" { "_total" } else { "" };
            let rest = line.strip_prefix(&format!("{name}{suffix}"));
            let (labels, value) = sample(rest.ok_or_else(|| format!("not of {name}: {line}"))?)?;
            if samples.insert(labels, value).is_some() {
                return Err(format!("a series twice: {line}"));
            }
        }
    }
    match families.keys().find(|name| !helped.contains(*name)) {
        Some(name) => Err(format!("no HELP for {name}")),
        None => Ok(families),
    }
}

/// Splits `{a="b"} 1` or ` 1` into labels and value.
fn sample(rest: &str) -> Result<(String, f64), String> {
    let (labels, value) = match rest.strip_prefix('{') {
        None => ("", rest),
        Some(rest) => rest.split_once('}').ok_or_else(|| format!("open labels: {rest}"))?,
    };
    let value = value.strip_prefix(' ').ok_or_else(|| format!("no value: {rest}"))?;
    Ok((labels.to_owned(), value.parse().map_err(|_| format!("no number: {value}"))?))
}

#[test]
fn the_series_of_domains_and_cpus_pass_a_strict_reader() {
    // Two domains of one name, one of them on two CPUs, and one that is attaching.
    let text = text(vec![
        domain(1, "player", vec![virtual_processor(1), virtual_processor(2)]),
        domain(2, "player", vec![virtual_processor(1)]),
        domain(3, "new", Vec::new()),
    ]);
    let families = families(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    let value = |family: &str, labels: &str| families[family].1[labels];
    let first = "domain=\"player\",number=\"1\",uid=\"70001\",cpu=\"2\"";
    assert_eq!(value("upcall_domain_jobs", first), 7.0);
    assert_eq!(value("upcall_domain_misses", first), 2.0);
    assert_eq!(value("upcall_domain_offences", first), 3.0);
    assert_eq!(value("upcall_domain_cpu_seconds", first), 1.5);
    assert_eq!(value("upcall_domain_reserved_ratio", first), 0.25);
    assert_eq!(families["upcall_domain_jobs"].1.len(), 3);
    assert_eq!(value("upcall_cpu_reserved_ratio", "cpu=\"1\""), 0.5);
    assert_eq!(value("upcall_cpu_limit_ratio", "cpu=\"1\""), 0.9);
    assert_eq!(value("upcall_daemon_domains", ""), 3.0);
    assert_eq!(value("upcall_daemon_real_time", ""), 1.0);
}

#[test]
fn packet_quotas_have_two_series_each() {
    let destination = PacketDestination { address: [0; 16], protocol: 17, port: 5004 };
    let quota = |interface: &str, dropped| PacketQuotaStatus {
        quota: PacketQuota { destination, interval_ns: 1, depth: 1 },
        counts: PacketCounts { passed: 7, dropped },
        pid: 3,
        at_ns: 0,
        interface: interface.to_owned(),
        name: "player".to_owned(),
    };
    let packet_quotas = vec![quota("eth1", 5), quota("eth2", 6)];
    let text = exposition(Status { packet_quotas, ..Status::default() }, Arc::default()).unwrap();
    let families = families(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    let labels = "interface=\"eth2\",destination=\"udp:5004\",program=\"player\",pid=\"3\"";
    assert_eq!(families["upcall_packets_dropped"].1[labels], 6.0);
    assert_eq!(families["upcall_packets_passed"].1[labels], 7.0);
}

#[test]
fn flows_have_series_for_each_reason() {
    let flow = FlowStatus {
        pid: 7,
        uid: 1000,
        local: "10.0.0.2:5004".parse().unwrap(),
        counts: FlowCounts {
            received: 900,
            over_quota: 48,
            sent: 7,
            unreachable: 3,
            ..FlowCounts::default()
        },
        at_ns: 0,
        interface: "eth1".to_owned(),
    };
    let text =
        exposition(Status { flows: vec![flow], ..Status::default() }, Arc::default()).unwrap();
    let families = families(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    let labels = "interface=\"eth1\",local=\"10.0.0.2:5004\",pid=\"7\"";
    assert_eq!(families["upcall_flow_received"].1[labels], 900.0);
    assert_eq!(families["upcall_flow_sent"].1[labels], 7.0);
    let of = |reason: &str| format!("{labels},reason=\"{reason}\"");
    assert_eq!(families["upcall_flow_dropped"].1[&of("over_quota")], 48.0);
    assert_eq!(families["upcall_flow_unsent"].1[&of("unreachable")], 3.0);
}

#[test]
fn interfaces_have_series_for_each_reason() {
    let owned = OwnedInterfaceStatus {
        frames: 8192,
        free: 4096,
        receiving: 4096,
        sending: 0,
        waiting: 0,
        faults: 2,
        drops: InterfaceDrops { no_room: 6, malformed: 5, ..InterfaceDrops::default() },
        at_ns: 5,
        interface: "eth1".to_owned(),
        path: "AF_XDP".to_owned(),
    };
    let status = Status { owned_interfaces: vec![owned], ..Status::default() };
    let text = exposition(status, Arc::default()).unwrap();
    let families = families(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    let dropped = |reason: &str| {
        let labels = format!("interface=\"eth1\",reason=\"{reason}\"");
        families["upcall_interface_dropped"].1[&labels]
    };
    assert_eq!(["no_room", "malformed", "hidden"].map(dropped), [6.0, 5.0, 0.0]);
    assert_eq!(families["upcall_interface_faults"].1["interface=\"eth1\""], 2.0);
}

#[test]
fn a_name_cannot_forge_a_series() {
    let text =
        text(vec![domain(1, "a\"} 1\nupcall_daemon_domains 99\\", vec![virtual_processor(1)])]);
    let escaped = r#"{domain="a\"} 1\nupcall_daemon_domains 99\\",number="1","#;
    assert!(text.contains(escaped), "{text}");
    let forged = |line: &&str| line.starts_with("upcall_daemon_domains ");
    assert_eq!(text.lines().filter(forged).collect::<Vec<_>>(), ["upcall_daemon_domains 1"]);
}

#[test]
fn each_event_is_counted_once() {
    let [refused, lost_lines] = [2, 5].map(|count| Arc::new(AtomicU64::new(count)));
    let counts = Counts::new(refused, lost_lines);
    let name = || "a".to_owned();
    let owner = upcall_daemon::registry::Owner { uid: 1, pid: 1 };
    counts.count(&DaemonEvent::Attached { domain: 1, name: name(), owner });
    // The server has counted it.
    counts.count(&DaemonEvent::Refused { owner, reason: name() });
    counts.count(&DaemonEvent::Trouble(Trouble::Os(OsError::new("accept", 24))));
    let status = Status::default();
    let text = exposition(status, Arc::new(counts)).unwrap();
    let families = families(&text).unwrap();
    let total = |what: &str| families[&format!("upcall_daemon_{what}")].1[""];
    let totals =
        ["attached", "detached", "refused", "offences", "troubles", "lost_lines"].map(total);
    assert_eq!(totals, [1.0, 0.0, 2.0, 0.0, 1.0, 5.0]);
}

#[test]
fn without_a_daemon_there_is_no_text() {
    let source = Source::new("/nonexistent/upcall.sock".into(), Arc::default());
    let why = source.text().unwrap_err();
    assert!(why.contains("/nonexistent/upcall.sock: connect: No such file"), "{why}");
}
