//! Who has each frame, by the owner's own record.
//!
//! Only the owner of an area writes it, in its private memory. A frame has one holder at a time,
//! and every change names the holder before it. So a frame that a peer returns twice, or that it
//! never had, is found. The numbers of frames per holder always sum up to the area.
//!
//! ```text
//!             (1) receiving          (2) arrived           (3) lend
//!   Free  ------------------> Device -----------> Owner ----------------> Flow f
//!    ^                                              |  <---------------------'
//!    |                                              |      (4) taken back
//!    '----------------- (5) freed ------------------'
//!                             (6) sending
//!   Flow f or Owner ----------------------------> Device, sent for f or the owner
//!                  <----------------------------
//!                             (7) sent
//!   (8) a flow is gone: Flow f -> Free, sent for f -> sent for the owner
//!   (9) a device is gone: Device -> Free, or Flow f if sent for f
//! ```

use core::fmt;

/// Who has a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Free,
    /// The code of the owner.
    Owner,
    /// A domain, by the number of its flow.
    Flow(u32),
    /// The device, to receive into.
    Receiving,
    /// The device, to send. It goes back to the flow, or to the owner.
    Sending(Option<u32>),
}

impl Holder {
    /// In one word, so that the holders of many frames fit a cache.
    #[inline]
    const fn word(self) -> u32 {
        match self {
            Holder::Free => 0,
            Holder::Owner => 1,
            Holder::Receiving => 2,
            Holder::Sending(None) => 3,
            Holder::Flow(flow) => 4 + 2 * flow,
            Holder::Sending(Some(flow)) => 5 + 2 * flow,
        }
    }

    #[inline]
    const fn of_word(word: u32) -> Holder {
        match word {
            0 => Holder::Free,
            1 => Holder::Owner,
            2 => Holder::Receiving,
            3 => Holder::Sending(None),
            word if word.is_multiple_of(2) => Holder::Flow((word - 4) / 2),
            word => Holder::Sending(Some((word - 5) / 2)),
        }
    }
}

/// The numbers of flows are below this.
pub const FLOWS_MAX: u32 = 1 << 30;

/// A frame does not have the holder that the change names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccountError {
    /// The frame.
    pub frame: u32,
    /// Who has it. `None`: there is no such frame.
    pub found: Option<Holder>,
    /// Who should have it.
    pub expected: Holder,
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccountError { frame, found, expected } = self;
        match found {
            Some(found) => write!(f, "frame {frame} is with {found:?}, expected {expected:?}"),
            None => write!(f, "there is no frame {frame}, expected it with {expected:?}"),
        }
    }
}

crate::fault::debug_as_display!(AccountError);

impl core::error::Error for AccountError {}

/// How many frames each kind of holder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HolderCounts {
    /// With nobody.
    pub free: u32,
    /// With the code of the owner.
    pub owner: u32,
    /// With domains.
    pub flows: u32,
    /// With the device, to receive into.
    pub receiving: u32,
    /// With the device, to send.
    pub sending: u32,
}

/// The owner's record of all frames of an area.
#[derive(Debug)]
pub struct Account {
    /// [`Holder::word`] of each frame.
    holders: Box<[u32]>,
    /// Indexes of the free frames; as many places as there are frames.
    free: Vec<u32>,
}

impl Account {
    /// All `frames` are free. Allocates all that it will need.
    pub fn new(frames: u32) -> Account {
        let holders = vec![Holder::Free.word(); frames as usize].into();
        Account { holders, free: (0..frames).rev().collect() }
    }

    /// Takes a free frame for `to`. `None` if there is none. O(1).
    #[inline]
    pub fn take(&mut self, to: Holder) -> Option<u32> {
        let frame = self.free.pop()?;
        self.give(frame, to);
        Some(frame)
    }

    /// Moves `frame` from one holder to another. O(1).
    ///
    /// # Errors
    /// `from` does not have it, or `from` is [`Holder::Free`] ([`Account::take`] is for that).
    /// Nothing changes then.
    #[inline]
    pub fn hand_over(&mut self, frame: u32, from: Holder, to: Holder) -> Result<(), AccountError> {
        let found = self.holders.get(frame as usize);
        if found != Some(&from.word()) || from == Holder::Free {
            let found = self.holder(frame);
            return Err(AccountError { frame, found, expected: from });
        }
        self.give(frame, to);
        Ok(())
    }

    /// The device has sent `frame`. Returns the flow that has it again, or `None`: then the frame
    /// is free. O(1).
    ///
    /// # Errors
    /// The device was not sending it.
    #[inline]
    pub fn sent(&mut self, frame: u32) -> Result<Option<u32>, AccountError> {
        match self.holder(frame) {
            Some(Holder::Sending(flow)) => {
                self.give(frame, flow.map_or(Holder::Free, Holder::Flow));
                Ok(flow)
            }
            found => Err(AccountError { frame, found, expected: Holder::Sending(None) }),
        }
    }

    /// The domain of `flow` is gone: takes back all that it had, and returns how many frames that
    /// were. A frame that the device sends for it becomes free once it is sent. Reads nothing that
    /// the domain wrote. O(frames).
    pub fn flow_is_gone(&mut self, flow: u32) -> u32 {
        self.each(|holder| match holder {
            Holder::Flow(gone) if gone == flow => Some(Holder::Free),
            Holder::Sending(Some(gone)) if gone == flow => Some(Holder::Sending(None)),
            _ => None,
        })
    }

    /// The device is closed: takes back all that it had, for the owner and for flows. Returns how
    /// many frames that were. O(frames).
    pub fn device_is_gone(&mut self) -> u32 {
        self.each(|holder| match holder {
            Holder::Receiving | Holder::Sending(None) => Some(Holder::Free),
            Holder::Sending(Some(flow)) => Some(Holder::Flow(flow)),
            _ => None,
        })
    }

    /// Who has `frame`. `None` if there is no such frame.
    #[inline]
    pub fn holder(&self, frame: u32) -> Option<Holder> {
        self.holders.get(frame as usize).map(|&word| Holder::of_word(word))
    }

    /// Frames that are with nobody. O(1).
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Frames of the area.
    pub fn frames(&self) -> usize {
        self.holders.len()
    }

    /// Counts the frames of each holder. O(frames).
    pub fn counts(&self) -> HolderCounts {
        let mut counts = HolderCounts::default();
        for &word in &self.holders {
            *match Holder::of_word(word) {
                Holder::Free => &mut counts.free,
                Holder::Owner => &mut counts.owner,
                Holder::Flow(_) => &mut counts.flows,
                Holder::Receiving => &mut counts.receiving,
                Holder::Sending(_) => &mut counts.sending,
            } += 1;
        }
        counts
    }

    /// Whether every frame is free, and is exactly once in the list of free frames. O(frames).
    pub fn all_free(&self) -> bool {
        let mut listed = self.free.clone();
        listed.sort_unstable();
        let whole = listed.iter().zip(0..).all(|(&frame, expected)| frame == expected);
        whole && listed.len() == self.frames()
    }

    #[inline]
    fn give(&mut self, frame: u32, to: Holder) {
        debug_assert!(!matches!(to, Holder::Flow(f) | Holder::Sending(Some(f)) if f >= FLOWS_MAX));
        self.holders[frame as usize] = to.word();
        if to == Holder::Free {
            self.free.push(frame);
        }
    }

    /// Gives each frame to the holder that `next` names, and returns how many changed holders.
    fn each(&mut self, next: impl Fn(Holder) -> Option<Holder>) -> u32 {
        let mut changed = 0;
        for frame in (0..).take(self.frames()) {
            if let Some(to) = next(Holder::of_word(self.holders[frame as usize])) {
                self.give(frame, to);
                changed += 1;
            }
        }
        changed
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_returned_twice_or_by_another_is_refused() {
        let mut account = Account::new(2);
        let frame = account.take(Holder::Owner).unwrap();
        account.hand_over(frame, Holder::Owner, Holder::Flow(3)).unwrap();
        for (from, found) in [(Holder::Flow(4), Holder::Flow(3)), (Holder::Owner, Holder::Flow(3))]
        {
            let error = account.hand_over(frame, from, Holder::Free).unwrap_err();
            assert_eq!(error, AccountError { frame, found: Some(found), expected: from });
        }
        account.hand_over(frame, Holder::Flow(3), Holder::Free).unwrap();
        assert!(account.hand_over(frame, Holder::Flow(3), Holder::Free).is_err());
        assert!(account.hand_over(frame, Holder::Free, Holder::Free).is_err());
        assert_eq!(account.hand_over(7, Holder::Owner, Holder::Free).unwrap_err().found, None);
        assert!(account.all_free());
    }

    #[test]
    fn frames_of_a_dead_domain_come_back_also_those_being_sent() {
        let mut account = Account::new(4);
        for _ in 0..3 {
            account.take(Holder::Flow(1)).unwrap();
        }
        let other = account.take(Holder::Flow(2)).unwrap();
        account.hand_over(0, Holder::Flow(1), Holder::Sending(Some(1))).unwrap();
        assert_eq!(account.flow_is_gone(1), 3);
        assert_eq!(
            account.counts(),
            HolderCounts { free: 2, flows: 1, sending: 1, ..HolderCounts::default() }
        );
        assert_eq!(account.sent(0), Ok(None));
        assert_eq!(account.flow_is_gone(2), 1);
        assert_eq!(account.holder(other), Some(Holder::Free));
        assert!(account.all_free());
    }

    proptest! {
        #[test]
        fn no_sequence_loses_a_frame(
            steps in prop::collection::vec((0u8..7, 0u32..8, 0u32..3), 0..200),
        ) {
            let mut account = Account::new(8);
            for (step, frame, flow) in steps {
                // A refused change is part of the test: it changes nothing.
                let _ = match step {
                    0 => account.take(Holder::Receiving).map(drop).ok_or(()),
                    1 => account.take(Holder::Flow(flow)).map(drop).ok_or(()),
                    2 => account
                        .hand_over(frame, Holder::Receiving, Holder::Flow(flow))
                        .map_err(drop),
                    3 => account
                        .hand_over(frame, Holder::Flow(flow), Holder::Sending(Some(flow)))
                        .map_err(drop),
                    4 => account.sent(frame).map(drop).map_err(drop),
                    5 => { account.flow_is_gone(flow); Ok(()) }
                    _ => account
                        .hand_over(frame, Holder::Flow(flow), Holder::Free)
                        .map_err(drop),
                };
                let HolderCounts { free, owner, flows, receiving, sending } = account.counts();
                prop_assert_eq!(free + owner + flows + receiving + sending, 8);
                prop_assert_eq!(free as usize, account.free.len());
            }
            (0..3).for_each(|flow| { account.flow_is_gone(flow); });
            account.device_is_gone();
            prop_assert!(account.all_free());
        }
    }
}
