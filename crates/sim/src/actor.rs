//! One activity on a simulated CPU: its work, its position in the work, and its statistics.

use crate::arrivals::Source;
use crate::chance::{Chance, word};
use crate::execution::{Costs, Execution, Position};
use crate::fault::{Fault, Window};
use crate::outcome::{ActivityOutcome, Responses, sum_of};
use crate::posting::Posts;
use crate::spec::SimSpec;
use upcall_core::activity::{ActivityId, ActivityParams, Claim, Terms};
use upcall_core::scheduler::Counters;
use upcall_core::time::{Instant, Span};

/// Random streams start here: activity `n` has the purposes `2 * n` and `2 * n + 1` after this
/// number.
const PURPOSE_ACTIVITY: u64 = 1 << 32;
/// Random streams of events start here: activity `n` has purpose `n` after this number.
const PURPOSE_EVENTS: u64 = 1 << 40;

/// The jobs in which the handler blocks.
#[derive(Debug)]
struct Blocks {
    window: Window,
    every: u64,
    length: Span,
    /// Jobs begun in the window.
    begun: u64,
}

#[derive(Debug)]
pub(crate) struct Actor {
    /// Index in the spec.
    pub(crate) activity: u32,
    pub(crate) domain: u32,
    /// The scheduler that has the activity, by its place on the CPU, and its number there.
    pub(crate) home: usize,
    pub(crate) id: ActivityId,
    /// Its place in the order of admission.
    pub(crate) order: u32,
    pub(crate) params: ActivityParams,
    terms: Terms,
    execution: Execution,
    source: Source,
    pub(crate) posts: Option<Posts>,
    stream: u64,
    /// The windows in which the activity never yields.
    hogs: Vec<Window>,
    blocks: Vec<Blocks>,

    /// Whether jobs of the activity are released.
    pub(crate) delivering: bool,
    /// The next release, as a reading of the simulated clock.
    pub(crate) next_release: Instant,
    /// Jobs released since the activity was created.
    pub(crate) released: u64,
    /// On demand: when the PDU arrives that the activity waits for.
    pub(crate) awaited: Instant,
    /// Whether the user wants the activity to run.
    pub(crate) wanted: bool,
    /// Whether its domain is alive.
    pub(crate) alive: bool,

    /// Jobs begun in total. The number of a job selects the costs of its PDUs.
    begun: u64,
    /// PDUs that the current job found.
    pub(crate) total: u32,
    /// The position of the current job.
    pub(crate) position: Position,

    released_ever: u64,
    past: Option<Counters>,
    pub(crate) responses: Responses,
    pub(crate) busy: Span,
    pub(crate) lag_ns: Option<(i64, i64)>,
    pub(crate) events_lost: u64,
}

impl Actor {
    pub(crate) fn new(spec: &SimSpec, activity: u32) -> Self {
        let own = &spec.activities[activity as usize];
        let purpose = PURPOSE_ACTIVITY + 2 * u64::from(activity);
        let hogs = spec.faults.iter().filter_map(|fault| match *fault {
            Fault::NeverYields { activity: hog, window } if hog == activity => Some(window),
            _ => None,
        });
        let blocks = spec.faults.iter().filter_map(|fault| match *fault {
            Fault::HandlerBlocks { activity: blocked, window, every, length }
                if blocked == activity =>
            {
                Some(Blocks { window, every, length, begun: 0 })
            }
            _ => None,
        });
        Actor {
            activity,
            domain: own.domain,
            home: 0,
            id: ActivityId(0),
            order: 0,
            params: own.params,
            terms: own.terms,
            execution: own.execution.clone(),
            source: Source::new(own.arrivals.clone(), Chance::new(spec.seed, purpose))
                .stale_after(own.stale_after)
                .logical(own.logical_arrivals.clone()),
            posts: own.posting.as_ref().map(|posting| {
                Posts::new(posting, Chance::new(spec.seed, PURPOSE_EVENTS + u64::from(activity)))
            }),
            stream: word(word(spec.seed, 0), purpose + 1),
            hogs: hogs.collect(),
            blocks: blocks.collect(),
            delivering: false,
            next_release: Instant::FAR,
            released: 0,
            awaited: Instant::FAR,
            wanted: false,
            alive: true,
            begun: 0,
            total: 0,
            position: Position::default(),
            released_ever: 0,
            past: None,
            responses: Responses::default(),
            busy: Span::ZERO,
            lag_ns: None,
            events_lost: 0,
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Gives the activity another claim from now on, which stays after its domain dies.
    pub(crate) fn reweigh(&mut self, claim: Claim) {
        self.terms = self.terms.claiming(claim).unwrap_or(self.terms);
    }

    /// The costs of the job that began last.
    pub(crate) fn costs(&self) -> Costs<'_> {
        let first = self.begun.wrapping_sub(1).wrapping_mul(u64::from(self.params.batch));
        Costs { execution: &self.execution, stream: self.stream, first }
    }

    /// Begins a job with the waiting PDUs, at most `pdus_max`. Returns the number of stale PDUs
    /// that it dropped.
    pub(crate) fn begin_job(&mut self, now: Instant, pdus_max: u32) -> u32 {
        self.begun += 1;
        let stale = self.source.drop_stale(now);
        self.total = self.source.take(now, pdus_max);
        self.position = Position::default();
        stale
    }

    /// What waits already beyond the job that ended at `now`, if the activity works ahead: the
    /// number of whole messages, and the logical arrival of the first one if it is known.
    #[inline]
    pub(crate) fn early(&mut self, now: Instant) -> Option<(u32, Option<Instant>)> {
        if self.terms.workahead_max == 0 || self.terms.on_demand || !self.delivering {
            return None;
        }
        self.source.early(now, self.params.batch)
    }

    /// The time until which the activity spins if a quantum begins at `from`; `None` if it does not
    /// spin.
    pub(crate) fn spins_until(&self, from: Instant) -> Option<Instant> {
        if self.position.pdu >= self.total {
            return None;
        }
        self.hogs.iter().filter(|window| window.contains(from)).map(|window| window.until).max()
    }

    /// How long the handler blocks in the job that it begins at `now`; 0 if it does not.
    #[inline]
    pub(crate) fn blocks_for(&mut self, now: Instant) -> Span {
        let mut longest = Span::ZERO;
        for blocks in self.blocks.iter_mut().filter(|blocks| blocks.window.contains(now)) {
            if blocks.begun.is_multiple_of(blocks.every) {
                longest = longest.max(blocks.length);
            }
            blocks.begun += 1;
        }
        longest
    }

    /// Begins delivery at `now`. PDUs that came before are lost.
    pub(crate) fn join(&mut self, now: Instant) {
        self.source.discard(now);
        self.delivering = true;
    }

    /// Whether messages release it.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.terms.on_demand
    }

    /// On demand: whether a PDU waits at `now`. If not, the activity awaits the next one.
    pub(crate) fn has_message(&mut self, now: Instant) -> bool {
        let waits = self.source.waits(now);
        self.awaited = if waits { Instant::FAR } else { self.source.next_at() };
        waits
    }

    /// Advances to the next release. Returns the time and number of this one.
    pub(crate) fn release(&mut self) -> (Instant, u64) {
        let release = (self.next_release, self.released);
        self.next_release = match self.terms.on_demand {
            true => Instant::FAR,
            false => self.next_release + self.params.period,
        };
        self.released += 1;
        self.released_ever += 1;
        release
    }

    pub(crate) fn note_lag(&mut self, lag_ns: i64) {
        let (least, most) = self.lag_ns.unwrap_or((lag_ns, lag_ns));
        self.lag_ns = Some((least.min(lag_ns), most.max(lag_ns)));
    }

    /// Adds the counters of a life that ended with its domain.
    pub(crate) fn note_life(&mut self, counters: &Counters) {
        self.past = Some(self.past.as_ref().map_or(*counters, |past| sum_of(past, counters)));
    }

    /// The results. `counters` are those of the present life, if the activity is alive.
    pub(crate) fn outcome(
        mut self,
        end: Instant,
        counters: Option<Counters>,
        window_violations: Option<u64>,
    ) -> ActivityOutcome {
        if let Some(counters) = counters {
            self.note_life(&counters);
        }
        self.responses.sort();
        ActivityOutcome {
            // A release at the very end does not belong to this run.
            counters: Counters {
                jobs: self.released_ever,
                ..self.past.expect("it lived at least once")
            },
            arrived: self.source.arrived_by(end - Span::from_nanos(1)),
            responses: self.responses,
            busy: self.busy,
            lag_ns: self.lag_ns,
            events_lost: self.events_lost,
            window_violations,
        }
    }
}
