//! How handlers and tasks are created: measured, admitted, and handed to an executor.

use std::sync::Arc;

use upcall_core::activity::{ActivityId, ActivityParams, BATCH_MAX, ParamError, Terms};
use upcall_core::admission::Reservation;
use upcall_core::time::{Instant, Span};

use crate::config::Mode;
use crate::cpu::link::{Control, Work};
use crate::domain::NoPlace;
use crate::events::Posts;
use crate::id::HandlerId;
use crate::mailbox::ACTIVITIES_MAX;
use crate::need::{CreateError, Need};
use crate::statistics::Statistics;
use crate::stream::{self, StreamReader, StreamWork, StreamWriter, WATCHES_MAX};
use crate::virtual_time::VirtualTime;
use crate::work::batch::Batch;
use crate::work::handler::Handler;
use crate::work::task::{Address, Task, TaskCell, TaskWork};
use crate::{calibrate, clock};

use super::{Activity, Reserved, Runtime};

/// The handler whose CPU a need asks for.
pub(super) struct SameCpu {
    cpu: u32,
    name: String,
    reserved: Reserved,
}

/// The place that admission gave an activity.
struct Admitted {
    reserved: Reserved,
    /// Its first release must not come before.
    not_before: Instant,
    executor: usize,
    id: ActivityId,
}

impl Runtime {
    /// Creates a handler, suspended, if admission finds room for it (`rts_creat`, rtu-1995 §6). May
    /// be called while others run.
    ///
    /// A need without a cost is measured first: the handler runs on trial in this thread, for at
    /// most half a second, and consumes the PDUs that it processes. Allocates; O(n) analyses for n
    /// handlers.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::activity::ActivityParams;
    /// use upcall::time::Span;
    /// use upcall::{Config, Runtime};
    ///
    /// let mut runtime = Runtime::start(Config::default())?;
    /// // Every 20 ms at most 4 PDUs of at most 100 us each.
    /// let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(100)).batch(4);
    /// let camera = runtime.handler("camera", need, |batch| {
    ///     while batch.proceed() {
    ///         // process one PDU
    ///     }
    /// })?;
    /// runtime.run(camera)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A need may ask for the CPU of another handler, to share data with it without locks:
    /// [`Need::same_cpu_as`].
    ///
    /// # Errors
    /// See [`CreateError`]; a refusal says what would fit.
    pub fn handler<F>(
        &mut self,
        name: &str,
        need: impl Into<Need>,
        handler: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnMut(&mut Batch<'_>) + Send + 'static,
    {
        self.check_name(name)?;
        let mut handler: Handler = Box::new(handler);
        let mut need = need.into();
        let same_cpu = self.same_cpu(&need)?;
        let switch_cost = self.config.switch_cost.unwrap_or_default();
        if need.pdu_cost().is_zero() {
            // The batch does not depend on the cost: mapping derives it from rate and delay.
            let batch = need.with_cost(Span::from_nanos(1)).params(switch_cost)?.batch;
            let cost =
                calibrate::pdu_cost(&mut handler, batch).ok_or(CreateError::NothingToMeasure)?;
            need = need.with_cost(cost);
        }
        let params = need.params(switch_cost)?;
        let terms = need.terms();
        let admitted = self.admit(name, params, &terms, same_cpu.as_ref())?;
        Ok(self.enter(name, admitted, params, terms, Work::Handler(handler)))
    }

    /// Creates a task, suspended, if admission finds room for it. A task is a lightweight process
    /// (split-level-1991 §3.1); its code is the future that `task` returns. The calls that run,
    /// suspend, close and wait for handlers do the same with tasks. A task ends when its future
    /// does. The cost of a PDU must be declared; a PDU is the work between two checkpoints. May be
    /// called while others run. Allocates.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::ActivityParams, discipline::DWS};
    /// use upcall::{clock, time::Span};
    /// let mut runtime = Runtime::start(Config { discipline: &DWS, ..Config::default() })?;
    /// let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));
    /// let blink = runtime.task("blink", need, async move |task| {
    ///     for _ in 0..50 {
    ///         task.timed_sleep(clock::now() + Span::from_millis(20)).await;
    ///     }
    /// })?;
    /// runtime.run(blink)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runtime::handler`], and [`CreateError::NotForTasks`] under RMDP and RM.
    pub fn task<F, T>(
        &mut self,
        name: &str,
        need: impl Into<Need>,
        task: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnOnce(Task) -> T,
        T: Future<Output = ()> + Send + 'static,
    {
        self.check_name(name)?;
        if !self.config.discipline.takes_tasks() {
            return Err(CreateError::NotForTasks { policy: self.config.discipline.name });
        }
        let need = need.into();
        let same_cpu = self.same_cpu(&need)?;
        let params = need.params(self.config.switch_cost.unwrap_or_default())?;
        let terms = Terms { on_demand: true, ..need.terms() };
        // Before anything is reserved, because `task` is the caller's code and may panic.
        let cell = Arc::new(TaskCell::new(clock::now));
        let work = TaskWork::new(cell.clone(), task(Task::new(cell.clone())));
        if self.reactor.is_none() {
            self.reactor = Some(self.start_reactor().map_err(CreateError::Thread)?);
        }
        let admitted = self.admit(name, params, &terms, same_cpu.as_ref())?;
        let shared = self.executors[admitted.executor].link.shared.clone();
        let watcher = self.reactor.as_ref().map(|reactor| reactor.watcher(&shared, admitted.id));
        cell.bind(Address { shared, id: admitted.id, watcher });
        Ok(self.enter(name, admitted, params, terms, Work::Task(work)))
    }

    /// Creates a handler that reads a stream, suspended, if admission finds room for it.
    ///
    /// The handler is upcalled when at least `level` can be read, or when the stream has ended, and
    /// not before. `level` (the paper's `B_wakeup`) counts bytes (`Bytes`, `Messages`), slots
    /// (`Slots`) or buffers (`Buffers`), by the [`StreamForm`](crate::stream::StreamForm). It is at
    /// least 1, and at most the capacity of the stream. The calls that run, suspend, close and wait
    /// for other handlers do the same with this one. The handler finishes when it finds the end of
    /// the stream. Choose `level` so that one more message fits while the level is not reached: a
    /// writer that waits for room must find it.
    ///
    /// The message that reaches the level logically arrives at that moment. If that is less than a
    /// period after the previous message, it arrives one period after it, because the declared rate
    /// holds. Under PS this is so for a handler with a share of its own; one with a weight is
    /// upcalled as often as its level is reached. `Terms::workahead_max` says how much sooner it
    /// may be processed (DWS), and the batch says how many PDUs one upcall may process. If the
    /// level is still reached when the handler returns, that counts as the next message. At each
    /// boundary of other handlers on the CPU the executor checks the level: a load for each stream.
    /// The cost of a PDU must be declared. Allocates.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::ActivityParams, time::Span};
    /// use upcall::stream::{Stream, StreamForm};
    /// let mut runtime = Runtime::start(Config::default())?;
    /// let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
    /// let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(50)).batch(8);
    /// let reader = stream.reader()?;
    /// let video = runtime.stream_reader_handler("video", need, reader, 8, |reader, batch| {
    ///     while let Some(message) = reader.next(batch) {
    ///         message.done();
    ///     }
    /// })?;
    /// runtime.run(video)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runtime::handler`]; [`CreateError::TooManyStreams`] beyond 127 on a CPU,
    /// [`CreateError::NoStreams`] before Linux 5.16.
    pub fn stream_reader_handler<F>(
        &mut self,
        name: &str,
        need: impl Into<Need>,
        reader: StreamReader,
        level: u64,
        handler: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnMut(&mut StreamReader, &mut Batch<'_>) + Send + 'static,
    {
        self.enter_stream(name, need.into(), StreamWork::reads(reader, level, handler))
    }

    /// Creates a handler that writes a stream, suspended, if admission finds room for it.
    ///
    /// The handler is upcalled when there is room for `level`, or when the reader is gone, and not
    /// before. `level` counts bytes (`Bytes`, `Messages`), slots (`Slots`) or buffers (`Buffers`).
    /// It is at least 1, and at most the capacity of the stream. With a large `level` the handler
    /// is upcalled seldom, and writes much.
    ///
    /// If the stream has a `B_start`, the handler is a source that rests. When it leaves less room
    /// than `level`, it rests until the reader has emptied the stream below `B_start`, or waits for
    /// more. Without `B_start`, choose the levels so that reader and writer never both wait: their
    /// sum should be at most the capacity.
    ///
    /// The return of the handler commits what it wrote, if the handler did not commit it before.
    /// The handler finishes when it finds that the reader is gone, or when it ends the stream
    /// itself ([`StreamWriter::end`]). All else is as for [`Runtime::stream_reader_handler`]: if
    /// there still is room for `level`, the next upcall comes at the declared rate. Allocates.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::ActivityParams, time::Span};
    /// use upcall::stream::{Stream, StreamForm};
    /// let mut runtime = Runtime::start(Config::default())?;
    /// let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
    /// let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(50)).batch(32);
    /// let writer = stream.writer()?;
    /// let tone = runtime.stream_writer_handler("tone", need, writer, 32, |writer, batch| {
    ///     while let Some(room) = writer.next(1024, batch) {
    ///         room.payload().fill(0, &[0; 1024]);
    ///         room.stage(1024);
    ///     }
    /// })?;
    /// runtime.run(tone)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runtime::stream_reader_handler`].
    pub fn stream_writer_handler<F>(
        &mut self,
        name: &str,
        need: impl Into<Need>,
        writer: StreamWriter,
        level: u64,
        handler: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnMut(&mut StreamWriter, &mut Batch<'_>) + Send + 'static,
    {
        self.enter_stream(name, need.into(), StreamWork::writes(writer, level, handler))
    }

    /// Creates a handler with an end of a stream.
    fn enter_stream(
        &mut self,
        name: &str,
        need: Need,
        work: StreamWork,
    ) -> Result<HandlerId, CreateError> {
        self.check_name(name)?;
        stream::check_kernel().map_err(CreateError::NoStreams)?;
        let same_cpu = self.same_cpu(&need)?;
        let params = need.params(self.config.switch_cost.unwrap_or_default())?;
        let terms = Terms { on_demand: true, ..need.terms() };
        work.watched().map_err(|error| CreateError::Stream(Arc::new(error)))?;
        let admitted = self.admit(name, params, &terms, same_cpu.as_ref())?;
        let shares_executor =
            |known: &&Activity| known.has_stream && known.executor == admitted.executor;
        let peers = self.executors[admitted.executor].peers_reserved.unwrap_or(0);
        if self.activities.iter().flatten().filter(shares_executor).count() + peers >= WATCHES_MAX {
            self.executors[admitted.executor].taken[admitted.id.0 as usize] = false;
            self.release(admitted.reserved);
            let streams_max = u32::try_from(WATCHES_MAX).unwrap_or(u32::MAX);
            return Err(CreateError::TooManyStreams { streams_max });
        }
        Ok(self.enter(name, admitted, params, terms, Work::Stream(Box::new(work))))
    }

    /// Creates a virtual-time handler, suspended. Such a handler has no period and no real-time
    /// rank. It is for protocols that need no guarantee (rtu-1995 §9).
    ///
    /// While the handler is delivered, it is upcalled whenever the kernel runs this process as an
    /// ordinary one. All virtual handlers share the thread `upcall-virtual`, and take turns in the
    /// order of their creation. [`Batch::proceed`] returns `false` at the end of `quantum` PDUs if
    /// another handler waits. Nothing is promised to it and nothing is reserved for it, so
    /// admission does not decide about it.
    ///
    /// Virtual handlers of a process never interleave inside a quantum, and share data without a
    /// lock. Real-time handlers and tasks preempt them anywhere, as they do every ordinary thread.
    ///
    /// The calls that run, suspend, wait for and stop other handlers do the same with this one;
    /// [`Runtime::close_virtual`] closes it. A handler without work should call [`Batch::finish`],
    /// and be run again when there is work: otherwise it is upcalled over and over. It may have an
    /// abort phase ([`Runtime::give_abort_phase`]). May be called while others run. Allocates.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime};
    ///
    /// let mut runtime = Runtime::start(Config::default())?;
    /// let mut left = 100;
    /// let index = runtime.virtual_handler("index", 10, move |batch| {
    ///     while left > 0 && batch.proceed() {
    ///         left -= 1; // process one PDU
    ///     }
    ///     if left == 0 {
    ///         batch.finish();
    ///     }
    /// })?;
    /// runtime.run(index)?;
    /// runtime.wait(&[index], None);
    /// assert_eq!(runtime.virtual_statistics(index).map(|statistics| statistics.pdus), Some(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError::NameTaken`]; [`CreateError::Params`] if `quantum` is 0 or above
    /// [`BATCH_MAX`]; [`CreateError::Thread`].
    pub fn virtual_handler<F>(
        &mut self,
        name: &str,
        quantum: u32,
        handler: F,
    ) -> Result<HandlerId, CreateError>
    where
        F: FnMut(&mut Batch<'_>) + Send + 'static,
    {
        self.check_name(name)?;
        if !(1..=BATCH_MAX).contains(&quantum) {
            return Err(CreateError::Params(ParamError::Quantum { quantum, batch: BATCH_MAX }));
        }
        let virtual_time = match self.virtual_time.take() {
            Some(started) => started,
            None => VirtualTime::start(self.inactive_epoch.clone()).map_err(CreateError::Thread)?,
        };
        let id = HandlerId(self.activities.len());
        self.activities.push(None);
        virtual_time.enter(id, name, quantum, Box::new(handler));
        self.virtual_time = Some(virtual_time);
        Ok(id)
    }

    fn check_name(&self, name: &str) -> Result<(), CreateError> {
        let virtual_name = self.virtual_time.as_ref().is_some_and(|known| known.has_name(name));
        let mut live = self.activities.iter().flatten();
        if virtual_name || live.any(|activity| activity.name == name) {
            return Err(CreateError::NameTaken(name.to_owned()));
        }
        Ok(())
    }

    /// The handler whose CPU `need` asks for, if it asks for one.
    pub(super) fn same_cpu(&self, need: &Need) -> Result<Option<SameCpu>, CreateError> {
        let Some(id) = need.on_cpu_of() else { return Ok(None) };
        if let Some(Some(of)) = self.activities.get(id.0) {
            let cpu = self.executors[of.executor].cpu;
            return Ok(Some(SameCpu { cpu, name: of.name.clone(), reserved: of.reserved }));
        }
        let remote = self.remotes.iter().find(|remote| remote.handler == id);
        let of = remote.ok_or(CreateError::NoSuchHandler)?;
        let Reservation { id, cpu } = of.reservation;
        Ok(Some(SameCpu { cpu, name: of.name.clone(), reserved: Reserved::Local(id) }))
    }

    /// Reserves, and finds an executor and a number on it.
    fn admit(
        &mut self,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
        same_cpu: Option<&SameCpu>,
    ) -> Result<Admitted, CreateError> {
        let (reserved, cpu, not_before) = self.reserve(name, params, terms, same_cpu)?;
        let executor = match self.config.mode {
            Mode::Upcall => self
                .executors
                .iter()
                .position(|executor| executor.cpu == cpu)
                .expect("one executor was made for each CPU"),
            Mode::Threads | Mode::Fifo => self.add_executor(cpu, None),
        };
        let Some(number) = self.executors[executor].taken.iter().position(|&taken| !taken) else {
            self.release(reserved);
            return Err(CreateError::TooMany { activities_max: ACTIVITIES_MAX });
        };
        self.executors[executor].taken[number] = true;
        let id = ActivityId(u32::try_from(number).expect("below ACTIVITIES_MAX"));
        self.executors[executor].link.shared.clear(id);
        Ok(Admitted { reserved, not_before, executor, id })
    }

    /// Asks admission, this runtime's or the daemon's, for a place: the reservation, its CPU, and
    /// the time before which there may be no release.
    fn reserve(
        &mut self,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
        same_cpu: Option<&SameCpu>,
    ) -> Result<(Reserved, u32, Instant), CreateError> {
        if let Some(domain) = &mut self.domain {
            let only_cpu = same_cpu.map(|of| of.cpu);
            let asked = domain.create(name, (&params, terms), only_cpu, self.config.unscreened);
            return match asked.map_err(|error| CreateError::Daemon(Arc::new(error)))? {
                Ok(place) => Ok((Reserved::Daemon(place.order), place.cpu, place.not_before)),
                Err(NoPlace { mut reason, hint }) => {
                    if let Some(SameCpu { cpu, name, .. }) = same_cpu {
                        // As `Reason::SameCpu` of this runtime's admission says it.
                        reason = format!("it must be on CPU {cpu}, the CPU of `{name}`: {reason}");
                    }
                    Err(CreateError::RefusedByDaemon { reason, hint })
                }
            };
        }
        let reservation = self.reserve_local(name, params, terms, same_cpu)?;
        Ok((Reserved::Local(reservation.id), reservation.cpu, Instant::ZERO))
    }

    /// Asks this runtime's admission.
    pub(super) fn reserve_local(
        &mut self,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
        same_cpu: Option<&SameCpu>,
    ) -> Result<Reservation, CreateError> {
        let (all, unscreened) = (&mut self.reservations, self.config.unscreened);
        let Some(of) = same_cpu else {
            return match all.reserve(name, params, terms) {
                Ok(reservation) => Ok(reservation),
                Err(_) if unscreened => Ok(all.reserve_unscreened(name, params, terms)),
                Err(refusal) => Err(CreateError::Refused(Box::new(refusal))),
            };
        };
        let Reserved::Local(other) = of.reserved else { return Err(CreateError::NoSuchHandler) };
        match all.reserve_on_cpu_of(other, name, params, terms) {
            Ok(reservation) => Ok(reservation),
            Err(Some(refusal)) if !unscreened => Err(CreateError::Refused(Box::new(refusal))),
            Err(_) => all
                .reserve_unscreened_on_cpu_of(other, name, params, terms)
                .ok_or(CreateError::NoSuchHandler),
        }
    }

    /// Gives a place back.
    pub(super) fn release(&mut self, reserved: Reserved) {
        match (reserved, &self.domain) {
            (Reserved::Local(id), _) => self.reservations.release(id),
            (Reserved::Daemon(order), Some(domain)) => domain.close(order),
            (Reserved::Daemon(_), None) => {}
        }
    }

    /// Hands an admitted activity to its executor.
    fn enter(
        &mut self,
        name: &str,
        admitted: Admitted,
        params: ActivityParams,
        terms: Terms,
        work: Work,
    ) -> HandlerId {
        let Admitted { reserved, not_before, executor, id } = admitted;
        let has_stream = matches!(work, Work::Stream(_));
        let order = match reserved {
            Reserved::Daemon(order) => Some(order),
            Reserved::Local(_) => None,
        };
        let events = !matches!(work, Work::Task(_));
        let (posts, inbox) = events.then(|| Posts::new(self.config.discipline, &terms)).unzip();
        self.send(executor, Control::Create { id, params, terms, work, order, inbox });
        let statistics = Statistics::default();
        let name = name.to_owned();
        let abort_phase = false;
        self.activities.push(Some(Activity {
            name,
            params,
            reserved,
            not_before,
            executor,
            id,
            has_stream,
            statistics,
            abort_phase,
            posts,
        }));
        HandlerId(self.activities.len() - 1)
    }
}
