//! An echo server with UDP in user space: a flow of the daemon, and a handler that looks at it each
//! millisecond. It makes no system call for a datagram, and one in each period.
//!
//! The daemon owns the interface, so the server needs no right. Here the daemon is root's, and
//! everybody may connect to it. `10.0.0.2` is the address of `eth1`:
//!
//! ```sh
//! sudo upcalld --interfaces eth1 --access everyone &
//! cargo run --release -p upcall --example udp_echo_flow -- eth1 10.0.0.2:7007
//! ```
//!
//! Ports below 1024 are root's. Another machine talks to it: `echo hello | nc -u 10.0.0.2 7007`.
//! This one does not: what it sends to its own address does not pass `eth1`.
//!
//! It ends by Ctrl-C, after the datagrams of `--packets N`, or if the daemon closes the flow. Then
//! it prints what it did: `echoed 20 datagrams, 0 had no room, 0 refused, 0 missed`. No room: all
//! frames for sending were on their way. Refused: an ICMP error came back. Missed: jobs that ended
//! after their period.
//!
//! ```text
//!   eth1 <-> daemon (AF_XDP, headers) <-> flow: four queues <-> handler, each millisecond
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::net::{FlowError, FlowRequest, Received, UdpFlow};
use upcall::time::Span;
use upcall::{Attach, Config, Runtime, daemon_socket};

const USAGE: &str = "udp_echo_flow INTERFACE ADDRESS:PORT [--packets N]";
/// How often the handler looks, and the most CPU time of a datagram.
const PERIOD: Span = Span::from_millis(1);
const COST: Span = Span::from_micros(5);
/// The most datagrams of a period. What is beyond waits in the flow, which holds 256.
const BATCH: u32 = 32;

/// The arguments of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The interface of the daemon.
    pub interface: String,
    /// An address of the interface and a port.
    pub local: SocketAddr,
    /// How many datagrams are sent back. `None`: until Ctrl-C.
    pub packets: Option<u64>,
}

impl Request {
    /// # Errors
    /// If an argument is unknown, missing, or neither an address nor a number.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut arguments = arguments.into_iter();
        let interface = arguments.next().ok_or(USAGE)?;
        let local = arguments.next().ok_or(USAGE)?.parse()?;
        let packets = match arguments.next().as_deref() {
            None => None,
            Some("--packets") => Some(arguments.next().ok_or(USAGE)?.parse()?),
            Some(_) => return Err(USAGE.into()),
        };
        match arguments.next() {
            None => Ok(Request { interface, local, packets }),
            Some(_) => Err(USAGE.into()),
        }
    }
}

/// What the server did, and the handler counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Datagrams that were sent back.
    pub echoed: AtomicU64,
    /// Datagrams that were not, because all frames for sending were in use.
    pub no_room: AtomicU64,
    /// ICMP errors that answers caused, such as a port that is closed by now.
    pub refused: AtomicU64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let request = Request::parse(std::env::args().skip(1))?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;
    let (counts, missed) = serve(&request, &daemon_socket()?, stop)?;
    let [echoed, no_room, refused] =
        [&counts.echoed, &counts.no_room, &counts.refused].map(|it| it.load(Ordering::Relaxed));
    println!(
        "echoed {echoed} datagrams, {no_room} had no room, {refused} refused, {missed} missed"
    );
    Ok(())
}

/// Serves until `stop`, until the requested datagrams, or until the daemon closes the flow. Returns
/// the counts, and how many jobs missed their deadlines.
///
/// # Errors
/// There is no daemon, or it refuses the flow or the handler.
pub fn serve(
    request: &Request,
    daemon: &Path,
    stop: Arc<AtomicBool>,
) -> Result<(Arc<Counts>, u64), Box<dyn Error>> {
    let mut flow = UdpFlow::open(daemon, &FlowRequest::new(&*request.interface, request.local))?;
    eprintln!("{} sends back; Ctrl-C ends it", flow.local());
    // One daemon has the interface and the order of all handlers of the machine.
    let attach = Attach { socket: daemon.to_owned(), name: "echo".to_owned() };
    let mut runtime = Runtime::start(Config { daemon: Some(attach), ..Config::default() })?;
    for notice in runtime.notices() {
        eprintln!("{notice}");
    }
    let counts = Arc::new(Counts::default());
    let packets_max = request.packets.unwrap_or(u64::MAX);
    let need = ActivityParams::new(PERIOD, COST).batch(BATCH);
    let handler = runtime.handler("echo", need, {
        let (counts, stop) = (counts.clone(), stop.clone());
        let mut payload = [0; 2048];
        move |batch| {
            let mut is_done = stop.load(Ordering::Relaxed);
            // The look that finds nothing counts as one datagram.
            while !is_done && batch.proceed() {
                match echo(&mut flow, &mut payload, &counts) {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The daemon broke a queue, or has ended.
                    Err(_) => is_done = true,
                }
                is_done |= counts.echoed.load(Ordering::Relaxed) >= packets_max;
            }
            // The daemon sees answers and free frames from now on.
            flow.flush();
            // The one system call: whether the daemon still has the flow.
            if is_done || !flow.is_open() {
                batch.finish();
            }
        }
    })?;
    runtime.run(handler)?;
    runtime.wait(&[handler], None);
    // The daemon sends the last answers in its next period, if the flow is still there.
    std::thread::sleep(Duration::from_millis(20));
    let report = runtime.stop(|_, _| {});
    let missed = report.activities[0].counters.ok_or("the handler did not return")?.misses;
    Ok((counts, missed))
}

/// Sends the oldest datagram back. `false`: there is none.
fn echo(flow: &mut UdpFlow, payload: &mut [u8], counts: &Counts) -> Result<bool, FlowError> {
    match flow.take()? {
        None => return Ok(false),
        Some(Received::Datagram(datagram)) => {
            let (length, peer) = (datagram.len(), datagram.peer());
            // One copy: the daemon could write the frame meanwhile.
            flow.payload(&datagram)?.copy_to(0, payload);
            flow.release(datagram)?;
            let count = match flow.send(&payload[..length], peer)? {
                true => &counts.echoed,
                false => &counts.no_room,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        Some(_) => {
            counts.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(true)
}
