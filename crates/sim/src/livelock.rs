//! Receive livelock in virtual time: the experiment of proportional-share-1998 §5, Tables 1 to 5.
//!
//! One CPU receives packets for three programs, and a fourth one uses what is left. A packet costs
//! an interrupt, then work of the protocols, then work of its receiver. The five configurations
//! differ in what is scheduled, and in where a packet waits:
//!
//! ```text
//! adapter's ring --interrupt--> input queue --protocol--> socket --program--> processed
//!       | full                       | full                  | full
//!       v                            v                       v
//!   at_adapter               at_input_queue              at_socket      (Drops)
//! ```
//!
//! Interrupts always go first. The programs run under the real policy PS of the core, but for
//! Table 1, where they run under the decay usage scheduler of 4.4BSD. Queues, quotas and the order
//! of packets are those of `upcall-proto`.
//!
//! **Shares.** PS divides the time that interrupts leave, and the paper's scheduler divides all
//! time. So each share is larger than the program's part of the CPU, by the time that is kept for
//! interrupts ([`Setup::interrupt_reserve_ppm`]).
//!
//! **What is not as in the paper.** With bursty senders, Tables 4 and 5 of the paper have almost no
//! drops. Here as many are dropped as queues of 2 or 3 packets must drop if the mean rate of
//! exponential arrivals is the rate of service. A greater [`Setup::burst`] makes them fewer.

use crate::chance::Chance;
use upcall_core::time::Span;

mod decay;
mod machine;
mod plan;
mod programs;
mod sender;
mod shares;

/// What is scheduled, and where packets wait. The number is that of the table in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Configuration {
    /// Table 1: protocols go before all programs, and these have decaying priorities.
    Plain,
    /// Table 2: protocols go before all programs, and these have shares.
    Programs,
    /// Table 3: the protocols have a share too, and one input queue.
    OneQueue,
    /// Table 4: the same with an input queue for each program, which is emptied each time.
    DestinationQueues,
    /// Table 5: the same, and packets are processed by eligible times and deadlines.
    PacketScheduling,
}

impl Configuration {
    /// All, in the order of the tables.
    pub const ALL: [Configuration; 5] = [
        Configuration::Plain,
        Configuration::Programs,
        Configuration::OneQueue,
        Configuration::DestinationQueues,
        Configuration::PacketScheduling,
    ];

    /// Whether the protocols are an activity of PS.
    fn schedules_protocols(self) -> bool {
        !matches!(self, Configuration::Plain | Configuration::Programs)
    }
}

/// How packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Senders {
    /// At the rates of the receivers.
    Constant,
    /// At these rates on average, with exponentially distributed gaps.
    Bursty,
    /// At these rates, but the last receiver gets `rate` packets a second. In the paper it is 1000.
    Misbehaving {
        /// Packets a second.
        rate: u32,
    },
}

impl Senders {
    /// The senders of the paper, in the order of its columns.
    pub const OF_PAPER: [Senders; 3] =
        [Senders::Constant, Senders::Bursty, Senders::Misbehaving { rate: 1_000 }];
}

/// A program that reads messages of one packet each, and computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Its name.
    pub name: &'static str,
    /// Messages a second for which it has its share; at least 1.
    pub rate: u32,
    /// CPU time for each message, without [`Costs::socket`].
    pub compute: Span,
    /// The length of a message, which takes so many bytes of the socket's buffer; at least 1.
    pub bytes: u32,
}

/// The receivers of the paper.
pub const RECEIVERS: [Receiver; 3] = [
    Receiver { name: "audio", rate: 50, compute: Span::from_millis(1), bytes: 100 },
    Receiver { name: "video", rate: 90, compute: Span::from_millis(5), bytes: 1_470 },
    Receiver { name: "file", rate: 200, compute: Span::from_millis(1), bytes: 1_470 },
];

/// What a packet costs in CPU time, each at least 1 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// In the interrupt of the adapter.
    pub interrupt: Span,
    /// In the protocols.
    pub protocol: Span,
    /// In the call that reads it from the socket.
    pub socket: Span,
}

impl Costs {
    /// The costs on the machine of the paper, a Pentium Pro of 200 MHz with an adapter from which
    /// the CPU copies. The paper states none, but its Dhrystone column allows an estimate. What the
    /// programs and 20,400 packets left of 60 s made 4.65 million loops (Table 5), so a loop takes
    /// about 2.7 us. By that measure the 48,000 additional packets of the misbehaving sender cost
    /// 10 s in Table 2, with protocols, and 9.1 s in Table 5, without.
    pub const OF_PAPER: Costs = Costs {
        interrupt: Span::from_micros(190),
        protocol: Span::from_micros(20),
        socket: Span::from_micros(20),
    };
}

/// Where packets are dropped before the protocols, under the configurations with destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limits {
    /// By full queues, as in the paper.
    Queues,
    /// By quotas in the interrupt, as the XDP program does (decision 0024). The queues have room
    /// for all that passes.
    Quotas,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What is scheduled.
    pub configuration: Configuration,
    /// How packets come.
    pub senders: Senders,
    /// The programs. The last one gets the packets of a misbehaving sender. At least one.
    pub receivers: Vec<Receiver>,
    /// How long packets come.
    pub duration: Span,
    /// How long a program is served before another may be; at least 1 ns.
    pub quantum: Span,
    /// What packets cost.
    pub costs: Costs,
    /// The places of the one input queue.
    pub input_places: u32,
    /// The bytes of each socket's buffer.
    pub socket_bytes: u32,
    /// The packets that the adapter can hold until their interrupts are served.
    pub ring_places: u32,
    /// The time that is kept for interrupts, in millionths of the CPU; below a million.
    pub interrupt_reserve_ppm: u32,
    /// The longest period of the protocol activity.
    pub period_max: Span,
    /// How much more than its receivers expect the protocol activity can process, in millionths.
    pub inflation_ppm: u32,
    /// The packets that each receiver may get ahead, beyond those of a period.
    pub burst: u32,
    /// Where packets are dropped.
    pub limits: Limits,
    /// The most by which a packet of a constant sender is late.
    pub jitter: Span,
    /// The most by which the clock of a sender is fast or slow, in millionths.
    pub clock_error_ppm: u32,
}

impl Setup {
    /// The experiment of the paper: 60 s, a quantum of 1 ms, an input queue of 50 packets, a period
    /// of at most 10 ms, and buffers of 41,600 bytes (`udp_recvspace` of 4.4BSD). Jitter and errors
    /// of clocks are what computers with a tick of 1 ms and crystals have.
    pub fn of_paper(configuration: Configuration, senders: Senders) -> Self {
        Setup {
            configuration,
            senders,
            receivers: RECEIVERS.to_vec(),
            duration: Span::from_secs(60),
            quantum: Span::from_millis(1),
            costs: Costs::OF_PAPER,
            input_places: 50,
            socket_bytes: 41_600,
            ring_places: 32,
            interrupt_reserve_ppm: 250_000,
            period_max: Span::from_millis(10),
            inflation_ppm: 100_000,
            burst: 1,
            limits: Limits::Queues,
            jitter: Span::from_millis(1),
            clock_error_ppm: 50,
        }
    }
}

/// Where packets of a receiver were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// At the adapter, which had no place: the interrupts have no time left.
    pub at_adapter: u64,
    /// Before the protocols, by a full queue or a quota: "drops at IP" in the paper.
    pub at_input_queue: u64,
    /// After the protocols, by a full buffer of the socket.
    pub at_socket: u64,
}

/// What became of the packets of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The receiver.
    pub name: &'static str,
    /// Packets that came.
    pub offered: u64,
    /// Packets that the program processed.
    pub packets: u64,
    /// Packets that were dropped.
    pub drops: Drops,
    /// Packets that waited somewhere at the end.
    pub waiting: u64,
}

/// The result of an experiment: a column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// By receiver.
    pub receivers: Vec<Received>,
    /// CPU time of the background program.
    pub background: Span,
    /// CPU time of interrupts.
    pub interrupts: Span,
    /// CPU time of the protocols.
    pub protocols: Span,
    /// CPU time of the receivers.
    pub programs: Span,
}

/// Runs one experiment. The same setup and seed give the same outcome on every machine. O(packets).
pub fn run(setup: &Setup, seed: u64) -> Outcome {
    let count = setup.receivers.len();
    let chances = (0..count).map(|number| Chance::new(seed, number as u64));
    machine::Machine::new(setup, chances.collect()).run()
}

/// A mean, and the standard deviation of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; 0 for less than two values.
    pub deviation: f64,
}

impl Average {
    /// That of `values`; 0 without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() };
        Average { mean, deviation }
    }
}

/// The averages of one receiver: a row of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The receiver.
    pub name: &'static str,
    /// Packets that the program processed.
    pub packets: Average,
    /// [`Drops::at_adapter`].
    pub at_adapter: Average,
    /// [`Drops::at_input_queue`].
    pub at_input_queue: Average,
    /// [`Drops::at_socket`].
    pub at_socket: Average,
}

/// The averages of several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Averages {
    /// By receiver.
    pub rows: Vec<Row>,
    /// CPU time of the background program, in seconds.
    pub background_s: Average,
}

/// Runs the experiment once with each seed.
pub fn averages(setup: &Setup, seeds: impl IntoIterator<Item = u64>) -> Averages {
    let outcomes: Vec<Outcome> = seeds.into_iter().map(|seed| run(setup, seed)).collect();
    let rows = setup.receivers.iter().enumerate().map(|(number, receiver)| {
        let of = |figure: fn(&Received) -> u64| {
            Average::of(outcomes.iter().map(|outcome| figure(&outcome.receivers[number]) as f64))
        };
        Row {
            name: receiver.name,
            packets: of(|received| received.packets),
            at_adapter: of(|received| received.drops.at_adapter),
            at_input_queue: of(|received| received.drops.at_input_queue),
            at_socket: of(|received| received.drops.at_socket),
        }
    });
    let background_s = Average::of(outcomes.iter().map(|outcome| outcome.background.as_secs_f64()));
    Averages { rows: rows.collect(), background_s }
}
