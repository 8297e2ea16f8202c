//! What the experiment of proportional-share-1998 §5 runs: receivers, senders, configurations.

use serde::{Serialize, Serializer};

use crate::args::SendersArg;

/// A receiver and its sender.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    pub name: &'static str,
    pub port: u16,
    /// Packets a second.
    pub rate: u64,
    /// Of a packet.
    pub bytes: usize,
    /// CPU time for each packet.
    pub cost_us: u64,
    /// Of the CPU, in percent: more than the demand, so that a packet is done some time before the
    /// next one. The background program gets what they leave. The paper gives each its mean demand,
    /// with which a packet takes its whole period.
    pub share: u64,
    /// Packets that wait for it at the interface (the paper's queue limits, for Table 4).
    pub entries: u64,
}

impl Receiver {
    /// From one packet to the next.
    pub const fn period_ns(&self) -> u64 {
        1_000_000_000 / self.rate
    }
}

pub const RECEIVERS: [Receiver; 3] = [
    receiver("audio", 5_001, (50, 100), 1_000, 7, 2),
    receiver("video", 5_002, (90, 1_470), 5_000, 49, 2),
    receiver("file", 5_003, (200, 1_470), 1_000, 28, 3),
];

const fn receiver(
    name: &'static str,
    port: u16,
    (rate, bytes): (u64, usize),
    cost_us: u64,
    share: u64,
    entries: u64,
) -> Receiver {
    Receiver { name, port, rate, bytes, cost_us, share, entries }
}

/// What the file sender sends a second if it misbehaves.
const MISBEHAVING: u64 = 1_000;

/// How the senders send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Constant,
    Bursty,
    Misbehaving,
    /// Constant, and the file at this rate.
    Flood(u64),
}

impl From<SendersArg> for Load {
    fn from(senders: SendersArg) -> Self {
        match senders {
            SendersArg::Constant => Load::Constant,
            SendersArg::Bursty => Load::Bursty,
            SendersArg::Misbehaving => Load::Misbehaving,
        }
    }
}

impl Load {
    /// What the sender to `receiver` sends a second.
    pub fn rate(self, receiver: &Receiver) -> u64 {
        match self {
            Load::Misbehaving if receiver.name == "file" => MISBEHAVING,
            Load::Flood(rate) if receiver.name == "file" => rate,
            _ => receiver.rate,
        }
    }

    pub fn name(self) -> String {
        match self {
            Load::Constant => "constant".to_owned(),
            Load::Bursty => "bursty".to_owned(),
            Load::Misbehaving => "misbehaving".to_owned(),
            Load::Flood(rate) => format!("flood {}", short_rate(rate)),
        }
    }
}

impl Serialize for Load {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// A rate as the command line has it: 20k, 1M.
pub fn short_rate(rate: u64) -> String {
    match rate {
        rate if rate > 0 && rate % 1_000_000 == 0 => format!("{}M", rate / 1_000_000),
        rate if rate > 0 && rate % 1_000 == 0 => format!("{}k", rate / 1_000),
        rate => rate.to_string(),
    }
}

/// A configuration: one for each table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Config {
    /// The kernel as it is.
    Plain,
    /// The receivers have shares.
    Shares,
    /// And one quota limits all packets.
    OneQuota,
    /// And each receiver has a quota in each 10 ms.
    Quotas,
    /// And the quota counts from when the receiver is due.
    Scheduled,
}

impl Config {
    pub const ALL: [Config; 5] =
        [Config::Plain, Config::Shares, Config::OneQuota, Config::Quotas, Config::Scheduled];

    /// That of a table.
    pub fn of_number(number: u8) -> Option<Config> {
        Config::ALL.into_iter().find(|config| config.number() == number)
    }

    /// The number of the table.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    pub const fn title(self) -> &'static str {
        match self {
            Config::Plain => "plain kernel",
            Config::Shares => "PS for programs only",
            Config::OneQuota => "PS for programs, one quota for all packets",
            Config::Quotas => "PS for programs, a quota for each receiver",
            Config::Scheduled => "PS for programs, a quota for each receiver, packet scheduling",
        }
    }

    /// Whether receivers have shares.
    pub const fn has_shares(self) -> bool {
        !matches!(self, Config::Plain)
    }

    /// Whether packets have quotas.
    pub const fn has_quotas(self) -> bool {
        matches!(self, Config::OneQuota | Config::Quotas | Config::Scheduled)
    }

    /// The quota of a receiver's packets (decision 0024 §1). `None`: without a limit.
    pub fn quota(self, receiver: &Receiver) -> Option<QuotaRule> {
        const STEP_NS: u64 = 10_000_000;
        match self {
            Config::Plain | Config::Shares => None,
            Config::OneQuota => {
                Some(QuotaRule { step_ns: STEP_NS, interval_ns: STEP_NS / 4, depth: 50 })
            }
            Config::Quotas => Some(QuotaRule {
                step_ns: STEP_NS,
                interval_ns: STEP_NS / receiver.entries,
                depth: receiver.entries,
            }),
            // Not inflated: more packets than a share computes would wait in the socket.
            Config::Scheduled => Some(QuotaRule {
                step_ns: 0,
                interval_ns: receiver.period_ns(),
                depth: receiver.entries,
            }),
        }
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

/// A quota (decision 0024 §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRule {
    pub step_ns: u64,
    pub interval_ns: u64,
    pub depth: u64,
}
