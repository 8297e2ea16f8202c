//! Datagrams come in by UDP, and a handler is upcalled whenever one is there: nothing polls.
//!
//! ```sh
//! cargo run --release -p upcall --example udp_receiver -- --seconds 2
//! ```
//!
//! So the program sends to itself, 100 datagrams a second. With an address it receives from others:
//! `-- 0.0.0.0:5004 --seconds 10`.
//!
//! ```text
//!   socket --> upcall-io-pump (ordinary thread) --> stream --> handler (scheduling thread)
//!              one datagram, one message           64 slots   upcalled at level 1
//! ```
//!
//! The I/O pump sleeps until the socket has something, and the handler is released by the message
//! that reaches its level. Datagrams that come faster than was admitted wait in the stream, then
//! in the socket, and disturb no other handler. The stream carries payloads alone: a handler that
//! needs the sender's address or the arrival time takes datagrams from a `udp::Receiver` by itself,
//! each period.
//!
//! The program prints what came, and says on standard error what right is missing, if one is:
//!
//! ```text
//! sent 189 datagrams to itself
//! received 189 datagrams, 18900 B, in 190 jobs, 0 missed
//! ```
//!
//! A job is one upcall that was released and ended. The last one found the end of the stream.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::stream::{IoPump, Stream, StreamForm};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const USAGE: &str = "udp_receiver [ADDRESS] [--seconds N]";
/// A datagram, on average.
const INTERVAL: Span = Span::from_millis(10);
/// CPU time that one may take.
const COST: Span = Span::from_micros(50);
/// Datagrams of one job, at most: after a pause of the network several come at once.
const BATCH: u32 = 4;
/// Datagrams of the stream, and the longest that the program takes.
const WAY: StreamForm = StreamForm::Slots { slots: 64, slot_bytes: 2048 };
/// What the program sends to itself.
const PAYLOAD: [u8; 100] = [7; 100];

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Where to receive; `None`: from itself.
    pub address: Option<SocketAddr>,
    /// For how long.
    pub seconds: u64,
}

impl Request {
    /// # Errors
    /// An argument is no address, no number, or unknown.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut request = Request { address: None, seconds: 5 };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--seconds" {
                request.seconds = arguments.next().ok_or(USAGE)?.parse()?;
            } else if argument.starts_with('-') || request.address.is_some() {
                return Err(USAGE.into());
            } else {
                request.address = Some(argument.parse()?);
            }
        }
        Ok(request)
    }
}

/// What came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams that the handler processed.
    pub datagrams: u64,
    /// Payload bytes of these.
    pub bytes: u64,
    /// Datagrams that were longer than a slot.
    pub too_long: u64,
    /// Jobs of the handler that ended.
    pub jobs: u64,
    /// Of these, after their deadline.
    pub misses: u64,
    /// Datagrams that the program sent to itself.
    pub sent: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let request = Request::parse(std::env::args().skip(1))?;
    let received = receive(&request)?;
    let Received { datagrams, bytes, jobs, misses, .. } = received;
    if request.address.is_none() {
        println!("sent {} datagrams to itself", received.sent);
    }
    println!("received {datagrams} datagrams, {bytes} B, in {jobs} jobs, {misses} missed");
    if received.too_long > 0 {
        println!("dropped {} datagrams that were longer than 2048 B", received.too_long);
    }
    Ok(())
}

/// Receives for as long as `request` says.
///
/// # Errors
/// The address cannot be had, or there is no room for the handler.
pub fn receive(request: &Request) -> Result<Received, Box<dyn Error>> {
    let own = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = UdpSocket::bind(request.address.unwrap_or(own))?;
    let address = socket.local_addr()?;
    eprintln!("receiving at {address} for {} s", request.seconds);

    let mut runtime = Runtime::start(Config::default())?;
    let stream = Stream::create(WAY, 0)?;
    let need = ActivityParams::new(INTERVAL, COST).batch(BATCH);
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let handler = runtime.stream_reader_handler("udp", need, stream.reader()?, 1, {
        let counts = counts.clone();
        let mut payload = [0; 2048];
        move |reader, batch| {
            while let Some(message) = reader.next(batch) {
                let bytes = message.payload().copy_to(0, &mut payload);
                message.done();
                // Here the datagram is processed: `payload[..bytes]`.
                // Relaxed: read after the runtime has stopped.
                counts.0.fetch_add(1, Ordering::Relaxed);
                counts.1.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    })?;
    runtime.run(handler)?;
    for notice in runtime.notices() {
        eprintln!("{notice}");
    }

    let pump = IoPump::start()?;
    let source = pump.source(socket, stream.writer()?)?;
    let sender = request.address.is_none().then(|| Sender::start(address));
    std::thread::sleep(Duration::from_secs(request.seconds));
    let sent = sender.map_or(0, Sender::stop);
    std::thread::sleep(Duration::from_millis(20)); // for what is on its way
    drop(pump); // ends the stream behind what came
    let carried = source.wait(None).ok_or("the I/O pump is gone")?;
    runtime.wait(&[handler], Some(clock::after(Span::from_secs(1))));

    let report = runtime.stop(|_, _| {});
    let counters = report.activities[0].counters.ok_or("the handler did not return")?;
    Ok(Received {
        datagrams: counts.0.load(Ordering::Relaxed),
        bytes: counts.1.load(Ordering::Relaxed),
        too_long: carried.too_long,
        jobs: counters.completed,
        misses: counters.misses,
        sent,
    })
}

/// An ordinary thread that sends a datagram each [`INTERVAL`].
struct Sender {
    thread: JoinHandle<u64>,
    ends: Arc<AtomicBool>,
}

impl Sender {
    fn start(target: SocketAddr) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = ends.clone();
        let thread = std::thread::spawn(move || {
            let Ok(socket) = UdpSocket::bind(("127.0.0.1", 0)) else { return 0 };
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                sent += u64::from(socket.send_to(&PAYLOAD, target).is_ok());
                std::thread::sleep(Duration::from_nanos(INTERVAL.as_nanos()));
            }
            sent
        });
        Sender { thread, ends }
    }

    /// How many it sent.
    fn stop(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}
