use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * MS)
}

fn quota(interval_ms: u64, depth: u32) -> Quota {
    Quota { step_ns: 0, interval_ns: interval_ms * MS, depth, at_once: 1 }
}

/// Everything that one activation takes.
fn activation(schedule: &mut PacketSchedule<u64>, batch: u32, now: Instant) -> Vec<(u32, u64)> {
    schedule.begin(batch);
    core::iter::from_fn(|| schedule.next(now)).collect()
}

#[test]
fn one_queue_is_first_come_first_served_and_shared() {
    let mut schedule = PacketSchedule::new(Service::OneQueue { entries: 3 }, 2);
    schedule.bind(0, quota(20, 2));
    schedule.bind(1, quota(5, 3));
    for item in 0..3 {
        schedule.push(1, item, at(item)).unwrap();
    }
    // The flood of slot 1 took all places: slot 0 loses its packet.
    assert_eq!(schedule.push(0, 9, at(3)).unwrap_err().reason, DropReason::QueueFull);
    assert_eq!(activation(&mut schedule, 2, at(3)), [(1, 0), (1, 1)]);
    schedule.push(0, 9, at(3)).unwrap();
    assert_eq!(activation(&mut schedule, 9, at(3)), [(1, 2), (0, 9)]);
    assert_eq!((schedule.counts(0).passed, schedule.counts(0).dropped_in_all()), (1, 1));
}

#[test]
fn exhaustion_empties_one_queue_after_the_other() {
    let mut schedule = PacketSchedule::new(Service::Exhaustion, 2);
    schedule.bind(0, quota(20, 2));
    schedule.bind(1, quota(5, 3));
    for (slot, item) in [(1, 0), (0, 1), (1, 2), (1, 3)] {
        schedule.push(slot, item, at(0)).unwrap();
    }
    assert_eq!(schedule.push(1, 4, at(0)).unwrap_err().reason, DropReason::QueueFull);
    assert_eq!(activation(&mut schedule, 9, at(0)), [(1, 0), (1, 2), (1, 3), (0, 1)]);
    assert_eq!(schedule.next_at(), None);
}

#[test]
fn an_eligible_packet_of_the_earliest_deadline_goes_first() {
    let mut schedule = PacketSchedule::new(Service::Eligible, 2);
    schedule.bind(0, quota(20, 2));
    schedule.bind(1, quota(5, 3));
    schedule.push(0, 0, at(0)).unwrap();
    for item in 1..4 {
        schedule.push(1, item, at(1)).unwrap();
    }
    // Deadlines: 20 of slot 0, 6 of slot 1, whose next packets are eligible at 6 and 11.
    assert_eq!(activation(&mut schedule, 9, at(1)), [(1, 1), (0, 0)]);
    assert_eq!(schedule.next_at(), Some(at(6)));
    assert_eq!(activation(&mut schedule, 9, at(5)), []);
    assert_eq!(activation(&mut schedule, 1, at(12)), [(1, 2)]);
    // The batch was 1. The last packet is eligible since 11.
    assert_eq!(activation(&mut schedule, 9, at(12)), [(1, 3)]);
}

#[test]
fn an_unbound_slot_loses_its_packets_and_begins_anew() {
    for service in [Service::OneQueue { entries: 9 }, Service::Exhaustion, Service::Eligible] {
        let mut schedule = PacketSchedule::new(service, 2);
        schedule.bind(0, quota(20, 2));
        schedule.bind(1, quota(20, 2));
        for (slot, item) in [(0, 0), (1, 1), (0, 2)] {
            schedule.push(slot, item, at(0)).unwrap();
        }
        drop(schedule.unbind(0));
        assert_eq!(schedule.counts(0).dropped(DropReason::Unbound), 2, "{service:?}");
        assert_eq!(schedule.push(0, 3, at(0)).unwrap_err().reason, DropReason::NoDestination);
        assert_eq!(activation(&mut schedule, 9, at(0)), [(1, 1)], "{service:?}");
        schedule.bind(0, quota(20, 2));
        schedule.push(0, 4, at(1)).unwrap();
        assert_eq!(activation(&mut schedule, 9, at(1)), [(0, 4)], "{service:?}");
    }
}

/// Slots, each with what is known of its packets: arrival and number.
type Model = Vec<(VecDeque<(u64, u64)>, u64)>;

/// The packet that a search of all slots finds.
fn searched(model: &Model, intervals: &[u64], now: u64) -> Option<u32> {
    let first = |slot: usize| {
        let (packets, next_eligible) = &model[slot];
        let eligible = packets.front()?.0.max(*next_eligible);
        (eligible <= now).then_some((eligible + intervals[slot], u32::try_from(slot).unwrap()))
    };
    (0..model.len()).filter_map(first).min().map(|(_, slot)| slot)
}

proptest! {
    #[test]
    fn the_order_is_that_of_a_search(
        intervals in prop::collection::vec(1u64..30, 3),
        steps in prop::collection::vec((0u64..6, 0u32..3, 0u32..4), 1..150),
    ) {
        let mut schedule = PacketSchedule::new(Service::Eligible, 3);
        let mut model: Model = vec![(VecDeque::new(), 0); 3];
        for (slot, interval) in intervals.iter().enumerate() {
            schedule.bind(u32::try_from(slot).unwrap(), quota(*interval, 4));
        }
        let mut now = 0;
        for (number, (later, slot, batch)) in steps.into_iter().enumerate() {
            now += later;
            let item = number as u64;
            let queue = &mut model[slot as usize].0;
            if schedule.push(slot, item, at(now)).is_ok() {
                queue.push_back((now, item));
            } else {
                prop_assert_eq!(queue.len(), 4);
            }
            schedule.begin(batch);
            for _ in 0..=batch {
                let taken = schedule.next(at(now));
                let Some(expected) = searched(&model, &intervals, now) else {
                    prop_assert_eq!(taken, None);
                    break;
                };
                let Some((from, item)) = taken else { break };
                let (packets, next_eligible) = &mut model[expected as usize];
                let (arrival, first) = packets.pop_front().unwrap();
                *next_eligible = arrival.max(*next_eligible) + intervals[expected as usize];
                prop_assert_eq!((from, item), (expected, first));
            }
        }
    }

    /// A flood to slot 0 costs a sender within its quota nothing, however the activity runs, as
    /// long as it runs often enough for that receiver.
    #[test]
    fn a_flood_drops_no_packet_of_a_receiver_within_its_quota(
        flood in prop::collection::vec(0u64..20, 1..100),
        late in prop::collection::vec(0u64..4, 1..100),
        batch in 4u32..8,
    ) {
        for service in [Service::Exhaustion, Service::Eligible] {
            let mut schedule = PacketSchedule::new(service, 2);
            schedule.bind(0, quota(5, 3));
            schedule.bind(1, quota(10, 2));
            let mut next = 0;
            for (run, packets) in flood.iter().enumerate() {
                let now = run as u64 * 10;
                for _ in 0..*packets {
                    let _ = schedule.push(0, 0, at(now));
                }
                if now >= next {
                    prop_assert!(schedule.push(1, 1, at(now)).is_ok());
                    next = now + 10 + late.get(run).unwrap_or(&0);
                }
                activation(&mut schedule, batch, at(now));
            }
            prop_assert_eq!(schedule.counts(1).dropped_in_all(), 0);
        }
    }

    #[test]
    fn counts_add_up_under_each_service(
        steps in prop::collection::vec((0u64..6, 0u32..4, 0u32..4, 0u32..20), 1..200),
    ) {
        for service in [Service::OneQueue { entries: 5 }, Service::Exhaustion, Service::Eligible] {
            let mut schedule = PacketSchedule::new(service, 3);
            let (mut now, mut offered, mut taken) = (0, 0u64, 0u64);
            for (later, slot, batch, act) in &steps {
                now += later;
                match act {
                    0 => drop(schedule.unbind(*slot)),
                    1..3 => schedule.bind(*slot, quota(3, 2)),
                    _ => {
                        offered += 1;
                        let _ = schedule.push(*slot, 0, at(now));
                    }
                }
                taken += activation(&mut schedule, *batch, at(now)).len() as u64;
            }
            for slot in 0..3 {
                drop(schedule.unbind(slot));
            }
            let counts = (0..4).map(|slot| schedule.counts(slot));
            let (passed, dropped) = counts.fold((0, 0), |(passed, dropped), counts| {
                (passed + counts.passed, dropped + counts.dropped_in_all())
            });
            prop_assert_eq!((passed, passed + dropped), (taken, offered));
        }
    }

    #[test]
    fn no_receiver_gets_more_than_its_rate(
        arrivals in prop::collection::vec(0u64..3, 1..300),
        interval in 1u64..20,
    ) {
        let mut schedule = PacketSchedule::new(Service::Eligible, 1);
        schedule.bind(0, quota(interval, 4));
        let (mut now, mut taken) = (0, 0);
        for later in arrivals {
            now += later;
            let _ = schedule.push(0, 0, at(now));
            taken += activation(&mut schedule, u32::MAX, at(now)).len() as u64;
            prop_assert!(taken <= 1 + now / interval);
        }
    }
}

/// When each packet of one destination is served, if the activity always has the CPU. `arrivals` in
/// ns, in order. `None`: dropped.
fn served(quota: Quota, arrivals: &[u64]) -> Vec<Option<u64>> {
    let mut schedule = PacketSchedule::new(Service::Eligible, 1);
    schedule.bind(0, quota);
    let mut served = vec![None; arrivals.len()];
    let serve = |schedule: &mut PacketSchedule<usize>, served: &mut Vec<Option<u64>>, now| {
        schedule.begin(u32::MAX);
        while let Some((_, item)) = schedule.next(Instant::from_nanos(now)) {
            served[item] = Some(now);
        }
    };
    for (item, &now) in arrivals.iter().enumerate() {
        while let Some(next) = schedule.next_at().filter(|next| next.as_nanos() < now) {
            serve(&mut schedule, &mut served, next.as_nanos());
        }
        let _ = schedule.push(0, item, Instant::from_nanos(now));
        serve(&mut schedule, &mut served, now);
    }
    while let Some(next) = schedule.next_at() {
        serve(&mut schedule, &mut served, next.as_nanos());
    }
    served
}

#[test]
fn a_declared_burst_is_served_when_it_comes_and_its_deadlines_stay_apart() {
    let burst = Quota { at_once: 3, ..quota(10, 4) };
    assert_eq!(served(burst, &[5, 5, 5, 5]), [Some(5), Some(5), Some(5), Some(10 * MS + 5)]);
    let mut schedule = PacketSchedule::new(Service::Eligible, 2);
    schedule.bind(0, burst);
    schedule.bind(1, quota(15, 2));
    for item in 0..3 {
        schedule.push(0, item, at(0)).unwrap();
    }
    schedule.push(1, 3, at(0)).unwrap();
    // Deadlines: 10, 20 and 30 of slot 0, and 15 of slot 1.
    assert_eq!(activation(&mut schedule, 9, at(0)), [(0, 0), (1, 3), (0, 1), (0, 2)]);
}

fn any_burst() -> impl Strategy<Value = Quota> {
    (1u64..50, 1u32..8, 0u32..8).prop_map(|(interval_ns, depth, at_once)| Quota {
        step_ns: 0,
        interval_ns,
        depth: depth + at_once,
        at_once,
    })
}

proptest! {
    #[test]
    fn no_time_serves_more_than_the_burst_and_elapsed_by_interval(
        quota in any_burst(),
        gaps in prop::collection::vec(0u64..60, 1..100),
    ) {
        let arrivals: Vec<u64> =
            gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) }).collect();
        let served: Vec<u64> = served(quota, &arrivals).into_iter().flatten().collect();
        for (first, from) in served.iter().enumerate() {
            for (last, to) in served.iter().enumerate().skip(first) {
                let most = u64::from(quota.at_once.max(1)) + (to - from) / quota.interval_ns;
                prop_assert!((last - first + 1) as u64 <= most, "{served:?}");
            }
        }
    }

    #[test]
    fn a_sender_that_keeps_its_burst_is_served_at_once(
        quota in any_burst(),
        bursts in prop::collection::vec((1u64..9, 0u64..3), 1..50),
    ) {
        let at_once = u64::from(quota.at_once.max(1));
        let (mut now, mut arrivals) = (0, Vec::new());
        for (count, late) in bursts {
            let count = count.min(at_once);
            arrivals.extend((0..count).map(|_| now));
            now += count * quota.interval_ns + late;
        }
        let expected: Vec<Option<u64>> = arrivals.iter().copied().map(Some).collect();
        prop_assert_eq!(served(quota, &arrivals), expected);
    }

    #[test]
    fn what_the_quota_passes_waits_for_the_part_beyond_its_burst_only(
        quota in any_burst(),
        gaps in prop::collection::vec(0u64..60, 1..100),
    ) {
        // The program passes what comes up to a depth early. The queue drops none of it.
        let arrivals = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) });
        let mut meter = crate::quota::Meter::new(quota);
        let passed: Vec<u64> = arrivals.filter(|at| meter.pass(Instant::from_nanos(*at))).collect();
        let most = u64::from(quota.depth - quota.at_once.max(1)) * quota.interval_ns;
        for (served, arrival) in served(quota, &passed).into_iter().zip(&passed) {
            let Some(served) = served else { panic!("the queue dropped one: {passed:?}") };
            prop_assert!(served - arrival <= most, "{served} {arrival}");
        }
    }
}
