//! The whole file: its own keys, its entries, and the entries against each other.
//!
//! [`Spec::parse`] calls it with values that have positions. An invalid value is reported and left
//! out, or keeps its default. The result is valid only if nothing was reported.

use super::background::read_background;
use super::contents::{ACTIVITIES_MAX, CPU_MAX, Spec, SwitchCost};
use super::endpoint::{overlap, parse_endpoint};
use super::group::{read_group, resolve};
use super::same_cpu;
use super::source::{Faults, Source};
use super::stream::read_stream;
use super::table::{Table, found, integer};
use super::task::read_task;
use super::units::parse_duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use upcall::discipline::RMDP;
use upcall::discipline::{DISCIPLINES, Discipline};
use upcall::policy::ps;
use upcall::time::Span;

/// Default part of a CPU that admission reserves. The kernel stops the whole real-time class above
/// 95 %.
const CPU_LIMIT_PPM: u32 = 900_000;

/// Shortest time quantum. Below it, hand-offs take all the time.
const TIME_QUANTUM_MIN: Span = Span::from_micros(1);

const KEYS: &[&str] = &[
    "policy",
    "cpus",
    "cpu_count",
    "cpu_limit",
    "switch_cost",
    "wakeup_latency",
    "time_quantum",
    "stream",
    "task",
    "group",
    "background",
];

/// One `[[...]]` of the file: the position of its header, and its keys.
type Entry<'a> = (Range<usize>, &'a DeTable<'a>);

/// Values that must differ between entries, each with its position and the name of its owner in
/// errors.
#[derive(Default)]
struct Seen {
    names: Vec<(Range<usize>, String, String)>,
    receivers: Vec<(Range<usize>, String, SocketAddr)>,
}

/// Reads the whole file.
pub(super) fn read_document(source: &Source, document: &DeTable<'_>, faults: &mut Faults) -> Spec {
    let text = source.text();
    let end = text.len()..text.len();
    let mut table = Table::new("", end.clone(), text, document, faults);
    table.reject_unknown(KEYS);
    let streams = entries(&mut table, "stream");
    let tasks = entries(&mut table, "task");
    let groups = entries(&mut table, "group");
    let backgrounds = entries(&mut table, "background");
    let mut spec = read_settings(table, source);
    if streams.is_empty() && tasks.is_empty() && faults.is_empty() {
        let expected = "expected at least one [[stream]] or [[task]]";
        faults.push(end, "", "", "found no stream and no task", expected);
    }
    if too_many("activity", ACTIVITIES_MAX, streams.iter().chain(&tasks), faults)
        || too_many("background", ACTIVITIES_MAX, backgrounds.iter(), faults)
        || too_many("group", ps::GROUPS_MAX, groups.iter(), faults)
    {
        return spec;
    }
    let mut activities = Seen::default();
    spec.streams = read_each("stream", &streams, source, faults, &mut activities, read_stream);
    spec.tasks = read_each("task", &tasks, source, faults, &mut activities, read_task);
    activities.check_names(source, faults);
    activities.check_receivers(source, faults);
    same_cpu::check(&spec, activities.names(), faults);
    let mut named = Seen::default();
    let groups = read_each("group", &groups, source, faults, &mut named, read_group);
    named.check_names(source, faults);
    spec.groups = resolve(groups, &mut spec.tasks, spec.policy, source, faults);
    let mut loads = Seen::default();
    spec.backgrounds =
        read_each("background", &backgrounds, source, faults, &mut loads, read_background);
    loads.check_names(source, faults);
    spec
}

/// Reads the keys of the file itself.
fn read_settings(mut table: Table<'_, '_>, source: &Source) -> Spec {
    let cpus = read_cpus(&mut table);
    Spec {
        policy: read_policy(&mut table),
        cpus: table.has("cpus").then(|| cpus.iter().map(|(cpu, _)| *cpu).collect()),
        cpu_spans: cpus.into_iter().map(|(_, at)| at).collect(),
        cpu_count: table.count("cpu_count", 1..=CPU_MAX + 1),
        cpu_limit_ppm: table.share_ppm("cpu_limit").unwrap_or(CPU_LIMIT_PPM),
        switch_cost: read_switch_cost(&mut table),
        wakeup_latency: table.duration("wakeup_latency", Span::ZERO).unwrap_or_default(),
        time_quantum: table
            .duration("time_quantum", TIME_QUANTUM_MIN)
            .unwrap_or(ps::QUANTUM_DEFAULT),
        streams: Vec::new(),
        tasks: Vec::new(),
        groups: Vec::new(),
        backgrounds: Vec::new(),
        source: source.clone(),
    }
}

/// `policy`: one of the disciplines of `core`.
fn read_policy(table: &mut Table<'_, '_>) -> &'static Discipline {
    let words: Vec<_> = DISCIPLINES.iter().map(|&known| (known.name, known)).collect();
    table.choice("policy", &words).unwrap_or(&RMDP)
}

/// `cpus`: CPU numbers, each with its position.
fn read_cpus(table: &mut Table<'_, '_>) -> Vec<(u32, Range<usize>)> {
    const EXPECTED: &str = "an array of CPU numbers such as [1]";
    let Some(value) = table.value("cpus") else { return Vec::new() };
    let Some(array) = value.get_ref().as_array() else {
        table.refuse_value("cpus", EXPECTED);
        return Vec::new();
    };
    if array.is_empty() {
        table.refuse("cpus", "an empty array", EXPECTED);
    }
    let mut cpus: BTreeMap<u32, Range<usize>> = BTreeMap::new();
    for element in array {
        let found = found(table.text(), element);
        match integer(element.get_ref()).filter(|cpu| *cpu <= CPU_MAX) {
            Some(cpu) if cpus.contains_key(&cpu) => {
                let found = format!("{found} a second time");
                table.refuse_at(element.span(), "cpus", &found, "each CPU once");
            }
            Some(cpu) => {
                cpus.insert(cpu, element.span());
            }
            None => {
                let expected = format!("CPU numbers from 0 to {CPU_MAX}");
                table.refuse_at(element.span(), "cpus", &found, &expected);
            }
        }
    }
    let mut cpus: Vec<_> = cpus.into_iter().collect();
    cpus.sort_by_key(|(_, at)| at.start);
    cpus
}

/// `switch_cost`: a duration, or the word `auto`.
fn read_switch_cost(table: &mut Table<'_, '_>) -> SwitchCost {
    let word = table.string("switch_cost", "\"auto\" or a duration such as \"5 us\"");
    match word.map(parse_duration) {
        None => SwitchCost::Auto,
        Some(_) if word == Some("auto") => SwitchCost::Auto,
        Some(Ok(_)) => {
            let fixed = table.duration("switch_cost", Span::ZERO);
            fixed.map_or(SwitchCost::Auto, SwitchCost::Fixed)
        }
        Some(Err(error)) => {
            table.refuse_value("switch_cost", &format!("\"auto\" or {}", error.expected()));
            SwitchCost::Auto
        }
    }
}

/// The tables of `[[key]]`, in the order of the file.
fn entries<'a>(table: &mut Table<'a, '_>, key: &str) -> Vec<Entry<'a>> {
    let expected = format!("tables that start with [[{key}]]");
    let Some(value) = table.value(key) else { return Vec::new() };
    let Some(array) = value.get_ref().as_array() else {
        table.refuse_value(key, &expected);
        return Vec::new();
    };
    let mut entries = Vec::with_capacity(array.len());
    for element in array {
        match element.get_ref() {
            DeValue::Table(entry) => entries.push((element.span(), entry)),
            _ => {
                let found = found(table.text(), element);
                table.refuse_at(element.span(), key, &found, &expected);
            }
        }
    }
    entries
}

/// Whether there are more than `most`; reports the first one above.
fn too_many<'a>(
    word: &str,
    most: usize,
    entries: impl Iterator<Item = &'a Entry<'a>>,
    faults: &mut Faults,
) -> bool {
    let mut headers: Vec<&Range<usize>> = entries.map(|(header, _)| header).collect();
    headers.sort_by_key(|header| header.start);
    let Some(beyond) = headers.get(most) else { return false };
    let found = format!("found {word} number {}", most + 1);
    let expected = format!("expected at most {most}");
    faults.push((*beyond).clone(), "", "", &found, &expected);
    true
}

/// Reads each entry of one kind, and leaves out those with errors.
fn read_each<T>(
    kind: &str,
    entries: &[Entry<'_>],
    source: &Source,
    faults: &mut Faults,
    seen: &mut Seen,
    read: fn(&mut Table<'_, '_>) -> Option<T>,
) -> Vec<T> {
    let mut all = Vec::with_capacity(entries.len());
    for (index, (header, entry)) in entries.iter().enumerate() {
        let owner = format!("{kind} {}", index + 1);
        let mut table = Table::new(&owner, header.clone(), source.text(), entry, faults);
        all.extend(read(&mut table));
        seen.note(kind, &table);
    }
    all
}

impl Seen {
    /// Keeps the values that must differ, even for an entry with other errors.
    fn note(&mut self, kind: &str, table: &Table<'_, '_>) {
        let place = table.place();
        if let Some(name) = table.known_name() {
            self.names.push((place.of("name"), place.owner.clone(), name.to_string()));
        }
        if kind == "stream"
            && let Some(DeValue::String(text)) = table.value("receive").map(|value| value.get_ref())
            && let Ok(address) = parse_endpoint(text)
        {
            self.receivers.push((place.of("receive"), place.owner.clone(), address.socket));
        }
    }

    /// Each name, with its position.
    fn names(&self) -> impl Iterator<Item = (&Range<usize>, &str)> + Clone {
        self.names.iter().map(|(at, _, name)| (at, name.as_str()))
    }

    /// Reports each name that an earlier entry has.
    fn check_names(&mut self, source: &Source, faults: &mut Faults) {
        self.names.sort_by_key(|(at, ..)| at.start);
        let mut first: BTreeMap<&str, &(Range<usize>, String, String)> = BTreeMap::new();
        for entry @ (at, owner, name) in &self.names {
            let Some((before, ..)) = first.get(name.as_str()) else {
                first.insert(name, entry);
                continue;
            };
            let line = source.position(before.start).0;
            let expected = format!("expected another name: line {line} has it already");
            faults.push(at.clone(), owner, "name", &format!("found {name:?} again"), &expected);
        }
    }

    /// Reports each stream that would receive the packets of an earlier one.
    fn check_receivers(&mut self, source: &Source, faults: &mut Faults) {
        self.receivers.sort_by_key(|(at, ..)| at.start);
        for (index, (at, owner, address)) in self.receivers.iter().enumerate() {
            let before =
                self.receivers[..index].iter().find(|(.., other)| overlap(*address, *other));
            let Some((other_at, other, _)) = before else { continue };
            let line = source.position(other_at.start).0;
            let found = format!("found {address}, taken by {other} on line {line}");
            faults.push(at.clone(), owner, "receive", &found, "expected another port");
        }
    }
}
