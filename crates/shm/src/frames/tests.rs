//! A flow between the owner and a domain: four queues, the area and the account.

use super::account::{Account, AccountError, Holder};
use super::queue::{Queue, Reader, Writer, words};
use super::{Descriptor, FrameArea, FrameForm, FrameSize};
use crate::AtomicU64;
use std::sync::Arc;

type Memory = Arc<[AtomicU64]>;

const FORM: FrameForm = FrameForm { frames: 8, size: FrameSize::Half };
const SLOTS: u32 = 8;
const FLOW: u32 = 5;

fn queue() -> (Writer<Memory>, Reader<Memory>) {
    let memory: Memory = (0..words(SLOTS)).map(|_| AtomicU64::new(0)).collect();
    let writer = Queue::create(memory.clone(), SLOTS, FORM, 1).unwrap().writer().unwrap();
    (writer, Queue::attach(memory, FORM, 1).unwrap().reader().unwrap())
}

/// The owner's side of a flow.
struct Owner {
    account: Account,
    receive: Writer<Memory>,
    received: Reader<Memory>,
    transmit: Reader<Memory>,
    transmitted: Writer<Memory>,
}

impl Owner {
    /// Everything that the owner does for the flow in one pass: a frame arrives and is handed over,
    /// frames come back, frames are sent.
    fn pass(&mut self) -> Result<(), AccountError> {
        if let Some(frame) = self.account.take(Holder::Flow(FLOW)) {
            assert!(self.receive.push(Descriptor { frame, offset: 0, length: 60 }).unwrap());
            self.receive.publish();
        }
        while let Some(part) = self.received.take().unwrap() {
            self.account.hand_over(part.frame, Holder::Flow(FLOW), Holder::Free)?;
        }
        self.received.release();
        while let Some(part) = self.transmit.take().unwrap() {
            let sending = Holder::Sending(Some(FLOW));
            self.account.hand_over(part.frame, Holder::Flow(FLOW), sending)?;
            // The device is quick.
            if self.account.sent(part.frame)? == Some(FLOW) {
                assert!(self.transmitted.push(part).unwrap());
            }
        }
        self.transmit.release();
        self.transmitted.publish();
        Ok(())
    }
}

/// The domain's side of a flow.
struct Domain {
    receive: Reader<Memory>,
    received: Writer<Memory>,
    transmit: Writer<Memory>,
    transmitted: Reader<Memory>,
    /// Its free frames for transmitting.
    free: Vec<u32>,
    taken: Option<Descriptor>,
}

impl Domain {
    /// One step; the domain can die before or after each.
    fn step(&mut self, number: usize) {
        match number % 9 {
            0 => self.taken = self.receive.take().unwrap(),
            1 => self.receive.release(),
            2 => {
                if let Some(part) = self.taken.take() {
                    assert!(self.received.push(part).unwrap());
                }
            }
            3 => self.received.publish(),
            4 => {
                if let Some(frame) = self.free.pop() {
                    let part = Descriptor { frame, offset: 64, length: 100 };
                    assert!(self.transmit.push(part).unwrap());
                }
            }
            5 => self.transmit.publish(),
            6 => {
                if let Some(part) = self.transmitted.take().unwrap() {
                    self.free.push(part.frame);
                }
            }
            7 => self.transmitted.release(),
            _ => {}
        }
    }
}

fn flow() -> (Owner, Domain) {
    let mut account = Account::new(FORM.frames);
    let free = (0..3).map(|_| account.take(Holder::Flow(FLOW)).unwrap()).collect();
    let [(receive, rx), (tx, transmit)] = [queue(), queue()];
    let [(rx_done, received), (transmitted, tx_done)] = [queue(), queue()];
    (
        Owner { account, receive, received, transmit, transmitted },
        Domain {
            receive: rx,
            received: rx_done,
            transmit: tx,
            transmitted: tx_done,
            free,
            taken: None,
        },
    )
}

#[test]
fn a_domain_that_dies_after_any_step_costs_no_frame() {
    for steps in 0..200 {
        let (mut owner, mut domain) = flow();
        for number in 0..steps {
            if number % 4 == 0 {
                owner.pass().unwrap();
            }
            domain.step(number);
        }
        drop(domain);
        // What the domain published before still counts, then the account alone.
        if steps % 2 == 0 {
            owner.pass().unwrap();
        }
        owner.account.flow_is_gone(FLOW);
        assert!(owner.account.all_free(), "after {steps} steps");
    }
}

#[test]
fn a_domain_that_lies_gets_no_frame_of_another() {
    // Returns a frame twice; sends one that it does not have; returns one that is free.
    for (twice, frame) in [(true, 0), (false, 7), (false, 6)] {
        let (mut owner, mut domain) = flow();
        let other = owner.account.take(Holder::Flow(FLOW + 1)).unwrap();
        let part =
            Descriptor { frame: if twice { domain.free[0] } else { frame }, offset: 0, length: 0 };
        for _ in 0..=usize::from(twice) {
            domain.received.push(part).unwrap();
        }
        domain.received.publish();
        let error = owner.pass().unwrap_err();
        assert_eq!((error.frame, error.expected), (part.frame, Holder::Flow(FLOW)));
        owner.account.flow_is_gone(FLOW);
        assert_eq!(owner.account.holder(other), Some(Holder::Flow(FLOW + 1)));
        owner.account.flow_is_gone(FLOW + 1);
        assert!(owner.account.all_free());
    }
}

#[test]
fn frames_do_not_overlap() {
    let memory: Memory = (0..FORM.bytes() / 8).map(|_| AtomicU64::new(0)).collect();
    let area = FrameArea::new(memory, FORM).unwrap();
    for frame in 0..FORM.frames {
        let whole = Descriptor { frame, offset: 0, length: 2048 };
        let fill = vec![frame.to_le_bytes()[0] + 1; 2048];
        assert_eq!(area.part(whole).unwrap().fill(0, &fill), 2048);
    }
    for frame in 0..FORM.frames {
        let mut bytes = [0; 100];
        let (header, data) = Descriptor { frame, offset: 1948, length: 100 }.split(42);
        assert_eq!(area.part(header).unwrap().copy_to(0, &mut bytes[..42]), 42);
        assert_eq!(area.part(data).unwrap().copy_to(0, &mut bytes[42..]), 58);
        assert_eq!(bytes, [frame.to_le_bytes()[0] + 1; 100]);
    }
    assert!(area.part(Descriptor { frame: 8, offset: 0, length: 0 }).is_err());
    assert!(FrameArea::new(&[][..], FORM).is_err());
}

#[test]
fn the_first_words_of_a_part_are_copied_within_its_frame_alone() {
    let memory: Memory = (0..FORM.bytes() as u64 / 8).map(AtomicU64::new).collect();
    let area = FrameArea::new(memory, FORM).unwrap();
    let first = |frame, offset, length| {
        let part = Descriptor { frame, offset, length };
        area.first_words::<2>(part).map(|words| words.map(u64::from_ne_bytes))
    };
    // Also behind the end of the part, which is for the caller to look at.
    assert_eq!(first(1, 8, 16), Some([257, 258]));
    assert_eq!(first(1, 8, 3), Some([257, 258]));
    assert_eq!(first(7, 2032, 1), Some([2046, 2047]));
    for (frame, offset, length) in
        [(7, 2040, 8), (1, 2040, 8), (1, 4, 16), (8, 0, 16), (1, 8, 2048)]
    {
        assert_eq!(first(frame, offset, length), None);
    }
}
