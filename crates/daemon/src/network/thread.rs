//! The network thread: owns an interface with flows, and processes its packets once a period.
//!
//! It runs on CPUs without domains if there are any, like the watchdog. In the real-time class it
//! has the priority just below that of the KLS threads (the lowest of the band). So no ordinary
//! program starves it, and no domain waits for it: a domain that becomes ready preempts it.
//!
//! ```text
//!   asleep -- (1) period --> processes -- (2) nothing left, or the budget is used --> exchanges
//!     ^                                                                                 |
//!     +------------------------------------ (3) ----------------------------------------+
//! ```
//!
//! 1. Periods are at absolute times. Those that were missed are not made up for.
//! 2. The budget is CPU time of this thread. So neither packets nor programs can make it take more,
//!    whatever a packet costs. What is left waits for the next period, or is dropped by the device.
//! 3. Some commands of the server, and the counts for it, if the server does not have the lock.
//!
//! It never waits for the server or for a program. System calls of the device do not block. Those
//! of a bind take some 0.1 ms, and those of an end about 1.2 ms for 16 MiB. Those for a path wait
//! while the kernel changes its interfaces.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use upcall_core::time::Span;
use upcall_runtime::net::{DeviceDrops, DeviceError, UdpInterface};
use upcall_shm::frames::account::HolderCounts;
use upcall_shm::wire::{FlowCounts, InterfaceDrops, OwnedInterfaceStatus};
use upcall_sys::local::Connection;
use upcall_sys::schedule::Band;
use upcall_sys::{clock as sys_clock, schedule};

use super::bounds::FLOWS_MAX;
use super::exchange::{Bound, Command, Exchange};
use super::report::NetworkReport;
use crate::clock::now;

/// The time between two looks at the interface: what a datagram may wait, and short beside the
/// periods of media (10 ms and more). 1000 looks a second at an idle interface cost 2 % of a CPU
/// (decision 0024, section 6).
const PERIOD: Span = Span::from_millis(1);
/// CPU time of a period: a quarter of a CPU, and one batch more.
const BUDGET: Span = Span::from_micros(250);
/// Packets between two looks at the CPU time, in each direction. One that costs the most, with a
/// peer whose path the kernel must be asked for, takes about 20 us.
const BATCH: u32 = 16;
/// Commands of a period. A bind costs some 0.1 ms, which is not in the budget.
const COMMANDS: usize = 2;
/// Periods between two copies of the counts, for which it looks at each frame of the account.
const COUNTS_EACH: u32 = 32;

/// What the thread leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Frames of the area.
    pub(crate) frames: u32,
    /// Frames that were free after the device was closed. All, unless this file has a fault.
    pub(crate) free: u32,
}

struct NetworkThread {
    interface: UdpInterface,
    exchange: Arc<Exchange>,
    reports: Arc<Connection>,
    number: u64,
    /// Sessions and the slots of their flows.
    flows: Vec<(u64, u32)>,
    replies: Vec<(u64, Bound)>,
    /// Reports that found no room.
    unsent: Vec<NetworkReport>,
    has_failed: bool,
}

/// Starts the thread with the number.
///
/// # Errors
/// The system has no more threads.
pub(super) fn spawn(
    interface: UdpInterface,
    (exchange, reports, number): (Arc<Exchange>, Arc<Connection>, u64),
    cpus: Vec<u32>,
    band: Option<Band>,
) -> io::Result<JoinHandle<Closed>> {
    let thread = NetworkThread {
        interface,
        exchange,
        reports,
        number,
        flows: Vec::with_capacity(FLOWS_MAX as usize),
        replies: Vec::new(),
        unsent: Vec::new(),
        has_failed: false,
    };
    Builder::new().name("upcall-net".into()).spawn(move || {
        if !cpus.is_empty() {
            // A failure is ignored: then it runs anywhere.
            let _ = schedule::pin_thread(&cpus);
        }
        if let Some(band) = band {
            let _ = schedule::set_fifo(band.offender());
        }
        let _ = schedule::set_timer_slack_least();
        thread.run()
    })
}

impl NetworkThread {
    /// Runs until the server wants it to end.
    fn run(mut self) -> Closed {
        let mut at = now() + PERIOD;
        for periods in 0u32.. {
            sys_clock::sleep_until_ns(at.as_nanos());
            at = (at + PERIOD).max(now());
            if !self.has_failed {
                self.process();
            }
            if self.exchange(periods.is_multiple_of(COUNTS_EACH)) {
                break;
            }
        }
        let Self { interface, reports, number, .. } = self;
        let counts = interface.close().counts();
        let HolderCounts { free, owner, flows, receiving, sending } = counts;
        NetworkReport::Ended { number }.send(&reports);
        Closed { frames: free + owner + flows + receiving + sending, free }
    }

    fn process(&mut self) {
        let begin_ns = sys_clock::thread_cpu_ns();
        loop {
            match self.interface.process(now(), BATCH) {
                Ok((received, sent)) if received < BATCH && sent < BATCH => break,
                Ok(_) => {}
                // A packet that the kernel did not take, such as for want of memory.
                Err(DeviceError::Os(_)) => break,
                Err(_) => return self.fail(),
            }
            if sys_clock::thread_cpu_ns().saturating_sub(begin_ns) >= BUDGET.as_nanos() {
                break;
            }
        }
        let owner = self.interface.owner();
        for (session, _) in
            self.flows.extract_if(.., |(_, slot)| owner.flow_counts(*slot).is_none())
        {
            self.unsent.push(NetworkReport::Broken { session });
        }
    }

    /// The interface is down or gone: there are no flows any more.
    fn fail(&mut self) {
        self.has_failed = true;
        for (session, slot) in self.flows.drain(..) {
            self.interface.unbind(slot);
            self.unsent.push(NetworkReport::Gone { session });
        }
    }

    /// Follows commands, and shows the counts if they are due. Returns whether the thread is to
    /// end.
    fn exchange(&mut self, counts_are_due: bool) -> bool {
        self.unsent.retain(|report| !report.send(&self.reports));
        let mut commands = [const { None }; COMMANDS];
        {
            let Some(mut content) = self.exchange.try_lock() else { return false };
            content.has_failed = self.has_failed;
            content.replies.append(&mut self.replies);
            if counts_are_due {
                content.counts.clear();
                let flows = self.flows.iter();
                let counts =
                    flows.map(|&(session, slot)| (session, counts(&mut self.interface, slot)));
                content.counts.extend(counts);
                show(&mut self.interface, &mut content.interface);
            }
            // The server gives no command after it.
            if content.quit {
                return true;
            }
            commands.fill_with(|| content.commands.pop_front());
        }
        commands.into_iter().flatten().for_each(|command| self.follow(command));
        if !self.replies.is_empty()
            && let Some(mut content) = self.exchange.try_lock()
        {
            content.replies.append(&mut self.replies);
        }
        false
    }

    fn follow(&mut self, command: Command) {
        match command {
            // The server knows that it has failed.
            Command::Bind { .. } if self.has_failed => {}
            Command::Bind { session, terms, memory } => {
                let bound = self.interface.bind_apart(terms, *memory);
                if let Ok((slot, ..)) = &bound {
                    self.flows.push((session, *slot));
                }
                self.replies.push((session, bound));
            }
            Command::Unbind { session } => {
                for (_, slot) in self.flows.extract_if(.., |(of, _)| *of == session) {
                    self.interface.unbind(slot);
                }
            }
        }
    }
}

/// What happened to the datagrams of a flow, before and in the owner.
fn counts(interface: &mut UdpInterface, slot: u32) -> FlowCounts {
    let program = interface.program_counts(slot);
    let Some(flow) = interface.owner().flow_counts(slot) else { return FlowCounts::default() };
    FlowCounts {
        received: flow.received,
        over_quota: program.dropped + program.contended,
        behind: program.behind,
        queue_full: flow.queue.dropped_in_all(),
        receive_full: flow.receive_full,
        checksum: flow.checksum,
        undelivered: program.undelivered,
        sent: flow.sent,
        too_long: flow.too_long,
        unreachable: flow.unreachable,
        refused: flow.refused,
    }
}

/// Writes the numbers of the interface, and leaves its texts.
fn show(interface: &mut UdpInterface, status: &mut OwnedInterfaceStatus) {
    let counts = interface.owner().counts();
    // No error is known. Then the last number stays.
    if let Ok(Some(DeviceDrops { no_room, too_long })) = interface.owner().port().drops() {
        (status.drops.no_room, status.drops.too_long) = (no_room, too_long);
    }
    status.drops = InterfaceDrops {
        hidden: interface.program_outcomes().hidden,
        malformed: counts.malformed,
        fragments: counts.fragments,
        not_for_us: counts.not_for_us + counts.control_dropped,
        ..status.drops
    };
    let HolderCounts { free, owner, flows, receiving, sending } =
        interface.owner().port().account().counts();
    status.frames = free + owner + flows + receiving + sending;
    (status.free, status.receiving, status.sending) = (free, receiving, sending);
    (status.waiting, status.faults) = (owner + flows, counts.faults);
    status.at_ns = now().as_nanos();
}
