//! The protocol in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release stream`

use super::*;
use crate::edge::{Edge, check, each_breaks};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// Memory that both ends own. Loom does not track this `Arc`.
type Memory = Arc<[AtomicU64]>;

/// A model of a futex, as in the loom tests of the turn page.
#[derive(Default)]
struct Futex(Mutex<()>, Condvar);

impl Futex {
    fn wait(&self, word: &AtomicU64) {
        let guard = self.0.lock().unwrap();
        if word.load(Relaxed) == u64::from(WAITING) {
            drop(self.1.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        let _guard = self.0.lock().unwrap();
        self.1.notify_one();
    }
}

fn ends(form: StreamForm, start_level: u64) -> (Writer<Memory>, Reader<Memory>) {
    let words: Memory = (0..form.words().unwrap()).map(|_| AtomicU64::new(0)).collect();
    Stream::create(words.clone(), form, 0, start_level).unwrap();
    let end = || Stream::attach(words.clone(), 0).unwrap();
    (end().writer().unwrap(), end().reader().unwrap())
}

const SLOTS: StreamForm = StreamForm::Slots { slots: 2, slot_bytes: 8 };
const BUFFERS: StreamForm = StreamForm::Buffers { buffers: 1, buffer_bytes: 8 };

/// The writer commits a batch of two and ends the stream. The reader polls twice.
fn a_batch_is_handed_over() {
    let (mut writer, mut reader) = ends(SLOTS, 0);
    let other = thread::spawn(move || {
        assert!(writer.push(&[5; 8]).unwrap() && writer.push(&[6; 8]).unwrap());
        let _ = writer.commit();
        let _ = writer.end();
    });
    let mut expected = 5;
    for _ in 0..3 {
        let mut bytes = [0; 8];
        match reader.pop(&mut bytes) {
            Ok(Some(len)) => assert_eq!((len, bytes), (8, [expected; 8]), "read too early"),
            Ok(None) => continue,
            Err(_) => {
                assert_eq!(expected, 7, "lost what was committed");
                break;
            }
        }
        expected += 1;
    }
    other.join().unwrap();
}

/// The reader waits for two messages. The writer commits each one separately.
fn the_level_is_waited_for() {
    let (mut writer, mut reader) = ends(SLOTS, 0);
    let futex = Arc::new(Futex::default());
    let other = {
        let futex = futex.clone();
        thread::spawn(move || {
            for number in [5, 6] {
                assert!(writer.push(&[number; 8]).unwrap());
                if writer.commit().unwrap().wake {
                    futex.wake();
                }
            }
        })
    };
    if reader.wait(2).sleep {
        futex.wait(reader.wait_word());
        assert!(reader.finish_wait());
    }
    assert_eq!(reader.level(), Ok(2), "woken too early");
    other.join().unwrap();
}

/// The reader waits; the writer ends.
fn the_end_is_waited_for() {
    let (writer, mut reader) = ends(SLOTS, 0);
    let futex = Arc::new(Futex::default());
    let other = {
        let futex = futex.clone();
        thread::spawn(move || {
            if writer.end() {
                futex.wake();
            }
        })
    };
    if reader.wait(1).sleep {
        futex.wait(reader.wait_word());
        assert!(reader.finish_wait());
    }
    assert_eq!(reader.front().unwrap_err(), Closed::Ended);
    other.join().unwrap();
}

/// A buffer comes back while the writer has the other one. The word that will hold its number held
/// the number of the other.
fn a_buffer_comes_back() {
    let (mut writer, mut reader) = ends(StreamForm::Buffers { buffers: 2, buffer_bytes: 8 }, 0);
    assert!(writer.push(&[1; 8]).unwrap() && writer.push(&[2; 8]).unwrap());
    let _ = writer.commit();
    reader.front().unwrap().unwrap().done();
    let _ = reader.release();
    assert!(writer.reserve(8).unwrap().is_some());
    let other = thread::spawn(move || {
        reader.front().unwrap().unwrap().done();
        let _ = reader.release();
    });
    let _ = writer.wait(8);
    writer.finish_wait();
    let pushed = writer.push(&[3; 8]).and_then(|_| writer.push(&[4; 8]));
    assert!(pushed.is_ok(), "was given back too early");
    other.join().unwrap();
}

/// The writer waits for its only buffer.
fn room_is_waited_for() {
    let (mut writer, mut reader) = ends(BUFFERS, 0);
    assert!(writer.push(&[1; 8]).unwrap());
    let _ = writer.commit();
    let futex = Arc::new(Futex::default());
    let other = {
        let futex = futex.clone();
        thread::spawn(move || {
            reader.front().unwrap().unwrap().done();
            if reader.release().wake {
                futex.wake();
            }
        })
    };
    if writer.wait(8).sleep {
        futex.wait(writer.wait_word());
        assert!(writer.finish_wait());
    }
    assert!(writer.push(&[2; 8]).unwrap(), "woken too early");
    other.join().unwrap();
}

/// The reader watches its wait word, and then sleeps on it. If it sleeps, it is woken.
fn the_level_is_watched_for() {
    let words: Memory = (0..SLOTS.words().unwrap()).map(|_| AtomicU64::new(0)).collect();
    let stream = Stream::create(words.clone(), SLOTS, 0, 0).unwrap();
    let end = || Stream::attach(words.clone(), 0).unwrap();
    let (mut writer, mut reader) = (end().writer().unwrap(), end().reader().unwrap());
    let futex = Arc::new(Futex::default());
    let other = {
        let futex = futex.clone();
        thread::spawn(move || {
            assert!(writer.push(&[5; 8]).unwrap());
            if writer.commit().unwrap().wake {
                futex.wake();
            }
        })
    };
    if reader.watch(1).sleep {
        if stream.prepare_wait(End::Reader) {
            futex.wait(reader.wait_word());
            assert!(!stream.cancel_wait(End::Reader), "woken for nothing");
        }
        assert!(stream.is_notified(End::Reader) && reader.finish_wait());
    }
    assert_eq!(reader.level(), Ok(1), "woken too early");
    other.join().unwrap();
}

/// As [`the_level_is_watched_for`], for the writer and its room. With a `B_start`, for a source
/// that rests.
fn room_is_watched_for_with(start_level: u64) {
    let words: Memory = (0..BUFFERS.words().unwrap()).map(|_| AtomicU64::new(0)).collect();
    let stream = Stream::create(words.clone(), BUFFERS, 0, start_level).unwrap();
    let end = || Stream::attach(words.clone(), 0).unwrap();
    let (mut writer, mut reader) = (end().writer().unwrap(), end().reader().unwrap());
    assert!(writer.push(&[1; 8]).unwrap());
    let _ = writer.commit();
    let futex = Arc::new(Futex::default());
    let other = {
        let futex = futex.clone();
        thread::spawn(move || {
            reader.front().unwrap().unwrap().done();
            if reader.release().wake {
                futex.wake();
            }
            reader
        })
    };
    if writer.watch(1).sleep {
        if stream.prepare_wait(End::Writer) {
            futex.wait(writer.wait_word());
            assert!(!stream.cancel_wait(End::Writer), "woken for nothing");
        }
        assert!(stream.is_notified(End::Writer) && writer.finish_wait());
    }
    assert!(writer.push(&[2; 8]).unwrap(), "woken too early");
    other.join().unwrap();
}

fn room_is_watched_for() {
    room_is_watched_for_with(0);
}

fn a_start_is_watched_for() {
    room_is_watched_for_with(1);
}

/// A source rests and sleeps until it is started.
fn a_source_waits_to_be_started() {
    let (mut writer, mut reader) = ends(SLOTS, 1);
    assert!(writer.push(&[1; 8]).unwrap());
    let _ = writer.commit();
    let futex = Arc::new(Futex::default());
    let other = {
        let futex = futex.clone();
        thread::spawn(move || {
            reader.front().unwrap().unwrap().done();
            let due = reader.release();
            if due.wake {
                futex.wake();
            }
            (due.start, reader)
        })
    };
    let wait = writer.rest_until_started();
    if wait.sleep {
        futex.wait(writer.wait_word());
        assert!(writer.finish_wait());
    }
    assert_eq!(other.join().unwrap().0, wait.sleep, "started twice, or not at all");
}

/// A source rests above `B_start`, and the reader waits for more.
fn a_source_at_rest_is_waited_for() {
    let (mut writer, mut reader) = ends(SLOTS, 1);
    let futexes = Arc::new((Futex::default(), Futex::default()));
    let other = {
        let futexes = futexes.clone();
        thread::spawn(move || {
            assert!(writer.push(&[5; 8]).unwrap());
            let wait = writer.rest_until_started();
            if wait.sleep {
                futexes.1.wait(writer.wait_word());
                assert!(writer.finish_wait());
            }
            assert!(writer.push(&[6; 8]).unwrap());
            if writer.commit().unwrap().wake {
                futexes.0.wake();
            }
        })
    };
    let wait = reader.wait(2);
    if wait.due.wake {
        futexes.1.wake();
    }
    if wait.sleep {
        futexes.0.wait(reader.wait_word());
        assert!(reader.finish_wait());
    }
    assert_eq!(reader.level(), Ok(2), "woken too early");
    other.join().unwrap();
}

/// A source rests while the level falls. One of the two ends makes it go on.
fn a_source_goes_to_rest() {
    let (mut writer, mut reader) = ends(SLOTS, 1);
    assert!(writer.push(&[1; 8]).unwrap());
    let _ = writer.commit();
    let other = thread::spawn(move || {
        reader.front().unwrap().unwrap().done();
        reader.release().start
    });
    let goes_on = writer.rest().1;
    let started = other.join().unwrap();
    assert!(goes_on || started, "rests for ever");
    assert!(!(goes_on && started), "started twice");
}

#[test]
fn a_batch_is_read_whole_and_then_the_end_is_found() {
    check(None, a_batch_is_handed_over);
}

#[test]
fn no_wake_is_lost_and_none_comes_too_early() {
    check(None, the_level_is_waited_for);
    check(None, the_level_is_watched_for);
    check(None, the_end_is_waited_for);
    check(None, room_is_waited_for);
    check(None, room_is_watched_for);
    check(None, a_start_is_watched_for);
}

#[test]
fn a_buffer_that_comes_back_is_known() {
    check(None, a_buffer_comes_back);
}

#[test]
fn a_source_that_rests_is_started_once() {
    check(None, a_source_goes_to_rest);
    check(None, a_source_waits_to_be_started);
    check(None, a_source_at_rest_is_waited_for);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::StreamIndexStore, a_batch_is_handed_over, "read too early"),
        (Edge::StreamIndexLoad, a_batch_is_handed_over, "read too early"),
        (Edge::StreamGoneLoad, a_batch_is_handed_over, "lost what was committed"),
        (Edge::StreamIndexStore, a_buffer_comes_back, "was given back too early"),
        (Edge::StreamIndexLoad, a_buffer_comes_back, "was given back too early"),
        (Edge::StreamPublishFence, the_level_is_waited_for, "deadlock"),
        (Edge::StreamWaitFence, the_level_is_waited_for, "deadlock"),
        (Edge::StreamPublishFence, room_is_waited_for, "deadlock"),
        (Edge::StreamPublishFence, room_is_watched_for, "deadlock"),
        (Edge::StreamWaitFence, room_is_watched_for, "deadlock"),
        (Edge::StreamWaitFinish, room_is_watched_for, "woken too early"),
        (Edge::StreamRestFence, a_start_is_watched_for, "deadlock"),
        (Edge::StreamPublishFence, the_level_is_watched_for, "deadlock"),
        (Edge::StreamWaitFence, the_level_is_watched_for, "deadlock"),
        (Edge::StreamWaitFinish, the_level_is_watched_for, "woken too early"),
        (Edge::StreamLeaveFence, the_end_is_waited_for, "deadlock"),
        (Edge::StreamWaitFence, the_end_is_waited_for, "deadlock"),
        (Edge::StreamWaitStore, the_level_is_waited_for, "woken too early"),
        (Edge::StreamWaitLoad, the_level_is_waited_for, "woken too early"),
        (Edge::StreamWaitFinish, the_level_is_waited_for, "woken too early"),
        (Edge::StreamPublishFence, a_source_goes_to_rest, "rests for ever"),
        (Edge::StreamRestFence, a_source_goes_to_rest, "rests for ever"),
        (Edge::StreamRestFence, a_source_waits_to_be_started, "deadlock"),
        (Edge::StreamRestFence, a_source_at_rest_is_waited_for, "deadlock"),
        (Edge::StreamWaitFence, a_source_at_rest_is_waited_for, "deadlock"),
    ]);
}
