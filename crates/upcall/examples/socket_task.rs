//! A task on a socket: an `async` UDP echo that the scheduler runs by deadline.
//!
//! ```sh
//! cargo run --release -p upcall --example socket_task
//! ```
//!
//! The task waits for the socket and answers each datagram. A task holds no thread while it waits:
//! all tasks and handlers of a CPU share one thread, and the one with the best rank runs next. An
//! ordinary thread acts as the client. It sends 100 datagrams, each after the answer to the one
//! before, and then an empty datagram, which ends the task.
//!
//! It prints `echoed 100, messages 102, missed 0`. A message is the work of the task between two
//! waits: one for each datagram, and one before the first wait. There are fewer if datagrams come
//! together.

use std::error::Error;
use std::net::UdpSocket;
use std::time::Duration;

use upcall::activity::{ActivityParams, Terms, WorkClass};
use upcall::discipline::DWS;
use upcall::time::Span;
use upcall::{Config, Runtime, Task};

const DATAGRAMS: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    // Tasks need the policy DWS.
    let mut runtime = Runtime::start(Config { discipline: &DWS, ..Config::default() })?;
    for notice in runtime.notices() {
        eprintln!("{notice}");
    }
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    // A task must not block its thread. On this socket a call fails if no datagram is there.
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;

    // At most 50 us for a datagram. An interactive task does not delay a datagram to the next
    // period.
    let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50));
    let terms = Terms { class: WorkClass::Interactive, ..Terms::default() };
    let task = runtime.task("echo", (need, terms), async move |task| {
        if let Err(error) = echo(&task, &socket).await {
            eprintln!("echo: {error}");
        }
    })?;
    runtime.run(task)?;

    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(address)?;
    client.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut echoed = 0;
    let mut answer = [0; 4];
    for number in 0..DATAGRAMS {
        client.send(&number.to_le_bytes())?;
        let len = client.recv(&mut answer)?;
        echoed += u32::from(answer[..len] == number.to_le_bytes());
    }
    client.send(&[])?;
    runtime.wait(&[task], None);

    let report = runtime.stop(|_, _| {});
    let counters = report.activities[0].counters.ok_or("the task did not yield")?;
    println!("echoed {echoed}, messages {}, missed {}", counters.completed, counters.misses);
    Ok(())
}

/// Answers each datagram until an empty one comes.
async fn echo(task: &Task, socket: &UdpSocket) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut datagram = [0; 1500];
    loop {
        task.io_wait(socket).await?;
        // Several datagrams may have come during one wait.
        loop {
            let (len, sender) = match socket.recv_from(&mut datagram) {
                Ok(found) => found,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            if len == 0 {
                return Ok(());
            }
            socket.send_to(&datagram[..len], sender)?;
            // A more urgent activity may run here.
            task.checkpoint().await;
        }
    }
}
