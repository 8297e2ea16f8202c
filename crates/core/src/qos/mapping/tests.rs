//! Examples worked out by hand, each mistake that a user can make, and the table of the module's
//! head. [`properties`] tests the properties of all specifications.

use super::*;
use crate::activity::{BATCH_MAX, PERIOD_MAX};
use crate::qos::{Flow, Rate};

mod properties;
mod simulation;

const SWITCH: Span = Span::from_micros(5);

fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn hertz(hertz: u64) -> Flow {
    Flow::PduRate(Rate::from_hertz(hertz))
}

fn stream(class: Class, pdu_bytes: u32, delay_ms: u64, cost: Span) -> StreamSpec {
    let delay = (delay_ms > 0).then(|| ms(delay_ms));
    StreamSpec { class, pdu_bytes, delay, pdu_cost: cost, quantum: None }
}

fn camera() -> StreamSpec {
    stream(Class::ContinuousMedia(hertz(90)), 1470, 50, ms(5))
}

/// Period, batch, buffers, payload a second.
fn essence(spec: &StreamSpec) -> (u64, u32, u32, u64) {
    let mapping = map(spec, SWITCH).unwrap();
    let params = mapping.params;
    assert_eq!(params.deadline, params.period);
    assert_eq!(mapping.delay_max, params.period * 2);
    assert_eq!(mapping.buffer_bytes, u64::from(mapping.buffers) * u64::from(spec.pdu_bytes));
    (params.period.as_nanos(), params.batch, mapping.buffers, mapping.bandwidth_bps)
}

#[test]
fn the_contract_s_camera_is_mapped_as_by_hand() {
    // 25 ms hold two intervals of 11.1 ms. 100 hand-offs are 500 us, less than a PDU.
    assert_eq!(
        map(&camera(), SWITCH),
        Ok(Mapping {
            pdu_interval: Span::from_nanos(11_111_111),
            params: ActivityParams::new(Span::from_nanos(22_222_222), ms(5)).batch(2).quantum(1),
            buffers: 4,
            buffer_bytes: 5_880,
            bandwidth_bps: 1_058_400,
            delay_max: Span::from_nanos(44_444_444),
        })
    );
}

#[test]
fn the_conference_is_mapped_as_by_hand_and_uses_seven_tenths_of_a_cpu() {
    let audio = stream(Class::ContinuousMedia(hertz(50)), 100, 40, ms(1));
    let file = stream(Class::Bulk(hertz(200)), 1470, 0, ms(1));
    assert_eq!(essence(&audio), (20_000_000, 1, 2, 40_000));
    assert_eq!(essence(&camera()), (22_222_222, 2, 4, 1_058_400));
    assert_eq!(essence(&file), (100_000_000, 20, 40, 2_352_000));
    let utilization: f64 = [audio, camera(), file]
        .iter()
        .map(|spec| map(spec, SWITCH).unwrap().params.utilization())
        .sum();
    assert!((utilization - 0.7).abs() < 1e-6, "{utilization}");
}

#[test]
fn each_way_to_state_a_flow_is_mapped_as_by_hand() {
    let us = Span::from_micros(10);
    let media = |flow, pdu, delay| stream(Class::ContinuousMedia(flow), pdu, delay, us);
    // 1 Mbit/s in PDUs of 10 kbit: one every 10 ms, four in 45 ms.
    let bandwidth = Flow::Bandwidth { bits_per_second: 1_000_000 };
    assert_eq!(essence(&media(bandwidth, 1250, 90)), (40_000_000, 4, 8, 1_000_000));
    // 14 PDUs a frame, 13 of 1470 B and one of 890 B; 50 ms hold one frame.
    let frames = Flow::Frames { frame_rate: Rate::from_hertz(30), frame_bytes: 20_000 };
    assert_eq!(essence(&media(frames, 1470, 100)), (33_333_333, 14, 28, 4_800_000));
    // 20 ms hold no interval, so the handler runs every 20 ms. Two frames may come in 40 ms.
    assert_eq!(essence(&media(frames, 1470, 40)), (20_000_000, 14, 28, 4_800_000));
    // 40 000 PDUs in 60 s: one every 1.5 ms, 66 in 100 ms.
    let transfer = Flow::Transfer { bytes: 60_000_000, within: Span::from_secs(60) };
    let bulk = stream(Class::Bulk(transfer), 1500, 0, us);
    assert_eq!(essence(&bulk), (99_000_000, 66, 132, 8_000_000));
}

#[test]
fn bursts_and_messages_are_mapped_as_by_hand() {
    let transaction = |hertz, burst, delay_ms| {
        let class = Class::Transaction { rate: Rate::from_hertz(hertz), burst };
        essence(&stream(class, 100, delay_ms, ms(1)))
    };
    // Half of an interval: the burst alone. A whole interval brings nothing more.
    assert_eq!(transaction(5, 3, 200), (100_000_000, 3, 3, 4_000));
    // 2.5 intervals hold 2 + 3, as many a second as two intervals with 2 + 2: the longer.
    assert_eq!(transaction(5, 3, 1000), (500_000_000, 5, 7, 4_000));
    // Without bursts it is a steady flow: two intervals, not two and a half.
    assert_eq!(transaction(5, 1, 1000), (400_000_000, 2, 4, 4_000));
    // 8 PDUs a message, one message in 150 ms.
    let message_rate = Rate::from_hertz(10);
    let class = Class::MessageStream { message_rate, message_bytes: 64 * 1024 };
    let messages = stream(class, 8192, 300, ms(1));
    assert_eq!(essence(&messages), (100_000_000, 8, 16, 5_242_880));
    assert_eq!(map(&messages, SWITCH).unwrap().pdu_interval, Span::from_micros(12_500));
}

#[test]
fn a_careless_delay_does_not_make_a_batch_of_an_hour() {
    let period_and_batch = |class| {
        let params = map(&stream(class, 100, 3_600_000, ms(1)), SWITCH).unwrap().params;
        (params.period, params.batch)
    };
    let media = |rate| Class::ContinuousMedia(Flow::PduRate(rate));
    assert_eq!(period_and_batch(media(Rate::from_hertz(50))), (PERIOD_LONGEST, 50));
    // One PDU a minute: the period is that minute, because sixty runs would find nothing.
    let one_a_minute = Rate::from_micro_hertz(16_667);
    let (period, batch) = period_and_batch(media(one_a_minute));
    assert_eq!((period.as_nanos() / 1_000_000, batch), (59_998, 1));
    // A burst of 100 at 10/s: until another 100 come by rate, 10 s.
    let burst = Class::Transaction { rate: Rate::from_hertz(10), burst: 100 };
    assert_eq!(period_and_batch(burst), (Span::from_secs(10), 199));
}

#[test]
fn no_batch_and_no_period_exceeds_the_limits_of_an_activity() {
    let fast = stream(Class::Bulk(hertz(10_000_000)), 64, 10_000, Span::from_nanos(50));
    assert_eq!(map(&fast, SWITCH).unwrap().params.batch, BATCH_MAX);
    let rare = Class::Bulk(Flow::PduRate(Rate::from_micro_hertz(1)));
    let rare = StreamSpec { delay: Some(Span::MAX), ..stream(rare, 64, 1, ms(1)) };
    assert_eq!(map(&rare, SWITCH).unwrap().params.period, PERIOD_MAX);
}

#[test]
fn a_quantum_is_worth_a_hundred_hand_offs_unless_the_user_states_another() {
    let bulk = |cost| stream(Class::Bulk(hertz(200)), 1470, 0, cost);
    let quantum = |spec: &StreamSpec, switch| map(spec, switch).unwrap().params.quantum;
    assert_eq!(quantum(&bulk(Span::from_micros(50)), SWITCH), 10);
    assert_eq!(quantum(&bulk(Span::from_micros(51)), SWITCH), 10);
    assert_eq!(quantum(&bulk(Span::from_micros(49)), SWITCH), 11);
    assert_eq!(quantum(&bulk(Span::from_micros(1)), SWITCH), 20, "at most the batch");
    assert_eq!(quantum(&bulk(Span::from_micros(1)), Span::MAX), 20);
    assert_eq!(quantum(&bulk(Span::from_micros(1)), Span::ZERO), 1);
    let insisting = StreamSpec { quantum: Some(20), ..bulk(ms(1)) };
    assert_eq!(quantum(&insisting, SWITCH), 20);
}

#[test]
fn each_mistake_is_named_by_its_key_and_in_the_user_s_terms() {
    let classed = |class| StreamSpec { class, ..camera() };
    let media = |flow| classed(Class::ContinuousMedia(flow));
    let (zero, one) = (Rate::from_hertz(0), Rate::from_hertz(1));
    let transfer = |bytes, within| classed(Class::Bulk(Flow::Transfer { bytes, within }));
    let message =
        |message_rate, message_bytes| classed(Class::MessageStream { message_rate, message_bytes });
    let frames = |frame_rate, frame_bytes| media(Flow::Frames { frame_rate, frame_bytes });
    for (spec, key, text) in [
        (media(hertz(0)), "rate", "rate is 0; expected more than 0"),
        (media(Flow::Bandwidth { bits_per_second: 0 }), "bandwidth", "bandwidth is 0;"),
        (frames(zero, 9), "frame_rate", "frame_rate is 0;"),
        (frames(one, 0), "frame", "frame is 0;"),
        (frames(one, 1_470_000_001), "frame", "frame makes 1000001 PDUs that arrive at once"),
        (transfer(0, ms(1)), "size", "size is 0;"),
        (transfer(1, Span::ZERO), "within", "within is 0;"),
        (transfer(1_470_000_001, ms(1)), "within", "within makes 1000001000 PDUs a second"),
        (classed(Class::Transaction { rate: zero, burst: 1 }), "rate", "rate is 0;"),
        (classed(Class::Transaction { rate: one, burst: 0 }), "burst", "burst is 0;"),
        (
            classed(Class::Transaction { rate: one, burst: 1_000_001 }),
            "burst",
            "burst is 1000001 PDUs; expected at most 1000000",
        ),
        (message(zero, 9), "message_rate", "message_rate is 0;"),
        (message(one, 0), "message", "message is 0;"),
        (
            media(hertz(1_000_000_001)),
            "rate",
            "rate makes 1000000001 PDUs a second; expected at most 1000000000",
        ),
        (
            StreamSpec { pdu_bytes: 0, ..camera() },
            "pdu",
            "pdu is 0 B; expected 1 B to 1073741824 B",
        ),
        (StreamSpec { pdu_bytes: PDU_BYTES_MAX + 1, ..camera() }, "pdu", "pdu is 1073741825 B;"),
        (StreamSpec { delay: None, ..camera() }, "delay", "delay is missing; expected the most"),
        (
            StreamSpec { delay: Some(Span::from_nanos(1)), ..camera() },
            "delay",
            "delay is 1 ns; expected at least 2 ns",
        ),
        (StreamSpec { pdu_cost: Span::ZERO, ..camera() }, "cost", "cost is 0;"),
        (
            StreamSpec { quantum: Some(3), ..camera() },
            "quantum",
            "quantum is 3; expected 1 to 2, the PDUs of one period of 22.222 ms",
        ),
        (StreamSpec { quantum: Some(0), ..camera() }, "quantum", "quantum is 0; expected 1 to 2"),
    ] {
        let error = map(&spec, SWITCH).unwrap_err();
        assert_eq!(error.key(), key, "{error}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

#[test]
fn a_cost_that_does_not_fit_is_refused_with_values_that_fit() {
    let said = |spec: &StreamSpec| map(spec, SWITCH).unwrap_err().to_string();
    let hurried = StreamSpec { delay: Some(ms(10)), pdu_cost: ms(6), ..camera() };
    assert_eq!(
        said(&hurried),
        "cost is 6 ms; a delay of 10 ms makes 1 PDU every 5 ms, which is 6 ms of CPU time; \
         expected a cost of at most 5 ms, or a delay of at least 12 ms"
    );
    // More than a whole CPU. 11.111111 ms is the exact bound; what is printed fits.
    let heavy = StreamSpec { pdu_cost: ms(12), ..camera() };
    assert_eq!(
        said(&heavy),
        "cost is 12 ms; a delay of 50 ms makes 2 PDUs every 22.222 ms, which is 24 ms of CPU time; \
         expected a cost of at most 11.111 ms; no delay makes room for more"
    );
    // Eight PDUs share 5 ns.
    let class = Class::Transaction { rate: Rate::from_hertz(1), burst: 8 };
    let tight = StreamSpec { class, delay: Some(Span::from_nanos(10)), ..camera() };
    assert!(said(&tight).ends_with("; expected a delay of at least 80 ms"), "{}", said(&tight));
    let hopeless = StreamSpec { pdu_cost: Span::from_secs(1), ..tight };
    assert!(said(&hopeless).ends_with("no cost fits, and no delay helps"), "{}", said(&hopeless));
    // Three at once and one every 100 ms, 50 ms each: 4 in 200 ms are the first that fit.
    let class = Class::Transaction { rate: Rate::from_hertz(10), burst: 3 };
    let burst = StreamSpec { class, delay: Some(ms(200)), pdu_cost: ms(50), ..camera() };
    assert!(said(&burst).ends_with("or a delay of at least 400 ms"), "{}", said(&burst));
    // Bounds that do not print exactly are printed to the safe side.
    let odd = StreamSpec { delay: Some(ms(10)), pdu_cost: Span::from_nanos(6_000_001), ..camera() };
    assert!(said(&odd).ends_with("or a delay of at least 12.001 ms"), "{}", said(&odd));
}

#[test]
fn the_table_of_the_effect_of_a_longer_delay_is_true() {
    for delay_ms in [20, 60, 100, 500] {
        let audio = stream(Class::ContinuousMedia(hertz(50)), 100, delay_ms, ms(1));
        let mapping = map(&audio, SWITCH).unwrap();
        let params = mapping.params;
        let jobs_a_second = (10.0 / params.period.as_secs_f64()).round() / 10.0;
        let row = format!(
            "//! | {} | {} | {} | {} | {} | {jobs_a_second} | {} % | {} |\n",
            ms(delay_ms),
            params.period,
            params.batch,
            mapping.buffers,
            mapping.buffer_bytes,
            (params.utilization() * 100.0).round(),
            mapping.delay_max,
        );
        assert!(include_str!("../mapping.rs").contains(&row), "not in the table: {row}");
    }
}
