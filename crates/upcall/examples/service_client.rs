//! A service and a client on an event channel.
//!
//! ```sh
//! cargo run --release -p upcall --example service_client
//! ```
//!
//! The service `adder-PID` adds up the numbers that its clients raise, and answers each with the
//! sum so far. The scheduling thread of a CPU invokes the service. So raising an event is a store
//! in shared memory, and no system call while that thread is awake. A client in another process of
//! this user would be the same. At the end a call by name returns the sum. It blocks until the
//! reply.
//!
//! It prints `raised 100, answered 100, sum 5050, by call 5050`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall::channel::{self, Client, Form, Forms, Raise, Route, ServiceTerms};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const EVENTS: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let mut runtime = Runtime::start(Config::default())?;
    for notice in runtime.notices() {
        eprintln!("{notice}");
    }
    let cpu = runtime.config().cpus[0];
    let name = format!("adder-{}", std::process::id());

    // First in, first out, in both directions. A full ring loses an event and counts it.
    let ring = Form::Ring { slots: 64 };
    let sum = Arc::new(AtomicU64::new(0));
    let added = sum.clone();
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            // Relaxed: the answer carries the number, and the call below comes after the answers.
            let sum = added.fetch_add(event.words[0], Ordering::Relaxed) + event.words[0];
            // A client that has left needs no answer.
            let _ = events.raise(event.peer, &Raise::row(0).words([sum, 0, 0, 0, 0]));
        }
    });
    let asked = sum.clone();
    let terms = ServiceTerms::new(Forms { to_service: ring, to_client: ring }, route)
        .call(move |_| [asked.load(Ordering::Relaxed), 0, 0, 0, 0]);
    let service = runtime.service(cpu, &name, terms)?;

    let mut client = Client::polled(&name)?;
    let (mut answered, mut sum) = (0, 0);
    for number in 1..=EVENTS {
        client.raise(&Raise::row(0).words([number, 0, 0, 0, 0]))?;
        let answer = loop {
            if let Some(answer) = client.take()? {
                break answer;
            }
            if !client.wait(Some(clock::now() + Span::from_secs(5))) {
                return Err("no answer within 5 s".into());
            }
        };
        answered += 1;
        sum = answer.words[0];
    }
    let deadline = Some(clock::now() + Span::from_secs(5));
    let by_call = channel::call(&name, &[0; 5], deadline)?[0];
    println!("raised {EVENTS}, answered {answered}, sum {sum}, by call {by_call}");
    drop(client);
    drop(service);
    runtime.stop(|_, _| {});
    Ok(())
}
