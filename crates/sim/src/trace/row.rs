//! The rows of a trace, as the user interface shows them.

/// The rows of a process, each with its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    Cpu(u32),
    Core(u32),
    /// By the order in which domains first appear.
    Domain(u32),
    /// By index in [`super::Header::activities`].
    Activity(u32),
}

impl Row {
    pub(super) fn uuid(self, process: u16) -> u64 {
        let (kind, number) = match self {
            Row::Cpu(number) => (1, number),
            Row::Core(number) => (2, number),
            Row::Domain(number) => (3, number),
            Row::Activity(number) => (4, number),
        };
        u64::from(process) << 40 | kind << 32 | u64::from(number)
    }

    /// The process and the CPU of a `core` row.
    pub(super) fn core_of(uuid: u64) -> Option<(u16, u32)> {
        if uuid >> 32 & 0xff != 2 {
            return None;
        }
        Some((u16::try_from(uuid >> 40).ok()?, u32::try_from(uuid & 0xffff_ffff).ok()?))
    }
}
