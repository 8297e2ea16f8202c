//! Tables and picture from fixed numbers, and the cells of command lines.

use clap::Parser as _;

use super::*;
use crate::args::{Args, BenchCommand, Command};
use outcome::{Machine, Received, Run};

fn parse(words: &str) -> Result<LivelockArgs, clap::Error> {
    let line = format!("upcall bench livelock {words}");
    let args = Args::try_parse_from(line.split_whitespace())?;
    match args.command {
        Command::Bench(BenchCommand::Livelock(args)) => Ok(args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_options_there_are_fifteen_cells_of_ten_seconds() {
    let args = parse("").unwrap();
    let found = cells(&args);
    assert_eq!((found.len(), args.runs, args.duration.as_nanos()), (15, 1, 10_000_000_000));
    assert_eq!(found[0], (Config::Plain, Load::Constant));
    assert_eq!(found[14], (Config::Scheduled, Load::Misbehaving));
}

#[test]
fn configurations_senders_and_rates_choose_the_cells() {
    let found = cells(&parse("--config 5,1,1 --senders bursty --runs 3").unwrap());
    assert_eq!(found, [(Config::Plain, Load::Bursty), (Config::Scheduled, Load::Bursty)]);
    let found = cells(&parse("--config 2 --flood 500,20k,1M").unwrap());
    let rates = [500, 20_000, 1_000_000];
    assert_eq!(found, rates.map(|rate| (Config::Shares, Load::Flood(rate))));
    for words in [
        "--config 0",
        "--config 6",
        "--senders quick",
        "--flood 0",
        "--flood 20x",
        "--flood 20M",
        "--flood 1k --senders bursty",
        "--runs 0",
        "--duration 1ms",
    ] {
        assert!(parse(words).is_err(), "{words}");
    }
}

/// Two cells of one configuration, of two runs each.
fn outcome(config: Config, loads: [Load; 2]) -> Outcome {
    let received = |name, sent, packets, on_time, drops_at_socket, drops_at_ip| Received {
        name,
        sent,
        packets,
        on_time: Some(on_time),
        delay_ns_p50: Some(1_234_567),
        delay_ns_p99: (packets > 0).then_some(9_876_543),
        left: 0,
        drops_at_socket,
        drops_at_ip,
    };
    let run = |more: u64| Run {
        receivers: vec![
            received("audio", 500, 500, 500, 0, 0),
            received("video", 900, 880, 450, 20, 0),
            received("file", 10_000, 2_000 + more, 1_000, 10, 7_990 - more),
        ],
        background_iterations: Some(1_234_567),
        background_part: 0.2519,
        quota_drops: config.has_quotas().then_some(7_000),
        quotas_in_driver: config.has_quotas().then_some(true),
        steal_ns: more * 50_000_000,
    };
    let cell = |senders| Cell { config, senders, runs: vec![run(0), run(4)] };
    Outcome {
        machine: Some(Machine {
            cpu_model: "A Processor".to_owned(),
            kernel: "6.18".to_owned(),
            cpus_online: 2,
            load_before: "0.10 0.20 0.30".to_owned(),
            receivers_cpu: 1,
            senders_cpu: 0,
            steal_ns: 200_000_000,
        }),
        date: "2026-01-02T03:04:05Z".to_owned(),
        command: "upcall bench livelock --runs 2".to_owned(),
        duration_ns: 10_000_000_000,
        runs: 2,
        interrupted: false,
        cells: loads.map(cell).into(),
    }
}

/// The lines that begin with one of these words, without the spaces of the columns.
fn lines_of(text: &str, words: &[&str]) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| words.iter().any(|word| line.starts_with(word))).collect()
}

#[test]
fn a_table_has_the_figures_of_the_paper_beside_those_of_this_machine() {
    let text = table::text(&outcome(Config::Scheduled, [Load::Constant, Load::Misbehaving]));
    for line in [
        "machine: 2 x A Processor",
        "date:    2026-01-02T03:04:05Z",
        "command: upcall bench livelock --runs 2",
        "Table 5: PS for programs, a quota for each receiver, packet scheduling",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in:\n{text}");
    }
    assert_eq!(
        lines_of(&text, &["misbehaving", "file", "background"]),
        [
            "file 2,002 (2.8) 10.0 % 10 (0.0) 7,988 (2.8) 1.23 ms 9.88 ms | 2,000 0 0",
            "background 1,234,567 (0.0) 25.2 % - - - - | 775,474 - -",
            "misbehaving audio 500 (0.0) 100.0 % 0 (0.0) 0 (0.0) 1.23 ms 9.88 ms | 500 0 0",
            "file 2,002 (2.8) 10.0 % 10 (0.0) 7,988 (2.8) 1.23 ms 9.88 ms | 2,000 0 7,997",
            "background 1,234,567 (0.0) 25.2 % - - - - | 210,246 - -",
        ]
    );
    assert!(text.contains("warning: the host took 200 ms"), "{text}");
    assert!(text.contains("1 % of the time in: 5 constant, 5 misbehaving."), "{text}");
}

#[test]
fn a_flood_has_a_row_for_each_rate_and_says_where_drops_ran() {
    let floods = [Load::Flood(20_000), Load::Flood(1_000_000)];
    let with_quotas = table::text(&outcome(Config::Quotas, floods));
    assert_eq!(
        lines_of(&with_quotas, &["20k", "1M"])[0],
        "20k 1,000 50 50 88 45 200 100 3 99 700 25.2 % CPU 1 (socket), CPU 0 (queue), CPU 0 (quota)"
    );
    let plain = table::text(&outcome(Config::Plain, floods));
    assert_eq!(
        lines_of(&plain, &["20k", "1M"])[1],
        "1M 1,000 50 50 88 45 200 100 3 799 0 25.2 % CPU 1 (socket), CPU 0 (queue)"
    );
}

#[test]
fn a_picture_has_a_chart_for_each_configuration() {
    let svg = picture::draw(&outcome(Config::Shares, [Load::Constant, Load::Bursty]));
    assert!(svg.starts_with("<svg"), "{svg}");
    for part in ["2: PS for programs only", "video: 50.0 %", "background: 25.2 %", "bursty"] {
        assert!(svg.contains(part), "no `{part}` in {svg}");
    }
}

#[test]
fn the_object_has_numbers_for_configurations_and_names_for_senders() {
    let outcome = outcome(Config::Scheduled, [Load::Bursty, Load::Flood(10_000)]);
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(
        (&json["cells"][0]["config"], &json["cells"][0]["senders"]),
        (&5.into(), &"bursty".into())
    );
    assert_eq!(json["cells"][1]["senders"], "flood 10k");
    assert_eq!(json["cells"][1]["runs"][1]["receivers"][2]["packets"], 2_004);
}

#[test]
fn the_tables_of_the_paper_add_up() {
    // What was sent in 60 s, and the paper's own rounding.
    for config in Config::ALL {
        let figures = paper::figures_of(config, Load::Misbehaving).unwrap();
        for (row, rate) in figures.receivers.iter().zip([50.0, 90.9, 1_000.0]) {
            let sum = row.packets + row.at_socket + row.at_ip;
            assert!((sum / (60.0 * rate) - 1.0).abs() < 0.02, "{config:?}: {row:?}");
        }
    }
    assert_eq!(paper::figures_of(Config::Plain, Load::Flood(1)), None);
}

#[test]
fn virtual_time_has_the_same_tables_again_and_no_machine() {
    let args =
        parse("--virtual --config 2,5 --senders misbehaving --duration 2s --runs 2").unwrap();
    let tables = || {
        let mut outcome = Outcome::begin(&args, None);
        for (config, load) in cells(&args) {
            let mut cell = Cell::new(config, load);
            cell.runs
                .extend((1..=2).map(|seed| virtual_time::run(config, load, args.duration, seed)));
            outcome.add(cell);
        }
        (table::text(&outcome), outcome)
    };
    let (text, outcome) = tables();
    assert!(outcome.machine.is_none() && text.contains("in virtual time"), "{text}");
    let rows = |text: &str| text.split_once("\nTable 2").unwrap().1.to_owned();
    assert_eq!(rows(&text), rows(&tables().0));
    for cell in &outcome.cells {
        for receiver in cell.runs.iter().flat_map(|run| &run.receivers) {
            let Received { sent, packets, left, drops_at_socket, drops_at_ip, .. } = *receiver;
            assert_eq!(packets + left + drops_at_socket + drops_at_ip, sent, "{receiver:?}");
        }
    }
    // The paper's point: the same packets are dropped at the socket, or before the protocols.
    let file = |cell: usize| &outcome.cells[cell].runs[0].receivers[2];
    assert!(file(0).drops_at_socket > 0 && file(0).drops_at_ip == 0, "{:?}", file(0));
    assert!(file(1).drops_at_socket == 0 && file(1).drops_at_ip > 0, "{:?}", file(1));
}
