//! Admission refuses a handler that does not fit, with a reason and a hint. A handler that follows
//! the hint is admitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use newcomer::{Outcome, expect, print_notices};
use upcall::activity::ActivityParams;
use upcall::admission::{Hint, Reason};
use upcall::time::Span;
use upcall::{Config, CreateError, Runtime, clock, default_cpus};

fn main() -> Outcome {
    // One CPU, so that the second handler cannot go to another CPU.
    let cpus = default_cpus()?.into_iter().take(1).collect();
    let mut upcall = Runtime::start(Config { cpus, ..Config::default() })?;
    print_notices(&upcall);

    let jobs = Arc::new(AtomicU64::new(0));
    let done = jobs.clone();
    let half = ActivityParams::new(Span::from_millis(20), Span::from_millis(10));
    let video = upcall.handler("video", half, move |batch| {
        while batch.proceed() {
            done.fetch_add(1, Ordering::Relaxed);
        }
        if done.load(Ordering::Relaxed) == 20 {
            batch.finish();
        }
    })?;
    upcall.run(video)?;

    let need = ActivityParams::new(Span::from_millis(20), Span::from_millis(15));
    let refusal = match upcall.handler("guest", need, |batch| while batch.proceed() {}) {
        Err(CreateError::Refused(refusal)) => refusal,
        Err(other) => return Err(other.into()),
        Ok(_) => return Err("125 % of a CPU were admitted".into()),
    };
    println!("as one line: {refusal}");
    println!("reason: {}", refusal.reason);
    let hint = refusal.hint.ok_or("the refusal has no hint")?;
    println!("hint: {hint}");
    if !matches!(refusal.reason, Reason::FallsBehind { .. }) {
        return Err("refused for another reason than 125 % of a CPU".into());
    }

    // The program takes the hint.
    let less = match hint {
        Hint::PduCost { to, .. } => ActivityParams { pdu_cost: to, ..need },
        Hint::Period { to, .. } => ActivityParams { period: to, deadline: to, ..need },
        other => return Err(format!("no hint for this need: {other:?}").into()),
    };
    let guest = upcall.handler("guest", less, |batch| {
        while batch.proceed() {}
        batch.finish();
    })?;
    upcall.run(guest)?;
    let deadline = clock::after(Span::from_secs(3));
    for id in [guest, video] {
        expect("handlers that finished", upcall.wait(&[id], Some(deadline)), vec![id])?;
    }
    println!("admitted as the hint says; video did {} jobs", jobs.load(Ordering::Relaxed));
    expect("jobs of video", jobs.load(Ordering::Relaxed), 20)
}
