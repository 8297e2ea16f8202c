//! The variants: how players are scheduled.

/// Figure 4 of the paper has the first four, Figure 5 the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Ordinary processes, `SCHED_OTHER`.
    Ordinary,
    /// The same, each in a control group of its own ([`crate::groups`]).
    Groups,
    /// `SCHED_RR` at one priority, with the kernel's slice.
    RoundRobin,
    /// The same, with players that move to the end of the queue every 150 us.
    Sliced,
    /// Domains under a daemon with RMDP. All have the same rank, so the order of admission decides.
    Rmdp,
    /// The same. Among equals, the domain whose frame is shown first goes first.
    RmdpEvents,
    /// DWCS with the windows of [`crate::setup::window`]: domains under a daemon as long as it
    /// admits all, else handlers of one process.
    Dwcs,
    /// The same, with events by display time.
    DwcsEvents,
}

impl Variant {
    pub const ALL: [Variant; 8] = [
        Variant::Ordinary,
        Variant::Groups,
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
            Variant::Groups => "groups",
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
            Variant::Groups => "SCHED_OTHER, a control group each",
            Variant::RoundRobin => "SCHED_RR, the kernel's slices",
            Variant::Sliced => "SCHED_RR, slices of 150 us",
            Variant::Rmdp => "upcalld, RMDP, no events",
            Variant::RmdpEvents => "upcalld, RMDP, events by display time",
            Variant::Dwcs => "DWCS, no events",
            Variant::DwcsEvents => "DWCS, events by display time",
        }
    }

    pub fn is_upcall(self) -> bool {
        matches!(self, Variant::Rmdp | Variant::RmdpEvents) || self.has_windows()
    }

    /// Whether each of `players` players is a domain under a daemon that admits `admitted` of them.
    /// Under DWCS a daemon admits no windows of 1/10 that need their misses: they ask for more than
    /// one service a window (docs/decisions/0022). So beyond that one process plays.
    pub fn has_daemon(self, players: usize, admitted: usize) -> bool {
        self.is_upcall() && (!self.has_windows() || players <= admitted)
    }

    /// Whether players have windows, and the clock of one screen.
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
