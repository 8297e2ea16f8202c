//! A service and a client. A handler of a scheduling thread serves the channel: it answers each
//! event with the square of the event's first word. The client is the main thread. At the end a
//! call by name, which blocks for its answer, returns the number of events served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use newcomer::{Outcome, expect, print_notices};
use upcall::channel::{Client, Form, Forms, Posted, Raise, Route, ServiceTerms, call};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const REQUESTS: u64 = 500;

fn main() -> Outcome {
    let mut upcall = Runtime::start(Config::default())?;
    print_notices(&upcall);
    let cpu = upcall.config().cpus[0];

    let served = Arc::new(AtomicU64::new(0));
    let counted = served.clone();
    let squares = Route::to(move |events| {
        while let Some(event) = events.take() {
            let [number, ..] = event.words;
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = Raise::row(0).words([number * number, number, 0, 0, 0]);
            let _ = events.raise(event.peer, &answer); // the client counts what is lost
        }
    });
    let ring = Form::Ring { slots: 64 };
    let total = served.clone();
    let terms = ServiceTerms::new(Forms { to_service: ring, to_client: ring }, squares)
        .call(move |_| [total.load(Ordering::Relaxed), 0, 0, 0, 0]);
    let name = format!("newcomer-{}", std::process::id());
    let service = upcall.service(cpu, &name, terms)?;

    let mut client = Client::polled(&name)?;
    let (mut answers, mut sum) = (0, 0);
    for number in 1..=REQUESTS {
        let posted = client.raise(&Raise::row(0).words([number, 0, 0, 0, 0]))?;
        if !matches!(posted, Posted::Stored) {
            return Err("the ring was full".into());
        }
        let square = answer(&mut client)?;
        expect("square", square, number * number)?;
        answers += 1;
        sum += square;
    }
    let [total, ..] = call(&name, &[0; 5], Some(clock::after(Span::from_secs(2))))?;
    println!("{answers} answers, sum of squares {sum}; the service says it served {total}");
    expect("clients", service.clients().len(), 1)?;
    expect("events served", total, REQUESTS)?;
    expect("sum of squares", sum, (1..=REQUESTS).map(|number| number * number).sum())
}

/// Waits for the next answer of the service, and returns it.
fn answer(client: &mut Client) -> Outcome<u64> {
    let deadline = clock::after(Span::from_secs(3));
    loop {
        if let Some(event) = client.take()? {
            return Ok(event.words[0]);
        }
        if !client.wait(Some(deadline)) {
            return Err("no answer within 3 s".into());
        }
    }
}
