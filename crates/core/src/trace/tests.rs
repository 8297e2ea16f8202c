//! A replay gives the same answers, and notices every difference.

use super::*;
use crate::activity::{ActivityId, ActivityParams, Terms};
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
