//! What a configuration is: the input queues, the quotas, and what each program claims.

use super::shares::Claim;
use super::{Configuration, Limits, Setup};
use upcall_core::activity::ActivityParams;
use upcall_core::admission::Share;
use upcall_core::time::Span;
use upcall_proto::quota::{Meter, Quota, entries};
use upcall_proto::schedule::{PacketSchedule, Service};
use upcall_proto::weight::{ProtocolSettings, ProtocolWeight};

const PPM: u64 = 1_000_000;

/// The protocols of a configuration.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) input: PacketSchedule<()>,
    /// A quota for each receiver, or one for all. Empty if queues limit.
    pub(super) meters: Vec<Meter>,
    /// Packets that an activation may take.
    pub(super) batch: u32,
    /// How often the activity runs; `None` with a fixed priority.
    pub(super) period: Option<Span>,
    /// What the activity claims.
    pub(super) claim: Option<Claim>,
}

impl Plan {
    pub(super) fn new(setup: &Setup) -> Self {
        if !setup.configuration.schedules_protocols() {
            let quota = Quota { depth: setup.input_places, ..Quota::UNLIMITED };
            let service = Service::OneQueue { entries: setup.input_places };
            let input = bound(setup, service, &[quota], false);
            return Plan { input, meters: Vec::new(), batch: u32::MAX, period: None, claim: None };
        }
        let weight = weight(setup);
        let costs = setup.costs.protocol;
        // There is a receiver, so there is a need.
        let (period, batch) =
            weight.need().map_or((setup.period_max, 1), |need| (need.period, need.batch));
        let places = |rate: u32| entries(gap(rate), setup.burst, period);
        let of_receivers = |quota: &dyn Fn(usize) -> Quota| -> Vec<Quota> {
            (0..setup.receivers.len()).map(quota).collect()
        };
        // The packets for which the activity has its share, and those that it may take at most.
        let (service, quotas, expected, batch) = match setup.configuration {
            Configuration::DestinationQueues => {
                let quotas = of_receivers(&|number| {
                    Quota::emptied_each(period, places(setup.receivers[number].rate))
                });
                let expected = quotas.iter().map(|quota| quota.depth).sum();
                // As many as fit into a quantum, so that the activity gives way at its end.
                let fit = setup.quantum.as_nanos() / costs.as_nanos().max(1);
                (Service::Exhaustion, quotas, expected, u32::try_from(fit).unwrap_or(u32::MAX))
            }
            Configuration::PacketScheduling => {
                let quotas = of_receivers(&|number| {
                    let quota = weight.quota(slot(number), 0, setup.burst);
                    quota.unwrap_or(Quota::UNLIMITED)
                });
                (Service::Eligible, quotas, batch, batch)
            }
            _ => {
                let entries = setup.input_places;
                let quota = Quota::served_each(period, batch, entries);
                (Service::OneQueue { entries }, vec![quota], batch, batch)
            }
        };
        let by_quotas = setup.limits == Limits::Quotas;
        let input = bound(setup, service, &quotas, by_quotas);
        let quotas = if by_quotas { quotas } else { Vec::new() };
        let params = ActivityParams::new(period, costs).batch(expected).quantum(expected);
        let used_ppm = (params.compute().as_nanos() * PPM).div_ceil(period.as_nanos().max(1));
        Plan {
            input,
            meters: quotas.into_iter().map(Meter::new).collect(),
            batch: batch.max(1),
            period: Some(period),
            claim: Some(Claim { params, share: share(setup, used_ppm) }),
        }
    }
}

/// The input queues. If quotas limit, the queues do not.
fn bound(setup: &Setup, service: Service, quotas: &[Quota], by_quotas: bool) -> PacketSchedule<()> {
    let service = match service {
        Service::OneQueue { .. } if by_quotas => Service::OneQueue { entries: u32::MAX },
        service => service,
    };
    let mut input = PacketSchedule::new(service, slot(setup.receivers.len()));
    for number in 0..setup.receivers.len() {
        let quota = quotas[number.min(quotas.len() - 1)];
        let depth = if by_quotas { u32::MAX } else { quota.depth };
        input.bind(slot(number), Quota { depth, ..quota });
    }
    input
}

fn weight(setup: &Setup) -> ProtocolWeight {
    let mut weight = ProtocolWeight::new(ProtocolSettings {
        packet_cost: setup.costs.protocol,
        inflation_ppm: setup.inflation_ppm,
        quantum: setup.quantum,
        period_max: setup.period_max,
    });
    for (number, receiver) in setup.receivers.iter().enumerate() {
        weight.bind(slot(number), gap(receiver.rate));
    }
    weight
}

/// The time between two of `rate` packets a second.
pub(super) fn gap(rate: u32) -> Span {
    Span::from_secs(1) / rate.max(1)
}

/// The slot of a receiver.
pub(super) fn slot(receiver: usize) -> u32 {
    u32::try_from(receiver).unwrap_or(u32::MAX)
}

/// The equal parts of a job between boundaries, each at most a quantum.
pub(super) fn part(job: Span, quantum: Span) -> Span {
    let parts = job.as_nanos().div_ceil(quantum.as_nanos().max(1)).max(1);
    Span::from_nanos(job.as_nanos().div_ceil(parts))
}

/// The share of a CPU that is a part `ppm` of all time, when interrupts have what is kept for them.
fn share(setup: &Setup, ppm: u64) -> Option<Share> {
    let left_ppm = PPM.saturating_sub(setup.interrupt_reserve_ppm.into()).max(1);
    let share_ppm = (ppm * PPM).div_ceil(left_ppm).min(PPM);
    Share::from_ppm(u32::try_from(share_ppm).unwrap_or(u32::MAX))
}

/// What the programs claim: the receivers a share each, the background what is left.
pub(super) fn claims(setup: &Setup, protocols: Option<Claim>) -> Vec<Claim> {
    let receivers = setup.receivers.iter().map(|receiver| {
        let message = receiver.compute + setup.costs.socket;
        let part = part(message, setup.quantum);
        let parts = message.as_nanos().div_ceil(part.as_nanos().max(1)).max(1);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        let period = gap(receiver.rate);
        let used_ppm = message.as_nanos() * PPM / period.as_nanos().max(1);
        let params = ActivityParams::new(period, part).batch(parts).quantum(1);
        Claim { params, share: share(setup, used_ppm) }
    });
    let params = ActivityParams::new(setup.quantum, setup.quantum);
    let background = Claim { params, share: None };
    receivers.chain([background]).chain(protocols).collect()
}
