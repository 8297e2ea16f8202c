//! Reads one table of a spec file, key by key. A value has the right type and unit and is in range,
//! or an error is reported at the value.
//!
//! The readers of the file, of streams, tasks and background loads use it. Each method reports an
//! invalid value and returns `None`. It also returns `None` for an absent key; [`Table::require`]
//! reports absence. The only key this module knows is `name`.

use super::source::{FAULTS_MAX, Faults, Place, quoted};
use super::spelling::nearest;
use super::units::{self, Quantity, UnitError};
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use upcall::activity::PERIOD_MAX;
use upcall::qos::Rate;
use upcall::time::Span;

/// Longest name, in characters.
const NAME_MAX: usize = 64;

/// A table being read. It borrows the file's text, and the list that collects errors.
pub(super) struct Table<'a, 'f> {
    place: Place,
    /// The name, once it was read.
    name: Option<String>,
    text: &'a str,
    entries: &'a DeTable<'a>,
    faults: &'f mut Faults,
}

/// Several keys with one meaning. The file gives exactly one of these groups, and every key of it.
pub(super) type Alternatives = &'static [&'static [&'static str]];

impl<'a, 'f> Table<'a, 'f> {
    /// `owner` is the table's name in errors until its own name is known.
    pub(super) fn new(
        owner: &str,
        header: Range<usize>,
        text: &'a str,
        entries: &'a DeTable<'a>,
        faults: &'f mut Faults,
    ) -> Self {
        let keys = entries.iter().map(|(key, value)| (key.get_ref().to_string(), value.span()));
        let place = Place { owner: owner.to_string(), header, keys: keys.collect() };
        Table { place, name: None, text, entries, faults }
    }

    /// The position of the table.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The text of the whole file.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// The table's own name, if it was read and is valid.
    pub(super) fn known_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether the file gives `key`, valid or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The value of `key`, of any type.
    pub(super) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get(key)
    }

    /// Reports an invalid value of `key`.
    pub(super) fn refuse(&mut self, key: &str, found: &str, expected: &str) {
        self.refuse_at(self.place.of(key), key, found, expected);
    }

    /// As [`Table::refuse`], at a part of the value.
    pub(super) fn refuse_at(&mut self, at: Range<usize>, key: &str, found: &str, expected: &str) {
        let (found, expected) = (format!("found {found}"), format!("expected {expected}"));
        self.faults.push(at, &self.place.owner, key, &found, &expected);
    }

    /// Reports that the value of `key` should be another one.
    pub(super) fn refuse_value(&mut self, key: &str, expected: &str) {
        if let Some(value) = self.value(key) {
            self.refuse(key, &found(self.text, value), expected);
        }
    }

    /// Reports each key that is not one of `known`.
    pub(super) fn reject_unknown(&mut self, known: &[&str]) {
        let unknown = self.entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        let mut unknown: Vec<_> = unknown.collect();
        unknown.sort_by_key(|key| key.span().start);
        for key in unknown.iter().take(FAULTS_MAX) {
            let expected = match nearest(key.get_ref(), known) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("expected one of {}", known.join(", ")),
            };
            let (owner, name) = (&self.place.owner, bare(key.get_ref()));
            self.faults.push(key.span(), owner, &name, "found an unknown key", &expected);
        }
        self.faults.leave_out(unknown.len().saturating_sub(FAULTS_MAX));
    }

    /// Whether the file gives `key`. Reports a missing key; `expected` names what is missing.
    pub(super) fn require(&mut self, key: &str, expected: &str) -> bool {
        let given = self.has(key);
        if !given {
            self.faults.push_missing(&self.place, key, expected);
        }
        given
    }

    /// The alternative that the file gives, if it gives exactly one and every key of it.
    pub(super) fn one_of(&mut self, alternatives: Alternatives) -> Option<usize> {
        let wording = alternatives.iter().map(|group| group.join(" with "));
        let expected = format!("one of {}", wording.collect::<Vec<_>>().join(", "));
        let mut given: Vec<(usize, usize, &str)> = Vec::new();
        for (index, group) in alternatives.iter().enumerate() {
            let present = group.iter().filter(|key| self.has(key));
            given.extend(present.map(|key| (self.place.of(key).start, index, *key)));
        }
        given.sort_unstable();
        let Some(&(_, chosen, first)) = given.first() else {
            self.require(alternatives.first()?.first()?, &expected);
            return None;
        };
        if let Some(&(_, _, other)) = given.iter().find(|(_, index, _)| *index != chosen) {
            self.refuse(other, &format!("beside {first}"), &format!("only {expected}"));
            return None;
        }
        let mut complete = true;
        for key in alternatives[chosen] {
            complete &= self.require(key, &format!("together with {first}"));
        }
        complete.then_some(chosen)
    }

    /// A string.
    pub(super) fn string(&mut self, key: &str, expected: &str) -> Option<&'a str> {
        match self.value(key)?.get_ref() {
            DeValue::String(text) => Some(text),
            _ => {
                self.refuse_value(key, expected);
                None
            }
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        let value = self.value(key)?.get_ref().as_bool();
        if value.is_none() {
            self.refuse_value(key, "true or false");
        }
        value
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let expected = wording(choices);
        let word = self.string(key, &expected)?;
        let choice = choices.iter().find(|(known, _)| *known == word);
        if choice.is_none() {
            self.refuse_value(key, &expected);
        }
        choice.map(|&(_, choice)| choice)
    }

    /// One of a few words, which the file must give.
    pub(super) fn required_choice<T: Copy>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        if self.require(key, &wording(choices)) { self.choice(key, choices) } else { None }
    }

    /// A name, in the form that tables, CSV and JSON print.
    pub(super) fn name(&mut self, key: &str) -> Option<String> {
        const EXPECTED: &str =
            "1 to 64 printable characters without spaces, quotes, commas and slashes";
        let name = self.string(key, EXPECTED)?;
        let bad = |c: char| c.is_whitespace() || matches!(c, ',' | '/' | '`');
        // Characters that need an escape are control and format characters, quotes and backslashes.
        let plain = !name.contains(bad) && name.escape_debug().eq(name.chars());
        if name.is_empty() || name.chars().nth(NAME_MAX).is_some() || !plain {
            self.refuse_value(key, EXPECTED);
            return None;
        }
        Some(name.to_string())
    }

    /// The table's own name, which errors use from here on.
    pub(super) fn own_name(&mut self, kind: &str) -> Option<String> {
        if !self.require("name", "a name such as \"camera\"") {
            return None;
        }
        self.name = self.name("name");
        let name = self.name.clone()?;
        self.place.owner = format!("{kind} {name:?}");
        Some(name)
    }

    /// An integer within `range`.
    pub(super) fn count(&mut self, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        let count = integer(self.value(key)?.get_ref()).filter(|count| range.contains(count));
        if count.is_none() {
            self.refuse_value(key, &expected);
        }
        count
    }

    /// A duration from `least` to one hour ([`PERIOD_MAX`]).
    pub(super) fn duration(&mut self, key: &str, least: Span) -> Option<Span> {
        let expected = format!("a duration from {least} to {PERIOD_MAX}");
        self.quantity(key, Quantity::Duration, units::parse_duration, least..=PERIOD_MAX, &expected)
    }

    /// A duration above zero, of any length.
    pub(super) fn long_duration(&mut self, key: &str) -> Option<Span> {
        let range = Span::from_nanos(1)..=Span::MAX;
        self.quantity(key, Quantity::Duration, units::parse_duration, range, "a duration above 0")
    }

    /// A size from 1 byte to `most`.
    pub(super) fn size(&mut self, key: &str, most: u64) -> Option<u64> {
        let expected = match most {
            u64::MAX => "a size above 0".to_string(),
            _ => format!("a size from 1 B to {most} B"),
        };
        self.quantity(key, Quantity::Size, units::parse_size, 1..=most, &expected)
    }

    /// A bandwidth above zero, in bits a second.
    pub(super) fn bandwidth(&mut self, key: &str) -> Option<u64> {
        let (parse, range) = (units::parse_bandwidth, 1..=u64::MAX);
        self.quantity(key, Quantity::Bandwidth, parse, range, "a bandwidth above 0")
    }

    /// A rate above zero.
    pub(super) fn rate(&mut self, key: &str) -> Option<Rate> {
        let range = Rate::from_micro_hertz(1)..=units::RATE_MAX;
        self.quantity(key, Quantity::Rate, units::parse_rate, range, "a rate above 0")
    }

    /// A share above zero and up to 100 %, in millionths.
    pub(super) fn share_ppm(&mut self, key: &str) -> Option<u32> {
        let range = 1..=units::SHARE_PPM_MAX;
        self.quantity(key, Quantity::Share, units::parse_share, range, "a share above 0 %")
    }

    /// A string that `parse` accepts, within `range`.
    fn quantity<T: PartialOrd>(
        &mut self,
        key: &str,
        quantity: Quantity,
        parse: fn(&str) -> Result<T, UnitError>,
        range: RangeInclusive<T>,
        expected: &str,
    ) -> Option<T> {
        match parse(self.string(key, quantity.example())?) {
            Ok(value) if range.contains(&value) => return Some(value),
            Ok(_) => self.refuse_value(key, expected),
            Err(error) => self.refuse_value(key, &error.expected()),
        }
        None
    }
}

/// The words of a choice, as an error lists them.
fn wording<T>(choices: &[(&str, T)]) -> String {
    let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
    match words.as_slice() {
        [only] => only.clone(),
        _ => format!("one of {}", words.join(", ")),
    }
}

/// A value in the form that an error repeats.
pub(super) fn found(text: &str, value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(string) => quoted(string),
        DeValue::Array(_) => "an array".to_string(),
        DeValue::Table(_) => "a table".to_string(),
        // As written: the user knows 0x1F, 1_000 and 1e3 in that form.
        _ => match text.get(value.span()) {
            Some(written) if written.len() <= 40 => written.to_string(),
            _ => "a very long number".to_string(),
        },
    }
}

/// The integer, if the value is one and fits.
pub(super) fn integer(value: &DeValue<'_>) -> Option<u32> {
    let integer = value.as_integer()?;
    u32::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A key as an error shows it: without quotes where TOML needs none.
pub(super) fn bare(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match key.len() {
        1..=40 if key.chars().all(plain) => key.to_string(),
        _ => quoted(key),
    }
}
