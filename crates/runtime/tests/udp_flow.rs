//! Receivers and senders of UDP on flows in user space, over a modelled wire.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/flow_wire.rs"]
mod flow_wire;

use std::process::Command;

use upcall_core::time::Span;
use upcall_runtime::clock;
use upcall_runtime::net::FlowForm;
use upcall_runtime::udp::{Interface, Receiver, ReceiverOptions, Sender};

use flow_wire::{LOCAL, PEER, Wire, address};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn options(batch_max: u32, datagram_bytes_max: u32) -> ReceiverOptions {
    ReceiverOptions { batch_max, datagram_bytes_max, ..ReceiverOptions::default() }
}

#[test]
fn a_receiver_of_a_flow_takes_and_counts_as_one_of_a_socket() {
    for apart in [false, true] {
        let (mut wire, flow) = Wire::new(apart, FlowForm::default());
        let limits = ReceiverOptions { delay_max: Span::from_secs(3600), ..options(4, 100) };
        let mut receiver = Receiver::from_flow(flow, &limits);
        let counters = receiver.counters();
        assert_eq!(receiver.local_address().unwrap(), address(LOCAL));
        assert_eq!(receiver.buffer_shortfall(), None);
        let group = receiver.join_v4([239, 1, 2, 3].into(), Interface::Index(1));
        assert!(group.unwrap_err().to_string().contains("EOPNOTSUPP"));
        assert!(!receiver.ready() && receiver.take().is_none());
        for number in 0..6u8 {
            wire.send(&vec![number; 10 + usize::from(number)]);
        }
        let at = clock::now();
        wire.deliver(at);
        assert!(receiver.ready());
        // A batch at a time.
        assert_eq!(receiver.waiting(), 4);
        for number in 0..6u8 {
            assert!(receiver.ready());
            let expected = vec![number; 10 + usize::from(number)];
            assert_eq!(receiver.peek().unwrap().payload, expected);
            let datagram = receiver.take().unwrap();
            assert_eq!((datagram.payload, datagram.sender), (&expected[..], address(PEER)));
            assert_eq!(datagram.arrival, Some(at));
            receiver.processed();
        }
        assert!(!receiver.ready());
        assert_eq!(counters.received.value(), 6);
        assert_eq!(counters.received_bytes.value(), 75);
        assert_eq!((counters.processed.value(), counters.processed_bytes.value()), (6, 75));
        assert!(counters.delay_ns_max.value() > 0 && counters.late.value() == 0);
        // A longer one than declared is dropped whole, and the longest one is not.
        wire.send(&[7; 101]);
        wire.send(&[8; 100]);
        // Nothing arrives after it was fetched, whatever the owner says.
        wire.deliver(clock::now() + Span::from_secs(3600));
        assert!(receiver.ready() && receiver.take().is_none());
        assert_eq!(counters.dropped_queue.value(), 1);
        assert!(receiver.ready());
        let datagram = receiver.take().unwrap();
        assert!(datagram.payload == [8; 100] && datagram.arrival.unwrap() <= clock::now());
        receiver.discarded();
        assert_eq!(counters.dropped_queue.value(), 2);
        // What waits at the end is unread, in the receiver and in the flow.
        (0..7).for_each(|_| wire.send(b"unread"));
        wire.deliver(at);
        assert!(receiver.ready() && receiver.take().is_some());
        drop(receiver);
        assert_eq!(counters.unread.value(), 7);
        assert_eq!((counters.errors.value(), counters.dropped_socket.value()), (0, 0));
        assert_eq!(wire.owner.flow_counts(wire.slot).unwrap().received, 15);
    }
}

#[test]
fn frames_go_back_to_the_owner_as_they_are_copied() {
    let form = FlowForm { receive_slots: 4, transmit_slots: 4 };
    let (mut wire, flow) = Wire::new(true, form);
    let mut receiver = Receiver::from_flow(flow, &options(4, 100));
    for round in 0..50u8 {
        (0..4).for_each(|_| wire.send(&[round; 20]));
        wire.deliver(clock::now());
        assert!(receiver.ready());
        assert_eq!(receiver.waiting(), 4);
        while let Some(datagram) = receiver.take() {
            assert_eq!(datagram.payload, [round; 20]);
        }
        receiver.processed();
    }
    assert_eq!(receiver.counters().processed.value(), 200);
    let counts = wire.owner.flow_counts(wire.slot).unwrap();
    assert_eq!((counts.received, counts.receive_full), (200, 0));
}

#[test]
fn a_sender_of_a_flow_gives_a_batch_to_the_owner() {
    let form = FlowForm { receive_slots: 4, transmit_slots: 4 };
    let (mut wire, flow) = Wire::new(true, form);
    let most = usize::from(flow.payload_bytes_max());
    let mut sender = Sender::from_flow(flow, address(PEER));
    let counters = sender.counters();
    let (added, given, dropped) =
        (&counters.processed, &counters.received, &counters.dropped_queue);
    sender.send(&vec![1; most + 1]);
    assert_eq!((added.value(), dropped.value()), (0, 1));
    (0..3).for_each(|_| sender.send(b"three"));
    assert_eq!((added.value(), given.value()), (3, 0));
    sender.flush();
    assert_eq!(given.value(), 3);
    // One frame is left, and the owner sends nothing.
    (0..3).for_each(|_| sender.send(b"one"));
    sender.flush();
    assert_eq!((added.value(), given.value(), dropped.value()), (4, 4, 3));
    assert_eq!(counters.processed_bytes.value(), 18);
    // What arrives costs the flow no frame.
    for _ in 0..20 {
        (0..4).for_each(|_| wire.send(b"answer"));
        wire.deliver(clock::now());
        sender.flush();
    }
    assert_eq!(wire.owner.flow_counts(wire.slot).unwrap().received, 80);
    assert_eq!(counters.errors.value(), 0);
}

/// These two calls show up among the others.
fn mark(name: &str) {
    assert!(!std::path::Path::new(name).exists());
}

/// Receives and sends between two marks.
fn receive_and_send() {
    let (mut wire, flow) = Wire::new(true, FlowForm::default());
    let mut receiver = Receiver::from_flow(flow, &options(8, 1400));
    let (mut other, flow) = Wire::new(true, FlowForm::default());
    let mut sender = Sender::from_flow(flow, address(PEER));
    (0..60).for_each(|_| wire.send(&[1; 500]));
    other.send(b"answer");
    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().total_blocks;
    let (mut bytes, mut taken) = (0, 0);
    mark("/upcall-first");
    // The owner wakes nobody who did not arm.
    wire.deliver(clock::now());
    other.deliver(clock::now());
    while receiver.ready() {
        if let Some(datagram) = receiver.take() {
            (bytes, taken) = (bytes + datagram.payload.len(), taken + 1);
            sender.send(datagram.payload);
            receiver.processed();
        }
    }
    sender.flush();
    mark("/upcall-last");
    assert_eq!(dhat::HeapStats::get().total_blocks, before);
    drop(profiler);
    assert_eq!((taken, bytes), (60, 30_000));
    assert_eq!(sender.counters().received.value(), 60);
}

#[test]
#[ignore = "needs strace"]
fn a_flow_costs_its_program_and_its_owner_no_system_call_and_no_allocation() {
    const NAME: &str = "a_flow_costs_its_program_and_its_owner_no_system_call_and_no_allocation";
    if std::env::var_os("UPCALL_TRACED").is_some() {
        return receive_and_send();
    }
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls.txt");
    let mut command = Command::new("strace");
    command.args(["-f", "-o", calls.to_str().unwrap()]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--include-ignored", "--nocapture"]).env("UPCALL_TRACED", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{error}");
    let calls = std::fs::read_to_string(calls).unwrap();
    let line_of = |name: &str| calls.lines().position(|line| line.contains(name)).unwrap();
    let (first, last) = (line_of("/upcall-first"), line_of("/upcall-last"));
    let thread = calls.lines().nth(first).unwrap().split(' ').next().unwrap();
    let between = calls.lines().skip(first + 1).take(last - first - 1);
    let found: Vec<&str> = between.filter(|line| line.starts_with(thread)).collect();
    assert_eq!(found, Vec::<&str>::new());
}
