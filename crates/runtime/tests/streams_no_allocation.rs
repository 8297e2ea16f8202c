//! Tests the hot path of handlers that read streams: neither end allocates between the second
//! upcall and the hundredth. The test watches the whole process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::stream::{Stream, StreamForm};
use upcall_runtime::time::Span;
use upcall_runtime::{Config, Runtime};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

#[test]
fn a_stream_is_written_and_read_without_allocating() {
    let _watch = dhat::Profiler::builder().testing().build();
    let mut runtime = Runtime::start(Config::default()).unwrap();
    let stream = Stream::create(StreamForm::Buffers { buffers: 8, buffer_bytes: 64 }, 4).unwrap();
    let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let (before, after) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (first, last) = (before.clone(), after.clone());
    let need = ActivityParams::new(Span::from_micros(500), Span::from_micros(10)).batch(2);
    let mut round = 0;
    let id = runtime
        .stream_reader_handler("reader", need, reader, 2, move |reader, batch| {
            while let Some(message) = reader.next(batch) {
                message.done();
            }
            round += 1;
            if round == 2 || round == 100 {
                let seen = if round == 2 { &first } else { &last };
                seen.store(dhat::HeapStats::get().total_blocks, Ordering::Release);
            }
        })
        .unwrap();
    std::thread::sleep(Duration::from_millis(20));
    runtime.run(id).unwrap();
    while after.load(Ordering::Acquire) == 0 {
        // The writer sleeps for room, and rests now and then.
        while !writer.push(&[7; 64]).unwrap() {
            writer.rest(None);
            writer.wait(64, None);
        }
        writer.commit().unwrap();
    }
    assert_eq!(after.load(Ordering::Acquire), before.load(Ordering::Acquire));
    // Checks that the test can fail: an allocation is counted.
    drop(std::hint::black_box(Box::new(1)));
    assert!(dhat::HeapStats::get().total_blocks > after.load(Ordering::Acquire));
}
