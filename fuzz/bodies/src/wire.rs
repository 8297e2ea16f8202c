//! Messages between domains and the daemon, from any bytes, and the daemon's registry under any
//! requests.

use upcall_core::admission::{Platform, Share};
use upcall_core::discipline::{DWCS, DWS, PS, RMDP};
use upcall_core::time::{Instant, Span};
use upcall_daemon::registry::{Claimed, Owner, Quota, Registry};
use upcall_shm::wire::{Need, Portion, ToDaemon, ToDomain};

use crate::bytes::Bytes;

/// Decodes `data` as a message in each direction. Panics if an accepted message changes when it is
/// encoded and decoded again.
pub fn wire(data: &[u8]) {
    if let Ok(message) = ToDaemon::decode(data) {
        assert_eq!(ToDaemon::decode(&message.encode()).as_ref(), Ok(&message));
    }
    if let Ok(message) = ToDomain::decode(data) {
        assert_eq!(ToDomain::decode(&message.encode()).as_ref(), Ok(&message));
    }
}

/// The CPUs of the registry.
const CPUS: [u32; 2] = [0, 1];
/// Most requests of an input. Each may cost an analysis.
const REQUESTS_MAX: usize = 24;

/// A request of a client, as the server passes it to the registry.
#[derive(Debug)]
enum Request {
    Attach { uid: u32 },
    Detach { number: u32 },
    Create { number: u32, unscreened: bool, need: Need },
    Claim { number: u32, claimed: Claimed, need: Need },
    Group { number: u32, parent: Option<u32>, portion: Portion, name: &'static str },
    Close { number: u32, order: u32 },
    ReserveEvents { number: u32, cpu: u32, share_ppm: u32 },
}

/// Makes the requests that the bytes say. Panics if a reservation is left when all domains are
/// gone, or if one order is granted twice.
pub fn registry(data: &[u8]) {
    let mut bytes = Bytes(data);
    let policy = [&RMDP, &DWS, &PS, &DWCS][bytes.small(4) as usize];
    let platform = Platform {
        cpus: CPUS.to_vec(),
        cpu_limit: Share::CPU_LIMIT_DEFAULT,
        switch_cost: Span::from_micros(5),
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let quota = Quota { domains_max: 4, share_max_ppm: 1_500_000 };
    let mut registry = Registry::new(policy, platform, quota);
    for request in &bytes.all(REQUESTS_MAX, request).0 {
        answer(&mut registry, &policy.agreed(), request);
        let mut orders: Vec<u32> =
            numbers(&registry).iter().flat_map(|&number| orders_of(&registry, number)).collect();
        orders.sort_unstable();
        assert!(orders.windows(2).all(|pair| pair[0] != pair[1]), "one order twice: {orders:?}");
    }
    for number in numbers(&registry) {
        registry.detach(number, Instant::ZERO);
    }
    let left = registry.reservations().load();
    assert!(left.iter().all(|load| load.utilization == 0.0), "left: {left:?}");
}

fn answer(registry: &mut Registry, policy: &str, request: &Request) {
    match request {
        Request::Attach { uid } => {
            let _ = registry.attach(Owner { uid: *uid, pid: 1 }, "domain", policy);
        }
        Request::Detach { number } => {
            registry.detach(*number, Instant::ZERO);
        }
        Request::Create { number, unscreened, need } => {
            let _ = registry.create(*number, "activity", need, *unscreened);
        }
        Request::Claim { number, claimed, need } => {
            let _ = registry.claim(*number, "activity", need, *claimed);
        }
        Request::Group { number, parent, portion, name } => {
            let _ = registry.define_group(*number, name, (*parent, *portion));
        }
        Request::Close { number, order } => registry.close(*number, *order, Instant::ZERO),
        Request::ReserveEvents { number, cpu, share_ppm } => {
            let _ = registry.reserve_events(*number, *cpu, *share_ppm);
        }
    }
    for number in numbers(registry) {
        for cpu in CPUS {
            let _ = (registry.usage(number, cpu), registry.parts(cpu));
        }
    }
}

fn numbers(registry: &Registry) -> Vec<u32> {
    registry.domains().map(|(number, _)| number).collect()
}

fn orders_of(registry: &Registry, number: u32) -> Vec<u32> {
    registry.listed(number).map(|listed| listed.order).collect()
}

fn request(bytes: &mut Bytes<'_>) -> Request {
    let number = bytes.small(6);
    match bytes.small(8) {
        0 | 1 => Request::Attach { uid: [0, 1000, 1001][bytes.small(3) as usize] },
        2 => Request::Detach { number },
        3 => Request::Create { number, unscreened: bytes.flag(), need: need(bytes) },
        4 => Request::Claim {
            number,
            claimed: Claimed {
                cpu: [0, 1, 2, u32::MAX][bytes.small(4) as usize],
                order: [bytes.small(8), 3 << 30, (3 << 30) - 1, u32::MAX][bytes.small(4) as usize],
                unscreened: bytes.flag(),
                in_time: bytes.flag(),
            },
            need: need(bytes),
        },
        5 => Request::Group {
            number,
            parent: Some(bytes.small(4)).filter(|&parent| parent < 3),
            portion: match bytes.flag() {
                true => Portion::Share(bytes.small(5) * 250_000),
                false => Portion::Weight(bytes.small(3)),
            },
            name: ["", "a", "b"][bytes.small(3) as usize],
        },
        6 => Request::Close { number, order: bytes.small(8) },
        _ => Request::ReserveEvents {
            number,
            cpu: bytes.small(4),
            share_ppm: [0, 100_000, 500_000, 900_000, 1_000_001][bytes.small(5) as usize],
        },
    }
}

/// Requirements of the size that domains ask for, or values at the ends of their ranges.
fn need(bytes: &mut Bytes<'_>) -> Need {
    let mut edge = |usual: u64| match bytes.small(12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::from(u32::MAX),
        times => usual * u64::from(times),
    };
    let small = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
    let period_ns = edge(5_000_000);
    Need {
        period_ns,
        deadline_ns: if edge(1) > 4 { period_ns } else { edge(5_000_000) },
        offset_ns: edge(0),
        batch: small(edge(1)),
        quantum: small(edge(1)),
        pdu_cost_ns: edge(50_000),
        class: small(edge(0)),
        workahead_max: small(edge(0)),
        delay_bound_ns: edge(0),
        on_demand: edge(0) == 1,
        wins_ties: edge(0) == 1,
        share_ppm: small(edge(100_000)),
        weight: small(edge(1)),
        window_misses: small(edge(0)),
        window_periods: small(edge(1)),
        only_cpu: Some(small(edge(1))).filter(|&cpu| cpu < 4),
        group: Some(small(edge(1))).filter(|&group| group < 4),
    }
}
