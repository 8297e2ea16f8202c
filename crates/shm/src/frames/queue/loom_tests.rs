//! The protocol in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release frames`

use super::super::FrameSize;
use super::*;
use crate::edge::{check, each_breaks};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// Memory that both ends own. Loom does not track this `Arc`.
type Memory = Arc<[AtomicU64]>;

const FORM: FrameForm = FrameForm { frames: 2, size: FrameSize::Half };

fn blank(words: usize) -> Memory {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

fn ends(slots: u32) -> (Writer<Memory>, Reader<Memory>) {
    let words = blank(words(slots));
    let writer = Queue::create(words.clone(), slots, FORM, 0).unwrap().writer().unwrap();
    (writer, Queue::attach(words, FORM, 0).unwrap().reader().unwrap())
}

fn part(frame: u32) -> Descriptor {
    Descriptor { frame, offset: 0, length: 8 }
}

/// A writer fills a frame and hands it over. The reader gets what was filled.
fn hand_over() {
    let (mut writer, mut reader) = ends(2);
    let frames = blank(2);
    let filled = frames.clone();
    let writer = thread::spawn(move || {
        filled[1].store(7, Relaxed);
        assert!(writer.push(part(1)).unwrap());
        writer.publish();
    });
    if let Some(found) = reader.take().unwrap() {
        assert_eq!(found, part(1), "not handed over");
        assert_eq!(frames[1].load(Relaxed), 7, "not handed over");
    }
    writer.join().unwrap();
}

/// A reader takes a descriptor and gives its slot back. The writer uses the slot again, and the
/// frame that the reader had read.
fn reuse() {
    let (mut writer, mut reader) = ends(1);
    let frames = blank(1);
    let read = frames.clone();
    assert!(writer.push(part(0)).unwrap());
    writer.publish();
    let reader = thread::spawn(move || {
        assert_eq!(reader.take(), Ok(Some(part(0))), "used too early");
        read[0].store(7, Relaxed);
        reader.release();
    });
    if writer.push(part(1)).unwrap() {
        assert_eq!(frames[0].load(Relaxed), 7, "used too early");
    }
    reader.join().unwrap();
}

/// A reader sleeps if it finds nothing, after it armed. The writer publishes two descriptors, each
/// alone, and wakes it as `must_notify` says. The wake-up is a socket: it stays until it is taken.
fn sleep() {
    let (mut writer, mut reader) = ends(2);
    let socket = Arc::new((Mutex::new(0), Condvar::new()));
    let receiver = socket.clone();
    let writer = thread::spawn(move || {
        for frame in 0..2 {
            assert!(writer.push(part(frame)).unwrap());
            writer.publish();
            if writer.must_notify() {
                *socket.0.lock().unwrap() += 1;
                socket.1.notify_one();
            }
        }
    });
    let mut woken = 0;
    for frame in 0..2 {
        loop {
            if let Some(found) = reader.take().unwrap() {
                assert_eq!(found, part(frame));
                break;
            }
            // As `UdpFlow::arm`: what woke before is taken first.
            woken += core::mem::take(&mut *receiver.0.lock().unwrap());
            if !reader.arm().unwrap() {
                let mut wakes = receiver.0.lock().unwrap();
                while *wakes == 0 {
                    wakes = receiver.1.wait(wakes).unwrap();
                }
            }
        }
    }
    writer.join().unwrap();
    woken += *receiver.0.lock().unwrap();
    assert!(woken <= 2, "woken more than once for a descriptor");
}

/// A mutant: looks first, and then arms.
fn arm_after_the_look() {
    let (mut writer, mut reader) = ends(1);
    let writer = thread::spawn(move || {
        assert!(writer.push(part(0)).unwrap());
        writer.publish();
        writer.must_notify()
    });
    let is_there = reader.take().unwrap().is_some();
    let _ = reader.arm();
    let is_woken = writer.join().unwrap();
    assert!(is_there || is_woken, "slept through");
}

#[test]
fn no_descriptor_is_slept_through() {
    check(None, sleep);
}

#[test]
fn the_look_comes_after_the_wish() {
    let found = std::panic::catch_unwind(|| check(None, arm_after_the_look));
    let found = found.expect_err("loom found nothing");
    let text = found.downcast_ref::<String>().map(String::as_str);
    let text = text.or(found.downcast_ref::<&str>().copied()).unwrap_or("");
    assert!(text.contains("slept through"), "{text}");
}

#[test]
fn a_published_descriptor_brings_its_frame() {
    check(None, hand_over);
}

#[test]
fn a_slot_is_used_again_only_after_its_release() {
    check(None, reuse);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::FrameIndexStore, hand_over, "not handed over"),
        (Edge::FrameIndexLoad, hand_over, "not handed over"),
        (Edge::FrameIndexStore, reuse, "used too early"),
        (Edge::FrameIndexLoad, reuse, "used too early"),
        (Edge::FrameNotifyFence, sleep, "deadlock"),
        (Edge::FrameArmFence, sleep, "deadlock"),
    ]);
}
