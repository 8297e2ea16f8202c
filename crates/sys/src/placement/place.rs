//! What a placement is, and how it reads for users.

use std::fmt;

/// Where the kernel runs an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates anything for the packet.
    Native,
    /// After the driver. A drop costs almost as much as a delivery, so this protects no CPU. Quotas
    /// and counters work all the same.
    Generic,
}

/// CPUs on which some work runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// The CPU on which the sender of each packet runs: another process of this machine.
    Senders,
    /// These, ascending. Never empty.
    Listed(Vec<u32>),
    /// The kernel does not say.
    Unknown,
}

impl Cpus {
    /// Whether the work may run on `cpu`. If it is unknown, it may.
    pub fn may_include(&self, cpu: u32) -> bool {
        match self {
            Cpus::Listed(cpus) => cpus.contains(&cpu),
            Cpus::Senders | Cpus::Unknown => true,
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpus::Senders => f.write_str("the sender's CPU"),
            Cpus::Unknown => f.write_str("an unknown CPU"),
            Cpus::Listed(cpus) => {
                let numbers: Vec<String> = cpus.iter().map(u32::to_string).collect();
                let s = if cpus.len() == 1 { "" } else { "s" };
                write!(f, "CPU{s} {}", numbers.join(", "))
            }
        }
    }
}

/// Where the kernel works on the packets of one interface, at the moment of `Placement::of`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The driver: `veth`, `virtio_net`, `tun`. `loopback` for `lo`. Empty: unknown.
    pub driver: String,
    /// The index of the other end of a veth pair, in its own network namespace.
    pub veth_peer: Option<u32>,
    /// Kernel threads that poll the interface (threaded NAPI). Empty: interrupts do.
    /// [`crate::schedule::pin_thread_of`] moves them.
    pub napi_threads: Vec<u32>,
    /// Receive interrupts. Empty: the interface has none, or the kernel does not say.
    pub interrupts: Vec<u32>,
    /// The CPUs to which the kernel passes packets after polling (`rps_cpus`). Empty: none.
    pub rps_cpus: Vec<u32>,
    /// Where the interface is polled. Native XDP runs there.
    pub poll: Cpus,
}

impl Placement {
    /// Where an XDP program of this mode runs, and so where the early drops cost time.
    pub fn early_drop(&self, mode: Mode) -> Cpus {
        match mode {
            Mode::Native => self.poll.clone(),
            Mode::Generic => self.receive(),
        }
    }

    /// Where the kernel's receive work runs that follows native XDP.
    pub fn receive(&self) -> Cpus {
        match self.rps_cpus.as_slice() {
            [] => self.poll.clone(),
            cpus => Cpus::Listed(cpus.to_vec()),
        }
    }

    /// One line for users: `drops run on the sender's CPU (veth, native)`.
    pub fn line(&self, mode: Mode) -> String {
        let native = match mode {
            Mode::Native => "native",
            Mode::Generic => "generic",
        };
        let driver = match self.driver.as_str() {
            "" => "unknown driver",
            driver => driver,
        };
        let (drops, receive) = (self.early_drop(mode), self.receive());
        let mut line = format!("drops run on {drops} ({driver}, {native}");
        match (self.napi_threads.as_slice(), self.interrupts.as_slice()) {
            ([], []) => {}
            ([], numbers) => line += &format!(", interrupt{}", list(numbers)),
            (numbers, _) => line += &format!(", NAPI thread{}", list(numbers)),
        }
        line += ")";
        if drops != receive {
            line += &format!(", the kernel's further receive work on {receive}");
        }
        line
    }
}

/// ` 7`, or `s 7, 8`.
fn list(numbers: &[u32]) -> String {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("{} {}", if numbers.len() == 1 { "" } else { "s" }, texts.join(", "))
}
