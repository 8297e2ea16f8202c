//! How players are scheduled.

/// Figure 4 of the paper has one of the first three, Figure 5 one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Ordinary processes, `SCHED_OTHER`.
    Ordinary,
    /// `SCHED_RR` at one priority, with the kernel's slice.
    RoundRobin,
    /// The same, and players that go to the end of the queue every 150 us.
    Sliced,
    /// Domains under a daemon, RMDP: all alike, so in the order of their admission.
    Rmdp,
    /// The same, and of equals first whose frame is to be shown first.
    RmdpEvents,
    /// DWCS with the windows of [`crate::window`].
    Dwcs,
    /// The same, with events by display time.
    DwcsEvents,
}

impl Way {
    pub const ALL: [Way; 7] = [
        Way::Ordinary,
        Way::RoundRobin,
        Way::Sliced,
        Way::Rmdp,
        Way::RmdpEvents,
        Way::Dwcs,
        Way::DwcsEvents,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Way::Ordinary => "other",
            Way::RoundRobin => "rr",
            Way::Sliced => "rr-150us",
            Way::Rmdp => "rmdp",
            Way::RmdpEvents => "rmdp+ev",
            Way::Dwcs => "dwcs",
            Way::DwcsEvents => "dwcs+ev",
        }
    }

    pub fn named(name: &str) -> Way {
        let found = Way::ALL.into_iter().find(|way| way.name() == name);
        found.unwrap_or_else(|| panic!("`{name}` is no way"))
    }

    /// In a figure.
    pub fn long_name(self) -> &'static str {
        match self {
            Way::Ordinary => "SCHED_OTHER",
            Way::RoundRobin => "SCHED_RR, the kernel's slices",
            Way::Sliced => "SCHED_RR, slices of 150 us",
            Way::Rmdp => "upcalld, RMDP, no events",
            Way::RmdpEvents => "upcalld, RMDP, events by display time",
            Way::Dwcs => "DWCS, no events",
            Way::DwcsEvents => "DWCS, events by display time",
        }
    }

    pub fn is_upcall(self) -> bool {
        self.has_daemon() || self.has_windows()
    }

    /// Whether each player is a domain among others.
    pub fn has_daemon(self) -> bool {
        matches!(self, Way::Rmdp | Way::RmdpEvents)
    }

    /// Whether all players are handlers of one process: no daemon has DWCS, whose ranks do
    /// not compare between processes.
    pub fn has_windows(self) -> bool {
        matches!(self, Way::Dwcs | Way::DwcsEvents)
    }

    pub fn has_events(self) -> bool {
        matches!(self, Way::RmdpEvents | Way::DwcsEvents)
    }

    /// Whether the processes are to be started in `SCHED_RR`.
    pub fn is_round_robin(self) -> bool {
        matches!(self, Way::RoundRobin | Way::Sliced)
    }
}
