use super::*;
use crate::kernel_area::State;
use crate::user_area::{Counters, SlotState};
use proptest::prelude::*;

fn from_domain() -> Vec<ToDaemon> {
    let need = Need {
        period_ns: 1,
        deadline_ns: 2,
        offset_ns: 3,
        batch: 4,
        quantum: 5,
        pdu_cost_ns: 6,
        class: 7,
        workahead_max: 8,
        delay_bound_ns: 9,
        on_demand: true,
        wins_ties: true,
        share_ppm: 11,
        weight: 12,
        window_misses: 13,
        window_periods: 14,
        only_cpu: Some(10),
        group: Some(13),
    };
    vec![
        ToDaemon::Hello { name: "player".into(), policy: "rmdp".into() },
        ToDaemon::Thread { cpu: 1, tid: u32::MAX },
        ToDaemon::Create { request: u64::MAX, unscreened: true, need, name: "ton".into() },
        ToDaemon::Close { order: 7 },
        ToDaemon::Claim {
            request: 1,
            unscreened: false,
            cpu: 2,
            order: u32::MAX,
            need,
            name: "bild".into(),
        },
        ToDaemon::Reweigh { request: 2, order: 3, portion: Portion::Share(4) },
        ToDaemon::Reweigh { request: 2, order: 3, portion: Portion::Weight(u32::MAX) },
        ToDaemon::Group { parent: None, portion: Portion::Share(1), name: "film".into() },
        ToDaemon::Group { parent: Some(63), portion: Portion::Weight(2), name: String::new() },
        ToDaemon::ReserveEvents { request: 2, cpu: 3, share_ppm: 1_000_000 },
        ToDaemon::Detach,
        ToDaemon::Inspect,
    ]
    .into_iter()
    .chain(requests().into_iter().map(ToDaemon::Program))
    .chain(packet_quota_requests().into_iter().map(ToDaemon::PacketQuota))
    .chain(open_flows().into_iter().map(ToDaemon::OpenFlow))
    .chain([ToDaemon::TakeFlow])
    .collect()
}

fn terms() -> ProgramTerms {
    ProgramTerms {
        share_ppm: 450_000,
        weight: 2,
        cost_ns: 3,
        period_ns: 4,
        cpu: Some(5),
        quantum_ns: 6,
    }
}

fn requests() -> Vec<ProgramRequest> {
    vec![
        ProgramRequest::Start { pid: 1, terms: terms(), name: "ffmpeg".into() },
        ProgramRequest::Adopt {
            pid: u32::MAX,
            terms: ProgramTerms { cpu: None, ..terms() },
            name: "spiel".into(),
        },
        ProgramRequest::Change { pid: 1, share_ppm: 1_000_000 },
        ProgramRequest::Release { pid: 1 },
    ]
}

fn replies() -> Vec<ProgramReply> {
    vec![
        ProgramReply::Admitted(AdmittedProgram {
            id: 1,
            cpu: 2,
            share_ppm: 3,
            weight: 4,
            burst_ns: 5,
            quantum_ns: 6,
            ticker: true,
        }),
        ProgramReply::Refused(RefusedProgram {
            cause: RefusalCause::ShareTooSmall,
            asked_ppm: 450_000,
            fits_ppm: 630_000,
            reason: "zu wenig".into(),
        }),
        ProgramReply::Ended { id: u64::MAX },
    ]
}

fn packet_quota() -> PacketQuota {
    let address = core::array::from_fn(|at| u8::try_from(at).unwrap());
    let destination = PacketDestination { address, protocol: 17, port: 5004 };
    PacketQuota { destination, interval_ns: 11_111_111, depth: 3 }
}

fn packet_quota_requests() -> Vec<PacketQuotaRequest> {
    let quota = packet_quota();
    vec![
        PacketQuotaRequest::Set { quota, pid: 4, name: "player".into() },
        PacketQuotaRequest::Count { destination: quota.destination },
    ]
}

fn packet_quota_replies() -> Vec<PacketQuotaReply> {
    let cause = PacketQuotaCause::Taken;
    vec![
        PacketQuotaReply::Granted { places: "eth1: native".into() },
        PacketQuotaReply::Refused { cause, reason: "belegt".into() },
        PacketQuotaReply::Counted(PacketCounts { passed: 1, dropped: u64::MAX }),
    ]
}

fn open_flows() -> [OpenFlow; 2] {
    let paced = OpenFlow {
        interface: "eth1".into(),
        local: "10.0.0.2:5004".parse().unwrap(),
        receive: Some(FlowQuota { interval_ns: 3, step_ns: 4, depth: 5, at_once: 2 }),
        send: FlowShare::Paced(6),
        receive_slots: 256,
        transmit_slots: 64,
    };
    let local = "[2:3:4:5:6:7:8:9]:0".parse().unwrap();
    let weighted = OpenFlow { local, receive: None, send: FlowShare::Weight(7), ..paced.clone() };
    [paced, weighted]
}

fn flow_replies() -> [FlowReply; 3] {
    let opened = OpenedFlow { flow: 1, local: "10.0.0.2:5004".parse().unwrap() };
    let refused = FlowReply::Refused { cause: FlowCause::Taken, reason: "belegt".into() };
    [FlowReply::Opened(opened), refused, FlowReply::Offered { frame_bytes: 2048 }]
}

fn to_domain() -> Vec<ToDomain> {
    vec![
        ToDomain::Welcome {
            domain: 1,
            generation: 2,
            virtual_processors: 3,
            real_time: true,
            switch_cost_ns: 4,
            defer_preemption_ns: 5,
        },
        ToDomain::Rejected { reason: "voll".into() },
        ToDomain::VirtualProcessor { cpu: 1 },
        ToDomain::Peer { cpu: 1, domain: 2, generation: 3 },
        ToDomain::Granted { request: 1, cpu: 2, order: 3, response_max_ns: 4, not_before_ns: 5 },
        ToDomain::EventsReserved { request: 1 },
        ToDomain::Refused { request: 1, reason: "zu viel".into(), hint: String::new() },
        ToDomain::Offence { cpu: 1, measure: 2, held_ns: 3 },
    ]
    .into_iter()
    .chain(status().into_iter().map(ToDomain::Status))
    .chain(replies().into_iter().map(ToDomain::Program))
    .chain(packet_quota_replies().into_iter().map(ToDomain::PacketQuota))
    .chain(flow_replies().into_iter().map(ToDomain::Flow))
    .collect()
}

fn status() -> Vec<StatusPart> {
    let counters = Counters {
        upcalls: 7,
        switches: 8,
        jobs: 9,
        misses: 10,
        pdus: 11,
        handoffs: 12,
        slack_ns_min: -13,
    };
    vec![
        StatusPart::Cpu(CpuStatus { cpu: 1, reserved_ppm: 2, limit_ppm: 3 }),
        StatusPart::Domain(DomainStatus {
            domain: 1,
            generation: 2,
            pid: 3,
            uid: u32::MAX,
            at_ns: 5,
            name: "player".into(),
        }),
        StatusPart::VirtualProcessor(VirtualProcessorStatus {
            cpu: 1,
            tid: 2,
            state: State::Demoted,
            offences: 4,
            reserved_ppm: 5,
            part_ppm: Some(9),
            lag_ns: Some(-3),
            used_ns: 6,
            counters,
            fault: "verdorben".into(),
        }),
        StatusPart::Activity(ActivityStatus {
            order: 1,
            cpu: 2,
            period_ns: 3,
            deadline_ns: 4,
            batch: 5,
            quantum: 6,
            pdu_cost_ns: 7,
            reserved_ppm: 8,
            response_ns_max: 9,
            unscreened: true,
            state: SlotState::Running,
            lag_ns: Some(i64::MIN),
            next_release_ns: 11,
            name: "ton".into(),
        }),
        StatusPart::Program(ProgramStatus {
            id: 1,
            pid: 2,
            uid: 3,
            cpu: 4,
            share_ppm: 5,
            weight: 6,
            used_ns: 7,
            processes: 8,
            burst_ns: 9,
            quantum_ns: 10,
            at_ns: 11,
            name: "ffmpeg".into(),
        }),
        StatusPart::PacketQuota(PacketQuotaStatus {
            quota: packet_quota(),
            counts: PacketCounts { passed: 6, dropped: 7 },
            pid: 8,
            at_ns: 9,
            interface: "eth1".into(),
            name: "player".into(),
        }),
        StatusPart::OwnedInterface(OwnedInterfaceStatus {
            frames: 1,
            free: 2,
            receiving: 3,
            sending: 4,
            waiting: 5,
            faults: 6,
            drops: InterfaceDrops {
                hidden: 8,
                no_room: 9,
                too_long: 10,
                malformed: 11,
                fragments: 12,
                not_for_us: 13,
            },
            at_ns: 7,
            interface: "eth1".into(),
            path: "AF_XDP".into(),
        }),
        StatusPart::Flow(FlowStatus {
            pid: 1,
            uid: 2,
            local: "10.0.0.2:5004".parse().unwrap(),
            counts: FlowCounts {
                received: 4,
                over_quota: 5,
                behind: 14,
                queue_full: 13,
                receive_full: 6,
                checksum: 7,
                undelivered: 8,
                sent: 9,
                too_long: 10,
                unreachable: 11,
                refused: 12,
            },
            at_ns: 3,
            interface: "eth1".into(),
        }),
        StatusPart::End {
            policy: "rmdp".into(),
            real_time: true,
            switch_cost_ns: 20_000,
            hidden_domains: 3,
        },
    ]
}

#[test]
fn every_message_comes_back_as_it_was() {
    for message in from_domain() {
        assert_eq!(ToDaemon::decode(&message.encode()), Ok(message));
    }
    for message in to_domain() {
        assert_eq!(ToDomain::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn a_message_that_is_cut_or_longer_is_refused() {
    for message in from_domain() {
        let bytes = message.encode();
        for len in 0..bytes.len() {
            assert!(ToDaemon::decode(&bytes[..len]).is_err(), "{message:?} {len}");
        }
        assert!(ToDaemon::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn each_error_names_the_fault() {
    let good = ToDaemon::Thread { cpu: 1, tid: 2 }.encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        ToDaemon::decode(&bytes)
    };
    assert_eq!(with(0, 8), Err(WireError::Version { found: 8 }));
    assert_eq!(with(4, 99), Err(WireError::Kind { found: 99 }));
    assert_eq!(with(4, 1), Err(WireError::Content { kind: 1 }));
    // The upper half of a CPU's number.
    assert_eq!(with(20, 1), Err(WireError::Content { kind: 2 }));
    assert_eq!(with(8, 200), Err(WireError::Length { found: good.len() }));
    assert!(ToDaemon::decode(&vec![0; MESSAGE_BYTES_MAX + 1]).is_err());
}

/// The bytes of a message do not change by accident.
#[test]
fn a_part_of_the_status_has_fixed_bytes() {
    let part = StatusPart::Cpu(CpuStatus { cpu: 1, reserved_ppm: 450_000, limit_ppm: 900_000 });
    let heads = [PROTOCOL_VERSION, 32, 3, 0].map(u32::to_ne_bytes);
    let words = [1u64, 450_000, 900_000].map(u64::to_ne_bytes);
    assert_eq!(ToDomain::Status(part).encode(), [heads.concat(), words.concat()].concat());
    let virtual_processor = ToDomain::Status(status().remove(2)).encode();
    let words: Vec<_> = [1u64, 2, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, (-13i64).cast_unsigned()]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    assert_eq!(&virtual_processor[16..16 + words.len()], &words[..]);
}

/// The bytes after the head, of words and then of one text.
fn content(words: &[u64], text: &str) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_ne_bytes());
    let len = u32::try_from(text.len()).unwrap().to_ne_bytes();
    words.chain(len).chain(text.bytes()).collect()
}

#[test]
fn the_messages_of_programs_have_fixed_bytes() {
    let golden = [
        (48, content(&[1, 450_000, 2, 3, 4, 5, 6], "ffmpeg")),
        (49, content(&[u32::MAX.into(), 450_000, 2, 3, 4, u64::MAX, 6], "spiel")),
        (50, [1u64, 1_000_000].map(u64::to_ne_bytes).concat()),
        (51, 1u64.to_ne_bytes().to_vec()),
    ];
    for (request, (kind, content)) in requests().into_iter().zip(golden) {
        let bytes = ToDaemon::Program(request).encode();
        assert_eq!(bytes[..8], [PROTOCOL_VERSION, kind].map(u32::to_ne_bytes).concat());
        assert_eq!(bytes[16..], content, "{kind}");
    }
    let golden = [
        (48, [1u64, 2, 3, 4, 5, 6, 1].map(u64::to_ne_bytes).concat()),
        (49, content(&[2, 450_000, 630_000], "zu wenig")),
        (50, u64::MAX.to_ne_bytes().to_vec()),
    ];
    for (reply, (kind, content)) in replies().into_iter().zip(golden) {
        let bytes = ToDomain::Program(reply).encode();
        assert_eq!(bytes[..8], [PROTOCOL_VERSION, kind].map(u32::to_ne_bytes).concat());
        assert_eq!(bytes[16..], content, "{kind}");
    }
    let program = ToDomain::Status(status().remove(4)).encode();
    assert_eq!(program[16..], content(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], "ffmpeg"));
    let causes = RefusalCause::ALL.map(|cause| cause as u32);
    assert_eq!(causes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(causes.map(RefusalCause::of_number), RefusalCause::ALL.map(Some));
    assert_eq!([0, 13, u32::MAX].map(RefusalCause::of_number), [None; 3]);
}

#[test]
fn the_messages_of_packet_quotas_have_fixed_bytes() {
    // The address is in network order, in two words.
    let (high, low) = (0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let rest = 17 << 16 | 5004;
    let golden = [
        (64, content(&[high, low, rest, 11_111_111, 3, 4], "player")),
        (65, [high, low, rest].map(u64::to_ne_bytes).concat()),
    ];
    for (request, (kind, content)) in packet_quota_requests().into_iter().zip(golden) {
        let bytes = ToDaemon::PacketQuota(request).encode();
        assert_eq!(bytes[..8], [PROTOCOL_VERSION, kind].map(u32::to_ne_bytes).concat());
        assert_eq!(bytes[16..], content, "{kind}");
    }
    let golden = [
        (64, content(&[], "eth1: native")),
        (65, content(&[4], "belegt")),
        (66, [1, u64::MAX].map(u64::to_ne_bytes).concat()),
    ];
    for (reply, (kind, content)) in packet_quota_replies().into_iter().zip(golden) {
        let bytes = ToDomain::PacketQuota(reply).encode();
        assert_eq!(bytes[..8], [PROTOCOL_VERSION, kind].map(u32::to_ne_bytes).concat());
        assert_eq!(bytes[16..], content, "{kind}");
    }
    let quota = ToDomain::Status(status().remove(5)).encode();
    let words = [high, low, rest, 11_111_111, 3, 6, 7, 8, 9].map(u64::to_ne_bytes).concat();
    assert_eq!(quota[16..16 + words.len()], words);
    let causes = PacketQuotaCause::ALL.map(|cause| cause as u32);
    assert_eq!(causes, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(causes.map(PacketQuotaCause::of_number), PacketQuotaCause::ALL.map(Some));
    assert_eq!([0, 9, u32::MAX].map(PacketQuotaCause::of_number), [None; 3]);
}

#[test]
fn the_messages_of_flows_have_fixed_bytes() {
    // The address is in network order, IPv4 mapped, in two words.
    let (high, low) = (0, 0xffff_0a00_0002);
    let golden = [
        content(&[high, low, 5004, 1, 3, 4, 5, 2, 1, 6, 256, 64], "eth1"),
        content(
            &[0x0002_0003_0004_0005, 0x0006_0007_0008_0009, 0, 0, 0, 0, 0, 0, 0, 7, 256, 64],
            "eth1",
        ),
    ];
    for (request, content) in open_flows().into_iter().zip(golden) {
        let bytes = ToDaemon::OpenFlow(request).encode();
        assert_eq!(bytes[..8], [12u32, 80].map(u32::to_ne_bytes).concat());
        assert_eq!(bytes[16..], content);
    }
    let taken = ToDaemon::TakeFlow.encode();
    assert_eq!((&taken[..8], taken.len()), (&*[12u32, 81].map(u32::to_ne_bytes).concat(), 16));
    let opened = [1, high, low, 5004].map(u64::to_ne_bytes).concat();
    let offered = 2048u64.to_ne_bytes().to_vec();
    let replies = [(80, opened), (81, content(&[4], "belegt")), (82, offered)];
    for (reply, (kind, content)) in flow_replies().into_iter().zip(replies) {
        let bytes = ToDomain::Flow(reply).encode();
        assert_eq!(bytes[..8], [12u32, kind].map(u32::to_ne_bytes).concat());
        assert_eq!(bytes[16..], content, "{kind}");
    }
    let owned = ToDomain::Status(status().remove(6)).encode();
    let words = [1u64, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 7];
    assert_eq!(owned[16..120], words.map(u64::to_ne_bytes).concat());
    let flow = ToDomain::Status(status().remove(7)).encode();
    let words = [1, 2, 3, high, low, 5004, 4, 5, 14, 13, 6, 7, 8, 9, 10, 11, 12];
    assert_eq!(flow[16..], content(&words, "eth1"));
    let causes = FlowCause::ALL.map(|cause| cause as u32);
    assert_eq!(causes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(causes.map(FlowCause::of_number), FlowCause::ALL.map(Some));
    assert_eq!([0, 11, u32::MAX].map(FlowCause::of_number), [None; 3]);
}

#[test]
fn a_flow_message_with_a_number_out_of_range_is_refused() {
    // Port, flag, depth, at once, flag, slots. In the second one: a weight.
    for (request, word, value) in [
        (0, 2, 1 << 16),
        (0, 3, 2),
        (0, 6, 1 << 32),
        (0, 7, 1 << 32),
        (0, 8, 2),
        (0, 10, 1 << 32),
        (0, 11, 1 << 32),
        (1, 9, 1 << 32),
    ] {
        let mut bytes = ToDaemon::OpenFlow(open_flows()[request].clone()).encode();
        let at = 16 + 8 * word;
        bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(value));
        let refused = Err(WireError::Content { kind: 80 });
        assert_eq!(ToDaemon::decode(&bytes), refused, "{word} {value}");
    }
}

#[test]
fn a_packet_quota_message_with_a_number_out_of_range_is_refused() {
    // (request, word, value): a protocol of more than a byte, and a depth of more than 32 bits.
    for (request, word, value) in
        [(0, 2, 1 << 24), (1, 2, 1 << 24), (0, 4, 1 << 32), (0, 5, 1 << 32)]
    {
        let mut bytes = ToDaemon::PacketQuota(packet_quota_requests().remove(request)).encode();
        let at = 16 + 8 * word;
        bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(value));
        let kind = 64 + u32::try_from(request).unwrap();
        assert_eq!(ToDaemon::decode(&bytes), Err(WireError::Content { kind }), "{word} {value}");
    }
}

#[test]
fn a_program_message_with_a_number_out_of_range_is_refused() {
    // (request, word, value): a pid, a share of more than a CPU, a weight, a CPU, no share.
    let wrong = [
        (0, 0, 1 << 32),
        (0, 1, 1_000_001),
        (0, 2, 1 << 32),
        (0, 5, 1 << 32),
        (2, 1, 0),
        (2, 1, 1_000_001),
        (3, 0, u64::MAX),
    ];
    for (request, word, value) in wrong {
        let mut bytes = ToDaemon::Program(requests().remove(request)).encode();
        let at = 16 + 8 * word;
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        let kind = 48 + u32::try_from(request).unwrap();
        assert_eq!(ToDaemon::decode(&bytes), Err(WireError::Content { kind }), "{word} {value}");
    }
    // A cause that does not exist, a share of more than a CPU, a flag.
    let beyond = (1 << 32) + 1;
    for (reply, word, value) in
        [(1, 0, 0), (1, 0, 13), (1, 0, beyond), (1, 2, 1_000_001), (0, 6, 2)]
    {
        let mut bytes = ToDomain::Program(replies().remove(reply)).encode();
        let at = 16 + 8 * word;
        bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(value));
        assert!(ToDomain::decode(&bytes).is_err(), "{word} {value}");
    }
}

#[test]
fn a_status_with_an_unknown_state_is_refused() {
    // Words begin at byte 16. The state is the third word of a virtual processor, and the 11th of
    // an activity.
    for (part, word, kind) in [(2, 2, 34), (3, 10, 35)] {
        let mut bytes = ToDomain::Status(status().remove(part)).encode();
        bytes[16 + 8 * word] = 5;
        assert_eq!(ToDomain::decode(&bytes), Err(WireError::Content { kind }));
        bytes.truncate(bytes.len() - 1);
        assert!(ToDomain::decode(&bytes).is_err());
    }
}

#[test]
fn a_text_that_is_too_long_is_cut_at_a_character() {
    let name = "ä".repeat(TEXT_BYTES_MAX);
    let message = ToDaemon::Hello { name, policy: "ps".into() };
    let Ok(ToDaemon::Hello { name, .. }) = ToDaemon::decode(&message.encode()) else {
        panic!("it was not understood");
    };
    assert_eq!(name, "ä".repeat(TEXT_BYTES_MAX / 2));
}

proptest! {
    #[test]
    fn decoding_any_bytes_does_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        at in 0..45usize,
    ) {
        let _ = (ToDaemon::decode(&bytes), ToDomain::decode(&bytes));
        // The bytes also follow a valid beginning.
        let all: Vec<_> = from_domain().iter().map(ToDaemon::encode)
            .chain(to_domain().iter().map(ToDomain::encode)).collect();
        prop_assert_eq!(all.len(), 47);
        let mixed = [&all[at][..all[at].len() / 2], &bytes].concat();
        let _ = (ToDaemon::decode(&mixed), ToDomain::decode(&mixed));
    }
}
