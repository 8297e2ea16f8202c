//! One activity as the simulated CPU sees it: its work, its place in it, and
//! what was noted of it.

use crate::arrivals::Source;
use crate::chance::{Chance, word};
use crate::execution::{Costs, Execution, Position};
use crate::fault::{Fault, Window};
use crate::outcome::{ActivityOutcome, Responses, together};
use crate::posting::Posts;
use crate::spec::SimSpec;
use upcall_core::activity::{ActivityParams, Claim, Terms};
use upcall_core::scheduler::Counters;
use upcall_core::time::{Instant, Span};

/// Purposes of chance; an activity's own are twice its place and one more, from here on.
const PURPOSE_ACTIVITY: u64 = 1 << 32;
/// And of its events its place, from here on.
const PURPOSE_EVENTS: u64 = 1 << 40;

#[derive(Debug)]
pub(crate) struct Actor {
    /// Its place in the spec.
    pub(crate) activity: u32,
    pub(crate) domain: u32,
    pub(crate) params: ActivityParams,
    terms: Terms,
    execution: Execution,
    source: Source,
    pub(crate) posts: Option<Posts>,
    stream: u64,
    /// When it never yields.
    hogs: Vec<Window>,

    /// Whether its jobs are released.
    pub(crate) delivering: bool,
    /// By the clock.
    pub(crate) next_release: Instant,
    /// Jobs released since it was created.
    pub(crate) released: u64,
    /// Whether its user wants it to be there.
    pub(crate) wanted: bool,
    /// Whether its domain is there.
    pub(crate) alive: bool,

    /// Jobs begun, ever: the costs of the next are those of its number.
    begun: u64,
    /// PDUs the current job found.
    pub(crate) total: u32,
    /// How far the current job got.
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
            Fault::NeverYields { activity: who, window } if who == activity => Some(window),
            _ => None,
        });
        Actor {
            activity,
            domain: own.domain,
            params: own.params,
            terms: own.terms,
            execution: own.execution.clone(),
            source: Source::new(own.arrivals.clone(), Chance::new(spec.seed, purpose))
                .stale_after(own.stale_after),
            posts: own.posting.as_ref().map(|posting| {
                Posts::new(posting, Chance::new(spec.seed, PURPOSE_EVENTS + u64::from(activity)))
            }),
            stream: word(word(spec.seed, 0), purpose + 1),
            hogs: hogs.collect(),
            delivering: false,
            next_release: Instant::FAR,
            released: 0,
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

    /// It has another claim from now on, in its next life too.
    pub(crate) fn reweigh(&mut self, claim: Claim) {
        self.terms = self.terms.claiming(claim).unwrap_or(self.terms);
    }

    /// The costs of the job that began last.
    pub(crate) fn costs(&self) -> Costs<'_> {
        let first = self.begun.wrapping_sub(1).wrapping_mul(u64::from(self.params.batch));
        Costs { execution: &self.execution, stream: self.stream, first }
    }

    /// A job begins with what waits, at most `pdus_max`; how much has become too old.
    pub(crate) fn begin_job(&mut self, now: Instant, pdus_max: u32) -> u32 {
        self.begun += 1;
        let stale = self.source.drop_stale(now);
        self.total = self.source.take(now, pdus_max);
        self.position = Position::default();
        stale
    }

    /// Until when it spins if a quantum begins at `from`; `None` if it does not.
    pub(crate) fn spins_until(&self, from: Instant) -> Option<Instant> {
        if self.position.pdu >= self.total {
            return None;
        }
        self.hogs.iter().filter(|window| window.contains(from)).map(|window| window.until).max()
    }

    /// Delivery begins at `now`: what came before is lost.
    pub(crate) fn join(&mut self, now: Instant) {
        self.source.discard(now);
        self.delivering = true;
    }

    /// Goes on to the next release; what it was, and the job's number.
    pub(crate) fn release(&mut self) -> (Instant, u64) {
        let release = (self.next_release, self.released);
        self.next_release += self.params.period;
        self.released += 1;
        self.released_ever += 1;
        release
    }

    pub(crate) fn note_lag(&mut self, lag_ns: i64) {
        let (least, most) = self.lag_ns.unwrap_or((lag_ns, lag_ns));
        self.lag_ns = Some((least.min(lag_ns), most.max(lag_ns)));
    }

    /// Its domain died; these were its counters.
    pub(crate) fn note_life(&mut self, counters: &Counters) {
        self.past = Some(self.past.as_ref().map_or(*counters, |past| together(past, counters)));
    }

    /// All that was noted. `counters` are those of its present life, if it lives.
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
            // A release at the very end is none of this run.
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
