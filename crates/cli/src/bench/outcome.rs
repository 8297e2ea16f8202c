//! What was measured: the JSON of `--json` (docs/contract.md).

use std::time::SystemTime;

use serde::Serialize;

use super::load::{Config, Load};
use super::place::Place;
use super::role;
use crate::args::LivelockArgs;
use crate::run::steal::steal_ns;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Null in virtual time.
    pub machine: Option<Machine>,
    pub date: String,
    pub command: String,
    /// Of a run of a cell.
    pub duration_ns: u64,
    /// Of each cell, unless it was interrupted.
    pub runs: u16,
    pub interrupted: bool,
    pub cells: Vec<Cell>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu_model: String,
    pub kernel: String,
    pub cpus_online: u32,
    pub load_before: String,
    pub receivers_cpu: u32,
    pub senders_cpu: u32,
    /// CPU time that the host took from both CPUs, from begin to end.
    pub steal_ns: u64,
}

/// A configuration and a way of sending.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub config: Config,
    pub senders: Load,
    pub runs: Vec<Run>,
}

/// One run of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Audio, video, file.
    pub receivers: Vec<Received>,
    /// Null in virtual time.
    pub background_iterations: Option<u64>,
    /// Of what the background program would compute with the CPU for itself.
    pub background_part: f64,
    /// Packets that the quotas dropped. Null without quotas.
    pub quota_drops: Option<u64>,
    /// Whether they were dropped in the driver. Null without quotas.
    pub quotas_in_driver: Option<bool>,
    /// CPU time that the host took from both CPUs.
    pub steal_ns: u64,
}

/// What became of the packets of a receiver. `sent` is the sum of `packets`, `left` and the drops.
#[derive(Clone, Debug, Serialize)]
pub struct Received {
    pub name: &'static str,
    pub sent: u64,
    /// Processed.
    pub packets: u64,
    /// Processed within a period of their sending. Null in virtual time, and so the next two.
    pub on_time: Option<u64>,
    /// From sending to the end of processing.
    pub delay_ns_p50: Option<u64>,
    pub delay_ns_p99: Option<u64>,
    /// In the socket at the end.
    pub left: u64,
    /// Dropped because the socket was full.
    pub drops_at_socket: u64,
    /// Dropped before the kernel's protocols: by a quota, or because a queue was full.
    pub drops_at_ip: u64,
}

impl Received {
    pub fn new(name: &'static str, sent: role::Sent, received: role::Received) -> Self {
        let role::Received { packets, on_time, delay_ns_p50, delay_ns_p99, left, socket_drops } =
            received;
        Received {
            name,
            sent: sent.packets,
            packets,
            on_time: Some(on_time),
            delay_ns_p50,
            delay_ns_p99,
            left,
            drops_at_socket: socket_drops,
            drops_at_ip: sent.packets.saturating_sub(packets + left + socket_drops),
        }
    }

    /// The part of all sent packets that was processed on time; in virtual time, the part that was
    /// processed. 0 if none was sent.
    pub fn done_part(&self) -> f64 {
        self.on_time.unwrap_or(self.packets) as f64 / (self.sent.max(1)) as f64
    }
}

impl Cell {
    pub fn new(config: Config, senders: Load) -> Self {
        Cell { config, senders, runs: Vec::new() }
    }

    /// Mean and standard deviation over the runs.
    pub fn statistics(&self, of: impl Fn(&Run) -> f64) -> Statistics {
        Statistics::of(self.runs.iter().map(of))
    }

    /// The same for the receiver with this index.
    pub fn of_receiver(&self, index: usize, of: impl Fn(&Received) -> f64) -> Statistics {
        Statistics::of(self.runs.iter().filter_map(|run| run.receivers.get(index)).map(of))
    }
}

/// Of a figure over the runs of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    pub mean: f64,
    /// Of the sample. `None` for one run.
    pub deviation: Option<f64>,
}

impl Statistics {
    fn of(values: impl Iterator<Item = f64>) -> Statistics {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Statistics { mean, deviation }
    }
}

impl Outcome {
    /// Without cells. `place` is `None` in virtual time.
    pub fn begin(args: &LivelockArgs, place: Option<&Place>) -> Outcome {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        Outcome {
            machine: place.map(Machine::begin),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: format!("upcall {command}"),
            duration_ns: args.duration.as_nanos(),
            runs: args.runs,
            interrupted: false,
            cells: Vec::new(),
        }
    }

    /// Adds a cell, unless it has no run.
    pub fn add(&mut self, cell: Cell) {
        if !cell.runs.is_empty() {
            self.cells.push(cell);
        }
    }

    /// Call this once, after the last cell.
    pub fn end(&mut self) {
        if let Some(machine) = &mut self.machine {
            let now_ns = steal_ns(&[machine.receivers_cpu, machine.senders_cpu]);
            machine.steal_ns = now_ns.saturating_sub(machine.steal_ns);
        }
    }
}

impl Machine {
    fn begin(place: &Place) -> Machine {
        let upcall::Machine { cpu_model, kernel_release, cpus_online, .. } =
            upcall::Machine::describe();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load_before = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        let Place { receivers_cpu, senders_cpu } = *place;
        // The end subtracts it.
        let steal_ns = steal_ns(&[receivers_cpu, senders_cpu]);
        let kernel = kernel_release;
        Machine {
            cpu_model,
            kernel,
            cpus_online,
            load_before,
            receivers_cpu,
            senders_cpu,
            steal_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let of = |values: &[f64]| Statistics::of(values.iter().copied());
        let two = of(&[1.0, 3.0]);
        assert_eq!((two.mean, two.deviation), (2.0, Some(2_f64.sqrt())));
        assert_eq!(of(&[5.0]), Statistics { mean: 5.0, deviation: None });
        assert_eq!(of(&[]), Statistics { mean: 0.0, deviation: None });
    }

    #[test]
    fn what_did_not_come_to_the_socket_was_dropped_before() {
        let received =
            role::Received { packets: 50, left: 7, socket_drops: 3, ..Default::default() };
        let of = |packets| Received::new("file", role::Sent { packets }, received).drops_at_ip;
        assert_eq!(of(100), 40);
        assert_eq!(of(0), 0, "never negative");
    }
}
