//! The child's side of embedded senders: sends packets on time.
//!
//! A source never sends faster than its stream declares. It spreads the datagrams of a burst over
//! the interval (rtu-1995 §2: pacing), a system call for each. If a burst begins late by more than
//! a quarter of its interval, all later ones move by that time (a *slip*). So a delayed sender
//! thins out its traffic. If datagrams are late, they leave together, but
//! never more than one burst.
//! If a packet is lost nevertheless, the receiver was too slow.

use upcall_core::time::{Instant, Span};
use upcall_shm::load_page::{LoadChild, PAGE_BYTES, StreamCounters};
use upcall_sys::OsError;
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process;
use upcall_sys::schedule::RealTime;
use upcall_sys::udp::{SendBatch, UdpSocket};

use super::plan::{LoadError, PAGE_FD, SenderPlan};

/// The longest sleep, so that a request to stop is seen soon.
const LOOK_EVERY: Span = Span::from_millis(20);
/// A send that is late by more than the interval divided by this counts as a slip.
const SLIP_DIVISOR: u32 = 4;

/// The code of the senders' process. Sends `plans` until it is told to stop. `fill(stream,
/// sequence, payload)` writes a datagram and returns its length.
///
/// # Errors
/// The page or a socket could not be opened.
pub fn serve(
    plans: &[SenderPlan],
    mut fill: impl FnMut(usize, u32, &mut [u8]) -> usize,
) -> Result<(), LoadError> {
    let mapping = attach_page()?;
    let mut page = LoadChild::attach(mapping)?;
    let mut sources = plans.iter().map(Source::open).collect::<Result<Vec<_>, _>>()?;
    // A priority below all that Upcall schedules. Without the right to it, the process sends in the
    // ordinary class. It is then late at times, and counts slips.
    if let Some(priority) = RealTime::granted().ok().and_then(|granted| granted.band.sender()) {
        let _ = upcall_sys::schedule::set_fifo(priority);
    }
    page.set_ready();
    let Some(start_ns) = wait_for_start(&page) else { return Ok(()) };
    for source in &mut sources {
        source.begin = Instant::from_nanos(start_ns) + source.interval;
    }
    page.set_running();
    while !page.stop_requested() {
        let now = Instant::from_nanos(monotonic_ns());
        for (number, source) in sources.iter_mut().enumerate() {
            if source.next() <= now {
                source.send(now, |sequence, payload| fill(number, sequence, payload));
                if let Some(line) = page.stream(number) {
                    line.publish(&source.counters);
                }
            }
        }
        let next = sources.iter().map(Source::next).min().unwrap_or(Instant::FAR);
        sleep_until_ns(next.min(now + LOOK_EVERY).as_nanos());
    }
    page.finish();
    Ok(())
}

/// Maps the page in the senders' process.
fn attach_page() -> Result<SharedMapping, LoadError> {
    let fd = process::inherited_fd(PAGE_FD)?;
    Ok(SharedMapping::from_fd(fd, PAGE_BYTES)?)
}

/// The moment to start. `None` if the process is told to stop before.
fn wait_for_start(page: &LoadChild<SharedMapping>) -> Option<u64> {
    loop {
        if page.stop_requested() {
            return None;
        }
        if let Some(start_ns) = page.start_at_ns() {
            sleep_until_ns(start_ns);
            return Some(start_ns);
        }
        sleep_until_ns(monotonic_ns() + 1_000_000);
    }
}

/// The source of one stream.
struct Source {
    socket: UdpSocket,
    batch: SendBatch,
    payload: Vec<u8>,
    interval: Span,
    burst: u32,
    /// When the present burst begins, and how many of its datagrams were sent.
    begin: Instant,
    sent: u32,
    sequence: u32,
    counters: StreamCounters,
}

impl Source {
    fn open(plan: &SenderPlan) -> Result<Self, OsError> {
        let local: std::net::SocketAddr = if plan.target.is_ipv4() {
            (std::net::Ipv4Addr::LOCALHOST, 0).into()
        } else {
            (std::net::Ipv6Addr::LOCALHOST, 0).into()
        };
        let socket = UdpSocket::bind(local)?;
        socket.connect(plan.target)?;
        Ok(Source {
            socket,
            batch: SendBatch::new(plan.burst as usize, plan.datagram_bytes as usize),
            payload: vec![0; plan.datagram_bytes as usize],
            interval: plan.interval,
            burst: plan.burst,
            begin: Instant::FAR,
            sent: 0,
            sequence: 0,
            counters: StreamCounters::default(),
        })
    }

    /// When the next datagram is due.
    fn next(&self) -> Instant {
        self.begin + self.interval.saturating_mul(u64::from(self.sent)) / self.burst
    }

    /// Sends what is due.
    fn send(&mut self, now: Instant, mut fill: impl FnMut(u32, &mut [u8]) -> usize) {
        if self.sent == 0 && now.since(self.begin) > self.interval / SLIP_DIVISOR {
            self.counters.slips += 1;
            self.begin = now;
        }
        while self.sent < self.burst && self.next() <= now {
            self.sent += 1;
            let bytes = fill(self.sequence, &mut self.payload).min(self.payload.len());
            self.sequence = self.sequence.wrapping_add(1);
            if self.batch.push(&self.payload[..bytes]).is_err() {
                self.flush();
                if self.batch.push(&self.payload[..bytes]).is_err() {
                    self.counters.errors += 1;
                    continue;
                }
            }
            self.counters.offered += 1;
            self.counters.offered_bytes += bytes as u64;
        }
        self.flush();
        if self.sent == self.burst {
            self.begin += self.interval;
            self.sent = 0;
        }
    }

    /// Gives the batch to the kernel. Datagrams that the kernel does not take do not count as
    /// offered.
    fn flush(&mut self) {
        let waiting = self.batch.len() as u64;
        let sent = self.batch.flush(&self.socket).unwrap_or(0) as u64;
        if sent < waiting {
            self.batch.clear();
            self.counters.errors += waiting - sent;
            self.counters.offered = self.counters.offered.saturating_sub(waiting - sent);
        }
    }
}
