//! The processes that play.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use upcall::activity::{ActivityParams, Terms};
use upcall::channel::{Client, Raiser, Route};
use upcall::discipline::{DWCS, RMDP};
use upcall::stream::{End, Stream, StreamConnection, StreamForm, StreamReader};
use upcall::time::Span;
use upcall::{Attach, Batch, Config, HandlerId, Runtime};
use upcall_sys::{process, schedule};

use crate::decoder::Decoder;
use crate::frame_events::Statements;
use crate::screen::{FrameCounts, HEADER_BYTES, Screen};
use crate::setup::{CPU_LIMIT, PERIOD, SLICE, WARM_FRAMES, number, screen_clock, window};
use crate::variant::Variant;

/// Frames that a stream holds. At most two of the waiting frames can still be shown.
const STREAM_FRAMES: u32 = 16;

/// The role of a process, passed in its environment.
#[derive(Clone, Debug)]
pub struct Role {
    pub variant: Variant,
    /// The number of its first player.
    pub first: usize,
    pub players: usize,
    /// Whether it is a domain under the daemon.
    pub with_daemon: bool,
    pub cpu: u32,
    /// The most bytes of a frame, its pixels, and its declared cost.
    pub bytes_max: usize,
    pub pixels: usize,
    pub cost: Span,
    /// The number of frames that count.
    pub frames: u64,
    /// The process that started this one.
    pub parent: u32,
    /// The path at which the source receives its end of a stream.
    pub listener: PathBuf,
    /// The path of the daemon's socket.
    pub socket: PathBuf,
    /// The service that raises an event for each frame.
    pub service: String,
}

impl Role {
    pub fn to_line(&self) -> String {
        let Role { variant, first, players, cpu, bytes_max, pixels, cost, frames, parent, .. } =
            self;
        let (service, with_daemon) = (&self.service, u8::from(self.with_daemon));
        let (listener, socket) = (self.listener.display(), self.socket.display());
        let (name, cost_ns) = (variant.name(), cost.as_nanos());
        format!(
            "{name}|{first}|{players}|{with_daemon}|{cpu}|{bytes_max}|{pixels}|{cost_ns}|{frames}|{parent}|{listener}|{socket}|{service}"
        )
    }

    pub fn of_line(line: &str) -> Self {
        let fields: Vec<&str> = line.split('|').collect();
        let &[
            name,
            first,
            players,
            with_daemon,
            cpu,
            bytes_max,
            pixels,
            cost_ns,
            frames,
            parent,
            listener,
            socket,
            service,
        ] = fields.as_slice()
        else {
            panic!("unknown role `{line}`")
        };
        Role {
            variant: Variant::named(name),
            first: number(first),
            players: number(players),
            with_daemon: number::<u8>(with_daemon) == 1,
            cpu: number(cpu),
            bytes_max: number(bytes_max),
            pixels: number(pixels),
            cost: Span::from_nanos(number(cost_ns)),
            frames: number(frames),
            parent: number(parent),
            listener: listener.into(),
            socket: socket.into(),
            service: service.to_owned(),
        }
    }

    /// Plays until the source ends, and prints the counts.
    pub fn play(&self) {
        process::die_with_parent(self.parent).expect("its parent lives");
        if self.variant.is_upcall() { self.play_upcalled() } else { self.play_in_turn() }
    }

    fn screen(&self) -> Screen {
        let slice = (self.variant == Variant::Sliced).then_some(SLICE);
        let decoder = Decoder::new(self.bytes_max, self.pixels, slice);
        Screen::new(decoder, self.cost, WARM_FRAMES..WARM_FRAMES + self.frames)
    }

    /// A stream whose other end the source has. It lives as long as the connection.
    fn stream(&self) -> (StreamReader, StreamConnection) {
        let slot_bytes = (HEADER_BYTES + self.bytes_max).next_multiple_of(8);
        let slot_bytes = u32::try_from(slot_bytes).expect("a frame is not that long");
        let form = StreamForm::Slots { slots: STREAM_FRAMES, slot_bytes };
        let stream = Stream::create(form, 0).expect("memory for a stream");
        let reader = stream.reader().expect("this end is free");
        let connection = stream.send(&self.listener, End::Writer).expect("the source takes it");
        (reader, connection)
    }

    /// Plays as a program that blocks for its next frame.
    fn play_in_turn(&self) {
        schedule::pin_thread(&[self.cpu]).expect("the CPU is allowed");
        let mut screen = self.screen();
        let (mut reader, _connection) = self.stream();
        println!("ready");
        while reader.closed().is_none() {
            reader.wait(1, None);
            if screen.has_frame(&mut reader) {
                screen.show(&mut reader);
            }
        }
        println!("{}", screen.counts().to_line());
    }

    /// Plays as handlers of Upcall: one handler in a domain, or all players of this process.
    fn play_upcalled(&self) {
        let mut runtime = Runtime::start(self.config()).expect("started, or attached");
        let all_counts: Arc<Mutex<Vec<FrameCounts>>> = Arc::default();
        let (mut connections, mut clients) = (Vec::new(), Vec::new());
        let mut ids: Vec<HandlerId> = (0..self.players)
            .map(|place| {
                let (reader, connection) = self.stream();
                connections.push(connection);
                lock(&all_counts).push(FrameCounts::default());
                let (counts, raiser) = (all_counts.clone(), Arc::<OnceLock<Raiser>>::default());
                let id = self.handler(&mut runtime, place, reader, counts, raiser.clone());
                if self.variant.has_events() {
                    let client = self.client(&mut runtime, id);
                    let _ = raiser.set(client.raiser());
                    clients.push(client);
                }
                id
            })
            .collect();
        runtime.run_at(&ids, screen_clock()).expect("the executor runs");
        // From here on this thread has no work on the measured CPU.
        let mut others = upcall::allowed_cpus().unwrap_or_default();
        others.retain(|&other| other != self.cpu);
        if !others.is_empty() {
            schedule::pin_thread(&others).expect("the CPUs are allowed");
        }
        println!("ready");
        while !ids.is_empty() {
            let ended = runtime.wait(&ids, None);
            ids.retain(|id| !ended.contains(id));
        }
        lock(&all_counts).iter().for_each(|counts| println!("{}", counts.to_line()));
    }

    fn config(&self) -> Config {
        // Handlers that admission refuses play without a promise.
        let discipline = if self.variant.has_windows() { &DWCS } else { &RMDP };
        let config = Config { unscreened: true, discipline, ..Config::default() };
        if self.with_daemon {
            let (socket, name) = (self.socket.clone(), format!("player{}", self.first));
            Config { daemon: Some(Attach { socket, name }), ..config }
        } else {
            let cpus = vec![self.cpu];
            Config { cpus, cpu_limit: CPU_LIMIT, ..config }
        }
    }

    fn handler(
        &self,
        runtime: &mut Runtime,
        place: usize,
        mut reader: StreamReader,
        all_counts: Arc<Mutex<Vec<FrameCounts>>>,
        raiser: Arc<OnceLock<Raiser>>,
    ) -> HandlerId {
        let player = self.first + place;
        let need = need(player, self.cost, self.variant);
        let name = format!("player{player}");
        let mut screen = self.screen();
        if self.variant.has_events() {
            screen.state_by(Statements::of(player, raiser));
        }
        let mut play = move |reader: &mut StreamReader, batch: &mut Batch<'_>| {
            loop {
                let has_frame = screen.has_frame(reader);
                screen.state_next(batch);
                if !has_frame || !batch.proceed() {
                    break;
                }
                screen.show(reader);
            }
            lock(&all_counts)[place] = screen.counts();
        };
        let handler = if self.variant.has_windows() {
            // Upcalled by the clock of the screen, because windows count periods.
            runtime.handler(&name, need, move |batch| {
                play(&mut reader, batch);
                reader.release();
                if reader.closed().is_some() {
                    batch.finish();
                }
            })
        } else {
            // Upcalled when a frame is there.
            runtime.stream_reader_handler(&name, need, reader, 1, play)
        };
        handler.expect("unscreened")
    }

    /// Connects the player to the service that raises an event for each frame, ranked by display
    /// time.
    fn client(&self, runtime: &mut Runtime, id: HandlerId) -> Client {
        let poster = runtime.poster(id).expect("it is a handler");
        let route = Route::to_handler(poster);
        runtime.client(self.cpu, &self.service, route).expect("the service is there")
    }
}

/// The declaration of a player.
fn need(player: usize, cost: Span, variant: Variant) -> (ActivityParams, Terms) {
    let window = Some(window(player));
    let terms = Terms { window, wins_ties: variant.has_events(), ..Terms::default() };
    (ActivityParams::new(PERIOD, cost), terms)
}

fn lock(all_counts: &Mutex<Vec<FrameCounts>>) -> std::sync::MutexGuard<'_, Vec<FrameCounts>> {
    all_counts.lock().unwrap_or_else(PoisonError::into_inner)
}
