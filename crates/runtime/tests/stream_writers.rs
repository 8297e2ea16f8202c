//! Tests of handlers that write streams: when they are upcalled, in which order, and how they end.
//! The tests do not check deadlines, which depend on the machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use upcall_runtime::activity::Terms;
use upcall_runtime::admission::Share;
use upcall_runtime::discipline::{DWCS, DWS, Discipline, PS, RMDP};
use upcall_runtime::stream::{Closed, Stream, StreamReader, StreamWriter};
use upcall_runtime::{Batch, Config, Interrupt, Mode, Runtime};

use support::{SLOTS, a_minute, costing_us, cpu, ended, every_us};

fn start(mode: Mode, discipline: &'static Discipline) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { mode, cpus: vec![cpu()], discipline, ..Config::default() })
}

fn soon() {
    std::thread::sleep(Duration::from_millis(2));
}

/// Waits for the next number, and gives it back at once.
fn read(reader: &mut StreamReader) -> Result<u64, Closed> {
    let mut bytes = [0; 8];
    loop {
        match reader.pop(&mut bytes) {
            Ok(Some(_)) => {
                reader.release();
                return Ok(u64::from_ne_bytes(bytes));
            }
            Ok(None) => assert!(reader.wait(1, a_minute()), "no number came"),
            Err(_) => return Err(reader.closed().unwrap()),
        }
    }
}

/// For each upcall, how many numbers were not yet read, and how many the handler wrote.
type Upcalls = Arc<Mutex<Vec<(u64, u64)>>>;

/// A handler that writes the numbers below `end`, as many as it may each time, and then ends the
/// stream.
fn write_all(
    upcalls: &Upcalls,
    end: u64,
) -> impl FnMut(&mut StreamWriter, &mut Batch<'_>) + Send + 'static {
    let (upcalls, mut number) = (upcalls.clone(), 0_u64);
    move |writer, batch| {
        let (level, first) = (writer.level(), number);
        while number < end
            && let Some(room) = writer.next(8, batch)
        {
            room.payload().fill(0, &number.to_ne_bytes());
            room.stage(8);
            number += 1;
        }
        upcalls.lock().unwrap().push((level, number - first));
        if number == end {
            writer.end();
        }
    }
}

#[test]
fn a_handler_is_upcalled_when_there_is_room_for_its_level_and_not_before() {
    for (mode, discipline) in
        [(Mode::Upcall, &DWS), (Mode::Upcall, &RMDP), (Mode::Threads, &RMDP), (Mode::Fifo, &RMDP)]
    {
        let (mut runtime, _alone) = start(mode, discipline);
        let stream = Stream::create(SLOTS, 0).unwrap();
        let (writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let upcalls = Upcalls::default();
        let need = every_us(1_000).batch(64);
        let writes = write_all(&upcalls, 1_000);
        let id = runtime.stream_writer_handler("writer", need, writer, 16, writes).unwrap();
        runtime.run(id).unwrap();
        while upcalls.lock().unwrap().is_empty() {
            soon();
        }
        for number in 0..15 {
            assert_eq!(read(&mut reader), Ok(number));
            soon();
        }
        assert_eq!(*upcalls.lock().unwrap(), [(0, 64)], "upcalled without room for its level");
        assert_eq!(reader.wakes(), 0, "a system call although there is too little room");
        for number in 15..1_000 {
            assert_eq!(read(&mut reader), Ok(number));
        }
        assert_eq!(read(&mut reader), Err(Closed::Ended));
        ended(&mut runtime, id);
        let upcalls = upcalls.lock().unwrap();
        assert!(upcalls.iter().all(|&(level, _)| level <= 48), "{upcalls:?}");
        assert!(upcalls.len() <= 2 + (1_000 - 64) / 16, "{upcalls:?}");
        assert!(reader.wakes() >= 1 && reader.wakes() <= upcalls.len() as u64, "{upcalls:?}");
    }
}

#[test]
fn a_source_is_started_below_b_start_and_not_earlier() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 8).unwrap();
    let (writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let upcalls = Upcalls::default();
    let need = costing_us(every_us(500), 6).batch(64);
    let writes = write_all(&upcalls, 640);
    let id = runtime.stream_writer_handler("source", need, writer, 1, writes).unwrap();
    let beats = Arc::new(AtomicU64::new(0));
    let beating = beats.clone();
    let beat = runtime.handler("beat", every_us(1_000), move |batch| {
        while batch.proceed() {}
        beating.fetch_add(1, Ordering::Relaxed);
    });
    runtime.run(beat.unwrap()).unwrap();
    runtime.run(id).unwrap();
    // The executor has upcalled other handlers since, so it has made its decisions.
    let settle = || {
        let seen = beats.load(Ordering::Relaxed);
        while beats.load(Ordering::Relaxed) < seen + 2 {
            soon();
        }
    };
    let mut starts = None;
    for number in 0..640 {
        if starts != Some(reader.starts()) {
            starts = Some(reader.starts());
            while reader.level().unwrap() < 64.min(640 - number) {
                soon();
            }
            settle(); // full, it rests
        }
        assert_eq!(read(&mut reader), Ok(number));
        if number % 57 == 40 {
            settle(); // it is not started by what is there above
        }
    }
    assert_eq!(read(&mut reader), Err(Closed::Ended));
    ended(&mut runtime, id);
    let upcalls = upcalls.lock().unwrap();
    assert!(upcalls.iter().all(|&(level, _)| level < 8), "started too early: {upcalls:?}");
    assert_eq!(reader.starts(), 11);
}

#[test]
fn a_source_at_rest_goes_on_for_a_reader_that_waits_for_more() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 8).unwrap();
    let (writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let upcalls = Upcalls::default();
    let writes = write_all(&upcalls, 100);
    let id = runtime
        .stream_writer_handler("source", every_us(500).batch(64), writer, 1, writes)
        .unwrap();
    runtime.run(id).unwrap();
    assert!(reader.wait(64, a_minute()));
    (0..20).for_each(|number| assert_eq!(read(&mut reader), Ok(number)));
    // There are 44, far above `B_start`.
    assert!(reader.wait(56, a_minute()), "the source rests forever");
    assert_eq!(reader.level(), Ok(64));
    drop(reader);
    ended(&mut runtime, id);
}

#[test]
fn a_writer_and_a_reader_of_one_cpu_take_turns_without_a_system_call() {
    for start_level in [0, 16] {
        let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
        let stream = Stream::create(SLOTS, start_level).unwrap();
        let (writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let (upcalls, wakes) = (Upcalls::default(), Arc::new(Mutex::new([u64::MAX; 2])));
        let mut writes = write_all(&upcalls, 2_000);
        let (by_writer, by_reader) = (wakes.clone(), wakes.clone());
        let numbers = Arc::new(Mutex::new(Vec::new()));
        let taken = numbers.clone();
        let need = every_us(500).batch(32);
        let writer = runtime
            .stream_writer_handler("writer", need, writer, 16, move |writer, batch| {
                writes(writer, batch);
                by_writer.lock().unwrap()[0] = writer.wakes();
            })
            .unwrap();
        let reader = runtime
            .stream_reader_handler("reader", need, reader, 32, move |reader, batch| {
                while let Some(message) = reader.next(batch) {
                    let mut bytes = [0; 8];
                    message.payload().copy_to(0, &mut bytes);
                    message.done();
                    taken.lock().unwrap().push(u64::from_ne_bytes(bytes));
                }
                by_reader.lock().unwrap()[1] = reader.wakes();
            })
            .unwrap();
        runtime.run(reader).unwrap();
        runtime.run(writer).unwrap();
        ended(&mut runtime, writer);
        ended(&mut runtime, reader);
        assert_eq!(*numbers.lock().unwrap(), (0..2_000).collect::<Vec<u64>>());
        assert_eq!(*wakes.lock().unwrap(), [0, 0]);
    }
}

#[test]
fn a_writer_interrupts_an_outranked_handler_at_the_next_boundary_and_no_other() {
    for (writer_period_us, comes_between) in [(50_000, true), (900_000, false)] {
        let (mut runtime, _alone) = start(Mode::Upcall, &RMDP);
        let interrupts = Arc::new(Mutex::new(Vec::new()));
        let noted = interrupts.clone();
        runtime.on_interrupt(cpu(), move |kind| noted.lock().unwrap().push(kind)).unwrap();
        let stream = Stream::create(SLOTS, 0).unwrap();
        let (mut writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        while writer.push(&[0; 8]).unwrap() {}
        writer.commit().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (reads, writes) = (log.clone(), log.clone());
        let writer = runtime
            .stream_writer_handler(
                "writer",
                every_us(writer_period_us),
                writer,
                4,
                move |writer, batch| {
                    if let Some(room) = writer.next(8, batch) {
                        room.stage(8);
                        writes.lock().unwrap().push(1_000);
                    }
                    batch.finish();
                },
            )
            .unwrap();
        let reader = runtime
            .handler("reader", costing_us(every_us(500_000), 8_000).batch(10), move |batch| {
                while batch.proceed() {
                    let pdu = reads.lock().unwrap().iter().filter(|&&pdu| pdu < 1_000).count();
                    reads.lock().unwrap().push(pdu);
                    // The fourth read makes room for the level.
                    if (1..5).contains(&pdu) {
                        reader.front().unwrap().unwrap().done();
                        reader.release();
                    }
                }
                if batch.remaining() == 0 {
                    batch.finish();
                }
            })
            .unwrap();
        runtime.run(writer).unwrap();
        runtime.run(reader).unwrap();
        ended(&mut runtime, reader);
        ended(&mut runtime, writer);
        let mut expected: Vec<usize> = (0..10).collect();
        expected.insert(if comes_between { 5 } else { 10 }, 1_000);
        assert_eq!(*log.lock().unwrap(), expected);
        let told: &[Interrupt] = if comes_between { &[Interrupt::IoReady] } else { &[] };
        assert_eq!(*interrupts.lock().unwrap(), told);
        let _ = runtime.stop(|_, _| {});
    }
}

#[test]
fn a_handler_that_panics_is_a_dead_writer_and_its_committed_data_is_read() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let id = runtime
        .stream_writer_handler("writer", every_us(1_000).batch(8), writer, 1, |writer, batch| {
            assert!(batch.proceed() && writer.push(&7_u64.to_ne_bytes()).unwrap());
            writer.commit().unwrap();
            assert!(writer.push(&[8; 8]).unwrap());
            assert!(batch.aborting(), "panics with one message staged");
        })
        .unwrap();
    runtime.run(id).unwrap();
    ended(&mut runtime, id);
    assert_eq!(read(&mut reader), Ok(7));
    assert_eq!(read(&mut reader), Err(Closed::Died));
    assert!(runtime.stop(|_, _| {}).activities[0].faulted);
}

#[test]
fn a_handler_that_waits_for_room_is_finished_when_its_reader_goes() {
    let (mut runtime, _alone) = start(Mode::Upcall, &DWS);
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let (upcalls, closed) = (Upcalls::default(), Arc::new(Mutex::new(None)));
    let (mut writes, found) = (write_all(&upcalls, u64::MAX), closed.clone());
    let id = runtime
        .stream_writer_handler(
            "writer",
            every_us(1_000).batch(64),
            writer,
            64,
            move |writer, batch| {
                writes(writer, batch);
                *found.lock().unwrap() = writer.closed();
            },
        )
        .unwrap();
    runtime.run(id).unwrap();
    while upcalls.lock().unwrap().is_empty() {
        soon();
    }
    drop(reader);
    ended(&mut runtime, id);
    assert_eq!(*upcalls.lock().unwrap(), [(0, 64), (64, 0)]);
    assert_eq!(*closed.lock().unwrap(), Some(Closed::Ended));
}

/// Both handlers are released by the stream alone, and no number is lost where DWCS drops a job.
#[test]
fn a_writer_and_a_reader_work_under_ps_and_dwcs() {
    let share = Terms { share: Share::from_ppm(100_000), ..Terms::default() };
    let weight = Terms { weight: Some(3), ..Terms::default() };
    for (discipline, terms) in [(&PS, share), (&PS, weight), (&DWCS, Terms::default())] {
        let (mut runtime, _alone) = start(Mode::Upcall, discipline);
        let stream = Stream::create(SLOTS, 0).unwrap();
        let (writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
        let need = || (costing_us(every_us(20_000).batch(16), 5), terms);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let read = move |reader: &mut StreamReader, batch: &mut Batch<'_>| {
            while let Some(message) = reader.next(batch) {
                let mut bytes = [0; 8];
                message.payload().copy_to(0, &mut bytes);
                message.done();
                noted.lock().unwrap().push(u64::from_ne_bytes(bytes));
            }
        };
        let mut number = 0_u64;
        let write = move |writer: &mut StreamWriter, batch: &mut Batch<'_>| {
            while number < 400 && batch.proceed() {
                if !writer.push(&number.to_ne_bytes()).unwrap_or(false) {
                    return;
                }
                number += 1;
            }
            if number == 400 {
                writer.end();
            }
        };
        let reader = runtime.stream_reader_handler("reader", need(), reader, 4, read).unwrap();
        let writer = runtime.stream_writer_handler("writer", need(), writer, 8, write).unwrap();
        runtime.run(reader).unwrap();
        runtime.run(writer).unwrap();
        ended(&mut runtime, writer);
        ended(&mut runtime, reader);
        let seen = seen.lock().unwrap();
        assert_eq!(*seen, (0..400).collect::<Vec<u64>>(), "{discipline:?} {terms:?}");
    }
}
