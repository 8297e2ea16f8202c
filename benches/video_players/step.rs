//! One step: a number of players, under one variant, for some seconds.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use upcall::clock;
use upcall::discipline::{DWCS, RMDP};
use upcall::status::status;
use upcall::stream::{StreamListener, StreamWriter};
use upcall::time::{Instant, Span};
use upcall_benches::{measured_cpu, steal_ms};
use upcall_daemon::server::{self, Daemon, DaemonEvent};

use crate::clip::Clip;
use crate::frame_events::FrameEvents;
use crate::groups::Groups;
use crate::player::Role;
use crate::screen::FrameCounts;
use crate::setup::{CLASSES, PERIOD, ROLE, WARM_FRAMES, daemon_limit, number};
use crate::source::{self, Receiver, Sent};
use crate::variant::Variant;

/// Time from the last player's report that it is ready to the first frame.
const LEAD: Span = Span::from_millis(150);
/// The source waits this long for a player's stream.
const CONNECT_TIMEOUT: Span = Span::from_secs(30);
/// Priority of players in `SCHED_RR`.
pub const PRIORITY: u8 = 30;

/// The settings that all steps share.
pub struct Setting {
    pub clip: Arc<Clip>,
    /// The declared cost of a frame.
    pub cost: Span,
    /// How many players admission has room for.
    pub admitted: usize,
    /// Frames that count, after the first [`WARM_FRAMES`].
    pub frames: u64,
}

/// The results of a step.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub all_counts: Vec<FrameCounts>,
    pub sent: Sent,
    /// Time for which the host took the CPU while frames came.
    pub stolen_ms: u64,
    /// Frames of each player that count.
    pub frames: u64,
    /// The numbers of the players that a daemon admitted. `None`: no daemon.
    pub admitted: Option<Vec<usize>>,
}

impl Outcome {
    /// The mean and the worst of the players that the daemon refused. `None` if there are none.
    pub fn mean_worst_of_refused(&self) -> Option<[f64; 2]> {
        let admitted = self.admitted.as_ref()?;
        let rates = self.rates();
        let of = rates.iter().enumerate().filter(|(at, _)| !admitted.contains(at));
        let rates: Vec<f64> = of.map(|(_, &rate)| rate).collect();
        let worst = rates.iter().copied().reduce(f64::min)?;
        Some([rates.iter().sum::<f64>() / rates.len() as f64, worst])
    }

    /// The players that the daemon admitted: the worst rate of those of which each frame took at
    /// most `declared`, how many these are, and how many took longer. `None` without a daemon.
    pub fn worst_of_admitted(&self, declared: Span) -> Option<(Option<f64>, usize, usize)> {
        let (admitted, rates) = (self.admitted.as_ref()?, self.rates());
        let (kept, longer): (Vec<usize>, Vec<usize>) =
            admitted.iter().partition(|&&at| self.all_counts[at].cpu_ns_max <= declared.as_nanos());
        let worst = kept.iter().map(|&at| rates[at]).reduce(f64::min);
        Some((worst, kept.len(), longer.len()))
    }

    /// Frames per second of each player.
    pub fn rates(&self) -> Vec<f64> {
        let seconds = self.frames as f64 * PERIOD.as_nanos() as f64 / 1e9;
        self.all_counts.iter().map(|counts| counts.in_time as f64 / seconds).collect()
    }

    /// The mean of the players, the worst and the best.
    pub fn mean_worst_best(&self) -> [f64; 3] {
        let rates = self.rates();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let worst = rates.iter().copied().fold(f64::INFINITY, f64::min);
        [mean, worst, rates.iter().copied().fold(0.0, f64::max)]
    }

    /// Frames per second of the worst player of a class. `None`: the class is empty.
    pub fn worst_of_class(&self, class: usize) -> Option<f64> {
        self.rates().into_iter().skip(class).step_by(CLASSES.len()).reduce(f64::min)
    }

    /// Frames that were decoded too late, and frames that were not decoded.
    pub fn late_and_dropped(&self) -> [u64; 2] {
        let late = self.all_counts.iter().map(|counts| counts.late).sum();
        let skipped: u64 = self.all_counts.iter().map(|counts| counts.skipped).sum();
        [late, skipped + self.sent.dropped.iter().sum::<u64>()]
    }

    /// CPU time of decoding a frame.
    pub fn cost_mean(&self) -> Span {
        let cpu_ns: u64 = self.all_counts.iter().map(|counts| counts.cpu_ns).sum();
        let decoded: u64 = self.all_counts.iter().map(|counts| counts.in_time + counts.late).sum();
        Span::from_nanos(cpu_ns / decoded.max(1))
    }

    /// The part of the CPU that the host took.
    pub fn stolen(&self) -> f64 {
        self.stolen_ms as f64 * 1e6 / (self.frames * PERIOD.as_nanos()) as f64
    }

    /// Decoding all frames of `players` players takes this part of the CPU that the host left.
    pub fn load(&self, players: f64) -> f64 {
        let wanted = players * self.cost_mean().as_nanos() as f64 / PERIOD.as_nanos() as f64;
        wanted / (1.0 - self.stolen()).max(0.01)
    }

    /// Checks that every frame was shown, late, skipped, or found no room.
    fn check(&self) {
        for (counts, dropped) in self.all_counts.iter().zip(&self.sent.dropped) {
            let all = counts.in_time + counts.late + counts.skipped + dropped;
            assert_eq!(all, self.frames, "frames of {counts:?}, {dropped} dropped");
        }
    }
}

/// Plays one step.
pub fn run(setting: &Setting, variant: Variant, players: usize) -> Outcome {
    let cpu = measured_cpu();
    let place = |what| std::env::temp_dir().join(format!("upcall-{what}-{}", std::process::id()));
    let (socket, listener_path) = (place("video"), place("video-listener"));
    let with_daemon = variant.has_daemon(players, setting.admitted);
    let daemon = with_daemon.then(|| Serving::start(variant, setting.cost, socket.clone(), cpu));
    let groups = (variant == Variant::Groups).then(|| Groups::make(players).expect("groups"));
    let frames_service = format!("upcall-video-{}", std::process::id());
    let events = variant.has_events().then(|| FrameEvents::open(&frames_service, players, cpu));
    let listener = StreamListener::bind(&listener_path).expect("a place for a listener");
    let (width, height) = setting.clip.size;
    let role = Role {
        variant,
        first: 0,
        players: 1,
        with_daemon,
        cpu,
        bytes_max: setting.clip.bytes_max(),
        pixels: (width * height) as usize,
        cost: setting.cost,
        frames: setting.frames,
        parent: std::process::id(),
        service: frames_service,
        listener: listener_path.clone(),
        socket: socket.clone(),
    };
    let roles: Vec<Role> = if variant.is_upcall() && !with_daemon {
        vec![Role { players, ..role }]
    } else {
        (0..players).map(|first| Role { first, ..role.clone() }).collect()
    };
    let (mut processes, mut writers, mut connections) = (Vec::new(), Vec::new(), Vec::new());
    for role in roles {
        let mut process = Process::start(&role);
        if let Some(groups) = &groups {
            groups.add(role.first, process.child.id()).expect("the player's group takes it");
        }
        for _ in 0..role.players {
            let received =
                listener.accept(Some(clock::now() + CONNECT_TIMEOUT)).expect("a player's stream");
            let writer: StreamWriter = received.stream.writer().expect("this end is free");
            writers.push(writer);
            connections.push(received.connection);
        }
        assert_eq!(process.read_line(), "ready");
        processes.push((process, role.players));
    }
    let _ = std::fs::remove_file(listener_path);
    let admitted = with_daemon.then(|| admitted_players(&socket));
    let counted = WARM_FRAMES..WARM_FRAMES + setting.frames;
    let stolen_before_ms = steal_ms(cpu).unwrap_or_default();
    let begin = clock::now() + LEAD;
    let players = receivers(writers, events.as_ref(), begin);
    let source = source::start(setting.clip.clone(), players, begin, counted, cpu);
    let sent = source.join().expect("the source does not panic");
    let stolen_ms = steal_ms(cpu).unwrap_or_default() - stolen_before_ms;
    let mut all_counts = Vec::new();
    for (mut process, players) in processes {
        all_counts.extend((0..players).map(|_| FrameCounts::of_line(&process.read_line())));
        let _ = process.child.wait();
    }
    if let Some(daemon) = daemon {
        daemon.stop();
    }
    let outcome = Outcome { all_counts, sent, stolen_ms, frames: setting.frames, admitted };
    outcome.check();
    outcome
}

/// The numbers of the players that the daemon admitted. The others play without a promise.
fn admitted_players(socket: &Path) -> Vec<usize> {
    let domains = status(socket).expect("the daemon answers").domains;
    let activities = domains.iter().flat_map(|domain| &domain.activities);
    let admitted = activities.filter(|activity| !activity.unscreened);
    admitted.map(|activity| number(activity.name.trim_start_matches("player"))).collect()
}

/// Streams and pipes of the players.
fn receivers(
    writers: Vec<StreamWriter>,
    events: Option<&FrameEvents>,
    begin: Instant,
) -> Vec<Receiver> {
    let displays: Vec<Instant> =
        (0..writers.len()).map(|player| source::first_display(player, begin)).collect();
    let mut pipes = events.map(|events| events.watch(&displays)).unwrap_or_default().into_iter();
    writers.into_iter().map(|writer| Receiver { writer, pipe: pipes.next() }).collect()
}

/// A daemon in this process.
struct Serving {
    stopper: server::Stopper,
    thread: std::thread::JoinHandle<()>,
}

impl Serving {
    fn start(variant: Variant, cost: Span, socket: PathBuf, cpu: u32) -> Self {
        let discipline = if variant.has_windows() { &DWCS } else { &RMDP };
        let config = server::Config::new(socket, vec![cpu]);
        let config = server::Config { cpu_limit: daemon_limit(cost), discipline, ..config };
        let daemon = Daemon::start(config).expect("a daemon");
        let stopper = daemon.stopper();
        let thread = std::thread::spawn(move || {
            daemon.run(|event, _| {
                if let DaemonEvent::Offence { .. } | DaemonEvent::Trouble(_) = event {
                    println!("{event:?}");
                }
            });
        });
        Serving { stopper, thread }
    }

    fn stop(self) {
        self.stopper.stop();
        self.thread.join().expect("the daemon does not panic");
    }
}

/// A process with players, as its parent sees it.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(role: &Role) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = if role.variant.is_round_robin() {
            let mut command = Command::new("chrt");
            command.args(["--rr", &PRIORITY.to_string()]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.env(ROLE, role.to_line()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program, and chrt, can be started");
        let output = child.stdout.take().expect("the pipe exists");
        Process { child, lines: BufReader::new(output).lines() }
    }

    fn read_line(&mut self) -> String {
        self.lines.next().expect("the child prints a line").expect("text")
    }
}
