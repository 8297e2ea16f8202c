//! Streams whose other end is the test, which compares its own counts with those of the outcome.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::Value;
use support::{
    Running, SpecFile, free_port, machine, named, number, start, text, upcall, wait_until_bound,
    with_ports,
};
use upcall::time::{Instant, Span};
use upcall::udp::{Receiver, ReceiverOptions};

/// Buffers for 80 datagrams. Each test sends fewer, so none is dropped for lack of a buffer on a
/// slow machine.
const ROOMY: &str = r#"
[[stream]]
name = "in"
class = "bulk"
rate = "200/s"
delay = "400 ms"
pdu = "172 B"
cost = "200 us"
receive = "udp://127.0.0.1:{}"
"#;

/// Starts a stream with `work` to which the test sends. Returns when its socket is bound.
fn receiver(work: &str) -> (SpecFile, Running, UdpSocket) {
    let (text, ports) = with_ports(&format!("{ROOMY}work = \"{work}\"\n"));
    let spec = SpecFile::new(text);
    // Twenty times as long as a test sends, in case the test is stopped meanwhile.
    let mut running = start(&["run", spec.path(), "--duration", "4s", "--json"]);
    wait_until_bound(&mut running, ports[0]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(("127.0.0.1", ports[0])).expect("the loopback interface");
    (spec, running, socket)
}

fn outcome(running: Running) -> Value {
    running.finish().assert_code(&[0, 4]).json()
}

/// An RTP packet of version 2 without options (RFC 3550 §5.1).
fn rtp(sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, 0];
    packet.extend(sequence.to_be_bytes());
    packet.extend((u32::from(sequence) * 160).to_be_bytes());
    packet.extend([0xCA, 0xFE, 0xBA, 0xBE]);
    packet.extend(payload);
    packet
}

#[test]
fn datagrams_of_others_are_received_and_counted() {
    let _machine = machine();
    let (_spec, running, socket) = receiver("rtp-pcmu");
    for sequence in 0..40 {
        assert_eq!(socket.send(&rtp(sequence, &[0x10; 160])).expect("the datagram is sent"), 172);
        sleep(Duration::from_millis(5));
    }
    let run = outcome(running);
    let stream = named(&run, "streams", "in");
    for field in ["offered", "received", "processed", "work.processed"] {
        assert_eq!(number(stream, field), 40, "{field} in {stream:#}");
    }
    for field in ["dropped.queue", "dropped.socket", "unread", "work.lost", "work.rejected"] {
        assert_eq!(number(stream, field), 0, "{field} in {stream:#}");
    }
    assert_eq!(text(stream, "work.kind"), "rtp-pcmu");
    assert!(number(stream, "work.peak") > 0, "{stream:#}");
    assert_eq!(number(named(&run, "activities", "in"), "pdus"), 40);
}

#[test]
fn malformed_packets_are_counted_and_do_no_harm() {
    let _machine = machine();
    let (_spec, running, socket) = receiver("rtp-l16");
    let good: Vec<Vec<u8>> = (0..10).map(|sequence| rtp(sequence, &[0x10; 160])).collect();
    let bad: [&[u8]; 10] = [
        b"",                                              // nothing
        b"\x80",                                          // a header that is cut
        &[0xFF; 172],                                     // contributing sources beyond the end
        &[0x00; 172],                                     // version 0
        b"GET / HTTP/1.1\r\n\r\n",                        // version 1, as it happens
        &good[0][..12],                                   // no payload
        &rtp(100, &[0x10; 159]),                          // half a sample
        &[&[0xA0], &good[1][1..171], &[0xFF]].concat(),   // padding of 255 bytes
        &[&[0xA0], &good[1][1..171], &[0]].concat(),      // padding of none
        &[&[0x90], &good[1][1..12], &[0xFF; 8]].concat(), // an extension beyond the end
    ];
    for (good, bad) in good.iter().zip(bad) {
        socket.send(bad).expect("the datagram is sent");
        socket.send(good).expect("the datagram is sent");
    }
    let run = outcome(running);
    let stream = named(&run, "streams", "in");
    assert_eq!(number(stream, "received"), 20, "{stream:#}");
    assert_eq!(number(stream, "processed"), 10, "{stream:#}");
    assert_eq!(number(stream, "dropped.queue"), 10, "{stream:#}");
    assert_eq!(number(stream, "work.rejected"), 10, "{stream:#}");
    assert_eq!(number(stream, "work.processed"), 10, "{stream:#}");
}

#[test]
fn a_datagram_longer_than_declared_is_dropped_whole() {
    let _machine = machine();
    for work in ["spin", "rtp-l16"] {
        let (_spec, running, socket) = receiver(work);
        for sequence in 0..5 {
            // Longer by two bytes, so that the kept part would be whole samples. And longer by far.
            for bytes in [160, 162, 3_000] {
                socket.send(&rtp(sequence, &vec![0x10; bytes])).expect("the datagram is sent");
            }
        }
        let run = outcome(running);
        let stream = named(&run, "streams", "in");
        assert_eq!(number(stream, "received"), 15, "{work} {stream:#}");
        assert_eq!(number(stream, "processed"), 5, "{work} {stream:#}");
        assert_eq!(number(stream, "dropped.queue"), 10, "{work} {stream:#}");
    }
}

#[test]
fn incomplete_pictures_and_garbage_do_not_stop_a_video_stream() {
    let _machine = machine();
    let (_spec, running, socket) = receiver("rtp-jpeg");
    for sequence in 0..30_u16 {
        // A JPEG header of type 1, Q 128 without its tables, and noise.
        let noise =
            [&[0, 0, 0, 0, 1, 128, 2, 2, 0, 0, 0, 64], &[sequence.to_le_bytes()[0]; 40][..]];
        socket.send(&rtp(sequence, &noise.concat())).expect("the datagram is sent");
    }
    let run = outcome(running);
    let stream = named(&run, "streams", "in");
    assert_eq!(number(stream, "received"), 30, "{stream:#}");
    assert_eq!(
        number(stream, "processed") + number(stream, "dropped.queue") + number(stream, "unread"),
        30,
        "{stream:#}"
    );
    assert!(number(stream, "work.rejected") > 0, "{stream:#}");
}

const SENDING: &str = r#"
[[stream]]
name = "out"
class = "continuous-media"
rate = "100/s"
delay = "100 ms"
pdu = "{pdu} B"
cost = "200 us"
send = "udp://127.0.0.1:{port}"
work = "{work}"
"#;

fn sender(work: &str, pdu: usize, port: u16) -> SpecFile {
    let text = SENDING.replace("{work}", work).replace("{port}", &port.to_string());
    SpecFile::new(text.replace("{pdu}", &pdu.to_string()))
}

#[test]
fn sent_datagrams_arrive_in_number_and_size() {
    let _machine = machine();
    // So short that the socket holds all datagrams of a run, if the test reads none meanwhile.
    for (work, pdu) in [("spin", 400), ("rtp-pcmu", 172)] {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
        let port = socket.local_addr().expect("it is bound").port();
        let spec = sender(work, pdu, port);
        let running = start(&["run", spec.path(), "--duration", "1s", "--json"]);
        let (expected, to_expect) = mpsc::channel();
        let socket = &socket;
        let (sizes, run) = thread::scope(|scope| {
            let receiving = scope.spawn(move || receive_all(socket, &to_expect));
            let run = outcome(running);
            let sent = number(named(&run, "streams", "out"), "received");
            expected.send(sent).expect("it still receives");
            (receiving.join().expect("it does not panic"), run)
        });
        let stream = named(&run, "streams", "out");
        assert_eq!(text(stream, "direction"), "send");
        assert!(!sizes.is_empty());
        assert!(sizes.iter().all(|&bytes| bytes == pdu), "{work}: {sizes:?}");
        let sent = sizes.len() as u64;
        for field in ["offered", "received", "processed"] {
            assert_eq!(number(stream, field), sent, "{work} {field} {stream:#}");
        }
        assert_eq!(number(stream, "dropped.queue"), 0, "{stream:#}");
        assert_eq!(number(named(&run, "activities", "out"), "pdus"), sent);
    }
}

/// The mapping gives such a delay a period of 200 ms. A batch of 20 PDUs that left at once would
/// have 19 short gaps for each long one, by the times at which the kernel received them.
#[test]
fn the_pdus_of_a_send_stream_are_spread_over_the_period() {
    let _machine = machine();
    support::assert_kept(support::a_cpu(), spread_over_the_period);
}

fn spread_over_the_period() -> Result<(), String> {
    let options = ReceiverOptions { buffered: 1024, ..ReceiverOptions::default() };
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut receiver = Receiver::bind(address, &options).expect("a free port");
    let port = receiver.local_address().expect("it is bound").port();
    let text = SENDING.replace("{work}", "spin").replace("{port}", &port.to_string());
    let text = text.replace("delay = \"100 ms\"", "delay = \"400 ms\"").replace("{pdu}", "400");
    let spec = SpecFile::new(text);
    outcome(start(&["run", spec.path(), "--duration", "1s", "--json"]));
    let mut arrivals = Vec::new();
    while receiver.ready() {
        arrivals.push(receiver.take().and_then(|datagram| datagram.arrival).expect("a time"));
    }
    let long = |pair: &&[Instant]| pair[1].since(pair[0]) > Span::from_millis(5);
    let spread = arrivals.windows(2).filter(long).count();
    match arrivals.len() > 50 && spread * 2 > arrivals.len() {
        true => Ok(()),
        false => Err(format!("{spread} of {} gaps are long", arrivals.len())),
    }
}

/// Sizes of all arriving datagrams, until the announced number has come and no more come. At most
/// for a minute.
fn receive_all(socket: &UdpSocket, to_expect: &mpsc::Receiver<u64>) -> Vec<usize> {
    let (mut sizes, mut buffer) = (Vec::new(), vec![0; 65_536]);
    let mut expected = None;
    let mut waits_left = 600;
    while waits_left > 0 {
        expected = expected.or_else(|| to_expect.try_recv().ok());
        match socket.recv(&mut buffer) {
            Ok(bytes) => sizes.push(bytes),
            Err(_) if expected.is_some_and(|expected| sizes.len() as u64 >= expected) => break,
            // The announced number is known, and datagrams are still on their way.
            Err(_) => waits_left -= u32::from(expected.is_some()),
        }
    }
    sizes
}

#[test]
fn a_missing_receiver_does_no_harm() {
    let _machine = machine();
    let spec = sender("spin", 500, free_port());
    let done = upcall(&["run", spec.path(), "--duration", "1s", "--json"]);
    let run = done.assert_code(&[0, 4]).json();
    let stream = named(&run, "streams", "out");
    // Every PDU was made and given to the kernel, in spite of "port unreachable".
    let made = number(stream, "processed");
    assert!(made > 0, "{stream:#}");
    assert_eq!(number(named(&run, "activities", "out"), "pdus"), made);
    assert_eq!(number(stream, "received"), made, "{stream:#}");
    assert_eq!(number(stream, "offered"), made, "{stream:#}");
}
