//! The cells in virtual time: the machine of the paper, by the simulator. Nothing runs.

use upcall::time::Span;
use upcall_sim::livelock::{self, Configuration, Senders, Setup};

use super::load::{Config, Load};
use super::outcome::{Received, Run};

/// One run of a cell. The same seed gives the same run.
pub fn run(config: Config, load: Load, duration: Span, seed: u64) -> Run {
    let setup = Setup { duration, ..Setup::of_paper(configuration(config), senders(load)) };
    let outcome = livelock::run(&setup, seed);
    let receivers = outcome.receivers.iter().map(|of| Received {
        name: of.name,
        sent: of.offered,
        packets: of.packets,
        on_time: None,
        delay_ns_p50: None,
        delay_ns_p99: None,
        left: of.waiting,
        drops_at_socket: of.drops.at_socket,
        drops_at_ip: of.drops.at_adapter + of.drops.at_input_queue,
    });
    Run {
        receivers: receivers.collect(),
        background_iterations: None,
        background_part: outcome.background.as_secs_f64() / duration.as_secs_f64(),
        quota_drops: None,
        quotas_in_driver: None,
        steal_ns: 0,
    }
}

fn configuration(config: Config) -> Configuration {
    match config {
        Config::Plain => Configuration::Plain,
        Config::Shares => Configuration::Programs,
        Config::OneQuota => Configuration::OneQueue,
        Config::Quotas => Configuration::DestinationQueues,
        Config::Scheduled => Configuration::PacketScheduling,
    }
}

fn senders(load: Load) -> Senders {
    match load {
        Load::Constant => Senders::Constant,
        Load::Bursty => Senders::Bursty,
        Load::Misbehaving => Senders::Misbehaving { rate: 1_000 },
        // The command line allows no more.
        Load::Flood(rate) => Senders::Misbehaving { rate: u32::try_from(rate).unwrap_or(u32::MAX) },
    }
}
