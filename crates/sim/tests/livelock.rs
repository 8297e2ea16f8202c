//! proportional-share-1998 §5: what the paper says of its Tables 1 to 5, in virtual time.

use upcall_core::time::Span;
use upcall_sim::livelock::{
    Average, Averages, Configuration, Costs, Limits, Outcome, Received, Senders, Setup, averages,
    run,
};

const MISBEHAVING: Senders = Senders::Misbehaving { rate: 1_000 };
const SEEDS: core::ops::Range<u64> = 0..2;
/// Packets that one program processes in 60 s when it loses none, but for those at the ends.
const AUDIO: u64 = 2_990;
const VIDEO: u64 = 5_390;
const FILE: u64 = 11_980;

fn outcomes(configuration: Configuration, senders: Senders) -> Vec<Outcome> {
    let setup = Setup::of_paper(configuration, senders);
    SEEDS.map(|seed| run(&setup, seed)).collect()
}

fn lost(received: &Received) -> u64 {
    let drops = received.drops;
    drops.at_adapter + drops.at_input_queue + drops.at_socket
}

/// Audio, video and file.
fn three(outcome: &Outcome) -> [&Received; 3] {
    [&outcome.receivers[0], &outcome.receivers[1], &outcome.receivers[2]]
}

fn assert_audio_and_video_lose_nothing(outcome: &Outcome) {
    let [audio, video, _] = three(outcome);
    assert!(lost(audio) == 0 && audio.packets >= AUDIO, "{audio:?}");
    assert!(lost(video) == 0 && video.packets >= VIDEO, "{video:?}");
}

#[test]
fn constant_senders_lose_nothing_once_programs_have_shares() {
    for configuration in &Configuration::ALL[1..] {
        for outcome in outcomes(*configuration, Senders::Constant) {
            assert_audio_and_video_lose_nothing(&outcome);
            let file = three(&outcome)[2];
            // The clock of the sender may be fast: then one packet is one too many.
            assert!(lost(file) <= 2 && file.packets >= FILE, "{configuration:?} {file:?}");
        }
    }
}

#[test]
fn table_1_video_loses_packets_to_a_program_that_only_computes() {
    for senders in [Senders::Constant, MISBEHAVING] {
        for outcome in outcomes(Configuration::Plain, senders) {
            let [audio, video, _] = three(&outcome);
            assert!(lost(audio) == 0 && audio.packets >= AUDIO, "{audio:?}");
            assert!(video.drops.at_socket > 1_000, "{video:?}");
            assert_eq!(lost(video), video.drops.at_socket);
        }
    }
    let [constant, flood] = [Senders::Constant, MISBEHAVING]
        .map(|senders| run(&Setup::of_paper(Configuration::Plain, senders), 9));
    // Packets that are dropped later take the time of video and of the background program.
    assert!(three(&flood)[1].packets < three(&constant)[1].packets);
    assert!(flood.background < constant.background);
    assert!(three(&flood)[2].drops.at_socket > 40_000);
}

#[test]
fn table_2_shares_protect_receivers_but_not_the_rest_from_protocols() {
    for outcome in outcomes(Configuration::Programs, MISBEHAVING) {
        assert_audio_and_video_lose_nothing(&outcome);
        let file = three(&outcome)[2];
        assert!((FILE..=12_010).contains(&file.packets), "{file:?}");
        assert!(file.drops.at_socket > 47_000 && file.drops.at_input_queue == 0, "{file:?}");
    }
    let constant = run(&Setup::of_paper(Configuration::Programs, Senders::Constant), 0);
    let flood = run(&Setup::of_paper(Configuration::Programs, MISBEHAVING), 0);
    // The paper: 915,343 of 4,593,536.
    assert!(flood.background.saturating_mul(3) < constant.background);
}

#[test]
fn table_3_one_queue_gives_the_places_of_audio_and_video_to_the_flood() {
    let setup = Setup::of_paper(Configuration::OneQueue, MISBEHAVING);
    let Averages { rows, background_s } = averages(&setup, 0..8);
    // The protocols process 4 packets each 10 ms. The paper: 757 and 2,004 packets.
    assert!(rows[0].packets.mean < 1_500.0, "{rows:?}");
    assert!(rows[1].packets.mean < 2_700.0, "{rows:?}");
    assert!(rows.iter().all(|row| row.at_input_queue.mean > 1_000.0), "{rows:?}");
    assert!(rows[2].at_socket.mean > 1_000.0, "{rows:?}");
    // The time that audio and video do not use.
    let constant = run(&Setup::of_paper(Configuration::OneQueue, Senders::Constant), 0);
    assert!(background_s.mean > constant.background.as_secs_f64(), "{background_s:?}");
    for seed in SEEDS {
        let outcome = run(&setup, seed);
        let taken: u64 =
            outcome.receivers.iter().map(|it| it.packets + it.drops.at_socket + it.waiting).sum();
        assert!(taken <= 24_000 + 100, "{outcome:?}");
    }
}

#[test]
fn table_4_destination_queues_protect_audio_and_video() {
    for outcome in outcomes(Configuration::DestinationQueues, MISBEHAVING) {
        assert_audio_and_video_lose_nothing(&outcome);
        let file = three(&outcome)[2];
        assert!((FILE..=12_010).contains(&file.packets), "{file:?}");
        // Queues have more places than the program can use, so some work is in vain.
        assert!(file.drops.at_socket > 1_000, "{file:?}");
        assert!(file.drops.at_input_queue > 30_000, "{file:?}");
    }
}

#[test]
fn table_5_packet_scheduling_drops_the_flood_before_the_protocols() {
    for outcome in outcomes(Configuration::PacketScheduling, MISBEHAVING) {
        assert_audio_and_video_lose_nothing(&outcome);
        let file = three(&outcome)[2];
        assert!((FILE - 20..=12_010).contains(&file.packets), "{file:?}");
        assert_eq!(file.drops.at_socket, 0);
        assert!(file.drops.at_input_queue > 47_000, "{file:?}");
    }
    let of = |configuration| run(&Setup::of_paper(configuration, MISBEHAVING), 0).background;
    assert!(of(Configuration::PacketScheduling) > of(Configuration::DestinationQueues));
    assert!(of(Configuration::DestinationQueues) > of(Configuration::Programs));
}

#[test]
fn quotas_protect_as_queues_do() {
    // Decision 0024: the variants of the paper are settings of one rule.
    for configuration in [Configuration::DestinationQueues, Configuration::PacketScheduling] {
        let queues = Setup::of_paper(configuration, MISBEHAVING);
        let quotas = Setup { limits: Limits::Quotas, ..queues.clone() };
        for seed in SEEDS {
            let outcome = run(&quotas, seed);
            assert_audio_and_video_lose_nothing(&outcome);
            let [file, of_queues] =
                [&outcome, &run(&queues, seed)].map(|outcome| outcome.receivers[2]);
            assert!(file.packets.abs_diff(of_queues.packets) <= 30, "{file:?} {of_queues:?}");
            let [a, b] = [file, of_queues].map(|file| file.drops.at_input_queue);
            assert!(a.abs_diff(b) <= b / 20, "{a} {b}");
        }
    }
}

#[test]
fn bursty_senders_need_more_places() {
    let mut setup = Setup::of_paper(Configuration::PacketScheduling, Senders::Bursty);
    let few = run(&setup, 1);
    setup.burst = 20;
    let many = run(&setup, 1);
    for (few, many) in three(&few).into_iter().zip(three(&many)) {
        assert!(lost(many) * 4 < lost(few), "{few:?} {many:?}");
    }
}

/// 500,000 packets a second, on a machine on which they do not need all the time of the CPU. The
/// interrupt drops as fast as an XDP program (decision 0024, section 3); the other costs are
/// assumed, in the proportion of the paper.
fn flood(configuration: Configuration) -> Setup {
    let costs = Costs {
        interrupt: Span::from_nanos(400),
        protocol: Span::from_micros(2),
        socket: Span::from_micros(1),
    };
    let senders = Senders::Misbehaving { rate: 500_000 };
    let duration = Span::from_secs(2);
    Setup { costs, duration, ..Setup::of_paper(configuration, senders) }
}

#[test]
fn a_flood_leaves_a_plain_kernel_no_time() {
    let outcome = run(&flood(Configuration::Plain), 0);
    assert!(outcome.background < Span::from_millis(1), "{outcome:?}");
    assert!(outcome.programs < Span::from_millis(1), "{outcome:?}");
}

#[test]
fn packet_scheduling_withstands_a_flood() {
    for limits in [Limits::Queues, Limits::Quotas] {
        let outcome = run(&Setup { limits, ..flood(Configuration::PacketScheduling) }, 0);
        let [audio, video, file] = three(&outcome);
        assert!(lost(audio) == 0 && audio.packets >= 97, "{audio:?}");
        assert!(lost(video) == 0 && video.packets >= 177, "{video:?}");
        assert!(file.drops.at_socket == 0 && file.packets >= 395, "{file:?}");
        assert!(outcome.background > Span::from_millis(100), "{outcome:?}");
    }
}

#[test]
fn interrupts_alone_can_take_the_cpu() {
    // On the machine of the paper an interrupt takes 190 us, so no configuration withstands this.
    let senders = Senders::Misbehaving { rate: 500_000 };
    for configuration in Configuration::ALL {
        let duration = Span::from_millis(100);
        let setup = Setup { duration, ..Setup::of_paper(configuration, senders) };
        let outcome = run(&setup, 0);
        assert!(outcome.background + outcome.programs < Span::from_millis(1), "{outcome:?}");
        assert!(outcome.receivers[2].drops.at_adapter > 45_000, "{outcome:?}");
    }
}

#[test]
fn packets_and_time_add_up() {
    for configuration in Configuration::ALL {
        for senders in Senders::OF_PAPER {
            for limits in [Limits::Queues, Limits::Quotas] {
                let duration = Span::from_secs(5);
                let setup = Setup { duration, limits, ..Setup::of_paper(configuration, senders) };
                let outcome = run(&setup, 3);
                let Outcome { background, interrupts, protocols, programs, .. } = outcome;
                assert_eq!(background + interrupts + protocols + programs, duration);
                for (received, receiver) in outcome.receivers.iter().zip(&setup.receivers) {
                    let socket = u64::from(setup.socket_bytes / receiver.bytes);
                    let places = u64::from(setup.ring_places + setup.input_places) + socket + 2;
                    assert!(received.waiting <= places, "{configuration:?} {received:?}");
                    let processed = receiver.compute + setup.costs.socket;
                    let used = Span::from_nanos(processed.as_nanos() * received.packets);
                    assert!(used <= programs, "{received:?}");
                }
            }
        }
    }
}

#[test]
fn a_seed_decides_the_outcome() {
    let duration = Span::from_secs(2);
    let setup =
        Setup { duration, ..Setup::of_paper(Configuration::PacketScheduling, Senders::Bursty) };
    assert_eq!(run(&setup, 1), run(&setup, 1));
    assert_ne!(run(&setup, 1), run(&setup, 2));
}

#[test]
fn averages_are_those_of_a_sample() {
    assert_eq!(Average::of([1.0, 3.0]), Average { mean: 2.0, deviation: 2f64.sqrt() });
    assert_eq!(Average::of([5.0]), Average { mean: 5.0, deviation: 0.0 });
    assert_eq!(Average::of([]), Average::default());
}
