//! Event channels among the domains of a daemon: a service in one, its clients in others, with
//! handlers of both in executors. One client is killed and started again. Another writes garbage
//! into its channel.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use support::{Done, Running, UPCALLD, a_cpu, folder, machine, wait_until};
use upcall::activity::ActivityParams;
use upcall::channel::{
    Client, Form, Forms, PeerId, Posted, Raise, Route, ServiceTerms, services_folder,
};
use upcall::time::Span;
use upcall::{Attach, Config, Runtime};

/// Tells this program its part and its arguments: service, client or hostile client.
const PART: &str = "UPCALL_TEST_PART";
/// Events of a client that ends by itself.
const RAISED: u64 = 400;
/// Larger than the events that are ever pending, so that the ring is never full.
const RING: Form = Form::Ring { slots: 1 << 14 };
const FORMS: Forms = Forms { to_service: RING, to_client: RING };
/// Clients that leave before the last one.
const GONE: usize = 4;
/// The client that ends the service.
const LAST: u64 = u64::MAX;

fn event(client: u64, serial: u64) -> Raise {
    Raise::row(0).words([client, serial, 0, 0, 0])
}

/// Starts a domain with a handler that runs each 2 ms.
fn domain(name: &str, mut each: impl FnMut() -> bool + Send + 'static) -> Runtime {
    let socket = std::env::var_os("UPCALL_SOCKET").expect("the socket of a daemon");
    let attach = Attach { socket: socket.into(), name: name.into() };
    let config = Config { cpus: vec![a_cpu()], daemon: Some(attach), ..Config::default() };
    let mut runtime = Runtime::start(config).expect("the daemon answers");
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(50)).batch(2);
    let handler = runtime.handler("steady", need, move |batch| {
        while batch.proceed() {
            if !each() {
                return batch.finish();
            }
        }
    });
    runtime.run(handler.expect("the handler is admitted")).expect("the handler is suspended");
    runtime
}

/// What the handlers report to the main thread of the service.
enum Report {
    Event(PeerId, u64, u64),
    Gone(PeerId, String),
}

/// Answers each event. Prints for each client how it left and how many of its events came. Checks
/// that each event came once and in order.
fn serve(name: &str) {
    let mut runtime = domain("service", || true);
    let (sender, reports) = mpsc::channel();
    let gone = sender.clone();
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            let [client, serial, ..] = event.words;
            // It fails for a client that was killed.
            let _ = events.raise(event.peer, &self::event(client, serial));
            let _ = sender.send(Report::Event(event.peer, client, serial));
        }
    });
    let route = route.on_gone(move |peer, how| {
        let _ = gone.send(Report::Gone(peer, format!("{how:?}")));
    });
    let service = runtime.service(a_cpu(), name, ServiceTerms::new(FORMS, route));
    let _service = service.expect("a service");
    let mut clients: BTreeMap<PeerId, (u64, u64)> = BTreeMap::new();
    let (mut is_last, mut gone) = (false, 0);
    while !is_last || gone < GONE {
        match reports.recv_timeout(Duration::from_secs(60)).expect("a report within 60 s") {
            Report::Event(_, LAST, _) => is_last = true,
            Report::Event(peer, client, serial) => {
                let (of, count) = clients.entry(peer).or_insert((client, 0));
                // The events of the hostile client may be anything.
                assert!(
                    client != *of || *of > 2 || serial == *count,
                    "{client}: {serial}, {count}"
                );
                *count += 1;
            }
            Report::Gone(peer, how) => {
                let (client, count) = clients.get(&peer).copied().unwrap_or((9, 0));
                println!("\ngone {client} {count} {how}");
                gone += 1;
            }
        }
    }
    runtime.stop(|_, _| {});
}

/// Raises `count` events from its executor and waits until each is answered, in order. Writes the
/// number of raised events into the file `raised`.
fn raise_all(name: &str, client: u64, count: u64, raised: &Path) {
    let raised = File::create(raised).expect("the folder is there");
    let (answered, counts) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (sees, total) = (answered.clone(), counts.clone());
    let (sender, raiser) = mpsc::channel();
    let mut held = None;
    let mut serial = 0;
    let mut runtime = domain(&format!("client-{client}"), move || {
        held = held.take().or_else(|| raiser.try_recv().ok());
        let Some(raiser): &Option<upcall::channel::Raiser> = &held else { return true };
        if raiser.raise(&event(client, serial)) == Ok(Posted::Stored) {
            serial += 1;
            total.store(serial, SeqCst);
            raised.write_all_at(&serial.to_ne_bytes(), 0).expect("a file");
        }
        serial < count
    });
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            let [_, serial, ..] = event.words;
            assert_eq!(serial, sees.fetch_add(1, SeqCst), "answers come once and in order");
        }
    });
    let registered = runtime.client(a_cpu(), name, route).expect("a service");
    sender.send(registered.raiser()).expect("the handler waits for it");
    wait_until("all answers", || answered.load(SeqCst) == count);
    assert_eq!((counts.load(SeqCst), registered.gone()), (count, None));
    drop(registered);
    runtime.stop(|_, _| {});
}

/// Writes garbage into the memory that it shares with the service, until the service disconnects
/// it.
fn write_garbage(name: &str) {
    let client = Client::polled(name).expect("a service");
    client.raise(&event(7, 0)).expect("the service is there");
    let descriptors = fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    let mut shared: Vec<_> = descriptors.flatten().map(|entry| entry.path()).collect();
    shared.retain(|fd| {
        fs::read_link(fd).is_ok_and(|to| to.to_string_lossy().contains("memfd:upcall"))
    });
    let [memory] = &shared[..] else { panic!("{shared:?}") };
    let memory =
        File::options().read(true).write(true).open(memory).expect("the memory can be opened");
    let bytes = memory.metadata().expect("a file").len();
    let mut seed = 1u64;
    wait_until("the disconnection", || {
        // After the wake word of the client, which is notified all the time.
        for at in (128..bytes.min(8_192)).step_by(8) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            memory.write_all_at(&seed.to_ne_bytes(), at).expect("the memory is writable");
        }
        memory.write_all_at(&1u64.to_ne_bytes(), 0).expect("the memory is writable");
        client.gone().is_some()
    });
}

/// Not a test of its own: the other processes of the test below.
#[test]
fn the_other_process() {
    let Ok(part) = std::env::var(PART) else { return };
    match part.split(' ').collect::<Vec<_>>()[..] {
        ["service", name] => serve(name),
        ["hostile", name] => write_garbage(name),
        ["client", name, client, count, raised] => {
            let [client, count] = [client, count].map(|text| text.parse().expect("a number"));
            raise_all(name, client, count, Path::new(raised));
        }
        _ => panic!("{part}"),
    }
}

fn start(socket: &Path, part: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "the_other_process", "--nocapture"]);
    Running::start(command.env(PART, part).env("UPCALL_SOCKET", socket))
}

#[track_caller]
fn ended(running: Running) -> Done {
    let done = running.finish();
    done.assert_code(&[0]);
    done
}

#[test]
fn each_event_is_handled_once_despite_a_kill_and_a_hostile_client() {
    let _machine = machine();
    let folder = folder();
    let socket = folder.path().join("upcall.sock");
    let _daemon = support::daemon(&mut Command::new(UPCALLD), &socket);
    let name = format!("domains-{}", std::process::id());
    let mut service = start(&socket, &format!("service {name}"));
    wait_until("the service", || {
        assert!(service.runs(), "the service ended");
        services_folder().join(&name).exists()
    });
    let client = |number: u64, count: u64, file: &str| {
        let raised = folder.path().join(file);
        start(&socket, &format!("client {name} {number} {count} {}", raised.display()))
    };
    let raised = |file: &str| {
        let bytes = fs::read(folder.path().join(file)).unwrap_or_default();
        bytes.try_into().map_or(0, u64::from_ne_bytes)
    };

    let steady = client(1, RAISED, "steady");
    let mut victim = client(2, LAST, "victim");
    wait_until("the victim's events", || {
        assert!(victim.runs(), "the victim ended by itself");
        raised("victim") > 100
    });
    let hostile = start(&socket, &format!("hostile {name}"));
    victim.signal("KILL");
    let _ = victim.finish();
    let again = client(2, RAISED, "again");
    ended(again);
    ended(steady);
    ended(hostile);

    let last = Client::polled(&name).expect("the service is there");
    last.raise(&event(LAST, 0)).expect("the service is there");
    let done = ended(service);
    let gone: Vec<_> = done.stdout.lines().filter(|line| line.starts_with("gone ")).collect();
    let of = |begin: &str| gone.iter().filter(|line| line.starts_with(begin)).count();
    assert_eq!(of(&format!("gone 1 {RAISED} Ended")), 1, "{gone:?}");
    assert_eq!(of(&format!("gone 2 {RAISED} Ended")), 1, "{gone:?}");
    // The victim may have been killed between the raise and the write of its count.
    let victim = raised("victim");
    let handled = [victim, victim + 1].map(|count| of(&format!("gone 2 {count} Died")));
    assert_eq!(handled.iter().sum::<usize>(), 1, "{victim} raised: {gone:?}");
    assert_eq!(gone.iter().filter(|line| line.contains(" Fault")).count(), 1, "{gone:?}");
    assert_eq!(gone.len(), GONE, "{gone:?}");
}
