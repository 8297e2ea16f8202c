//! The memory of one channel, and its two segments whatever their form.
//!
//! Made by the service as a client registers, and mapped by the client: one sealed memfd that these two
//! have and nobody else.
//!
//! | words | |
//! |---|---|
//! | 0..8 | the bell of the service ([`Bell`]) |
//! | 8..16 | the bell of the client |
//! | 16.. | the segment to the service, then the one to the client |

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use upcall_shm::channel::bell::{BELL_WORDS, Bell};
use upcall_shm::channel::{self as shm, Event, Form, Payload, Posted, SegmentError};
use upcall_shm::channel::{counter, ring, slots, typed};
use upcall_shm::{LayoutError, PeerFault};
use upcall_sys::memfd::SharedMapping;

use super::errors::ChannelOpenError;

/// Part of a channel's memory.
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

/// In which [`Form`] the events of each direction wait. The service chooses both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// Of events from a client to the service.
    pub to_service: Form,
    /// Of events from the service to a client.
    pub to_client: Form,
}

impl Forms {
    fn bytes(self) -> usize {
        (2 * BELL_WORDS + self.to_service.words() + self.to_client.words()) * 8
    }

    /// As a message has them.
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

/// Who has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Service,
    Client,
}

/// The memory of a channel.
#[derive(Debug)]
pub(super) struct Pair {
    memory: Arc<SharedMapping>,
    forms: Forms,
}

impl Pair {
    pub(super) fn create(forms: Forms) -> Result<Self, ChannelOpenError> {
        let memory = Arc::new(SharedMapping::create("upcall-channel", forms.bytes())?);
        let pair = Pair { memory, forms };
        shm::create(pair.segment(Side::Service), forms.to_service)?;
        shm::create(pair.segment(Side::Client), forms.to_client)?;
        Ok(pair)
    }

    pub(super) fn from_fd(fd: OwnedFd, forms: Forms) -> Result<Self, ChannelOpenError> {
        Ok(Pair { memory: Arc::new(SharedMapping::from_fd(fd, forms.bytes())?), forms })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The bell of who takes at `side`.
    pub(super) fn bell(&self, side: Side) -> Result<Bell<Part>, LayoutError> {
        let from = if side == Side::Service { 0 } else { BELL_WORDS };
        Bell::new(self.part(from, BELL_WORDS))
    }

    /// What is taken at `side`.
    pub(super) fn takes(&self, side: Side) -> Result<Takes, LayoutError> {
        let words = self.segment(side);
        Ok(match self.form(side) {
            Form::Typed { types } => Takes::Typed(typed::Taker::attach(words, types)?),
            Form::Slots { levels, depth } => {
                Takes::Slots(slots::Taker::attach(words, levels, depth)?)
            }
            Form::Ring { slots } => Takes::Ring(ring::Taker::attach(words, slots)?),
            _ => Takes::Counter(counter::Taker::attach(words)?),
        })
    }

    /// What is raised towards `side`.
    pub(super) fn raises(&self, side: Side) -> Result<Raises, LayoutError> {
        let words = self.segment(side);
        Ok(match self.form(side) {
            Form::Typed { types } => Raises::Typed(typed::Raiser::attach(words, types)?),
            Form::Slots { levels, depth } => {
                Raises::Slots(slots::Raiser::attach(words, levels, depth)?)
            }
            Form::Ring { slots } => Raises::Ring(ring::Raiser::attach(words, slots)?),
            _ => Raises::Counter(counter::Raiser::attach(words)?),
        })
    }

    fn form(&self, side: Side) -> Form {
        if side == Side::Service { self.forms.to_service } else { self.forms.to_client }
    }

    /// The segment towards `side`.
    fn segment(&self, side: Side) -> Part {
        let first = self.forms.to_service.words();
        match side {
            Side::Service => self.part(2 * BELL_WORDS, first),
            Side::Client => self.part(2 * BELL_WORDS + first, self.forms.to_client.words()),
        }
    }

    fn part(&self, from: usize, len: usize) -> Part {
        Part { memory: self.memory.clone(), from, len }
    }
}

/// A raiser of any form.
#[derive(Debug)]
pub(super) enum Raises {
    Counter(counter::Raiser<Part>),
    Typed(typed::Raiser<Part>),
    Slots(slots::Raiser<Part>),
    Ring(ring::Raiser<Part>),
}

impl Raises {
    #[inline]
    pub(super) fn post(&mut self, row: u32, payload: &Payload) -> Result<Posted, SegmentError> {
        match self {
            Raises::Typed(raiser) => raiser.post(row, payload),
            Raises::Slots(raiser) => raiser.post(row, payload),
            _ if row > 0 => Err(SegmentError::Row { found: row, rows: 1 }),
            Raises::Ring(raiser) => Ok(raiser.post(payload)?),
            Raises::Counter(raiser) => {
                raiser.post();
                Ok(Posted::Stored)
            }
        }
    }

    #[inline]
    pub(super) fn must_tell(&mut self) -> Result<bool, PeerFault> {
        match self {
            Raises::Counter(raiser) => raiser.must_tell(),
            Raises::Typed(raiser) => raiser.must_tell(),
            Raises::Slots(raiser) => raiser.must_tell(),
            Raises::Ring(raiser) => raiser.must_tell(),
        }
    }
}

/// A taker of any form.
#[derive(Debug)]
pub(super) enum Takes {
    Counter(counter::Taker<Part>),
    Typed(typed::Taker<Part>),
    Slots(slots::Taker<Part>),
    Ring(ring::Taker<Part>),
}

impl Takes {
    /// The next; all that were counted at once.
    #[inline]
    pub(super) fn take(&mut self) -> Result<Option<Event>, PeerFault> {
        match self {
            Takes::Typed(taker) => taker.take(),
            Takes::Slots(taker) => taker.take(),
            Takes::Ring(taker) => taker.take(),
            Takes::Counter(taker) => Ok(taker.take()?.map(|count| Event {
                row: 0,
                serial: 0,
                merged: count - 1,
                payload: Payload::default(),
            })),
        }
    }
}
