//! Metrics for Prometheus (`upcalld --metrics`), in the OpenMetrics text format.
//!
//! The threads here are ordinary clients of the daemon. They ask for the status over its socket, as
//! `upcall ps` does, at most once a second for all scrapers. A slow scraper blocks a thread of
//! [`http`], never the thread that serves domains.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use upcall::status::{
    DomainStatus, FlowCounts, OwnedInterfaceStatus, PacketQuotaStatus, Status,
    VirtualProcessorStatus, status,
};
use upcall_daemon::server::DaemonEvent;

pub(super) mod http;
#[cfg(test)]
mod tests;

/// How long a text answers all scrapers.
const TEXT_AGE_MAX: Duration = Duration::from_secs(1);

/// Counts of events since the daemon's start. The server's thread counts; scrapers read.
#[derive(Debug, Default)]
pub(super) struct Counts {
    attached: AtomicU64,
    detached: AtomicU64,
    offences: AtomicU64,
    troubles: AtomicU64,
    /// The server counts here, because it does not report every refusal.
    refused: Arc<AtomicU64>,
    /// The log counts here.
    lost_lines: Arc<AtomicU64>,
}

impl Counts {
    /// No event yet. `refused` counts refusals, and `lost_lines` lines that the log lost.
    pub(super) fn new(refused: Arc<AtomicU64>, lost_lines: Arc<AtomicU64>) -> Self {
        Counts { refused, lost_lines, ..Counts::default() }
    }

    /// Counts `event` by one atomic addition.
    pub(super) fn count(&self, event: &DaemonEvent) {
        let counter = match event {
            DaemonEvent::Attached { .. } => &self.attached,
            DaemonEvent::Detached { .. } => &self.detached,
            DaemonEvent::Offence { .. } => &self.offences,
            DaemonEvent::Trouble(_) => &self.troubles,
            _ => return,
        };
        // Relaxed: each count is used on its own.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The source of the text of `/metrics`.
#[derive(Debug)]
pub(super) struct Source {
    socket: PathBuf,
    counts: Arc<Counts>,
    /// The latest text, and when the daemon was asked for it.
    latest: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Source {
    /// Metrics of the daemon that listens at `socket`.
    pub(super) fn new(socket: PathBuf, counts: Arc<Counts>) -> Self {
        Source { socket, counts, latest: Mutex::new(None) }
    }

    /// The text, at most a second old. Blocks while the daemon replies, for at most 10 s;
    /// allocates.
    ///
    /// # Errors
    /// The daemon did not reply: as one line.
    fn text(&self) -> Result<Arc<str>, String> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &*latest
            && at.elapsed() < TEXT_AGE_MAX
        {
            return Ok(text.clone());
        }
        let status = status(&self.socket).map_err(|error| error.to_string())?;
        let text: Arc<str> = exposition(status, self.counts.clone())?.into();
        *latest = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

/// `status` and `counts` in the OpenMetrics text format.
///
/// # Errors
/// The encoder failed: as one line.
fn exposition(status: Status, counts: Arc<Counts>) -> Result<String, String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot { status, counts }));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| error.to_string())?;
    Ok(text)
}

/// The status at one moment, and the counts.
#[derive(Debug)]
struct Snapshot {
    status: Status,
    counts: Arc<Counts>,
}

/// A value of a domain on one CPU.
type OfVirtualProcessor<T> = fn(&VirtualProcessorStatus) -> T;

/// The counters of a domain on one CPU: name without `_total`, help, value.
const COUNTERS: [(&str, &str, OfVirtualProcessor<u64>); 7] = [
    ("upcall_domain_jobs", "Jobs that ended, as the domain reports", |virtual_processor| {
        virtual_processor.counters.jobs
    }),
    (
        "upcall_domain_misses",
        "Jobs that ended past their deadline, as the domain reports",
        |virtual_processor| virtual_processor.counters.misses,
    ),
    ("upcall_domain_pdus", "PDUs processed, as the domain reports", |virtual_processor| {
        virtual_processor.counters.pdus
    }),
    ("upcall_domain_upcalls", "Upcalls of handlers, as the domain reports", |virtual_processor| {
        virtual_processor.counters.upcalls
    }),
    (
        "upcall_domain_handoffs",
        "Turns passed to another domain, as the domain reports",
        |virtual_processor| virtual_processor.counters.handoffs,
    ),
    (
        "upcall_domain_switches",
        "Switches between own activities, as the domain reports",
        |virtual_processor| virtual_processor.counters.switches,
    ),
    (
        "upcall_domain_offences",
        "Measures that the watchdog took against the domain",
        |virtual_processor| virtual_processor.offences,
    ),
];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        self.encode_daemon(encoder)?;
        self.encode_cpus(encoder)?;
        self.encode_virtual_processors(encoder)?;
        self.encode_packet_quotas(encoder)?;
        self.encode_flows(encoder)?;
        self.encode_interfaces(encoder)
    }
}

impl Snapshot {
    fn encode_daemon(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Counts { attached, detached, refused, offences, troubles, lost_lines } = &*self.counts;
        let totals = [
            ("upcall_daemon_attached", "Processes that became a domain", attached),
            ("upcall_daemon_detached", "Domains that detached", detached),
            ("upcall_daemon_refused", "Connections, domains and activities refused", refused),
            ("upcall_daemon_offences", "Measures that the watchdog took", offences),
            ("upcall_daemon_troubles", "Missing rights and failures", troubles),
            ("upcall_daemon_lost_lines", "Lines of the log that a slow reader cost", lost_lines),
        ];
        for (name, help, count) in totals {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            let count = count.load(Ordering::Relaxed);
            metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let domains = i64::try_from(self.status.domains.len()).unwrap_or(i64::MAX);
        let gauges = [
            ("upcall_daemon_domains", "Domains that are attached", domains),
            (
                "upcall_daemon_real_time",
                "1: handlers get the real-time class; 0: they do not",
                self.status.real_time.into(),
            ),
        ];
        for (name, help, value) in gauges {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn encode_cpus(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let reserved = "Share of the CPU that admission has reserved, hand-offs included";
        let limit = "Share of the CPU that admission may reserve";
        for (name, help, is_limit) in [
            ("upcall_cpu_reserved_ratio", reserved, false),
            ("upcall_cpu_limit_ratio", limit, true),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for cpu in &self.status.cpus {
                let ppm = if is_limit { cpu.limit_ppm } else { cpu.reserved_ppm };
                metric.encode_family(&[("cpu", cpu.cpu.to_string())])?.encode_gauge(&ratio(ppm))?;
            }
        }
        Ok(())
    }

    fn encode_virtual_processors(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, virtual_processor) in self.virtual_processors() {
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value(virtual_processor), None)?;
            }
        }
        let help = "CPU time of the domain's thread, as the kernel counts it";
        let name = "upcall_domain_cpu_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, virtual_processor) in self.virtual_processors() {
            let used_s = Duration::from_nanos(virtual_processor.used_ns).as_secs_f64();
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&used_s, None)?;
        }
        let help = "Share of the CPU that the domain has reserved";
        let name = "upcall_domain_reserved_ratio";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, virtual_processor) in self.virtual_processors() {
            metric.encode_family(&labels)?.encode_gauge(&ratio(virtual_processor.reserved_ppm))?;
        }
        let help = "CPU time that the domain is owed under ps, as its user's domains report";
        let name = "upcall_domain_lag_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, virtual_processor) in self.virtual_processors() {
            if let Some(lag_ns) = virtual_processor.lag_ns {
                metric.encode_family(&labels)?.encode_gauge(&(lag_ns as f64 / 1e9))?;
            }
        }
        Ok(())
    }

    fn encode_packet_quotas(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let passed = "Packets that a quota let pass";
        let dropped = "Packets beyond a quota, dropped in the driver";
        type Count = fn(&PacketQuotaStatus) -> u64;
        let families: [(_, _, Count); 2] = [
            ("upcall_packets_passed", passed, |quota| quota.counts.passed),
            ("upcall_packets_dropped", dropped, |quota| quota.counts.dropped),
        ];
        for (name, help, value) in families {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for quota in &self.status.packet_quotas {
                let labels = [
                    ("interface", quota.interface.clone()),
                    ("destination", quota.quota.destination.to_string()),
                    ("program", quota.name.clone()),
                    ("pid", quota.pid.to_string()),
                ];
                let mut family = metric.encode_family(&labels)?;
                family.encode_counter::<NoLabelSet, _, u64>(&value(quota), None)?;
            }
        }
        Ok(())
    }

    fn encode_flows(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Count = fn(&FlowCounts) -> u64;
        let dropped: [(_, Count); 6] = [
            ("over_quota", |of| of.over_quota),
            ("behind", |of| of.behind),
            ("queue_full", |of| of.queue_full),
            ("receive_full", |of| of.receive_full),
            ("checksum", |of| of.checksum),
            ("undelivered", |of| of.undelivered),
        ];
        let unsent: [(_, Count); 3] = [
            ("too_long", |of| of.too_long),
            ("unreachable", |of| of.unreachable),
            ("refused", |of| of.refused),
        ];
        let families: [(_, _, &[(&str, Count)]); 4] = [
            ("received", "Datagrams handed to the program of a flow", &[("", |of| of.received)]),
            ("dropped", "Datagrams for a flow that its program did not get", &dropped),
            ("sent", "Datagrams of a flow given to the interface", &[("", |of| of.sent)]),
            ("unsent", "Datagrams of a flow that were not sent", &unsent),
        ];
        for (name, help, reasons) in families {
            let name = format!("upcall_flow_{name}");
            let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            for flow in &self.status.flows {
                for (reason, value) in reasons {
                    let mut labels = vec![
                        ("interface", flow.interface.clone()),
                        ("local", flow.local.to_string()),
                        ("pid", flow.pid.to_string()),
                    ];
                    if !reason.is_empty() {
                        labels.push(("reason", (*reason).to_owned()));
                    }
                    let mut family = metric.encode_family(&labels)?;
                    family.encode_counter::<NoLabelSet, _, u64>(&value(&flow.counts), None)?;
                }
            }
        }
        Ok(())
    }

    fn encode_interfaces(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Count = fn(&OwnedInterfaceStatus) -> u64;
        let dropped: [(_, Count); 6] = [
            ("hidden", |of| of.drops.hidden),
            ("no_room", |of| of.drops.no_room),
            ("too_long", |of| of.drops.too_long),
            ("malformed", |of| of.drops.malformed),
            ("fragments", |of| of.drops.fragments),
            ("not_for_us", |of| of.drops.not_for_us),
        ];
        let (name, help) = ("upcall_interface_dropped", "Frames that no flow got");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for of in &self.status.owned_interfaces {
            for (reason, value) in dropped {
                let labels = [("interface", of.interface.as_str()), ("reason", reason)];
                let mut family = metric.encode_family(&labels)?;
                family.encode_counter::<NoLabelSet, _, u64>(&value(of), None)?;
            }
        }
        let (name, help) = ("upcall_interface_faults", "Flows closed for a broken queue");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for of in &self.status.owned_interfaces {
            let labels = [("interface", of.interface.as_str())];
            let mut family = metric.encode_family(&labels)?;
            family.encode_counter::<NoLabelSet, _, u64>(&of.faults, None)?;
        }
        Ok(())
    }

    /// Each domain on each CPU, with its labels. Names may be equal, numbers are not.
    fn virtual_processors(
        &self,
    ) -> impl Iterator<Item = (Vec<(&'static str, String)>, &VirtualProcessorStatus)> {
        self.status.domains.iter().flat_map(|domain| {
            domain.virtual_processors.iter().map(move |virtual_processor| {
                (labels(domain, virtual_processor), virtual_processor)
            })
        })
    }
}

fn labels(
    domain: &DomainStatus,
    virtual_processor: &VirtualProcessorStatus,
) -> Vec<(&'static str, String)> {
    vec![
        ("domain", domain.name.clone()),
        ("number", domain.domain.to_string()),
        ("uid", domain.uid.to_string()),
        ("cpu", virtual_processor.cpu.to_string()),
    ]
}

/// Millionths as a fraction.
#[expect(clippy::cast_precision_loss, reason = "a part of a CPU: below 2^53 millionths")]
fn ratio(ppm: u64) -> f64 {
    ppm as f64 / 1e6
}
