//! ecalls-2001 §3.3 for real (Figures 4 and 5): processes that play Motion JPEG at 30 frames
//! a second on one CPU, from one to beyond saturation, with ordinary and with event-aware
//! scheduling.
//!
//! ffmpeg makes a clip; a source on another CPU sends it to each player through a stream, a
//! frame a period from a phase of the player's own on, up to 5 ms late, as over a network. A frame is to be
//! shown 50 ms after it came: it counts only if it is decoded by then, and a player skips one
//! that cannot be. That is `crates/sim/examples/video_players` with real processes, a real decoder and
//! a real kernel.
//!
//! A step from which the host took more than 1 % of the CPU is done again, twice at most, and
//! the calmest is kept. `-- --figures` writes the figures to `docs/results`.

#![forbid(unsafe_code)]

mod clip;
mod decoder;
mod figure;
mod player;
mod results;
mod screen;
mod source;
mod step;
mod way;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clip::Clip;
use decoder::Decoder;
use player::Role;
use results::Results;
use step::{Outcome, Setting};
use upcall::activity::Window;
use upcall::admission::Share;
use upcall::time::Span;
use upcall_benches::{heading, measured_cpu, percentile, smoke};
use upcall_sys::schedule;
use way::Way;

/// What a process started by this one is to do: its variable of the environment.
const ROLE: &str = "UPCALL_BENCH_ROLE";
/// Between two frames: 30 a second.
const PERIOD: Span = Span::from_nanos(33_333_333);
const RATE: f64 = 30.0;
/// The most that a frame is late.
const JITTER: Span = Span::from_millis(5);
/// From the arrival of a frame to its display.
const SHOWN_AFTER: Span = Span::from_millis(50);
/// Of round robin in the paper.
const SLICE: Duration = Duration::from_micros(150);
/// Of each player, in front of those that count.
const WARM_FRAMES: u64 = 15;
/// Most that admission gives away here.
const CPU_LIMIT: Share = match Share::from_ppm(950_000) {
    Some(share) => share,
    None => Share::WHOLE,
};
/// More than that taken by the host spoils a step.
const STOLEN_MAX: f64 = 0.01;
/// How often a step is done at most.
const TRIES_MAX: u32 = 3;

/// Steps that are done again, in all: the whole stays below eight minutes.
const AGAIN_MAX: u32 = 12;

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return Role::of_line(&role).play();
    }
    println!("{}", heading("video_players"));
    let clip = match Clip::make() {
        Ok(clip) => Arc::new(clip),
        Err(reason) => {
            println!("skipped: no pictures: {reason}");
            return;
        }
    };
    let costs = Costs::measure(&clip);
    let ways = ways();
    let setting = Setting { clip, cost: costs.most, frames: if smoke() { 15 } else { 150 } };
    print_setting(&setting, &costs);
    let mut results = Results { costs, ways, steps: BTreeMap::new() };
    let mut again_left = if smoke() { 0 } else { AGAIN_MAX };
    for players in numbers_of_players(&costs) {
        for &way in &results.ways {
            let outcome = calm_step(&setting, way, players, &mut again_left);
            results.steps.entry(players).or_default().insert(way, outcome);
        }
    }
    results.print_rates();
    results.print_steps();
    results.print_verdicts();
    if std::env::args().any(|argument| argument == "--figures") {
        draw(&results);
    }
}

/// All of them; without the right to it none in `SCHED_RR`.
fn ways() -> Vec<Way> {
    let mut ways = Way::ALL.to_vec();
    if let Err(refusal) = schedule::fifo_permission(step::PRIORITY) {
        println!("no SCHED_RR, and nothing is promised: {refusal}");
        ways.retain(|way| !way.is_round_robin());
    }
    ways
}

fn print_setting(setting: &Setting, costs: &Costs) {
    let (width, height) = setting.clip.size;
    let seconds = setting.frames as f64 * PERIOD.as_nanos() as f64 / 1e9;
    println!(
        "\necalls-2001 3.3: players of {RATE} frames/s on one CPU, {seconds:.1} s each, after {:.1} s that do not count",
        WARM_FRAMES as f64 * PERIOD.as_nanos() as f64 / 1e9
    );
    println!(
        "{} pictures of {width} x {height} by ffmpeg, {} kB at most; alone, one takes {} to decode, and {} is declared",
        setting.clip.frames.len(),
        setting.clip.bytes_max() / 1000,
        costs.usual,
        costs.most
    );
    println!(
        "a frame every {PERIOD}, {JITTER} late at most; shown {SHOWN_AFTER} after it came, or not at all"
    );
    let slice =
        std::fs::read_to_string("/proc/sys/kernel/sched_rr_timeslice_ms").unwrap_or_default();
    println!(
        "other: SCHED_OTHER. rr: SCHED_RR, whose slice is {} ms here and can only be set for all; as no frame takes that\n\
         long, who waits longest goes first, and all being shown {SHOWN_AFTER} after they came, that is the order of display\n\
         times. rr-150us: players that go to the end of its queue every 150 us, the paper's slice. rmdp: a domain a\n\
         player under a daemon, all of one rank. dwcs: players as handlers of one process (no daemon has DWCS), windows\n\
         of 1/10, 1/2, 4/5 in turn, upcalled by the clock of one screen, no event server. +ev: events by display time,\n\
         raised by a service in the process that sends the frames.",
        slice.trim()
    );
}

/// From one player to far beyond saturation.
fn numbers_of_players(costs: &Costs) -> Vec<usize> {
    let full = PERIOD.as_nanos() as f64 / costs.usual.as_nanos().max(1) as f64;
    if smoke() {
        return vec![2];
    }
    let given: Vec<usize> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    if !given.is_empty() {
        return given;
    }
    let parts = [0.33, 0.53, 0.73, 0.87, 1.0, 1.2, 1.4, 1.65];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some dozens")]
    let numbers = parts.iter().map(|part| (part * full).round() as usize);
    let mut numbers: Vec<usize> = [1].into_iter().chain(numbers).collect();
    numbers.dedup();
    numbers
}

/// The calmest of some tries.
fn calm_step(setting: &Setting, way: Way, players: usize, again_left: &mut u32) -> Outcome {
    let mut calmest = step::run(setting, way, players);
    for _ in 1..TRIES_MAX {
        if calmest.stolen() <= STOLEN_MAX || *again_left == 0 {
            break;
        }
        *again_left -= 1;
        let outcome = step::run(setting, way, players);
        if outcome.stolen_ms < calmest.stolen_ms {
            calmest = outcome;
        }
    }
    calmest
}

/// Figures 4 and 5, into `docs/results`.
fn draw(results: &Results) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let (with, without): (Vec<Way>, Vec<Way>) =
        results.ways.iter().partition(|way| way.is_upcall());
    for (name, heading, ways) in [
        ("figure4", "As Figure 4 of ecalls-2001: frame rates with ordinary scheduling", without),
        (
            "figure5",
            "As Figure 5 of ecalls-2001: frame rates with Upcall, without and with events",
            with,
        ),
    ] {
        match figure::write(&folder, name, heading, &ways, results) {
            Ok(()) => println!("wrote docs/results/video-players-real-{name}.svg"),
            Err(error) => println!("no {name}: {error}"),
        }
    }
}

/// What players may lose under DWCS: a third of them one frame in ten, a third half of
/// them, a third four of five.
const CLASSES: [Window; 3] = [
    Window { misses: 1, periods: 10 },
    Window { misses: 1, periods: 2 },
    Window { misses: 4, periods: 5 },
];

fn window(player: usize) -> Window {
    CLASSES[player % CLASSES.len()]
}

/// Frames/s that a class's window asks for.
fn asked(class: usize) -> f64 {
    let Window { misses, periods } = CLASSES[class];
    RATE * f64::from(periods - misses) / f64::from(periods)
}

fn class_name(class: usize) -> String {
    let Window { misses, periods } = CLASSES[class];
    format!("{misses}/{periods} ({:.0})", asked(class))
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// CPU time that decoding a frame takes.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// The median of all frames, each by the least of its tries.
    usual: Span,
    /// Declared: the costliest frame and a fifth more, for what caches and the host's other guests
    /// do.
    most: Span,
}

impl Costs {
    /// On the CPU that is measured, by players in turn, whose pictures push each other's out of
    /// the cache.
    fn measure(clip: &Clip) -> Costs {
        std::thread::scope(|scope| {
            let measuring = scope.spawn(|| {
                schedule::pin_thread(&[measured_cpu()]).expect("it is allowed");
                Costs::measure_here(clip)
            });
            measuring.join().expect("the decoder does not panic")
        })
    }

    fn measure_here(clip: &Clip) -> Costs {
        const PLAYERS: usize = 12;
        let tries = if smoke() { 1 } else { 8 };
        let pixels = (clip.size.0 * clip.size.1) as usize;
        let mut decoders: Vec<Decoder> =
            (0..PLAYERS).map(|_| Decoder::new(clip.bytes_max(), pixels, None)).collect();
        let mut least_ns = vec![u64::MAX; clip.frames.len()];
        let frames = (0..tries).flat_map(|_| clip.frames.iter().enumerate());
        for (turn, (place, frame)) in frames.enumerate() {
            let decoder = &mut decoders[turn % PLAYERS];
            decoder.room(frame.len()).copy_from_slice(frame);
            let before_ns = upcall::thread_cpu_ns();
            decoder.decode(frame.len());
            let cost_ns = upcall::thread_cpu_ns() - before_ns;
            least_ns[place] = least_ns[place].min(cost_ns);
        }
        let most_ns = least_ns.iter().copied().max().unwrap_or_default();
        Costs {
            usual: Span::from_nanos(percentile(&mut least_ns, 50.0)),
            most: Span::from_nanos(most_ns + most_ns / 5),
        }
    }
}
