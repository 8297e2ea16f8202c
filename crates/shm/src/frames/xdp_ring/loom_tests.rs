//! As the loom tests of the queue. The other side of the kernel's rings is modelled by ours: the
//! kernel orders its side in the same way.

use super::super::FrameSize;
use super::*;
use crate::edge::{check, each_breaks};
use loom::thread;
use std::sync::Arc;

/// Memory that both sides own. Loom does not track this `Arc`.
type Memory = Arc<[AtomicU32]>;

const FORM: FrameForm = FrameForm { frames: 2, size: FrameSize::Half };
const PLACES: RingPlaces = RingPlaces { producer: 0, consumer: 4, flags: 8, entries: 16 };

fn blank(words: usize) -> Memory {
    (0..words).map(|_| AtomicU32::new(0)).collect()
}

fn sides() -> (Producer<Memory>, Consumer<Memory>) {
    let memory = blank(8);
    let holds = (Entries::Descriptors, 1);
    (
        Producer::new(memory.clone(), PLACES, holds, FORM).unwrap(),
        Consumer::new(memory, PLACES, holds, FORM).unwrap(),
    )
}

fn part(frame: u32) -> Descriptor {
    Descriptor { frame, offset: 0, length: 8 }
}

/// The producer fills a frame and hands it over. The consumer gets what was filled.
fn hand_over() {
    let (mut producer, mut consumer) = sides();
    let frames = blank(2);
    let filled = frames.clone();
    let producer = thread::spawn(move || {
        filled[1].store(7, Relaxed);
        assert!(producer.push(part(1)).unwrap());
        producer.publish();
    });
    if let Some(found) = consumer.take().unwrap() {
        assert_eq!(found, part(1), "not handed over");
        assert_eq!(frames[1].load(Relaxed), 7, "not handed over");
    }
    producer.join().unwrap();
}

/// The consumer gives its entry back. The producer uses it again.
fn reuse() {
    let (mut producer, mut consumer) = sides();
    let frames = blank(1);
    let read = frames.clone();
    assert!(producer.push(part(0)).unwrap());
    producer.publish();
    let consumer = thread::spawn(move || {
        assert_eq!(consumer.take(), Ok(Some(part(0))), "used too early");
        read[0].store(7, Relaxed);
        consumer.release();
    });
    if producer.push(part(1)).unwrap() {
        assert_eq!(frames[0].load(Relaxed), 7, "used too early");
    }
    consumer.join().unwrap();
}

#[test]
fn a_published_entry_brings_its_frame() {
    check(None, hand_over);
}

#[test]
fn an_entry_is_used_again_only_after_its_release() {
    check(None, reuse);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::XdpIndexStore, hand_over, "not handed over"),
        (Edge::XdpIndexLoad, hand_over, "not handed over"),
        (Edge::XdpIndexStore, reuse, "used too early"),
        (Edge::XdpIndexLoad, reuse, "used too early"),
    ]);
}
