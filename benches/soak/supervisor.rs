//! Starts the two ends, kills them, and checks the counts.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ChildStdout;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use upcall_shm::stream::{End, Stream, StreamForm};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{self, Child, SpawnOptions};
use upcall_sys::{futex, readiness, schedule};

use crate::end::Role;
use crate::job::{Job, Position, RemoteMemory, position, units_of};
use crate::message::{BYTES_MAX, Random};
use crate::page::Page;
use crate::shared::progress;

/// If no index moves, or an end reports nothing, for this long, then the end sleeps and is not
/// woken.
const STALL_MAX: Duration = Duration::from_secs(20);
/// Interval between two reads of the indexes.
const CHECK_INTERVAL: Duration = Duration::from_micros(200);
/// Interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// The forms, and passive sources, by their index.
const KINDS: [&str; 5] = ["bytes", "messages", "slots", "buffers", "passive sources"];
const PARTS: u64 = KINDS.len() as u64;
const PASSIVE: usize = 4;

/// The amount of work of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// At least this many messages. Each form has a fifth of them, and so have passive sources of
    /// all forms.
    pub messages: u64,
    /// The number of kills.
    pub kills: u64,
    /// Seed of everything that is random, except the times at which processes run.
    pub seed: u64,
}

/// The work done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Messages that an end read: those below `N_read`.
    pub read: u64,
    /// Messages that were committed and not released when their reader was killed, found in the
    /// memory.
    pub recovered: u64,
    /// Senders killed.
    pub senders: u64,
    /// Receivers killed.
    pub receivers: u64,
    /// Streams.
    pub streams: u64,
    /// The number of times that a resting source was started.
    pub starts: u64,
}

impl Counts {
    /// Processes killed.
    pub fn kills(&self) -> u64 {
        self.senders + self.receivers
    }

    fn add(&mut self, other: Counts) {
        self.read += other.read;
        self.recovered += other.recovered;
        self.senders += other.senders;
        self.receivers += other.receivers;
        self.streams += other.streams;
        self.starts += other.starts;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages ({} read, {} found behind killed readers), {} kills ({} writers, {} readers), {} streams, {} starts",
            self.read + self.recovered,
            self.read,
            self.recovered,
            self.kills(),
            self.senders,
            self.receivers,
            self.streams,
            self.starts
        )
    }
}

/// Runs all forms one after the other, and passive sources last.
///
/// # Errors
/// A message was lost or damaged, or never came.
pub fn soak(goal: Goal, program: &str) -> Result<Counts, String> {
    let begun = Instant::now();
    let mut all = Counts::default();
    for (form, name) in KINDS.into_iter().enumerate() {
        // The remainder of a division goes to the first parts.
        let part = |whole: u64| whole / PARTS + u64::from((form as u64) < whole % PARTS);
        let part = Goal { messages: part(goal.messages), kills: part(goal.kills), ..goal };
        let mut series = Series::new(name, form, part, program)?;
        let done = series.run(begun)?;
        println!("{name}: {done}");
        all.add(done);
    }
    Ok(all)
}

/// A process that is one end.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// All streams of one form.
struct Series<'a> {
    name: &'static str,
    form: usize,
    goal: Goal,
    program: &'a str,
    random: Random,
    cpus: Vec<u32>,
    progress: SharedMapping,
    /// Sender and receiver, if alive.
    ends: [Option<Process>; 2],
    /// All messages before this position are counted.
    at: Position,
    done: Counts,
    last_progress: Instant,
}

const ROLES: [Role; 2] = [Role::Sender, Role::Receiver];

impl<'a> Series<'a> {
    fn new(name: &'static str, form: usize, goal: Goal, program: &'a str) -> Result<Self, String> {
        Ok(Series {
            name,
            form,
            goal,
            program,
            random: Random::new(goal.seed.wrapping_mul(PARTS).wrapping_add(form as u64)),
            cpus: schedule::allowed_cpus().map_err(|error| error.to_string())?,
            progress: memory(progress::WORDS * 8)?,
            ends: [None, None],
            at: Position::default(),
            done: Counts::default(),
            last_progress: Instant::now(),
        })
    }

    fn run(&mut self, begun: Instant) -> Result<Counts, String> {
        loop {
            let last = self.done.kills() >= self.goal.kills;
            let (generation, (form, start_level)) = (self.done.streams + 1, self.shape());
            self.stream(form, start_level, generation, last).map_err(|error| {
                format!(
                    "{}, stream {generation} ({form:?}), from `{}`: {error}",
                    self.name, self.at
                )
            })?;
            if last && self.form == PASSIVE && self.done.starts == 0 {
                return Err(format!("{}: no source was ever started: {}", self.name, self.done));
            }
            if last {
                return Ok(self.done);
            }
            if self.last_progress.elapsed() > PROGRESS_INTERVAL {
                self.last_progress = Instant::now();
                println!("{:5.0} s  {}: {}", begun.elapsed().as_secs_f64(), self.name, self.done);
            }
        }
    }

    /// The next stream's form and sizes, and its `B_start`.
    fn shape(&mut self) -> (StreamForm, u64) {
        let passive = self.form == PASSIVE;
        let form = if passive {
            // Without plain bytes: there a message may lie in two streams, so all streams of a
            // series would have to be of plain bytes.
            usize::try_from(1 + self.random.below(3)).unwrap_or(1)
        } else {
            self.form
        };
        let mut count = |least: u64, most: u64| {
            1u32 << (u64::from(least.ilog2())
                + self.random.below(u64::from((most / least).ilog2()) + 1))
        };
        let bytes = u32::try_from(BYTES_MAX).unwrap_or(u32::MAX);
        let form = match form {
            0 => StreamForm::Bytes { capacity: count(4 << 10, 256 << 10) },
            1 => StreamForm::Messages { capacity: count(4 << 10, 256 << 10) },
            2 => StreamForm::Slots { slots: count(4, 1024), slot_bytes: bytes },
            _ => StreamForm::Buffers { buffers: count(4, 512), buffer_bytes: bytes },
        };
        let units =
            match form {
                StreamForm::Bytes { capacity: units }
                | StreamForm::Messages { capacity: units } => units,
                StreamForm::Slots { slots: units, .. }
                | StreamForm::Buffers { buffers: units, .. } => units,
            };
        // A source that is started finds room.
        let start_level = if passive { 1 + self.random.below(u64::from(units) / 2) } else { 0 };
        (form, start_level)
    }

    /// Runs one stream, from its creation to the check of its counts.
    fn stream(
        &mut self,
        form: StreamForm,
        start_level: u64,
        generation: u64,
        last: bool,
    ) -> Result<(), String> {
        let memory = memory(form.words().map_err(|error| error.to_string())? * 8)?;
        let stream = Stream::create(memory.words(), form, generation, start_level);
        let stream = stream.map_err(|error| error.to_string())?;
        self.progress.words().iter().for_each(|word| word.store(0, Relaxed));
        let job = self.job(form, generation, &memory, last);
        let page = Page {
            words: memory.words(),
            form,
            seed: job.seed,
            begin: job.begin,
            group: job.group,
        };
        self.start(&job)?;
        let victims = if last { [false; 2] } else { self.victims() };
        let target = self.target(form, last);
        self.wait_until(&page, target, last)?;
        for (at, end) in [End::Writer, End::Reader].into_iter().enumerate() {
            if victims[at] {
                // Kills the process and waits until it is gone.
                drop(self.ends[at].take());
                if stream.mark_dead(end) {
                    let other = if end == End::Writer { End::Reader } else { End::Writer };
                    futex::wake_shared(stream.wait_word(other), 1);
                }
            }
        }
        self.done.senders += u64::from(victims[0]);
        self.done.receivers += u64::from(victims[1]);
        self.done.streams += 1;
        let how = if last { "ended" } else { "died" };
        let reached = [self.read_report(0, how)?, self.read_report(1, how)?];
        self.check_counts(&page, victims, reached)
    }

    fn job(
        &mut self,
        form: StreamForm,
        generation: u64,
        memory: &SharedMapping,
        last: bool,
    ) -> Job {
        let place = |mapping: &SharedMapping| -> RemoteMemory {
            (std::process::id(), mapping.fd().as_raw_fd(), mapping.len())
        };
        let group = match form {
            StreamForm::Buffers { buffers, .. } => self.random.batch(u64::from(buffers) / 2),
            _ => 1,
        };
        // At least one more message, so that the end of the stream is tested.
        let end = self.goal.messages.max(self.at.number + 1);
        Job {
            generation,
            seed: self.goal.seed,
            memory: place(memory),
            progress: place(&self.progress),
            begin: self.at,
            end: if last { end } else { u64::MAX },
            sleeps: [0, 2, 50, 100][usize::try_from(self.random.below(4)).unwrap_or(0)],
            batch: 256,
            group,
            cpu: 0,
        }
    }

    /// Starts the ends that are missing, and sends the job to both.
    fn start(&mut self, job: &Job) -> Result<(), String> {
        let together = self.random.chance(25) || self.cpus.len() < 2;
        let first = usize::try_from(self.random.below(self.cpus.len() as u64)).unwrap_or(0);
        for (at, role) in ROLES.into_iter().enumerate() {
            let other = if together { 0 } else { at };
            let cpu = self.cpus[(first + other) % self.cpus.len()];
            // An end that polls on the CPU of its peer only waits for its slice to end.
            let sleeps = if together { 100 } else { job.sleeps };
            let job = Job { cpu, sleeps, ..job.clone() };
            if self.ends[at].is_none() {
                self.ends[at] = Some(Process::start(self.program, role, &self.cpus)?);
            }
            if let Some(process) = &mut self.ends[at] {
                process.send_job(&job)?;
            }
        }
        Ok(())
    }

    /// The ends to kill: sender, receiver.
    fn victims(&mut self) -> [bool; 2] {
        let two = self.done.kills() + 2 <= self.goal.kills && self.random.chance(12);
        let sender = self.random.chance(50);
        [two || sender, two || !sender]
    }

    /// The index at which to kill.
    fn target(&mut self, form: StreamForm, last: bool) -> u64 {
        if last {
            return u64::MAX;
        }
        let left = self.goal.messages.saturating_sub(self.at.number);
        let mean = left / (self.goal.kills - self.done.kills() + 1);
        // A small ring is slow while its ends sleep.
        let units = match form {
            StreamForm::Bytes { capacity } | StreamForm::Messages { capacity } => {
                u64::from(capacity) / 128
            }
            StreamForm::Slots { slots: units, .. } | StreamForm::Buffers { buffers: units, .. } => {
                units.into()
            }
        };
        let messages = self.random.below(2 * mean.min(units * 5_000) + 1);
        let sample: u64 = (0..64).map(|n| units_of(form, self.goal.seed, n)).sum();
        messages * sample / 64
    }

    /// Waits until the writer has reached `target`, or both ends have a report.
    fn wait_until(&mut self, page: &Page<'_>, target: u64, last: bool) -> Result<(), String> {
        let (mut seen, mut moved) = ((0, 0), Instant::now());
        loop {
            let now = (page.written(), page.read());
            if now.0 >= target {
                return Ok(());
            }
            if now != seen {
                (seen, moved) = (now, Instant::now());
            }
            let reported = self.ends.iter().flatten().map(Process::has_report);
            let reported = reported.collect::<Result<Vec<_>, _>>()?;
            if last && reported.iter().all(|reported| *reported) {
                return Ok(());
            }
            if !last && reported.contains(&true) {
                // An end reports here only if it found an error.
                return Err(self.reports());
            }
            if moved.elapsed() > STALL_MAX {
                return Err(format!("N_write {} and N_read {} do not change", now.0, now.1));
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    fn reports(&mut self) -> String {
        let ends = self.ends.iter_mut().flatten();
        let reported = ends.filter(|end| end.has_report().unwrap_or(false));
        reported
            .map(|end| end.read_report().unwrap_or_else(|error| error))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The position of an end that is alive and has closed the stream.
    fn read_report(&mut self, at: usize, how: &str) -> Result<Option<Position>, String> {
        let Some(process) = &mut self.ends[at] else { return Ok(None) };
        let line = process.read_report().map_err(|error| format!("{:?} {error}", ROLES[at]))?;
        let place = line.strip_prefix(how).and_then(Position::parse);
        place
            .map(Some)
            .ok_or(format!("{:?} reports `{line}`, expected `{how}` and a position", ROLES[at]))
    }

    /// Checks the counts of a stream that is over.
    fn check_counts(
        &mut self,
        page: &Page<'_>,
        victims: [bool; 2],
        [sender, receiver]: [Option<Position>; 2],
    ) -> Result<(), String> {
        let (written, read) = (page.written(), page.read());
        let at = |word: usize| self.progress.words()[word].load(Relaxed);
        let within = |name: &str, least: u64, index: u64, most: u64| {
            let ok = least <= index && index <= most;
            ok.then_some(()).ok_or(format!("{name} is {index}, expected {least} to {most}"))
        };
        within("N_write", at(progress::COMMITTED), written, at(progress::COMMITTING))?;
        within("N_read", at(progress::RELEASED), read, at(progress::RELEASING))?;
        within("N_read", 0, read, written)?;
        let position = |units| position(page.form, page.seed, page.begin, units);
        let end = position(written)?;
        if sender.is_some_and(|sender| sender != end) {
            return Err(format!("the writer committed up to `{sender:?}`, N_write is `{end}`"));
        }
        if receiver.is_some_and(|receiver| receiver != end) {
            return Err(format!("the reader read up to `{receiver:?}`, N_write is `{end}`"));
        }
        if !victims[1] && read != written {
            return Err(format!("N_read is {read}, expected {written}, because all was read"));
        }
        let left = if victims[1] { page.check_unread()? } else { 0 };
        within("the unread part", written - read, left, written - read)?;
        self.done.starts += at(progress::STARTS);
        // A message that was partly released counts as found.
        let released = position(read)?.number;
        self.done.read += released - self.at.number;
        self.done.recovered += end.number - released;
        self.at = end;
        Ok(())
    }
}

impl Process {
    fn start(program: &str, role: Role, cpus: &[u32]) -> Result<Self, String> {
        let command = [program.to_owned(), role.word().to_owned()];
        let options = SpawnOptions {
            stdin: process::Stream::Pipe,
            stdout: process::Stream::Pipe,
            stderr: process::Stream::Inherit,
            inherit: None,
        };
        let mut child = process::spawn(&command, cpus, options).map_err(|e| e.to_string())?;
        let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        Ok(Process { child, output })
    }

    fn send_job(&mut self, job: &Job) -> Result<(), String> {
        let stdin = self.child.stdin.as_mut().ok_or("the child has no input")?;
        writeln!(stdin, "{job}").map_err(|error| error.to_string())
    }

    fn has_report(&self) -> Result<bool, String> {
        let fd = self.output.get_ref().as_fd();
        readiness::is_ready(fd, readiness::Direction::Readable).map_err(|error| error.to_string())
    }

    /// The report of the end, if it comes in time.
    fn read_report(&mut self) -> Result<String, String> {
        let deadline = Instant::now() + STALL_MAX;
        while !self.has_report()? {
            if Instant::now() > deadline {
                return Err("sleeps and is not woken".to_owned());
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.is_empty() { Err("is gone".to_owned()) } else { Ok(line.trim().to_owned()) }
    }
}

fn memory(bytes: usize) -> Result<SharedMapping, String> {
    SharedMapping::create("upcall-soak", bytes).map_err(|error| error.to_string())
}
