//! Receives UDP datagrams: the handler is upcalled only when a datagram is there. The main thread
//! sends the datagrams in two bursts, with a pause between them.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use newcomer::{Outcome, expect, print_notices};
use upcall::activity::ActivityParams;
use upcall::stream::{IoPump, Stream, StreamForm};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const BURST: u64 = 100;

fn main() -> Outcome {
    let mut upcall = Runtime::start(Config::default())?;
    print_notices(&upcall);

    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1500 }, 0)?;
    let pump = IoPump::start()?;
    let _source = pump.source(socket, stream.writer()?)?;

    let counts = Arc::new(Counts::default());
    let counted = counts.clone();
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(50)).batch(16);
    let camera = upcall.stream_reader_handler(
        "camera",
        need,
        stream.reader()?,
        1,
        move |reader, batch| {
            counted.upcalls.fetch_add(1, Ordering::Relaxed);
            let mut number = [0; 8];
            while let Some(datagram) = reader.next(batch) {
                datagram.payload().copy_to(0, &mut number);
                datagram.done();
                counted.sum.fetch_add(u64::from_le_bytes(number), Ordering::Relaxed);
                let received = counted.received.fetch_add(1, Ordering::Relaxed) + 1;
                if received == 2 * BURST {
                    batch.finish();
                }
            }
        },
    )?;
    upcall.run(camera)?;

    send(0..BURST, address)?;
    let paused = clock::after(Span::from_secs(2));
    while counts.received.load(Ordering::Relaxed) < BURST && clock::now() < paused {
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(20)); // the handler returns from its upcall
    let before = counts.upcalls.load(Ordering::Relaxed);
    sleep(Duration::from_millis(200)); // a hundred periods without a datagram
    let in_pause = counts.upcalls.load(Ordering::Relaxed) - before;

    send(BURST..2 * BURST, address)?;
    let finished = upcall.wait(&[camera], Some(clock::after(Span::from_secs(2))));
    let report = upcall.stop(|_, _| {});
    let counters = report.activities[0].counters.ok_or("the handler did not yield")?;
    println!(
        "{} datagrams in {} upcalls, {in_pause} of them in the pause; {} of {} jobs late",
        counters.pdus,
        counts.upcalls.load(Ordering::Relaxed),
        counters.misses,
        counters.jobs,
    );
    expect("handlers that finished", finished, vec![camera])?;
    expect("datagrams", counters.pdus, 2 * BURST)?;
    expect("sum of their numbers", counts.sum.load(Ordering::Relaxed), (0..2 * BURST).sum())?;
    expect("upcalls while nothing came", in_pause, 0)
}

/// The counts of the handler. The main thread reads them without a lock.
#[derive(Default)]
struct Counts {
    upcalls: AtomicU64,
    received: AtomicU64,
    sum: AtomicU64,
}

/// Sends one datagram for each number, about one a millisecond.
fn send(numbers: std::ops::Range<u64>, address: std::net::SocketAddr) -> std::io::Result<()> {
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    for number in numbers {
        sender.send_to(&number.to_le_bytes(), address)?;
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
