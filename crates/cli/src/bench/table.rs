//! The tables of the experiment, as text: Tables 1 to 5 beside those of the paper, or floods.

use super::load::{Config, Load, RECEIVERS};
use super::outcome::{Cell, Machine, Outcome, Received, Run, Statistics};
use super::paper;
use crate::show::{span, table};

/// CPU time that the host may take before the text warns: a hundredth of the time.
const STEAL_PART_MAX: f64 = 0.01;

/// All tables below a head.
pub fn text(outcome: &Outcome) -> String {
    let mut text = head(outcome);
    for config in Config::ALL {
        let cells: Vec<&Cell> = outcome.cells.iter().filter(|cell| cell.config == config).collect();
        let is_flood = cells.iter().any(|cell| matches!(cell.senders, Load::Flood(_)));
        if !cells.is_empty() {
            let (number, title) = (config.number(), config.title());
            let rows = if is_flood { floods(outcome, &cells) } else { of_paper(outcome, &cells) };
            text += &format!("\nTable {number}: {title}\n{rows}\n");
        }
    }
    if outcome.interrupted {
        text += "\ninterrupted: cells are missing\n";
    }
    if let Some(warning) = warning(outcome) {
        text += &format!("\n{warning}\n");
    }
    text
}

fn head(outcome: &Outcome) -> String {
    let Outcome { date, command, .. } = outcome;
    let runs = match outcome.runs {
        1 => "once".to_owned(),
        runs => format!("{runs} times; (standard deviation)"),
    };
    let each = format!("Each cell: {}, {runs}.", span(outcome.duration_ns));
    let is_flood = outcome.cells.iter().any(|cell| matches!(cell.senders, Load::Flood(_)));
    let columns = if is_flood { FLOOD_COLUMNS } else { PAPER_COLUMNS };
    let Some(machine) = &outcome.machine else {
        return format!(
            "date:    {date}\ncommand: {command}\n\nReceive livelock, proportional-share-1998 section \
             5, in virtual time: the machine and the\nqueues of the paper in place of quotas. {each}\n\
             {VIRTUAL_COLUMNS}"
        );
    };
    let Machine { cpu_model, kernel, cpus_online, load_before, .. } = machine;
    let Machine { receivers_cpu, senders_cpu, .. } = machine;
    format!(
        "machine: {cpus_online} x {cpu_model}\nkernel:  {kernel}\ndate:    {date}\ncommand: {command}\n\
         load before: {load_before}\n\nReceive livelock, proportional-share-1998 section 5. On CPU \
         {receivers_cpu}: receivers, background program, and the\nkernel's work for packets (RPS). On \
         CPU {senders_cpu}: senders. Buffers, and offloads of veth, are the defaults.\n{each}\n{columns}"
    )
}

const PAPER_COLUMNS: &str = "\
packets: processed; of the background program its iterations. on time: within a period of their
sending, of all sent; of the background program the part of the CPU. at IP: dropped before the
kernel's protocols, by a quota at the interface (Tables 3 to 5), or since the queue to the
receivers' CPU was full. paper: its figures for 60 s, scaled to the time of a cell.
";

const VIRTUAL_COLUMNS: &str = "\
packets: processed. at IP: dropped before the protocols. background: its part of the CPU. paper: its
figures for 60 s, scaled to the time of a cell.
";

const FLOOD_COLUMNS: &str = "\
A second: packets that the file sender sent (fewer than asked for, if its CPU can do no more);
packets that each receiver processed, and those on time (within a period of their sending); drops of
all. queue: since the queue to the receivers' CPU was full. quota: at the interface. background: its
part of the CPU.
";

/// A configuration, with a block of rows for each way of sending.
fn of_paper(outcome: &Outcome, cells: &[&Cell]) -> String {
    let header = [
        "senders",
        "receiver",
        "packets",
        "on time",
        "at socket",
        "at IP",
        "p50",
        "p99",
        "| paper: packets",
        "at socket",
        "at IP",
    ];
    let mut rows = table(&header, 2);
    let scale = outcome.duration_ns as f64 / 1e9 / paper::SECONDS;
    for cell in cells {
        let figures = paper::figures_of(cell.config, cell.senders);
        let of_paper = |figure: Option<f64>| {
            figure.map_or_else(|| "-".to_owned(), |figure| count(figure * scale))
        };
        for (index, receiver) in RECEIVERS.iter().enumerate() {
            let of = |of: fn(&Received) -> f64| cell.of_receiver(index, of);
            let delay = |of: fn(&Received) -> Option<u64>| delay(cell, index, of);
            let row = figures.map(|figures| figures.receivers[index]);
            rows.add_row([
                if index == 0 { cell.senders.name() } else { String::new() },
                receiver.name.to_owned(),
                with_deviation(of(|of| of.packets as f64)),
                on_time(cell, index),
                with_deviation(of(|of| of.drops_at_socket as f64)),
                with_deviation(of(|of| of.drops_at_ip as f64)),
                delay(|of| of.delay_ns_p50),
                delay(|of| of.delay_ns_p99),
                format!("| {}", of_paper(row.map(|row| row.packets))),
                of_paper(row.map(|row| row.at_socket)),
                of_paper(row.map(|row| row.at_ip)),
            ]);
        }
        let none = || "-".to_owned();
        let counts_iterations = cell.runs.iter().all(|run| run.background_iterations.is_some());
        let iterations = |run: &Run| run.background_iterations.unwrap_or_default() as f64;
        rows.add_row([
            String::new(),
            "background".to_owned(),
            if counts_iterations { with_deviation(cell.statistics(iterations)) } else { none() },
            percent(cell.statistics(|run| run.background_part).mean),
            none(),
            none(),
            none(),
            none(),
            format!("| {}", of_paper(figures.map(|figures| figures.iterations))),
            none(),
            none(),
        ]);
    }
    rows.to_string()
}

/// A configuration, with a row for each rate.
fn floods(outcome: &Outcome, cells: &[&Cell]) -> String {
    let header = [
        "file sender",
        "sent",
        "audio",
        "on time",
        "video",
        "on time",
        "file",
        "on time",
        "at socket",
        "queue",
        "quota",
        "background",
        "drops ran on",
    ];
    let mut rows = table(&header, 1);
    let seconds = outcome.duration_ns as f64 / 1e9;
    for cell in cells {
        let a_second = |of: &dyn Fn(&Run) -> f64| count(cell.statistics(of).mean / seconds);
        let drops = |run: &Run| {
            let sum = |of: fn(&Received) -> u64| run.receivers.iter().map(of).sum::<u64>();
            let quota = run.quota_drops.unwrap_or(0);
            (sum(|of| of.drops_at_socket), sum(|of| of.drops_at_ip).saturating_sub(quota), quota)
        };
        let file = RECEIVERS.len() - 1;
        let mut row = vec![cell.senders.name().replace("flood ", "")];
        row.push(a_second(&|run| run.receivers[file].sent as f64));
        for index in 0..RECEIVERS.len() {
            row.push(a_second(&|run| run.receivers[index].packets as f64));
            let on_time = |run: &Run| run.receivers[index].on_time;
            row.push(match cell.runs.iter().all(|run| on_time(run).is_some()) {
                true => a_second(&|run| on_time(run).unwrap_or_default() as f64),
                false => "-".to_owned(),
            });
        }
        row.push(a_second(&|run| drops(run).0 as f64));
        row.push(a_second(&|run| drops(run).1 as f64));
        row.push(a_second(&|run| drops(run).2 as f64));
        row.push(percent(cell.statistics(|run| run.background_part).mean));
        let in_driver = cell.runs.iter().any(|run| run.quotas_in_driver == Some(true));
        let all = cell
            .runs
            .iter()
            .map(drops)
            .fold((0, 0, 0), |sum, drops| (sum.0 + drops.0, sum.1 + drops.1, sum.2 + drops.2));
        row.push(places(outcome, all, in_driver));
        rows.add_row(row);
    }
    rows.to_string()
}

/// The CPUs on which packets were dropped: at sockets, in the queue, by quotas. veth hands packets
/// over on the sender's CPU, and so runs the driver's part there.
fn places(outcome: &Outcome, (socket, queue, quota): (u64, u64, u64), in_driver: bool) -> String {
    let Some(Machine { receivers_cpu, senders_cpu, .. }) = &outcome.machine else {
        return "-".to_owned();
    };
    let quota_cpu = if in_driver { senders_cpu } else { receivers_cpu };
    let of = [
        (socket, format!("CPU {receivers_cpu} (socket)")),
        (queue, format!("CPU {senders_cpu} (queue)")),
        (quota, format!("CPU {quota_cpu} (quota)")),
    ];
    let names: Vec<String> =
        of.into_iter().filter(|(drops, _)| *drops > 0).map(|(_, name)| name).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// The part of all sent packets that was on time, or `-` if that is not known.
fn on_time(cell: &Cell, index: usize) -> String {
    let is_known = |run: &Run| run.receivers.get(index).is_some_and(|of| of.on_time.is_some());
    match cell.runs.iter().all(is_known) {
        true => percent(cell.of_receiver(index, Received::done_part).mean),
        false => "-".to_owned(),
    }
}

/// The mean over the runs, or `-` if a run has none.
fn delay(cell: &Cell, index: usize, of: impl Fn(&Received) -> Option<u64>) -> String {
    let delays = cell.runs.iter().map(|run| run.receivers.get(index).and_then(&of));
    match delays.collect::<Option<Vec<u64>>>() {
        Some(delays) if !delays.is_empty() => {
            span(delays.iter().sum::<u64>() / delays.len() as u64)
        }
        _ => "-".to_owned(),
    }
}

/// What the host took, if it is too much.
fn warning(outcome: &Outcome) -> Option<String> {
    let limit = |duration_ns: u64| duration_ns as f64 * STEAL_PART_MAX;
    let stolen = |run: &Run| run.steal_ns as f64 > limit(outcome.duration_ns);
    let disturbed: Vec<String> = outcome
        .cells
        .iter()
        .filter(|cell| cell.runs.iter().any(stolen))
        .map(|cell| format!("{} {}", cell.config.number(), cell.senders.name()))
        .collect();
    (!disturbed.is_empty()).then(|| {
        format!(
            "warning: the host took {} of CPU time meanwhile (steal), and more than 1 % of the time \
             in: {}. Measure these again.",
            span(outcome.machine.as_ref().map_or(0, |machine| machine.steal_ns)),
            disturbed.join(", ")
        )
    })
}

fn with_deviation(of: Statistics) -> String {
    match of.deviation {
        Some(deviation) => format!("{} ({deviation:.1})", count(of.mean)),
        None => count(of.mean),
    }
}

/// A whole number, with commas.
fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}
