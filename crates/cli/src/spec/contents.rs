//! What a spec file says, as data.
//!
//! `document` fills these types; `super` reads files into them.

use super::background::Background;
use super::group::Group;
use super::source::{Place, Source};
use super::stream::Stream;
use super::task::Task;
use std::ops::Range;
use upcall::policy::Discipline;
use upcall::time::Span;

/// Most streams and tasks together; also most background loads.
pub const ACTIVITIES_MAX: usize = 1024;

/// Largest number of a CPU.
pub const CPU_MAX: u32 = 1023;

/// A spec file, read and checked.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Who outranks whom.
    pub policy: &'static Discipline,
    /// CPUs the activities may use, in the order given, without duplicates,
    /// each at most [`CPU_MAX`]; absent: the caller's choice.
    pub cpus: Option<Vec<u32>>,
    /// Where each of `cpus` stands in the text.
    pub cpu_spans: Vec<Range<usize>>,
    /// Most CPUs the activities may use, from the first on: `1 ..= CPU_MAX + 1`; absent: all.
    pub cpu_count: Option<u32>,
    /// Most of a CPU that admission gives away, in millionths: `1 ..= 1_000_000`.
    pub cpu_limit_ppm: u32,
    /// What a hand-off is charged.
    pub switch_cost: SwitchCost,
    /// How late the kernel may wake the scheduler, as admission assumes it.
    pub wakeup_latency: Span,
    /// The longest an activity is served at a time under PS, above zero.
    pub time_quantum: Span,
    /// In the order of the file.
    pub streams: Vec<Stream>,
    /// In the order of the file.
    pub tasks: Vec<Task>,
    /// Each behind the one it is in.
    pub groups: Vec<Group>,
    /// In the order of the file.
    pub backgrounds: Vec<Background>,
    /// The text, for errors found later.
    pub source: Source,
}

/// What a hand-off from one activity to another is charged in admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchCost {
    /// What is measured at the start.
    Auto,
    /// So much.
    Fixed(Span),
}

/// An entry of the file that the policies schedule.
#[derive(Clone, Copy, Debug)]
pub enum Activity<'s> {
    /// Described by its quality of service.
    Stream(&'s Stream),
    /// Described by its numbers.
    Task(&'s Task),
}

impl Spec {
    /// Drops the streams and tasks that `names` holds. O(streams and tasks * names).
    pub fn leave_out(&mut self, names: &[String]) {
        self.streams.retain(|stream| !names.contains(&stream.name));
        self.tasks.retain(|task| !names.contains(&task.name));
    }

    /// Streams and tasks in the order in which admission takes them: first what is not optional,
    /// so that an optional one costs no other its place; among these the order of the file. Ties
    /// between activities go to the first. O(n log n), allocates the list.
    pub fn activities(&self) -> Vec<Activity<'_>> {
        let streams = self.streams.iter().map(Activity::Stream);
        let mut all: Vec<_> = streams.chain(self.tasks.iter().map(Activity::Task)).collect();
        all.sort_by_key(|activity| (activity.is_optional(), activity.place().position()));
        all
    }
}

impl<'s> Activity<'s> {
    /// Its name, unique among streams and tasks.
    pub fn name(self) -> &'s str {
        match self {
            Activity::Stream(stream) => &stream.name,
            Activity::Task(task) => &task.name,
        }
    }

    /// The process it runs in; absent: the one all such share.
    pub fn domain(self) -> Option<&'s str> {
        match self {
            Activity::Stream(stream) => stream.domain.as_deref(),
            Activity::Task(task) => task.domain.as_deref(),
        }
    }

    /// Whether a run goes on without it if admission refuses it.
    pub fn is_optional(self) -> bool {
        match self {
            Activity::Stream(stream) => stream.optional,
            Activity::Task(task) => task.optional,
        }
    }

    /// Where it stands.
    pub fn place(self) -> &'s Place {
        match self {
            Activity::Stream(stream) => &stream.place,
            Activity::Task(task) => &task.place,
        }
    }
}
