//! Repeats Figures 4 and 5 of ecalls-2001 §3.3 in virtual time: frame rates of a growing number of
//! video players on one CPU, with ordinary and with event-aware scheduling.
//!
//! ```sh
//! cargo run --release -p upcall-sim --example video_players   # 1 min
//! ```

use players::{COSTS, JITTER, PERIOD, SECONDS, SHOWN_AFTER, Scheduling, Shown, run, window};

mod players;

/// The largest number of players. It is beyond saturation, which lies between 11 players (all at
/// the declared cost) and 13.
const PLAYERS_MAX: usize = 22;

fn main() {
    println!("ecalls-2001 3.3: players of 30 frames/s on one CPU, {SECONDS} s each");
    println!("a frame every {PERIOD}, {JITTER} late at most, {} to {} to decode", COSTS.0, COSTS.1);
    println!("shown {SHOWN_AFTER} after it came, or not at all; hand-off 10 us");
    println!("\nframes/s shown in time: mean of the players, and the worst and the best of them");
    print!("{:>7}", "players");
    Scheduling::ALL.iter().for_each(|(_, name)| print!(" {name:>18}"));
    println!();
    for players in 1..=PLAYERS_MAX {
        print!("{players:>7}");
        for (scheduling, _) in Scheduling::ALL {
            let rates: Vec<_> = run(players, scheduling).iter().map(Shown::rate).collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let worst = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let best = rates.iter().copied().fold(0.0, f64::max);
            print!(" {mean:>6.1} {worst:>5.1} {best:>5.1}");
        }
        println!();
    }
    classes();
}

/// Prints how the loss is shared if it is configured.
fn classes() {
    println!("\nframes/s of the worst player of each window; in brackets what the window asks for");
    print!("{:>7} {:>9}", "players", "");
    for player in 0..3 {
        let window = window(player);
        let least = 30.0 * (1.0 - f64::from(window.misses) / f64::from(window.periods));
        print!(" {:>13}", format!("{}/{} ({least:.0})", window.misses, window.periods));
    }
    println!(" {:>9} {:>9}", "late", "skipped");
    for players in [11, 13, 15, 18, 20, 22] {
        for (scheduling, name) in Scheduling::ALL {
            let shown = run(players, scheduling);
            print!("{players:>7} {name:>9}");
            for class in 0..3 {
                let of_class = shown.iter().skip(class).step_by(3).map(Shown::rate);
                print!(" {:>13.1}", of_class.fold(f64::INFINITY, f64::min));
            }
            let late: u64 = shown.iter().map(|shown| shown.late).sum();
            let skipped: u64 = shown.iter().map(|shown| shown.skipped).sum();
            println!(" {late:>9} {skipped:>9}");
        }
    }
}
