//! Proportional share through the scheduler in virtual time. The promises of admission to real-time
//! activities are kept, whatever adaptive activities do, and no lag exceeds one quantum.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test draws what it needs")]
mod chance;

use chance::Chance;
use upcall_core::activity::{ActivityId, ActivityParams, Claim, Terms};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::Discipline;
use upcall_core::discipline::{self, PS};
use upcall_core::scheduler::{Command, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

type Set = Vec<(ActivityParams, Terms)>;

struct Cpu {
    scheduler: Scheduler,
    set: Set,
    now: Instant,
    platform: Platform,
    /// Whether jobs are as long as declared. If not, they are shorter and their PDUs cheaper, at
    /// random.
    thrifty: bool,
    chance: Chance,
    batch_left: Vec<u32>,
    last: Option<ActivityId>,
    lag_max_ns: i64,
}

impl Cpu {
    fn new(discipline: &Discipline, set: &Set, platform: &Platform, seed: u64) -> Self {
        let capacity = u32::try_from(set.len()).unwrap();
        let mut cpu = Cpu {
            scheduler: Scheduler::new(capacity, discipline),
            set: set.clone(),
            now: Instant::ZERO,
            platform: platform.clone(),
            thrifty: false,
            chance: Chance(seed),
            batch_left: vec![0; set.len()],
            last: None,
            lag_max_ns: 0,
        };
        for number in 0..capacity {
            cpu.create(ActivityId(number));
        }
        cpu
    }

    fn create(&mut self, id: ActivityId) {
        let (params, terms) = self.set[id.0 as usize];
        self.handle(Input::Create { id, params, terms });
        let at = self.now;
        self.handle(Input::Run { id, at });
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input).unwrap();
        while self.scheduler.poll_notice().is_some() {}
        for number in 0..u32::try_from(self.set.len()).unwrap() {
            let lag = self.scheduler.lag_ns(ActivityId(number), self.now).unwrap_or(0);
            self.lag_max_ns = self.lag_max_ns.max(lag.abs());
        }
    }

    fn run_until(&mut self, until: Instant, mut meanwhile: impl FnMut(&mut Cpu)) {
        while self.now < until {
            match self.scheduler.poll_command(self.now) {
                Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
                    self.upcall(id, pdus_max, resumed, check_at);
                }
                Some(_) => {}
                None => {
                    let next = self.scheduler.next_deadline().unwrap_or(until);
                    let late_ns = self.platform.wakeup_latency.as_nanos();
                    let late_ns = if late_ns > 0 { self.chance.below(late_ns + 1) } else { 0 };
                    self.now = self.now.max(next) + Span::from_nanos(late_ns);
                    self.handle(Input::Tick);
                }
            }
            meanwhile(self);
        }
    }

    /// The handler's part, quantum by quantum (rtu-1995 Figure 5).
    fn upcall(&mut self, id: ActivityId, pdus_max: u32, resumed: bool, mut check_at: Instant) {
        if self.last.replace(id) != Some(id) {
            self.now += self.platform.switch_cost;
        }
        let index = id.0 as usize;
        if !resumed {
            self.batch_left[index] = match self.thrifty && self.chance.one_in(2) {
                true => u32::try_from(self.chance.below(u64::from(pdus_max) + 1)).unwrap(),
                false => pdus_max,
            };
        }
        let mut pdus = 0;
        loop {
            let quantum = self.set[index].0.quantum.min(self.batch_left[index]);
            let cost_ns = (self.set[index].0.pdu_cost * quantum).as_nanos();
            let cost_ns = match self.thrifty && self.chance.one_in(2) {
                true => self.chance.below(cost_ns + 1),
                false => cost_ns,
            };
            self.now += Span::from_nanos(cost_ns);
            self.batch_left[index] -= quantum;
            pdus += quantum;
            if self.batch_left[index] == 0 {
                return self.handle(Input::Returned { pdus, outcome: Outcome::Done });
            }
            if self.now < check_at {
                continue;
            }
            // This does not use `Cpu::handle`, because it needs the reply.
            self.scheduler.handle(self.now, Input::Boundary).unwrap();
            match self.scheduler.poll_notice() {
                Some(Command::Proceed { check_at: next }) => check_at = next,
                Some(Command::Yield) => {
                    return self.handle(Input::Returned { pdus, outcome: Outcome::Yielded });
                }
                other => panic!("a boundary was answered by {other:?}"),
            }
        }
    }
}

fn platform(switch_cost: Span, wakeup_latency: Span) -> Platform {
    let cpu_limit = Share::from_ppm(990_000).unwrap();
    Platform { cpus: vec![0], cpu_limit, switch_cost, wakeup_latency, defer_preemption: Span::ZERO }
}

/// Activities that admission accepted, and the bound on the response of each. About half of them
/// are real-time, with shares somewhat above their demand.
fn admitted(
    discipline: &'static Discipline,
    platform: &Platform,
    longest_us: u64,
    chance: &mut Chance,
) -> (Set, Vec<Option<Span>>) {
    let mut reservations = Reservations::new(platform.clone(), discipline);
    let (mut set, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let period = Span::from_micros(2_000 + chance.below(60) * 1_000);
        let pdu_cost = Span::from_micros(1 + chance.below(longest_us));
        let batch = 1 + u32::try_from(chance.below(12)).unwrap();
        let quantum = 1 + u32::try_from(chance.below(u64::from(batch))).unwrap();
        let mut params = ActivityParams::new(period, pdu_cost).batch(batch).quantum(quantum);
        params.offset = Span::from_micros(chance.below(20_000));
        if params.quantum_cost() > Span::from_micros(longest_us) || params.validated().is_err() {
            continue;
        }
        // In millionths, 1 to 2.5 times the demand.
        let asked = params.compute().as_nanos() * 10_000 * (100 + chance.below(150));
        let asked = u32::try_from(asked / period.as_nanos()).unwrap();
        let mut terms = Terms::default();
        if chance.one_in(2) {
            terms.share = Share::from_ppm(asked + 1);
        } else if set.len() < 12 {
            terms.weight = Some(1 + u32::try_from(chance.below(9)).unwrap());
        } else {
            continue;
        }
        if let Ok(reservation) = reservations.reserve("t", params, &terms) {
            set.push((params, terms));
            ids.push(reservation.id);
        }
    }
    let bounds = ids.into_iter().map(|id| reservations.response_max(id)).collect();
    (set, bounds)
}

/// A quantum of 5 ms, for PDUs of up to 3 ms.
static COARSE: Discipline = discipline::ps_with_quantum(Span::from_millis(5));

#[test]
fn promises_to_real_time_activities_are_kept() {
    let (mut promised, mut nearest) = (0, 0.0f64);
    for seed in 0..150 {
        let mut chance = Chance(seed);
        let (switch_us, wakeup_us) = chance.one_of(&[(0, 0), (0, 300), (5, 0), (40, 100)]);
        let platform = platform(Span::from_micros(switch_us), Span::from_micros(wakeup_us));
        let (discipline, longest_us) = match chance.below(3) {
            0 => (&COARSE, 3_000),
            // Stretches of more than the quantum.
            1 => (&PS, 3_000),
            _ => (&PS, 1_000),
        };
        let (set, bounds) = admitted(discipline, &platform, longest_us, &mut chance);
        let mut cpu = Cpu::new(discipline, &set, &platform, seed);
        cpu.thrifty = chance.one_in(2);
        cpu.run_until(Instant::from_nanos(3_000_000_000), |_| {});
        for (number, bound) in (0..).zip(&bounds) {
            let counters = cpu.scheduler.counters_at(cpu.now, ActivityId(number)).unwrap();
            let (params, terms) = set[number as usize];
            assert_eq!(bound.is_some(), terms.share.is_some());
            let Some(bound) = *bound else { continue };
            assert!(bound <= params.deadline);
            assert_eq!(counters.misses, 0, "seed {seed}: {params:?} {terms:?}");
            assert!(counters.response_max <= bound, "seed {seed}: {counters:?} above {bound}");
            promised += 1;
            nearest =
                nearest.max(counters.response_max.as_nanos() as f64 / bound.as_nanos() as f64);
        }
    }
    assert!(promised > 300, "{promised}");
    // The bound is not far off: some activity comes near it.
    assert!(nearest > 0.8, "{nearest}");
}

#[test]
fn no_lag_leaves_a_quantum_while_activities_are_created_and_closed() {
    let mut events = 0;
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let platform = platform(Span::ZERO, Span::ZERO);
        let (set, _) = admitted(&PS, &platform, 1_000, &mut chance);
        let mut cpu = Cpu::new(&PS, &set, &platform, seed);
        cpu.thrifty = true;
        let count = set.len() as u64;
        cpu.run_until(Instant::from_nanos(2_000_000_000), |cpu| {
            if !chance.one_in(4) {
                return;
            }
            events += 1;
            let id = ActivityId(u32::try_from(chance.below(count)).unwrap());
            let at = cpu.now;
            match (cpu.scheduler.counters(id), cpu.scheduler.is_active(id)) {
                (None, _) => cpu.create(id),
                (_, false) => cpu.handle(Input::Run { id, at }),
                (_, true) if chance.one_in(2) => cpu.handle(Input::Close { id }),
                (_, true) => cpu.handle(Input::Suspend { id }),
            }
        });
        assert!(cpu.lag_max_ns <= 1_000_002, "seed {seed}: {}", cpu.lag_max_ns);
    }
    assert!(events > 10_000, "{events}");
}

/// Half of the activities have a job for each message, which may come at any return or wake-up.
#[test]
fn promises_and_lags_hold_where_messages_release_the_jobs() {
    let (mut promised, mut released) = (0, 0);
    for seed in 0..60 {
        let mut chance = Chance(seed);
        let wakeup_us = chance.one_of(&[0, 300]);
        let platform = platform(Span::ZERO, Span::from_micros(wakeup_us));
        let (mut set, bounds) = admitted(&PS, &platform, 1_000, &mut chance);
        for (_, terms) in &mut set {
            terms.on_demand = chance.one_in(2);
        }
        let mut cpu = Cpu::new(&PS, &set, &platform, seed);
        cpu.thrifty = chance.one_in(2);
        cpu.run_until(Instant::from_nanos(2_000_000_000), |cpu| {
            for (number, (_, terms)) in (0..).zip(&set) {
                if terms.on_demand && chance.one_in(4) {
                    let (id, at) = (ActivityId(number), cpu.now);
                    cpu.handle(Input::Message { id, critical: at, from: at });
                }
            }
        });
        assert!(cpu.lag_max_ns <= 1_000_002, "seed {seed}: {}", cpu.lag_max_ns);
        for (number, bound) in (0..).zip(&bounds) {
            let counters = cpu.scheduler.counters_at(cpu.now, ActivityId(number)).unwrap();
            let (params, terms) = set[number as usize];
            released += if terms.on_demand { counters.completed } else { 0 };
            let Some(bound) = *bound else { continue };
            assert_eq!(counters.misses, 0, "seed {seed}: {params:?} {terms:?}");
            assert!(counters.response_max <= bound, "seed {seed}: {counters:?} above {bound}");
            // The promise counts on the declared rate.
            let periods = cpu.now.since(Instant::ZERO).as_nanos() / params.period.as_nanos();
            assert!(counters.jobs <= periods + 1, "seed {seed}: {counters:?}");
            promised += 1;
        }
    }
    assert!(promised > 100 && released > 10_000, "{promised} {released}");
}

/// A handler that returns within its request goes on before all others, and no earlier return makes
/// its request longer.
#[test]
fn a_return_within_a_request_hands_the_cpu_to_no_other() {
    let busy = ActivityParams::new(Span::from_millis(100), Span::from_micros(100)).batch(900);
    let set = vec![(busy, Terms::default()); 3];
    let mut scheduler = Scheduler::new(3, &PS);
    for (number, (params, terms)) in (0..).zip(&set) {
        let id = ActivityId(number);
        let create = Input::Create { id, params: *params, terms: *terms };
        scheduler.handle(Instant::ZERO, create).unwrap();
        scheduler.handle(Instant::ZERO, Input::Run { id, at: Instant::ZERO }).unwrap();
    }
    let (mut now, mut served) = (Instant::ZERO, Vec::new());
    while served.len() < 60 {
        let Some(Command::Upcall { id, .. }) = scheduler.poll_command(now) else {
            panic!("all are ready");
        };
        // Each upcall ends after one PDU, as if a thread had notified the executor.
        now += Span::from_micros(100);
        let returned = Input::Returned { pdus: 1, outcome: Outcome::Yielded };
        scheduler.handle(now, returned).unwrap();
        served.push(id.0);
    }
    let turns: Vec<&[u32]> = served.chunk_by(|a, b| a == b).collect();
    assert!(turns.len() == 6 && turns.iter().all(|turn| turn.len() == 10), "{served:?}");
}

/// One activity always has a further job, and the other one blocks for 150 us after each quantum.
/// Both weigh the same, so the one that blocks gets no more than the half. Before, the end of a job
/// forgave its debt, and it got 77 %.
#[test]
fn blocking_for_a_moment_gains_nothing_beside_an_activity_whose_next_job_waits() {
    let pdu = Span::from_micros(100);
    for on_demand in [false, true] {
        let mut scheduler = Scheduler::new(2, &PS);
        let (busy, blocks) = (ActivityId(0), ActivityId(1));
        // Periodic: its jobs take longer than their period.
        let short = ActivityParams::new(pdu / 2, pdu / 2);
        let long = ActivityParams::new(Span::from_millis(100), pdu).batch(10);
        let of = |on_demand| Terms { on_demand, ..Terms::default() };
        for (id, params, terms) in [(busy, short, of(on_demand)), (blocks, long, of(true))] {
            scheduler.handle(Instant::ZERO, Input::Create { id, params, terms }).unwrap();
            scheduler.handle(Instant::ZERO, Input::Run { id, at: Instant::ZERO }).unwrap();
        }
        let (mut now, mut message_at, mut ran) = (Instant::ZERO, Instant::FAR, [Span::ZERO; 2]);
        let reply = |scheduler: &mut Scheduler, now, input| {
            scheduler.handle(now, input).unwrap();
            std::iter::from_fn(|| scheduler.poll_notice()).last()
        };
        while now < Instant::from_nanos(1_000_000_000) {
            let Some(command) = scheduler.poll_command(now) else { panic!("one is ready") };
            let Command::Upcall { id, pdus_max, .. } = command else { continue };
            for pdus in 1..=pdus_max {
                now += pdu;
                ran[id.0 as usize] += pdu;
                if message_at <= now {
                    reply(
                        &mut scheduler,
                        now,
                        Input::Message { id: blocks, critical: now, from: now },
                    );
                    message_at = Instant::FAR;
                }
                let is_done = pdus == pdus_max;
                let answer = reply(&mut scheduler, now, Input::Boundary);
                if !is_done && answer != Some(Command::Yield) {
                    continue;
                }
                let outcome = if is_done { Outcome::Done } else { Outcome::Yielded };
                reply(&mut scheduler, now, Input::Returned { pdus, outcome });
                if is_done && id == blocks {
                    message_at = now + pdu * 3 / 2;
                } else if is_done {
                    reply(&mut scheduler, now, Input::Message { id, critical: now, from: now });
                }
                break;
            }
        }
        let [busy_ms, blocks_ms] = ran.map(|span| span.as_nanos() / 1_000_000);
        assert!(blocks_ms <= 505 && busy_ms <= 600, "{on_demand}: {busy_ms} and {blocks_ms} ms");
    }
}

/// An activity has half of the CPU for a second, then a fifth, then half again. A suspended
/// activity can be reweighed too, and a claim of the other kind has no effect.
#[test]
fn a_changed_share_holds_at_once() {
    let busy = ActivityParams::new(Span::from_millis(100), Span::from_micros(100)).batch(1_000);
    let share = |percent: u32| Share::from_ppm(percent * 10_000).unwrap();
    let terms = Terms { share: Some(share(50)), ..Terms::default() };
    let set = vec![(busy, terms), (busy, Terms::default()), (busy, Terms::default())];
    let mut cpu = Cpu::new(&PS, &set, &platform(Span::ZERO, Span::ZERO), 0);
    let ids = [0, 1, 2].map(ActivityId);
    let mut before = [0; 3];
    let mut until = Instant::ZERO;
    let mut pdus_in_a_second = |cpu: &mut Cpu| {
        until += Span::from_secs(1);
        cpu.run_until(until, |_| {});
        let all = ids.map(|id| cpu.scheduler.counters(id).unwrap().pdus);
        let had = [0, 1, 2].map(|place| all[place] - before[place]);
        before = all;
        had
    };
    let about = |had: [u64; 3], percent: [u64; 3]| {
        let off = had.iter().zip(percent).all(|(had, percent)| had.abs_diff(percent * 100) <= 20);
        assert!(off, "{had:?} PDUs of 10000, expected {percent:?} %");
    };
    about(pdus_in_a_second(&mut cpu), [50, 25, 25]);
    cpu.handle(Input::Reweigh { id: ids[0], claim: Claim::Share(share(20)) });
    cpu.handle(Input::Reweigh { id: ids[0], claim: Claim::Weight(90) });
    about(pdus_in_a_second(&mut cpu), [20, 40, 40]);
    cpu.handle(Input::Reweigh { id: ids[2], claim: Claim::Weight(3) });
    cpu.handle(Input::Reweigh { id: ids[2], claim: Claim::Share(share(70)) });
    about(pdus_in_a_second(&mut cpu), [20, 20, 60]);
    cpu.handle(Input::Suspend { id: ids[0] });
    cpu.handle(Input::Reweigh { id: ids[0], claim: Claim::Share(share(60)) });
    about(pdus_in_a_second(&mut cpu), [0, 25, 75]);
    let at = cpu.now;
    cpu.handle(Input::Run { id: ids[0], at });
    about(pdus_in_a_second(&mut cpu), [60, 10, 30]);
    let unknown = Input::Reweigh { id: ActivityId(3), claim: Claim::Weight(1) };
    assert!(cpu.scheduler.handle(cpu.now, unknown).is_err());
}
