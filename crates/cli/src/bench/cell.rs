//! One run of one cell: all its processes from start to end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use upcall::time::Span;
use upcall_cli::cpu_lock::CpuLocks;

use super::load::{Config, Load, RECEIVERS, Receiver};
use super::outcome::{Received as ReceiverOutcome, Run};
use super::place::Place;
use super::process::Process;
use super::role::{self, Computed, Quotas, ROUNDS_PER_ITERATION, Received, Sent};
use super::wire::{ADDRESS, End, INTERFACE, Wire};
use crate::args::LIVELOCK_COMMAND;
use crate::background::own_command;
use crate::exit::Failure;
use crate::own_daemon::{self, OwnDaemon};
use crate::run::steal::steal_ns;

/// From the last word to a process to the begin.
const LEAD_NS: u64 = 200_000_000;
/// From the end to the last count of a process.
const COUNTS_WITHIN: Duration = Duration::from_secs(30);
/// How long one program may keep the CPU from another. Each receiver is promised that a packet
/// is done within a period: `(cost + 2 * quantum) / share`.
const QUANTUM: &str = "200us";
/// The command, where others see that it has the CPU.
const COMMAND: &str = "upcall bench livelock";

/// What all cells share. Dropping it removes the wire.
pub struct Bench {
    place: Place,
    duration: Span,
    wire: Wire,
    /// Of CPU time.
    rounds_per_ms: u64,
    /// Of the daemons.
    socket: PathBuf,
    /// This program.
    program: String,
}

impl Bench {
    /// Lays the wire, and measures how fast this machine computes.
    ///
    /// # Errors
    /// What ip(8) said.
    pub fn new(place: Place, duration: Span) -> Result<Bench, Failure> {
        let folder = upcall::private_folder().map_err(Failure::of_error)?;
        let socket = folder.join(format!("livelock-{}.sock", std::process::id()));
        let program = own_command(LIVELOCK_COMMAND)?.swap_remove(0);
        let rounds_per_ms = role::rounds_per_ms();
        let wire = Wire::lay(place.receivers_cpu)?;
        Ok(Bench { place, duration, wire, rounds_per_ms, socket, program })
    }

    /// Runs a cell once. `None` after an interruption.
    ///
    /// # Errors
    /// A process does not start, is refused, or fails.
    pub fn run(
        &self,
        config: Config,
        load: Load,
        interrupted: &AtomicBool,
    ) -> Result<Option<Run>, Failure> {
        let cpu = self.place.receivers_cpu;
        // A daemon takes this lock itself.
        let lock = (!config.has_shares()).then(|| CpuLocks::take(&[cpu], COMMAND)).transpose();
        let _lock = lock.map_err(Failure::of_error)?;
        // The daemon outlives its programs, which are dropped before.
        let mut daemon = if config.has_shares() { self.start_daemon()? } else { None };
        let quotas = config.has_quotas().then(|| self.start_quotas(config)).transpose()?;
        let receivers = RECEIVERS.iter().map(|receiver| self.start_receiver(receiver, config));
        let receivers = receivers.collect::<Result<Vec<_>, _>>()?;
        let background = self.start_background()?;
        let senders = RECEIVERS.iter().map(|receiver| self.start_sender(receiver, load));
        let senders = senders.collect::<Result<Vec<_>, _>>()?;
        let mut processes = Processes { quotas, receivers, background, senders };
        for process in processes.all() {
            if !process.is_ready(interrupted)? {
                return Ok(None);
            }
        }
        if let Some(daemon) = &mut daemon {
            daemon.mark_attached();
        }
        let cpus = [self.place.receivers_cpu, self.place.senders_cpu];
        let stolen_ns = steal_ns(&cpus);
        let begin_ns = role::now_ns() + LEAD_NS;
        let times = (begin_ns, begin_ns + self.duration.as_nanos());
        processes.all().for_each(|process| process.set_times(times));
        let run = self.collect(&mut processes, interrupted)?;
        Ok(run.map(|run| Run { steal_ns: steal_ns(&cpus).saturating_sub(stolen_ns), ..run }))
    }

    /// What all processes counted.
    fn collect(
        &self,
        processes: &mut Processes,
        interrupted: &AtomicBool,
    ) -> Result<Option<Run>, Failure> {
        let lead = Duration::from_nanos(LEAD_NS + self.duration.as_nanos());
        let deadline = Instant::now() + lead + COUNTS_WITHIN;
        let mut receivers = Vec::new();
        let Processes { quotas, receivers: theirs, background, senders } = processes;
        for ((process, sender), of) in theirs.iter_mut().zip(senders).zip(&RECEIVERS) {
            let received = process.counts::<Received>(deadline, interrupted)?;
            let sent = sender.counts::<Sent>(deadline, interrupted)?;
            let (Some(received), Some(sent)) = (received, sent) else { return Ok(None) };
            receivers.push(ReceiverOutcome::new(of.name, sent, received));
        }
        let Some(computed) = background.counts::<Computed>(deadline, interrupted)? else {
            return Ok(None);
        };
        let quotas = match quotas {
            Some(process) => match process.counts::<Quotas>(deadline, interrupted)? {
                Some(quotas) => Some(quotas),
                None => return Ok(None),
            },
            None => None,
        };
        let duration_ms = self.duration.as_nanos() as f64 / 1e6;
        let rounds = (computed.iterations * ROUNDS_PER_ITERATION) as f64;
        Ok(Some(Run {
            receivers,
            background_iterations: Some(computed.iterations),
            background_part: rounds / (self.rounds_per_ms as f64 * duration_ms),
            quota_drops: quotas.map(|quotas| quotas.dropped),
            quotas_in_driver: quotas.map(|quotas| quotas.native),
            steal_ns: 0,
        }))
    }

    fn start_daemon(&self) -> Result<Option<OwnDaemon>, Failure> {
        let cpu = self.place.receivers_cpu.to_string();
        let words = ["--cpus", &cpu, "--cpu-limit", "97%", "--switch-cost", "20us"];
        own_daemon::start(&self.socket, &words.map(str::to_owned))
    }

    fn start_quotas(&self, config: Config) -> Result<Process, Failure> {
        let mut command = self.wire.inside(End::Receivers);
        self.add_role(&mut command, self.place.senders_cpu, "quotas");
        command.args([INTERFACE, &config.number().to_string()]);
        Process::start("quotas", command)
    }

    /// Starts a receiver on its CPU, and as a program with a share if the configuration has them.
    fn start_receiver(&self, receiver: &Receiver, config: Config) -> Result<Process, Failure> {
        let cpu = self.place.receivers_cpu;
        let inside = self.wire.inside(End::Receivers);
        let mut command = if config.has_shares() {
            // The samples of `upcall exec` run beside the senders.
            let mut exec = Command::new("taskset");
            exec.args(["--cpu-list", &self.place.senders_cpu.to_string(), &self.program, "exec"]);
            exec.args(["--cpu", &cpu.to_string(), "--socket"]).arg(&self.socket);
            exec.args(["--share", &format!("{}%", receiver.share), "--quantum", QUANTUM, "--"]);
            exec.arg(inside.get_program()).args(inside.get_args());
            exec
        } else {
            inside
        };
        self.add_role(&mut command, cpu, "receiver");
        let rounds = receiver.cost_us * self.rounds_per_ms / 1_000;
        command.args([receiver.port.to_string(), receiver.period_ns().to_string()]);
        Process::start(receiver.name, {
            command.arg(rounds.to_string());
            command
        })
    }

    fn start_background(&self) -> Result<Process, Failure> {
        let mut command = self.wire.inside(End::Receivers);
        self.add_role(&mut command, self.place.receivers_cpu, "background");
        Process::start("background", command)
    }

    fn start_sender(&self, receiver: &Receiver, load: Load) -> Result<Process, Failure> {
        let mut command = self.wire.inside(End::Senders);
        self.add_role(&mut command, self.place.senders_cpu, "sender");
        let to = SocketAddr::from((ADDRESS, receiver.port)).to_string();
        command.args([to, receiver.bytes.to_string(), load.rate(receiver).to_string()]);
        if load == Load::Bursty {
            command.args(["--bursty", "--seed", &receiver.port.to_string()]);
        }
        Process::start("sender", command)
    }

    /// Adds the words that start a role on a CPU.
    fn add_role(&self, command: &mut Command, cpu: u32, role: &str) {
        command.args(["taskset", "--cpu-list", &cpu.to_string()]);
        command.args([&self.program, LIVELOCK_COMMAND, role]);
    }
}

/// The processes of a cell.
struct Processes {
    quotas: Option<Process>,
    receivers: Vec<Process>,
    background: Process,
    senders: Vec<Process>,
}

impl Processes {
    fn all(&mut self) -> impl Iterator<Item = &mut Process> {
        let Processes { quotas, receivers, background, senders } = self;
        let first = quotas.iter_mut().chain(receivers);
        first.chain(std::iter::once(background)).chain(senders)
    }
}
