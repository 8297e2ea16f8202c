//! The variants: how players are scheduled.

/// Figure 4 of the paper has the first three, Figure 5 the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Ordinary processes, `SCHED_OTHER`.
    Ordinary,
    /// `SCHED_RR` at one priority, with the kernel's slice.
    RoundRobin,
    /// The same, with players that move to the end of the queue every 150 us.
    Sliced,
    /// Domains under a daemon with RMDP. All have the same rank, so the order of admission decides.
    Rmdp,
    /// The same. Among equals, the domain whose frame is shown first goes first.
    RmdpEvents,
    /// DWCS with the windows of [`crate::setup::window`].
    Dwcs,
    /// The same, with events by display time.
    DwcsEvents,
}

impl Variant {
    pub const ALL: [Variant; 7] = [
        Variant::Ordinary,
        Variant::RoundRobin,
        Variant::Sliced,
        Variant::Rmdp,
        Variant::RmdpEvents,
        Variant::Dwcs,
        Variant::DwcsEvents,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Variant::Ordinary => "other",
            Variant::RoundRobin => "rr",
            Variant::Sliced => "rr-150us",
            Variant::Rmdp => "rmdp",
            Variant::RmdpEvents => "rmdp+ev",
            Variant::Dwcs => "dwcs",
            Variant::DwcsEvents => "dwcs+ev",
        }
    }

    pub fn named(name: &str) -> Variant {
        let found = Variant::ALL.into_iter().find(|variant| variant.name() == name);
        found.unwrap_or_else(|| panic!("`{name}` is not a variant"))
    }

    /// The name in a figure.
    pub fn long_name(self) -> &'static str {
        match self {
            Variant::Ordinary => "SCHED_OTHER",
            Variant::RoundRobin => "SCHED_RR, the kernel's slices",
            Variant::Sliced => "SCHED_RR, slices of 150 us",
            Variant::Rmdp => "upcalld, RMDP, no events",
            Variant::RmdpEvents => "upcalld, RMDP, events by display time",
            Variant::Dwcs => "DWCS, no events",
            Variant::DwcsEvents => "DWCS, events by display time",
        }
    }

    pub fn is_upcall(self) -> bool {
        self.has_daemon() || self.has_windows()
    }

    /// Whether each player is a domain among others.
    pub fn has_daemon(self) -> bool {
        matches!(self, Variant::Rmdp | Variant::RmdpEvents)
    }

    /// Whether all players are handlers of one process. No daemon offers DWCS, because its ranks do
    /// not compare between processes.
    pub fn has_windows(self) -> bool {
        matches!(self, Variant::Dwcs | Variant::DwcsEvents)
    }

    pub fn has_events(self) -> bool {
        matches!(self, Variant::RmdpEvents | Variant::DwcsEvents)
    }

    /// Whether the processes are started in `SCHED_RR`.
    pub fn is_round_robin(self) -> bool {
        matches!(self, Variant::RoundRobin | Variant::Sliced)
    }
}
