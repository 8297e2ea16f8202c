//! Valid files, and the values read from them.

use super::{STREAM, TASK, edited, parse};
use crate::spec::{Activity, Address, Direction, Load, Spec, Stream, SwitchCost};
use upcall::activity::{ActivityParams, Terms, Window};
use upcall::admission::Share;
use upcall::qos::{Class, Flow, Rate, StreamSpec};
use upcall::time::Span;
use upcall::work::WorkKind;

/// The example with every kind of table.
const CONTRACT: &str = include_str!("../../../../../examples/contract.toml");

fn stream(edits: &[&str]) -> Stream {
    let text = edited(STREAM, edits);
    match parse(&text) {
        Ok(spec) => spec.streams.into_iter().next().unwrap(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_contract_example_is_read_with_each_policy() {
    for word in ["rmdp", "rm", "dws", "ps", "dwcs"] {
        let text = CONTRACT.replacen("\"rmdp\"", &format!("{word:?}"), 1);
        assert_contract(&parse(&text).unwrap(), word);
    }
}

fn assert_contract(spec: &Spec, policy: &str) {
    assert_eq!(spec.policy.name, policy);
    assert_eq!(spec.cpus.as_deref(), Some(&[1][..]));
    assert_eq!(spec.cpu_limit_ppm, 900_000);
    assert_eq!(spec.switch_cost, SwitchCost::Fixed(Span::from_micros(5)));
    assert_eq!(spec.wakeup_latency, Span::ZERO);
    let [camera] = spec.streams.as_slice() else { panic!("one stream") };
    assert_eq!(camera.name, "camera");
    assert_eq!(camera.class, Class::ContinuousMedia(Flow::PduRate(Rate::from_hertz(90))));
    assert_eq!((camera.pdu_bytes, camera.packet_bytes), (1470, 1470));
    assert_eq!(camera.delay, Some(Span::from_millis(50)));
    assert_eq!(camera.cost, Some(Span::from_millis(5)));
    let address = Address { socket: "127.0.0.1:5004".parse().unwrap(), interface: None };
    assert_eq!(camera.direction, Direction::Receive(address));
    assert_eq!((camera.work, camera.embedded_source), (WorkKind::Spin, false));
    assert_eq!(camera.domain.as_deref(), Some("player"));
    let [t1] = spec.tasks.as_slice() else { panic!("one task") };
    assert_eq!(t1.name, "t1");
    let params = ActivityParams::new(Span::from_millis(40), Span::from_micros(250)).batch(8);
    assert_eq!(t1.params, params);
    assert_eq!((t1.terms.share, t1.terms.weight), (Share::from_ppm(200_000), Some(1)));
    assert_eq!(t1.terms.window, Some(Window { misses: 1, periods: 4 }));
    assert_eq!(t1.terms.delay_bound, Some(Span::from_millis(80)));
    assert_eq!((t1.domain.as_deref(), t1.optional, spec.cpu_count), (None, false, None));
    let [dhrystone] = spec.backgrounds.as_slice() else { panic!("one background") };
    assert_eq!(dhrystone.name, "dhrystone");
    let command = ["stress-ng", "--cpu", "1"].map(str::to_string).to_vec();
    assert_eq!(dhrystone.load, Load::Command(command));
}

#[test]
fn absent_keys_have_their_defaults() {
    let spec = parse(TASK).unwrap();
    assert_eq!(spec.policy.name, "rmdp");
    assert_eq!((spec.cpus, spec.cpu_spans.len()), (None, 0));
    assert_eq!(spec.cpu_limit_ppm, 900_000);
    assert_eq!(spec.switch_cost, SwitchCost::Auto);
    assert_eq!(spec.wakeup_latency, Span::ZERO);
    assert_eq!(spec.time_quantum, Span::from_millis(1));
    let params = ActivityParams::new(Span::from_millis(40), Span::from_micros(250));
    assert_eq!(spec.tasks[0].params, params);
    let t1 = &spec.tasks[0];
    assert_eq!(t1.terms, Terms::default());
    assert_eq!(t1.domain, None);
    let camera = stream(&[]);
    assert_eq!((camera.quantum, camera.domain.as_deref()), (None, None));
    assert_eq!(camera.work, WorkKind::Spin);
}

#[test]
fn the_keys_of_the_file_are_kept() {
    let text = "cpus = [3, 0, 1023]\ncpu_limit = \"62.5 %\"\nswitch_cost = \"auto\"\n\
                wakeup_latency = \"150 us\"\ntime_quantum = \"250 us\"\n";
    let spec = parse(&format!("{text}{TASK}")).unwrap();
    assert_eq!(spec.cpus, Some(vec![3, 0, 1023]), "in the order given");
    let written: Vec<&str> =
        spec.cpu_spans.iter().map(|at| &spec.source.text()[at.clone()]).collect();
    assert_eq!(written, ["3", "0", "1023"]);
    assert_eq!(spec.cpu_limit_ppm, 625_000);
    assert_eq!(spec.switch_cost, SwitchCost::Auto);
    assert_eq!(spec.wakeup_latency, Span::from_micros(150));
    assert_eq!(spec.time_quantum, Span::from_micros(250));
    let spec = parse(&format!("switch_cost = \"0 us\"\n{TASK}")).unwrap();
    assert_eq!(spec.switch_cost, SwitchCost::Fixed(Span::ZERO));
    let mut spec = parse(&format!("cpu_count = 2\n{TASK}optional = true\n")).unwrap();
    assert_eq!((spec.cpu_count, spec.tasks[0].optional), (Some(2), true));
    spec.leave_out(&[spec.tasks[0].name.clone()]);
    assert!(spec.activities().is_empty());
}

#[test]
fn each_class_has_its_own_flow_keys() {
    let mbit = Flow::Bandwidth { bits_per_second: 1_500_000 };
    let frames =
        Flow::Frames { frame_rate: Rate::from_micro_hertz(29_970_030), frame_bytes: 20 << 10 };
    let transfer = Flow::Transfer { bytes: 10_000_000_000, within: Span::from_secs(90 * 60) };
    let per_second = Flow::PduRate(Rate::from_hertz(90));
    for (edits, class) in [
        (&[][..], Class::ContinuousMedia(per_second)),
        (&["-rate", "bandwidth = \"1.5 Mbit/s\""], Class::ContinuousMedia(mbit)),
        (
            &["-rate", "frame = \"20 KiB\"", "frame_rate = \"30000/1001/s\""],
            Class::ContinuousMedia(frames),
        ),
        (&["class = \"bulk\"", "-delay"], Class::Bulk(per_second)),
        (&["class = \"bulk\"", "-rate", "bandwidth = \"1500 kbit/s\""], Class::Bulk(mbit)),
        (
            &["class = \"bulk\"", "-rate", "size = \"10 GB\"", "within = \"90 min\""],
            Class::Bulk(transfer),
        ),
        (&["class = \"transaction\""], Class::Transaction { rate: Rate::from_hertz(90), burst: 1 }),
        (
            &["class = \"transaction\"", "burst = 10", "rate = \"3/min\""],
            Class::Transaction { rate: Rate::from_micro_hertz(50_000), burst: 10 },
        ),
        (
            &[
                "class = \"message-stream\"",
                "-rate",
                "message = \"64 KiB\"",
                "message_rate = \"5/s\"",
            ],
            Class::MessageStream { message_rate: Rate::from_hertz(5), message_bytes: 64 << 10 },
        ),
    ] {
        assert_eq!(stream(edits).class, class, "{edits:?}");
    }
}

#[test]
fn a_message_stream_may_give_its_rate_in_pdus() {
    for (message, pdu, message_rate_uhz) in [
        ("4000 B", "1000 B", 22_500_000),
        ("4001 B", "1000 B", 18_000_000),
        ("10 B", "1000 B", 90_000_000),
        // 90/7 has no exact value and is rounded up, so that a reservation is never smaller.
        ("7000 B", "1000 B", 12_857_143),
    ] {
        let (message, pdu) = (format!("message = {message:?}"), format!("pdu = {pdu:?}"));
        let class = stream(&["class = \"message-stream\"", &message, &pdu]).class;
        let Class::MessageStream { message_rate, .. } = class else { panic!("{class:?}") };
        assert_eq!(message_rate.as_micro_hertz(), message_rate_uhz, "{message}");
    }
}

#[test]
fn a_stream_reaches_the_mapping_unchanged() {
    let camera = stream(&["quantum = 2"]);
    let spec = StreamSpec {
        class: Class::ContinuousMedia(Flow::PduRate(Rate::from_hertz(90))),
        pdu_bytes: 1470,
        delay: Some(Span::from_millis(50)),
        pdu_cost: Span::from_millis(7),
        quantum: Some(2),
    };
    assert_eq!(camera.stream_spec(Span::from_millis(7)), spec);
}

#[test]
fn streams_receive_at_or_send_to_an_address() {
    let receive = |edits: &[&str]| stream(edits).direction;
    let at = |address: &str| Address { socket: address.parse().unwrap(), interface: None };
    assert_eq!(
        receive(&["receive = \"udp://localhost:1\""]),
        Direction::Receive(at("127.0.0.1:1"))
    );
    assert_eq!(receive(&["receive = \"udp://[::1]:5004\""]), Direction::Receive(at("[::1]:5004")));
    assert_eq!(
        receive(&["-receive", "send = \"udp://10.0.0.1:65535\""]),
        Direction::Send(at("10.0.0.1:65535"))
    );
    let by_interface = Address { interface: Some("eth1".to_owned()), ..at("10.0.0.1:5004") };
    let edits = ["receive = \"xdp://eth1/10.0.0.1:5004\""];
    assert_eq!(receive(&edits), Direction::Receive(by_interface.clone()));
    let edits = ["-receive", "send = \"xdp://eth1/10.0.0.1:5004\""];
    assert_eq!(receive(&edits), Direction::Send(by_interface));
    assert!(stream(&["source = \"embedded\""]).embedded_source);
    let v6 = stream(&["receive = \"udp://[::1]:5004\"", "source = \"embedded\""]);
    assert!(v6.embedded_source);
}

#[test]
fn a_packet_is_a_pdu_by_default() {
    let jpeg = "work = \"rtp-jpeg\"";
    assert_eq!(stream(&[jpeg, "packet = \"700 B\""]).packet_bytes, 700);
    assert_eq!(stream(&["packet = \"1470 B\""]).packet_bytes, 1470);
    let large = stream(&[jpeg, "pdu = \"1 GiB\""]);
    assert_eq!((large.pdu_bytes, large.packet_bytes), (1 << 30, 65_507));
}

#[test]
fn work_that_can_be_measured_needs_no_cost() {
    let camera = stream(&["work = \"rtp-jpeg\"", "-cost"]);
    assert_eq!((camera.work, camera.cost), (WorkKind::RtpJpeg, None));
}

#[test]
fn a_task_keeps_each_number() {
    let text = edited(
        TASK,
        &[
            "deadline = \"30 ms\"",
            "offset = \"5 s\"",
            "batch = 0x10",
            "quantum = 1_6",
            "share = \"100 %\"",
            "weight = 1000000",
            "window = \"0 / 65535\"",
            "delay_bound = \"1500 ns\"",
            "domain = \"player\"",
        ],
    );
    let spec = parse(&text).unwrap();
    let task = &spec.tasks[0];
    let params = ActivityParams::new(Span::from_millis(40), Span::from_micros(250));
    let params = params.deadline(Span::from_millis(30)).offset(Span::from_secs(5));
    assert_eq!(task.params, params.batch(16).quantum(16));
    assert_eq!((task.terms.share, task.terms.weight), (Some(Share::WHOLE), Some(1_000_000)));
    assert_eq!(task.terms.window, Some(Window { misses: 0, periods: 65_535 }));
    assert_eq!(task.terms.delay_bound, Some(Span::from_nanos(1500)));
    assert_eq!(task.domain.as_deref(), Some("player"));
}

#[test]
fn activities_keep_the_order_of_the_file() {
    let task = |name: &str| TASK.replace("t1", name);
    let text = [task("a"), STREAM.to_string(), task("b")].concat();
    let spec = parse(&text).unwrap();
    let names: Vec<&str> = spec.activities().into_iter().map(Activity::name).collect();
    assert_eq!(names, ["a", "camera", "b"]);
    let domains: Vec<_> = spec.activities().into_iter().map(Activity::domain).collect();
    assert_eq!(domains, [None; 3]);
}

#[test]
fn names_may_be_in_any_script() {
    for name in ["a", "t.1-x_2", "\u{e9}", "\u{4e2d}\u{6587}", "(cam#1)", &"n".repeat(64)] {
        let spec = parse(&TASK.replace("t1", name)).unwrap();
        assert_eq!(spec.tasks[0].name, name);
    }
}

#[test]
fn a_background_load_may_spin() {
    let load = |count: u32| {
        let text = format!("{TASK}[[background]]\nname = \"hog\"\nspin = {count}\n");
        parse(&text).unwrap().backgrounds.remove(0).load
    };
    assert_eq!(load(1), Load::Spin(1));
    assert_eq!(load(1024), Load::Spin(1024));
}

#[test]
fn equivalent_spellings_give_the_same_spec() {
    let inline = "task = [\n { name = 't1', period = '''40 ms''', cost = \"250 \\u0075s\" },\n]\n";
    let windows = TASK.replace('\n', "\r\n");
    let marked = format!("\u{feff}{TASK}");
    let quoted = TASK.replace("cost", "\"cost\"");
    for text in [inline, &windows, &marked, &quoted] {
        let spec = parse(text).unwrap();
        assert_eq!(spec.tasks[0].name, "t1");
        assert_eq!(spec.tasks[0].params, parse(TASK).unwrap().tasks[0].params);
    }
}
