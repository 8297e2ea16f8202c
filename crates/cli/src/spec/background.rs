//! `[[background]]`: competing load without promises.
//!
//! [`super::Spec::parse`] reads it. `upcall run` starts it beside the activities.

use super::source::Place;
use super::table::{Alternatives, Table, found};
use toml::de::DeValue;

/// Most threads of one background load.
pub const SPIN_MAX: u32 = 1024;

/// Background load as its user describes it.
#[derive(Clone, Debug)]
pub struct Background {
    /// Its position, for errors found later.
    pub place: Place,
    /// Unique among background loads.
    pub name: String,
    /// The load.
    pub load: Load,
}

/// The kind of a background load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// A program and its arguments; never empty, and no part holds a NUL.
    Command(Vec<String>),
    /// This many spinning threads of Upcall's own: `1 ..= SPIN_MAX`.
    Spin(u32),
}

const KEYS: &[&str] = &["name", "command", "spin"];
const LOADS: Alternatives = &[&["command"], &["spin"]];

/// Reads one background load; `None` if it has an error.
pub(super) fn read_background(table: &mut Table<'_, '_>) -> Option<Background> {
    let name = table.own_name("background");
    table.reject_unknown(KEYS);
    let load = match table.one_of(LOADS)? {
        0 => Load::Command(read_command(table)?),
        _ => Load::Spin(table.count("spin", 1..=SPIN_MAX)?),
    };
    Some(Background { place: table.place().clone(), name: name?, load })
}

/// A program and its arguments in the form that the kernel accepts.
fn read_command(table: &mut Table<'_, '_>) -> Option<Vec<String>> {
    const EXPECTED: &str = "a program and its arguments such as [\"stress-ng\", \"--cpu\", \"1\"]";
    let Some(parts) = table.value("command")?.get_ref().as_array() else {
        table.refuse_value("command", EXPECTED);
        return None;
    };
    if parts.is_empty() {
        table.refuse("command", "an empty array", EXPECTED);
        return None;
    }
    let mut command = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let expected = match part.get_ref() {
            DeValue::String(text) if text.contains('\0') => "a string without NUL",
            DeValue::String(text) if index == 0 && text.is_empty() => "the name of a program",
            DeValue::String(text) => {
                command.push(text.to_string());
                continue;
            }
            _ => "a string",
        };
        let found = found(table.text(), part);
        table.refuse_at(part.span(), "command", &found, expected);
    }
    (command.len() == parts.len()).then_some(command)
}
