//! The machine: one CPU on three levels, and the way of a packet through it.
//!
//! ```text
//! 1 interrupts                 one packet after the other, before all else
//! 2 protocols, if they have a  one packet after the other, before the programs
//!   fixed priority
//! 3 programs, and protocols    a quantum at a time
//!   with a share
//! ```
//!
//! Work of a level that a better one interrupts goes on where it was.

use super::decay::Decay;
use super::plan::{self, Plan, slot};
use super::programs::Programs;
use super::sender::Sender;
use super::shares::Shares;
use super::{Configuration, Drops, Outcome, Received, Setup};
use crate::chance::Chance;
use std::collections::VecDeque;
use upcall_core::time::{Instant, Span};
use upcall_proto::queues::DropReason;
use upcall_proto::quota::Meter;
use upcall_proto::schedule::PacketSchedule;

const SECOND: Span = Span::from_secs(1);

/// A receiver while it runs.
#[derive(Debug)]
struct Program {
    /// The packets in its socket, by when they came there.
    socket: VecDeque<Instant>,
    socket_places: usize,
    /// CPU time of a message.
    message: Span,
    /// Whether it has no job. A job begins with its release, and reads when it is picked.
    is_idle: bool,
    /// When the next job is released, if a packet waits for it.
    release: Option<Instant>,
    /// When the last job was due: its packet had come, and the gap had passed.
    due: Option<Instant>,
    /// What the job needs, once it has read its packet.
    left: Option<Span>,
    offered: u64,
    packets: u64,
    at_adapter: u64,
    at_socket: u64,
}

/// The protocols.
#[derive(Debug)]
struct Protocols {
    /// Packets that an activation may take.
    batch: u32,
    /// How often the activity runs; `None` with a fixed priority.
    period: Option<Span>,
    /// When the activity is released next.
    tick: Instant,
    is_idle: bool,
    /// The packet in work, and what it needs.
    packet: Option<(usize, Span)>,
    /// A quota for each receiver, or one for all. Empty if queues limit.
    meters: Vec<Meter>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    program: usize,
    /// When it was picked, in service time.
    since: Instant,
    /// Service until the next boundary, or the end of the job or packet.
    left: Span,
}

/// What has the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Interrupt,
    Protocol,
    Program,
    Nothing,
}

#[derive(Debug)]
pub(super) struct Machine<'s> {
    setup: &'s Setup,
    now: Instant,
    /// The clock of the programs.
    service: Instant,
    second: Instant,
    senders: Vec<Sender>,
    ring: VecDeque<usize>,
    /// What the interrupt at the head of the ring needs.
    interrupt_left: Span,
    input: PacketSchedule<()>,
    protocols: Protocols,
    programs: Vec<Program>,
    scheduler: Box<dyn Programs>,
    running: Option<Running>,
    outcome: Outcome,
}

impl<'s> Machine<'s> {
    pub(super) fn new(setup: &'s Setup, chances: Vec<Chance>) -> Self {
        let senders = chances.into_iter().enumerate();
        let senders = senders.map(|(number, chance)| Sender::new(setup, number, chance)).collect();
        let Plan { input, meters, batch, period, claim } = Plan::new(setup);
        let tick = Instant::ZERO + period.unwrap_or(SECOND);
        let protocols = Protocols { batch, period, tick, is_idle: true, packet: None, meters };
        let count = setup.receivers.len();
        let scheduler: Box<dyn Programs> = match setup.configuration {
            Configuration::Plain => Box::new(Decay::new(count + 1)),
            _ => Box::new(Shares::new(&plan::claims(setup, claim), setup.quantum)),
        };
        let programs = setup.receivers.iter().map(|receiver| Program {
            socket: VecDeque::new(),
            socket_places: (setup.socket_bytes / receiver.bytes.max(1)) as usize,
            message: receiver.compute + setup.costs.socket,
            is_idle: true,
            release: None,
            due: None,
            left: None,
            offered: 0,
            packets: 0,
            at_adapter: 0,
            at_socket: 0,
        });
        Machine {
            setup,
            now: Instant::ZERO,
            service: Instant::ZERO,
            second: Instant::ZERO + SECOND,
            senders,
            ring: VecDeque::new(),
            interrupt_left: Span::ZERO,
            input,
            protocols,
            programs: programs.collect(),
            scheduler,
            running: None,
            outcome: Outcome {
                receivers: Vec::new(),
                background: Span::ZERO,
                interrupts: Span::ZERO,
                protocols: Span::ZERO,
                programs: Span::ZERO,
            },
        }
    }

    /// The number of the background program, after those of the receivers.
    fn background(&self) -> usize {
        self.programs.len()
    }

    /// The number of the protocols, if they are an activity.
    fn protocol_activity(&self) -> usize {
        self.programs.len() + 1
    }

    pub(super) fn run(mut self) -> Outcome {
        let end = Instant::ZERO + self.setup.duration;
        self.scheduler.ready(self.background(), self.service);
        loop {
            let level = self.level();
            let next = self.next_event(level).min(end);
            self.pass(level, next.since(self.now));
            self.now = next;
            if self.now >= end {
                return self.ended();
            }
            self.finish(level);
            self.timers();
            self.arrivals();
        }
    }

    /// Decides what has the CPU, and begins it.
    fn level(&mut self) -> Level {
        if !self.ring.is_empty() {
            return Level::Interrupt;
        }
        if self.protocols.period.is_none() && self.has_packet(u32::MAX) {
            return Level::Protocol;
        }
        if let Some(running) = self.running
            && self.scheduler.is_preempted(running.program)
        {
            self.stop(running, false);
        }
        while self.running.is_none() {
            let Some(program) = self.scheduler.pick(self.service) else { return Level::Nothing };
            self.begin(program);
        }
        Level::Program
    }

    /// Whether the protocols work on a packet; takes the next one if there is none. `batch` is what
    /// an activation that begins may take.
    fn has_packet(&mut self, batch: u32) -> bool {
        if self.protocols.packet.is_none() {
            if batch > 0 {
                self.input.begin(batch);
            }
            let next = self.input.next(self.now);
            self.protocols.packet =
                next.map(|(slot, ())| (slot as usize, self.setup.costs.protocol));
        }
        self.protocols.packet.is_some()
    }

    /// A program was picked.
    fn begin(&mut self, program: usize) {
        let since = self.service;
        let left = if program == self.background() {
            self.setup.quantum
        } else if program == self.protocol_activity() {
            if !self.has_packet(self.protocols.batch) {
                self.stop(Running { program, since, left: Span::ZERO }, true);
                return;
            }
            self.setup.costs.protocol
        } else {
            let reader = &mut self.programs[program];
            if reader.left.is_none() {
                reader.socket.pop_front();
                reader.left = Some(reader.message);
            }
            self.until_boundary(program)
        };
        self.running = Some(Running { program, since, left });
    }

    /// The service of a receiver until its next boundary, or the end of its job.
    fn until_boundary(&self, program: usize) -> Span {
        let Program { left, message, .. } = &self.programs[program];
        left.unwrap_or(Span::ZERO).min(plan::part(*message, self.setup.quantum))
    }

    /// When something happens next.
    fn next_event(&self, level: Level) -> Instant {
        let work = match level {
            Level::Interrupt => self.now + self.interrupt_left,
            Level::Protocol => {
                self.protocols.packet.map_or(Instant::FAR, |(_, left)| self.now + left)
            }
            Level::Program => self.running.map_or(Instant::FAR, |it| self.now + it.left),
            Level::Nothing => Instant::FAR,
        };
        let sent = self.senders.iter().map(Sender::next);
        let released = self.programs.iter().filter_map(|program| program.release);
        let tick = self.protocols.period.map(|_| self.protocols.tick);
        let first = sent.chain(released).chain(tick).chain([self.second]).min();
        first.map_or(work, |first| first.min(work))
    }

    /// Time passes on a level.
    fn pass(&mut self, level: Level, passed: Span) {
        match level {
            Level::Interrupt => {
                self.interrupt_left = self.interrupt_left.saturating_sub(passed);
                self.outcome.interrupts += passed;
            }
            Level::Protocol => self.pass_protocol(passed),
            Level::Program => {
                let Some(running) = &mut self.running else { return };
                running.left = running.left.saturating_sub(passed);
                let program = running.program;
                if program == self.background() {
                    self.outcome.background += passed;
                } else if program == self.protocol_activity() {
                    self.pass_protocol(passed);
                } else {
                    let left = &mut self.programs[program].left;
                    *left = left.map(|left| left.saturating_sub(passed));
                    self.outcome.programs += passed;
                }
                self.service += passed;
            }
            Level::Nothing => self.service += passed,
        }
    }

    fn pass_protocol(&mut self, passed: Span) {
        if let Some((_, left)) = &mut self.protocols.packet {
            *left = left.saturating_sub(passed);
        }
        self.outcome.protocols += passed;
    }

    /// Ends the work of a level, if it is done.
    fn finish(&mut self, level: Level) {
        match level {
            Level::Interrupt if self.interrupt_left.is_zero() => {
                if let Some(receiver) = self.ring.pop_front() {
                    self.enter_input(receiver);
                }
                self.interrupt_left = self.setup.costs.interrupt;
            }
            Level::Protocol => self.deliver(),
            Level::Program => {
                if let Some(running) = self.running.filter(|running| running.left.is_zero()) {
                    self.at_boundary(running);
                }
            }
            Level::Interrupt | Level::Nothing => {}
        }
    }

    /// The packet has passed the interrupt.
    fn enter_input(&mut self, receiver: usize) {
        let slot = slot(receiver);
        let last = self.protocols.meters.len().saturating_sub(1);
        if let Some(meter) = self.protocols.meters.get_mut(receiver.min(last))
            && !meter.pass(self.now)
        {
            self.input.count_drop(slot, DropReason::OverQuota);
            return;
        }
        // A packet that is dropped is counted there.
        let _ = self.input.push(slot, (), self.now);
    }

    /// If the protocols are done with their packet, it goes to its socket.
    fn deliver(&mut self) {
        let Some((receiver, _)) = self.protocols.packet.filter(|(_, left)| left.is_zero()) else {
            return;
        };
        self.protocols.packet = None;
        let program = &mut self.programs[receiver];
        if program.socket.len() >= program.socket_places {
            program.at_socket += 1;
            return;
        }
        program.socket.push_back(self.now);
        if program.is_idle && program.release.is_none() {
            self.plan_release(receiver);
        }
    }

    /// The idle receiver has a packet: its next job is due.
    fn plan_release(&mut self, receiver: usize) {
        let gap = self.scheduler.gap(receiver);
        let program = &mut self.programs[receiver];
        let Some(came) = program.socket.front() else { return };
        let due = program.due.map_or(*came, |due| (due + gap).max(*came));
        program.due = Some(due);
        program.release = Some(due.max(self.now));
    }

    /// The running program is at a boundary, or its job is done.
    fn at_boundary(&mut self, running: Running) {
        let Running { program, since, .. } = running;
        if program == self.protocol_activity() {
            self.deliver();
            if self.has_packet(0) {
                self.running = Some(Running { left: self.setup.costs.protocol, ..running });
            } else {
                self.stop(running, true);
            }
            return;
        }
        let is_done =
            program != self.background() && self.programs[program].left == Some(Span::ZERO);
        if is_done || self.scheduler.gives_way(program, since, self.service) {
            self.stop(running, is_done);
            return;
        }
        let is_background = program == self.background();
        let left = if is_background { self.setup.quantum } else { self.until_boundary(program) };
        self.running = Some(Running { left, ..running });
    }

    /// The program leaves the CPU.
    fn stop(&mut self, Running { program, since, .. }: Running, is_done: bool) {
        self.running = None;
        let used = self.service.since(since);
        self.scheduler.stopped(program, used, is_done, self.service);
        if !is_done {
            return;
        }
        if program == self.protocol_activity() {
            self.protocols.is_idle = true;
            return;
        }
        let reader = &mut self.programs[program];
        (reader.left, reader.is_idle) = (None, true);
        reader.packets += 1;
        self.plan_release(program);
    }

    /// Releases what is due.
    fn timers(&mut self) {
        if self.second <= self.now {
            self.second += SECOND;
            self.scheduler.second_passed();
        }
        for number in 0..self.programs.len() {
            let program = &mut self.programs[number];
            if program.release.is_some_and(|release| release <= self.now) {
                (program.release, program.is_idle) = (None, false);
                self.scheduler.ready(number, self.service);
            }
        }
        let Some(period) = self.protocols.period else { return };
        if self.protocols.tick <= self.now {
            self.protocols.tick += period;
            let has_work = self.input.next_at().is_some_and(|at| at <= self.now);
            if self.protocols.is_idle && has_work {
                self.protocols.is_idle = false;
                self.scheduler.ready(self.protocol_activity(), self.service);
            }
        }
    }

    /// Packets reach the adapter.
    fn arrivals(&mut self) {
        for number in 0..self.senders.len() {
            while self.senders[number].next() <= self.now {
                self.senders[number].sent();
                self.programs[number].offered += 1;
                if self.ring.len() >= self.setup.ring_places as usize {
                    self.programs[number].at_adapter += 1;
                    continue;
                }
                if self.ring.is_empty() {
                    self.interrupt_left = self.setup.costs.interrupt;
                }
                self.ring.push_back(number);
            }
        }
    }

    fn ended(self) -> Outcome {
        let receivers = self.programs.iter().zip(&self.setup.receivers).enumerate();
        let receivers = receivers.map(|(number, (program, receiver))| {
            let at_input_queue = self.input.counts(slot(number)).dropped_in_all();
            let Program { offered, packets, at_adapter, at_socket, .. } = *program;
            let drops = Drops { at_adapter, at_input_queue, at_socket };
            let waiting = offered - packets - at_adapter - at_input_queue - at_socket;
            Received { name: receiver.name, offered, packets, drops, waiting }
        });
        Outcome { receivers: receivers.collect(), ..self.outcome }
    }
}
