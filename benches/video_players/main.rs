//! ecalls-2001 §3.3 with real processes (Figures 4 and 5). Players show Motion JPEG at 30 frames
//! per second on one CPU. Their number goes from one to beyond saturation, with ordinary and with
//! event-aware scheduling.
//!
//! ffmpeg makes a clip. A source on another CPU sends it to each player through a stream, one frame
//! each period. Each player has its own phase, and frames are up to 5 ms late, as over a network. A
//! frame is to be shown 50 ms after it arrived. It counts only if it is decoded by then, and a
//! player skips a frame that it cannot decode in time. The bench repeats
//! `crates/sim/examples/video_players` with real processes, a real decoder and a real kernel.
//!
//! The bench repeats a step until the host is calm ([`Calm`]), prints every try, and judges the
//! first calm one. Each player that is admitted must hold its rate. `-- --figures` writes the
//! figures to `docs/results`. Numbers of players and names of variants, as arguments, choose steps.

#![forbid(unsafe_code)]

mod clip;
mod costs;
mod decoder;
mod figure;
mod frame_events;
mod groups;
mod player;
mod progress;
mod results;
mod screen;
mod setup;
mod source;
mod step;
mod variant;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use clip::{Clip, SIZES};
use costs::{Costs, DECLARED_PERCENTILE, MARGIN_PERCENT};
use player::Role;
use progress::Progress;
use results::{Results, Step};
use setup::{JITTER, PERIOD, RATE, ROLE, SHOWN_AFTER, WARM_FRAMES};
use step::Setting;
use upcall_benches::calm::Calm;
use upcall_benches::{heading, smoke};
use upcall_sys::schedule;
use variant::Variant;

/// 1 % of the measured CPU for the 5.5 s of a step.
const CALM: Calm = Calm { tries_max: 3, stolen_ms_max: 55, wait_s_max: 10, ..Calm::ONCE };
/// From one player to far beyond saturation.
const PLAYERS_MAX: usize = 25;
/// What so many players want is this part of the CPU at least.
const BEYOND: f64 = 1.65;

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        if groups::remove_if_asked(&role) {
            return;
        }
        return Role::of_line(&role).play();
    }
    println!("{}", heading("video_players"));
    let (clip, costs) = match clip_and_costs() {
        Ok((clip, costs)) => (Arc::new(clip), costs),
        Err(reason) => {
            println!("skipped: no pictures: {reason}");
            return;
        }
    };
    let variants = variants();
    let setting = Setting {
        clip,
        cost: costs.most,
        admitted: costs.admitted(),
        frames: if smoke() { 15 } else { 150 },
    };
    print_setting(&setting, &costs);
    println!("{}", if smoke() { Calm::ONCE } else { CALM }.describe());
    let mut results = Results { costs, variants, steps: BTreeMap::new() };
    let numbers = numbers_of_players();
    let mut progress = Progress::of(numbers.len() * results.variants.len());
    println!("{}", progress.describe());
    for players in numbers {
        for &variant in &results.variants {
            let calm = match smoke() {
                true => Some(Calm::ONCE),
                false => progress.rule(CALM),
            };
            let Some(calm) = calm else {
                println!("SKIPPED, no time is left: {players} {}", variant.name());
                continue;
            };
            progress.say(players, variant.name());
            let tries = calm.runs(|| step::run(&setting, variant, players));
            results.steps.entry(players).or_default().insert(variant, Step { tries });
        }
    }
    results.print_rates();
    results.print_steps();
    results.print_comparison();
    results.print_verdicts();
    if std::env::args().any(|argument| argument == "--figures") {
        draw(&results);
    }
}

/// The first clip of which [`PLAYERS_MAX`] players are far beyond saturation. With [`smoke`] the
/// first clip.
///
/// # Errors
/// The reason in one line: as [`Clip::make`], or this machine is too fast for every clip.
fn clip_and_costs() -> Result<(Clip, Costs), String> {
    for size in SIZES {
        let clip = Clip::make(size)?;
        let costs = Costs::measure(&clip);
        let players_full = PERIOD.as_nanos() as f64 / costs.usual.as_nanos().max(1) as f64;
        if smoke() || players_full * BEYOND <= PLAYERS_MAX as f64 {
            return Ok((clip, costs));
        }
    }
    Err(format!("{PLAYERS_MAX} players of the largest pictures hardly fill the CPU"))
}

/// All variants, or those that arguments name. Without the right to `SCHED_RR` or to control
/// groups, those without them.
fn variants() -> Vec<Variant> {
    let mut variants = Variant::ALL.to_vec();
    let is_named = |variant: &Variant| std::env::args().any(|argument| argument == variant.name());
    if variants.iter().any(is_named) {
        variants.retain(is_named);
    }
    if let Err(refusal) = groups::permission() {
        println!("SKIPPED: groups: {refusal}");
        variants.retain(|variant| *variant != Variant::Groups);
    }
    if let Err(refusal) = schedule::fifo_permission(step::PRIORITY) {
        println!("no SCHED_RR, and nothing is promised: {refusal}");
        variants.retain(|variant| !variant.is_round_robin());
    }
    variants
}

fn print_setting(setting: &Setting, costs: &Costs) {
    let (width, height) = setting.clip.size;
    let seconds = setting.frames as f64 * PERIOD.as_nanos() as f64 / 1e9;
    println!(
        "\necalls-2001 3.3: players of {RATE} frames/s on one CPU, {seconds:.1} s each, after {:.1} s that do not count",
        WARM_FRAMES as f64 * PERIOD.as_nanos() as f64 / 1e9
    );
    println!(
        "{} pictures of {width} x {height} by ffmpeg, {} kB at most; with cold caches one takes {} to decode (median),\n\
         and {} is declared: the percentile {DECLARED_PERCENTILE} and {MARGIN_PERCENT} % more",
        setting.clip.frames.len(),
        setting.clip.bytes_max() / 1000,
        costs.usual,
        costs.most
    );
    println!(
        "a frame every {PERIOD}, {JITTER} late at most; shown {SHOWN_AFTER} after it was to come, or not at all"
    );
    let slice =
        std::fs::read_to_string("/proc/sys/kernel/sched_rr_timeslice_ms").unwrap_or_default();
    println!(
        "other: SCHED_OTHER. groups: the same, each player in a control group of its own, of equal weight.\n\
         The bench makes them: with a daemon's, all other processes would be moved, too. rr: SCHED_RR, whose slice is {} ms here and can only be set for the whole system.\n\
         No frame takes that long, so the player that has waited longest goes first. All frames are shown\n\
         {SHOWN_AFTER} after they were to come, so this nearly is the order of display times. rr-150us: players that go to\n\
         the end of the queue every 150 us, the paper's slice. rmdp: each player is a domain under a daemon,\n\
         all of one rank; those that it refuses play without a reservation, below all that it admitted.\n\
         dwcs: up to {} players are domains under a daemon. It admits no windows of 1/10 that need their\n\
         misses (more than one service a window), so more players are handlers of one process. They have\n\
         windows of 1/10, 1/2, 4/5 in turn, and are upcalled\n\
         by the clock of one screen, without an event server. +ev: the I/O event service in the process\n\
         that sends the frames raises an event for the next frame, ranked by its display time, when the\n\
         frame before it is displayed.",
        slice.trim(),
        setting.admitted
    );
}

/// Numbers of players: those that arguments give, or each from one to [`PLAYERS_MAX`].
fn numbers_of_players() -> Vec<usize> {
    let given: Vec<usize> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    match smoke() {
        true => vec![2],
        false if given.is_empty() => (1..=PLAYERS_MAX).collect(),
        false => given,
    }
}

/// Draws Figures 4 and 5 into `docs/results`.
fn draw(results: &Results) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let (with, without): (Vec<Variant>, Vec<Variant>) =
        results.variants.iter().partition(|variant| variant.is_upcall());
    for (name, heading, variants) in [
        ("figure4", "As Figure 4 of ecalls-2001: frame rates with ordinary scheduling", without),
        (
            "figure5",
            "As Figure 5 of ecalls-2001: frame rates with Upcall, without and with events",
            with,
        ),
    ] {
        match figure::write(&folder, name, heading, &variants, results) {
            Ok(()) => println!("wrote docs/results/video-players-real-{name}.svg"),
            Err(error) => println!("no {name}: {error}"),
        }
    }
}
