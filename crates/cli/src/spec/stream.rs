//! `[[stream]]`: the quality of service that a user wants (rtu-1996 §2).
//!
//! [`super::Spec::parse`] reads it. This module checks one stream by itself. The mapping
//! ([`upcall::qos::map`]) checks its numbers against each other, and `document` checks streams
//! against each other.

use super::endpoint::{Address, parse_endpoint};
use super::source::Place;
use super::table::{Alternatives, Table};
use super::task::BACKLOGS;
use super::units::Quantity;
use upcall::activity::{BATCH_MAX, Backlog};
use upcall::qos::{Class, Flow, Rate, StreamSpec};
use upcall::time::Span;
use upcall::work::WorkKind;

/// Largest PDU: the limit of [`StreamSpec::pdu_bytes`].
const PDU_BYTES_MAX: u64 = 1 << 30;

/// Largest payload of a UDP datagram over IPv4: 65535 less the headers of IP (20, RFC 791 §3.1) and
/// UDP (8, RFC 768).
const DATAGRAM_BYTES_MAX: u64 = 65_507;

/// Most requests of one burst.
const BURST_MAX: u32 = BATCH_MAX;

/// A stream as its user describes it.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its position, for errors found later.
    pub place: Place,
    /// Unique among streams and tasks.
    pub name: String,
    /// The class of the stream, and its flow.
    pub class: Class,
    /// Largest PDU in bytes: `1 ..= 2^30`.
    pub pdu_bytes: u32,
    /// Largest datagram in bytes, if a PDU comes in several: `1 ..= 65507`, at most the PDU.
    pub packet_bytes: u32,
    /// Longest time from arrival to the end of processing. Only a bulk stream may omit it.
    pub delay: Option<Span>,
    /// PDUs without preemption, if the user sets it.
    pub quantum: Option<u32>,
    /// CPU time of a PDU. `None`: measured before admission.
    pub cost: Option<Span>,
    /// The direction of its packets, and the address.
    pub direction: Direction,
    /// Whether Upcall's own sender produces the packets.
    pub embedded_source: bool,
    /// DWS: batches that it may be ahead of their logical arrivals. 0 for a stream that sends.
    pub workahead: u32,
    /// The processor of its PDUs.
    pub work: WorkKind,
    /// What becomes of jobs that wait too long. `None`: as its class.
    pub backlog: Option<Backlog>,
    /// The process it runs in. `None`: the process that all activities without a domain share.
    pub domain: Option<String>,
    /// The stream or task whose CPU it runs on. `None`: the first CPU with room.
    pub same_cpu_as: Option<String>,
    /// Whether a run continues without the stream if admission refuses it.
    pub optional: bool,
}

/// The direction of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// They arrive at this local address.
    Receive(Address),
    /// They leave for this address.
    Send(Address),
}

impl Direction {
    /// The key of the file, and the address.
    pub fn parts(&self) -> (&'static str, &Address) {
        match self {
            Direction::Receive(address) => ("receive", address),
            Direction::Send(address) => ("send", address),
        }
    }
}

impl Stream {
    /// The stream as the mapping takes it, at a declared or measured cost.
    pub fn stream_spec(&self, pdu_cost: Span) -> StreamSpec {
        StreamSpec {
            class: self.class,
            pdu_bytes: self.pdu_bytes,
            delay: self.delay,
            pdu_cost,
            quantum: self.quantum,
        }
    }
}

/// The classes, without their data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ContinuousMedia,
    Bulk,
    Transaction,
    MessageStream,
}

const KINDS: &[(&str, Kind)] = &[
    ("continuous-media", Kind::ContinuousMedia),
    ("bulk", Kind::Bulk),
    ("transaction", Kind::Transaction),
    ("message-stream", Kind::MessageStream),
];

const KEYS: &[&str] = &[
    "name",
    "class",
    "rate",
    "bandwidth",
    "frame",
    "frame_rate",
    "size",
    "within",
    "burst",
    "message",
    "message_rate",
    "pdu",
    "packet",
    "delay",
    "cost",
    "quantum",
    "receive",
    "send",
    "source",
    "workahead",
    "work",
    "backlog",
    "domain",
    "same_cpu_as",
    "optional",
];

/// The keys that only some classes have.
const CLASS_KEYS: &[(&str, &[Kind])] = &[
    ("bandwidth", &[Kind::ContinuousMedia, Kind::Bulk]),
    ("frame", &[Kind::ContinuousMedia]),
    ("frame_rate", &[Kind::ContinuousMedia]),
    ("size", &[Kind::Bulk]),
    ("within", &[Kind::Bulk]),
    ("burst", &[Kind::Transaction]),
    ("message", &[Kind::MessageStream]),
    ("message_rate", &[Kind::MessageStream]),
];

const MEDIA_FLOWS: Alternatives = &[&["rate"], &["bandwidth"], &["frame", "frame_rate"]];
const BULK_FLOWS: Alternatives = &[&["rate"], &["bandwidth"], &["size", "within"]];
const MESSAGE_RATES: Alternatives = &[&["message_rate"], &["rate"]];
const DIRECTIONS: Alternatives = &[&["receive"], &["send"]];

/// Reads one stream; `None` if it has an error.
pub(super) fn read_stream(table: &mut Table<'_, '_>) -> Option<Stream> {
    let name = table.own_name("stream");
    table.reject_unknown(KEYS);
    let pdu = required_size(table, "pdu", PDU_BYTES_MAX);
    let class = read_class(table, pdu);
    let delay = table.duration("delay", Span::from_nanos(1));
    let quantum = table.count("quantum", 1..=BATCH_MAX);
    let work = read_work(table);
    let packet = read_packet(table, pdu, work);
    let cost = table.duration("cost", Span::from_nanos(1));
    let direction = read_direction(table);
    let embedded_source = read_source(table, direction.as_ref());
    let workahead = read_workahead(table, direction.as_ref());
    let backlog = table.choice("backlog", BACKLOGS);
    let domain = table.name("domain");
    let same_cpu_as = table.name("same_cpu_as");
    let optional = table.boolean("optional").unwrap_or(false);
    Some(Stream {
        place: table.place().clone(),
        name: name?,
        class: class?,
        pdu_bytes: u32::try_from(pdu?).ok()?,
        packet_bytes: u32::try_from(packet?).ok()?,
        delay,
        quantum,
        cost,
        direction: direction?,
        embedded_source,
        workahead: workahead?,
        work: work?,
        backlog,
        domain,
        same_cpu_as,
        optional,
    })
}

fn required_size(table: &mut Table<'_, '_>, key: &str, most: u64) -> Option<u64> {
    if table.require(key, Quantity::Size.example()) { table.size(key, most) } else { None }
}

/// `packet`: at most a PDU, and at most what UDP carries. If the file omits it, a PDU is one
/// datagram.
fn read_packet(table: &mut Table<'_, '_>, pdu: Option<u64>, work: Option<WorkKind>) -> Option<u64> {
    let packet = if table.has("packet") {
        table.size("packet", DATAGRAM_BYTES_MAX)?
    } else {
        pdu?.min(DATAGRAM_BYTES_MAX)
    };
    match pdu {
        Some(pdu) if packet > pdu => {
            table.refuse_value("packet", &format!("at most the pdu, {pdu} B"));
            None
        }
        Some(pdu) if packet < pdu && work != Some(WorkKind::RtpJpeg) => {
            let one =
                work.map_or(String::new(), |work| format!(": with {work} a PDU is one packet"));
            if table.has("packet") {
                table.refuse_value("packet", &format!("the pdu, {pdu} B{one}"));
            } else {
                table.refuse_value("pdu", &format!("at most {packet} B{one}"));
            }
            None
        }
        _ => Some(packet),
    }
}

/// `class` and the keys that belong to it.
fn read_class(table: &mut Table<'_, '_>, pdu: Option<u64>) -> Option<Class> {
    let kind = table.required_choice("class", KINDS)?;
    reject_foreign(table, kind);
    if kind != Kind::Bulk {
        table.require("delay", Quantity::Duration.example());
    }
    match kind {
        Kind::ContinuousMedia => read_flow(table, MEDIA_FLOWS).map(Class::ContinuousMedia),
        Kind::Bulk => read_flow(table, BULK_FLOWS).map(Class::Bulk),
        Kind::Transaction => {
            let rate = table.require("rate", Quantity::Rate.example()).then(|| table.rate("rate"));
            let burst =
                if table.has("burst") { table.count("burst", 1..=BURST_MAX) } else { Some(1) };
            Some(Class::Transaction { rate: rate??, burst: burst? })
        }
        Kind::MessageStream => {
            let message_bytes = required_size(table, "message", u64::MAX);
            let message_rate = read_message_rate(table, message_bytes, pdu);
            Some(Class::MessageStream {
                message_rate: message_rate?,
                message_bytes: message_bytes?,
            })
        }
    }
}

/// Reports each key that belongs to another class.
fn reject_foreign(table: &mut Table<'_, '_>, kind: Kind) {
    let word = |kind: Kind| KINDS.iter().find(|(_, k)| *k == kind).map_or("", |(word, _)| *word);
    for (key, kinds) in CLASS_KEYS {
        if table.has(key) && !kinds.contains(&kind) {
            let home = kinds.iter().map(|k| word(*k)).collect::<Vec<_>>().join(" or ");
            let found = format!("in class {:?}", word(kind));
            table.refuse(key, &found, &format!("only in {home}"));
        }
    }
}

/// The flow, given in exactly one of the class's ways.
fn read_flow(table: &mut Table<'_, '_>, flows: Alternatives) -> Option<Flow> {
    let chosen = table.one_of(flows)?;
    match *flows.get(chosen)? {
        ["rate"] => table.rate("rate").map(Flow::PduRate),
        ["bandwidth"] => {
            let bits_per_second = table.bandwidth("bandwidth")?;
            Some(Flow::Bandwidth { bits_per_second })
        }
        ["frame", _] => {
            let (bytes, rate) = (table.size("frame", u64::MAX), table.rate("frame_rate"));
            Some(Flow::Frames { frame_rate: rate?, frame_bytes: bytes? })
        }
        _ => {
            let (bytes, within) = (table.size("size", u64::MAX), table.long_duration("within"));
            Some(Flow::Transfer { bytes: bytes?, within: within? })
        }
    }
}

/// Messages a second; or PDUs a second, if a message takes several PDUs.
fn read_message_rate(
    table: &mut Table<'_, '_>,
    message_bytes: Option<u64>,
    pdu: Option<u64>,
) -> Option<Rate> {
    if table.one_of(MESSAGE_RATES)? == 0 {
        return table.rate("message_rate");
    }
    let pdu_rate = table.rate("rate")?;
    let pdus_per_message = message_bytes?.div_ceil(pdu?);
    // Rounded up as everywhere, so that a reservation is never smaller than requested.
    Some(Rate::from_micro_hertz(pdu_rate.as_micro_hertz().div_ceil(pdus_per_message)))
}

/// `work`. Reports an error if its cost cannot be known.
fn read_work(table: &mut Table<'_, '_>) -> Option<WorkKind> {
    let works = WorkKind::ALL.map(|kind| (kind.name(), kind));
    let work = if table.has("work") { table.choice("work", &works)? } else { WorkKind::Spin };
    if work == WorkKind::Spin {
        table
            .require("cost", "a duration such as \"5 ms\": spin has no cost of its own to measure");
    }
    Some(work)
}

/// Exactly one of `receive` and `send`.
fn read_direction(table: &mut Table<'_, '_>) -> Option<Direction> {
    let key = *DIRECTIONS.get(table.one_of(DIRECTIONS)?)?.first()?;
    match parse_endpoint(table.string(key, "an address such as \"udp://127.0.0.1:5004\"")?) {
        Ok(address) if key == "receive" => Some(Direction::Receive(address)),
        Ok(address) if address.socket.ip().is_unspecified() => {
            table.refuse_value(key, "the address of a receiver");
            None
        }
        Ok(address) => Some(Direction::Send(address)),
        Err(error) => {
            table.refuse_value(key, error.expected());
            None
        }
    }
}

/// `source`: whether Upcall itself sends, which it does on loopback only.
fn read_source(table: &mut Table<'_, '_>, direction: Option<&Direction>) -> bool {
    let embedded = table.choice("source", &[("embedded", ())]).is_some();
    match direction {
        Some(Direction::Send(_)) if embedded => {
            table.refuse("source", "beside send", "only beside receive");
        }
        Some(Direction::Receive(Address { interface: Some(_), .. })) if embedded => {
            table.refuse("source", "beside receive at xdp://", "only beside receive at udp://");
        }
        Some(Direction::Receive(Address { socket, .. }))
            if embedded && !socket.ip().is_loopback() =>
        {
            let found = format!("\"embedded\" with receive at {}", socket.ip());
            table.refuse("source", &found, "a loopback address such as 127.0.0.1");
        }
        _ => {}
    }
    embedded
}

/// `workahead`: only what arrives can come early.
fn read_workahead(table: &mut Table<'_, '_>, direction: Option<&Direction>) -> Option<u32> {
    if !table.has("workahead") {
        return Some(0);
    }
    if matches!(direction, Some(Direction::Send(_))) {
        table.refuse("workahead", "beside send", "only beside receive");
    }
    table.count("workahead", 0..=BATCH_MAX)
}
