//! Tests of sources, sinks and adapters: they lose no data, the stream bounds them, and they report
//! how they ended.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::future::{Future, poll_fn};
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use futures_core::Stream as _;
use futures_io::{AsyncRead, AsyncWrite};
use upcall_runtime::clock;
use upcall_runtime::stream::{
    Carried, CarryEnd, Closed, IoPump, Stream, StreamForm, StreamReader, Wait,
};
use upcall_runtime::time::Span;

const MINUTE: Span = Span::from_secs(60);
const BYTES: StreamForm = StreamForm::Bytes { capacity: 4096 };

/// Bytes without a short period.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let next = |_| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(next).collect()
}

fn file_of(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// Reads everything in a thread. Also returns how the stream ended.
fn read_all(reader: &mut StreamReader) -> (Vec<u8>, Closed) {
    let mut all = Vec::new();
    let mut bytes = [0; 1000];
    loop {
        match reader.pop(&mut bytes) {
            Ok(Some(len)) => all.extend_from_slice(&bytes[..len]),
            Ok(None) => assert!(reader.wait(1, None)),
            Err(_) => return (all, reader.closed().unwrap()),
        }
        reader.release();
    }
}

fn end_of(wait: &Wait) -> Carried {
    wait.wait(Some(clock::after(MINUTE))).expect("the carry never ended")
}

#[test]
fn a_file_goes_through_two_streams_and_a_pipe_into_another_file() {
    let pump = IoPump::start().unwrap();
    let content = noise(1_000_003);
    for (form, start_level) in [
        (BYTES, 0),
        (BYTES, 1024),
        (BYTES, 4096),
        (StreamForm::Messages { capacity: 4096 }, 2048),
        (StreamForm::Slots { slots: 4, slot_bytes: 512 }, 2),
        (StreamForm::Buffers { buffers: 4, buffer_bytes: 1024 }, 0),
    ] {
        let (first, second) = (Stream::create(form, start_level), Stream::create(form, 0));
        let (first, second) = (first.unwrap(), second.unwrap());
        let (reader, writer) = std::io::pipe().unwrap();
        let mut copy = file_of(&[]);
        let source = pump.source(file_of(&content), first.writer().unwrap()).unwrap();
        let into_pipe = pump.sink(first.reader().unwrap(), writer).unwrap();
        let from_pipe = pump.source(reader, second.writer().unwrap()).unwrap();
        let sink = pump.sink(second.reader().unwrap(), copy.try_clone().unwrap()).unwrap();
        let bytes = content.len() as u64;
        let read = Carried { bytes, too_long: 0, end: CarryEnd::EndOfInput };
        let written = Carried { bytes, too_long: 0, end: CarryEnd::Closed(Closed::Ended) };
        assert_eq!([end_of(&source), end_of(&from_pipe)], [read, read]);
        assert_eq!([end_of(&into_pipe), end_of(&sink)], [written, written]);
        let mut copied = Vec::new();
        copy.rewind().unwrap();
        copy.read_to_end(&mut copied).unwrap();
        assert!(copied == content, "{form:?}: other bytes");
    }
}

/// Waits until the I/O pump has done all that it had begun. A source that is added later does its
/// step later.
fn settle(pump: &IoPump) {
    let stream = Stream::create(BYTES, 0).unwrap();
    let source = pump.source(file_of(b"x"), stream.writer().unwrap()).unwrap();
    assert_eq!(end_of(&source).end, CarryEnd::EndOfInput);
}

#[test]
fn a_source_is_bounded_by_its_stream_and_rests_until_below_b_start() {
    let pump = IoPump::start().unwrap();
    let stream = Stream::create(BYTES, 1024).unwrap();
    let mut reader = stream.reader().unwrap();
    let mut file = file_of(&noise(100_000));
    let source = pump.source(file.try_clone().unwrap(), stream.writer().unwrap()).unwrap();
    let pop = |reader: &mut StreamReader| {
        let read = reader.pop(&mut [0; 512]).unwrap().unwrap() as u64;
        reader.release();
        read
    };
    let mut read = 0;
    for cycle in 0..20 {
        assert!(reader.wait(4096, None));
        settle(&pump);
        for _ in 0..6 {
            read += pop(&mut reader);
        }
        settle(&pump);
        // What the source took from the file is in the stream, or was read. At 1024 it
        // rests, below that it does not.
        assert_eq!(file.stream_position().unwrap(), read + 1024);
        assert_eq!(reader.starts(), cycle);
        read += pop(&mut reader);
        assert_eq!(reader.starts(), cycle + 1);
    }
    while read < 100_000 {
        assert!(reader.wait(1, None));
        let at = file.stream_position().unwrap();
        assert!(at <= read + 4096, "{at} taken, {read} read");
        read += pop(&mut reader);
    }
    assert_eq!(end_of(&source).end, CarryEnd::EndOfInput);
}

#[test]
fn a_reader_that_waits_for_more_than_b_start_makes_the_source_go_on() {
    let pump = IoPump::start().unwrap();
    for (form, level, start_level) in [
        (BYTES, 4096, 1024),
        (BYTES, 4096, 0),
        (BYTES, 4000, 1),
        (StreamForm::Slots { slots: 8, slot_bytes: 64 }, 8, 2),
        (StreamForm::Messages { capacity: 1024 }, 1024, 8),
    ] {
        let stream = Stream::create(form, start_level).unwrap();
        let mut reader = stream.reader().unwrap();
        let content = noise(50_000);
        let _source = pump.source(file_of(&content), stream.writer().unwrap()).unwrap();
        let (mut all, mut bytes) = (Vec::new(), [0; 1024]);
        loop {
            // First a little, then as much as the stream holds.
            let deadline = clock::after(MINUTE);
            assert!(reader.wait(level, Some(deadline)), "{form:?}: nothing comes any more");
            match reader.pop(&mut bytes) {
                Ok(Some(len)) => all.extend_from_slice(&bytes[..len]),
                Ok(None) => panic!("woken without data"),
                Err(_) => break,
            }
        }
        assert!(all == content && reader.closed() == Some(Closed::Ended));
    }
}

#[test]
fn an_active_source_waits_for_input_and_finds_that_the_reader_is_gone() {
    let pump = IoPump::start().unwrap();
    let stream = Stream::create(BYTES, 0).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let source = pump.source(theirs, stream.writer().unwrap()).unwrap();
    let mut reader = stream.reader().unwrap();
    for round in 0..50u8 {
        (&ours).write_all(&[round; 3]).unwrap();
        let mut got = Vec::new();
        while got.len() < 3 {
            assert!(reader.wait(1, None));
            let mut bytes = [0; 3];
            let len = reader.pop(&mut bytes).unwrap().unwrap();
            got.extend_from_slice(&bytes[..len]);
            reader.release();
        }
        assert_eq!(got, [round; 3]);
    }
    assert!(source.wait(Some(clock::now())).is_none());
    drop(reader);
    let ended = Carried { bytes: 150, too_long: 0, end: CarryEnd::Closed(Closed::Ended) };
    assert_eq!(end_of(&source), ended);
}

#[test]
fn a_descriptor_that_fails_kills_the_end_and_gives_the_reason() {
    let pump = IoPump::start().unwrap();
    // The pipe has no reader.
    let stream = Stream::create(BYTES, 0).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let sink = pump.sink(stream.reader().unwrap(), writer).unwrap();
    drop(reader);
    let mut writer = stream.writer().unwrap();
    assert!(writer.push(b"lost").unwrap());
    writer.commit().unwrap();
    let Carried { bytes: 0, too_long: 0, end: CarryEnd::Failed(error) } = end_of(&sink) else {
        panic!()
    };
    assert_eq!(error.to_string(), "write: Broken pipe (EPIPE)");
    assert_eq!(writer.commit(), Err(Closed::Died));
    // A directory cannot be read.
    let stream = Stream::create(BYTES, 0).unwrap();
    let directory = std::fs::File::open("/").unwrap();
    let source = pump.source(directory, stream.writer().unwrap()).unwrap();
    let Carried { bytes: 0, too_long: 0, end: CarryEnd::Failed(error) } = end_of(&source) else {
        panic!()
    };
    assert_eq!(error.to_string(), "read: Is a directory (EISDIR)");
    let mut reader = stream.reader().unwrap();
    assert_eq!(read_all(&mut reader), (Vec::new(), Closed::Died));
}

#[test]
fn a_full_device_leaves_unwritten_data_in_the_stream() {
    let pump = IoPump::start().unwrap();
    let stream = Stream::create(BYTES, 0).unwrap();
    let mut writer = stream.writer().unwrap();
    assert!(writer.push(&noise(1000)).unwrap());
    writer.commit().unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let sink = pump.sink(stream.reader().unwrap(), full).unwrap();
    let Carried { bytes: 0, too_long: 0, end: CarryEnd::Failed(error) } = end_of(&sink) else {
        panic!()
    };
    assert_eq!(error.to_string(), "write: No space left on device (ENOSPC)");
    assert_eq!(writer.level(), 1000);
}

#[test]
fn a_stopped_io_pump_leaves_ends_that_died() {
    let pump = IoPump::start().unwrap();
    let stream = Stream::create(BYTES, 0).unwrap();
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let source = pump.source(theirs, stream.writer().unwrap()).unwrap();
    drop(pump);
    assert_eq!(end_of(&source), Carried { bytes: 0, too_long: 0, end: CarryEnd::Stopped });
    assert_eq!(read_all(&mut stream.reader().unwrap()), (Vec::new(), Closed::Died));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(60)),
        }
    }
}

#[test]
fn bytes_are_written_and_read_by_asynchronous_code() {
    let pump = IoPump::start().unwrap();
    let content = noise(300_001);
    for form in [
        BYTES,
        StreamForm::Messages { capacity: 2048 },
        StreamForm::Slots { slots: 4, slot_bytes: 64 },
    ] {
        let stream = Stream::create(form, 0).unwrap();
        let mut writer = pump.writer(stream.writer().unwrap()).unwrap();
        let mut reader = pump.reader(stream.reader().unwrap()).unwrap();
        let got = std::thread::scope(|threads| {
            threads.spawn(|| {
                block_on(async {
                    let mut left = &content[..];
                    while !left.is_empty() {
                        let write = |context: &mut Context<'_>| {
                            Pin::new(&mut writer).poll_write(context, left)
                        };
                        let len = poll_fn(write).await.unwrap();
                        left = &left[len..];
                    }
                    poll_fn(|context| Pin::new(&mut writer).poll_close(context)).await.unwrap();
                });
            });
            block_on(async {
                let (mut all, mut bytes) = (Vec::new(), [0; 100]);
                loop {
                    let read = |context: &mut Context<'_>| {
                        Pin::new(&mut reader).poll_read(context, &mut bytes)
                    };
                    match poll_fn(read).await.unwrap() {
                        0 => return all,
                        len => all.extend_from_slice(&bytes[..len]),
                    }
                }
            })
        });
        assert!(got == content, "{form:?}: other bytes");
    }
}

#[test]
fn messages_are_awaited_one_by_one_and_then_the_death_of_the_writer() {
    let pump = IoPump::start().unwrap();
    let stream = Stream::create(StreamForm::Slots { slots: 4, slot_bytes: 8 }, 0).unwrap();
    let mut writer = stream.writer().unwrap();
    let mut reader = pump.reader(stream.reader().unwrap()).unwrap();
    let writer = std::thread::spawn(move || {
        for number in 0..100u8 {
            while !writer.push(&[number, 0, 0][..usize::from(number % 4)]).unwrap() {
                assert!(writer.wait(8, None));
            }
            writer.commit().unwrap();
        }
        // Dropped by a panic.
        assert!(writer.level() > 4, "on purpose");
    });
    let mut lens = Vec::new();
    let last = block_on(async {
        loop {
            match poll_fn(|context| Pin::new(&mut reader).poll_next(context)).await {
                Some(Ok(message)) => lens.push(message.len()),
                last => return last,
            }
        }
    });
    assert_eq!(last, Some(Err(Closed::Died)));
    assert!(lens.iter().copied().eq((0..100).map(|number| number % 4).map(|len| len.min(3))));
    assert!(writer.join().is_err());
}

/// Each datagram of a socket is one whole message, even if the stream has little room at the time.
#[test]
fn each_datagram_is_one_message() {
    for form in [
        StreamForm::Messages { capacity: 4096 },
        StreamForm::Slots { slots: 4, slot_bytes: 1024 },
        StreamForm::Buffers { buffers: 4, buffer_bytes: 1024 },
    ] {
        let pump = IoPump::start().unwrap();
        let stream = Stream::create(form, 0).unwrap();
        let mut reader = stream.reader().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = socket.local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        // All datagrams wait in the socket, more than the stream holds: 40 of up to 1,000
        // bytes.
        let lens: Vec<usize> = (0..40).map(|n| [1000, 0, 7, 500][n % 4]).collect();
        for (n, &len) in (0..).zip(&lens) {
            sender.send_to(&vec![n; len], target).unwrap();
        }
        let source = pump.source(socket, stream.writer().unwrap()).unwrap();
        let mut bytes = [0; 1024];
        for (n, &len) in (0..).zip(&lens) {
            assert!(reader.wait(1, None));
            // The source finds little room meanwhile.
            settle(&pump);
            assert_eq!(reader.pop(&mut bytes), Ok(Some(len)), "{form:?}: datagram {n}");
            assert_eq!(bytes[..len], vec![n; len]);
            reader.release();
        }
        drop(pump);
        let bytes = lens.iter().sum::<usize>() as u64;
        assert_eq!(end_of(&source), Carried { bytes, too_long: 0, end: CarryEnd::Stopped });
    }
}

#[test]
fn a_datagram_longer_than_a_message_is_dropped_whole_and_counted() {
    let pump = IoPump::start().unwrap();
    let stream = Stream::create(StreamForm::Slots { slots: 4, slot_bytes: 64 }, 0).unwrap();
    let mut reader = stream.reader().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = socket.local_addr().unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let source = pump.source(socket, stream.writer().unwrap()).unwrap();
    for len in [64, 65, 1_000, 63] {
        sender.send_to(&vec![1; len], target).unwrap();
    }
    for len in [64, 63] {
        assert!(reader.wait(1, None));
        assert_eq!(reader.pop(&mut [0; 64]), Ok(Some(len)));
        reader.release();
    }
    drop(pump);
    let stopped = Carried { bytes: 127, too_long: 2, end: CarryEnd::Stopped };
    assert_eq!(end_of(&source), stopped);
}
