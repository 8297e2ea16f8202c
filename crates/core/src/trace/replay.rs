//! Replays recorded inputs and compares the commands.

use super::crossing::{Crossing, Record};
use crate::activity::Terms;
use crate::policy::PolicyFactory;
use crate::scheduler::{Command, Input, InputError, Scheduler};
use crate::time::Instant;
use core::fmt;

/// The latest `now` that a record may have: 73 years after the driver's epoch. This bounds the
/// counts that a forged trace can cause in the core.
pub const INSTANT_MAX: Instant = Instant::from_nanos(1 << 60);

/// The number of crossings that were as recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Inputs given, including refused ones.
    pub inputs: u64,
    /// Commands, all as recorded.
    pub commands: u64,
    /// Answers without a command, all as recorded.
    pub silences: u64,
    /// Crossings that were not recorded. The replay ends at the first of them, because the state
    /// after it is unknown.
    pub lost: u64,
}

/// The first crossing that differs from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The index of the record.
    pub index: usize,
    /// The record.
    pub recorded: Record,
    /// What the core does instead.
    pub found: Found,
}

/// What the core does instead of the recorded crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// Another answer.
    Command(Option<Command>),
    /// The core accepts an input that was refused.
    Taken,
    /// The core refuses an input that was accepted.
    Refused(InputError),
    /// The core was not called, because no driver may make this call.
    Disorder(&'static str),
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now_ns = self.recorded.now.as_nanos();
        write!(f, "record {} at {now_ns} ns: recorded ", self.index)?;
        match self.recorded.crossing {
            Crossing::Input { input, .. } => write!(f, "{input:?}")?,
            Crossing::Command(command) | Crossing::Notice(command) => answer(f, command)?,
            Crossing::Lost { records } => write!(f, "{records} lost")?,
        }
        f.write_str(", found ")?;
        match self.found {
            Found::Command(command) => answer(f, command),
            Found::Taken => f.write_str("that the core takes it"),
            Found::Refused(error) => write!(f, "that the core refuses it: {error}"),
            Found::Disorder(what) => f.write_str(what),
        }
    }
}

fn answer(f: &mut fmt::Formatter<'_>, command: Option<Command>) -> fmt::Result {
    match command {
        Some(command) => write!(f, "{command:?}"),
        None => f.write_str("no command"),
    }
}

impl core::error::Error for Divergence {}

/// Gives the inputs of one scheduler's `records` to a fresh scheduler of the same `capacity` under
/// `discipline`, repeats the recorded calls, and compares every answer. Allocates like
/// [`Scheduler::new`]; O(log n) a record.
///
/// # Errors
/// The first record that differs from what the core does.
pub fn replay(
    discipline: &impl PolicyFactory,
    capacity: u32,
    records: impl IntoIterator<Item = Record>,
) -> Result<Replayed, Box<Divergence>> {
    replay_seen(discipline, capacity, records, |_, _| {})
}

/// Like [`replay`], and calls `seen` with the scheduler after every record that matches. So the
/// caller can read figures of the policy that no record holds.
///
/// # Errors
/// See [`replay`].
pub fn replay_seen(
    discipline: &impl PolicyFactory,
    capacity: u32,
    records: impl IntoIterator<Item = Record>,
    mut seen: impl FnMut(&Scheduler, &Record),
) -> Result<Replayed, Box<Divergence>> {
    let mut core = Replay {
        scheduler: Scheduler::new(capacity, discipline),
        now: Instant::ZERO,
        done: Replayed::default(),
    };
    for (index, recorded) in records.into_iter().enumerate() {
        if let Crossing::Lost { records } = recorded.crossing {
            core.done.lost += records;
        } else if core.done.lost == 0 {
            core.step(recorded).map_err(|found| Box::new(Divergence { index, recorded, found }))?;
            seen(&core.scheduler, &recorded);
        }
    }
    Ok(core.done)
}

struct Replay {
    scheduler: Scheduler,
    now: Instant,
    done: Replayed,
}

impl Replay {
    fn step(&mut self, recorded: Record) -> Result<(), Found> {
        if recorded.now > INSTANT_MAX {
            return Err(Found::Disorder("a time later than any clock's"));
        }
        self.now = recorded.now;
        match recorded.crossing {
            Crossing::Input { input, refused } => self.input(input, refused),
            Crossing::Command(expected) => {
                let found = self.scheduler.poll_command(self.now);
                self.compare(expected, found)
            }
            Crossing::Notice(expected) => {
                let found = self.scheduler.poll_notice();
                self.compare(expected, found)
            }
            Crossing::Lost { .. } => Ok(()),
        }
    }

    fn input(&mut self, input: Input, refused: bool) -> Result<(), Found> {
        if self.scheduler.has_commands() {
            return Err(Found::Disorder("an input while commands wait"));
        }
        if let Input::Create { params, terms, .. } = input
            && (params.validated().is_err() || !in_range(&terms))
        {
            return Err(Found::Disorder("parameters outside their ranges"));
        }
        self.done.inputs += 1;
        match (self.scheduler.handle(self.now, input), refused) {
            (Ok(()), false) | (Err(_), true) => Ok(()),
            (Ok(()), true) => Err(Found::Taken),
            (Err(error), false) => Err(Found::Refused(error)),
        }
    }

    fn compare(&mut self, expected: Option<Command>, found: Option<Command>) -> Result<(), Found> {
        if expected != found {
            return Err(Found::Command(found));
        }
        match found {
            Some(_) => self.done.commands += 1,
            None => self.done.silences += 1,
        }
        Ok(())
    }
}

/// Whether the terms are within the ranges that the documentation of their fields states.
fn in_range(terms: &Terms) -> bool {
    terms.weight != Some(0)
        && terms.window.is_none_or(|window| window.misses < window.periods)
        && terms.delay_bound.is_none_or(|bound| !bound.is_zero())
}
