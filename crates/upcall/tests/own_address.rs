//! The example `own_address`: the kernel of a network namespace talks to the host in user space.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../examples/own_address.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use example::{PORT, Place, Request, Served, serve};

const HOST: &str = "10.9.0.2";
const PACKETS: u64 = 20;

fn parse(arguments: &[&str]) -> Option<Request> {
    Request::parse(arguments.iter().map(ToString::to_string)).ok()
}

#[test]
fn the_command_line_has_an_address_and_a_place() {
    let on = |place| Request {
        address: "10.9.0.2/24".parse().unwrap(),
        place,
        gateway: None,
        packets: None,
    };
    let tap = on(Place::Tap("upcall0".to_owned()));
    assert_eq!(parse(&["10.9.0.2/24", "--tap", "upcall0"]), Some(tap.clone()));
    let gateway = Some("10.9.0.1".parse().unwrap());
    let all = Request { gateway, packets: Some(5), ..on(Place::Interface("eth1".to_owned())) };
    let words = ["--interface", "eth1", "--gateway", "10.9.0.1", "10.9.0.2/24", "--packets", "5"];
    assert_eq!(parse(&words), Some(all));
    for wrong in [
        &["10.9.0.2/24"][..],
        &["--tap", "upcall0"],
        &["10.9.0.2", "--tap", "upcall0"],
        &["10.9.0.2/24", "--tap"],
        &["10.9.0.2/24", "10.9.0.3/24", "--tap", "upcall0"],
        &["10.9.0.2/24", "--tap", "upcall0", "--packets", "many"],
    ] {
        assert_eq!(parse(wrong), None, "{wrong:?}");
    }
}

/// Runs `work` in a process with a network namespace of its own, by the `test` that calls it.
fn in_own_network(test: &str, work: fn()) {
    if std::env::var_os("UPCALL_OWN_NETWORK").is_some() {
        return work();
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--kill-child", "--fork"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    let output = command.env("UPCALL_OWN_NETWORK", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{error}");
}

fn succeeds(command: &str) -> bool {
    let mut words = command.split(' ');
    Command::new(words.next().unwrap()).args(words).output().unwrap().status.success()
}

/// The host as the command line starts it, until it has sent back [`PACKETS`] datagrams.
fn start(place: [&str; 2]) -> JoinHandle<Result<Served, String>> {
    let packets = PACKETS.to_string();
    let address = format!("{HOST}/24");
    let request = parse(&[&address, place[0], place[1], "--packets", &packets]).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || serve(&request, stop).map_err(|error| error.to_string()))
}

/// Talks to the host from the kernel's address on this interface until the host ends.
fn talk(host: JoinHandle<Result<Served, String>>, interface: &str) {
    // The host makes a TAP interface in its own time.
    for _ in 0..6_000 {
        if host.is_finished() || succeeds(&format!("ip link show {interface}")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for command in ["address add 10.9.0.1/24", "link set up"] {
        let is_done = succeeds(&format!("ip {command} dev {interface}"));
        assert!(is_done, "{command}: {:?}", host.is_finished().then(|| host.join()));
    }
    assert!(succeeds(&format!("ping -c 3 -i 0.2 -W 60 {HOST}")));

    // A port without a flow is refused by the host.
    let refused = UdpSocket::bind("10.9.0.1:0").unwrap();
    refused.connect((HOST, PORT + 1)).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    refused.send(b"nobody").unwrap();
    let error = refused.recv(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.connect((HOST, PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Up to the longest that one packet of 1500 bytes carries.
    for number in 0..PACKETS {
        let length = usize::try_from(number * 1472 / (PACKETS - 1)).unwrap();
        let payload = vec![number.to_le_bytes()[0]; length];
        socket.send(&payload).unwrap();
        let mut back = [0; 2048];
        let found = socket.recv(&mut back).unwrap();
        assert_eq!(back[..found], payload);
    }
    let Served { echoed, control } = host.join().unwrap().unwrap();
    // Three pings, and a question for the link address.
    assert!(echoed == PACKETS && control >= 4, "{echoed} {control}");
}

#[test]
#[ignore = "needs root, ip, unshare and ping: a TAP interface in its own network"]
fn the_kernel_talks_to_a_host_behind_a_tap_interface() {
    in_own_network("the_kernel_talks_to_a_host_behind_a_tap_interface", || {
        talk(start(["--tap", "upcall0"]), "upcall0");
    });
}

#[test]
#[ignore = "needs root, ip, unshare and ping: a veth pair in its own network"]
fn the_kernel_talks_to_a_host_on_an_interface_of_the_kernel() {
    in_own_network("the_kernel_talks_to_a_host_on_an_interface_of_the_kernel", || {
        assert!(succeeds("ip link add theirs type veth peer name ours"));
        assert!(succeeds("ip link set ours up"));
        // The rings open once the interface is up, which needs both ends.
        assert!(succeeds("ip link set theirs up"));
        talk(start(["--interface", "ours"]), "theirs");
    });
}
