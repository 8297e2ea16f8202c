//! Services and clients of the tests of readiness.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use upcall_runtime::channel::{Client, Form, Forms, Raiser, Route, Service, ServiceTerms, Words};
use upcall_runtime::discipline::Discipline;
use upcall_runtime::io_events::IoTarget;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, Runtime, clock};

use crate::support::{self, cpu};

pub const RINGS: Forms =
    Forms { to_service: Form::Ring { slots: 64 }, to_client: Form::Ring { slots: 64 } };

/// The key of the watched descriptor.
pub const KEY: u64 = 77;

pub fn start(discipline: &'static Discipline) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { cpus: vec![cpu()], discipline, ..Config::default() })
}

/// A name that no other test has.
pub fn name(of: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("ready-{of}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Waits until `is` returns `true`.
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let give_up = clock::now() + Span::from_secs(60);
    while !is() {
        assert!(clock::now() < give_up, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A service whose clients get a ring.
pub fn ring_service(name: &str) -> Service {
    Service::in_thread(name, ServiceTerms::new(RINGS, Route::to(|_| {}))).unwrap()
}

/// The raiser towards the only client of a service.
pub fn to_client(service: &Service) -> IoTarget {
    raise(service.raiser(service.clients()[0]).unwrap())
}

pub fn raise(raiser: Raiser) -> IoTarget {
    IoTarget::Raise { raiser, row: 0 }
}

pub fn taken(client: &mut Client) -> Words {
    loop {
        match client.take().unwrap() {
            Some(event) => return event.words,
            None => assert!(client.wait(support::a_minute()), "never notified"),
        }
    }
}
