//! What the child reports: its state, and its totals for each stream.

/// The progress of the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The child has reported nothing yet.
    #[default]
    Starting = 0,
    /// The child waits for the start.
    Ready = 1,
    /// The child sends.
    Running = 2,
    /// The child has sent everything, and its counters are final.
    Done = 3,
}

/// The totals of the child for one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Datagrams handed to the kernel.
    pub offered: u64,
    /// The payload bytes of these datagrams.
    pub offered_bytes: u64,
    /// Sends that were so late that the schedule moved.
    pub slips: u64,
    /// Sends that failed.
    pub errors: u64,
}
