//! A stream from one domain to another on the same CPU.

use super::*;

use upcall_runtime::Notice;
use upcall_runtime::stream::{Stream, StreamForm};

/// Counts the PDUs that the writer has done, and records the count at which the reader ran.
#[test]
fn a_reader_in_another_domain_preempts_the_writer_only_if_it_outranks_it() {
    for (reader_period_ms, comes_between) in [(50, true), (900, false)] {
        let daemon = Running::start(|_| {});
        let (mut ours, mut theirs) = (daemon.domain("writes"), daemon.domain("reads"));
        let is_real_time = !ours.notices().iter().any(|notice| {
            matches!(notice, Notice::NoRealTimeDaemon { .. } | Notice::NoRealTimeClass(_))
        });
        let stream = Stream::create(StreamForm::Slots { slots: 16, slot_bytes: 8 }, 0).unwrap();
        let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let (done, read_at) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(u32::MAX)));
        let (count, seen, noted) = (done.clone(), done, read_at.clone());
        let reader = theirs
            .stream_reader_handler(
                "reader",
                params(reader_period_ms),
                reader,
                2,
                move |reader, batch| {
                    while let Some(message) = reader.next(batch) {
                        message.done();
                    }
                    noted.store(seen.load(Ordering::Relaxed), Ordering::Relaxed);
                    batch.finish();
                },
            )
            .unwrap();
        let need = params(400).batch(10);
        let writer = ours
            .handler("writer", need, move |batch| {
                while batch.proceed() {
                    let pdu = count.fetch_add(1, Ordering::Relaxed);
                    if pdu == 2 || pdu == 4 {
                        assert!(writer.push(&[1; 8]).unwrap());
                        writer.commit().unwrap();
                    }
                }
                if batch.remaining() == 0 {
                    batch.finish();
                }
            })
            .unwrap();
        theirs.run(reader).unwrap();
        // The reader sleeps by then and has published that it has no work.
        std::thread::sleep(Duration::from_millis(50));
        ours.run(writer).unwrap();
        assert_eq!(
            ours.wait(&[writer], Some(upcall_runtime::clock::after(Span::from_secs(60)))),
            [writer]
        );
        assert_eq!(
            theirs.wait(&[reader], Some(upcall_runtime::clock::after(Span::from_secs(60)))),
            [reader]
        );
        let read_at = read_at.load(Ordering::Relaxed);
        if is_real_time {
            assert_eq!(read_at, if comes_between { 5 } else { 10 });
        } else {
            assert!((5..=10).contains(&read_at), "{read_at}");
        }
        drop((ours, theirs));
        let events = daemon.stop();
        assert!(
            !events.iter().any(|event| matches!(event, DaemonEvent::Offence { .. })),
            "{events:?}"
        );
    }
}
