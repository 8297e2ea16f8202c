//! Writes a trace record by record.

use super::fields::{Field, Kind, Values, encode, encode_group};
use super::header::{FORMAT, Header, Named};
use super::proto::{
    Annotation, FLAG_CLEARED, FLAG_NEEDS_STATE, INSTANT, Interned, Name, PACKET_KEY, Packet,
    SLICE_BEGIN, SLICE_END, Track, TrackEvent,
};
use super::row::Row;
use prost::Message;
use std::collections::BTreeMap;
use std::io;
use upcall_core::activity::ActivityId;
use upcall_core::record::JobRecord;
use upcall_core::scheduler::{Command, Input};
use upcall_core::time::Instant;
use upcall_core::trace::{Crossing, Record};

/// Writer of one trace. It writes each record at once, without a buffer of its own: give it an
/// [`io::BufWriter`]. Allocates; keeps a few words per activity.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    process: u16,
    bytes: Vec<u8>,
    cpus: BTreeMap<u32, Cpu>,
    /// Index and name of each activity, by CPU and number.
    named: BTreeMap<(u32, u32), (u32, String)>,
    flows: u64,
}

/// The present state of a CPU's rows.
#[derive(Debug)]
struct Cpu {
    /// The CPU's packets are one sequence, with interned names of their own.
    sequence: u32,
    running: Option<ActivityId>,
    /// The flow of each activity's present job.
    flows: BTreeMap<u32, u64>,
}

impl<W: io::Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// `out` does not accept it.
    pub fn new(out: W, header: &Header) -> io::Result<Self> {
        // Numbers of sequences and flows must differ from those of other processes.
        let process = header.process;
        let sequences = header.cpus.iter().zip(u32::from(process) << 16 | 1..);
        let cpus = sequences.map(|(&(cpu, _), sequence)| {
            (cpu, Cpu { sequence, running: None, flows: BTreeMap::new() })
        });
        let named = header.activities.iter().zip(0u32..).map(|(activity, place)| {
            ((activity.cpu, activity.id.0), (place, activity.name.clone()))
        });
        let mut writer = Writer {
            out,
            process,
            bytes: Vec::new(),
            cpus: cpus.collect(),
            named: named.collect(),
            flows: u64::from(process) << 40,
        };
        for &(cpu, capacity) in &header.cpus {
            writer.begin_cpu(header, cpu, capacity)?;
        }
        // The groups are written once, although every CPU has them.
        if let Some(&(cpu, _)) = header.cpus.first() {
            for (place, group) in (0..).zip(&header.groups) {
                let values = encode_group(place, group);
                writer.core_event(cpu, header.start, (Kind::Group, &values), &[])?;
            }
        }
        writer.rows(&header.activities)?;
        for activity in &header.activities {
            let id = Values::NONE.with(Field::Id, activity.id.0);
            let texts = [(Field::Name, &*activity.name), (Field::Domain, &*activity.domain)];
            writer.core_event(activity.cpu, header.start, (Kind::Activity, &id), &texts)?;
        }
        Ok(writer)
    }

    /// Writes the next record of `cpu`.
    ///
    /// # Errors
    /// `out` does not accept it. `InvalidInput` for a CPU that is not in the header.
    pub fn record(&mut self, cpu: u32, record: &Record) -> io::Result<()> {
        let (kind, values) = encode(&record.crossing);
        self.core_event(cpu, record.now, (kind, &values), &[])?;
        let running = self.cpu(cpu)?.running;
        match record.crossing {
            Crossing::Command(Some(command)) | Crossing::Notice(Some(command)) => match command {
                Command::Upcall { id, resumed, .. } => self.upcall(cpu, record.now, id, resumed),
                Command::Yield => self.instant(cpu, record.now, running, "yield request", None),
                Command::JobDone(job) => self.job_done(cpu, &job),
                _ => Ok(()),
            },
            Crossing::Input { input: Input::Returned { .. }, refused: false } => {
                self.returned(cpu, record.now)
            }
            // After the gap the running handler is unknown.
            Crossing::Lost { .. } => self.returned(cpu, record.now),
            _ => Ok(()),
        }
    }

    /// The output, such as a `Vec` to be emptied. It contains whole packets.
    pub fn out_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Flushes, and returns the output. Records that were not written are missing from the file,
    /// because a trace may end anywhere.
    ///
    /// # Errors
    /// `out` cannot be flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn cpu(&mut self, cpu: u32) -> io::Result<&mut Cpu> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("no CPU {cpu}"));
        self.cpus.get_mut(&cpu).ok_or_else(unknown)
    }

    /// Writes the names of the CPU's sequence, its two rows and its header.
    fn begin_cpu(&mut self, header: &Header, cpu: u32, capacity: u32) -> io::Result<()> {
        let sequence = self.cpu(cpu)?.sequence;
        let name = |iid: u64, name: &str| Name { iid: Some(iid), name: Some(name.to_owned()) };
        let interned = Interned {
            event_names: Kind::ALL.iter().map(|(kind, _)| name(kind.iid(), kind.name())).collect(),
            annotation_names: Field::ALL
                .iter()
                .map(|(field, _)| name(field.iid(), field.name()))
                .collect(),
        };
        self.packet(&Packet {
            sequence: Some(sequence),
            interned: Some(interned),
            sequence_flags: Some(FLAG_CLEARED),
            ..Packet::default()
        })?;
        // If a file has several processes, each process is a domain.
        let of = header.activities.first().filter(|_| header.process > 0);
        let of = of.map_or_else(String::new, |activity| format!(", domain {}", activity.domain));
        self.row(Row::Cpu(cpu), &format!("CPU {cpu}{of}"), None)?;
        self.row(Row::Core(cpu), "core", Some(Row::Cpu(cpu)))?;
        let mut numbers = Values::NONE.with(Field::Format, FORMAT).with(Field::Capacity, capacity);
        if let Some(quantum) = header.time_quantum {
            numbers = numbers.with(Field::TimeQuantum, quantum.as_nanos());
        }
        let texts = [(Field::Policy, header.discipline.name), (Field::Clock, header.clock.name())];
        self.core_event(cpu, header.start, (Kind::Header, &numbers), &texts)
    }

    /// Writes a row for each domain and activity.
    fn rows(&mut self, activities: &[Named]) -> io::Result<()> {
        let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
        for (activity, place) in activities.iter().zip(0u32..) {
            let next = u32::try_from(domains.len()).unwrap_or(u32::MAX);
            let domain = *domains.entry(&activity.domain).or_insert(next);
            if domain == next {
                self.row(Row::Domain(domain), &format!("domain {}", activity.domain), None)?;
            }
            self.row(Row::Activity(place), &activity.name, Some(Row::Domain(domain)))?;
        }
        Ok(())
    }

    fn row(&mut self, row: Row, name: &str, parent: Option<Row>) -> io::Result<()> {
        let track = Track {
            uuid: Some(row.uuid(self.process)),
            name: Some(name.to_owned()),
            parent: parent.map(|parent| parent.uuid(self.process)),
        };
        self.packet(&Packet { track: Some(track), ..Packet::default() })
    }

    /// Writes an instant on the row `core`, which the reader reads.
    fn core_event(
        &mut self,
        cpu: u32,
        now: Instant,
        (kind, values): (Kind, &Values),
        texts: &[(Field, &str)],
    ) -> io::Result<()> {
        let numbers = values.iter().map(|(field, value)| Annotation {
            name_iid: Some(field.iid()),
            number: Some(value),
            text: None,
        });
        let texts = texts.iter().map(|(field, text)| Annotation {
            name_iid: Some(field.iid()),
            number: None,
            text: Some((*text).to_owned()),
        });
        let event = TrackEvent {
            annotations: numbers.chain(texts).collect(),
            kind: Some(INSTANT),
            name_iid: Some(kind.iid()),
            track: Some(Row::Core(cpu).uuid(self.process)),
            ..TrackEvent::default()
        };
        self.event(cpu, now, event)
    }

    /// Begins a slice on the rows of the CPU and of the activity.
    fn upcall(&mut self, cpu: u32, now: Instant, id: ActivityId, resumed: bool) -> io::Result<()> {
        let flow = (!resumed).then(|| {
            self.flows += 1;
            self.flows
        });
        let state = self.cpu(cpu)?;
        state.running = Some(id);
        if let Some(flow) = flow {
            state.flows.insert(id.0, flow);
        }
        let (row, name) = self.row_and_name(cpu, id);
        let process = self.process;
        let event = |row: Row, flow: Option<u64>| TrackEvent {
            kind: Some(SLICE_BEGIN),
            track: Some(row.uuid(process)),
            name: Some(name.clone()),
            flows: flow.into_iter().collect(),
            ..TrackEvent::default()
        };
        let of_cpu = event(Row::Cpu(cpu), None);
        let of_activity = row.map(|row| event(row, flow));
        self.event(cpu, now, of_cpu)?;
        of_activity.map_or(Ok(()), |event| self.event(cpu, now, event))
    }

    /// Ends both slices, if there are any.
    fn returned(&mut self, cpu: u32, now: Instant) -> io::Result<()> {
        let Some(id) = self.cpu(cpu)?.running.take() else { return Ok(()) };
        let (row, _) = self.row_and_name(cpu, id);
        for row in row.into_iter().chain([Row::Cpu(cpu)]) {
            let track = Some(row.uuid(self.process));
            let event = TrackEvent { kind: Some(SLICE_END), track, ..TrackEvent::default() };
            self.event(cpu, now, event)?;
        }
        Ok(())
    }

    /// Writes the instants of a job that has ended.
    fn job_done(&mut self, cpu: u32, job: &JobRecord) -> io::Result<()> {
        let flow = self.cpu(cpu)?.flows.remove(&job.id.0);
        // An arrow between two points at the same time, or backwards, has no meaning.
        let flow = flow.filter(|_| job.release < job.start);
        self.instant(cpu, job.release, Some(job.id), "release", flow)?;
        self.instant(cpu, job.deadline, Some(job.id), "deadline", None)?;
        if job.missed() {
            self.instant(cpu, job.end, Some(job.id), "miss", None)?;
        }
        Ok(())
    }

    /// Writes an instant on an activity's row, if it has one.
    fn instant(
        &mut self,
        cpu: u32,
        now: Instant,
        id: Option<ActivityId>,
        name: &str,
        flow: Option<u64>,
    ) -> io::Result<()> {
        let Some(row) = id.and_then(|id| self.row_and_name(cpu, id).0) else { return Ok(()) };
        let event = TrackEvent {
            kind: Some(INSTANT),
            track: Some(row.uuid(self.process)),
            name: Some(name.to_owned()),
            flows: flow.into_iter().collect(),
            ..TrackEvent::default()
        };
        self.event(cpu, now, event)
    }

    /// The activity's row, if the header names it, and its name.
    fn row_and_name(&self, cpu: u32, id: ActivityId) -> (Option<Row>, String) {
        match self.named.get(&(cpu, id.0)) {
            Some((place, name)) => (Some(Row::Activity(*place)), name.clone()),
            None => (None, format!("activity {}", id.0)),
        }
    }

    fn event(&mut self, cpu: u32, now: Instant, event: TrackEvent) -> io::Result<()> {
        let sequence = self.cpu(cpu)?.sequence;
        self.packet(&Packet {
            timestamp: Some(now.as_nanos()),
            sequence: Some(sequence),
            event: Some(event),
            sequence_flags: Some(FLAG_NEEDS_STATE),
            ..Packet::default()
        })
    }

    fn packet(&mut self, packet: &Packet) -> io::Result<()> {
        self.bytes.clear();
        self.bytes.push(PACKET_KEY);
        packet.encode_length_delimited(&mut self.bytes).map_err(io::Error::other)?;
        self.out.write_all(&self.bytes)
    }
}
