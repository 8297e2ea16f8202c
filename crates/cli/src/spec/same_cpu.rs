//! `same_cpu_as`: streams and tasks that run on the CPU of another one.
//!
//! The one that is named stands before those that name it, as it does in admission. So no cycle is
//! possible, and the CPU is known when the others are placed.

use super::contents::{Activity, Spec};
use super::source::{Faults, quoted};
use std::ops::Range;

/// The key.
const KEY: &str = "same_cpu_as";

/// Checks each stream and task that names another one. `names` has the position and the name of
/// each in the file, those with errors included.
pub(super) fn check<'n>(
    spec: &Spec,
    names: impl Iterator<Item = (&'n Range<usize>, &'n str)> + Clone,
    faults: &mut Faults,
) {
    let activities = spec.activities();
    for &own in &activities {
        let Some(asked) = own.same_cpu_as() else { continue };
        let place = own.place();
        let mut fault = |found: &str, expected: &str| {
            let (found, expected) = (format!("found {found}"), format!("expected {expected}"));
            faults.push(place.of(KEY), &place.owner, KEY, &found, &expected);
        };
        let named = names.clone().find(|(_, name)| *name == asked);
        match named {
            _ if asked == own.name() => {
                fault(&format!("{}, its own name", quoted(asked)), "another one");
                continue;
            }
            None => {
                fault(&quoted(asked), "the name of a stream or task that stands before it");
                continue;
            }
            Some((at, _)) if at.start > place.position() => {
                let line = spec.source.position(at.start).0;
                let found = format!("{} of line {line}", quoted(asked));
                fault(&found, "a stream or task that stands before it");
                continue;
            }
            Some(_) => {}
        }
        // One with errors of its own is not among the activities.
        let other = activities.iter().find(|other| other.name() == asked);
        let Some(&other) = other else { continue };
        check_pair(own, other, fault);
    }
}

/// Two activities that may not be on one CPU by the key: processes share no data without locks,
/// and what may be left out has no CPU then.
fn check_pair(own: Activity<'_>, other: Activity<'_>, mut fault: impl FnMut(&str, &str)) {
    let name = quoted(other.name());
    if own.domain_name() != other.domain_name() {
        let found = format!("{name} of the domain {}", quoted(other.domain_name()));
        let expected = format!("a stream or task of its domain {}", quoted(own.domain_name()));
        fault(&found, &expected);
    }
    if other.is_optional() && !own.is_optional() {
        fault(&format!("{name}, which is optional"), "one that is not, or optional = true here");
    }
}
