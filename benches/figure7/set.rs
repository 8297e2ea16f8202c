//! The twelve handlers, and the answer of admission to them.

use upcall::activity::{ActivityParams, Terms};
use upcall::admission::{Platform, Reservations, Share};
use upcall::discipline::RMDP;
use upcall::time::Span;

/// PDUs of a job. One PDU is a quantum, so a handler asks after each tenth of its job whether it
/// may go on ("no pre-emption delay").
pub const BATCH: u32 = 10;
/// The names of the two processes. The handlers' names begin with them.
pub const NAMES: [&str; 2] = ["a", "b"];
/// In milliseconds.
pub const PERIODS_MS: [u64; 6] = [40, 50, 60, 70, 80, 90];

/// One handler.
pub struct Member {
    pub name: String,
    pub period_ms: u64,
    pub params: ActivityParams,
    /// The longest response that the analysis finds. `None`: there is no bound.
    pub response_max: Option<Span>,
}

/// The set at one utilization.
pub struct Set {
    pub utilization_percent: f64,
    pub cpu: u32,
    pub members: Vec<Member>,
    /// The reason for the first refusal. `None`: all handlers are admitted.
    pub refusal: Option<String>,
}

impl Set {
    /// The set that uses `utilization_percent` of `cpu`, with the same part for each handler.
    pub fn new(utilization_percent: f64, cpu: u32, switch_cost: Span) -> Self {
        let mut members: Vec<Member> = members(utilization_percent).collect();
        let platform = Platform {
            cpus: vec![cpu],
            cpu_limit: Share::CPU_LIMIT_DEFAULT,
            switch_cost,
            wakeup_latency: Span::ZERO,
            defer_preemption: Span::ZERO,
        };
        let refusal = screen(&members, &platform);
        let mut reservations = Reservations::new(platform, &RMDP);
        let ids: Vec<_> = members
            .iter()
            .map(|member| {
                reservations.reserve_unscreened(&member.name, member.params, &Terms::default()).id
            })
            .collect();
        for (member, id) in members.iter_mut().zip(ids) {
            member.response_max = reservations.response_max(id);
        }
        Set { utilization_percent, cpu, members, refusal }
    }

    pub fn admitted(&self) -> bool {
        self.refusal.is_none()
    }

    /// The largest analytic response in deadlines, and the name of its handler.
    pub fn worst(&self) -> Option<(f64, &str)> {
        let in_deadlines = |member: &'_ Member| -> Option<f64> {
            let response = member.response_max?;
            Some(response.as_nanos() as f64 / member.params.deadline.as_nanos() as f64)
        };
        let all: Option<Vec<(f64, &str)>> = self
            .members
            .iter()
            .map(|member| Some((in_deadlines(member)?, member.name.as_str())))
            .collect();
        all?.into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b))
    }

    /// The least slack that the analysis promises for a period.
    pub fn slack_promised_ns(&self, period_ms: u64) -> Option<i64> {
        let of_period = self.members.iter().filter(|member| member.period_ms == period_ms);
        let slacks: Option<Vec<i64>> = of_period
            .map(|member| {
                let signed = |span: Span| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
                Some(signed(member.params.deadline) - signed(member.response_max?))
            })
            .collect();
        slacks?.into_iter().min()
    }
}

/// The handlers, those of the first process first, without what the analysis finds.
pub fn members(utilization_percent: f64) -> impl Iterator<Item = Member> {
    let share = utilization_percent / 100.0 / (2 * PERIODS_MS.len()) as f64;
    let named = NAMES.iter().flat_map(|set| PERIODS_MS.map(|period_ms| (set, period_ms)));
    named.map(move |(set, period_ms)| {
        let period = Span::from_millis(period_ms);
        let pdu_ns = period.as_nanos() as f64 * share / f64::from(BATCH);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of 90 ms"
        )]
        let pdu_cost = Span::from_nanos(pdu_ns as u64);
        let params = ActivityParams::new(period, pdu_cost).batch(BATCH).quantum(1);
        Member { name: format!("{set}{period_ms}"), period_ms, params, response_max: None }
    })
}

/// The reason with which admission refuses the first handler that it refuses.
fn screen(members: &[Member], platform: &Platform) -> Option<String> {
    let mut reservations = Reservations::new(platform.clone(), &RMDP);
    members
        .iter()
        .find_map(|member| {
            reservations.reserve(&member.name, member.params, &Terms::default()).err()
        })
        .map(|refusal| refusal.to_string())
}
