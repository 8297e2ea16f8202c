//! A replay gives the same answers, and notices every difference.

use super::*;
use crate::activity::{ActivityId, ActivityParams, Claim, Terms};
use crate::discipline::{DISCIPLINES, Discipline};
use crate::scheduler::{Command, Input, Outcome, Scheduler};
use crate::time::{Instant, Span};

const CAPACITY: u32 = 4;

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// Acts as a driver: three activities, PDUs that cost 10, 40 upcalls, then the end of one activity
/// and an invalid input.
fn driven(discipline: &Discipline) -> Vec<Record> {
    let mut core = Traced::new(CAPACITY, discipline);
    core.set_sink(Vec::new());
    let mut now = at(5);
    for (number, period_ns) in (0..).zip([300, 500, 700]) {
        let id = ActivityId(number);
        let params = ActivityParams::new(Span::from_nanos(period_ns), Span::from_nanos(10));
        let params = params.batch(6).quantum(2);
        handle(&mut core, now, Input::Create { id, params, terms: Terms::default() });
        handle(&mut core, now, Input::Run { id, at: now });
    }
    for _ in 0..40 {
        let Some(Command::Upcall { pdus_max, .. }) = core.poll_command(now) else {
            now = core.next_deadline().unwrap().max(now);
            handle(&mut core, now, Input::Tick);
            continue;
        };
        let (mut pdus, mut outcome) = (0, Outcome::Done);
        while pdus < pdus_max {
            if pdus > 0 {
                core.handle(now, Input::Boundary).unwrap();
                if core.poll_notice() == Some(Command::Yield) {
                    outcome = Outcome::Yielded;
                    break;
                }
            }
            pdus += 2.min(pdus_max - pdus);
            now += Span::from_nanos(20);
        }
        handle(&mut core, now, Input::Returned { pdus, outcome });
    }
    handle(&mut core, now, Input::Close { id: ActivityId(1) });
    assert!(core.handle(now, Input::Suspend { id: ActivityId(1) }).is_err());
    core.sink_mut().map(core::mem::take).unwrap()
}

fn handle(core: &mut Traced<Vec<Record>>, now: Instant, input: Input) {
    core.handle(now, input).unwrap();
    while core.poll_notice().is_some() {}
}

#[test]
fn the_same_inputs_give_the_same_commands_under_every_policy() {
    for discipline in DISCIPLINES {
        let records = driven(discipline);
        let done = replay(discipline, CAPACITY, records.iter().copied()).unwrap();
        assert_eq!(done.inputs + done.commands + done.silences, records.len() as u64);
        assert!(done.commands > 20, "{}: {done:?}", discipline.name);
    }
}

#[test]
fn the_scheduler_is_shown_after_every_record_up_to_the_first_gap() {
    let discipline = DISCIPLINES[0];
    let mut records = driven(discipline);
    records[60].crossing = Crossing::Lost { records: 1 };
    let (mut shown, mut running) = (Vec::new(), None);
    let seen = |scheduler: &Scheduler, record: &Record| {
        match record.crossing {
            Crossing::Command(Some(Command::Upcall { id, .. })) => running = Some(id),
            Crossing::Input { input: Input::Returned { .. }, .. } => running = None,
            _ => {}
        }
        assert_eq!(scheduler.running(), running);
        shown.push(*record);
    };
    replay_seen(discipline, CAPACITY, records.iter().copied(), seen).unwrap();
    assert_eq!(shown, records[..60]);
    assert!(shown.iter().any(|record| matches!(record.crossing, Crossing::Command(Some(_)))));
}

#[test]
fn a_changed_answer_is_found_at_its_index() {
    let discipline = DISCIPLINES[0];
    let good = driven(discipline);
    for index in 0..good.len() {
        let mut records = good.clone();
        let changed = match &mut records[index].crossing {
            Crossing::Command(answer) | Crossing::Notice(answer) => {
                *answer = match *answer {
                    Some(Command::Yield) => None,
                    _ => Some(Command::Yield),
                };
                index
            }
            Crossing::Input { refused, .. } => {
                *refused = !*refused;
                index
            }
            Crossing::Lost { .. } => continue,
        };
        let divergence = replay(discipline, CAPACITY, records.iter().copied()).unwrap_err();
        assert_eq!((divergence.index, divergence.recorded), (changed, records[changed]));
        assert!(divergence.to_string().contains("recorded"), "{divergence}");
    }
}

#[test]
fn a_missing_input_is_found() {
    let discipline = DISCIPLINES[0];
    let mut records = driven(discipline);
    let ran = |record: &Record| {
        matches!(record.crossing, Crossing::Input { input: Input::Run { .. }, .. })
    };
    let index = records.iter().position(ran).unwrap();
    records.remove(index);
    assert!(replay(discipline, CAPACITY, records).is_err());
}

#[test]
fn lost_records_end_the_replay_without_a_divergence() {
    let discipline = DISCIPLINES[0];
    let mut records = driven(discipline);
    let lost = Record { now: records[10].now, crossing: Crossing::Lost { records: 30 } };
    records.splice(10..40, [lost]);
    let done = replay(discipline, CAPACITY, records).unwrap();
    assert_eq!(done.lost, 30);
    assert_eq!(done.inputs + done.commands + done.silences, 10);
}

#[test]
fn calls_that_no_driver_makes_are_disorder_and_no_panic() {
    let discipline = DISCIPLINES[0];
    let good = driven(discipline);
    let disorder = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut records = good.clone();
        change(&mut records);
        let divergence = replay(discipline, CAPACITY, records).unwrap_err();
        assert!(matches!(divergence.found, Found::Disorder(_)), "{divergence}");
    };
    disorder(&|records| records[0].now = at(u64::MAX));
    disorder(&|records| {
        let Crossing::Input { input: Input::Create { params, .. }, .. } = &mut records[0].crossing
        else {
            panic!("{:?}", records[0]);
        };
        params.batch = 0;
    });
    disorder(&|records| {
        // The end of a job that was not noted.
        let ended = |record: &Record| {
            matches!(record.crossing, Crossing::Notice(Some(Command::JobDone(_))))
        };
        let index = records.iter().position(ended).unwrap();
        records.drain(index..index + 2);
        records[index] = Record { crossing: records[0].crossing, ..records[index] };
    });
}

#[test]
fn a_record_fits_two_cache_lines() {
    assert!(size_of::<Record>() <= 128, "{}", size_of::<Record>());
}

/// Lehmer's generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        self.0 % bound
    }
}

/// Drives a scheduler with inputs that no driver sends but that a replay accepts: the clock jumps
/// up to `INSTANT_MAX`, and weights are of any size.
fn drive_hostile(discipline: &Discipline, seed: u64) {
    let mut core = Traced::<Vec<Record>>::new(CAPACITY, discipline);
    let (mut chance, mut now_ns) = (Chance(seed * 2 + 1), 0);
    let answer = |core: &mut Traced<Vec<Record>>, now_ns: u64, input: Input| {
        let _ = core.handle(at(now_ns), input);
        while core.poll_notice().is_some() {}
    };
    for _ in 0..200 {
        let id = ActivityId(u32::try_from(chance.below(u64::from(CAPACITY))).unwrap());
        let weight = match chance.below(3) {
            0 => 1,
            1 => u32::MAX,
            _ => u32::try_from(chance.below(1000)).unwrap(),
        };
        match chance.below(8) {
            0 => {
                let terms = Terms { weight: Some(weight.max(1)), ..Terms::default() };
                let period = Span::from_nanos(1 << chance.below(40));
                let params = ActivityParams::new(period, Span::from_nanos(1));
                answer(&mut core, now_ns, Input::Create { id, params, terms });
                answer(&mut core, now_ns, Input::Run { id, at: at(now_ns) });
            }
            1 | 2 => {
                let claim = Claim::Weight(weight);
                answer(&mut core, now_ns, Input::Reweigh { id, claim });
            }
            3 => answer(&mut core, now_ns, Input::Close { id }),
            4 => now_ns = (now_ns + (1 << chance.below(62))).min(INSTANT_MAX.as_nanos()),
            _ => {
                if core.running().is_some() {
                    let outcome =
                        if chance.below(2) == 0 { Outcome::Done } else { Outcome::Yielded };
                    answer(&mut core, now_ns, Input::Returned { pdus: 0, outcome });
                }
                while !matches!(core.poll_command(at(now_ns)), None | Some(Command::Upcall { .. }))
                {
                }
            }
        }
        for number in 0..CAPACITY {
            let _ = core.lag_ns(ActivityId(number), at(now_ns));
        }
    }
}

/// Changing a weight of 4 billion to 1 after a jump of the clock overflowed virtual time.
#[test]
fn no_inputs_that_a_replay_accepts_overflow() {
    for discipline in DISCIPLINES {
        for seed in 1..400 {
            drive_hostile(discipline, seed);
        }
    }
}
