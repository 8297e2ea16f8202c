//! Tests of event channels between processes. One process is killed, and one is hostile.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::os::fd::AsFd;
use std::sync::mpsc;

use upcall_runtime::channel::{
    self, ChannelOpenError, Client, FastAnswer, FastError, Form, Forms, Gone, Posted, Raise, Route,
    Service, ServiceTerms, TakeError,
};
use upcall_runtime::clock;
use upcall_sys::local::Connection;
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{self, Child, Exit, SpawnOptions};
use upcall_sys::readiness::{self, Direction};

use support::{a_minute, exit_of};

/// This program starts itself again. This environment variable tells the new process what to do
/// with which service.
const PART: &str = "UPCALL_TEST_PART";

fn name(of: &str) -> String {
    format!("across-{of}-{}", std::process::id())
}

fn other_process(part: &str, name: &str) -> Child {
    let exe = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let part = format!("{PART}={part} {name}");
    let command = ["env", &part, &exe, "--exact", "the_other_process", "--nocapture"];
    let options = SpawnOptions { stderr: process::Stream::Inherit, ..SpawnOptions::default() };
    let cpus = upcall_runtime::allowed_cpus().unwrap();
    process::spawn(&command.map(str::to_owned), &cpus, options).unwrap()
}

const RINGS: Forms =
    Forms { to_service: Form::Ring { slots: 64 }, to_client: Form::Ring { slots: 64 } };
const RING_BYTES: usize = 2 * 64 + 2 * (192 + 64 * 64);

fn raise(number: u64) -> Raise {
    Raise::row(0).words([number, 0, 0, 0, 0])
}

fn take(client: &mut Client) -> Result<u64, TakeError> {
    loop {
        match client.take()? {
            Some(event) => return Ok(event.words[0]),
            None => assert!(client.wait(a_minute()), "never notified"),
        }
    }
}

/// A client of `name`, as soon as that service exists.
fn client_of(name: &str) -> Client {
    let give_up = a_minute().unwrap();
    loop {
        match Client::polled(name) {
            Ok(client) => return client,
            Err(error) => assert!(clock::now() < give_up, "there is no service: {error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A service that replies to each event with the next number, and reports clients that are gone.
fn echo(name: &str) -> (Service, mpsc::Receiver<Gone>) {
    let (sender, receiver) = mpsc::channel();
    let route = Route::to(|events| {
        while let Some(event) = events.take() {
            let _ = events.raise(event.peer, &raise(event.words[0].wrapping_add(1)));
        }
    });
    let route = route.on_gone(move |_, gone| {
        let _ = sender.send(gone);
    });
    let terms = ServiceTerms::new(RINGS, route)
        .fast(|words| FastAnswer::done(*words))
        .call(|words| words.map(|word| word + 1));
    (Service::in_thread(name, terms).unwrap(), receiver)
}

fn next(gone: &mpsc::Receiver<Gone>) -> Gone {
    gone.recv_timeout(std::time::Duration::from_secs(60)).expect("no client is gone")
}

/// Not a test of its own: the code of the other process of the tests below.
#[test]
fn the_other_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let (part, name) = part.rsplit_once(' ').unwrap();
    match part {
        "good" => {
            let mut client = Client::polled(name).unwrap();
            for number in 0..2_000 {
                assert_eq!(client.raise(&raise(number)), Ok(Posted::Stored));
                assert_eq!(take(&mut client), Ok(number + 1));
            }
            assert_eq!(client.fast(&[0; 5]), Err(FastError::OtherProcess));
            assert_eq!(channel::call(name, &[1; 5], a_minute()), Ok([2; 5]));
        }
        "killed" => {
            let mut client = Client::polled(name).unwrap();
            for number in 0.. {
                assert_eq!(client.raise(&raise(number)), Ok(Posted::Stored));
                assert_eq!(take(&mut client), Ok(number + 1));
            }
        }
        "serves" => {
            let (_service, gone) = echo(name);
            next(&gone);
        }
        "serves forever" => {
            let (_service, _gone) = echo(name);
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        "writes invalid values" => write_invalid_values(name, false),
        "notifies only" => write_invalid_values(name, true),
        part => panic!("{part}"),
    }
}

/// Registers by hand, and writes invalid values until the service closes the connection.
fn write_invalid_values(name: &str, only_the_wake_word: bool) {
    let connection = Connection::connect(&channel::services_folder().join(name)).unwrap();
    connection.send(b"upchan01\x01\0\0\0\0\0\0\0\0", &[]).unwrap();
    let readable = |until| readiness::wait_until(connection.as_fd(), Direction::Readable, until);
    assert!(readable(Some(a_minute().unwrap().as_nanos())).unwrap());
    let fd = connection.receive(&mut [0; 64]).unwrap().fds.remove(0);
    let memory = SharedMapping::from_fd(fd, RING_BYTES).unwrap();
    let give_up = a_minute().unwrap();
    let mut seed = 1u64;
    while !readable(Some(0)).unwrap() {
        assert!(clock::now() < give_up, "the service accepts invalid values");
        for (at, word) in memory.words().iter().enumerate() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if at == 0 || !only_the_wake_word {
                word.store(if at == 0 { 1 } else { seed }, std::sync::atomic::Ordering::SeqCst);
                upcall_sys::futex::wake_shared(&memory.words()[0], 1);
            }
        }
    }
}

#[test]
fn a_client_in_another_process_gets_replies_and_leaves() {
    let name = name("good");
    let (service, gone) = echo(&name);
    let child = other_process("good", &name);
    assert_eq!(next(&gone), Gone::Ended);
    assert_eq!(exit_of(&child), Exit::Code(0));
    assert!(service.counts()[0].invocations <= 2_000);
}

#[test]
fn a_service_finds_a_killed_client_dead_and_other_clients_go_on() {
    let name = name("killed");
    let (service, gone) = echo(&name);
    let mut other = Client::polled(&name).unwrap();
    for round in 0..3 {
        let child = other_process("killed", &name);
        while service.clients().len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for number in 0..200 {
            assert_eq!(other.raise(&raise(number)), Ok(Posted::Stored));
            assert_eq!(take(&mut other), Ok(number + 1), "round {round}");
        }
        child.kill_group().unwrap();
        assert_eq!(exit_of(&child), Exit::Signal(9));
        assert_eq!(next(&gone), Gone::Died);
        assert_eq!(service.clients().len(), 1);
    }
    other.raise(&raise(1)).unwrap();
    assert_eq!(take(&mut other), Ok(2));
}

#[test]
fn a_name_that_another_process_serves_is_refused_with_its_owner() {
    let name = name("taken");
    let child = other_process("serves forever", &name);
    let client = client_of(&name);
    let route = Route::to(|_| {});
    let refused = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap_err();
    let ChannelOpenError::Taken { owner: Some(owner), .. } = &refused else { panic!("{refused}") };
    assert_eq!((owner.pid, owner.uid), (child.pid(), process::effective_user()));
    let command = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(owner.command.as_deref(), Some(command.trim_end()));
    assert!(refused.to_string().contains(&format!("process {} (", child.pid())), "{refused}");
    // The refusal does not disturb the service.
    drop(client);
    drop(client_of(&name));
    child.kill_group().unwrap();
    exit_of(&child);
}

#[test]
fn clients_find_a_killed_service_dead() {
    let name = name("service");
    for (part, ended) in [("serves", Gone::Ended), ("serves forever", Gone::Died)] {
        let child = other_process(part, &name);
        let (mut client, other) = (client_of(&name), client_of(&name));
        client.raise(&raise(1)).unwrap();
        assert_eq!(take(&mut client), Ok(2));
        match part {
            // The service ends when its first client is gone.
            "serves" => drop(other),
            _ => child.kill_group().unwrap(),
        }
        assert_eq!(take(&mut client), Err(TakeError::Gone(ended)));
        let exit = exit_of(&child);
        assert!(matches!(exit, Exit::Code(0) | Exit::Signal(9)), "{exit:?}");
    }
}

#[test]
fn a_hostile_client_is_detached_and_other_clients_go_on() {
    let name = name("hostile");
    let (service, gone) = echo(&name);
    let mut other = Client::polled(&name).unwrap();
    for part in ["writes invalid values", "notifies only"] {
        let child = other_process(part, &name);
        let mut number = 0;
        let how = loop {
            other.raise(&raise(number)).unwrap();
            assert_eq!(take(&mut other), Ok(number + 1));
            number += 1;
            if let Ok(how) = gone.try_recv() {
                break how;
            }
        };
        assert!(matches!(how, Gone::Fault(_)), "{part}: {how:?}");
        assert_eq!(exit_of(&child), Exit::Code(0));
    }
    for number in 0..200 {
        other.raise(&raise(number)).unwrap();
        assert_eq!(take(&mut other), Ok(number + 1));
    }
    let give_up = a_minute().unwrap();
    while service.clients().len() != 1 {
        assert!(clock::now() < give_up, "detached processes are still clients");
        std::thread::yield_now();
    }
}
