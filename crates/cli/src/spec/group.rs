//! `[[group]]`: tasks that share one part of the CPU, under `ps`.
//!
//! [`super::Spec::parse`] reads all groups before it checks them against each other, because a
//! group may come after its members. The result has the order that
//! [`upcall::discipline::ps_with_groups`] requires.

use super::source::{Faults, Place, Source, quoted};
use super::table::Table;
use super::task::{Task, WEIGHT_MAX};
use std::collections::BTreeMap;
use upcall::activity::{Claim, GroupId};
use upcall::admission::Share;
use upcall::discipline::Discipline;

/// A group as its user describes it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its position, for errors found later.
    pub place: Place,
    /// Unique among groups.
    pub name: String,
    /// Its part of the CPU, or of its parent's part.
    pub claim: Claim,
    /// The group that contains it.
    pub parent: Option<String>,
}

const KEYS: &[&str] = &["name", "share", "weight", "group"];

/// Reads one group; `None` if it has an error.
pub(super) fn read_group(table: &mut Table<'_, '_>) -> Option<Group> {
    let name = table.own_name("group");
    table.reject_unknown(KEYS);
    let share = table.share_ppm("share").and_then(Share::from_ppm);
    let weight = table.count("weight", 1..=WEIGHT_MAX);
    let parent = table.name("group");
    if table.has("share") && table.has("weight") {
        table.refuse("weight", "beside share", "one of share, weight");
    }
    if table.has("share") && table.has("group") {
        table.refuse("share", "inside another group", "a weight within that group");
    }
    let claim = share.map_or(Claim::Weight(weight.unwrap_or(1)), Claim::Share);
    Some(Group { place: table.place().clone(), name: name?, claim, parent })
}

/// Checks groups and tasks against each other. Returns the groups, each after its parent.
pub(super) fn resolve(
    groups: Vec<Group>,
    tasks: &mut [Task],
    policy: &Discipline,
    source: &Source,
    faults: &mut Faults,
) -> Vec<Group> {
    if let Some(first) = groups.first().filter(|_| !policy.takes_groups()) {
        let found = format!("found a group under policy {:?}", policy.name);
        let at = first.place.of("name");
        faults.push(at, &first.place.owner, "name", &found, "expected policy \"ps\"");
    }
    let sorted = sorted(groups, source, faults);
    let places: BTreeMap<&str, u16> =
        sorted.iter().zip(0..).map(|(group, place)| (group.name.as_str(), place)).collect();
    for task in tasks {
        let Some(group) = &task.group else { continue };
        match places.get(group.as_str()) {
            Some(&place) => task.terms.group = Some(GroupId(place)),
            None => unknown(&task.place, group, &sorted, faults),
        }
    }
    sorted
}

/// Moves groups whose parents are already sorted to the result, until none is left.
fn sorted(groups: Vec<Group>, source: &Source, faults: &mut Faults) -> Vec<Group> {
    let mut left = groups;
    for at in 0..left.len() {
        let Some(parent) = &left[at].parent else { continue };
        if !left.iter().any(|group| group.name == *parent) {
            unknown(&left[at].place, parent, &left, faults);
            left[at].parent = None;
        }
    }
    let mut sorted: Vec<Group> = Vec::with_capacity(left.len());
    loop {
        let is_out = |name: &String| sorted.iter().any(|group| group.name == *name);
        let next = left.iter().position(|group| group.parent.as_ref().is_none_or(is_out));
        let Some(next) = next else { break };
        sorted.push(left.remove(next));
    }
    // Each remaining group belongs to a cycle of groups, or lies inside one.
    if let Some((at, parent)) = left.first().and_then(|group| Some((group, group.parent.as_ref()?)))
    {
        let line = left
            .iter()
            .find(|group| group.name == *parent)
            .map_or(0, |group| source.position(group.place.header.start).0);
        let expected = format!("expected a group that is not inside it: see line {line}");
        let found = format!("found {}", quoted(parent));
        faults.push(at.place.of("group"), &at.place.owner, "group", &found, &expected);
    }
    // An error that was reported is not reported again for the tasks in the group.
    sorted.extend(left);
    sorted
}

fn unknown(place: &Place, name: &str, groups: &[Group], faults: &mut Faults) {
    let known: Vec<_> = groups.iter().map(|group| quoted(&group.name)).collect();
    let expected = match known.is_empty() {
        true => "expected a [[group]] of that name".to_string(),
        false => format!("expected one of the groups {}", known.join(", ")),
    };
    faults.push(
        place.of("group"),
        &place.owner,
        "group",
        &format!("found {}", quoted(name)),
        &expected,
    );
}
