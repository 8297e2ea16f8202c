//! The ratios that must hold for streams, by the medians of this run.

use std::collections::BTreeMap;

use crate::case::{BATCHES, PIPES, SIZES};

/// Picoseconds of each row, by cores, bytes and batch.
pub type Medians = BTreeMap<(&'static str, usize, usize), Vec<(&'static str, u64)>>;

/// Prints the ratios, and whether they hold.
pub fn print(medians: &Medians) {
    let of = |cores, size, batch, name: &str| {
        let rows = medians.get(&(cores, size, batch))?;
        rows.iter().find(|row| row.0 == name).map(|row| row.1.max(1) as f64)
    };
    let ratio = |cores, size, batch, one: &str, other: &str| {
        Some(of(cores, size, batch, one)? / of(cores, size, batch, other)?)
    };
    println!(
        "same core: how many times as fast as the fastest pipe (at least 3; below 1 is slower)"
    );
    for (size, batch) in SIZES.into_iter().flat_map(|size| BATCHES.map(|batch| (size, batch))) {
        let Some((pipe, _)) = medians.get(&("same", size, batch)).and_then(|rows| best_pipe(rows))
        else {
            continue;
        };
        // Copying in and out with the C library and nothing else. No form that copies can be
        // faster.
        let bound = ratio("same", size, batch, pipe, "memcpy, twice").unwrap_or(f64::INFINITY);
        println!(
            "{size:>8} bytes, batch {batch:>3}, against `{pipe}`: the copying alone would be {bound:.1} times as \
             fast"
        );
        for form in ["stream, bytes", "stream, messages", "stream, slots", "stream, buffers"] {
            if let Some(times) = ratio("same", size, batch, pipe, form) {
                println!("                {form:<17} {times:>5.1}{}", holds(times >= 3.0));
            }
        }
    }
    println!("\ncross core, polling: time over that of iceoryx2 (at most 1.2)");
    for size in SIZES {
        for batch in BATCHES {
            let pairs = [
                ("stream, messages", "iceoryx2, copied"),
                ("stream, slots", "iceoryx2, in place"),
                ("stream, buffers", "iceoryx2, in place"),
            ];
            let found =
                pairs.map(|(form, other)| Some((form, ratio("cross", size, batch, form, other)?)));
            if found.iter().all(Option::is_none) {
                continue;
            }
            print!("{size:>8} bytes, batch {batch:>3}:");
            for (form, times) in found.into_iter().flatten() {
                print!("  {form} {times:.2}{}", holds(times <= 1.2));
            }
            println!();
        }
    }
    if of("cross", SIZES[0], BATCHES[0], "iceoryx2, copied").is_none() {
        println!("  SKIPPED: iceoryx2 is not in this build: --features iceoryx2");
    }
}

/// The fastest pipe among the rows of a case, and its picoseconds.
pub fn best_pipe(rows: &[(&'static str, u64)]) -> Option<(&'static str, u64)> {
    let pipes = rows.iter().filter(|(name, _)| PIPES.contains(name));
    pipes.min_by_key(|(_, median_ps)| *median_ps).copied()
}

/// The text after a ratio that does not hold.
pub fn holds(does: bool) -> &'static str {
    if does { "" } else { "  DOES NOT HOLD" }
}
