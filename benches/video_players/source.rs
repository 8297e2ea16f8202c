//! The source, which sends the frames from another CPU.

use std::io::{PipeWriter, Write};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use upcall::io_events::NextFrame;
use upcall::stream::StreamWriter;
use upcall::time::{Instant, Span};
use upcall::{allowed_cpus, clock};
use upcall_sim::chance::Chance;
use upcall_sys::schedule;

use crate::clip::Clip;
use crate::screen::HEADER_BYTES;
use crate::setup::{FRAME_RATE, JITTER, PERIOD, SHOWN_AFTER, SOURCE_PRIORITY};

/// The stream for the frames of a player, and the pipe that tells the I/O event service of them.
pub struct Receiver {
    pub writer: StreamWriter,
    /// `None`: only the stream tells the player about frames.
    pub pipe: Option<PipeWriter>,
}

/// The source's counts after it has sent all frames.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Counted frames of each player that found no room in its stream.
    pub dropped: Vec<u64>,
    /// Counted frames that were sent later than planned by more than [`LATE`]: the host or another
    /// thread had the CPU of the source.
    pub late: u64,
    /// The most by which a frame was sent later than planned.
    pub late_max: Span,
}

/// A frame that is sent so much later than planned is told.
const LATE: Span = Span::from_millis(2);

/// Sends the frames up to the end of `counted` to each player, one each period, from a phase of its
/// own. Each is up to [`JITTER`] late, as over a network. Then ends the streams. Arrivals are the
/// same in each run.
pub fn start(
    clip: Arc<Clip>,
    mut players: Vec<Receiver>,
    begin: Instant,
    counted: Range<u64>,
    measured_cpu: u32,
) -> JoinHandle<Sent> {
    std::thread::spawn(move || {
        let mut others = allowed_cpus().unwrap_or_default();
        others.retain(|&other| other != measured_cpu);
        if !others.is_empty() {
            schedule::pin_thread(&others).expect("the CPUs are allowed");
        }
        // Without the right to a real-time class it sends as an ordinary thread. The bench prints
        // how late it was.
        let _ = schedule::set_fifo(SOURCE_PRIORITY);
        let mut sent = Sent { dropped: vec![0; players.len()], late: 0, late_max: Span::ZERO };
        for (at, player, number) in arrivals(players.len(), begin, counted.end) {
            upcall_sys::clock::sleep_until_ns(at.as_nanos());
            let now = clock::now();
            let late = now.since(at);
            sent.late_max = sent.late_max.max(late);
            sent.late += u64::from(late > LATE && counted.contains(&number));
            // Each player starts at another place in the clip.
            let place = (usize::try_from(number).unwrap_or(0) + player * 7) % clip.frames.len();
            let start = first_display(player, begin);
            let due = NextFrame { rate: FRAME_RATE, counter: number, start }.display_time();
            let is_sent = send(&mut players[player], number, due, &clip.frames[place]);
            sent.dropped[player] += u64::from(!is_sent && counted.contains(&number));
        }
        // Gives the players time to show the last frame.
        upcall_sys::clock::sleep_until_ns((clock::now() + SHOWN_AFTER).as_nanos());
        sent
    })
}

/// When the first frame of a player comes if it is not late.
fn phase(chance: &mut Chance) -> Span {
    Span::from_nanos(chance.between(0, PERIOD.as_nanos() - 1))
}

fn chance_of(player: usize) -> Chance {
    Chance::new(2001, player as u64)
}

/// When the first frame of a player is displayed.
pub fn first_display(player: usize, begin: Instant) -> Instant {
    begin + phase(&mut chance_of(player)) + SHOWN_AFTER
}

/// The time, the player and the number of each arrival, in order of time.
fn arrivals(players: usize, begin: Instant, frames: u64) -> Vec<(Instant, usize, u64)> {
    let mut all = Vec::new();
    for player in 0..players {
        let mut chance = chance_of(player);
        let phase = phase(&mut chance);
        all.extend((0..frames).map(|number| {
            let late = Span::from_nanos(chance.between(0, JITTER.as_nanos()));
            (begin + phase + FRAME_RATE.span(number) + late, player, number)
        }));
    }
    all.sort_unstable();
    all
}

/// Sends a frame. Returns whether there was room.
fn send(player: &mut Receiver, number: u64, due: Instant, frame: &[u8]) -> bool {
    let len = HEADER_BYTES + frame.len();
    let Ok(Some(room)) = player.writer.reserve(len) else { return false };
    let header = [number, due.as_nanos()].map(u64::to_ne_bytes);
    room.payload().fill(0, header.as_flattened());
    room.payload().fill(HEADER_BYTES, frame);
    room.stage(len);
    // The player may take the frame at once, and then the byte has to be there.
    if let Some(pipe) = &mut player.pipe {
        pipe.write_all(&[0]).expect("a pipe has more room than a stream");
    }
    player.writer.commit().expect("the player is there");
    true
}
