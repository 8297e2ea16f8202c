//! The protocols in every interleaving and every reordering that the memory model allows, and the
//! proof that each ordering is needed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-shm --release kernel_area`

use super::*;
use crate::edge::{check, each_breaks};
use crate::user_area::{self, Mask, Owner, Peer};
use core::iter::repeat_with;
use loom::sync::Arc;
use loom::thread;

/// Memory that both ends own. Loom does not track this `Arc`.
type Memory = std::sync::Arc<[AtomicU64]>;

const ME: DomainId = DomainId::new(1).unwrap();

fn zeros(count: usize) -> Memory {
    repeat_with(|| AtomicU64::new(0)).take(count).collect()
}

/// Both ends of a new page, made before any thread starts: the loom tests of `load_page` say why.
fn ends() -> (Writer<Memory>, Reader<Memory>) {
    let words = zeros(AREA_WORDS);
    (Writer::create(words.clone(), 0).unwrap(), Reader::attach(words).unwrap())
}

/// Attaches a domain whose quantum and process follow from its generation.
fn attach(writer: &Writer<Memory>, generation: u32) {
    let number = NonZeroU64::new(u64::from(generation)).unwrap();
    writer.attach(ME, number, u64::from(generation), generation);
}

/// One domain detaches and another attaches with its number, while a third reads the line.
fn replaced() {
    let (writer, reader) = ends();
    attach(&writer, 1);
    let daemon = thread::spawn(move || {
        attach(&writer, 2);
    });
    match reader.entry(ME) {
        Ok(Some(Entry { generation, quantum_ns_max, pid, .. })) => {
            let all = (generation.get(), quantum_ns_max, u64::from(pid));
            assert!([(1, 1, 1), (2, 2, 2)].contains(&all), "mixed: {all:?}");
        }
        Ok(None) => {}
        Err(fault) => assert_eq!(fault, PeerFault::Torn { page: "kernel area" }),
    }
    daemon.join().unwrap();
    assert_eq!(reader.entry(ME).unwrap().unwrap().generation.get(), 2);
}

/// A domain attaches. A reader that sees the epoch change sees the domain.
fn epoch() {
    let (writer, reader) = ends();
    let daemon = thread::spawn(move || attach(&writer, 1));
    if reader.epoch() == 1 {
        assert!(matches!(reader.entry(ME), Ok(Some(_))), "notified too early");
    }
    daemon.join().unwrap();
}

/// The daemon stores data and raises an interrupt. A domain that finds the interrupt sees the data.
fn interrupt() {
    let (writer, reader) = ends();
    let data = Arc::new(AtomicU64::new(0));
    let daemon = {
        let data = data.clone();
        thread::spawn(move || {
            data.store(7, Relaxed);
            writer.interrupt(ME, Interrupt::IoReady);
        })
    };
    if reader.interrupts(ME) != Interrupts::default() {
        assert_eq!(data.load(Relaxed), 7, "raised too early");
    }
    daemon.join().unwrap();
}

/// The daemon asks a domain to yield while it unmasks. Either the domain finds the request, or the
/// daemon finds that the mask is gone.
fn unmask() {
    let (writer, reader) = ends();
    let area = zeros(user_area::words_of(1));
    let mut owner = Owner::create(area.clone(), ME, 1).unwrap();
    let peer = Peer::attach(area, ME, 1).unwrap();
    owner.mask(Mask::Preemption);
    let domain = thread::spawn(move || {
        assert_eq!(owner.unmask(Mask::Preemption), 0);
        reader.yield_requests(ME) != 0
    });
    writer.request_yield(ME);
    let masked = peer.is_masked(Mask::Preemption);
    let found = domain.join().unwrap();
    assert!(found || !masked, "neither saw the other");
}

#[test]
fn a_line_read_is_of_one_domain() {
    check(None, replaced);
}

#[test]
fn a_reader_that_sees_the_epoch_sees_the_domain() {
    check(None, epoch);
}

#[test]
fn a_domain_that_finds_an_interrupt_sees_its_data() {
    check(None, interrupt);
}

#[test]
fn no_request_to_yield_is_lost_at_an_unmask() {
    check(None, unmask);
}

#[test]
fn no_ordering_can_be_weaker() {
    each_breaks(&[
        (Edge::GenerationNone, replaced, "mixed"),
        (Edge::GenerationNew, replaced, "mixed"),
        (Edge::GenerationFirst, replaced, "mixed"),
        (Edge::GenerationSecond, replaced, "mixed"),
        (Edge::EpochStore, epoch, "notified too early"),
        (Edge::EpochLoad, epoch, "notified too early"),
        (Edge::InterruptRaise, interrupt, "raised too early"),
        (Edge::InterruptLoad, interrupt, "raised too early"),
        (Edge::UnmaskFence, unmask, "neither saw the other"),
        (Edge::YieldFence, unmask, "neither saw the other"),
    ]);
}
