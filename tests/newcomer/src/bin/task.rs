//! An async task on a UDP socket: it answers each datagram with its bytes in reverse order.

use std::net::UdpSocket;
use std::time::Duration;

use newcomer::{Outcome, expect, print_notices};
use upcall::activity::{ActivityParams, Terms, WorkClass};
use upcall::discipline::DWS;
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const REQUESTS: u32 = 200;

fn main() -> Outcome {
    let mut upcall = Runtime::start(Config { discipline: &DWS, ..Config::default() })?;
    print_notices(&upcall);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;

    let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(100));
    let terms = Terms { class: WorkClass::Interactive, ..Terms::default() };
    let reverser = upcall.task("reverser", (need, terms), async move |task| {
        let mut bytes = [0; 64];
        while task.io_wait(&socket).await.is_ok() {
            while let Ok((len, sender)) = socket.recv_from(&mut bytes) {
                if len == 0 {
                    return;
                }
                bytes[..len].reverse();
                let _ = socket.send_to(&bytes[..len], sender); // the client counts what is lost
                task.checkpoint().await;
            }
        }
    })?;
    upcall.run(reverser)?;

    let answers = ask(address)?;
    let finished = upcall.wait(&[reverser], Some(clock::after(Span::from_secs(2))));
    let report = upcall.stop(|_, _| {});
    let counters = report.activities[0].counters.ok_or("the task did not yield")?;
    println!(
        "{answers} of {REQUESTS} requests answered; the task: {} messages, {} PDUs",
        counters.completed, counters.pdus,
    );
    expect("tasks that ended", finished, vec![reverser])?;
    expect("right answers", answers, REQUESTS)
}

/// Sends the requests one after the other, then an empty datagram. Returns the number of right
/// answers.
fn ask(address: std::net::SocketAddr) -> Outcome<u32> {
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(address)?;
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut answers = 0;
    for number in 0..REQUESTS {
        client.send(&number.to_le_bytes())?;
        let mut answer = [0; 64];
        let len = client.recv(&mut answer)?;
        answers += u32::from(answer[..len] == number.to_be_bytes());
    }
    client.send(&[])?;
    Ok(answers)
}
