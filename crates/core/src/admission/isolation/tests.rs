//! What admission counts for other users, by hand and against users who take all that they may.

use super::*;
use crate::activity::{ActivityParams, Terms};
use crate::admission::{Reason, Refusal, Reservations};
use crate::discipline::{DWS, Discipline, RM, RMDP};

const ISOLATION: Isolation =
    Isolation { grace: Span::from_micros(500), share: Share::from_ppm(50_000).unwrap() };

fn platform() -> Platform {
    Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    }
}

fn isolated(discipline: &'static Discipline) -> Reservations {
    let mut reservations = Reservations::new(platform(), discipline);
    reservations.isolate_users(ISOLATION);
    reservations
}

/// The same in quanta of a step.
fn in_steps(cost_us: u64, period_us: u64) -> ActivityParams {
    let (period, step) = (Span::from_micros(period_us), Span::from_micros(STEP_US));
    ActivityParams::new(period, step).batch(u32::try_from(cost_us / STEP_US).unwrap()).quantum(1)
}

/// One quantum of `cost_us` each `period_us`.
fn job(cost_us: u64, period_us: u64) -> ActivityParams {
    ActivityParams::new(Span::from_micros(period_us), Span::from_micros(cost_us))
}

/// Reserves for each user in turn. Returns the worst responses in us, or the first refusal.
fn responses(
    discipline: &'static Discipline,
    asked: &[(u32, ActivityParams)],
) -> Result<Vec<u64>, Refusal> {
    let mut reservations = isolated(discipline);
    let mut ids = Vec::new();
    for (user, params) in asked {
        ids.push(reservations.reserve_for(*user, "x", *params, &Terms::default())?.id);
    }
    let response_us = |id| reservations.response_max(id).unwrap().as_nanos() / 1_000;
    Ok(ids.into_iter().map(response_us).collect())
}

fn is_by_users(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::MissesDeadline { by_users: true, .. })
}

/// Without other users the second one would end after 4 ms. Of the first one count: two jobs, a
/// quantum, 0.5 ms, and 5 % of the time until the last quantum of the second one begins.
#[test]
fn a_user_counts_two_jobs_of_others_with_better_ranks_and_their_grace() {
    let set = [(1, job(1_000, 9_000)), (2, job(3_000, 10_000))];
    let [first, second] = responses(&RMDP, &set).unwrap()[..] else { panic!("two responses") };
    // The first one is delayed by a quantum of the second one alone.
    assert_eq!(first, 4_000 - 1);
    // The last quantum begins after 1 ms, 2 ms, 1 ms, 0.5 ms and 5 % of that time.
    assert_eq!(second, 4_500 * 20 / 19 + 3_000);
    let too_long = [(1, job(2_000, 9_000)), (2, job(3_000, 10_000))];
    let refusal = responses(&RMDP, &too_long).unwrap_err();
    assert!(is_by_users(&refusal), "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains("activities of one user alone would fit"), "{text}");
}

#[test]
fn nobody_is_isolated_from_root_or_from_its_own_user() {
    for (first, second) in [(0, 2), (2, 2), (0, 0)] {
        let set = [(first, job(1_000, 9_000)), (second, job(3_000, 10_000))];
        assert_eq!(responses(&RMDP, &set), Ok(vec![4_000 - 1, 4_000]), "{first} {second}");
    }
    // But root is isolated from others.
    let set = [(2, job(1_000, 9_000)), (0, job(3_000, 10_000))];
    assert_eq!(responses(&RMDP, &set).unwrap()[1], 4_500 * 20 / 19 + 3_000);
}

/// A domain can claim to work for its best rank while it works for another one.
#[test]
fn all_activities_of_a_user_with_a_better_rank_count() {
    let worse = (1, job(1_000, 100_000));
    let set = [worse, (2, job(3_000, 10_000))];
    // A worse rank alone delays by its quantum.
    assert_eq!(responses(&RMDP, &set).unwrap()[1], 3_999);
    let set = [(1, job(100, 9_000)), worse, (2, job(3_000, 10_000))];
    // 0.1 ms before it; ahead: 0.2 ms and 2 ms, and the longest quantum, 0.5 ms and 5 %. And 1 ms
    // of the worse rank, which blocks as well.
    let begin_us = (100 + 2_200 + 1_000 + 500 + 1_000 + 999) * 20 / 19;
    assert_eq!(responses(&RMDP, &set).unwrap()[2].abs_diff(begin_us + 3_000), 1);
}

/// Each user alone may be ahead, and all of them together.
#[test]
fn each_other_user_counts() {
    let of = |user| (user, job(100, 9_000));
    let one = responses(&RMDP, &[of(1), of(1), (3, job(3_000, 20_000))]).unwrap();
    let two = responses(&RMDP, &[of(1), of(2), (3, job(3_000, 20_000))]).unwrap();
    // Six jobs; a quantum and 0.5 ms, once or twice.
    assert_eq!(one[2], (600 + 600) * 20 / 19 + 3_000);
    assert_eq!(two[2], (600 + 1_200) * 20 / 18 + 3_000);
}

/// Under DWS each message of another user may come first.
#[test]
fn a_user_counts_the_messages_of_others_as_due_first_under_dws() {
    let kept = [(1, job(1_000, 30_000)), (2, job(3_000, 10_000))];
    assert!(responses(&DWS, &kept).is_ok());
    // 3 ms and three messages of 2 ms, a quantum of 2 ms, 0.5 ms, and 5 %.
    let late = [(1, job(2_000, 30_000)), (2, job(3_000, 10_000))];
    let refusal = responses(&DWS, &late).unwrap_err();
    assert!(is_by_users(&refusal), "{refusal}");
    let of_one = [(2, job(2_000, 30_000)), (2, job(3_000, 10_000))];
    assert!(responses(&DWS, &of_one).is_ok());
}

/// Numbers below a bound, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

const STEP_US: u64 = 50;

/// Whether a user `victim` keeps all deadlines in 300 ms, while each other user runs at the best
/// rank of all as soon and as long as its limit permits: from the first moment on, with a job of
/// each activity saved before. All jobs of the victim are released at 0. They run by deadline if
/// `by_deadline`, else in the order of `set`, preempted anywhere.
fn keeps_deadlines(set: &[(u32, ActivityParams)], victim: u32, by_deadline: bool) -> bool {
    let us = |span: Span| span.as_nanos() / 1_000;
    let own: Vec<_> = set.iter().filter(|(user, _)| *user == victim).map(|(_, own)| own).collect();
    let mut others: Vec<_> = set.iter().map(|(user, _)| *user).filter(|&u| u != victim).collect();
    others.sort_unstable();
    others.dedup();
    let mut used_us = vec![0; others.len()];
    let (mut left_us, mut due_us) = (vec![0; own.len()], vec![0; own.len()]);
    for now_us in (0..300_000 / STEP_US).map(|step| step * STEP_US) {
        for (at, params) in own.iter().enumerate() {
            if left_us[at] > 0 && now_us >= due_us[at] {
                return false;
            }
            if now_us % us(params.period) == 0 {
                (left_us[at], due_us[at]) = (us(params.compute()), now_us + us(params.deadline));
            }
        }
        // What the user may have used by now.
        let limit_us = |user: u32| {
            let all = set.iter().filter(|(of, _)| *of == user).map(|(_, params)| params);
            let (mut sum_us, mut quantum_us) = (500 + now_us / 20, 0);
            for params in all {
                sum_us += 2 * us(params.compute());
                sum_us += us(params.compute()) * now_us / us(params.period);
                quantum_us = quantum_us.max(us(params.quantum_cost()));
            }
            sum_us + quantum_us
        };
        let is_allowed = |at: &usize| used_us[*at] + STEP_US <= limit_us(others[*at]);
        if let Some(at) = (0..others.len()).find(is_allowed) {
            used_us[at] += STEP_US;
            continue;
        }
        let waiting = (0..own.len()).filter(|&at| left_us[at] > 0);
        if let Some(at) = waiting.min_by_key(|&at| if by_deadline { due_us[at] } else { 0 }) {
            left_us[at] -= STEP_US.min(left_us[at]);
        }
    }
    true
}

/// The users 1 and 3 have the shortest period of all and any others, so they may go before the
/// user 2. Blocking, hand-offs and other phases are tested beside the tests of one user.
#[test]
fn no_user_of_an_admitted_set_misses_a_deadline_beside_those_that_take_all_they_may() {
    // The longest jobs, in steps: under DWS each message of another user may come first.
    for (discipline, steps, by_deadline) in [(&RM, 60, false), (&RMDP, 60, false), (&DWS, 25, true)]
    {
        let (mut admitted, mut refused, mut late) = (0, 0, 0);
        for seed in 0..200 {
            let mut random = Random(seed);
            let others = if seed % 3 == 0 { [1, 3] } else { [1, 1] };
            let mut set = Vec::new();
            for user in [others[0], others[1], 2, 2] {
                let period_us = STEP_US * (60 + random.below(600));
                let cost_us = STEP_US * (1 + random.below(steps));
                set.push((user, in_steps(cost_us, period_us)));
            }
            for (user, at) in [(others[0], 0), (others[1], 1)] {
                // The shortest of two periods leads.
                if at == 0 || user == 3 {
                    set[at] = (user, in_steps(STEP_US * (1 + random.below(4)), STEP_US * 50));
                }
            }
            set.sort_by_key(|(_, params)| params.period);
            match responses(discipline, &set) {
                Err(refusal) => {
                    refused += 1;
                    let would_miss = !keeps_deadlines(&set, 2, by_deadline);
                    late += u64::from(would_miss && is_by_users(&refusal));
                }
                Ok(_) => {
                    admitted += 1;
                    let kept = keeps_deadlines(&set, 2, by_deadline);
                    assert!(kept, "{} {seed}: {set:?}", discipline.name);
                }
            }
        }
        let name = discipline.name;
        println!("{name}: {admitted} admitted, {refused} refused, {late} of them late");
        assert!(admitted > 5 && refused > 20, "{name}: {admitted} {refused}");
        assert!(late > 5, "{name}: without the isolation {late} sets would miss");
    }
}
