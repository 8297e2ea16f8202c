//! The files of `--trace` and `--replay`, in the format of `upcall_sim::trace`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use upcall::Record;
use upcall_sim::trace::{CpuReplay, Header, Writer, read_all};

use crate::exit::Failure;
use crate::log_file::{empty, open_kept};
use crate::output;

/// A trace that is being written.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Opened; its old content is still there.
    Open(File),
    /// By process.
    Begun(BTreeMap<u16, Writer<Vec<u8>>>, BufWriter<File>),
    /// Other processes write packets, each with a writer of its own.
    BegunRemote(BufWriter<File>),
    /// The first error; later records are not written.
    Failed(io::Error),
}

impl TraceFile {
    /// Opens the file for writing. It keeps its content until [`TraceFile::begin`].
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = open_kept(path).map_err(|error| Failure::of_file(path, error))?;
        Ok(TraceFile { path: path.to_owned(), state: State::Open(file) })
    }

    /// Empties the file and writes the header.
    pub fn begin(&mut self, header: &Header) {
        self.begin_all(std::slice::from_ref(header));
    }

    /// Empties the file and writes the headers of all processes.
    pub fn begin_all(&mut self, headers: &[Header]) {
        let State::Open(file) = &self.state else { return };
        let begun = empty(file).and_then(|()| file.try_clone()).and_then(|file| {
            let mut file = BufWriter::new(file);
            let mut writers = BTreeMap::new();
            for header in headers {
                let mut writer = Writer::new(Vec::new(), header)?;
                take_packets(&mut writer, &mut file)?;
                writers.insert(header.process, writer);
            }
            Ok(State::Begun(writers, file))
        });
        self.state = begun.unwrap_or_else(State::Failed);
    }

    /// Empties the file for the packets of other processes.
    pub fn begin_remote(&mut self) {
        let State::Open(file) = &self.state else { return };
        let begun = empty(file).and_then(|()| file.try_clone()).map(BufWriter::new);
        self.state = begun.map_or_else(State::Failed, State::BegunRemote);
    }

    /// Appends whole packets that another process wrote. Keeps an error for `finish`.
    pub fn append(&mut self, packets: &[u8]) {
        if let State::BegunRemote(file) = &mut self.state
            && let Err(error) = file.write_all(packets)
        {
            self.state = State::Failed(error);
        }
    }

    /// Writes a record of the only process.
    pub fn record(&mut self, cpu: u32, record: &Record) {
        self.record_of(0, cpu, record);
    }

    /// Writes a record. Keeps an error, such as a full disk, for `finish`.
    pub fn record_of(&mut self, process: u16, cpu: u32, record: &Record) {
        if let State::Begun(writers, file) = &mut self.state
            && let Some(writer) = writers.get_mut(&process)
            && let Err(error) = writer.record(cpu, record).and_then(|()| take_packets(writer, file))
        {
            self.state = State::Failed(error);
        }
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// The first error since the file was opened.
    pub fn finish(self) -> Result<(), Failure> {
        let finished = match self.state {
            State::Open(_) => Ok(()),
            State::Begun(_, mut file) | State::BegunRemote(mut file) => file.flush(),
            State::Failed(error) => Err(error),
        };
        finished.map_err(|error| {
            Failure::about_file(&self.path, format_args!("the trace is incomplete: {error}"))
                .because(error)
        })
    }
}

/// Moves what the writer has written to the file.
fn take_packets(writer: &mut Writer<Vec<u8>>, file: &mut BufWriter<File>) -> io::Result<()> {
    let packets = writer.out_mut();
    file.write_all(packets)?;
    packets.clear();
    Ok(())
}

/// Reads a trace and passes its inputs to the core again.
///
/// # Errors
/// The file cannot be read or is no trace. The error says where.
pub fn replay(path: &Path) -> Result<output::Replay, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::of_trace(path, error))?;
    let traces = read_all(&bytes).map_err(|error| Failure::of_file(path, error))?;
    let header = &traces[0].header;
    let mut replay = output::Replay {
        mode: "replay",
        policy: header.discipline.name,
        clock: header.clock.name(),
        cpus: Vec::new(),
        inputs: 0,
        commands: 0,
        silences: 0,
        lost: 0,
        same: true,
        divergence: None,
    };
    for trace in &traces {
        // With several processes, each is a domain.
        let domain = (traces.len() > 1).then(|| trace.header.activities.first()).flatten();
        let domain = domain.map(|activity| activity.domain.clone());
        for of_cpu in trace.replay() {
            take_in(&mut replay, domain.clone(), of_cpu);
        }
    }
    let compared = replay.inputs + replay.commands + replay.silences + replay.lost;
    if compared == 0 && replay.divergence.is_none() {
        return Err(Failure::about_file(path, "nothing to compare: the trace has no record"));
    }
    replay.same = replay.divergence.is_none() && replay.lost == 0;
    Ok(replay)
}

/// Adds the outcome of one scheduler's replay.
fn take_in(replay: &mut output::Replay, domain: Option<String>, of_cpu: CpuReplay) {
    let cpu = of_cpu.cpu;
    match of_cpu.outcome {
        Ok(done) => {
            replay.inputs += done.inputs;
            replay.commands += done.commands;
            replay.silences += done.silences;
            replay.lost += done.lost;
            replay.cpus.push(output::ReplayedCpu {
                cpu,
                domain,
                inputs: done.inputs,
                commands: done.commands,
                silences: done.silences,
                lost: done.lost,
            });
        }
        Err(divergence) if replay.divergence.is_none() => {
            replay.divergence = Some(output::Divergence {
                cpu,
                domain,
                record: divergence.index,
                at_ns: divergence.recorded.now.as_nanos(),
                text: divergence.to_string(),
            });
        }
        Err(_) => {}
    }
}
