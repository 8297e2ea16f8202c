//! The command lines of `bench`: experiments on this machine, and the processes they start.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use upcall::time::Span;

use super::values::duration;

const LIVELOCK_AFTER_HELP: &str = "\
Examples:
  sudo upcall bench livelock                        all of it, 3 minutes
  sudo upcall bench livelock --config 1,5 --senders misbehaving
  sudo upcall bench livelock --flood 1k,10k,100k,1M --svg flood.svg
  sudo upcall bench livelock --duration 1min --runs 5 --json > livelock.json
  upcall bench livelock --virtual --duration 1min --runs 5

The configurations, one for each table of the paper:
  1  the kernel as it is
  2  the receivers have shares of the CPU (upcall exec: 6 %, 48 % and 22 %)
  3  and one quota limits all packets: 4 in each 10 ms, 50 may wait
  4  and each receiver has a quota of its own: 2, 2 and 3 packets in each 10 ms
  5  and a packet counts from when its receiver is due for it, one a period

What runs where: two network namespaces and a pair of virtual interfaces, made for this and
removed at the end. RPS steers the kernel's work for each packet to the CPU of the receivers.
The senders have another CPU. Each receiver is a process that waits for a packet and computes:
  audio  50/s of 100 bytes, 1 ms      video  90/s of 1470 bytes, 5 ms
  file  200/s of 1470 bytes, 1 ms     background: computes whenever it may
A packet is on time if it is processed within a period of its sending. Quotas drop packets in
the driver (XDP), on the CPU of the senders. Measure on a quiet machine.

Exit status:
  0  measured; also if Ctrl-C ended it early, with what was measured
  2  bad usage, no root, one CPU only, a daemon or a run has the CPU, or something is
     missing; the reason is one line, and nothing remains";

/// An experiment.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Receive livelock: what packets cost those who did not ask for them.
    ///
    /// The experiment of proportional-share-1998, section 5: three receivers and a
    /// background program on one CPU, three senders, and five configurations, from the
    /// plain kernel to a quota for each receiver. Prints the paper's Tables 1 to 5
    /// beside its figures. Needs root, ip(8), taskset(1) and two CPUs.
    #[command(after_help = LIVELOCK_AFTER_HELP)]
    Livelock(LivelockArgs),
}

#[derive(Debug, clap::Args)]
pub struct LivelockArgs {
    /// How long each cell of the tables is measured: 10s, 1500ms, 1min. The paper: 1min.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Span,
    /// How often each cell is measured.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub runs: u16,
    /// The configurations: 1, or 1,5.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3,4,5")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub config: Vec<u8>,
    /// How the senders send: at constant rates, with exponential gaps, or with a file sender
    /// that sends 1,000/s.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "constant,bursty,misbehaving")]
    pub senders: Vec<SendersArg>,
    /// In place of the tables: constant senders, and a file sender that sends so many packets a
    /// second: 1k,10k,100k,1M.
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    #[arg(conflicts_with = "senders")]
    pub flood: Vec<u64>,
    /// In virtual time, on the machine of the paper, with its queues in place of quotas. Needs no
    /// root. The same command gives the same tables.
    #[arg(long = "virtual")]
    pub virtual_time: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Draw the parts that were on time, and that of the background program.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// How the senders send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SendersArg {
    /// All at constant rates.
    Constant,
    /// All with exponential times between packets.
    Bursty,
    /// The file sender five times as fast.
    Misbehaving,
}

/// A process of the experiment. It says `ready`, reads when to begin and to end (ns of
/// `CLOCK_MONOTONIC`), and prints one JSON object.
#[derive(Debug, Subcommand)]
pub enum LivelockRole {
    /// Waits for packets and computes.
    Receiver { port: u16, period_ns: u64, rounds: u64 },
    /// Computes.
    Background,
    /// Sends packets.
    Sender {
        to: SocketAddr,
        bytes: usize,
        rate: u64,
        #[arg(long)]
        bursty: bool,
        /// For the gaps.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Owns the quotas of an interface.
    Quotas { interface: String, config: u8 },
}

/// 1 to 10,000,000: 500, 20k, 1M.
fn rate(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.strip_suffix(['k', 'M']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let rate = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    let rate = rate.filter(|rate| (1..=10_000_000).contains(rate));
    rate.ok_or_else(|| "expected packets a second from 1 to 10M, such as 20k".to_owned())
}
