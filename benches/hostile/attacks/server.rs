//! Attacks on the daemon's server by another user: its descriptors, its time, its admission and its
//! memory of a former daemon.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use upcall_shm::user_area::Rank;
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, ToDaemon};
use upcall_sys::clock;
use upcall_sys::local::Connection;

use super::{
    Attack, DaemonOptions, Outside, attack, attacking, breach, claim, notify_daemon, sleep, spin,
};
use crate::raw::{Raw, need};

/// How long the daemon of the row `false claims` takes claims. A part of the row comes later.
const CLAIMS_WITHIN_S: u64 = 1;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        daemon: DaemonOptions { descriptors_max: 128, ..DaemonOptions::USUAL },
        arrivals: true,
        long_calls: true,
        ..of_other("silent", "holds all connections that it gets, of 128 descriptors", silent)
    },
    Attack {
        daemon: DaemonOptions { kill: true, descriptors_max: 128, ..DaemonOptions::USUAL },
        arrivals: true,
        long_calls: true,
        ..of_other("silent, --kill", "as `silent`, under a daemon that kills", silent)
    },
    of_other("unscreened", "works as if admission had not refused its 95 %", unscreened),
    Attack {
        arrivals: true,
        long_calls: true,
        ..of_other("request flood", "expensive requests from 24 domains", request_flood)
    },
    Attack {
        outside: Outside::RestartDaemon,
        daemon: DaemonOptions { claims_within_s: CLAIMS_WITHIN_S, ..DaemonOptions::USUAL },
        ..of_other("false claims", "claims places that no daemon granted, and works", false_claims)
    },
    Attack {
        arrivals: true,
        long_calls: true,
        ..of_other("lingering", "sends sockets whose closing blocks", lingering)
    },
];

const fn of_other(name: &'static str, what: &'static str, act: fn(&Path)) -> Attack {
    Attack { other_user: true, ..attack(name, what, act) }
}

/// Keeps as many connections as it can get, and says nothing.
fn silent(socket: &Path) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        for _ in 0..50 {
            match Connection::connect(socket) {
                Ok(connection) => connections.push(connection),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        let is_open = |it: &Connection| it.peek(&mut [0]).is_err_and(|e| e.is_would_block());
        connections.retain(is_open);
        if !connections.is_empty() {
            attacking();
        }
    }
}

/// The user has no right to run what admission refuses. If the daemon grants it all the same, it
/// works with the rank of that grant, else with that of its small reservation.
fn unscreened(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    let need = need(5_000_000, 4_750_000);
    let reply = raw.create(2, true, need).expect("the daemon answers");
    let rank = match reply {
        Ok(order) => {
            breach("the daemon granted 95 % to a user without the right");
            Rank::new(need.period_ns, order)
        }
        Err(_) => raw.rank,
    };
    attacking();
    work_with(raw, rank);
}

/// Shows `rank` without end, and works for 1 ms in each turn.
fn work_with(mut raw: Raw, rank: Rank) -> ! {
    claim(&mut raw, rank);
    loop {
        match raw.turn.turn() {
            Ok(turn) if turn.holder() == raw.me => {
                let now = clock::monotonic_ns();
                raw.owner.set_running(Some(0), now);
                raw.owner.set_asked(now);
                spin(1_000_000);
                raw.turn.pass(turn, upcall_shm::DomainId::DAEMON);
                notify_daemon(&raw);
            }
            _ => sleep(&raw),
        }
    }
}

/// The periods have no common divisor and the CPU is nearly full, so each analysis is long.
fn request_flood(socket: &Path) {
    let connections: Vec<_> = (0..24)
        .filter_map(|_| {
            let connection = Connection::connect(socket).ok()?;
            let hello = ToDaemon::Hello { name: "attacker".into(), policy: "rmdp".into() };
            connection.send(&hello.encode(), &[]).ok()?;
            Some(connection)
        })
        .collect();
    assert_eq!(connections.len(), 24, "all are connected");
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    for request in 0.. {
        let number = request % 500;
        let need = need(10_000_019 + number * 70_003, 70_000);
        let name = "attack".to_owned();
        let create = ToDaemon::Create { request, unscreened: false, need, name }.encode();
        for connection in &connections {
            let _ = connection.send(&create, &[]);
            while connection.receive(&mut buffer).is_ok_and(|received| received.len > 0) {}
        }
        attacking();
    }
}

/// Once the daemon was killed and started again, claims places that no daemon can have granted, or
/// that are on a CPU without its thread. Then it claims a likely place too late. Each place is of
/// 5 % of a CPU, so that there is room for it. At the end it shows the best rank that it claimed.
fn false_claims(socket: &Path) {
    let raw = Raw::attach(socket, "attacker");
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    loop {
        match raw.connection.receive(&mut buffer) {
            Ok(received) if received.len > 0 => {}
            Err(error) if error.is_would_block() => std::thread::sleep(Duration::from_millis(1)),
            _ => break,
        }
    }
    drop(raw);
    let raw = Raw::attach_to_next(socket, "attacker");
    // The daemon started before.
    let late_ns = clock::monotonic_ns() + (CLAIMS_WITHIN_S * 1_000 + 100) * 1_000_000;
    // A shorter period than those of all victims.
    let need = need(1_000_000, 50_000);
    let (own_cpu, own_order) = (raw.turn.cpu(), raw.rank.order);
    // A daemon grants its orders upwards from a number that is below the first and the second one.
    let forged = [own_order + 1_000_000, 1 << 31, (3 << 30) - 1, 3 << 30, u32::MAX, own_order];
    // A former daemon can have granted this order. So the CPU has room for such a claim.
    let order = raw.claim(own_cpu, 1, need).flatten().unwrap_or_else(|why| panic!("{why}"));
    raw.send(&ToDaemon::Close { order });
    let mut round = 0;
    while clock::monotonic_ns() < late_ns {
        for order in forged {
            must_refuse(&raw, own_cpu, order, need, "a forged order");
        }
        must_refuse(&raw, (own_cpu + 1 + round % 4) % 5, round, need, "a foreign CPU");
        round += 1;
        attacking();
    }
    for order in 0..50 {
        must_refuse(&raw, own_cpu, order, need, "a late claim");
    }
    work_with(raw, Rank::new(need.period_ns, 0));
}

fn must_refuse(raw: &Raw, cpu: u32, order: u32, need: Need, what: &str) {
    if raw.claim(cpu, order, need).expect("the daemon answers").is_ok() {
        breach(&format!("the daemon granted {what}: CPU {cpu}, order {order}"));
    }
}

/// TCP sockets with `SO_LINGER` and unsent data. The thread that closes the last descriptor sleeps
/// until the receiver reads.
fn lingering(socket: &Path) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let mut receivers = Vec::new();
    loop {
        let Ok(sender) = std::net::TcpStream::connect(address) else { continue };
        receivers.extend(listener.accept());
        let _ = sender.set_nonblocking(true);
        while std::io::Write::write(&mut &sender, &[0; 65_536]).is_ok() {}
        let hour = Some(Duration::from_secs(3_600));
        let _ = rustix::net::sockopt::set_socket_linger(&sender, hour);
        if let Ok(connection) = Connection::connect(socket) {
            // From Linux 6.16 on the kernel refuses the first message.
            let _ = connection.send(&ToDaemon::Inspect.encode(), &[sender.as_fd()]);
            let _ = connection.send(&ToDaemon::Inspect.encode(), &[]);
            attacking();
        }
        if receivers.len() >= 100 {
            std::thread::sleep(Duration::from_millis(10));
            receivers.clear();
        }
    }
}
