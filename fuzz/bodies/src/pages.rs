//! Shared pages whose peer writes anything at any time: every read is bounded and checked.
//!
//! The bytes are steps of both ends and stores of a hostile peer into any word. The memory is
//! ordinary memory of one thread, so a store comes between two calls, never within one: loom looks
//! at the order of accesses (`crates/shm/src/*/loom_tests.rs`).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use upcall_shm::channel::{self, Form, counter, ring, slots, typed};
use upcall_shm::stream::{End, Leaving, Stream, StreamForm};
use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::{AREA_BYTES, Counters, Mask, NEVER, Owner, Peer, Pending, Rank};
use upcall_shm::{DomainId, kernel_area, turn_page};

use crate::bytes::Bytes;

/// Most steps of an input.
const STEPS_MAX: usize = 100;
const GENERATION: u64 = 7;

fn memory(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

fn domain(bytes: &mut Bytes<'_>) -> DomainId {
    DomainId::new(1 + bytes.small(upcall_shm::DOMAINS_MAX)).unwrap()
}

/// A store of the hostile peer into any word, more often into the first ones, which hold the state.
fn hostile_store(words: &[AtomicU64], bytes: &mut Bytes<'_>) {
    let most = if bytes.flag() { words.len() } else { words.len().min(64) };
    let at = usize::try_from(bytes.below(most as u64)).unwrap();
    let old = words[at].load(Relaxed);
    let value = match bytes.small(8) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 => old ^ 1 << bytes.small(64),
        6 => u64::from(bytes.small(256)),
        _ => bytes.below(u64::MAX),
    };
    words[at].store(value, Relaxed);
}

/// Runs `step` until the bytes are used. Every third step is a store of the hostile peer.
fn steps(words: &[AtomicU64], mut bytes: Bytes<'_>, mut step: impl FnMut(u32, &mut Bytes<'_>)) {
    for _ in 0..STEPS_MAX {
        if bytes.0.is_empty() {
            return;
        }
        match bytes.small(30) {
            kind @ ..20 => step(kind, &mut bytes),
            _ => hostile_store(words, &mut bytes),
        }
    }
}

/// The daemon and other domains read the area of a hostile domain.
pub fn user_area(data: &[u8]) {
    let words = memory(AREA_BYTES / 8);
    let mut bytes = Bytes(data);
    let id = domain(&mut bytes);
    let mut owner = Owner::create(&words[..], id, GENERATION).unwrap();
    let mut peer = Peer::attach(&words[..], id, GENERATION).unwrap();
    steps(&words, bytes, |kind, bytes| {
        let now_ns = bytes.below(1 << 20);
        let rank = Rank::new(bytes.below(1 << 16), bytes.small(8));
        match kind {
            0..4 => drop(owner.publish(bytes.flag().then(|| Pending::from(rank)))),
            4 => drop(owner.mask(Mask::Preemption)),
            5 => owner.count(&Counters::default()),
            // An attacher that comes later: the words may no longer be an area.
            6 => {
                if let Ok(again) = Peer::attach(&words[..], id, GENERATION) {
                    peer = again;
                }
            }
            7 => drop(peer.rival(rank, now_ns)),
            8 => {
                if let Ok(summary) = peer.summary(now_ns) {
                    let _ = (peer.is_current(&summary, now_ns), summary.pending(now_ns));
                }
            }
            9 => drop(peer.next_release()),
            10 => {
                if let Ok(slot) = peer.running().map(|running| running.slot) {
                    assert!(slot.is_none_or(|slot| slot < peer.slots()), "{slot:?}");
                }
            }
            11 => drop((peer.counters(), peer.is_masked(Mask::Preemption))),
            12 => drop(peer.slot(usize::try_from(bytes.below(1 << 16)).unwrap())),
            13 => drop(peer.audit()),
            _ => {
                if let Ok(Some(best)) = peer.best(now_ns) {
                    assert_ne!(best.key, NEVER, "a rank to run");
                }
            }
        }
    });
}

/// Domains and the daemon pass a turn on a page that one of them writes over.
pub fn turn_page(data: &[u8]) {
    let words = memory(turn_page::PAGE_WORDS);
    let page = TurnPage::create(&words[..], 1).unwrap();
    steps(&words, Bytes(data), |kind, bytes| {
        let id = domain(bytes);
        match kind {
            0..6 => {
                if let Ok(turn) = page.turn() {
                    let passed = page.pass(turn, id);
                    assert!(!passed || page.holder() == Ok(id), "one thread: nobody intervenes");
                }
            }
            6 => page.reset(id),
            7 => drop(page.set_need_resched()),
            8 => drop((page.need_resched(), page.take_need_resched())),
            9 => drop(page.take_need_resched_idle()),
            10 => {
                page.repair();
                assert!(page.audit().is_ok(), "repaired");
            }
            11 => drop(page.audit()),
            12 => drop(TurnPage::attach(&words[..]).map(|other| other.cpu())),
            13 => {
                let wake_word = page.wake_word(id);
                if wake_word.prepare_wait() {
                    let _ = wake_word.notify();
                }
                wake_word.finish_wait();
            }
            _ => drop(page.holder()),
        }
    });
}

/// A domain reads the kernel area of a faulty daemon.
pub fn kernel_area(data: &[u8]) {
    let words = memory(kernel_area::AREA_WORDS);
    let writer = kernel_area::Writer::create(&words[..], 1).unwrap();
    let reader = kernel_area::Reader::attach(&words[..]).unwrap();
    steps(&words, Bytes(data), |kind, bytes| {
        let id = domain(bytes);
        match kind {
            0..3 => {
                let generation = std::num::NonZeroU64::new(1 + bytes.below(8)).unwrap();
                writer.attach(id, generation, bytes.below(1 << 30), bytes.small(200));
            }
            3 => writer.detach(id),
            4 => writer.request_yield(id),
            5 => drop(writer.count_offence(id)),
            6 => drop(kernel_area::Reader::attach(&words[..]).map(|other| other.cpu())),
            7 => drop((reader.epoch(), reader.yield_requests(id))),
            8 => drop(reader.interrupts(id).since(reader.interrupts(domain(bytes))).count()),
            9 => drop(reader.state(id)),
            10 => drop((reader.idled_ns(), reader.interruption_ns_max())),
            _ => drop(reader.entry(id)),
        }
    });
}

/// Both ends of a stream whose memory a hostile end writes over.
pub fn stream(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (count, size) = (1 + bytes.small(8), 1 + bytes.small(40));
    let form = match bytes.small(4) {
        0 => StreamForm::Bytes { capacity: count * size },
        1 => StreamForm::Messages { capacity: count * size + 16 },
        2 => StreamForm::Slots { slots: count, slot_bytes: size },
        _ => StreamForm::Buffers { buffers: count, buffer_bytes: size },
    };
    let words = memory(form.words().unwrap());
    let _ = Stream::create(&words[..], form, GENERATION, 0).unwrap();
    let attach = || Stream::attach(&words[..], GENERATION);
    let mut writer = attach().unwrap().writer().unwrap();
    let mut reader = attach().unwrap().reader().unwrap();
    let mut buffer = [0_u8; 512];
    let mut kept = Vec::new();
    steps(&words, bytes, |kind, bytes| {
        let len = bytes.small(60) as usize;
        match kind {
            0..4 => drop(writer.push(&vec![7; len])),
            4 => {
                if let Ok(Some(chunk)) = writer.reserve(len) {
                    chunk.payload().fill(0, &[7]);
                    chunk.stage(len);
                }
            }
            5 | 6 => drop(writer.commit()),
            7 => {
                let _ = writer.wait(len);
                writer.finish_wait();
            }
            8 => drop((writer.room(), writer.level())),
            9 => drop(reader.pop(&mut buffer)),
            10 => {
                let _ = reader.wait(1 + len as u64);
                reader.finish_wait();
            }
            11 => drop((reader.release(), reader.level())),
            12 => {
                // The other end is attached again, to a header that may have been written over.
                if let Ok(view) = attach() {
                    let _ = (view.form(), view.mark_dead(End::Writer));
                }
            }
            13 => drop(bytes.flag() && writer.leave(Leaving::Ended)),
            14 => {
                if let Ok(Some(message)) = reader.front() {
                    kept.extend(message.keep());
                }
            }
            15 => {
                if let Some(one) = kept.pop() {
                    let _ = reader.kept(&one).copy_to(0, &mut buffer);
                    reader.give_back(one);
                }
            }
            _ => {
                if let Ok(Some(message)) = reader.front() {
                    let copied = message.payload().copy_to(0, &mut buffer);
                    assert!(copied <= message.len(), "{copied} of {}", message.len());
                    message.done();
                }
            }
        }
    });
}

/// Both ends of a segment of an event channel, which a hostile end writes over.
pub fn event_channel(data: &[u8]) {
    let mut bytes = Bytes(data);
    match bytes.small(4) {
        0 => {
            let words = segment(Form::Counter);
            let mut raiser = counter::Raiser::attach(&words[..]).unwrap();
            let mut taker = counter::Taker::attach(&words[..]).unwrap();
            steps(&words, bytes, |kind, _| match kind {
                0..8 => drop(raiser.raise()),
                _ => drop(taker.take()),
            });
        }
        1 => {
            let types = 1 + bytes.small(70);
            let words = segment(Form::Typed { types });
            let mut raiser = typed::Raiser::attach(&words[..], types).unwrap();
            let mut taker = typed::Taker::attach(&words[..], types).unwrap();
            steps(&words, bytes, |kind, bytes| match kind {
                0..8 => drop(raiser.raise(bytes.small(80), &[1; channel::PAYLOAD_WORDS])),
                _ => drop(taker.take()),
            });
        }
        2 => {
            let (levels, depth) = (1 + bytes.small(4), 1 + bytes.small(20));
            let words = segment(Form::Slots { levels, depth });
            let mut raiser = slots::Raiser::attach(&words[..], levels, depth).unwrap();
            let mut taker = slots::Taker::attach(&words[..], levels, depth).unwrap();
            steps(&words, bytes, |kind, bytes| match kind {
                0..8 => drop(raiser.raise(bytes.small(6), &[1; channel::PAYLOAD_WORDS])),
                8 => drop(taker.lost()),
                _ => drop(taker.take()),
            });
        }
        _ => {
            let slots = 1 << bytes.small(6);
            let words = segment(Form::Ring { slots });
            let mut raiser = ring::Raiser::attach(&words[..], slots).unwrap();
            let mut taker = ring::Taker::attach(&words[..], slots).unwrap();
            steps(&words, bytes, |kind, _| match kind {
                0..8 => drop(raiser.raise(&[1; channel::PAYLOAD_WORDS])),
                8 => drop(taker.lost()),
                _ => drop(taker.take()),
            });
        }
    }
}

fn segment(form: Form) -> Vec<AtomicU64> {
    let words = memory(form.words());
    channel::create(&words[..], form).unwrap();
    words
}
