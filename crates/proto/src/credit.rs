//! How many packets of a receiver may pass the driver, in step with what it takes.
//!
//! A quota by the clock bounds the rate that a receiver asked for. A receiver that falls behind
//! takes less, and its packets would be dropped after the work of kernel and owner. So the owner
//! gives credit for the room that the receiver has. It goes on taking meanwhile: as many packets as
//! it took in the last round of its owner, or as it had room for then. The most of the three
//! counts.
//!
//! ```text
//!   driver           ring of the device                owner                      receiver
//!   passed --------> on the way, or lost ------------> arrived, or dropped -----> taken
//!   limit = lost + arrived + max(room, room in the round before, taken since)
//! ```
//!
//! Nobody counts per receiver what the device lost. It is at most `passed - arrived` of now, and at
//! least that of a moment whose packets cannot be on the way any more. A limit that is too low is
//! right again at the second call for which the ring was emptied. A receiver that stops costs the
//! owner as many late drops as it has slots, and then none.
//!
//! The owner of an interface calls it. It reads no clock, and allocates nothing.

/// What became of the packets of a receiver so far, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets that came out of the device.
    pub arrived: u64,
    /// Packets that the receiver has returned.
    pub taken: u64,
    /// Packets for which there is room now.
    pub room: u32,
}

/// What the owner knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The first call of a round: the receiver had time to take what arrived in the round before.
    pub is_new_round: bool,
    /// The ring of the device was emptied since the call before that had this.
    pub is_emptied: bool,
}

/// The credit of one receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credit {
    /// Passed, and never to arrive.
    lost: u64,
    /// `passed` when the ring was last known to have been emptied since the time before.
    passed_before: u64,
    /// At the end of the round before.
    before: Progress,
    latest: Progress,
}

impl Credit {
    /// The number of packets up to which the driver may pass any, at least 1. O(1).
    ///
    /// `passed` is what the driver counts, read after `progress`.
    pub fn limit(&mut self, passed: u64, progress: Progress, call: Call) -> u64 {
        let Progress { arrived, taken, room } = progress;
        if call.is_new_round {
            self.before = self.latest;
        }
        self.latest = progress;
        self.lost = self.lost.min(passed.saturating_sub(arrived));
        if call.is_emptied {
            self.lost = self.lost.max(self.passed_before.saturating_sub(arrived));
            self.passed_before = passed;
        }
        let since = taken.saturating_sub(self.before.taken);
        let credit = since.max(room.max(self.before.room).into());
        (self.lost + arrived).saturating_add(credit).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A receiver with its slots, a ring before it, and a driver.
    #[derive(Default)]
    struct Model {
        credit: Credit,
        limit: u64,
        slots: u32,
        passed: u64,
        ring: u64,
        lent: u32,
        progress: Progress,
        /// Dropped by the owner, for want of room.
        late: u64,
        behind: u64,
    }

    impl Model {
        fn new(slots: u32) -> Model {
            let mut model = Model { slots, ..Model::default() };
            model.refill(true);
            model
        }

        fn arrive(&mut self, is_lost: bool) {
            if self.passed >= self.limit {
                self.behind += 1;
                return;
            }
            self.passed += 1;
            self.ring += u64::from(!is_lost);
        }

        fn take(&mut self, most: u32) {
            let taken = most.min(self.lent);
            self.lent -= taken;
            self.progress.taken += u64::from(taken);
        }

        fn process(&mut self, most: u64) {
            for _ in 0..most.min(self.ring) {
                self.ring -= 1;
                self.progress.arrived += 1;
                match self.lent < self.slots {
                    true => self.lent += 1,
                    false => self.late += 1,
                }
            }
            self.refill(self.ring == 0);
        }

        fn refill(&mut self, is_emptied: bool) {
            self.progress.room = self.slots - self.lent;
            let call = Call { is_new_round: true, is_emptied };
            self.limit = self.credit.limit(self.passed, self.progress, call);
        }
    }

    #[test]
    fn who_takes_nothing_costs_the_owner_its_slots_once() {
        let mut model = Model::new(8);
        for _ in 0..100 {
            (0..50).for_each(|_| model.arrive(false));
            model.process(u64::MAX);
        }
        assert_eq!((model.lent, model.late, model.behind), (8, 8, 4984));
        // It takes all: at once there is room again.
        model.take(8);
        model.process(u64::MAX);
        (0..50).for_each(|_| model.arrive(false));
        model.process(u64::MAX);
        assert_eq!((model.lent, model.late), (8, 8));
    }

    #[test]
    fn who_takes_all_gets_as_many_as_it_has_slots_each_time() {
        let mut model = Model::new(8);
        for _ in 0..100 {
            (0..8).for_each(|_| model.arrive(false));
            // The owner takes note of what was taken before it hands over.
            model.take(8);
            model.process(u64::MAX);
        }
        assert_eq!((model.behind, model.late, model.progress.arrived), (0, 0, 800));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arrive { count: u32, is_lost: bool },
        Take(u32),
        Process(u64),
    }

    proptest! {
        #[test]
        fn losses_lock_nobody_out_and_late_drops_are_bounded_by_what_was_taken(
            slots in 1u32..20,
            steps in prop::collection::vec(
                prop_oneof![
                    (0u32..40, any::<bool>())
                        .prop_map(|(count, is_lost)| Step::Arrive { count, is_lost }),
                    (0u32..20).prop_map(Step::Take),
                    prop_oneof![Just(u64::MAX), 0u64..20].prop_map(Step::Process),
                ],
                0..100,
            ),
        ) {
            let mut model = Model::new(slots);
            for step in steps {
                match step {
                    Step::Arrive { count, is_lost } => {
                        (0..count).for_each(|_| model.arrive(is_lost));
                    }
                    Step::Take(most) => model.take(most),
                    Step::Process(most) => model.process(most),
                }
                prop_assert!(model.late <= model.progress.taken + u64::from(slots));
            }
            for _ in 0..3 {
                model.take(u32::MAX);
                model.process(u64::MAX);
            }
            model.process(u64::MAX);
            prop_assert_eq!(model.limit - model.passed, u64::from(slots));
        }
    }
}
