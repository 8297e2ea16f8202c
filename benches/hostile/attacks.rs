//! The actions of hostile or broken domains. Each runs in a process of its own, usually on a
//! real-time thread that the daemon gave it.
//!
//! Each file below has a list `ATTACKS`, and [`all`] chains the lists. To add a row:
//!
//! 1. Write a function `fn(&Path)` that gets the daemon's socket and acts. It calls [`attacking`]
//!    once it has all that it needs, at the moment from which it does harm: without that line the
//!    row does not hold, and a panic breaks it too. It calls [`breach`] if it sees itself that a
//!    defence failed. It may not end, except in a row with `ends`. It may start processes and
//!    threads, and attach several domains: [`run`] attaches one with the runtime and one handler,
//!    [`crate::raw::Raw`] is one that can write anything into its pages.
//! 2. Add `attack("name", "what it does", function)` to the list of the file. Names are unique and
//!    have at most 18 characters.
//! 3. Set what the attack needs, with `Attack { other_user: true, ..attack(...) }`: another user,
//!    options of the daemon, an action from outside (stop, kill, trace, restart of the daemon), or
//!    an ordinary program beside, victims with other periods ([`Victims`]), or domains that attach
//!    meanwhile (`arrivals`).
//! 4. A new file needs a line in [`all`].
//!
//! The module [`crate::outcome`] says when a row holds. The bench prints each measure of the
//! watchdog. A measure against a victim is printed with the word VICTIM, and breaks the row.

mod budget;
mod cpu;
mod locks;
mod members;
mod memory;
mod messages;
mod priority;
mod process;
mod runaway;
mod server;
mod slots;
mod wake;
mod watchdog;

pub(crate) use crate::attack::{
    Attack, Beside, DaemonOptions, Outside, Victims, attach_elsewhere, attack, attacking, be_ready,
    behave, breach, claim, cpu_of_victims, endless_asking, notify_daemon, run, sleep, spin,
};

/// All attacks, in the order of the table.
pub(crate) fn all() -> impl Iterator<Item = &'static Attack> {
    let families = [
        cpu::ATTACKS,
        budget::ATTACKS,
        runaway::ATTACKS,
        wake::ATTACKS,
        watchdog::ATTACKS,
        priority::ATTACKS,
        memory::ATTACKS,
        process::ATTACKS,
        members::ATTACKS,
        locks::ATTACKS,
        messages::ATTACKS,
        server::ATTACKS,
        slots::ATTACKS,
    ];
    families.into_iter().flatten()
}

/// The attack of this name.
///
/// # Panics
/// If there is none.
pub(crate) fn named(name: &str) -> &'static Attack {
    all().find(|attack| attack.name == name).expect("a known attack")
}

/// Checks that each attack can be chosen by its name.
///
/// # Panics
/// On a name that is too long for the table, or that two attacks have.
pub(crate) fn check_names() {
    let mut names: Vec<_> = all().map(|attack| attack.name).collect();
    assert!(names.iter().all(|name| name.len() <= 18 && !name.contains('|')), "{names:?}");
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name twice: {names:?}");
}
