//! The content of a spec file, as data.
//!
//! `document` fills these types; `super` reads files into them.

use super::background::Background;
use super::group::Group;
use super::source::{Place, Source};
use super::stream::Stream;
use super::task::Task;
use std::collections::BTreeSet;
use std::ops::Range;
use upcall::discipline::Discipline;
use upcall::time::Span;

/// Most streams and tasks together; also most background loads.
pub const ACTIVITIES_MAX: usize = 1024;

/// Largest CPU number.
pub const CPU_MAX: u32 = 1023;

/// The domain of streams and tasks without the key `domain`.
const DOMAIN_DEFAULT: &str = "main";

/// A spec file that was read and checked.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The scheduling policy.
    pub policy: &'static Discipline,
    /// CPUs the activities may use, in the order given, without duplicates, each at most
    /// [`CPU_MAX`]. `None`: the caller chooses.
    pub cpus: Option<Vec<u32>>,
    /// The position of each of `cpus` in the text.
    pub cpu_spans: Vec<Range<usize>>,
    /// Most CPUs the activities may use, counted from the first: `1 ..= CPU_MAX + 1`. `None`: all.
    pub cpu_count: Option<u32>,
    /// Largest part of a CPU that admission reserves, in millionths: `1 ..= 1_000_000`.
    pub cpu_limit_ppm: u32,
    /// The cost that a hand-off is charged with.
    pub switch_cost: SwitchCost,
    /// The latest wake-up of the scheduler that admission assumes.
    pub wakeup_latency: Span,
    /// The longest time PS serves an activity at once, above zero.
    pub time_quantum: Span,
    /// In the order of the file.
    pub streams: Vec<Stream>,
    /// In the order of the file.
    pub tasks: Vec<Task>,
    /// Each after its parent.
    pub groups: Vec<Group>,
    /// In the order of the file.
    pub backgrounds: Vec<Background>,
    /// The text, for errors found later.
    pub source: Source,
}

/// The cost of a hand-off between activities, as admission charges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchCost {
    /// Measured at the start.
    Auto,
    /// A given cost.
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
    /// Removes the streams and tasks in `names`. O(streams and tasks * names).
    pub fn leave_out(&mut self, names: &[String]) {
        self.streams.retain(|stream| !names.contains(&stream.name));
        self.tasks.retain(|task| !names.contains(&task.name));
    }

    /// The interfaces whose packets are processed in user space, each once. O(n log n), allocates.
    pub fn interfaces(&self) -> Vec<&str> {
        let addresses = self.streams.iter().map(|stream| stream.direction.parts().1);
        let all: BTreeSet<&str> =
            addresses.filter_map(|address| address.interface.as_deref()).collect();
        all.into_iter().collect()
    }

    /// Streams and tasks in the order of admission. Required ones come first, so that an optional
    /// one takes no place from them. Otherwise the order is that of the file, and ties between
    /// activities go to the first. O(n log n), allocates the list.
    pub fn activities(&self) -> Vec<Activity<'_>> {
        let streams = self.streams.iter().map(Activity::Stream);
        let mut all: Vec<_> = streams.chain(self.tasks.iter().map(Activity::Task)).collect();
        all.sort_by_key(|activity| (activity.is_optional(), activity.place().position()));
        all
    }
}

impl<'s> Activity<'s> {
    /// The name, unique among streams and tasks.
    pub fn name(self) -> &'s str {
        match self {
            Activity::Stream(stream) => &stream.name,
            Activity::Task(task) => &task.name,
        }
    }

    /// The process it runs in. `None`: the process that all activities without a domain share.
    pub fn domain(self) -> Option<&'s str> {
        match self {
            Activity::Stream(stream) => stream.domain.as_deref(),
            Activity::Task(task) => task.domain.as_deref(),
        }
    }

    /// As [`Activity::domain`], with the name of that common process.
    pub fn domain_name(self) -> &'s str {
        self.domain().unwrap_or(DOMAIN_DEFAULT)
    }

    /// The name of the activity whose CPU it runs on, if the file says so. That one comes before it
    /// in [`Spec::activities`].
    pub fn same_cpu_as(self) -> Option<&'s str> {
        match self {
            Activity::Stream(stream) => stream.same_cpu_as.as_deref(),
            Activity::Task(task) => task.same_cpu_as.as_deref(),
        }
    }

    /// Whether a run continues without the activity if admission refuses it.
    pub fn is_optional(self) -> bool {
        match self {
            Activity::Stream(stream) => stream.optional,
            Activity::Task(task) => task.optional,
        }
    }

    /// Its position in the file.
    pub fn place(self) -> &'s Place {
        match self {
            Activity::Stream(stream) => &stream.place,
            Activity::Task(task) => &task.place,
        }
    }
}
