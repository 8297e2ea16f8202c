//! A device with the account of its frames.

use super::device::{Area, Device, DeviceDrops, DeviceError};
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_shm::frames::account::{AccountError, Holder};
use upcall_shm::frames::{Account, Descriptor};

/// Frames that an owner takes from its device, or gives to it, at once.
pub const BATCH_FRAMES: usize = 32;

/// A frame that was sent, and the flow that has it again. With `None` it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The frame.
    pub frame: u32,
    /// The flow for which it was sent.
    pub flow: Option<u32>,
}

/// A device, its area, and the owner's record of who has each frame. Allocates only when it is
/// made.
#[derive(Debug)]
pub struct Port<D> {
    area: Arc<Area>,
    account: Account,
    device: D,
    /// The most frames that the device has to receive into.
    receiving_max: usize,
    /// Frames that it has to receive into.
    receiving: usize,
    scratch: Vec<u32>,
}

impl<D: Device> Port<D> {
    /// `device` uses the frames of `area`, at most `receiving_max` of them to receive into. The
    /// rest is for sending and for flows.
    pub fn new(area: Arc<Area>, device: D, receiving_max: u32) -> Port<D> {
        let account = Account::new(area.form().frames);
        let scratch = Vec::with_capacity(account.frames());
        let receiving_max = receiving_max as usize;
        Port { area, account, device, receiving_max, receiving: 0, scratch }
    }

    /// The frames.
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// Free frames beside those that the device should have to receive into.
    pub(super) fn spare(&self) -> usize {
        let missing = self.receiving_max.saturating_sub(self.receiving);
        self.account.free().saturating_sub(missing)
    }

    /// Another reference to the frames.
    pub(super) fn shared_area(&self) -> Arc<Area> {
        self.area.clone()
    }

    /// The frames, and who has each of them.
    pub(super) fn area_and_account(&mut self) -> (&Area, &mut Account) {
        (&self.area, &mut self.account)
    }

    /// Who has each frame. The owner lends frames to flows here.
    pub fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Supplies free frames, then appends the frames that arrived, until `parts` has reached its
    /// capacity. [`Holder::Owner`] has them then.
    ///
    /// # Errors
    /// As [`Device::receive`]. [`DeviceError::Account`]: the device returned a frame that it did
    /// not have; that frame is not in `parts`.
    pub fn receive(
        &mut self,
        now: Instant,
        parts: &mut Vec<Descriptor>,
    ) -> Result<(), DeviceError> {
        self.supply()?;
        let before = parts.len();
        let received = self.device.receive(now, parts);
        for at in before..parts.len() {
            let frame = parts[at].frame;
            let moved = self.account.hand_over(frame, Holder::Receiving, Holder::Owner);
            if let Err(error) = moved {
                parts.truncate(at);
                return Err(error.into());
            }
            self.receiving -= 1;
        }
        received
    }

    fn supply(&mut self) -> Result<(), DeviceError> {
        let missing = self.receiving_max.saturating_sub(self.receiving);
        if missing == 0 {
            return Ok(());
        }
        self.scratch.clear();
        let free = std::iter::from_fn(|| self.account.take(Holder::Receiving));
        self.scratch.extend(free.take(missing));
        let offered = self.scratch.len();
        let supplied = self.device.supply(&mut self.scratch);
        self.receiving += offered - self.scratch.len();
        for &frame in &self.scratch {
            self.account.hand_over(frame, Holder::Receiving, Holder::Free)?;
        }
        supplied
    }

    /// Takes a free frame to fill and send. `None`: all frames are in use.
    pub fn take(&mut self) -> Option<u32> {
        self.account.take(Holder::Owner)
    }

    /// Frees a frame that the owner has.
    ///
    /// # Errors
    /// The owner does not have it.
    pub fn release(&mut self, frame: u32) -> Result<(), AccountError> {
        self.account.hand_over(frame, Holder::Owner, Holder::Free)
    }

    /// Sends `parts` of frames that the owner has, or that `flow` has. Returns how many the device
    /// took, from the first one on. The others stay with their holder.
    ///
    /// # Errors
    /// As [`Device::transmit`]. [`DeviceError::Account`]: the holder does not have one of the
    /// frames, or the batch has a frame twice; nothing after it was sent.
    pub fn transmit(
        &mut self,
        now: Instant,
        flow: Option<u32>,
        parts: &[Descriptor],
    ) -> Result<usize, DeviceError> {
        self.transmit_each(now, parts, |_| flow)
    }

    /// As [`Port::transmit`], with a flow of its own for each part. `flow_of` has its index in
    /// `parts`.
    ///
    /// # Errors
    /// As [`Port::transmit`].
    pub fn transmit_each(
        &mut self,
        now: Instant,
        parts: &[Descriptor],
        flow_of: impl Fn(usize) -> Option<u32>,
    ) -> Result<usize, DeviceError> {
        let holder = |at| flow_of(at).map_or(Holder::Owner, Holder::Flow);
        let moved = |&at: &usize| {
            let sending = Holder::Sending(flow_of(at));
            self.account.hand_over(parts[at].frame, holder(at), sending).is_ok()
        };
        let counted = (0..parts.len()).take_while(moved).count();
        let taken = match counted {
            0 => Ok(0),
            _ => self.device.transmit(now, &parts[..counted]),
        };
        let first = *taken.as_ref().unwrap_or(&0);
        for (at, part) in parts.iter().enumerate().take(counted).skip(first) {
            self.account.hand_over(part.frame, Holder::Sending(flow_of(at)), holder(at))?;
        }
        match (taken, parts.get(counted)) {
            (Ok(0), Some(&Descriptor { frame, .. })) if counted == 0 => {
                let found = self.account.holder(frame);
                Err(AccountError { frame, found, expected: holder(0) }.into())
            }
            (taken, _) => taken,
        }
    }

    /// Appends the frames that were sent, until `sent` has reached its capacity. A frame of a flow
    /// is with the flow again, any other is free.
    ///
    /// # Errors
    /// As [`Device::take_sent`]. [`DeviceError::Account`]: the device returned a frame that it did
    /// not have.
    pub fn collect(&mut self, sent: &mut Vec<Sent>) -> Result<(), DeviceError> {
        let mut frames = std::mem::take(&mut self.scratch);
        frames.clear();
        let room = sent.capacity() - sent.len();
        let taken = self.device.take_sent(&mut frames, room);
        let mut wrong = Ok(());
        for &frame in &frames {
            match self.account.sent(frame) {
                Ok(flow) => sent.push(Sent { frame, flow }),
                Err(error) => wrong = Err(error.into()),
            }
        }
        self.scratch = frames;
        taken.and(wrong)
    }

    /// Frames that arrived and were dropped by the device ([`Device::drops`]).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError> {
        self.device.drops()
    }

    /// Closes the device. The account has all its frames again. Those of flows stay with them.
    pub fn close(self) -> Account {
        let Port { mut account, device, .. } = self;
        // First, so that the kernel does not write to a frame that is free.
        drop(device);
        account.device_is_gone();
        account
    }
}
