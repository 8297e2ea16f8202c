//! Waits that are notified although nothing has arrived: an earlier notification came late, or the
//! other end stored the word for no reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream as _;
use futures_io::AsyncWrite;
use upcall_core::time::Span;
use upcall_shm::stream as shm;
use upcall_sys::futex;

use super::wait::is_waiting;
use super::*;
use crate::clock;

const SLOTS: StreamForm = StreamForm::Slots { slots: 2, slot_bytes: 8 };

/// Notifies `end` of `stream` without a reason, as soon as it waits. Returns early if `is_over`.
fn notify_stale(stream: &Stream, end: End, is_over: impl Fn() -> bool) {
    let memory: shm::Stream<Memory> = stream.attach().unwrap();
    while !is_waiting(&memory, end) {
        if is_over() {
            return;
        }
        std::thread::yield_now();
    }
    memory.wait_word(end).store(0, Ordering::Relaxed);
    futex::wake_shared(memory.wait_word(end), 1);
}

/// Lets `wait` run in a thread, notifies `end` ten times without a reason, and then does `finish`.
fn waits_until_finish(
    stream: &Stream,
    end: End,
    wait: impl FnOnce() -> bool + Send,
    finish: impl FnOnce(),
) {
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(wait());
            finished.load(Ordering::SeqCst)
        });
        for _ in 0..10 {
            notify_stale(stream, end, || waiting.is_finished());
        }
        finished.store(true, Ordering::SeqCst);
        finish();
        assert!(waiting.join().unwrap(), "the wait ended without data or room");
    });
}

#[test]
fn a_stale_notification_does_not_end_a_wait_for_data() {
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (mut writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    waits_until_finish(
        &stream,
        End::Reader,
        || reader.wait(1, None),
        || {
            assert!(writer.push(&[1; 8]).unwrap());
            writer.commit().unwrap();
        },
    );
    assert_eq!(reader.pop(&mut [0; 8]), Ok(Some(8)));
    // The deadline still ends a wait.
    assert!(!reader.wait(1, Some(clock::after(Span::from_millis(1)))));
}

#[test]
fn a_stale_notification_does_not_end_a_wait_for_room() {
    let stream = Stream::create(SLOTS, 0).unwrap();
    let (mut writer, mut reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    while writer.push(&[1; 8]).unwrap() {}
    writer.commit().unwrap();
    waits_until_finish(
        &stream,
        End::Writer,
        || writer.wait(1, None),
        || {
            assert_eq!(reader.pop(&mut [0; 8]), Ok(Some(8)));
            reader.release();
        },
    );
    assert!(writer.push(&[2; 8]).unwrap());
    writer.commit().unwrap();
    assert!(!writer.wait(1, Some(clock::after(Span::from_millis(1)))));
}

/// Counts how often it was woken.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn wait_for(&self, count: u64) {
        while self.0.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_stale_notification_does_not_make_an_async_end_ready() {
    let (pump, stream) = (IoPump::start().unwrap(), Stream::create(SLOTS, 0).unwrap());
    let writer = pump.writer(stream.writer().unwrap()).unwrap();
    let reader = pump.reader(stream.reader().unwrap()).unwrap();
    let (mut writer, mut reader) = (Box::pin(writer), Box::pin(reader));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    assert!(reader.as_mut().poll_next(&mut context).is_pending());
    notify_stale(&stream, End::Reader, || false);
    wakes.wait_for(1);
    assert!(reader.as_mut().poll_next(&mut context).is_pending(), "nothing has arrived");
    let mut write = || writer.as_mut().poll_write(&mut Context::from_waker(&waker), &[1; 8]);
    assert!(matches!(write(), Poll::Ready(Ok(8))));
    wakes.wait_for(2);
    while let Poll::Ready(written) = write() {
        assert_eq!(written.unwrap(), 8);
    }
    notify_stale(&stream, End::Writer, || false);
    wakes.wait_for(3);
    assert!(write().is_pending(), "there is no room");
    let Poll::Ready(Some(Ok(message))) = reader.as_mut().poll_next(&mut context) else {
        panic!("a message was written")
    };
    assert_eq!(message, [1; 8]);
}
