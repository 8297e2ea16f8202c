//! Answers that wait until their caller sends them: a bounded queue of frames, and one of answers
//! of discovery, which are small. An echo flood fills the first one only. [`super::Host`] alone
//! calls it.

use crate::packet::build::{self, BuildError};
use crate::packet::{Arp, LinkAddress};
use core::net::Ipv6Addr;
use std::collections::VecDeque;

/// The most frames that wait: two batches of a protocol activity that processes four packets.
pub const ANSWERS_MAX: usize = 8;
/// The most answers of discovery that wait. A neighbor that gets none asks again a second later.
pub const DISCOVERY_ANSWERS_MAX: usize = 64;

/// An answer of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discovery {
    /// The request.
    Arp(Arp),
    /// The own address; link address and address of the one who asked.
    Advertisement { own: Ipv6Addr, to_link: LinkAddress, to: Ipv6Addr },
}

#[derive(Debug)]
pub(super) struct Answers {
    discovery: VecDeque<Discovery>,
    /// Room for [`ANSWERS_MAX`] frames, used as a ring.
    bytes: Vec<u8>,
    frame_bytes: usize,
    lengths: [usize; ANSWERS_MAX],
    first: usize,
    waiting: usize,
    /// Answers for which there was no room.
    pub(super) dropped: u64,
}

impl Answers {
    /// For frames of at most `frame_bytes`, at least 1.
    pub(super) fn new(frame_bytes: usize) -> Answers {
        Answers {
            discovery: VecDeque::with_capacity(DISCOVERY_ANSWERS_MAX),
            bytes: vec![0; ANSWERS_MAX * frame_bytes],
            frame_bytes,
            lengths: [0; ANSWERS_MAX],
            first: 0,
            waiting: 0,
            dropped: 0,
        }
    }

    pub(super) fn push_discovery(&mut self, answer: Discovery) {
        if self.discovery.len() < DISCOVERY_ANSWERS_MAX {
            self.discovery.push_back(answer);
        } else {
            self.dropped += 1;
        }
    }

    /// Takes the frame that `write` writes. Says whether there was an answer to write; without
    /// room it is dropped.
    pub(super) fn push(
        &mut self,
        write: impl FnOnce(&mut [u8]) -> Result<usize, BuildError>,
    ) -> bool {
        let place = (self.first + self.waiting) % ANSWERS_MAX;
        let is_full = self.waiting == ANSWERS_MAX;
        let room = if is_full { 0 } else { self.frame_bytes };
        let slot = &mut self.bytes[place * self.frame_bytes..][..room];
        match write(slot) {
            Ok(length) => {
                self.lengths[place] = length;
                self.waiting += 1;
            }
            Err(BuildError::NoSpace { .. }) => self.dropped += 1,
            Err(_) => return false,
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.discovery.is_empty() && self.waiting == 0
    }

    /// Writes the next answer of discovery.
    pub(super) fn pop_discovery(
        &mut self,
        out: &mut [u8],
        own_link: LinkAddress,
    ) -> Option<Result<usize, BuildError>> {
        Some(match self.discovery.pop_front()? {
            Discovery::Arp(request) => build::arp_reply(out, own_link, &request),
            Discovery::Advertisement { own, to_link, to } => {
                build::neighbor_advertisement(out, (own_link, own), (to_link, to))
            }
        })
    }

    /// Writes the next other answer.
    pub(super) fn pop(&mut self, out: &mut [u8]) -> Option<Result<usize, BuildError>> {
        if self.waiting == 0 {
            return None;
        }
        let place = self.first;
        self.first = (place + 1) % ANSWERS_MAX;
        self.waiting -= 1;
        let needed = self.lengths[place];
        let frame = &self.bytes[place * self.frame_bytes..][..needed];
        let Some(out) = out.get_mut(..needed) else {
            return Some(Err(BuildError::NoSpace { needed }));
        };
        out.copy_from_slice(frame);
        Some(Ok(needed))
    }
}
