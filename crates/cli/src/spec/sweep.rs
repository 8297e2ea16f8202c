//! The sweep file: the random task sets that `upcall sweep` draws, and the policies it tries.
//!
//! Every list is an axis of a grid. `sets` sets are drawn for each point of the grid. The file is
//! read as a spec file is, with the same errors.

use super::source::{Faults, Source, SpecError};
use super::table::{Table, found, integer};
use super::units::{parse_duration, parse_share};
use super::{as_text, read_bytes, syntax_error};
use std::path::Path;
use toml::de::{DeTable, DeValue};
use upcall::activity::BATCH_MAX;
use upcall::discipline::{DISCIPLINES, Discipline, by_name};
use upcall::time::Span;

/// Most values of a list.
const VALUES_MAX: usize = 1_000;
/// Most activities of a set.
const ACTIVITIES_MAX: u32 = 1_000;
/// Most sets of a point.
const SETS_MAX: u32 = 1_000_000;
/// Shortest period.
const PERIOD_MIN: Span = Span::from_micros(10);

const KEYS: &[&str] = &[
    "policies",
    "utilizations",
    "activities",
    "periods",
    "batch",
    "quanta",
    "switch_costs",
    "sets",
    "duration",
    "seed",
];

/// A sweep file that was read and checked. No list is empty.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Each set is tried under each policy.
    pub policies: Vec<&'static Discipline>,
    /// Utilization of a set, in millionths of the CPU, without hand-offs.
    pub utilizations_ppm: Vec<u32>,
    /// Numbers of activities in a set.
    pub activities: Vec<u32>,
    /// Shortest and longest period. The logarithms of periods are uniform between them.
    pub periods: (Span, Span),
    /// PDUs of a job.
    pub batch: u32,
    /// PDUs without preemption, each at most `batch`.
    pub quanta: Vec<u32>,
    /// Costs of a hand-off.
    pub switch_costs: Vec<Span>,
    /// Sets of each point.
    pub sets: u32,
    /// Duration of each simulation. `None`: sets are admitted or refused, but not run.
    pub duration: Option<Span>,
    /// The seed of the random numbers.
    pub seed: u32,
}

impl Sweep {
    /// Reads the file at `path`; see [`super::Spec::read`].
    ///
    /// # Errors
    /// The system's error, or every error in the file.
    pub fn read(path: &Path) -> Result<Sweep, SpecError> {
        let (name, bytes) = read_bytes(path)?;
        Sweep::parse(&name, &bytes)
    }

    /// Reads the content of a file. `name` is the file's name in errors.
    ///
    /// # Errors
    /// Every error in the file.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Sweep, SpecError> {
        let text = as_text(name, bytes)?;
        let source = Source::new(name, text);
        let document = DeTable::parse(text).map_err(|error| syntax_error(&source, &error))?;
        let mut faults = Faults::default();
        let end = text.len()..text.len();
        let mut table = Table::new("", end, text, document.get_ref(), &mut faults);
        let sweep = read_sweep(&mut table);
        match sweep {
            Some(sweep) if faults.is_empty() => Ok(sweep),
            _ => Err(faults.into_error(&source)),
        }
    }

    /// The number of sets of all points.
    pub fn set_count(&self) -> u64 {
        let axes = [
            self.utilizations_ppm.len(),
            self.activities.len(),
            self.quanta.len(),
            self.switch_costs.len(),
        ];
        axes.iter().map(|&len| len as u64).product::<u64>() * u64::from(self.sets)
    }
}

fn read_sweep(table: &mut Table<'_, '_>) -> Option<Sweep> {
    table.reject_unknown(KEYS);
    let policies = list(table, "policies", "an array of policies such as [\"rm\", \"dws\"]", |v| {
        let word = v.as_str()?;
        by_name(word)
    });
    table.require("utilizations", "an array of shares such as [\"50 %\", \"60 %\"]");
    let utilizations = list(table, "utilizations", "an array of shares such as [\"50 %\"]", |v| {
        parse_share(v.as_str()?).ok()
    });
    let counts = |most: u32| move |v: &DeValue<'_>| integer(v).filter(|n| (1..=most).contains(n));
    table.require("activities", "an array of counts such as [4, 8]");
    let activities =
        list(table, "activities", "an array of counts from 1 to 1000", counts(ACTIVITIES_MAX));
    let periods = read_periods(table);
    let batch = match table.has("batch") {
        true => table.count("batch", 1..=BATCH_MAX),
        false => Some(1),
    };
    let most = batch.unwrap_or(BATCH_MAX);
    let expected = format!("an array of counts from 1 to the batch, {most}");
    let quanta = list(table, "quanta", &expected, counts(most));
    let costs = list(table, "switch_costs", "an array of durations such as [\"50 us\"]", |v| {
        parse_duration(v.as_str()?).ok()
    });
    let sets = match table.has("sets") {
        true => table.count("sets", 1..=SETS_MAX),
        false => Some(100),
    };
    let duration = table.duration("duration", Span::from_millis(1));
    let seed = if table.has("seed") { table.count("seed", 0..=u32::MAX) } else { Some(0) };
    Some(Sweep {
        policies: policies?.unwrap_or_else(|| DISCIPLINES.to_vec()),
        utilizations_ppm: utilizations??,
        activities: activities??,
        periods: periods?,
        batch: batch?,
        quanta: quanta?.unwrap_or_else(|| vec![1]),
        switch_costs: costs?.unwrap_or_else(|| vec![Span::ZERO]),
        sets: sets?,
        duration,
        seed: seed?,
    })
}

/// An array that is not empty; `read` reads each value. Returns `Some(None)` if the key is absent,
/// and `None` after an error.
fn list<T>(
    table: &mut Table<'_, '_>,
    key: &str,
    expected: &str,
    read: impl Fn(&DeValue<'_>) -> Option<T>,
) -> Option<Option<Vec<T>>> {
    let Some(value) = table.value(key) else { return Some(None) };
    let Some(array) = value.get_ref().as_array().filter(|array| !array.is_empty()) else {
        table.refuse_value(key, expected);
        return None;
    };
    if array.len() > VALUES_MAX {
        table.refuse(key, &format!("{} values", array.len()), "at most 1000");
        return None;
    }
    let mut values = Vec::new();
    for element in array {
        match read(element.get_ref()) {
            Some(value) => values.push(value),
            None => {
                let found = found(table.text(), element);
                table.refuse_at(element.span(), key, &found, expected);
            }
        }
    }
    (values.len() == array.len()).then_some(Some(values))
}

/// `periods = ["5 ms", "100 ms"]`: the shortest and the longest.
fn read_periods(table: &mut Table<'_, '_>) -> Option<(Span, Span)> {
    const EXPECTED: &str = "the shortest and the longest period, such as [\"10 ms\", \"100 ms\"]";
    let read =
        |v: &DeValue<'_>| parse_duration(v.as_str()?).ok().filter(|&period| period >= PERIOD_MIN);
    if !table.has("periods") {
        return Some((Span::from_millis(10), Span::from_millis(100)));
    }
    match list(table, "periods", EXPECTED, read)??.as_slice() {
        &[shortest, longest] if shortest <= longest && longest <= Span::from_secs(3600) => {
            Some((shortest, longest))
        }
        _ => {
            table.refuse_value("periods", EXPECTED);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "utilizations = [\"50 %\", \"90 %\"]\nactivities = [4]\n";

    #[test]
    fn absent_keys_have_their_defaults() {
        let sweep = Sweep::parse("sweep.toml", GOOD.as_bytes()).unwrap();
        assert_eq!(sweep.policies.len(), DISCIPLINES.len());
        assert_eq!(sweep.utilizations_ppm, [500_000, 900_000]);
        assert_eq!(sweep.set_count(), 200);
        assert_eq!(sweep.duration, None);
    }

    #[test]
    fn every_mistake_has_its_position() {
        for (more, said) in [
            ("sets = 0", "3:8: sets: found 0, expected an integer from 1 to 1000000"),
            (
                "policies = [\"rm\", \"edf\"]",
                "3:19: policies: found \"edf\", expected an array of policies",
            ),
            (
                "quanta = [2]",
                "3:11: quanta: found 2, expected an array of counts from 1 to the batch, 1",
            ),
            ("periods = [\"20 ms\", \"10 ms\"]", "3:11: periods: found"),
            ("periods = [\"20 ms\"]", "3:11: periods: found"),
            ("switch_costs = []", "3:16: switch_costs: found"),
            ("quantum = 1", "3:1: quantum: found an unknown key"),
            ("duration = 5", "3:12: duration: found 5, expected a duration"),
        ] {
            let text = format!("{GOOD}{more}\n");
            let error = Sweep::parse("sweep.toml", text.as_bytes()).unwrap_err();
            let first = error.lines().next().unwrap().to_owned();
            assert!(first.starts_with(&format!("sweep.toml:{said}")), "{first}");
        }
        let error = Sweep::parse("sweep.toml", b"sets = 1\n").unwrap_err();
        assert_eq!(error.lines().count(), 2, "{error}");
    }
}
