//! Receives datagrams by UDP in a handler. The handler is upcalled when a datagram has come, and
//! nothing polls.
//!
//! ```sh
//! cargo run --release -p upcall --example udp_receiver -- --seconds 2
//! ```
//!
//! This command receives from the program itself, which sends 100 datagrams a second. With an
//! address it receives from others: `-- 0.0.0.0:5004 --seconds 10`.
//!
//! ```text
//!   socket --> upcall-io-pump (ordinary thread) --> stream --> handler (scheduling thread)
//!              one datagram, one message           64 slots   upcalled at level 1
//! ```
//!
//! The I/O pump sleeps until the socket has a datagram. The message that reaches the level of the
//! handler releases it. Datagrams that come faster than admitted wait in the stream, then in the
//! socket, and do not delay other handlers. The stream carries only payloads. A handler that needs
//! the sender's address or the arrival time fetches datagrams each period with its own
//! `udp::Receiver`.
//!
//! The program prints what it received. It prints each missing right on standard error:
//!
//! ```text
//! sent 189 datagrams to itself
//! received 189 datagrams, 18900 B, in 190 jobs, 0 missed
//! ```
//!
//! A job is one upcall that was released and ended. The last job found the end of the stream.

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
/// Average interval between two datagrams.
const INTERVAL: Span = Span::from_millis(10);
/// The most CPU time of a datagram.
const COST: Span = Span::from_micros(50);
/// The most datagrams of one job: after a pause of the network several come together.
const BATCH: u32 = 4;
/// Number of datagrams in the stream, and the longest datagram.
const FORM: StreamForm = StreamForm::Slots { slots: 64, slot_bytes: 2048 };
/// The payload that the program sends to itself.
const PAYLOAD: [u8; 100] = [7; 100];

/// The arguments of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The address to receive at. `None`: the program sends to itself.
    pub address: Option<SocketAddr>,
    /// The time to receive.
    pub seconds: u64,
}

impl Request {
    /// # Errors
    /// If an argument is unknown, or neither an address nor a number.
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

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams that the handler processed.
    pub datagrams: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Datagrams that were longer than a slot.
    pub too_long: u64,
    /// Jobs of the handler that ended.
    pub jobs: u64,
    /// Jobs that missed their deadline.
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

/// Receives for the requested time.
///
/// # Errors
/// If the address cannot be bound, or the handler is refused.
pub fn receive(request: &Request) -> Result<Received, Box<dyn Error>> {
    let own = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = UdpSocket::bind(request.address.unwrap_or(own))?;
    let address = socket.local_addr()?;
    eprintln!("receiving at {address} for {} s", request.seconds);

    let mut runtime = Runtime::start(Config::default())?;
    let stream = Stream::create(FORM, 0)?;
    let need = ActivityParams::new(INTERVAL, COST).batch(BATCH);
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let handler = runtime.stream_reader_handler("udp", need, stream.reader()?, 1, {
        let counts = counts.clone();
        let mut payload = [0; 2048];
        move |reader, batch| {
            while let Some(message) = reader.next(batch) {
                let bytes = message.payload().copy_to(0, &mut payload);
                message.done();
                // A real program processes the datagram here: `payload[..bytes]`.
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
    std::thread::sleep(Duration::from_millis(20)); // for datagrams on their way
    drop(pump); // ends the stream after the received datagrams
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

    /// Ends the thread. Returns the number of datagrams that it sent.
    fn stop(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}
