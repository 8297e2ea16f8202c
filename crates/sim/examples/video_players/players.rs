//! ecalls-2001 §3.3 in virtual time: players of 30 frames a second on one CPU.
//!
//! The streams come over a network. The frames of a player arrive a period apart at the player's
//! own phase, each up to [`JITTER`] late. A frame must be shown [`SHOWN_AFTER`] after it arrived,
//! otherwise it is skipped. The clock of one screen upcalls all players 30 times a second. Each
//! player decodes its oldest waiting frame.
//!
//! The paper leaves some details open, which are chosen here: the costs, the jitter, the time
//! between arrival and display, and that players skip late frames. The paper's policy is Linux's
//! round robin with slices of 150 us at one priority. Here that is PS with equal weights and that
//! quantum. Frames come in [`PARTS`] of at most a slice, because PS interrupts no PDU.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use upcall_core::activity::{ActivityParams, Terms, Window};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::{self, DWCS, Discipline, RMDP};
use upcall_core::time::{Instant, Span};
use upcall_sim::chance::Chance;
use upcall_sim::{
    Arrivals, EventKind, Execution, PostRank, Posting, SimActivity, SimEvent, SimSpec, Simulation,
};

/// Time between two frames: 30 a second.
pub const PERIOD: Span = Span::from_nanos(33_333_333);
/// Cost to decode a frame, from the first to the second value. The second is declared.
pub const COSTS: (Span, Span) = (Span::from_micros(2_000), Span::from_micros(3_000));
/// The largest delay of a frame.
pub const JITTER: Span = Span::from_millis(5);
/// Time from the arrival of a frame to its display.
pub const SHOWN_AFTER: Span = Span::from_millis(50);
/// Length of a slice under PS, and parts per frame there.
const SLICE: Span = Span::from_micros(150);
const PARTS: u32 = 20;
/// Cost of a switch from one player to another.
const SWITCH_COST: Span = Span::from_micros(10);
/// Counted seconds, after one second that is not counted.
pub const SECONDS: u64 = 20;

static ROUND_ROBIN: LazyLock<Discipline> = LazyLock::new(|| discipline::ps_with_quantum(SLICE));

/// The scheduling of the players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// PS with equal weights.
    RoundRobin,
    /// RMDP: all players are equal, so they run in the order of their creation.
    Ordinary,
    /// RMDP; among equals the player whose frame must be shown first.
    ByDisplayTime,
    /// DWCS with the windows of [`window`].
    Windows,
    /// Like `Windows`, with events by display time, and an event server with the largest share that
    /// admission grants.
    WindowsAndEvents,
}

impl Scheduling {
    /// All kinds of scheduling, with their names.
    pub const ALL: [(Scheduling, &str); 5] = [
        (Scheduling::RoundRobin, "ps"),
        (Scheduling::Ordinary, "rmdp"),
        (Scheduling::ByDisplayTime, "rmdp+ev"),
        (Scheduling::Windows, "dwcs"),
        (Scheduling::WindowsAndEvents, "dwcs+ev"),
    ];

    fn discipline(self) -> &'static Discipline {
        match self {
            Scheduling::RoundRobin => &ROUND_ROBIN,
            Scheduling::Ordinary | Scheduling::ByDisplayTime => &RMDP,
            Scheduling::Windows | Scheduling::WindowsAndEvents => &DWCS,
        }
    }

    /// PDUs per frame.
    fn parts(self) -> u32 {
        if self == Scheduling::RoundRobin { PARTS } else { 1 }
    }

    fn has_events(self) -> bool {
        matches!(self, Scheduling::ByDisplayTime | Scheduling::WindowsAndEvents)
    }
}

/// The frames that a player may lose under DWCS: a third of the players one in ten, a third half of
/// them, a third four of five.
pub fn window(player: usize) -> Window {
    let windows = [(1, 10), (1, 2), (4, 5)];
    let (misses, periods) = windows[player % windows.len()];
    Window { misses, periods }
}

/// Arrival times of a player's frames, in order.
fn frames(player: usize) -> Arc<[Instant]> {
    let mut chance = Chance::new(2001, player as u64);
    let phase = Span::from_nanos(chance.between(0, PERIOD.as_nanos() - 1));
    let frames = (SECONDS + 1) * 1_000_000_000 / PERIOD.as_nanos() + 1;
    let arrivals = (0..frames).map(|frame| {
        let late = Span::from_nanos(chance.between(0, JITTER.as_nanos()));
        Instant::ZERO + phase + PERIOD.saturating_mul(frame) + late
    });
    arrivals.collect()
}

/// A player, with its declared and its true behaviour.
pub fn player(number: usize, scheduling: Scheduling) -> SimActivity {
    let parts = scheduling.parts();
    let (least, most) = (COSTS.0 / parts, COSTS.1 / parts);
    let params = ActivityParams::new(PERIOD, most).batch(parts);
    let mut player = SimActivity::new(format!("player{number}"), params);
    let each_part = |&frame: &Instant| (0..parts).map(move |_| frame);
    let arrivals = Arrivals::Recorded(frames(number).iter().flat_map(each_part).collect());
    player.domain = u32::try_from(number).unwrap_or(u32::MAX);
    player.terms = Terms { window: Some(window(number)), ..Terms::default() };
    if scheduling.has_events() {
        player.terms.wins_ties = true;
        let rank = PostRank::Due(SHOWN_AFTER);
        player.posting = Some(Posting { arrivals: arrivals.clone(), rank });
    }
    player.arrivals = arrivals;
    player.execution = Execution::Uniform { least, most };
    player.stale_after = Some(SHOWN_AFTER.saturating_sub(COSTS.1));
    player
}

/// The frames of one player in [`SECONDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Decoded in time for display.
    pub in_time: u64,
    /// Decoded too late.
    pub late: u64,
    /// Skipped.
    pub skipped: u64,
}

impl Shown {
    /// Frames per second.
    pub fn rate(&self) -> f64 {
        self.in_time as f64 / SECONDS as f64
    }
}

/// The share of the event server besides these players, if the scheduling has one.
fn event_server(players: &[SimActivity], scheduling: Scheduling) -> Option<Share> {
    if scheduling != Scheduling::WindowsAndEvents {
        return None;
    }
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: SWITCH_COST,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let mut reservations = Reservations::new(platform, scheduling.discipline());
    for player in players {
        reservations.reserve_unscreened(&player.name, player.params, &player.terms);
    }
    let share = reservations.event_share(0)?;
    reservations.reserve_events(0, Some(share)).is_ok().then_some(share)
}

/// Runs this many players on one CPU.
pub fn run(players: usize, scheduling: Scheduling) -> Vec<Shown> {
    let activities: Vec<_> = (0..players).map(|number| player(number, scheduling)).collect();
    let mut waiting: Vec<VecDeque<Instant>> =
        (0..players).map(|number| frames(number).iter().copied().collect()).collect();
    let mut shown = vec![Shown::default(); players];
    let server = event_server(&activities, scheduling);
    let spec = SimSpec {
        switch_cost: SWITCH_COST,
        event_servers: server.map(|share| (0, share)).into_iter().collect(),
        ..SimSpec::new(scheduling.discipline(), activities)
    };
    let simulation = Simulation::new(spec).expect("the players make sense");
    let counted = Instant::ZERO + Span::from_secs(1);
    simulation.run(Span::from_secs(SECONDS + 1), &mut |event: &SimEvent| {
        let (player, pdus, skipped) = match event.kind {
            EventKind::JobDone(record) => (record.id.0, record.pdus, false),
            // An extra service. The PDUs of a job are counted at the end of the job.
            EventKind::Yield { activity, pdus } if scheduling.parts() == 1 => {
                (activity, pdus, false)
            }
            EventKind::Stale { activity, pdus } => (activity, pdus, true),
            _ => return,
        };
        for _ in 0..pdus / scheduling.parts() {
            let arrived = waiting[player as usize].pop_front().expect("it came before");
            let shown = &mut shown[player as usize];
            match event.at <= arrived + SHOWN_AFTER {
                _ if event.at < counted => {}
                _ if skipped => shown.skipped += 1,
                true => shown.in_time += 1,
                false => shown.late += 1,
            }
        }
    });
    shown
}
