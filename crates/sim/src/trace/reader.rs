//! Reads a trace file of any origin. No input causes a panic. The reader takes at most a small
//! multiple of the input's length as memory.

use super::fields::{Bad, Field, Kind, Values, decode, decode_group};
use super::header::{Clock, FORMAT, Header, Named};
use super::proto::{PACKET_KEY, Packet, TrackEvent};
use super::replay::Trace;
use super::row::Row;
use core::fmt;
use prost::Message;
use std::collections::BTreeMap;
use upcall_core::activity::ActivityId;
use upcall_core::discipline::{self, Discipline};
use upcall_core::policy::ps::Group;
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Record;

/// Longest accepted packet. Upcall's packets are below 8 KiB.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Largest accepted sum of all schedulers' capacities, counted once more for each group. It limits
/// the memory and time that a replay takes before its first record.
pub const CAPACITY_MAX: u32 = 1 << 18;
/// Largest accepted number of CPUs, as in a spec file.
const CPUS_MAX: usize = 1024;
/// Range of a time quantum.
const QUANTA: core::ops::RangeInclusive<Span> = Span::from_nanos(1)..=Span::from_secs(3600);

/// The error of a file that is not an Upcall trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Start of the packet, in bytes from the start of the file.
    pub offset: usize,
    /// The error of the packet.
    pub cause: Cause,
}

/// The error of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The file ends inside the packet.
    Truncated,
    /// The key of the packet is not 0x0a.
    Key(u8),
    /// The packet is longer than [`PACKET_BYTES_MAX`].
    TooLong(u64),
    /// The packet is not valid protobuf.
    Packet(prost::DecodeError),
    /// An event of a `core` row lacks this part.
    Missing(&'static str),
    /// A value is outside its range.
    Range {
        /// Name of the field.
        field: &'static str,
        /// The found value.
        found: u64,
    },
    /// This part appears twice.
    Twice(&'static str),
    /// A word is unknown.
    Word {
        /// Name of the field.
        field: &'static str,
        /// The found word.
        found: String,
    },
    /// A record precedes the header of its CPU.
    NoHeader {
        /// Number of the CPU.
        cpu: u32,
    },
    /// The file has no header.
    NoTrace,
    /// The file has several processes, and one was expected.
    Several {
        /// Number of processes.
        processes: usize,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.offset)?;
        match &self.cause {
            Cause::Truncated => f.write_str("the file ends inside a packet"),
            Cause::Key(found) => {
                write!(f, "found key {found:#04x}, expected {PACKET_KEY:#04x}: no Perfetto trace")
            }
            Cause::TooLong(bytes) => {
                write!(f, "a packet of {bytes} bytes, expected at most {PACKET_BYTES_MAX}")
            }
            Cause::Packet(error) => error.fmt(f),
            Cause::Missing(what) => write!(f, "found no {what}"),
            Cause::Range { field, found } => write!(f, "{field} {found} is out of range"),
            Cause::Twice(what) => write!(f, "{what} appears twice"),
            Cause::Word { field, found } => write!(f, "found {field} `{found}`, which is unknown"),
            Cause::NoHeader { cpu } => write!(f, "a record of CPU {cpu} without a header before"),
            Cause::Several { processes } => {
                write!(f, "found a trace of {processes} processes, expected one")
            }
            Cause::NoTrace => f.write_str("found no trace that Upcall wrote"),
        }
    }
}

impl core::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.cause {
            Cause::Packet(error) => Some(error),
            _ => None,
        }
    }
}

/// Reads a whole trace of one process; see [`read_all`].
///
/// # Errors
/// The first error; see [`Cause`].
pub fn read(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut traces = read_all(bytes)?;
    let processes = traces.len();
    let one = traces.pop().filter(|_| processes == 1);
    one.ok_or(ReadError { offset: bytes.len(), cause: Cause::Several { processes } })
}

/// Reads a whole trace: one result for each process in the order of their numbers, at least one.
/// Skips packets of other programs and the rows for people. O(n).
///
/// # Errors
/// The first error; see [`Cause`].
pub fn read_all(bytes: &[u8]) -> Result<Vec<Trace>, ReadError> {
    let mut reader = Reader::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        let taken = take_packet(&mut rest).and_then(|packet| reader.packet(packet));
        taken.map_err(|cause| ReadError { offset, cause })?;
    }
    let processes = reader.processes.into_iter();
    let traces: Vec<_> = processes.filter_map(|(number, of)| of.trace(number)).collect();
    match traces.is_empty() {
        true => Err(ReadError { offset: bytes.len(), cause: Cause::NoTrace }),
        false => Ok(traces),
    }
}

/// Takes the first packet from `rest`.
fn take_packet<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Cause> {
    let (&key, mut after) = rest.split_first().ok_or(Cause::Truncated)?;
    if key != PACKET_KEY {
        return Err(Cause::Key(key));
    }
    let length = take_varint(&mut after)?;
    let length = usize::try_from(length)
        .ok()
        .filter(|&length| length <= PACKET_BYTES_MAX)
        .ok_or(Cause::TooLong(length))?;
    let (packet, after) = after.split_at_checked(length).ok_or(Cause::Truncated)?;
    *rest = after;
    Ok(packet)
}

/// Reads a varint: seven bits per byte, the low ones first. Lengths have five bytes at most.
fn take_varint(rest: &mut &[u8]) -> Result<u64, Cause> {
    let mut value = 0;
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, after) = rest.split_first().ok_or(Cause::Truncated)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Cause::TooLong(value))
}

#[derive(Default)]
struct Reader {
    /// By number of the process.
    processes: BTreeMap<u16, Process>,
    /// The part of [`CAPACITY_MAX`] that all processes use.
    taken: u64,
}

/// The state of one process.
#[derive(Default)]
struct Process {
    known: Option<(&'static Discipline, Option<Span>, Clock, Instant)>,
    groups: Vec<Group>,
    cpus: Vec<(u32, u32)>,
    /// Index of a CPU in `cpus`.
    places: BTreeMap<u32, usize>,
    activities: Vec<Named>,
    records: Vec<Vec<Record>>,
}

impl Reader {
    fn packet(&mut self, bytes: &[u8]) -> Result<(), Cause> {
        let packet = Packet::decode(bytes).map_err(Cause::Packet)?;
        let Some(event) = packet.event else { return Ok(()) };
        let Some((process, cpu)) = event.track.and_then(Row::core_of) else { return Ok(()) };
        let name_iid = event.name_iid.ok_or(Cause::Missing("name"))?;
        let kind = Kind::of_iid(name_iid).ok_or(Cause::Range { field: "name", found: name_iid })?;
        let now = Instant::from_nanos(packet.timestamp.ok_or(Cause::Missing("timestamp"))?);
        let (values, texts) = annotations(event)?;
        let of = self.processes.entry(process).or_default();
        // Records are frequent and use none of the capacity.
        if !matches!(kind, Kind::Header | Kind::Group) {
            return of.event((kind, cpu, now), &values, texts, 0);
        }
        let taken_by_others = self.taken - of.taken();
        of.event((kind, cpu, now), &values, texts, taken_by_others)?;
        self.taken = taken_by_others + of.taken();
        Ok(())
    }
}

impl Process {
    fn trace(self, process: u16) -> Option<Trace> {
        let (discipline, time_quantum, clock, start) = self.known?;
        let header = Header {
            process,
            discipline,
            time_quantum,
            groups: self.groups,
            clock,
            start,
            cpus: self.cpus,
            activities: self.activities,
        };
        Some(Trace { header, records: self.records })
    }

    /// The part of [`CAPACITY_MAX`] that a replay of this process uses.
    fn taken(&self) -> u64 {
        self.cpus.iter().map(|&(_, capacity)| u64::from(capacity)).sum::<u64>()
            * (self.groups.len() as u64 + 1)
    }

    fn event(
        &mut self,
        (kind, cpu, now): (Kind, u32, Instant),
        values: &Values,
        texts: Texts,
        taken_by_others: u64,
    ) -> Result<(), Cause> {
        let place = self.places.get(&cpu).copied();
        match (kind, place) {
            (Kind::Header, None) => self.header(cpu, now, values, &texts, taken_by_others),
            (Kind::Header, Some(_)) => Err(Cause::Twice("the header of a CPU")),
            (_, None) => Err(Cause::NoHeader { cpu }),
            (Kind::Activity, Some(_)) => self.activity(cpu, values, texts),
            (Kind::Group, Some(_)) => self.group(values, taken_by_others),
            (_, Some(place)) => {
                if let Some(crossing) = decode(kind, values)? {
                    self.records[place].push(Record { now, crossing });
                }
                Ok(())
            }
        }
    }

    fn header(
        &mut self,
        cpu: u32,
        start: Instant,
        values: &Values,
        texts: &Texts,
        taken_by_others: u64,
    ) -> Result<(), Cause> {
        let format = values.small(Field::Format)?;
        if format != FORMAT {
            return Err(Bad::Range(Field::Format, format.into()).into());
        }
        let capacity = values.small(Field::Capacity)?;
        let more = u64::from(capacity) * (self.groups.len() as u64 + 1);
        if taken_by_others + self.taken() + more > u64::from(CAPACITY_MAX)
            || self.cpus.len() >= CPUS_MAX
        {
            return Err(Bad::Range(Field::Capacity, capacity.into()).into());
        }
        let word = |field: Field, found: &str| Cause::Word {
            field: field.name(),
            found: found.chars().take(64).collect(),
        };
        let policy = texts.one(Field::Policy)?;
        let discipline = discipline::by_name(policy).ok_or_else(|| word(Field::Policy, policy))?;
        let time_quantum = values.number(Field::TimeQuantum).ok().map(Span::from_nanos);
        let another = time_quantum != discipline.time_quantum;
        if let Some(quantum) = time_quantum.filter(|&quantum| {
            another && (discipline.time_quantum.is_none() || !QUANTA.contains(&quantum))
        }) {
            return Err(Bad::Range(Field::TimeQuantum, quantum.as_nanos()).into());
        }
        let clock_name = texts.one(Field::Clock)?;
        let clock = Clock::ALL
            .into_iter()
            .find(|clock| clock.name() == clock_name)
            .ok_or_else(|| word(Field::Clock, clock_name))?;
        // All CPUs have one policy and one clock.
        match self.known {
            None => self.known = Some((discipline, time_quantum, clock, start)),
            Some((first, ..)) if !first.is_named(policy) => {
                return Err(word(Field::Policy, policy));
            }
            Some((_, first, ..)) if first != time_quantum => {
                return Err(Cause::Twice("the time quantum"));
            }
            Some((_, _, first, _)) if first != clock => return Err(word(Field::Clock, clock_name)),
            Some(_) => {}
        }
        self.places.insert(cpu, self.cpus.len());
        self.cpus.push((cpu, capacity));
        self.records.push(Vec::new());
        Ok(())
    }

    /// Reads the next group, if the policy allows groups.
    fn group(&mut self, values: &Values, taken_by_others: u64) -> Result<(), Cause> {
        let (place, group) = decode_group(values)?;
        let range = |field: Field, found: u64| Cause::from(Bad::Range(field, found));
        if usize::try_from(place).ok() != Some(self.groups.len()) {
            return Err(range(Field::Id, place.into()));
        }
        self.groups.push(group);
        let taken = taken_by_others + self.taken();
        let quantum = self.known.and_then(|(_, quantum, ..)| quantum);
        let quantum = quantum.filter(|_| taken <= u64::from(CAPACITY_MAX));
        match quantum.map(|quantum| discipline::ps_with_groups(quantum, self.groups.clone())) {
            Some(Ok(_)) => Ok(()),
            _ => Err(range(Field::Group, place.into())),
        }
    }

    fn activity(&mut self, cpu: u32, values: &Values, mut texts: Texts) -> Result<(), Cause> {
        let id = ActivityId(values.small(Field::Id)?);
        let name = texts.take(Field::Name)?;
        let domain = texts.take(Field::Domain)?;
        self.activities.push(Named { cpu, id, name, domain });
        Ok(())
    }
}

/// The text annotations of an event.
struct Texts(Vec<(Field, String)>);

impl Texts {
    fn one(&self, field: Field) -> Result<&str, Cause> {
        let found = self.0.iter().find(|(of, _)| *of == field);
        found.map(|(_, text)| text.as_str()).ok_or(Cause::Missing(field.name()))
    }

    fn take(&mut self, field: Field) -> Result<String, Cause> {
        let found = self.0.iter().position(|(of, _)| *of == field);
        found.map(|place| self.0.swap_remove(place).1).ok_or(Cause::Missing(field.name()))
    }
}

/// The annotations of an event, numbers and texts.
fn annotations(event: TrackEvent) -> Result<(Values, Texts), Cause> {
    let (mut values, mut texts) = (Values::NONE, Texts(Vec::new()));
    for annotation in event.annotations {
        let iid = annotation.name_iid.ok_or(Cause::Missing("name of an annotation"))?;
        let field = Field::of_iid(iid).ok_or(Cause::Range { field: "annotation", found: iid })?;
        let new = match (annotation.number, annotation.text) {
            (Some(number), None) => values.set(field, number),
            (None, Some(text)) => {
                let new = texts.one(field).is_err();
                texts.0.push((field, text));
                new
            }
            _ => return Err(Cause::Missing(field.name())),
        };
        if !new {
            return Err(Cause::Twice(field.name()));
        }
    }
    Ok((values, texts))
}

impl From<Bad> for Cause {
    fn from(bad: Bad) -> Cause {
        match bad {
            Bad::Missing(field) => Cause::Missing(field.name()),
            Bad::Range(field, found) => Cause::Range { field: field.name(), found },
        }
    }
}
