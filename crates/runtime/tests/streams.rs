//! Tests of handlers that read streams, on real threads in one process: order, counts, and that no
//! committed data is lost. The tests do not check deadlines, which depend on the machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
#[path = "support/stream_handlers.rs"]
mod stream_handlers;
#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::{Arc, Mutex};

use upcall_runtime::activity::{ParamError, Terms, WorkClass};
use upcall_runtime::discipline::{DWS, RMDP};
use upcall_runtime::stream::{Closed, Stream, StreamForm};
use upcall_runtime::time::Span;
use upcall_runtime::{CreateError, Interrupt, Mode, clock};

use stream_handlers::{Shown, start, take_all, write};
use support::{SLOTS, a_minute, costing_us, cpu, ended, every_us};

#[test]
fn a_handler_is_upcalled_when_its_level_is_reached_and_not_before() {
    for (mode, discipline) in
        [(Mode::Upcall, &DWS), (Mode::Upcall, &RMDP), (Mode::Threads, &RMDP), (Mode::Fifo, &RMDP)]
    {
        let (mut runtime, _alone) = start(mode, discipline);
        let stream = Stream::create(SLOTS, 0).unwrap();
        assert_eq!(stream.form().unwrap(), SLOTS);
        let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let seen = Shown::default();
        let need = every_us(1_000).batch(8);
        let id = runtime.stream_reader_handler("reader", need, reader, 4, take_all(&seen)).unwrap();
        runtime.run(id).unwrap();
        for number in 0..3 {
            write(&mut writer, number).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        assert!(seen.lock().unwrap().counts.is_empty(), "upcalled below its level");
        assert_eq!(writer.wakes(), 0, "a system call although the level is not reached");
        for number in 3..100 {
            write(&mut writer, number).unwrap();
        }
        let wakes = writer.wakes();
        drop(writer);
        ended(&mut runtime, id);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.numbers, (0..100).collect::<Vec<u64>>());
        assert_eq!(seen.closed, Some(Closed::Ended));
        // Only the last upcall may find less than the level.
        let before = &seen.counts[..seen.counts.len().saturating_sub(2)];
        assert!(before.iter().all(|&count| count >= 4), "{seen:?}");
        assert!(wakes >= 1 && wakes <= seen.counts.len() as u64, "{wakes} wakes, {seen:?}");
    }
}

/// The writer has four buffers. The reader keeps all, and gives them back in another order.
#[test]
fn a_writer_finds_room_once_kept_buffers_are_given_back() {
    let form = StreamForm::Buffers { buffers: 4, buffer_bytes: 64 };
    let stream = Stream::create(form, 0).unwrap();
    let (mut writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    for round in 0..3 {
        for number in 0..4 {
            assert!(writer.push(&[round, number]).unwrap());
        }
        writer.commit().unwrap();
        let mut kept = Vec::new();
        while let Some(message) = reader.front().unwrap() {
            kept.push(message.keep().unwrap());
        }
        reader.release();
        assert!(!writer.push(&[round]).unwrap(), "the reader keeps every buffer");
        for at in [2, 0, 1, 0] {
            let mut bytes = [0; 2];
            reader.kept(&kept[at]).copy_to(0, &mut bytes);
            assert_eq!(bytes[0], round);
            reader.give_back(kept.remove(at));
        }
        reader.release();
    }
}

#[test]
fn two_handlers_of_one_cpu_move_data_without_a_system_call() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let seen = Shown::default();
    let need = every_us(500).batch(16);
    let reader = runtime.stream_reader_handler("reader", need, reader, 2, take_all(&seen)).unwrap();
    let (mut number, wakes) = (0, Arc::new(Mutex::new(u64::MAX)));
    let counted = wakes.clone();
    let writer = runtime
        .handler("writer", every_us(2_000).batch(4), move |batch| {
            while number < 400 && batch.proceed() {
                assert!(writer.push(&u64::to_ne_bytes(number)).unwrap(), "the reader is behind");
                writer.commit().unwrap();
                number += 1;
            }
            *counted.lock().unwrap() = writer.wakes();
            if number == 400 {
                batch.finish();
            }
        })
        .unwrap();
    runtime.run(reader).unwrap();
    runtime.run(writer).unwrap();
    ended(&mut runtime, writer);
    assert_eq!(*wakes.lock().unwrap(), 0);
    // Dropping the writer ends the stream.
    assert!(runtime.close(writer).is_some());
    ended(&mut runtime, reader);
    assert_eq!(seen.lock().unwrap().numbers, (0..400).collect::<Vec<u64>>());
}

#[test]
fn a_reader_interrupts_an_outranked_handler_at_the_next_boundary_and_no_other() {
    for (reader_period_us, comes_between) in [(50_000, true), (900_000, false)] {
        let (mut runtime, _alone) = start(Mode::Upcall, &RMDP);
        let interrupts = Arc::new(Mutex::new(Vec::new()));
        let noted = interrupts.clone();
        runtime.on_interrupt(cpu(), move |kind| noted.lock().unwrap().push(kind)).unwrap();
        let stream = Stream::create(SLOTS, 0).unwrap();
        let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (reads, writes) = (log.clone(), log.clone());
        let reader = runtime
            .stream_reader_handler(
                "reader",
                every_us(reader_period_us),
                reader,
                1,
                move |reader, batch| {
                    if let Some(message) = reader.next(batch) {
                        message.done();
                        reads.lock().unwrap().push(1_000);
                    }
                    batch.finish();
                },
            )
            .unwrap();
        let writer = runtime
            .handler("writer", costing_us(every_us(500_000), 8_000).batch(10), move |batch| {
                let resumed = batch.resumed();
                while batch.proceed() {
                    let pdu = writes.lock().unwrap().iter().filter(|&&pdu| pdu < 1_000).count();
                    writes.lock().unwrap().push(pdu);
                    if pdu == 4 && !resumed {
                        assert!(writer.push(&[0; 8]).unwrap());
                        writer.commit().unwrap();
                    }
                }
                if batch.remaining() == 0 {
                    batch.finish();
                }
            })
            .unwrap();
        runtime.run(reader).unwrap();
        runtime.run(writer).unwrap();
        ended(&mut runtime, writer);
        ended(&mut runtime, reader);
        let mut expected: Vec<usize> = (0..10).collect();
        expected.insert(if comes_between { 5 } else { 10 }, 1_000);
        assert_eq!(*log.lock().unwrap(), expected);
        let told: &[Interrupt] = if comes_between { &[Interrupt::IoReady] } else { &[] };
        assert_eq!(*interrupts.lock().unwrap(), told);
        let _ = runtime.stop(|_, _| {});
    }
}

#[test]
fn the_batch_and_the_rate_limit_how_far_ahead_a_handler_works() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    for number in 0..40 {
        write(&mut writer, number).unwrap();
    }
    drop(writer);
    let seen = Shown::default();
    let terms = Terms { workahead_max: 2, ..Terms::default() };
    let need = (every_us(5_000).batch(8), terms);
    let id = runtime.stream_reader_handler("reader", need, reader, 1, take_all(&seen)).unwrap();
    let began = clock::now();
    runtime.run(id).unwrap();
    ended(&mut runtime, id);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.counts, [8, 8, 8, 8, 8]);
    // Five messages arrive a period apart. The last is processed at most two periods ahead.
    assert!(clock::now().since(began) >= Span::from_millis(10));
}

#[test]
fn invalid_streams_and_levels_are_refused_by_name() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let need = every_us(1_000).batch(0);
    let refused = runtime.stream_reader_handler("r", need, stream.reader().unwrap(), 1, |_, _| {});
    assert_eq!(refused, Err(CreateError::Params(ParamError::Batch(0))));
    assert!(stream.reader().is_err(), "an end is not taken twice");
    assert_eq!(stream.writer().unwrap().commit(), Err(Closed::Ended));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(Stream::from_fd(file.into()).is_err());
}

#[test]
fn a_handler_that_panics_is_a_dead_reader_and_a_suspended_one_reads_on() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let mut writer = stream.writer().unwrap();
    let reader = stream.reader().unwrap();
    let interactive = Terms { class: WorkClass::Interactive, ..Terms::default() };
    let seen = Shown::default();
    let mut take = take_all(&seen);
    let id = runtime
        .stream_reader_handler(
            "reader",
            (every_us(1_000).batch(8), interactive),
            reader,
            1,
            move |reader, batch| {
                take(reader, batch);
                assert!(!batch.aborting());
            },
        )
        .unwrap();
    runtime.run(id).unwrap();
    runtime.suspend(id);
    ended(&mut runtime, id);
    write(&mut writer, 7).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(seen.lock().unwrap().counts.is_empty());
    runtime.run(id).unwrap();
    while seen.lock().unwrap().numbers != [7] {
        std::thread::yield_now();
    }
    runtime.give_abort_phase(id);
    // The handler waits for its stream, and is upcalled for the abort phase even without data.
    let report = runtime.abort(Some(clock::after(Span::from_secs(60))), |_, _| {});
    assert!(report.unfinished.is_empty() && report.activities[0].faulted);
    assert_eq!(writer.push(&[0; 8]).and_then(|_| Ok(writer.commit()?)), Err(Closed::Died.into()));
}

#[test]
fn a_source_that_rests_is_started_once_below_b_start_and_an_active_one_runs_on() {
    let stream = Stream::create(SLOTS, 16).unwrap();
    let (mut writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let source = std::thread::spawn(move || {
        let mut levels = Vec::new();
        for _ in 0..5 {
            while writer.push(&[1; 8]).unwrap() {}
            assert!(writer.rest(a_minute()), "the source was never started");
            levels.push(writer.level());
        }
        levels
    });
    let mut read = 0;
    while read < 5 * 64 {
        assert!(reader.wait(1, a_minute()));
        if let Ok(Some(message)) = reader.front() {
            message.done();
            reader.release();
            read += 1;
        } else {
            break;
        }
    }
    let levels = source.join().unwrap();
    assert_eq!(reader.starts(), 5);
    assert!(levels.iter().all(|&level| level < 16), "started too early: {levels:?}");
}
