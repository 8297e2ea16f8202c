//! The paper's I/O module: the I/O event service (docs/decisions/0021) tells each player of its
//! next frame, ranked by its display time, and not before the slot of that frame begins.
//!
//! ```text
//!   source                          player
//!     a byte in the pipe ---+         shows a frame, states the next one (1)
//!     the frame in the stream         |
//!                           v         v
//!                    upcall-ready (2)  handler of the channel: `arm_as`
//!                           |  the event: display time
//!                           +-------> inbox of the player: of equals it goes first
//! ```
//!
//! 1. Frame rate, counter, time stamp of the first frame, and how many frames it has taken.
//! 2. The pipe is readable while the stream has a frame, because streams have no descriptor.

use std::io::{PipeReader, PipeWriter, Read};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use upcall::allowed_cpus;
use upcall::channel::{Form, Forms, Raise, Raiser, Route, Service, ServiceTerms};
use upcall::io_events::{Interest, IoEventService, IoTarget, IoWatch, NextFrame, Urgency};
use upcall::time::Instant;
use upcall_sys::schedule;

use crate::setup::{FRAME_RATE, SOURCE_PRIORITY};

/// The service in the process of the source.
pub struct FrameEvents {
    service: Service,
    io: IoEventService,
    watches: Arc<Mutex<Vec<FrameWatch>>>,
}

/// The pipe of one player.
struct FrameWatch {
    watch: IoWatch,
    pipe: PipeReader,
    /// Bytes that were read from it: frames that the player took.
    taken: u64,
}

impl FrameEvents {
    /// Opens the service `name`. Its threads have the CPUs and the class of the source.
    pub fn open(name: &str, players: usize, measured_cpu: u32) -> Self {
        let name = name.to_owned();
        let opened = std::thread::spawn(move || {
            let mut others = allowed_cpus().unwrap_or_default();
            others.retain(|&other| other != measured_cpu);
            if !others.is_empty() {
                schedule::pin_thread(&others).expect("the CPUs are allowed");
            }
            // As for the source.
            let _ = schedule::set_fifo(SOURCE_PRIORITY);
            let watches = Arc::<Mutex<Vec<FrameWatch>>>::default();
            let stated = watches.clone();
            let route = Route::to(move |events| {
                while let Some(event) = events.take() {
                    arm(&mut lock(&stated), event.words);
                }
            });
            let forms =
                Forms { to_service: Form::Typed { types: 1 }, to_client: Form::Ring { slots: 64 } };
            let terms = ServiceTerms::new(forms, route).clients_max(players);
            let service = Service::in_thread(&name, terms).expect("a service");
            let io = IoEventService::start().expect("a thread");
            FrameEvents { service, io, watches }
        });
        opened.join().expect("no panic")
    }

    /// Watches the frames of all players, which registered in the order of their numbers.
    /// `displays` has the display times of their first frames. Returns the pipes for the source.
    pub fn watch(&self, displays: &[Instant]) -> Vec<PipeWriter> {
        let mut clients = self.service.clients();
        clients.sort_unstable();
        assert_eq!(clients.len(), displays.len(), "players that receive events");
        let watched = clients.into_iter().zip(displays).enumerate();
        let all = watched.map(|(player, (client, &start))| {
            let (pipe, writer) = std::io::pipe().expect("a pipe");
            let raiser = self.service.raiser(client).expect("the player is there");
            let target = IoTarget::Raise { raiser, row: 0 };
            let first = Urgency::Frame(NextFrame { rate: FRAME_RATE, counter: 0, start });
            let watch = self.io.watch(&pipe, Interest::Readable, player as u64, first, target);
            let watch = watch.expect("a pipe can be watched");
            lock(&self.watches).push(FrameWatch { watch, pipe, taken: 0 });
            writer
        });
        all.collect()
    }
}

/// Asks for the event of the frame that a player states. There is a byte for each frame that it
/// took, so this does not block.
fn arm(watches: &mut [FrameWatch], [rate, counter, start_ns, player, taken]: [u64; 5]) {
    let place = usize::try_from(player).expect("a player's number");
    let (Some(frame), Some(of)) =
        (NextFrame::from_words([rate, counter, start_ns]), watches.get_mut(place))
    else {
        panic!("player {player} stated a rate of {rate}")
    };
    let more = usize::try_from(taken - of.taken).expect("a stream holds few frames");
    of.pipe.read_exact(&mut vec![0; more]).expect("the source has the other end");
    of.taken = taken;
    of.watch.arm_as(Urgency::Frame(frame)).expect("the kernel has memory");
}

/// What a player states about its frames.
pub struct Statements {
    /// Set before the first frame comes.
    raiser: Arc<OnceLock<Raiser>>,
    player: u64,
    stated: u64,
}

impl Statements {
    pub fn of(player: usize, raiser: Arc<OnceLock<Raiser>>) -> Self {
        Statements { raiser, player: player as u64, stated: 0 }
    }

    /// Whether the player, which has taken so many frames, took some since the last statement.
    pub fn is_due(&self, taken: u64) -> bool {
        taken != self.stated
    }

    /// States the frame after `last`, which is displayed at `due`.
    pub fn state(&mut self, (last, due): (u64, Instant), taken: u64) {
        self.stated = taken;
        let start = due - FRAME_RATE.span(last);
        let next = NextFrame { rate: FRAME_RATE, counter: last + 1, start };
        let [rate, counter, start_ns] = next.to_words();
        let raise = Raise::row(0).words([rate, counter, start_ns, self.player, taken]);
        let raiser = self.raiser.get().expect("the player is a client");
        raiser.raise(&raise).expect("the service is there, and the latest event counts");
    }
}

fn lock(watches: &Mutex<Vec<FrameWatch>>) -> std::sync::MutexGuard<'_, Vec<FrameWatch>> {
    watches.lock().unwrap_or_else(PoisonError::into_inner)
}
