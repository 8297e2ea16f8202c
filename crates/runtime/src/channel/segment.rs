//! The memory of one channel, with its two segments of any form.
//!
//! The service creates the memory when a client registers, and the client maps it. It is one sealed
//! memfd that no other process has.
//!
//! | words | |
//! |---|---|
//! | 0..8 | the wake word of the service ([`WakeLine`]) |
//! | 8..16 | the wake word of the client |
//! | 16.. | the segment to the service, then the segment to the client |

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_shm::channel::wake_line::{WAKE_LINE_WORDS, WakeLine};
use upcall_shm::channel::{self as shm, Form, Payload, Posted, SegmentError, TakenEvent};
use upcall_shm::channel::{counter, ring, slots, typed};
use upcall_shm::{LayoutError, PeerFault};
use upcall_sys::memfd::SharedMapping;

use super::errors::ChannelOpenError;

/// A part of a channel's memory.
#[derive(Clone, Debug)]
pub(super) struct Part {
    memory: Arc<SharedMapping>,
    from: usize,
    len: usize,
}

impl AsRef<[AtomicU64]> for Part {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        &self.memory.words()[self.from..self.from + self.len]
    }
}

/// The [`Form`] in which the events of each direction wait. The service chooses both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// The form of events from a client to the service.
    pub to_service: Form,
    /// The form of events from the service to a client.
    pub to_client: Form,
}

impl Forms {
    fn bytes(self) -> usize {
        (2 * WAKE_LINE_WORDS + self.to_service.words() + self.to_client.words()) * 8
    }

    /// The forms as a message carries them.
    pub(super) fn to_words(self) -> [u32; 6] {
        let [a, b] = [self.to_service, self.to_client].map(|form| match form {
            Form::Typed { types } => [2, types, 0],
            Form::Slots { levels, depth } => [3, levels, depth],
            Form::Ring { slots } => [4, slots, 0],
            _ => [1, 0, 0],
        });
        [a[0], a[1], a[2], b[0], b[1], b[2]]
    }

    pub(super) fn from_words([a, b, c, d, e, f]: [u32; 6]) -> Option<Self> {
        let form = |words: [u32; 3]| match words {
            [1, 0, 0] => Some(Form::Counter),
            [2, types, 0] => Some(Form::Typed { types }),
            [3, levels, depth] => Some(Form::Slots { levels, depth }),
            [4, slots, 0] => Some(Form::Ring { slots }),
            _ => None,
        };
        Some(Forms { to_service: form([a, b, c])?, to_client: form([d, e, f])? })
    }
}

/// One end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Service,
    Client,
}

/// The memory of a channel.
#[derive(Debug)]
pub(super) struct ChannelMemory {
    memory: Arc<SharedMapping>,
    forms: Forms,
}

impl ChannelMemory {
    pub(super) fn create(forms: Forms) -> Result<Self, ChannelOpenError> {
        let memory = Arc::new(SharedMapping::create("upcall-channel", forms.bytes())?);
        let memory = ChannelMemory { memory, forms };
        shm::create(memory.segment(Side::Service), forms.to_service)?;
        shm::create(memory.segment(Side::Client), forms.to_client)?;
        Ok(memory)
    }

    pub(super) fn from_fd(fd: OwnedFd, forms: Forms) -> Result<Self, ChannelOpenError> {
        Ok(ChannelMemory { memory: Arc::new(SharedMapping::from_fd(fd, forms.bytes())?), forms })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The wake word of the taker at `side`.
    pub(super) fn wake_line(&self, side: Side) -> Result<WakeLine<Part>, LayoutError> {
        let from = if side == Side::Service { 0 } else { WAKE_LINE_WORDS };
        WakeLine::new(self.part(from, WAKE_LINE_WORDS))
    }

    /// The taker at `side`.
    pub(super) fn taker(&self, side: Side) -> Result<SegmentTaker, LayoutError> {
        let words = self.segment(side);
        Ok(match self.form(side) {
            Form::Typed { types } => SegmentTaker::Typed(typed::Taker::attach(words, types)?),
            Form::Slots { levels, depth } => {
                SegmentTaker::Slots(slots::Taker::attach(words, levels, depth)?)
            }
            Form::Ring { slots } => SegmentTaker::Ring(ring::Taker::attach(words, slots)?),
            _ => SegmentTaker::Counter(counter::Taker::attach(words)?),
        })
    }

    /// The raiser towards `side`.
    pub(super) fn raiser(&self, side: Side) -> Result<SegmentRaiser, LayoutError> {
        let words = self.segment(side);
        Ok(match self.form(side) {
            Form::Typed { types } => SegmentRaiser::Typed(typed::Raiser::attach(words, types)?),
            Form::Slots { levels, depth } => {
                SegmentRaiser::Slots(slots::Raiser::attach(words, levels, depth)?)
            }
            Form::Ring { slots } => SegmentRaiser::Ring(ring::Raiser::attach(words, slots)?),
            _ => SegmentRaiser::Counter(counter::Raiser::attach(words)?),
        })
    }

    fn form(&self, side: Side) -> Form {
        if side == Side::Service { self.forms.to_service } else { self.forms.to_client }
    }

    /// The segment towards `side`.
    fn segment(&self, side: Side) -> Part {
        let first = self.forms.to_service.words();
        match side {
            Side::Service => self.part(2 * WAKE_LINE_WORDS, first),
            Side::Client => self.part(2 * WAKE_LINE_WORDS + first, self.forms.to_client.words()),
        }
    }

    fn part(&self, from: usize, len: usize) -> Part {
        Part { memory: self.memory.clone(), from, len }
    }
}

/// A raiser of any form.
#[derive(Debug)]
pub(super) enum SegmentRaiser {
    Counter(counter::Raiser<Part>),
    Typed(typed::Raiser<Part>),
    Slots(slots::Raiser<Part>),
    Ring(ring::Raiser<Part>),
}

impl SegmentRaiser {
    #[inline]
    pub(super) fn post(&mut self, row: u32, payload: &Payload) -> Result<Posted, SegmentError> {
        match self {
            SegmentRaiser::Typed(raiser) => raiser.post(row, payload),
            SegmentRaiser::Slots(raiser) => raiser.post(row, payload),
            _ if row > 0 => Err(SegmentError::Row { found: row, rows: 1 }),
            SegmentRaiser::Ring(raiser) => Ok(raiser.post(payload)?),
            SegmentRaiser::Counter(raiser) => {
                raiser.post();
                Ok(Posted::Stored)
            }
        }
    }

    #[inline]
    pub(super) fn must_notify(&mut self) -> Result<bool, PeerFault> {
        match self {
            SegmentRaiser::Counter(raiser) => raiser.must_notify(),
            SegmentRaiser::Typed(raiser) => raiser.must_notify(),
            SegmentRaiser::Slots(raiser) => raiser.must_notify(),
            SegmentRaiser::Ring(raiser) => raiser.must_notify(),
        }
    }
}

/// A taker of any form.
#[derive(Debug)]
pub(super) enum SegmentTaker {
    Counter(counter::Taker<Part>),
    Typed(typed::Taker<Part>),
    Slots(slots::Taker<Part>),
    Ring(ring::Taker<Part>),
}

impl SegmentTaker {
    /// The next event. A counter yields all that it has counted as one event.
    #[inline]
    pub(super) fn take(&mut self) -> Result<Option<TakenEvent>, PeerFault> {
        match self {
            SegmentTaker::Typed(taker) => taker.take(),
            SegmentTaker::Slots(taker) => taker.take(),
            SegmentTaker::Ring(taker) => taker.take(),
            SegmentTaker::Counter(taker) => Ok(taker.take()?.map(|count| TakenEvent {
                row: 0,
                serial: 0,
                merged: count - 1,
                payload: Payload::default(),
            })),
        }
    }
}
