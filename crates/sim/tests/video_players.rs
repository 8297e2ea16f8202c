//! ecalls-2001 §3.3 (Figures 4 and 5): below saturation every player holds its rate. Beyond it, the
//! loss is shared as configured.

use players::{SECONDS, Scheduling, Shown, run, window};

#[allow(dead_code, reason = "the example prints more than is asserted here")]
#[path = "../examples/video_players/players.rs"]
mod players;

/// The number of players that fit into a period at their declared cost.
const SATURATION: usize = 11;

fn frames(players: usize, scheduling: Scheduling) -> Vec<u64> {
    run(players, scheduling).iter().map(|shown: &Shown| shown.in_time).collect()
}

#[test]
fn below_saturation_every_player_holds_its_rate_by_events() {
    for scheduling in [Scheduling::ByDisplayTime, Scheduling::WindowsAndEvents] {
        for players in [1, 5, 9, SATURATION] {
            let least = frames(players, scheduling).into_iter().min();
            // A player holds its rate if it shows all but three frames in twenty seconds.
            let held = least >= Some(30 * SECONDS - 3);
            assert!(held, "{players} players under {scheduling:?}: {least:?}");
        }
    }
}

#[test]
fn a_job_before_its_frame_loses_it_without_the_event() {
    let players = SATURATION - 1;
    let without = frames(players, Scheduling::Windows).into_iter().min();
    let with = frames(players, Scheduling::WindowsAndEvents).into_iter().min();
    assert!(without < Some(29 * SECONDS) && with >= Some(30 * SECONDS - 3), "{without:?} {with:?}");
}

#[test]
fn beyond_saturation_windows_share_the_loss_as_configured() {
    for scheduling in [Scheduling::Windows, Scheduling::WindowsAndEvents] {
        for players in [14, 18, 20] {
            for (number, in_time) in frames(players, scheduling).into_iter().enumerate() {
                let window = window(number);
                let asked = 30 * SECONDS * u64::from(window.periods - window.misses)
                    / u64::from(window.periods);
                // Windows are counted from the start, and twenty seconds end within one.
                let kept = in_time + u64::from(window.periods) >= asked;
                assert!(kept, "{players} players, {number}: {in_time} of {asked}");
            }
        }
    }
}

#[test]
fn beyond_saturation_display_times_share_the_loss_evenly_and_creation_order_does_not() {
    let players = 18;
    let ordinary = frames(players, Scheduling::Ordinary);
    assert!(ordinary.contains(&0) && ordinary.contains(&(30 * SECONDS)), "{ordinary:?}");
    let by_display = frames(players, Scheduling::ByDisplayTime);
    let (least, most) = (by_display.iter().min(), by_display.iter().max());
    assert!(
        least.zip(most).is_some_and(|(least, most)| least + 2 * SECONDS > *most),
        "{by_display:?}"
    );
    // Both kinds of scheduling show about the same number of frames in total.
    let (one, other) = (ordinary.iter().sum::<u64>(), by_display.iter().sum::<u64>());
    assert!(one.abs_diff(other) * 50 < one, "{one} {other}");
}

#[test]
fn beyond_saturation_time_slices_show_almost_no_frame() {
    let sliced: u64 = frames(18, Scheduling::RoundRobin).into_iter().sum();
    let by_display: u64 = frames(18, Scheduling::ByDisplayTime).into_iter().sum();
    assert!(sliced * 2 < by_display, "{sliced} of {by_display}");
}
